"""Files of containers: wherever their links lead, nothing of this machine is read, written or waited for.

Also how long an fdatasync takes there.
"""

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
from containernet_env.hosts.container import SAMPLES, Container, measure_sync, put_secrets
from containernet_env.hosts.options import ContainerOptions
from containernet_env.hosts.processes import account_text
from containernet_env.stores.cluster import MemberPlace
from containernet_env.stores.etcd import EtcdMember

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
        EtcdMember(MemberPlace(host, "10.0.0.1", SimpleNamespace())).start(deadline=0.0)


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

    def held() -> list[tuple[str, object]]:
        return [(str(entry), entry.is_file() and entry.read_text()) for entry in sorted(machine.rglob("*"))]

    before, found, written = held(), None, list[int]()
    monkeypatch.setattr(container.os, "fdatasync", lambda descriptor: written.append(os.fstat(descriptor).st_dev))
    try:
        found = act(root)
    except RunError as error:
        assert MINE not in str(error)
    if reader is not None:
        assert os.read(reader, 10) == b""
        os.close(reader)
    assert found != MINE and set(written) <= {root.stat().st_dev} and held() == before


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
    refused = r"^(etcd1 did not wait at its gate: |host etcd1: /etc/passwd of its image could )"
    with pytest.raises(RunError, match=refused):
        act(tmp_path)
    assert kind != "file" or place.read_text() == "theirs"


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


def test_accounts_without_end_and_a_process_with_the_root_of_this_machine_are_refused(tmp_path: Path) -> None:
    """The number of a process that has ended is another one's."""
    (tmp_path / "etc").mkdir()
    with open(tmp_path / "etc/passwd", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(RunError, match=r"^host etcd1: /etc/passwd of its image has more than 1048576 characters"):
        account_text(tmp_path, "etcd1", "/etc/passwd")
    assert account_text(tmp_path, "etcd1", "/etc/group") == ""
    for opened in (
        lambda: open_folder(root_of(os.getpid()), "/"),
        lambda: open_file(root_of(1), "/etc/passwd", os.O_RDONLY),
    ):
        with pytest.raises(OSError) as raised:
            opened()
        assert raised.value.errno in (errno.ESRCH, errno.EACCES)


def test_a_hosts_file_without_end_is_refused(tmp_path: Path) -> None:
    """A container can make its /etc/hosts as long as it likes, and the driver read all of it into its memory."""
    path = tmp_path / "hosts"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(RunError, match=rf"^{path}, which the engine keeps for the container, has more than 1048576 ch"):
        Container("d1", ContainerOptions())._begin_names({"HostsPath": str(path)})
    assert path.stat().st_size == 1 << 40


def test_the_copy_of_a_descriptor_opens_nothing() -> None:
    """A process may hold the path of a device that it is not allowed to open."""
    held = os.open("/dev/null", os.O_PATH)
    copy = copy_descriptor(os.getpid(), held)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(copy, b"x")
    os.close(copy)
    os.close(held)


def test_secrets_are_put_into_memory_for_root_alone_and_not_on_a_disk(machine: Path, tmp_path: Path) -> None:
    if Path("/dev/shm").stat().st_dev == Path("/dev").stat().st_dev:
        pytest.skip("/dev/shm is no file system of its own")
    path, etc = f"/shm/{machine.name}/key.pem", tmp_path / "etc"
    put_secrets(Path("/dev"), "etcd1", {path: b"secret"})
    assert (machine / "key.pem").read_bytes() == b"secret"
    assert (machine / "key.pem").stat().st_mode & 0o777 == 0o600
    with pytest.raises(RunError, match=r"etcd1: .*/key.pem could not be written: File exists") as raised:
        put_secrets(Path("/dev"), "etcd1", {path: b"other"})
    assert "other" not in str(raised.value)
    etc.mkdir()
    with pytest.raises(RunError, match=r"etcd1: /etc/key.pem would not be in memory"):
        put_secrets(tmp_path, "etcd1", {"/etc/key.pem": b"secret"})
    assert not (etc / "key.pem").exists()
    with pytest.raises(RunError, match="No such file or directory"):
        put_secrets(tmp_path, "etcd1", {"/nowhere/key.pem": b"secret"})


def test_it_is_measured_in_the_directory_or_the_nearest_parent_that_exists(tmp_path: Path) -> None:
    times = measure_sync(tmp_path, "/var/lib/etcd", budget_s=5.0)
    assert times.samples == SAMPLES
    assert 0 < times.median_ns <= times.slowest_ns
    assert list(tmp_path.iterdir()) == []
    for root, path in ((Path("/proc"), "/self"), (root_of(4194304), "/var/lib/etcd")):  # above the largest pid
        with pytest.raises(RunError, match=rf"^no fdatasync could be measured in {path}: "):
            measure_sync(root, path)


def test_a_slow_disk_is_measured_as_often_as_there_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync takes 30 ms by a clock of its own: of 0.1 s each begins one as long as there is any left."""
    now_ns = 0
    written: list[int] = []

    def sync(descriptor: int) -> None:
        nonlocal now_ns
        written.append(os.fstat(descriptor).st_nlink)
        now_ns += 30_000_000

    monkeypatch.setattr(container.os, "fdatasync", sync)
    monkeypatch.setattr(container.clock, "perf_counter_ns", lambda: now_ns)
    monkeypatch.setattr(container.clock, "monotonic", lambda: now_ns / 1e9)
    times = measure_sync(tmp_path, "/", budget_s=0.1)
    assert (times.samples, times.median_ns, times.slowest_ns) == (4, 30_000_000, 30_000_000)
    assert measure_sync(tmp_path, "/", budget_s=0.0).samples == 1
    assert set(written) == {0}, "a run that is killed here leaves a file behind"


def test_an_engine_that_remaps_users_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "Value too large for defined data type"."""
    opened = os.open

    def refused(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW))
        return opened(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", refused)
    for act in (
        lambda: measure_sync(Path("/dev"), "/"),
        lambda: put_secrets(Path("/dev"), "etcd1", {"/shm/key.pem": b"secret"}),
    ):
        with pytest.raises(RunError, match=r"the engine remaps users \(userns-remap\)"):
            act()
