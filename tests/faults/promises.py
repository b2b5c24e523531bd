"""What a run that was struck has to have kept of its promise: exit status, message, each scenario's row once."""

from __future__ import annotations

import re

from tests.faults.files import Files
from tests.faults.table import FINISHED, SCENARIOS, Promise

FILLING = "filling"
"""The name of the scenario of a row that is none of the run's."""


def check_kept(files: Files, promise: Promise, moment: str, status: int, said: str) -> None:
    """Raise AssertionError where a run that ended with ``status`` and printed ``said`` has not kept the promise."""
    assert "Traceback" not in said and "Exception ignored" not in said, said
    assert status in promise.status, f"exit status {status}\n{said}"
    assert re.search(promise.says, said), f"{promise.says!r} is not said\n{said}"
    kept = [row for row in files.rows() if row["Scenario"] != FILLING]
    if promise.kept == "OUT or OUT.rescued" and not files.out.exists():
        kept = files.rows(files.out.with_name(files.out.name + ".rescued"))
    errors: list[tuple[str, str]] = [(row["Scenario"], row["Error"]) for row in kept]
    assert len(errors) == len({name for name, _ in errors}), f"a row is there twice: {errors}"
    if promise.kept == "run directory":
        errors += [
            (line["scenario"], line["error"] or FINISHED)
            for line in files.record()
            if line["scenario"] not in dict(errors)
        ]
    if not promise.rows:
        return
    wanted = [pattern for pattern in promise.rows if pattern is not None]
    assert len(errors) == len(wanted), f"{len(wanted)} rows were promised: {errors}\n{said}"
    for pattern, (name, error) in zip(wanted, errors, strict=True):
        met = error == FINISHED if pattern == FINISHED else re.search(pattern, error)
        assert met, f"{name}: {error!r} is not {pattern!r}\n{said}"
    if promise.marked:
        # In the struck scenario or, where a silence was not long enough in it, in those into which it went on.
        lines = files.record()[SCENARIOS.index(moment) :]
        told = [text for line in lines for text in (*(found["text"] for found in line["findings"]), line["error"])]
        marks = "; ".join(filter(None, told))
        assert re.search(promise.marked, marks), f"nothing says {promise.marked!r}: {marks!r}"


def check_next(before: list[dict[str, str]], after: list[dict[str, str]]) -> None:
    """Raise AssertionError unless a run of one scenario has appended its row to a file that had these."""
    assert after[: len(before)] == before
    assert [row["Error"] for row in after[len(before) :]] == [FINISHED]
