"""Files of containers: wherever their links lead, nothing of this machine is read, written or waited for."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import files
from containernet_env.base.errors import RunError
from containernet_env.base.files import copy_descriptor, open_file, open_folder, root_of
from containernet_env.hosts import container
from containernet_env.hosts.container import measure_sync, put_secrets
from containernet_env.hosts.processes import account_text
from containernet_env.stores.cluster import MemberPlace
from containernet_env.stores.etcd.cluster import EtcdMember

MINE = "of this machine"


@pytest.fixture
def machine() -> Iterator[Path]:
    """A folder of this machine, in memory: secrets would be written there."""
    folder = Path("/dev/shm") / f"containernet-env-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def open_gate(root: Path) -> None:
    host: Any = SimpleNamespace(name="etcd1", pid=1, alive=True, ending=lambda words: None, logs=lambda tail: "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "root_of", lambda pid: root)
        EtcdMember(MemberPlace(host, "10.0.0.1", SimpleNamespace())).start(deadline=0.0)  # type: ignore[arg-type]


# What root does in a container, and the path where it does.
PLACES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "gate": (open_gate, "run/gate"),
    "secrets": (lambda root: put_secrets(root, "etcd1", {"/run/tls/key.pem": b"secret"}), "run/tls/key.pem"),
    "data": (lambda root: measure_sync(root, "/var/lib/etcd"), "var/lib/etcd"),
    "accounts": (lambda root: account_text(root, "etcd1", "/etc/passwd"), "etc/passwd"),
}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("linked", [-1, -2, 1])
@pytest.mark.parametrize("relative", [False, True])
def test_a_link_of_a_container_does_not_lead_out_of_it(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, where: str, linked: int, relative: bool
) -> None:
    """``linked``: how many parts of the path the container has, the last of which leads to this machine."""
    act, path = PLACES[where]
    parts = path.split("/")
    link = Path(*parts[: linked if linked > 0 else len(parts) + 1 + linked])
    mine = machine / path
    mine.parent.mkdir(parents=True)
    reader = None
    if where == "data":
        mine.mkdir()
    elif where == "gate":
        os.mkfifo(mine)
        reader = os.open(mine, os.O_RDONLY | os.O_NONBLOCK)
    elif where != "secrets" or link == Path(path):
        mine.write_text(MINE)
    root = tmp_path / "container"
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(os.path.relpath(machine / link, (root / link).parent) if relative else machine / link)
    before = [(str(entry), entry.is_file() and entry.read_text()) for entry in sorted(machine.rglob("*"))]
    written: list[int] = []
    monkeypatch.setattr(container.os, "fdatasync", lambda descriptor: written.append(os.fstat(descriptor).st_dev))
    found = None
    try:
        found = act(root)
    except RunError as error:
        assert MINE not in str(error)
    finally:
        sent = b"" if reader is None else os.read(reader, 10)
        if reader is not None:
            os.close(reader)
    assert sent == b""
    assert found != MINE
    assert set(written) <= {root.stat().st_dev}
    assert [(str(entry), entry.is_file() and entry.read_text()) for entry in sorted(machine.rglob("*"))] == before


@pytest.mark.parametrize("where", ["gate", "accounts"])
@pytest.mark.parametrize("kind", ["file", "FIFO", "folder", "device", "socket", "loop"])
def test_what_is_of_another_kind_is_not_opened(tmp_path: Path, where: str, kind: str) -> None:
    act, path = PLACES[where]
    place = tmp_path / path
    place.parent.mkdir(parents=True)
    made: dict[str, Callable[[], Any]] = {
        "file": lambda: place.write_text("theirs"),
        "FIFO": lambda: os.mkfifo(place),
        "folder": place.mkdir,
        "device": lambda: os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 7)),  # /dev/full
        "socket": lambda: os.mknod(place, stat.S_IFSOCK | 0o600),
        "loop": lambda: place.symlink_to(place.name),
    }
    try:
        made[kind]()
    except PermissionError:
        pytest.skip("only root makes devices")
    if (where, kind) == ("accounts", "file"):
        assert act(tmp_path) == "theirs"
        return
    with pytest.raises(
        RunError, match=r"^(etcd1 did not wait at its gate: |host etcd1: /etc/passwd of its image could )"
    ):
        act(tmp_path)
    if kind == "file":
        assert place.read_text() == "theirs"


def test_a_gate_is_opened_and_a_full_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "elsewhere")
    (tmp_path / "run/gate").symlink_to("/elsewhere")
    reader = os.open(tmp_path / "elsewhere", os.O_RDONLY | os.O_NONBLOCK)
    try:
        open_gate(tmp_path)
        assert os.read(reader, 10) == b"go\n"
        writer = os.open(tmp_path / "elsewhere", os.O_WRONLY | os.O_NONBLOCK)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        os.close(writer)
        with pytest.raises(RunError, match=r"^etcd1 did not wait at its gate: Resource temporarily unavailable"):
            open_gate(tmp_path)
    finally:
        os.close(reader)


def test_accounts_without_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    with open(tmp_path / "etc/passwd", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(RunError, match=r"^host etcd1: /etc/passwd of its image has more than 1048576 characters"):
        account_text(tmp_path, "etcd1", "/etc/passwd")
    assert account_text(tmp_path, "etcd1", "/etc/group") == ""


def test_a_process_with_the_root_of_this_machine_is_no_container() -> None:
    """The number of a process that has ended is another one's."""
    for opened in (
        lambda: open_folder(root_of(os.getpid()), "/"),
        lambda: open_file(root_of(1), "/etc/passwd", os.O_RDONLY),
    ):
        with pytest.raises(OSError) as raised:
            opened()
        assert raised.value.errno in (errno.ESRCH, errno.EACCES)


def test_the_copy_of_a_descriptor_opens_nothing() -> None:
    """A process may hold the path of a device that it is not allowed to open."""
    held = os.open("/dev/null", os.O_PATH)
    try:
        copy = copy_descriptor(os.getpid(), held)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(copy, b"x")
        os.close(copy)
    finally:
        os.close(held)
