"""A disk emulator over a directory of another mount namespace: its fsync takes its time, and all else is as before."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.files import root_of
from containernet_env.hosts import disk
from containernet_env.hosts.container import measure_sync
from containernet_env.hosts.counters import ContainerUse
from containernet_env.hosts.disk import COUNTS, Disks
from tests.deadline import HANG_S, eventually
from tests.root.network import needs_root

pytestmark = [
    pytest.mark.root,
    needs_root,
    pytest.mark.skipif(not disk.DEVICE.exists(), reason="this kernel has no FUSE"),
]

FSYNC_NS = 40_000_000


@pytest.fixture
def host(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a mount namespace of its own, whose root is the test's folder."""
    code = "import os, sys; os.chroot(sys.argv[1]); print('up', flush=True); sys.stdin.read()"
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield process
        process.kill()


@pytest.fixture
def disks() -> Iterator[Disks]:
    made = Disks()
    yield made
    made.close()


def emulators(host: subprocess.Popen[bytes]) -> list[int]:
    """The processes whose root is a directory of the host's mounts."""
    found = subprocess.run(["pgrep", "-f", f"disk-emulator --pid {host.pid} "], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def test_an_fsync_takes_the_configured_time_there_and_nowhere_else(
    host: subprocess.Popen[bytes], disks: Disks, tmp_path: Path
) -> None:
    data, log = tmp_path / "data", tmp_path / "made" / "log"
    data.mkdir()
    disks.cover("a", host.pid, [str(data), str(log)], FSYNC_NS)
    for directory in ("/data", "/made/log"):
        assert measure_sync(root_of(host.pid), directory).median_ns >= FSYNC_NS
    mounts = [line.split() for line in Path(f"/proc/{host.pid}/mounts").read_text().splitlines()]
    assert {words[1] for words in mounts if words[0] == "disk-emulator"} == {"/data", "/made/log"}
    assert "disk-emulator" not in Path("/proc/self/mounts").read_text(), "none is among the machine's own mounts"


def test_syncs_are_counted_with_how_late_they_were(host: subprocess.Popen[bytes], disks: Disks, tmp_path: Path) -> None:
    """Also in the counters of a container, and where the disk below is slower: here another emulator."""
    data = tmp_path / "data"
    below = Disks()
    below.cover("a", host.pid, [str(data)], FSYNC_NS)
    disks.cover("a", host.pid, [str(data), str(tmp_path / "unused")], 1_000_000, long_ns=FSYNC_NS // 2)
    seen = root_of(host.pid) / "data"
    use = ContainerUse(host.pid, disks)
    assert [disks.counts(pid) for pid in (host.pid, os.getpid())] == [dict.fromkeys(COUNTS, 0), {}]
    with (seen / "file").open("wb") as file:
        for _ in range(2):
            file.write(b"x")
            file.flush()
            os.fdatasync(file.fileno())
        os.fsync(file.fileno())
    folder = os.open(seen, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)
    counted = use.read()
    assert counted is not None and counted.syncs_late_ns is not None
    assert below.counts(host.pid)["syncs"] == counted.syncs == counted.stalled_syncs == 4
    assert counted.syncs_late_ns >= 4 * (FSYNC_NS - 1_000_000)
    use.close()
    disks.close()
    assert disks.counts(host.pid) == {}
    below.close()


def test_the_files_are_those_of_the_directory(host: subprocess.Popen[bytes], disks: Disks, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "before").write_text("was there")
    disks.cover("a", host.pid, [str(data)], 1_000_000)

    def use(seen: Path) -> None:
        for _ in range(3):
            assert (seen / "before").read_text() == "was there"
        (seen / "wal").mkdir()
        (seen / "wal").chmod(0o2777)
        os.mkfifo(seen / "fifo", 0o666)
        with (seen / "wal" / "0.tmp").open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
            file.write(b"x" * 5000)
            file.flush()
            os.fdatasync(file.fileno())
            with mmap.mmap(file.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ) as held:
                os.pwrite(file.fileno(), b"y", 4095)
                assert held[4094:] == b"xy", "as bbolt reads what it wrote"
        (seen / "wal" / "0.tmp").rename(seen / "wal" / "0.wal")
        (seen / "before").unlink()
        os.chown(seen / "wal" / "0.wal", 5, 6)
        (seen / "outside").symlink_to("/etc")

    before = os.umask(0)
    use(root_of(host.pid) / "data")
    os.umask(before)
    assert (data / "fifo").stat().st_mode & 0o777 == 0o666, "the caller's umask alone counts"
    content = (data / "wal" / "0.wal").read_bytes()
    assert (len(content), content[4094:4097], content[5000]) == (1 << 20, b"xyx", 0)
    assert ((data / "wal" / "0.wal").stat().st_uid, (data / "wal" / "0.wal").stat().st_gid) == (5, 6)
    assert sorted(path.name for path in data.iterdir()) == ["fifo", "outside", "wal"]
    assert (data / "wal").stat().st_mode & 0o7777 == 0o2777


def test_no_link_leads_it_out_of_the_directory(host: subprocess.Popen[bytes], disks: Disks, tmp_path: Path) -> None:
    """It runs as root, and a container decides what the directory contains."""
    data = tmp_path / "data"
    data.mkdir()
    disks.cover("a", host.pid, [str(data)], 1_000_000)
    (emulator,) = emulators(host)
    assert os.path.samefile(f"/proc/{emulator}/root", data) and os.path.samefile(f"/proc/{emulator}/cwd", data)


def test_it_ends_with_its_host_and_with_its_driver(host: subprocess.Popen[bytes], disks: Disks, tmp_path: Path) -> None:
    data = tmp_path / "data"
    disks.cover("a", host.pid, [str(data)], 1_000_000)
    assert len(emulators(host)) == 1 and disks.failure() is None
    os.kill(*emulators(host), signal.SIGKILL)
    assert eventually(disks.failure, "it has ended") == "the disk emulator of a ended: killed by SIGKILL"
    disks.close()
    with pytest.raises(OSError, match="not connected"):
        list((root_of(host.pid) / "data").iterdir())
    code = (
        "import sys, os, signal; from containernet_env.hosts.disk import Disks\n"
        "Disks().cover('a', int(sys.argv[1]), [sys.argv[2]], 10**6); os.kill(os.getpid(), signal.SIGKILL)"
    )
    driver = subprocess.run([sys.executable, "-c", code, str(host.pid), str(tmp_path / "b")], timeout=HANG_S)
    assert driver.returncode == -signal.SIGKILL
    eventually(lambda: not emulators(host), "it ends with its driver")
    disks.cover("a", host.pid, [str(tmp_path / "c")], 1_000_000)
    host.kill()
    eventually(lambda: not emulators(host), "it ends with the namespace")
    assert disks.failure() is None


def test_why_there_is_none_is_said(host: subprocess.Popen[bytes], disks: Disks, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"^a: no disk emulator: mkdir .*file: not a directory$"):
        disks.cover("a", host.pid, [str(tmp_path / "file")], 1_000_000)
    host.kill()
    host.wait(HANG_S)
    with pytest.raises(
        RunError, match=f"^a: no disk emulator: the mount namespace of process {host.pid}: no such file"
    ):
        disks.cover("a", host.pid, [str(tmp_path)], 1_000_000)
