"""Runs a command on a machine that is disturbed: busy loops on all cores, and pauses of the processes of runs.

    sudo .venv/bin/python -m tests.noise [--seed N] [--busy-only] ./check.sh exact

Two loops keep every core busy. Beside them the driver, the link emulator or the load generator of a run is stopped for
50 to 300 ms at a time, at random; the seed, which is printed, gives the times and the choices. The exit status is that
of the command.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

from tests.processes import is_stopped, words_of
from tests.processes import processes as all_processes

PAUSES_S = 0.05, 0.3
BETWEEN_S = 0.2, 2.0
VICTIMS = {
    "driver": ("containernet-env run", "containernet-env sweep", "containernet-env shell"),
    "emulator": ("link-emulator serve",),
    "client": ("benchmark-client",),
}


def processes(kind: str) -> list[int]:
    """The processes of runs of that kind, in order; of the drivers, not the shells and sudos that only name one."""
    found = []
    for pid in all_processes():
        words = words_of(pid).rstrip().split(" ")
        program = " ".join([os.path.basename(words[0]), *words[1:]])
        script = " ".join([os.path.basename(word) for word in words[1:2]] + words[2:])
        if any(text.startswith(VICTIMS[kind]) for text in (program, script)):
            found.append(pid)
    return sorted(found)


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many loops that end with this process."""
    running = [
        subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "sh", "-c", "while :; do :; done"]) for _ in range(loops)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def pause(source: random.Random, over: threading.Event) -> dict[str, int]:
    """Stop processes of runs until ``over`` is set; how often each kind was stopped."""
    stopped = dict.fromkeys(VICTIMS, 0)
    while not over.wait(source.uniform(*BETWEEN_S)):
        kind, pause_s = source.choice(sorted(VICTIMS)), source.uniform(*PAUSES_S)
        candidates = processes(kind)
        if not candidates:
            continue
        victim = source.choice(candidates)
        if is_stopped(victim):  # by a test, which says when it goes on
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGSTOP)
            try:
                over.wait(pause_s)
            finally:
                os.kill(victim, signal.SIGCONT)
            stopped[kind] += 1
    return stopped


def main() -> int:
    """The command's exit status, 128 and its number for a signal."""
    parser = argparse.ArgumentParser(prog="python -m tests.noise")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--busy-only", action="store_true", help="busy loops alone, no pauses")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("no command")
    print(f"noise: seed {options.seed}, {os.cpu_count()} busy loops", flush=True)
    over, counts = threading.Event(), dict[str, int]()
    pauser = threading.Thread(target=lambda: counts.update(pause(random.Random(options.seed), over)))
    with busy(os.cpu_count() or 1):
        if not options.busy_only:
            pauser.start()
        try:
            status = subprocess.run(options.command).returncode
        finally:
            over.set()
            if pauser.ident is not None:
                pauser.join()
    if not options.busy_only:
        print("noise: stopped " + ", ".join(f"{kind} {count} times" for kind, count in counts.items()), flush=True)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
