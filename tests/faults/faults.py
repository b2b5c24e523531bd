"""The faults that strike runs of this machine in a way of their own; see ``strikes``."""

from __future__ import annotations

import json
import mmap
import os
import pty
import resource
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from containernet_env.hosts import engine, owner
from containernet_env.results.columns import COLUMNS, NOT_APPLICABLE
from tests.deadline import HANG_S, eventually
from tests.faults.files import FILLING, MEMBERS, topology
from tests.faults.harness import Run
from tests.faults.strikes import STRIKES, Fault, Strike, once, targets

# --- files -------------------------------------------------------------------------------------------------------


def fill(folder: Path, most_bytes: int) -> None:
    """Leave no room in a small file system. Raises AssertionError where it is larger than ``most_bytes``."""
    left = os.statvfs(folder)
    assert left.f_bavail * left.f_frsize < most_bytes, f"{folder} is no small file system"
    handle = os.open(folder / "filling", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for block in (65_536, 4_096, 1):
            with suppress(OSError):
                while True:
                    os.write(handle, bytes(block))
    finally:
        os.close(handle)


def _fill_page(out: Path) -> None:
    """Append a row, so that the last page of the file has room for less than another: such a write is cut short."""
    page, room = mmap.PAGESIZE, 100
    row = ",".join([FILLING if name == "Scenario" else NOT_APPLICABLE for name in COLUMNS]) + "\n"
    size = out.stat().st_size + len(row)
    padding = (page - room - size) % page
    with out.open("a") as file:
        file.write(row.replace(NOT_APPLICABLE, NOT_APPLICABLE * (padding + 1), 1))


def _out_full(run: Run) -> Fault:
    """OUT on a disk that fills up; its run directories elsewhere."""
    folder, elsewhere = run.files.out.parent, run.files.folder / "record"
    elsewhere.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    subprocess.run(command, check=True, timeout=HANG_S)
    try:
        run.files.runs.symlink_to(elsewhere, target_is_directory=True)
        yield
        _fill_page(run.files.out)
        fill(folder, 16 << 20)
        yield
        run.files.rows()  # before the disk is gone: no torn line
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=HANG_S)


