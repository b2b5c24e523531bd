"""The record of a run: everything that was asked, held and measured, as JSON beside the results file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from containernet_env.results.csv_file import give_to_caller

SCHEMA = 1


def utc_now() -> str:
    """This moment as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text_of(content: Mapping[str, Any]) -> str:
    """JSON with a line for each entry, and one for each item of an entry that is a list.

    Samples and histograms are long lists of numbers: a number on each line would be three times as much text.
    """

    def lines(value: Any) -> str:
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join(f"  {_compact(item)}" for item in value) + "\n ]"
        return _compact(value)

    entries = (f" {_compact(key)}: {lines(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class RunRecord:
    """Grows while the run goes on; the file is replaced as a whole each time, so that it can always be read.

    For results in ``out.csv`` it is ``out.runs/<run id>.json``.
    """

    def __init__(self, results: Path, run_id: str) -> None:
        self.path = results.parent / f"{results.stem}.runs" / f"{run_id}.json"
        self._content: dict[str, Any] = {
            "schema": SCHEMA,
            "run_id": run_id,
            "began": utc_now(),
            "scenarios": [],
        }

    def update(self, **facts: Any) -> None:
        """Set top-level entries (JSON values) and write the file."""
        self._content |= facts
        self._write()

    def add_scenario(self, entry: dict[str, Any]) -> None:
        """Append one scenario's entry and write the file."""
        self._content["scenarios"].append(entry)
        self._write()

    def _write(self) -> None:
        if not self.path.parent.exists():
            self.path.parent.mkdir(parents=True)
            give_to_caller(self.path.parent)
        partial = self.path.with_suffix(".part")
        with partial.open("w") as file:
            file.write(text_of(self._content))
            file.flush()
            os.fsync(file.fileno())
        give_to_caller(partial)
        partial.replace(self.path)
