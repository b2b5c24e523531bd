"""Writes what the faults and the soak came to into README.md, between its markers.

    python -m tests.faults.document

It takes .build/fault-cells.json and, where there is one, .build/soak.json. Exit status: 0, or 1 where a cell of the
table has no result or has failed, which the table says.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.faults import soak
from tests.faults.table import MOMENTS, Cell, Promise, cells

DOCUMENT = Path(__file__).with_name("README.md")
RESULTS = soak.RESULT.with_name("fault-cells.json")
_HEADER = ("| promised | moments | faults | result |", "| --- | --- | --- | --- |")


def between(text: str, name: str) -> str:
    """What stands between the markers of a part. Raises ValueError where they are missing."""
    found = re.search(rf"<!-- {name} begins -->\n(.*?)<!-- {name} ends -->", text, re.DOTALL)
    if found is None:
        raise ValueError(f"no markers of {name!r}")
    return found[1]


def with_part(text: str, name: str, part: str) -> str:
    """The text with another part between its markers."""
    old = f"<!-- {name} begins -->\n{between(text, name)}<!-- {name} ends -->"
    return text.replace(old, f"<!-- {name} begins -->\n{part}<!-- {name} ends -->")


def lines() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...], tuple[Cell, ...]]]:
    """Each line of the document: what is promised, at which moments, for which faults, and the cells of these."""
    by_promise: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells():
        text = cell.promise.words if isinstance(cell.promise, Promise) else f"not tested: {cell.senseless}"
        by_promise.setdefault((text, cell.fault), []).append(cell)
    groups: dict[tuple[str, tuple[str, ...]], list[Cell]] = {}
    for (text, _), group in by_promise.items():
        groups.setdefault((text, tuple(cell.moment for cell in group)), []).extend(group)
    for (text, moments), group in groups.items():
        yield text, moments, tuple(dict.fromkeys(cell.fault for cell in group)), tuple(group)


def outcomes() -> dict[str, str]:
    """How each cell ended when it was last tested: "passed", "failed", or why it was skipped."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def outcome_of(group: tuple[Cell, ...], outcomes: Mapping[str, str]) -> str:
    """The last column of a line: in how many of its cells the promise was kept, and what became of the others."""
    if group[0].promise is None:
        return "-"
    found = {cell.name: outcomes.get(cell.name, "unknown") for cell in group}
    named = {state: ", ".join(name for name in found if found[name] == state) for state in found.values()}
    parts = [f"kept in {[*found.values()].count('passed')} of {len(group)}"]
    parts += [f"NOT KEPT: {named.pop('failed')}"] if "failed" in named else []
    parts += [f"NOT TESTED: {named.pop('unknown')}"] if "unknown" in named else []
    return "; ".join([*parts, *sorted(named.keys() - {"passed"})])


def fault_table(outcomes: Mapping[str, str]) -> str:
    """The table of faults in Markdown."""
    rows = [*_HEADER]
    for text, moments, faults, group in lines():
        when = {MOMENTS: "every moment", MOMENTS[:-1]: "before the tear-down"}.get(moments, ", ".join(moments))
        rows.append(f"| {text} | {when} | {', '.join(faults)} | {outcome_of(group, outcomes)} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Write what there is."""
    table = fault_table(outcomes())
    text = with_part(DOCUMENT.read_text(), "faults", table)
    if soak.RESULT.exists():
        text = with_part(text, "soak", soak.table(json.loads(soak.RESULT.read_text())) + "\n")
    DOCUMENT.write_text(text)
    bad = [line for line in table.splitlines() if "NOT " in line]
    print("\n".join(bad) or "every promise is kept")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
