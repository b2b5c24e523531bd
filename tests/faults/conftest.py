"""The faults ring: whatever is killed, stopped or missing, on a machine where ./build.sh has been run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.runs import why_not
from tests.faults.document import RESULTS, outcomes
from tests.faults.own_engine import OwnEngine

_CELL = re.compile(r"test_faults\.py::test_fault\[(.+)\]$")
_outcomes: dict[str, str] = {}
_ended: set[str] = set()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip this ring, with the reason printed, where it cannot run."""
    if (reason := why_not()) is not None:
        for item in items:
            if "faults" in Path(item.fspath).parts:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def session_engine() -> Iterator[OwnEngine]:
    """The session's own engine: its images are loaded once."""
    with OwnEngine() as engine:
        yield engine


@pytest.fixture
def own_engine(session_engine: OwnEngine) -> Iterator[OwnEngine]:
    """An engine of the tests' own that runs and has no containers, to be killed."""
    session_engine.start()
    session_engine.remove_containers()
    yield session_engine


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep how each cell of the table ended, for README.md; the worst phase counts."""
    if (found := _CELL.search(report.nodeid)) is None:
        return
    cell = found[1]
    before = _outcomes.setdefault(cell, "passed")
    if report.failed:
        _outcomes[cell] = "failed"
    elif report.skipped and before == "passed":
        _outcomes[cell] = str(report.longrepr[2]).removeprefix("Skipped: ")
    if report.when == "teardown":  # the last phase: a test that was interrupted has no result
        _ended.add(cell)


def pytest_sessionfinish() -> None:
    """Write them beside those of earlier sessions."""
    if _ended:
        RESULTS.parent.mkdir(exist_ok=True)
        kept = outcomes() | {cell: _outcomes[cell] for cell in _ended}
        RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