def _out_immutable(run: Run) -> Fault:
    yield
    done = subprocess.run(
        ["chattr", "+i", str(run.files.out)], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"this file system makes no file immutable: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(run.files.out)], check=True, timeout=HANG_S)


def _etcd_full(run: Run) -> Fault:
    """The data of a follower in memory, which is made small and filled."""
    run.files.config.write_text(json.dumps({"nodes": topology(mem="512m"), "etcd": {"data": "tmpfs"}}))
    yield
    (pid,) = targets(run, "follower")
    data = Path(f"/proc/{pid}/root/var/lib/etcd")
    used = os.statvfs(data)
    held = (used.f_blocks - used.f_bfree) * used.f_frsize
    resize = f"remount,size={held + (1 << 20)}"
    subprocess.run(
        ["nsenter", "--target", str(pid), "--mount", "mount", "-o", resize, "/var/lib/etcd"], check=True, timeout=HANG_S
    )
    fill(data, 8 << 20)
    yield


# --- the output --------------------------------------------------------------------------------------------------


def _stdout_closed(run: Run) -> Fault:
    run.wrapper = ("sh", "-c", 'exec "$@" >&-', "sh")
    yield
    yield


def _output_to(opened: Callable[[], tuple[int, ...]]) -> Strike:
    """Its output is to the last of these descriptors, all of which are closed here at the moment.

    A terminal is not its controlling one, which would send SIGHUP, too.
    """

    def fault(run: Run) -> Fault:
        ends = list(opened())
        run.stdout = ends[-1]
        try:
            yield
            while ends:
                os.close(ends.pop())
            run.stdout = None
            yield
        finally:
            for end in ends:
                os.close(end)

    return fault


# --- limits of the machine ---------------------------------------------------------------------------------------

# What a run may still open, and start, when the limit is lowered.
_FEW = 2


def _few_descriptors(run: Run) -> None:
    held = len(os.listdir(f"/proc/{run.driver}/fd"))
    resource.prlimit(run.driver, resource.RLIMIT_NOFILE, (held + _FEW, held + _FEW))


def _few_processes(run: Run) -> Fault:
    """By a cgroup: RLIMIT_NPROC does not limit root."""
    tree = Path("/sys/fs/cgroup/pids")
    group = (tree if tree.is_dir() else Path("/sys/fs/cgroup")) / f"containernet-env-test-{os.getpid()}"
    group.mkdir()
    try:
        if not (group / "pids.max").exists():
            pytest.skip("no pids controller for cgroups here")
        yield
        (group / "cgroup.procs").write_text(str(run.driver))
        held = len(os.listdir(f"/proc/{run.driver}/task"))
        (group / "pids.max").write_text(str(held + _FEW))
        yield
    finally:
        eventually(lambda: _removed(group), "the cgroup is empty")


def _removed(group: Path) -> bool:
    with suppress(OSError):  # as long as a process is in it
        group.rmdir()
    return not group.exists()


_PRESSURE_BYTES = 18 << 30


def _memory_pressure(run: Run) -> Fault:
    """18 GB, or what is available but for 2 GB."""
    yield
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(meminfo["MemAvailable"].split()[0]) * 1024
    size = min(_PRESSURE_BYTES, available - (2 << 30))
    with mmap.mmap(-1, size) as held:
        for place in range(0, size, mmap.PAGESIZE):
            held[place] = 1
        run.resume()
        yield


# --- the user ----------------------------------------------------------------------------------------------------


_NAMED_NAMESPACES = "/run/netns"


def _is_mounted(place: str) -> bool:
    """Whether anything is mounted there. ``os.path.ismount`` does not see a folder that is mounted on itself."""
    return any(line.split()[4] == place for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _names_like_ours(run: Run) -> Fault:
    """Containers, a namespace, interfaces and a bridge of the user's; the driver is killed, so the next run cleans.

    One of the containers has copies of all labels of a run whose driver is dead.
    """
    client = engine.client()
    image = next(image.id for image in client.images.list(filters={"label": engine.LABEL}))
    labels = engine.labels("000000", MEMBERS[0]) | {owner.LABEL: f"{owner.current().rpartition('/')[0]}/1"}
    theirs = [
        client.containers.create(image, name=f"cnenv-000000-{MEMBERS[0]}", command="sh"),
        client.containers.create(image, name="users-database", command="sh", labels=labels),
    ]
    links = (["netns", "cnenv-000000"], ["link", "000000etcd1e0"], ["link", "cnenv-000000"])
    kinds = ([], ["type", "veth", "peer", "name", "000000etcd1e1"], ["type", "bridge"])
    made = []
    mounted = _is_mounted(_NAMED_NAMESPACES)
    try:
        for (what, name), kind in zip(links, kinds, strict=True):
            subprocess.run(["ip", what, "add", name, *kind], check=True, timeout=HANG_S)
            made.append(["ip", what, "delete", name])
        yield
        os.kill(run.driver, signal.SIGKILL)
        yield
        for container in theirs:
            container.reload()
    finally:
        lost = [words for words in made if subprocess.run(words, check=False, timeout=HANG_S).returncode != 0]
        for container in theirs:
            with suppress(engine.NotFound):
                container.remove()
        if not mounted and _is_mounted(_NAMED_NAMESPACES):  # `ip netns add` mounts it
            subprocess.run(["umount", _NAMED_NAMESPACES], check=True, timeout=HANG_S)
    assert lost == [], "what was the user's has been removed"


FAULTS: dict[str, Strike] = {
    **STRIKES,
    "out-full": _out_full,
    "out-immutable": _out_immutable,
    "etcd-full": _etcd_full,
    "stdout-closed": _stdout_closed,
    "stdout-full": _output_to(lambda: (os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC),)),
    "stdout-pipe-closed": _output_to(os.pipe),
    "terminal-lost": _output_to(pty.openpty),
    "few-descriptors": once(_few_descriptors),
    "few-processes": _few_processes,
    "memory-pressure": _memory_pressure,
    "names-like-ours": _names_like_ours,
}
