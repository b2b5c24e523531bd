"""Runs on a service of which only URLs are known: replicas on loopback that the test has started."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.runs.external_left import Record, records
from containernet_env.runs.measure import measure
from containernet_env.runs.progress import Silent
from tests.deadline import eventually
from tests.local.real_service import services
from tests.root.replica_processes import Replicas, built
from tests.root.test_external import command, ended, rows, scenarios, started_servers

TEN = {"total": 200, "clients": 10, "conns": 2}
WRITE = {"type": "write", "load": TEN, "data": {"keySize": 4, "valSize": 64}, "target": ["leader", "cluster"]}
TINY = {
    "dataset": {"keyPrefix": "data/", "keySize": 4, "valSize": 64, "keys": 100},
    "scenarios": [
        WRITE,
        {"type": "mixed", "load": TEN, "ratio": 0.5, "consistency": "l", "history": True},
        {"type": "read", "load": TEN, "target": "http2", "consistency": "l"},
    ],
}
ENDLESS = {"duration": "60s", "clients": 10, "conns": 2}
LONG = {"scenarios": [{**WRITE, "load": ENDLESS, "target": "cluster", "keySpace": 3000}]}

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="not root")]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("replicas")
    if (program := built(folder)) is None:
        pytest.skip("there is no Go to build the replicas with")
    with Replicas(program, folder) as found:
        yield found


def endpoints_file(folder: Path, urls: list[str], **more: Any) -> Path:
    """A service's requests with quorums; ``more`` are further keys of the store, or others in the place of these."""
    store = {
        "kind": "http",
        "put": "/v0/entity?id={key}&ack=2",
        "get": "/v0/entity?id={key}&from=2",
        "delete": "/v0/entity?id={key}&ack=3",
        "success": {"put": 201, "get": 200, "delete": 202},
        "missing": 404,
        "health": "/status",
    }
    path = folder / "endpoints.json"
    wanted = {name: value for name, value in {**store, **more}.items() if value is not None}
    path.write_text(json.dumps({"endpoints": urls, "store": wanted}))
    return path


def left(urls: list[str]) -> list[Record]:
    """What is on record of runs on a service."""
    return [record for _, record in records() if list(record.endpoints) == urls]


def writes(folder: Path) -> Path:
    return scenarios(folder, {"scenarios": [{**WRITE, "target": "cluster"}]})


class Seen(Silent):
    """What a run says, and the status of its first key after each scenario."""

    def __init__(self, found: Replicas) -> None:
        self.found = found
        self.statuses: list[int] = []

    def scenario_ended(self, outcome: Any) -> None:
        (record,) = left(self.found.urls)
        self.statuses.append(self.found.status(f"{record.prefix}0000"))


def test_rows_are_of_a_service_and_no_key_is_left(three: Replicas, tmp_path: Path) -> None:
    config, wanted, seen = endpoints_file(tmp_path, three.urls), scenarios(tmp_path, TINY), Seen(three)
    result = measure(config, wanted, tmp_path / "out.csv", yes_load_this_cluster=True, progress=seen)
    found = rows(tmp_path / "out.csv")
    assert [row["Error"] for row in found] == ["-"] * 4
    for row in found:
        assert (row["Store"], row["StoreVersion"], row["Hosts"]) == ("http", "-", "external")
        assert row["NetworkProof"].startswith("RTT ") and float(row["RttMeasured_ms"]) > 0
        assert row["Valid"] != "yes" and "unseen" in row["Reasons"]
    assert seen.statuses == [200] * 4
    prefix = f"containernet-env/{result.run_id.rpartition('-')[2]}/"
    assert {three.status(f"{prefix}{key}") for key in ("0000", "003D", "data/0000", "data/001b")} == {404}
    assert not left(three.urls)


def test_wrong_codes_are_errors_of_requests(three: Replicas, tmp_path: Path) -> None:
    """Reads of keys that are there answer 200, which this file does not take for a success."""
    config = endpoints_file(tmp_path, three.urls, success={"put": 201, "get": 206, "delete": 202})
    wanted = scenarios(tmp_path, {**TINY, "scenarios": TINY["scenarios"][-1:]})
    measure(config, wanted, tmp_path / "out.csv", yes_load_this_cluster=True)
    (row,) = rows(tmp_path / "out.csv")
    assert "(200 times: 127.0.0.1:" in row["Error"] and "HTTP status 200)" in row["Error"], row["Error"]


def test_who_takes_no_puts_is_refused_before_the_load(tmp_path: Path) -> None:
    """A get of it finds nothing, as of any service that has no such path."""
    with services(1) as (nothing,):
        nothing.statuses = {"PUT": 404, "GET": 404, "DELETE": 404}
        config = endpoints_file(tmp_path, [nothing.url], success={"put": 201, "delete": [202, 404]})
        with pytest.raises(RunError, match=r"cannot be measured: PUT .* answers with the status 404, and not 201"):
            measure(config, writes(tmp_path), tmp_path / "out.csv", yes_load_this_cluster=True)
        assert sum(request.startswith("PUT ") for request in nothing.requests) == 1
    assert not left([nothing.url])


def test_keys_that_stay_are_told(three: Replicas, tmp_path: Path) -> None:
    config = endpoints_file(tmp_path, three.urls, delete=None, keys="stay", success={"put": 201})
    wanted = writes(tmp_path)
    status, said = ended(command("run", config, tmp_path / "out.csv", "--scenarios", wanted, "--yes-load-this-cluster"))
    assert "up to 200 keys stay under containernet-env/" in said, (status, said)
    prefix = said.partition("stay under ")[2].partition(",")[0]
    assert {three.status(f"{prefix}{key}") for key in ("0000", "003D")} == {200}
    assert not left(three.urls)


def killed_run(three: Replicas, config: Path, folder: Path) -> str:
    """The last key of a run that is killed once it has written that."""
    wanted, before = scenarios(folder, LONG), started_servers()
    process = command("run", config, folder / "out.csv", "--scenarios", wanted, "--yes-load-this-cluster")

    def last_key() -> str | None:
        return next((f"{record.prefix}00mN" for record in left(three.urls)), None)  # number 2999

    try:
        eventually(lambda: (key := last_key()) is not None and three.status(key) == 200, "the last key of the run")
    finally:
        process.kill()
        said = ended(process)
    key = last_key()
    eventually(lambda: started_servers() == before, "the server ends")
    assert key is not None and three.status(key) == 200, said
    return key


def test_after_kill_9_clean_removes_the_keys(three: Replicas, tmp_path: Path) -> None:
    config = endpoints_file(tmp_path, three.urls)
    key = killed_run(three, config, tmp_path)
    status, said = ended(command("clean", config))
    assert status == 0 and f"removed 3,000 keys under {key[:-4]}" in said, said
    assert three.status(key) == 404
    assert "nothing was left behind" in ended(command("clean", config))[1]
