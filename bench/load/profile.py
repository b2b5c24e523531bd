"""Where the processor time of our client goes: samples of its stacks by perf, in shares of their number."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.load import plan
from bench.load.cluster import Cluster
from bench.load.measure import run_program
from containernet_env.base.errors import MissingRequirementError, RunError

CELLS = (
    plan.Cell(1, 100, 1000, "range-s", 100_000),
    plan.Cell(1, 10, 100, "put", 40_000),
    plan.Cell(1, 1, 1, "put", 5_000),
)
_FREQUENCY_HZ = 4000
NOTE = f"samples of our client's stacks by perf, {_FREQUENCY_HZ} a second of its processor time."
_LIMIT_S = 120.0

_OURS = "containernet-env/benchmark_image/internal/"
# By what is found first from the innermost frame outwards. A system call is the kernel's, whoever made it.
KERNEL = (
    ("kernel: write, which on loopback delivers to the member too", r"_sys_sendto"),
    ("kernel: read", r"_sys_recvfrom"),
    ("kernel: epoll", r"epoll"),
    ("kernel: threads that sleep and wake", r"futex|schedule|nanosleep"),
    ("kernel: page faults, start, interrupts, other calls", r""),
)
USER = (
    ("HTTP/2 and its header compression, answers", rf"{_OURS}(h2\.|store/)|http2/hpack\."),
    ("records, outcomes, next requests", rf"{_OURS}((load|keys|client)\.|report\.\S*\)\.([aA]dd|noteGap|advance)\b)"),
    ("report, after the last answer", rf"{_OURS}report\.|slices\.|encoding/json|compress/"),
    ("connections, deadlines, queues", rf"{_OURS}transport\."),
    ("Go's runtime and libraries, start", r""),
)


def stacks(script: str) -> Iterator[tuple[bool, list[str]]]:
    """Of each sample in the text of ``perf script -F ip,sym``: whether it is in the kernel, its frames from within."""
    for block in script.split("\n\n"):
        frames = [line.split(None, 1) for line in block.splitlines() if line.strip()]
        if frames:
            yield frames[0][0].startswith("ffff"), [frame[1] if len(frame) > 1 else "" for frame in frames]


def shares(script: str) -> dict[str, float]:
    """The share of samples, 0..1, in each of the parts above, in their order. RunError without samples."""
    found: Counter[str] = Counter()
    for in_kernel, frames in stacks(script):
        found[_part(KERNEL if in_kernel else USER, frames)] += 1
    if not found:
        raise RunError("perf took no samples")
    return {name: found[name] / found.total() for name, _ in (*KERNEL, *USER)}


def _part(parts: tuple[tuple[str, str], ...], frames: list[str]) -> str:
    for frame in frames:
        for name, pattern in parts:
            if pattern and re.search(pattern, frame):
                return name
    return parts[-1][0]


def profile(client: Path, cell: plan.Cell, cluster: Cluster) -> dict[str, float]:
    """Run ``client``, which must have its symbols, under perf; the shares of its time. Raises RunError."""
    perf = shutil.which("perf")
    if perf is None:
        raise MissingRequirementError("perf is not installed", "Install it (Debian: linux-perf).")
    data = cluster.folder / "perf.data"
    argv = plan.command(plan.OURS, cell, cell.total, cluster.endpoints, {plan.OURS: client})
    record = [perf, "record", "-q", "-F", str(_FREQUENCY_HZ), "-e", "cpu-clock", "-g", "-o", str(data), *argv]
    run_program(record, cluster.folder, _LIMIT_S)
    _, script = run_program([perf, "script", "-i", str(data), "-F", "ip,sym"], cluster.folder, _LIMIT_S)
    return shares(script)


def markdown(found: dict[str, dict[str, float]]) -> str:
    """A table with a column for each cell, in percent."""
    lines = [f"| share of the client's time | {' | '.join(found)} |", f"| --- |{' ---: |' * len(found)}"]
    for name, _ in (*KERNEL, *USER):
        lines.append(f"| {name} | {' | '.join(f'{shares[name]:.0%}' for shares in found.values())} |")
    return "\n".join(lines) + "\n"
