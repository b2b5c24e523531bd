"""The processes of this machine, as /proc has them, and a command that presses Ctrl-C at a chosen moment."""

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


def namespace_of(pid: int) -> int | None:
    """The inode of a process's network namespace."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def _state_and_parent(pid: int) -> list[str]:
    """Fields 3 and 4 of /proc/PID/stat (proc_pid_stat(5)); nothing where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return []


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return _state_and_parent(pid)[:1] == ["T"]


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if there is none."""
    return int([*_state_and_parent(pid), 0, 0][1])


def children(pid: int) -> list[int]:
    """The processes that a process has started, from any of its threads."""
    return [found for found in processes() if _state_and_parent(found)[1:] == [str(pid)]]


def below(pid: int) -> list[int]:
    """Children of a process, and theirs; each before its own children."""
    return [found for child in children(pid) for found in (child, *below(child))]


def pressing_ctrl_c(function: str, whom: str, *words: str) -> str:
    """Code for ``python -c``: the command, which presses Ctrl-C where a function is first called after it is heard.

    ``function`` is a qualified name, ``whom`` the call that sends SIGINT, ``words`` those of the command line; without
    any they are the program's own.
    """
    return f"""
import os, signal, sys

heard = False

def press(frame, event, arg):
    global heard
    name = frame.f_code.co_qualname
    heard = heard or (name, event) == ("hear_ctrl_c", "return")
    if heard and (name, event) == ({function!r}, "call"):
        sys.setprofile(None)
        {whom}

sys.argv[1:] = {words!r} or sys.argv[1:]
sys.setprofile(press)
from containernet_env.__main__ import main
sys.exit(main())
"""
