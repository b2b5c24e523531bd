"""Carries out a job's steps inside the virtual machine, each within its time; only the standard library is needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

JOB = Path("/job")
OUT = JOB / "out"
# What the job brings of the cache of the machine outside.
CACHE = JOB / ".cache"


def run(name: str, command: str, limit_s: float) -> int:
    """One step in a session of its own, with its output in a file; its status, 124 where it took too long."""
    with (OUT / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=JOB,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            log.write(f"\nended: it took more than {limit_s:.0f} s\n".encode())
            return 124


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
        status = run(step["name"], step["command"], step["limit_s"])
        seconds = round(time.monotonic() - began, 1)
        print(f"{step['name']}: status {status}, {seconds} s, {time.monotonic():.0f} s after boot", flush=True)
        done.append({"name": step["name"], "status": status, "seconds": seconds})
        (OUT / "steps.json").write_text(json.dumps(done))


main()
