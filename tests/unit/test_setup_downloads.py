"""Files that are fetched: checked, kept, and none of them half."""

from __future__ import annotations

import hashlib
import io
import threading
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

import pytest

from containernet_env.base import cache
from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import downloads
from containernet_env.setup.commands import Stopped
from containernet_env.stores.protocol import Download

CONTENT = b"PK\x03\x04" + bytes(100_000)
SHA256, SHA1 = hashlib.sha256(CONTENT).hexdigest(), hashlib.sha1(CONTENT).hexdigest()


ADDRESS = "http://repository.example"
# a.jar has its checksum beside it, b.jar another one's; c.jar breaks off.
FILES = {
    f"{ADDRESS}/a.jar": CONTENT,
    f"{ADDRESS}/a.jar.sha1": f"{SHA1}  a.jar\n".encode(),
    f"{ADDRESS}/b.jar": CONTENT,
    f"{ADDRESS}/b.jar.sha1": b"00\n",
}


class BreaksOff(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        if not (found := super().read(size)):
            raise ConnectionResetError("Connection reset by peer")
        return found


def opened(url: str, timeout: float) -> io.BytesIO:
    """Stands for ``urllib.request.urlopen``."""
    if url.endswith("/c.jar"):
        return BreaksOff(CONTENT[:1000])
    if url not in FILES:
        raise urllib.error.HTTPError(url, 404, "Not Found", Message(), None)
    return io.BytesIO(FILES[url])


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "cache").mkdir(mode=0o755)
    monkeypatch.setattr(cache, "MACHINE", tmp_path / "cache")
    monkeypatch.setattr(cache, "own", lambda: tmp_path / "cache")
    monkeypatch.setattr(urllib.request, "urlopen", opened)
    return ADDRESS


def kept(tmp_path: Path) -> list[str]:
    folder = tmp_path / "cache" / "downloads"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("sha256", [SHA256, None])
def test_a_file_is_fetched_once(tmp_path: Path, address: str, sha256: str | None) -> None:
    wanted = Download("zookeeper.jar", f"{address}/a.jar", sha256)
    assert downloads.find(wanted) is None
    path = downloads.fetch(wanted, threading.Event())
    assert path.read_bytes() == CONTENT and downloads.find(wanted) == path
    assert kept(tmp_path) == [path.name] and path.name.endswith("-zookeeper.jar")
    before = path.stat().st_mtime_ns
    assert downloads.fetch(wanted, threading.Event()).stat().st_mtime_ns == before


def test_a_file_that_was_changed_since_is_fetched_again(address: str) -> None:
    wanted = Download("a.jar", f"{address}/a.jar", SHA256)
    path = downloads.fetch(wanted, threading.Event())
    path.write_bytes(b"another")
    assert downloads.find(wanted) is None
    assert downloads.fetch(wanted, threading.Event()).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "sha256", "words"),
    [
        ("a.jar", "0" * 64, "its checksum is"),
        ("b.jar", None, "its checksum is"),
        ("c.jar", SHA256, "could not be fetched"),
        ("none.jar", SHA256, "404"),
        ("none.jar", None, "404"),
    ],
)
def test_another_file_is_refused_and_nothing_is_left(
    tmp_path: Path, address: str, name: str, sha256: str | None, words: str
) -> None:
    with pytest.raises(MissingRequirementError, match=words) as caught:
        downloads.fetch(Download(name, f"{address}/{name}", sha256), threading.Event())
    assert "Check the network" in str(caught.value)
    assert kept(tmp_path) == []


def test_a_download_can_be_stopped(tmp_path: Path, address: str) -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Stopped):
        downloads.fetch(Download("a.jar", f"{address}/a.jar", SHA256), stopping)
    assert kept(tmp_path) == []
