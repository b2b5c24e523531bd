"""What is on the machine: counted before and after a run, so that nothing of it can stay unseen."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from containernet_env.hosts import engine
from containernet_env.network import switches
from tests.deadline import eventually

RAISED_BY_STOCK_MININET = (
    "net/core/rmem_max",
    "net/ipv4/tcp_rmem",
    "net/ipv4/neigh/default/gc_thresh1",
    "kernel/pty/max",
)


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


# Programs that only runs start; and those that count where they are in a network namespace of their own, since
# anybody may run an etcd on this machine.
_OURS = (
    "link-emulator serve",
    "link-emulator rtt",
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


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    words: list[str]
    namespace: int
    """The inode of its network namespace."""


def _processes() -> list[_Process]:
    """All but those of another ring that runs apart beside this one (``apart`` in check.sh)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            namespace = os.stat(entry / "ns" / "net").st_ino
            found[int(entry.name)] = _Process(int(entry.name), parent, words, namespace)

    def apart(process: _Process | None) -> bool:
        return process is not None and (
            (process.words[0] == "unshare" and "apart" in process.words) or apart(found.get(process.parent))
        )

    return [process for process in found.values() if not apart(process)]


def _of_runs(processes: list[_Process]) -> set[str]:
    """Processes of runs: pid and command line."""
    here = os.stat("/proc/self/ns/net").st_ino
    found = set()
    for process in processes:
        command = " ".join(process.words)
        inside = process.namespace != here and os.path.basename(process.words[0]) in _OURS_IN_NAMESPACES
        if inside or any(name in command for name in _OURS):
            found.add(f"{process.pid} {command[:120]}")
    return found


def snapshot() -> dict[str, set[str]]:
    """Kind of resource -> what there is of it. Namespaces and links are those of the whole machine."""
    links = {line.split(":")[1].strip() for line in _output("ip", "-o", "link").splitlines()}
    processes = _processes()
    cgroups = {str(path) for path in Path("/sys/fs/cgroup").glob("*/docker/*") if path.is_dir()}
    cgroups |= {str(path) for path in Path("/sys/fs/cgroup").glob("system.slice/docker-*") if path.is_dir()}
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return {
        "containers": {container.name for container in engine.list_ours()},
        "all containers": {c["Id"][:12] for c in engine.client().api.containers(all=True)},
        "named namespaces": set(_output("ip", "netns").split()),
        "namespaces": {str(process.namespace) for process in processes},
        "links": links,
        "bridges of Open vSwitch": {f"{bridge.name} of {bridge.owner}" for bridge in switches.list_ours()},
        "qdiscs": set(_output("tc", "qdisc").splitlines()),
        "cgroups": cgroups,
        "mounts": mounts,
        "processes": _of_runs(processes),
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
