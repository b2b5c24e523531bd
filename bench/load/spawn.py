"""Runs one program and tells what it used: python -I -S spawn.py STDOUT STDERR SECONDS PROGRAM ARGUMENT...

It runs as a small process of its own because the kernel counts the memory of the process that starts a program into
that program's peak (setmax_mm_hiwater_rss in fs/exec.c): the driver is larger than what is measured. Prints one JSON
object: exit status (negative: the signal), wall, user and system time in seconds, peak resident memory in bytes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time


def main(out: str, err: str, seconds: str, *argv: str) -> None:
    """Run ``argv`` with its output in the files ``out`` and ``err``; kill it after ``seconds``."""
    redirections = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_OPEN, 2, err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
    ]
    began = time.monotonic()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=redirections)
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
    print(json.dumps(used))


if __name__ == "__main__":
    main(*sys.argv[1:])
