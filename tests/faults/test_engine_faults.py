"""The engine ends, is killed, loses its containerd or falls silent: rows and messages say so first, nothing stays."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from containernet_env.hosts import engine
from tests.docker.machine_state import left_over, snapshot
from tests.faults.own_engine import OwnEngine

pytestmark = pytest.mark.docker

PROJECT = Path(__file__).resolve().parents[2]
CONFIG = PROJECT / "configs" / "3node-3ms.json"
COMMAND = [sys.executable, "-m", "containernet_env"]
LONG = {
    "type": "write",
    "load": [{"total": 5000, "clients": 1, "conns": 1}],
    "data": [{"keySize": 8, "valSize": 256}],
    "target": ["leader", "cluster"],
}
SHORT = LONG | {"load": [{"total": 20, "clients": 1, "conns": 1}]}


class Run:
    """A run on an engine of the tests' own, and what it says."""

    def __init__(self, own: OwnEngine, folder: Path, scenario: dict[str, object]) -> None:
        (folder / "scenarios.json").write_text(
            json.dumps({"dataset": {"keySize": 8, "valSize": 256, "keys": 100}, "scenarios": [scenario]})
        )
        self.out = folder / "out.csv"
        self.text = ""
        self._process = subprocess.Popen(
            [*COMMAND, "run", str(CONFIG), str(self.out), "--scenarios", f"{folder}/scenarios.json", "--port", "18080"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=own.environment,
            cwd=PROJECT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.text += line

    def wait_for(self, word: str, deadline_s: float = 60) -> None:
        deadline = time.monotonic() + deadline_s
        while word not in self.text:
            assert time.monotonic() < deadline and self._process.poll() is None, self.text
            time.sleep(0.02)

    def end(self, timeout_s: float) -> int:
        """Its exit status, once it has ended by itself."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"still runs after {timeout_s} s:\n{self.text}") from None
        finally:
            self._reader.join(10)
        assert "Traceback" not in self.text, self.text
        return status

    def errors(self) -> list[str]:
        return [row["Error"] for row in csv.DictReader(self.out.read_text().splitlines())]


def clean(own: OwnEngine) -> str:
    done = subprocess.run(
        [*COMMAND, "clean"], capture_output=True, text=True, check=True, env=own.environment, cwd=PROJECT, timeout=60
    )
    return done.stdout


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
@pytest.mark.parametrize("fault", [OwnEngine.terminate, OwnEngine.kill])
def test_an_engine_that_ends_in_a_scenario_is_named_first_in_every_row(
    fault: Callable[[OwnEngine], None], own_engine: OwnEngine, tmp_path: Path
) -> None:
    run = Run(own_engine, tmp_path, LONG)
    run.wait_for("cluster  ")
    time.sleep(1)
    began = time.monotonic()
    fault(own_engine)
    assert run.end(30) == 1
    assert time.monotonic() - began < 20
    gone = f"the Docker engine at {own_engine.address} has ended; "
    running, waiting = run.errors()
    assert running.startswith(f"{gone}its containers etcd1, etcd2, etcd3, benchmark may still run. Start the engine, ")
    assert waiting.startswith(f"not run: {gone}")
    last = run.text[run.text.index("Error: ") :]
    assert last.startswith(f"Error: {gone}the containers of ") and "their processes have been ended" in last
    assert last.endswith("Start the engine, then run `containernet-env clean`\n")
    own_engine.start()
    assert len(own_engine.containers()) == 4
    assert clean(own_engine).count("removed container cnenv-") == 4
    assert own_engine.containers() == set()


@pytest.mark.long
@pytest.mark.usefixtures("unchanged_machine")
def test_an_engine_that_is_killed_in_the_bring_up_is_named(own_engine: OwnEngine, tmp_path: Path) -> None:
    run = Run(own_engine, tmp_path, SHORT)
    run.wait_for("hosts  ")
    own_engine.kill()
    assert run.end(30) == 1
    assert f"Error: the Docker engine at {own_engine.address} has ended; " in run.text
    own_engine.start()
    following = Run(own_engine, tmp_path, SHORT)
    assert following.end(60) == 0, following.text
    assert "left behind by a killed run" in following.text
    assert own_engine.containers() == set()


@pytest.mark.long
@pytest.mark.usefixtures("unchanged_machine")
def test_a_run_outlives_containerd(own_engine: OwnEngine, tmp_path: Path) -> None:
    run = Run(own_engine, tmp_path, SHORT)
    run.wait_for("cluster  ")
    own_engine.kill_containerd()
    # The containers are removed while there is none.
    assert run.end(90) == 0, run.text
    assert run.errors() == ["-", "-"]
    own_engine.wait_containerd()
    assert own_engine.containers() == set()


@pytest.mark.long
@pytest.mark.usefixtures("unchanged_machine")
def test_a_silent_engine_bounds_the_tear_down(own_engine: OwnEngine, tmp_path: Path) -> None:
    run = Run(own_engine, tmp_path, SHORT)
    run.wait_for("[1/2]")
    own_engine.pause()
    try:
        assert run.end(90) == 1
        assert f"Error: the Docker engine at {own_engine.address} does not answer (waited " in run.text
        assert "Restart the engine, then run `containernet-env clean`" in run.text
        assert run.errors() == ["-", "-"]
    finally:
        own_engine.resume()
    clean(own_engine)
    assert own_engine.containers() == set()


def test_an_engine_that_is_not_there_is_named_and_no_other_one_is_used(tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/docker.sock"
    for words in (["run", str(CONFIG), str(tmp_path / "out.csv")], ["clean"], ["setup"]):
        done = subprocess.run(
            [*COMMAND, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "DOCKER_HOST": nowhere},
            cwd=PROJECT,
            timeout=60,
        )
        assert done.returncode == 3, done.stdout + done.stderr
        assert f"no Docker engine answers at DOCKER_HOST={nowhere}\n  Start that engine, or unset" in done.stderr
        assert "missing" not in done.stderr


def test_containers_that_only_look_like_ours_outlive_clean_and_a_run(own_engine: OwnEngine, tmp_path: Path) -> None:
    dead = {**engine.labels("a1b2c3", "etcd1"), "containernet-env.owner": f"{'0' * 8}-0000-0000-0000-{'0' * 12}/1/1"}
    client = own_engine.client()
    try:
        image = client.images.list()[0].id
        make = {"entrypoint": ["sleep", "600"], "network_mode": "none"}
        client.containers.create(image, name="my-database", labels=dead, **make).start()
        client.containers.create(image, name="cnenv-a1b2c3-etcd2", **make).start()
        client.containers.create(image, name="cnenv-a1b2c3-etcd1", labels=dead, **make)
    finally:
        client.close()
    assert clean(own_engine) == "removed container cnenv-a1b2c3-etcd1\n"
    assert Run(own_engine, tmp_path, SHORT).end(60) == 0
    assert own_engine.containers() == {"my-database", "cnenv-a1b2c3-etcd2"}
