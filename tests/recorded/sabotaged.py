"""Figures of a run that ``tests/docker/test_verdicts.py`` sabotages, and the findings that it had.

python -m tests.recorded.sabotaged RUN     # a run directory: writes sabotaged.json beside this file anew
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_suffix(".json")
_UNUSED = {"buckets", "timeline", "latencies", "wire_delay", "switches", "by_operation", "codes", "configured"}
"""What no finding is made of."""


def read() -> dict[str, dict[str, Any]]:
    """By the sabotage: its scenario's figures (``load``, ``network``, ``machine``, ``store``) and its findings."""
    found: dict[str, dict[str, Any]] = json.loads(RECORD.read_text())
    return found


def _used(value: Any, store: bool = False) -> Any:
    if isinstance(value, Mapping):
        unused = () if store else _UNUSED  # the buckets of members are what is judged
        return {name: _used(item, store or name == "store") for name, item in value.items() if name not in unused}
    return [_used(item, store) for item in value] if isinstance(value, list) else value


def record(directory: Path) -> None:
    from tests.docker.test_verdicts import NAMES

    lines = [json.loads(line) for line in (directory / "scenarios.jsonl").read_text().splitlines()]
    kept = ("load", "network", "machine", "store", "floor_s", "findings")
    found = {
        name: {key: _used(line[key], key == "store") for key in kept} for name, line in zip(NAMES, lines, strict=True)
    }
    # A line for each scenario.
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(line, separators=(',', ':'))}" for name, line in found.items())
    RECORD.write_text(f"{{\n{text}\n}}\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
