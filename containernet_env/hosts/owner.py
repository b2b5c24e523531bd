"""Who a resource belongs to: the process that made it, named so that a reused pid is not mistaken for it.

Every container carries its owner as a label. What belongs to a living process is in use; what belongs to a dead
one was left behind, and may be removed by anyone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

LABEL = "containernet-env.owner"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


START_TICKS = 22
"""The field of /proc/PID/stat (proc(5)) that has the start time, in clock ticks after boot."""


def stat_field(pid: int | str, number: int, proc: Path = Path("/proc")) -> str:
    """A field of /proc/PID/stat by its number in proc(5), 3 or more. Raises ``OSError`` where no such process is."""
    # The command name (field 2) may hold spaces and parentheses; fields are counted after its last ')'.
    return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[number - 3]


def current() -> str:
    """The label value that names this process: "boot id/pid/start ticks"."""
    pid = os.getpid()
    return f"{_boot_id()}/{pid}/{stat_field(pid, START_TICKS)}"


def is_owner(text: str) -> bool:
    """Whether ``text`` names a process as ``current`` does, one of this boot or an earlier one."""
    return re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]+/[0-9]+", text) is not None


def is_alive(owner: str) -> bool:
    """Whether the process that `owner` names still runs; False for anything that is not a value of `current`."""
    boot_id, _, rest = owner.partition("/")
    pid, _, ticks = rest.partition("/")
    if boot_id != _boot_id() or not pid.isdecimal() or not ticks.isdecimal():
        return False
    try:
        return stat_field(pid, START_TICKS) == ticks
    except OSError:
        return False
