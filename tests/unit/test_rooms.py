"""The rooms of the package (docs/adr/0020): who may import whom, and who may know which library. Executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "containernet_env"
# From left to right; rooms in one entry are neighbours, which do not import each other.
ORDER = (
    "base", "model", "stores", "config", "results", "hosts", "network", "containernet", "setup", "runs", "report",
    "cli",
)  # fmt: skip
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms.split()}
KNOWN = {
    "click rich": {"cli"},
    "mininet": {"containernet"},
    "docker requests": {"hosts", "setup"},
    "rocrate": {"results"},
    "cryptography": {"stores"},
    "dask distributed": {"runs"},
    "pandas numpy scipy": {"results", "report"},
    "matplotlib plotly jinja2": {"report"},
    "subprocess": set(RANK) - {"base", "model", "config", "results"},
}
ONLY = {library: rooms for libraries, rooms in KNOWN.items() for library in libraries.split()}
FACE = "runs"
"""The package's face shows what is in this room: who imports the face imports that."""
FACES = {"__init__.py", "__main__.py", "main.py"}
"""The package's face imports what it shows when that is used; the command begins in __main__.py; main.py is a program
that imports nothing of ours."""
STARTS = re.compile(
    r"\b(os\.(system|popen|exec[lv]|spawn|posix_spawn)|asyncio\.(subprocess|create_subprocess)|from (os|asyncio) import"
    r"|import (os|asyncio) as)"
)
"""What starts a program without `subprocess`, and what would hide it."""


def imports(text: str) -> Iterator[tuple[int, str]]:
    """Every module that a source names in an import, wherever it stands in it, with its line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the room"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            named = names if node.module == PACKAGE.name else [str(node.module)]
            yield from ((node.lineno, name) for name in named)
        elif isinstance(node, ast.Call) and re.search(r"\b(import_module|__import__)$", ast.unparse(node.func)):
            names = [str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)]
            yield from ((node.lineno, name) for name in names)


def problems(room: str, text: str) -> Iterator[str]:
    """What of a source in that room breaks the rules."""
    for line, name in imports(text):
        first, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if first == PACKAGE.name and other != room and RANK.get(other, RANK[FACE]) >= RANK[room]:
            yield f"line {line}: {room} imports {name}, which does not stand left of it"
        if first in ONLY and room not in ONLY[first]:
            yield f"line {line}: {room} imports {first}, which only {', '.join(sorted(ONLY[first]))} may know"
    if room not in ONLY["subprocess"]:
        yield from (f"{room} starts a program by {name[0]}" for name in STARTS.finditer(text))


def test_every_module_is_in_a_room_and_keeps_to_its_rules() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == FACES
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} <= set(RANK)
    found = [
        f"{path.relative_to(PACKAGE.parent)}, {problem}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parent != PACKAGE
        for problem in problems(path.relative_to(PACKAGE).parts[0], path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


KEEP_TIME = {PACKAGE / "base/clock.py", PACKAGE / "setup/commands.py"}
"""The clock itself, and a pool whose futures Python's ``wait`` has to know."""


def test_time_and_threads_are_those_of_the_clock() -> None:
    """So that tests replace them; CPU clocks and the moment of a boot are readings of the kernel."""
    uses = re.compile(
        r"\bthreading\.|^import threading|[^`]\btime\.(monotonic|perf_counter|time|sleep)|datetime\.now"
        r"|from (time|threading) import|from concurrent.futures import .*\b(Future|ThreadPoolExecutor)\b",
        re.MULTILINE,
    )
    found = [
        f"{path.relative_to(PACKAGE)}: {use.group()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in KEEP_TIME
        for use in uses.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found
