"""Runs one program and tells what it used: python -I -S spawn.py STDOUT STDERR SECONDS PROGRAM ARGUMENT...

It runs as a small process of its own because the kernel counts the memory of the process that calls exec into the peak
of the program that it becomes (setmax_mm_hiwater_rss in fs/exec.c): the driver is larger than what is measured. What is
forked off this one maps nothing but what was written here, about 6 MB: no peak below that can be seen. Prints one JSON
object: exit status (negative: the signal), wall, user and system time in seconds, peak resident memory in bytes.
"""

from __future__ import annotations

import os
import signal
import sys
import time

CANNOT_RUN = 127
"""The exit status of a program that could not be started, as of a shell."""


def main(out: str, err: str, seconds: str, *argv: str) -> None:
    """Run ``argv`` with its output in the files ``out`` and ``err``; kill it after ``seconds``."""
    began = time.monotonic()
    # No posix_spawn: its child shares this process's memory, which then counts as the program's.
    pid = os.fork()
    if pid == 0:
        _become(out, err, argv)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    _, status, usage = os.wait4(pid, 0)
    ended = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0)
    used = {
        "status": os.waitstatus_to_exitcode(status),
        "wall_s": ended - began,
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "peak_rss_bytes": usage.ru_maxrss * 1024,
    }
    import json  # not before: it would be in the memory that is forked off

    print(json.dumps(used))


def _become(out: str, err: str, argv: tuple[str, ...]) -> None:
    """Turn this process into the program."""
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        os.execv(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT_RUN)


if __name__ == "__main__":
    main(*sys.argv[1:])
