"""What is on the machine: counted before and after a run, so that nothing of it can stay unseen."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from containernet_env.hosts import engine
from containernet_env.network import switches
from tests.deadline import eventually
from tests.processes import namespace_of, parent_of, processes, program_of, words_of

RAISED_BY_STOCK_MININET = (
    "net/core/rmem_max",
    "net/ipv4/tcp_rmem",
    "net/ipv4/neigh/default/gc_thresh1",
    "kernel/pty/max",
)


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


# Programs that only runs start; and those that count where they are in a network namespace of their own, since
# an etcd of other users may run on this machine.
_OURS = (
    "link-emulator serve",
    "link-emulator probe",
    "wait-at-gate",
    "containernet-env run",
    "containernet-env sweep",
    "containernet-env shell",
)
_OURS_IN_NAMESPACES = (
    "etcd",
    "user-program",
    "benchmark-server",
    "benchmark-client",
    "benchmark-client-tls",
    "mnexec",
    "sh",
)


def _is_apart(pid: int) -> bool:
    """Whether a process is of another ring that runs apart beside this one (``apart`` in check.sh)."""
    words = words_of(pid).split()
    return pid > 0 and ((words[:1] == ["unshare"] and "apart" in words) or _is_apart(parent_of(pid)))


def _of_runs(pids: list[int]) -> set[str]:
    """Processes of runs: pid and command line."""
    found = set()
    for pid in pids:
        command, here = words_of(pid), namespace_of(os.getpid())
        inside = namespace_of(pid) not in (None, here) and program_of(pid) in _OURS_IN_NAMESPACES
        if inside or any(name in command for name in _OURS):
            found.add(f"{pid} {command[:120]}")
    return found


def snapshot() -> dict[str, set[str]]:
    """Kind of resource -> what there is of it. Namespaces and links are those of the whole machine."""
    links = {line.split(":")[1].strip() for line in _output("ip", "-o", "link").splitlines()}
    running = [pid for pid in processes() if not _is_apart(pid)]
    cgroups = {str(path) for path in Path("/sys/fs/cgroup").glob("*/docker/*") if path.is_dir()}
    cgroups |= {str(path) for path in Path("/sys/fs/cgroup").glob("system.slice/docker-*") if path.is_dir()}
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return {
        "containers": {container.name for container in engine.list_ours()},
        "all containers": {c["Id"][:12] for c in engine.client().api.containers(all=True)},
        "named namespaces": set(_output("ip", "netns").split()),
        "namespaces": {str(found) for pid in running if (found := namespace_of(pid)) is not None},
        "links": links,
        "bridges of Open vSwitch": {f"{bridge.name} of {bridge.owner}" for bridge in switches.list_ours()},
        "qdiscs": set(_output("tc", "qdisc").splitlines()),
        "cgroups": cgroups,
        "mounts": mounts,
        "processes": _of_runs(running),
        "sysctls": {f"{name} {Path('/proc/sys', name).read_text()}" for name in RAISED_BY_STOCK_MININET},
    }


def left_over(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is there now and was not in `before`, once the kernel has finished what it does lazily."""
    with suppress(AssertionError):  # the caller shows what is left
        eventually(lambda: not more_than(before), "nothing is left")
    return more_than(before)


def more_than(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is there at this moment and was not in `before`."""
    now = snapshot()
    return {kind: now[kind] - before[kind] for kind in now if now[kind] - before[kind]}
