"""What a command may do with any input: nothing but answer."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from types import FrameType

from tests.unit.commands import Answer, run

LONGEST_S = 60
"""An input that takes as much CPU time hangs, and one that waits ten times as long. The slowest take six seconds."""
MEMORY_BYTES = 768 << 20
"""What an input may take beside the program itself."""

_ALTERS = frozenset(
    {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"}
)
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.kill"})
_CONNECTS = frozenset({"socket.connect", "socket.bind"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Forbidden(BaseException):
    """A command did what none may do with its input; no ``except Exception`` holds it up."""


judgements: Counter[str] = Counter()
"""How many inputs were accepted and how many refused so far."""
_watched = False


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _watched:
        return
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
        raise Forbidden(f"it opens {arguments[0]!r} for writing")
    if event in _ALTERS or event in _STARTS or event in _CONNECTS:
        raise Forbidden(f"{event} {arguments[:2]!r}")


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise Forbidden(f"no answer after {LONGEST_S} s of CPU time")


@cache
def install() -> None:
    """Let the commands of this process be watched."""
    # What is imported on first use is imported before anything is watched.
    for line in ("check 3node-3ms", "run 3node-3ms --dry-run", "schema", "rerun x", "--version"):
        run(*line.split())
    sys.addaudithook(_audit)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """What is done here has to end, and its memory is bounded."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    handlers = {number: signal.signal(number, _too_long) for number in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    signal.alarm(10 * LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def answer(*words: str) -> Answer:
    """Run a command in this process, watched."""
    global _watched
    # The interpreter writes the bytecode of each module that it imports; the command does not.
    bytecode = sys.dont_write_bytecode
    with bounded():
        _watched = sys.dont_write_bytecode = True
        try:
            result = run(*words)
        finally:
            _watched, sys.dont_write_bytecode = False, bytecode
    assert isinstance(result.code, int), f"exit status {result.code!r}"
    return result


def judged(result: Answer, *named: object) -> bool:
    """Whether the input was accepted; what was refused says so in a message that names one of ``named``."""
    assert "Traceback" not in result.out + result.err
    assert result.code in (0, 2), result
    judgements["accepted" if result.code == 0 else "refused"] += 1
    if result.code == 0:
        return True
    # Notes about rows that are left out may come first.
    assert any(line.startswith(("Error: ", "Usage: ")) for line in result.err.splitlines()), result.err
    assert len(result.err) < 200_000, f"{len(result.err)} characters of message"
    assert any(str(name) in result.err for name in named), result.err
    return False
