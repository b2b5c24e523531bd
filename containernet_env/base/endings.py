"""How a program ended, in one line for people: its exit status or signal, and what it said that tells why."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

# How the Go runtime begins to tell a crash (runtime/panic.go, signal_unix.go, proc.go, malloc.go); a dump of goroutines
# follows, which may be thousands of lines. Lines with the details come before the line that every crash has.
_GO_CRASH = re.compile(
    r"^(?:(?:runtime(?:/cgo)?: |unexpected fault address ).*\n)*(?:panic|fatal error|SIG[A-Z0-9]+): .*", re.MULTILINE
)
# A line of a log in a message; the log itself is kept elsewhere.
_LINE_MAX = 300
OOM_BY_OWN_LIMIT = "memory limit"
"""What the end of a host says only where its own memory limit ended it, in front of that limit."""
_BY_OWN_LIMIT = re.compile(rf"(?:\S+ ended: )?(?:OOM-killed|[\w ]+ after an OOM kill in it) \({OOM_BY_OWN_LIMIT} ")

LastWords = Callable[[str, bool], str]
"""What a program's log tells of its end, in one line, "" where nothing. True: a signal ended it from outside, so that
no line of the log is the cause."""


def how_ended(status: int) -> str:
    """An exit status as in "exit status 2" or "killed by SIGKILL".

    Signals are negative (Python's ``subprocess``) or come after 128 (shells, the Docker engine).
    """
    killed_by = killing_signal(status)
    return f"exit status {status}" if killed_by is None else f"killed by {killed_by}"


def is_by_own_limit(ending: str) -> bool:
    """Whether a program's own memory limit has ended it. A program that writes of one before it ends is not that."""
    return _BY_OWN_LIMIT.match(ending) is not None


def killing_signal(status: int) -> str | None:
    """The name of the signal that an exit status stands for, if it does; see ``how_ended``."""
    number = -status if status < 0 else status - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def crash_line(text: str) -> str | None:
    """The first line of the Go crash in what a program wrote, which is the one that says what happened."""
    found = _GO_CRASH.search(text)
    return None if found is None else one_line(found.group().partition("\n")[0])


def last_words(log: str, killed: bool = False) -> str:
    """The words of any program (see ``LastWords``): the first line of a Go crash, else the last line it wrote."""
    crash = crash_line(log)
    if crash is not None or killed:
        return crash or ""
    return one_line(log.strip().rpartition("\n")[2])


def one_line(text: str) -> str:
    """Text in one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _LINE_MAX else line[: _LINE_MAX - 3] + "..."


def ending(status: int, text: str, words: LastWords = last_words) -> str:
    """How a program ended that exited with ``status`` and wrote ``text``."""
    killed = killing_signal(status) is not None
    return with_words(how_ended(status), words(text, killed), killed)


def with_words(how: str, words: str, killed: bool) -> str:
    """How a program ended, and its words: the reason, except where it was ``killed`` from outside."""
    separator = ", " if killed else ": "
    return separator.join(filter(None, (how, words)))
