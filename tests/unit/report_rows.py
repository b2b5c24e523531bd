"""Results files to make reports of: a sweep over delays and bandwidths with repetitions, as runs write it."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from containernet_env.base.errors import MissingRequirementError
from containernet_env.cli import group
from containernet_env.report.document import Document, document_of
from containernet_env.report.rows import read_rows
from containernet_env.report.runs import read_runs
from containernet_env.results.columns import COLUMNS, SEED_COLUMNS
from containernet_env.results.csv_file import ResultsFile
from containernet_env.setup import packages

EVIL = "<script>alert(1)</script>"
"""What a page must show and never run; with it, what ends a block of data and an attribute."""
EVIL_NAMES = (
    EVIL,
    "</script><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)",
    "$\\frac{1}{2}$ <b>&amp;\u2028",
)


def row(**values: str) -> dict[str, str]:
    """A valid row of one scenario; keyword ``LinkDelay_ms`` and so on. Each repetition has a cluster of its own."""
    default = {
        "TestType": "write", "ClusterSize": "3", "RequestCount": "1000", "ClientCount": "10", "ConnectionCount": "1",
        "KeySize": "8", "ValueSize": "256", "Total": "10.000000", "Requests/sec": "100.0000", "50%": "0.010000",
        "95%": "0.012000", "99%": "0.013000", "99.9%": "0.014000", "Scenario": "w", "Repetition": "1",
        "Cluster": values.get("Repetition", "1"),
        "Attempt": "1", "Target": "leader", "Errors": "0", "Valid": "yes", "Floor_50%_s": "0.009000",
        "LinkDelay_ms": "3", "Bandwidth_mbps": "1000", "CpuModel": "a machine", "Cores": "2", "Kernel": "6.1",
        "Commit": "0123456789ab", "ConfigHash": "c", "ScenarioHash": "s", "Links": "emulator", "Store": "etcd",
        "StoreVersion": "3.7.3", "RunId": "run-1", "Timestamp": "2026-01-01T00:00:00.000Z",
    }  # fmt: skip
    return default | values


def sweep(delays: int = 3, bandwidths: int = 3, repeat: int = 2) -> Iterator[dict[str, str]]:
    """Reads of both kinds at each delay and bandwidth, each on a cluster of its own; the last of them is not valid."""
    for delay in range(1, delays + 1):
        for place in range(bandwidths):
            for consistency in "ls":
                for repetition in range(1, repeat + 1):
                    p50 = delay * (0.004 if consistency == "l" else 0.002) + 0.0001 * repetition
                    last = (delay, place, consistency, repetition) == (delays, bandwidths - 1, "s", repeat)
                    yield row(
                        TestType="read",
                        Consistency=consistency,
                        Scenario=f"read-{consistency}",
                        ScenarioHash=f"s{consistency}",
                        LinkDelay_ms=str(delay),
                        Bandwidth_mbps=str(10**place),
                        ConfigHash=f"c{delay}-{place}",
                        Repetition=str(repetition),
                        Valid="no" if last else "yes",
                        Reasons="generator_waited" if last else "-",
                        **{"50%": f"{p50:.6f}", "Requests/sec": f"{10 / p50:.4f}"},
                    )


def write(path: Path, rows: Iterator[dict[str, str]] | list[dict[str, str]], seed: bool = False) -> Path:
    """A results file of these rows; ``seed``: in the seed's form."""
    if seed:
        lines = [",".join(values.get(name, "-") for name in SEED_COLUMNS) for values in rows]
        path.write_text("\n".join([",".join(SEED_COLUMNS), *lines, ""]), encoding="utf-8")
        return path
    file = ResultsFile(path)
    file.open()
    content = b"".join(file.line({name: values.get(name, "-") for name in COLUMNS}) for values in rows)
    file.close()
    with path.open("ab") as out:
        out.write(content)
    return path


def document(*files: Path) -> Document:
    """What a page shows of these results files and their run directories."""
    rows = read_rows(files)
    return document_of(rows, read_runs(rows))


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Optional packages that are missing, and cannot be installed."""

    def require(module: str, note: object) -> None:
        raise MissingRequirementError(f"this needs {module}", "Install it.")

    monkeypatch.setattr(packages, "require", require)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)


def shown(*words: object) -> Result:
    """What a command answers; an error that it raises is its ``exception``."""
    return CliRunner().invoke(group, [str(word) for word in words])


def numbers(text: str) -> list[dict[str, str]]:
    """The lines of a CSV by the names in its header."""
    return list(csv.DictReader(text.splitlines()))
