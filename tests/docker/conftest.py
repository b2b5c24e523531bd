"""The docker ring: the whole job, on a machine where ./build.sh has been run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import assets
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import why_not

PIP = ("-m", "pip", "-q", "--no-input", "--disable-pip-version-check")
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


@pytest.fixture(scope="session", autouse=True)
def installing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Path]]:
    """An installation that is made while other tests run, since its packages come from the index."""
    with ThreadPoolExecutor(1) as pool:
        folder = tmp_path_factory.mktemp("installation")
        is_used = any("command" in getattr(item, "fixturenames", ()) for item in request.session.items)
        yield pool.submit(install, folder) if is_used else Future()


@pytest.fixture
def command(installing: Future[Path]) -> Path:
    """The command of an installation from a wheel, away from the clone."""
    return installing.result()


def install(folder: Path) -> Path:
    """Install the wheel of this clone in an environment of its own; its command."""
    # pytest's own folder is closed to others; a user without root has to get here.
    for path in (folder, folder.parent):
        path.chmod(0o755)
    python = folder / "venv" / "bin" / "python"

    def call(*argv: object) -> None:
        subprocess.run(["nice", "-n", "5", *map(str, argv)], check=True, timeout=600, cwd=folder)

    call(sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", folder, assets.ROOT)
    call(sys.executable, "-m", "venv", python.parents[1])
    # What is imported is compiled then; most of it never is.
    options = ("--no-compile", "--constraint", assets.ROOT / "constraints.txt")
    call(python, *PIP, "install", *options, *folder.glob("*.whl"))
    return python.with_name("containernet-env")


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
