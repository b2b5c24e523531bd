"""The docker ring: the whole job, on a machine where ./build.sh has been run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import why_not

SIZE = {"keySize": 8, "valSize": 256}
DATASET = {**SIZE, "keys": 100}
ONE = {"total": 20, "clients": 1, "conns": 1}
WRITES = {"type": "write", "load": ONE, "data": SIZE, "target": ["leader", "cluster"]}
READS = {"type": "read", "load": ONE, "consistency": ["l", "s"]}
TINY_SCENARIOS: dict[str, Any] = {"dataset": DATASET, "scenarios": [WRITES, READS]}
LONG_SCENARIOS = {"dataset": DATASET, "scenarios": [WRITES | {"load": ONE | {"total": 5000}}]}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip this ring, with the reason printed, where it cannot run."""
    if (reason := why_not()) is not None:
        for item in items:
            if "docker" in Path(item.fspath).parts:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A scenario file of four scenarios that take a second together."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY_SCENARIOS))
    return path


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A scenario file whose first scenario takes more than a minute: to be interrupted."""
    path = tmp_path / "long.json"
    path.write_text(json.dumps(LONG_SCENARIOS))
    return path


@pytest.fixture
def unchanged_machine() -> Iterator[None]:
    """Fails the test if anything is on the machine afterwards that was not there before."""
    before = snapshot()
    yield
    assert left_over(before) == {}


@pytest.fixture(scope="session")
def image() -> str:
    """The newest base image that the set-up has made."""
    from containernet_env.hosts import engine

    images = engine.client().images.list(name="containernet-env/base")
    assert images, "./build.sh makes it"
    return str(max(images, key=lambda entry: str(entry.attrs["Created"])).tags[0])
