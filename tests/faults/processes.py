"""The processes of this machine, as /proc has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def processes() -> Iterator[int]:
    """Every process of the machine."""
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def words_of(pid: int) -> str:
    """The command line of a process; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def program_of(pid: int) -> str:
    """The name of a process's program; empty where there is none."""
    return os.path.basename(words_of(pid).split(" ")[0])


def _parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def children(pid: int) -> list[int]:
    """The processes that a process has started, from any of its threads."""
    return [found for found in processes() if _parent_of(found) == pid]


def below(pid: int) -> list[int]:
    """Children of a process, and theirs; each before its own children."""
    return [found for child in children(pid) for found in (child, *below(child))]
