"""Carries out a job's steps inside the virtual machine, each within its time; only the standard library is needed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

JOB = Path("/job")
OUT = JOB / "out"
TELL_S = 10.0
# What the job brings of the cache of the machine outside.
CACHE = JOB / ".cache"


def run(name: str, command: str, limit_s: float, told: bool) -> int:
    """One step in a session of its own, with its output in a file; its status, 124 where it took too long.

    Where it is to be told, the console says every few seconds how far it is: a machine that is silent there has hung.
    """
    path = OUT / f"{name}.log"
    began = time.monotonic()
    with path.open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=JOB,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        while (took := time.monotonic() - began) < limit_s:
            try:
                return process.wait(min(TELL_S, limit_s - took))
            except subprocess.TimeoutExpired:
                if told:
                    print(f"{name}: {time.monotonic() - began:.0f} s, {last_line(path)}", flush=True)
        os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # in the kernel, and not to be ended
            process.wait(TELL_S)
        log.write(f"\nended: it took more than {limit_s:.0f} s\n".encode())
        return 124


def last_line(path: Path) -> str:
    """What a file ends with, without what is no ASCII."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 500))
        lines = file.read().decode("ascii", "ignore").splitlines()
    return lines[-1][-150:] if lines else "nothing said"


def trust_programs() -> None:
    """Note the programs as they now lie here: they came with the job, and hashing them takes 20 s, emulated."""
    for stamp in CACHE.glob("bin/*/programs.json"):
        held = json.loads(stamp.read_text())
        for name, entry in held["programs"].items():
            stat = (stamp.parent / name).stat()
            entry["state"] = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        stamp.write_text(json.dumps(held))


def main() -> None:
    """All steps in their order; what became of each stands in steps.json."""
    os.environ["PATH"] = f"{JOB}/.venv/bin:{os.environ['PATH']}"
    trust_programs()
    done = []
    for step in json.loads((JOB / "steps.json").read_text()):
        began = time.monotonic()
        print(f"{step['name']} ...", flush=True)
        status = run(**step)
        seconds = round(time.monotonic() - began, 1)
        print(f"{step['name']}: status {status}, {seconds} s, {time.monotonic():.0f} s after boot", flush=True)
        done.append({"name": step["name"], "status": status, "seconds": seconds})
        (OUT / "steps.json").write_text(json.dumps(done))


main()
