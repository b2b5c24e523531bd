"""Rows, files and the command for the tests of compare."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pandas
from click.testing import CliRunner, Result

from containernet_env.cli import group
from containernet_env.results.columns import SEED_COLUMNS
from containernet_env.results.csv_file import ResultsFile, load

STEADY = {"TestType": "write", "Scenario": "w", "ConfigHash": "c", "ScenarioHash": "s", "Valid": "yes", "Attempt": "1"}


EVEN = [1.00, 1.01, 0.99, 1.02, 0.98, 1.005]


def rows(values: Sequence[float], run: str, cells: int = 1, fresh: bool = True, **more: str) -> list[dict[str, str]]:
    """One row for each value and cell: 1000 requests/s times it."""
    made = []
    for index, value in enumerate(values):
        for cell in range(cells):
            name = {"Scenario": f"w{cell}", "ScenarioHash": f"s{cell}"} if cells > 1 else {}
            place = {"RunId": run, "Cluster": str(index + 1 if fresh else 1), "LoadSeed": str(index)}
            moment = {"Timestamp": f"2026-11-22T10:{index:02d}:00.{cell:03d}Z", "Repetition": str(index + 1)}
            figures = {"Requests/sec": f"{1000 * value:.4f}", "50%": f"{0.01 / value:.9f}"}
            made.append(STEADY | name | place | moment | figures | more)
    return made


def write(path: Path, made: Sequence[dict[str, str]]) -> Path:
    file = ResultsFile(path)
    file.open()
    for row in made:
        file.append(row)
    file.close()
    return path


_TABLES: dict[tuple[tuple[tuple[str, str], ...], ...], pandas.DataFrame] = {}


def table(path: Path, made: Sequence[dict[str, str]]) -> pandas.DataFrame:
    """What a file of these rows is read as; the same rows are written and read once."""
    key = tuple(tuple(row.items()) for row in made)
    if key not in _TABLES:
        _TABLES[key] = load(write(path, made))
    return _TABLES[key].copy()


def seed_file(path: Path, factor: float, repetitions: int = 6, requests: str = "100") -> Path:
    """A file of the seed's form: writes of 8 and of 256 bytes."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, SEED_COLUMNS, restval="0.010000", lineterminator="\n")
        writer.writeheader()
        for index in range(repetitions):
            for size in ("8", "256"):
                fixed = {"TestType": "write", "ClusterSize": "3", "RequestCount": requests, "ValueSize": size}
                text = f"{factor * (1000 + index):.4f}"
                writer.writerow(fixed | {"Consistency": "-", "Requests/sec": text, "ClientCount": "1", "KeySize": "8"})
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(group, ["compare", *map(str, arguments)])
