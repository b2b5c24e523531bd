"""Files that are fetched: checked, kept, and none of them half."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from containernet_env.base import cache
from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import downloads
from containernet_env.setup.commands import Stopped
from containernet_env.stores.protocol import Download

CONTENT = b"PK\x03\x04" + bytes(100_000)
SHA256, SHA1 = hashlib.sha256(CONTENT).hexdigest(), hashlib.sha1(CONTENT).hexdigest()


class Repository(BaseHTTPRequestHandler):
    """Has a.jar, with a checksum beside it, and b.jar, whose checksum is another one's; c.jar breaks off."""

    answers: ClassVar = {
        "/a.jar": CONTENT,
        "/a.jar.sha1": f"{SHA1}  a.jar\n".encode(),
        "/b.jar": CONTENT,
        "/b.jar.sha1": b"00\n",
    }

    def do_GET(self) -> None:
        body = CONTENT[:1000] if self.path == "/c.jar" else self.answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(CONTENT) if self.path == "/c.jar" else len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "cache").mkdir(mode=0o755)
    monkeypatch.setattr(cache, "MACHINE", tmp_path / "cache")
    monkeypatch.setattr(cache, "own", lambda: tmp_path / "cache")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Repository) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


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
