"""The faults: what each needs before a run starts, how it strikes, and what is put back afterwards.

Each is a generator that is given the run. It yields twice: once it has set up what it needs, before the run starts, and
once it has struck, at the moment. What follows the second yield puts back what the machine had; it is carried out in
any case. Whatever checks what the fault alone can tell is there, too.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import pty
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from containernet_env.hosts import engine, owner
from containernet_env.results.column import NOT_APPLICABLE
from containernet_env.results.columns import COLUMNS
from tests.deadline import HANG_S, eventually, let_pass
from tests.faults.files import MEMBERS, topology
from tests.faults.harness import Run, tool
from tests.faults.own_engine import OwnEngine
from tests.faults.promises import FILLING
from tests.faults.table import BRIEF_S

Fault = Generator[None, None, None]
Who = Callable[[Run], list[int]]


# --- processes ---------------------------------------------------------------------------------------------------


def _emulator(run: Run) -> list[int]:
    return [run.wait_for_target(run.emulator)]


def _server(run: Run) -> list[int]:
    return [run.wait_for_target(run.server)]


def _client(run: Run) -> list[int]:
    return [run.wait_for_target(run.client)]


def _hosts(run: Run, *names: str) -> list[int]:
    return [run.wait_for_target(lambda name=name: run.host(name)) for name in names]


def _follower(run: Run) -> list[int]:
    return _hosts(run, run.followers()[0])


def _leader(run: Run) -> list[int]:
    return _hosts(run, run.leader())


def _two_members(run: Run) -> list[int]:
    return _hosts(run, run.leader(), run.followers()[0])


def _send(pids: list[int], signum: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)


def _driver_gets(signum: int) -> Callable[[Run], Fault]:
    def fault(run: Run) -> Fault:
        yield
        os.kill(run.driver, signum)
        yield

    return fault


def _killed(who: Who) -> Callable[[Run], Fault]:
    def fault(run: Run) -> Fault:
        yield
        _send(who(run), signal.SIGKILL)
        yield

    return fault


def _stopped(who: Who, seconds: float | None = None) -> Callable[[Run], Fault]:
    """Stopped for so long, or for ever; a deadline of requests that is longer, or much shorter, than that."""

    def fault(run: Run) -> Fault:
        run.files.set_deadline("300ms" if seconds is None else "8s")
        pids: list[int] = []
        yield
        try:
            pids += who(run)
            _send(pids, signal.SIGSTOP)
            if seconds is not None:
                run.resume()
                let_pass(seconds)
                _send(pids, signal.SIGCONT)
            yield
        finally:
            _send(pids, signal.SIGCONT)

    return fault


# --- the engine --------------------------------------------------------------------------------------------------


def _engine(strike: Callable[[OwnEngine], None]) -> Callable[[Run], Fault]:
    """On an engine of the test's own. Once the run is over it is started again, and `clean` finds the rest."""

    def fault(run: Run) -> Fault:
        own = run.own_engine
        assert own is not None
        yield
        strike(own)
        try:
            yield
        finally:
            own.start()
        status, text = tool("clean", environment=run.environment)
        assert status == 0, text
        assert own.containers() == set(), text

    return fault


# --- files -------------------------------------------------------------------------------------------------------


@contextmanager
def _small_disk(folder: Path, size: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True, timeout=HANG_S)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=HANG_S)


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
    files = run.files
    elsewhere = files.folder / "record"
    elsewhere.mkdir()
    with _small_disk(files.out.parent, "8m"):
        files.runs.symlink_to(elsewhere, target_is_directory=True)
        yield
        _fill_page(files.out)
        fill(files.out.parent, 16 << 20)
        yield
        run.files.rows()  # before the disk is gone: no torn line


def _out_removed(run: Run) -> Fault:
    yield
    run.files.out.unlink()
    yield


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


def _out_folder_removed(run: Run) -> Fault:
    yield
    shutil.rmtree(run.files.out.parent)
    yield


def _record_is_a_file(run: Run) -> Fault:
    yield
    runs = run.files.runs
    runs.rename(runs.with_name("earlier"))
    runs.write_text("a file\n")
    yield


def _etcd_full(run: Run) -> Fault:
    """The data of a follower in memory, which is made small and filled."""
    run.files.config.write_text(json.dumps({"nodes": topology(mem="512m"), "etcd": {"data": "tmpfs"}}))
    yield
    name = run.followers()[0]
    (pid,) = _hosts(run, name)
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


def _stdout_full(run: Run) -> Fault:
    run.stdout = os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield
        yield
    finally:
        os.close(run.stdout)


