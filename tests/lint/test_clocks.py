"""No gating test judges time (docs/tests.md): what a Python test may read, start and wait for, by its class.

Go's half is clocks.go.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.deadline import HANG_S

TESTS = Path(__file__).resolve().parents[1]
EXACT = ("unit", "input", "lint", "recorded")
"""Folders whose tests run in simulated time, in this process alone."""
PLUMBING = ("local", "root", "docker", "faults", "vm")
"""Folders whose tests meet the real kernel, engine and processes."""
NO_TESTS = {
    "deadline.py": "the deadline against hanging, for all of them",
    "faults/soak.py": "runs for an hour, by name only",
    "measure": "figures, which never gate",
    "unit/simulated.py": "starts link-emulator simulate, which has no clock: what it is given decides its answer",
    "noise.py": "pauses processes while something else runs",
    "vm/cache.py": "waits for another clone that builds the same disk",
    "vm/image_disk.py": "waits for an engine that it starts",
    "vm/inside/job.py": "runs in the guest and ends steps that hang",
    "vm/machine.py": "ends a machine that hangs",
}
"""Files and folders that may read the clock, and why."""

CLOCKS = re.compile(
    r"time\.(time|monotonic|perf_counter|process_time|thread_time|clock_gettime)(_ns)?$|time\.sleep$"
    r"|datetime(\.datetime)?\.(now|utcnow|today)$|(asyncio|trio)\.sleep$"
)
OUTSIDE = re.compile(
    r"subprocess\.(run|Popen|call|check_call|check_output)$|os\.(fork|forkpty|spawn\w+|posix_spawn\w*|exec\w+|system|popen)$"
    r"|socket\.(socket|socketpair|create_server|create_connection)$|multiprocessing\.|http\.server\.\w*Server$"
)
WAITS = {"wait", "join", "result", "wait_for"}
"""Methods whose only number is a deadline in seconds."""
DEADLINE = re.compile(r"^(timeout|deadline|timeout_s|deadline_s|limit_s|seconds)$")


def _names(tree: ast.AST) -> dict[str, str]:
    """The full name of each name that a source imports."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                first = name.name.partition(".")[0]
                found[name.asname or first] = name.name if name.asname else first
        elif isinstance(node, ast.ImportFrom):
            found |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return found


def _full(node: ast.expr, names: dict[str, str]) -> str:
    """``time.monotonic`` for each way of writing it; empty for what is not imported."""
    if isinstance(node, ast.Attribute):
        before = _full(node.value, names)
        return f"{before}.{node.attr}" if before else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def _number(node: ast.expr | None) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    return None


def _short_deadlines(call: ast.Call) -> Iterator[str]:
    numbers = [(keyword.arg or "", _number(keyword.value)) for keyword in call.keywords]
    waits = isinstance(call.func, ast.Attribute) and call.func.attr in WAITS
    if waits and len(call.args) == 1:
        numbers.append(("timeout", _number(call.args[0])))
    for name, number in numbers:
        if number is not None and DEADLINE.match(name) and 0 < number < HANG_S:
            yield f"waits for {number:g} s, which is shorter than {HANG_S:g} s"


def problems(text: str, exact: bool) -> Iterator[str]:
    """What a source of that class must not do, each with its line."""
    tree = ast.parse(text)
    names = _names(tree)
    simulated = exact and "simulated" in text  # what waits in simulated time takes none
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            full = _full(node, names)
            if CLOCKS.match(full):
                yield f"line {node.lineno}: reads a clock: {full}"
            elif exact and OUTSIDE.match(full):
                yield f"line {node.lineno}: leaves this process: {full}"
        elif isinstance(node, ast.Call) and not simulated:
            yield from (f"line {node.lineno}: {problem}" for problem in _short_deadlines(node))


def test_no_gating_test_judges_time() -> None:
    read = [
        path
        for path in sorted(TESTS.rglob("*.py"))
        if not {path.relative_to(TESTS), *path.relative_to(TESTS).parents} & set(map(Path, NO_TESTS))
    ]
    found = [
        f"{path.relative_to(TESTS.parent)}, {problem}"
        for path in read
        for problem in problems(path.read_text(encoding="utf-8"), path.relative_to(TESTS).parts[0] in EXACT)
    ]
    assert not found and len(read) > 100, "\n".join(found)
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert folders <= {*EXACT, *PLUMBING, *NO_TESTS} and all((TESTS / name).exists() for name in NO_TESTS)


def test_what_judges_time_is_found() -> None:
    cases: list[tuple[str, bool, str | None]] = [
        ("import time\nbegan = time.monotonic()", False, "line 2: reads a clock: time.monotonic"),
        ("from time import sleep as rest\nrest(1)", False, "line 2: reads a clock: time.sleep"),
        ("import time as t\nclock = t.perf_counter_ns", False, "reads a clock: time.perf_counter_ns"),
        ("from datetime import datetime\ndatetime.now()", True, "reads a clock: datetime.datetime.now"),
        ("import subprocess\nsubprocess.run(['true'], timeout=60)", True, "leaves this process: subprocess.run"),
        ("import subprocess\nsubprocess.run(['true'], timeout=20)", False, "line 2: waits for 20 s"),
        ("process.wait(5)", False, "line 1: waits for 5 s"),
        ("import time\ntime.gmtime(0)", True, None),
        ("import subprocess\nsubprocess.CompletedProcess([], 0)", True, None),
        ("import subprocess\nsubprocess.run(['true'], timeout=60)", False, None),
        ("rows.get(1)\nwords.join(['a'])\nprocess.wait(0)", True, None),
    ]
    for text, exact, words in cases:
        found = list(problems(text, exact))
        assert not found if words is None else any(words in problem for problem in found), text
