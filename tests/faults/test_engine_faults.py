"""The engine is silent, or was never there; and what it has of the user's stays. Its end is in the table of faults."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from containernet_env.hosts import engine
from tests.docker.machine_state import left_over, snapshot
from tests.faults.files import MEMBERS
from tests.faults.harness import Run, tool
from tests.faults.own_engine import OwnEngine
from tests.faults.table import FINISHED, SCENARIOS, TEAR_DOWN

pytestmark = pytest.mark.docker


@pytest.fixture
def unchanged_machine(own_engine: OwnEngine) -> Iterator[None]:
    """Fails the test if a process, link or namespace is there afterwards that was not there before."""
    before = snapshot()
    yield
    # The engine of the tests has a new one of its own where it was started again.
    before["namespaces"].add(own_engine.network_namespace())
    assert left_over(before) == {}


@pytest.mark.long
@pytest.mark.usefixtures("unchanged_machine")
def test_a_silent_engine_bounds_the_tear_down(own_engine: OwnEngine, tmp_path: Path) -> None:
    run = Run(tmp_path, own_engine)
    run.start()
    run.reach(TEAR_DOWN)
    own_engine.pause()
    try:
        run.resume()
        status, said = run.wait()
        assert status == 1, said
        assert f"Error: the Docker engine at {own_engine.address} does not answer (waited " in said
        assert "Restart the engine, then run `containernet-env clean`" in said
        assert [row["Error"] for row in run.files.rows()] == [FINISHED] * len(SCENARIOS)
    finally:
        own_engine.resume()
        run.stop()
    assert own_engine.containers() == set()


def test_an_engine_that_is_not_there_is_named_and_no_other_one_is_used(tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/docker.sock"
    for words in (["run", "3node-3ms", str(tmp_path / "out.csv")], ["clean"], ["setup"]):
        status, said = tool(*words, environment={**os.environ, "DOCKER_HOST": nowhere})
        assert status == 3, said
        assert f"no Docker engine answers at DOCKER_HOST={nowhere}\n  Start that engine, or unset" in said
        assert "missing" not in said


def test_containers_that_only_look_like_ours_outlive_clean_and_a_run(own_engine: OwnEngine, tmp_path: Path) -> None:
    dead = {**engine.labels("a1b2c3", "etcd1"), "containernet-env.owner": f"{'0' * 8}-0000-0000-0000-{'0' * 12}/1/1"}
    client = own_engine.client()
    try:
        image = client.images.list()[0].id
        make = {"entrypoint": ["sleep", "600"], "network_mode": "none"}
        client.containers.create(image, name="my-database", labels=dead, **make).start()
        client.containers.create(image, name=f"cnenv-a1b2c3-{MEMBERS[1]}", **make).start()
        client.containers.create(image, name=f"cnenv-a1b2c3-{MEMBERS[0]}", labels=dead, **make)
    finally:
        client.close()
    assert tool("clean", environment=own_engine.environment)[1] == "removed container cnenv-a1b2c3-etcd1\n"
    run = Run(tmp_path, own_engine)
    run.files.only(1)
    run.start()
    status, said = run.wait()
    run.close()
    assert status == 0, said
    assert own_engine.containers() == {"my-database", f"cnenv-a1b2c3-{MEMBERS[1]}"}