def _stdout_pipe_closed(run: Run) -> Fault:
    reader, run.stdout = os.pipe()
    try:
        yield
        os.close(run.stdout)
        os.close(reader)
        run.stdout = None
        yield
    finally:
        if run.stdout is not None:
            os.close(reader)
            os.close(run.stdout)


def _terminal_lost(run: Run) -> Fault:
    """Not its controlling terminal, which would send SIGHUP, too."""
    master, run.stdout = pty.openpty()
    try:
        yield
        os.close(run.stdout)
        os.close(master)
        run.stdout = None
        yield
    finally:
        if run.stdout is not None:
            os.close(master)
            os.close(run.stdout)


# --- limits of the machine ---------------------------------------------------------------------------------------

# What a run may still open, and start, when the limit is lowered.
_FEW = 2


def _few_descriptors(run: Run) -> Fault:
    yield
    held = len(os.listdir(f"/proc/{run.driver}/fd"))
    resource.prlimit(run.driver, resource.RLIMIT_NOFILE, (held + _FEW, held + _FEW))
    yield


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
        _remove_cgroup(group)


def _remove_cgroup(group: Path) -> None:
    def removed() -> bool:
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    eventually(removed, "the cgroup is empty")


def _clock_moved(seconds: float) -> Callable[[Run], Fault]:
    def fault(run: Run) -> Fault:
        yield
        _move_clock(seconds)
        try:
            yield
        finally:
            _move_clock(-seconds)

    return fault


def _move_clock(seconds: float) -> None:
    subprocess.run(["date", "--set", f"{seconds:+.0f} seconds"], check=True, timeout=HANG_S, stdout=subprocess.DEVNULL)


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


def _config_edited(run: Run) -> Fault:
    yield
    run.files.config.write_text("[]")
    run.files.scenarios.unlink()
    yield


def _second_run(run: Run) -> Fault:
    yield
    second = Run(run.files.folder / "second")
    second.start()
    status, said = second.wait()
    assert status == 1 and f"another run is on (process {run.driver})" in said, said
    assert second.rows() == []
    yield


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
    commands = (
        ["ip", "netns", "add", "cnenv-000000"],
        ["ip", "link", "add", "000000etcd1e0", "type", "veth", "peer", "name", "000000etcd1e1"],
        ["ip", "link", "add", "cnenv-000000", "type", "bridge"],
    )
    undo = (
        ["ip", "netns", "delete", "cnenv-000000"],
        ["ip", "link", "delete", "000000etcd1e0"],
        ["ip", "link", "delete", "cnenv-000000"],
    )
    made = []
    mounted = _is_mounted(_NAMED_NAMESPACES)
    try:
        for command, opposite in zip(commands, undo, strict=True):
            subprocess.run(command, check=True, timeout=HANG_S)
            made.append(opposite)
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


FAULTS: dict[str, Callable[[Run], Fault]] = {
    **{f"driver-{name}": _driver_gets(getattr(signal, f"SIG{name.upper()}")) for name in ("int", "term", "hup")},
    "driver-quit": _driver_gets(signal.SIGQUIT),
    "driver-kill": _driver_gets(signal.SIGKILL),
    "engine-term": _engine(OwnEngine.terminate),
    "engine-kill": _engine(OwnEngine.kill),
    "containerd-kill": _engine(OwnEngine.kill_containerd),
    "out-full": _out_full,
    "out-removed": _out_removed,
    "out-immutable": _out_immutable,
    "out-folder-removed": _out_folder_removed,
    "record-is-a-file": _record_is_a_file,
    "etcd-full": _etcd_full,
    "stdout-closed": _stdout_closed,
    "stdout-full": _stdout_full,
    "stdout-pipe-closed": _stdout_pipe_closed,
    "terminal-lost": _terminal_lost,
    "few-descriptors": _few_descriptors,
    "few-processes": _few_processes,
    "clock-forward": _clock_moved(3600.0),
    "clock-back": _clock_moved(-3600.0),
    "memory-pressure": _memory_pressure,
    "config-edited": _config_edited,
    "second-run": _second_run,
    "names-like-ours": _names_like_ours,
}
for _name, _who in (
    ("emulator", _emulator),
    ("server", _server),
    ("client", _client),
    ("follower", _follower),
    ("leader", _leader),
    ("two-members", _two_members),
):
    FAULTS[f"{_name}-kill"] = _killed(_who)
    FAULTS[f"{_name}-stop"] = _stopped(_who)
    FAULTS[f"{_name}-stop-briefly"] = _stopped(_who, BRIEF_S)
