"""Services that are known by URLs: their files, what is refused, how they are looked at, and their keys removed."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.load.members import free_ports
from containernet_env.base.errors import ConfigError, RunError
from containernet_env.config import load_config
from containernet_env.load.request import request_of
from containernet_env.model.config import HttpService
from containernet_env.model.keys import Keys
from containernet_env.plan.external import keys_of
from containernet_env.plan.identity import config_hash
from containernet_env.runs.external_access import cluster_of
from containernet_env.runs.prepare import prepare
from containernet_env.stores.external import ExternalCluster, OwnKeys
from containernet_env.stores.keyvalue import external
from tests.unit.service_server import Service, services

SERVICE = {
    "kind": "http",
    "put": "/v0/entity?id={key}&ack=2",
    "get": "/v0/entity?id={key}&from=2",
    "delete": "/v0/entity?id={key}",
}
STAY = {"kind": "http", "put": "/{key}", "get": "/{key}", "keys": "stay"}
DATA = {"keyPrefix": "data/", "keySize": 4, "valSize": 64, "keys": 100}
LOAD = {"total": 300, "clients": 2, "conns": 1, "warmup": 50}
WRITE = {"type": "write", "load": LOAD, "data": {"keySize": 4, "valSize": 64}, "target": "leader"}
READS = {"type": "read", "load": LOAD, "consistency": "l", "target": "http1"}


def written(folder: Path, store: Any = SERVICE, endpoints: Any = ("http://10.0.0.1:8080",), **more: Any) -> Path:
    path = folder / "endpoints.json"
    path.write_text(json.dumps({"endpoints": list(endpoints), "store": store, **more}))
    return path


def scenarios(folder: Path, *blocks: Any) -> Path:
    path = folder / "scenarios.json"
    path.write_text(json.dumps({"dataset": DATA, "scenarios": list(blocks)}))
    return path


def test_a_service_is_what_its_file_says(tmp_path: Path) -> None:
    success = {"put": 201, "delete": [202, 404]}
    config = load_config(written(tmp_path, {**SERVICE, "success": success, "missing": [404, 410]}))
    assert [node.name for node in config.nodes] == ["http1"]
    paths = SERVICE["put"], SERVICE["get"], SERVICE["delete"]
    assert config.store.service == HttpService(*paths, (201,), (200,), (202, 404), (404, 410))
    assert not config.keys_stay and load_config(written(tmp_path, STAY)).keys_stay


@pytest.mark.parametrize(
    ("store", "place", "told"),
    [
        ({**SERVICE, "kind": "memcached"}, "$.store.kind", "is not one of the choices"),
        ({**SERVICE, "put": "v0/{key}"}, "$.store.put", "is not the path of a URL"),
        ({**SERVICE, "put": "/a b/{key}"}, "$.store.put", "is not the path of a URL"),
        ({**SERVICE, "get": "/v0/entity"}, "$.store.get", "does not hold {key} once"),
        ({**SERVICE, "get": "/{key}/{key}"}, "$.store.get", "does not hold {key} once"),
        ({**SERVICE, "get": "/{key}/{value}"}, "$.store.get", "does not hold {key} once"),
        ({**SERVICE, "success": {"put": 99}}, "$.store.success.put", "has a status code out of range"),
        ({**SERVICE, "success": {"put": [200, 200]}}, "$.store.success.put", "has a status code twice"),
        ({**SERVICE, "success": {"put": []}}, "$.store.success.put", "is no status code"),
        ({**SERVICE, "success": {"put": list(range(200, 217))}}, "$.store.success.put", "has 17 status codes"),
        ({**SERVICE, "success": {"post": 200}}, "$.store.success.post", "is not a known key"),
        ({**SERVICE, "missing": 200}, "$.store.missing", "has a code that success.get has, too"),
        ({**SERVICE, "keys": "stay"}, "$.store.keys", "contradicts delete"),
        ({**STAY, "success": {"delete": 200}}, "$.store.success", "has codes of a delete that is not there"),
        ({**STAY, "keys": "go"}, "$.store.keys", "is not one of the choices"),
        ({"kind": "http", "put": "/{key}", "get": "/{key}"}, "$.store.delete", "nothing else says what becomes"),
        ({"kind": "http", "get": "/{key}", "keys": "stay"}, "$.store.put", "is missing"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, store: Any, place: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(written(tmp_path, store))
    (problem,) = raised.value.problems
    assert problem.path == place and told in problem.message, problem


def test_nobody_logs_in_to_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot log in"):
        load_config(written(tmp_path, user="bench"))


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ({**READS, "consistency": "s"}, "knows no consistency but that of its URLs"),
        ({**READS, "spanKeys": 10}, "is known by the URLs of single keys alone"),
        ({"type": "txn", "load": LOAD}, "they tell of no transactions"),
        ({**WRITE, "load": {"duration": "1s", "clients": 1, "conns": 1}}, "can write 10,000,000 different keys"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_reason(tmp_path: Path, block: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        prepare(written(tmp_path), scenarios(tmp_path, block))
    assert told in str(raised.value)


def test_where_keys_stay_there_may_be_as_many_as_one_likes(tmp_path: Path) -> None:
    endless = {**WRITE, "load": {"duration": "1s", "clients": 1, "conns": 1}}
    plan = prepare(written(tmp_path, STAY), scenarios(tmp_path, endless))
    assert sum(keys.count for keys in keys_of(plan)) == 10_000_000


def test_the_keys_of_a_run_are_those_of_its_loads(tmp_path: Path) -> None:
    again = {**WRITE, "load": {**LOAD, "total": 100}, "target": "cluster"}
    plan = prepare(written(tmp_path, prefix="p/"), scenarios(tmp_path, WRITE, again, READS))
    prefix = f"p/{plan.run_id}/"
    assert keys_of(plan) == (Keys(4, 350, prefix), Keys(4, 100, f"{prefix}data/"))


def test_requests_have_the_templates_and_nobody_leads(tmp_path: Path) -> None:
    plan = prepare(written(tmp_path), scenarios(tmp_path, WRITE, READS))
    ends = {"http1": "10.0.0.1:8080"}
    write, read = (planned.scheduled.scenario for planned in plan.scenarios)
    _, body = request_of(write, ends, 60.0, terms=plan.store.load_terms)
    assert (body["store"], body["putPath"], body["putCodes"]) == ("http", SERVICE["put"], "200,201,204")
    assert body["targetMember"] == "10.0.0.1:8080" and "targetLeader" not in body and "getPath" not in body
    _, body = request_of(read, ends, 60.0, terms=plan.store.load_terms)
    assert (body["getPath"], body["getCodes"], body["absentCodes"]) == (SERVICE["get"], "200", "404")


def test_another_url_is_another_load(tmp_path: Path) -> None:
    wanted = scenarios(tmp_path, WRITE)
    one = config_hash(prepare(written(tmp_path), wanted))
    assert one == config_hash(prepare(written(tmp_path, prefix="p/"), wanted))
    assert one != config_hash(prepare(written(tmp_path, {**SERVICE, "put": "/v0/entity?id={key}&ack=3"}), wanted))


OWN = OwnKeys("p/1/", (Keys(4, 350, "p/1/"), Keys(4, 1000, "p/1/data/")))


def cluster(folder: Path, *urls: str, own: OwnKeys = OWN, **store: Any) -> ExternalCluster:
    return cluster_of(load_config(written(folder, {**SERVICE, **store}, urls)), own)


def test_a_look_writes_nothing_and_says_who_is_none(tmp_path: Path) -> None:
    with services(3) as (good, broken, other):
        broken.answers["GET"], other.answers["GET"] = 500, 204
        gone = f"http://127.0.0.1:{free_ports(1)[0]}"
        found = cluster(tmp_path, good.url, broken.url, other.url, gone).look(2.0)
        first, second, third = found.problems
        assert first.startswith(f"{broken.url} is no such service: HTTP 500: GET /v0/entity?id=p%2F1%2F")
        assert "(200)" in first and "(404)" in first and "HTTP 204" in second
        assert third == f"{gone} answers nothing: connection refused"
        alone = cluster(tmp_path, good.url).look(2.0)
        assert alone.problems == [] and alone.leadership is not None and alone.leadership.leader == "http1"
        assert all(request.startswith("GET ") for request in good.requests + broken.requests)


def test_keys_that_are_there_are_found_as_far_as_they_can_be(tmp_path: Path) -> None:
    with services(1) as (one,):
        assert cluster(tmp_path, one.url).keys() == 0
        one.values["p/1/data/0003"] = b"theirs"
        assert cluster(tmp_path, one.url).keys() == 1
        assert cluster(tmp_path, one.url, own=OwnKeys("p/1/")).keys() is None


def test_a_write_is_tried_and_taken_back(tmp_path: Path) -> None:
    with services(1) as (one,):
        found = cluster(tmp_path, one.url)
        assert found.try_write() is None and one.values == {}
        assert one.requests == ["PUT /v0/entity?id=p%2F1%2F0000&ack=2", "DELETE /v0/entity?id=p%2F1%2F0000"]
        one.answers["DELETE"] = 405
        assert str(found.try_write()).endswith("answers with the status 405, and not 200,202,204,404")
        one.answers["DELETE"] = 404
        assert str(found.try_write()).endswith("answers with the status 404, and the key that was put is still there")
        one.answers["PUT"] = 404
        told = str(found.try_write())
        assert told.startswith("PUT /v0/entity?id=p%2F1%2F0000&ack=2 at 127.0.0.1:") and "the status 404" in told


def filled(service: Service, others: int = 5) -> None:
    for keys in OWN.generated:
        service.values.update({keys.name(number): b"v" for number in range(keys.count)})
    service.values.update({f"other/{number}": b"theirs" for number in range(others)})


def test_all_keys_of_the_run_are_removed_and_no_other(tmp_path: Path) -> None:
    with services(1) as (one,):
        filled(one)
        del one.values["p/1/0007"]
        told: list[int] = []
        assert cluster(tmp_path, one.url).remove_keys(told.append) == 1349
        assert told == sorted(told) and told[-1] == 1349
        assert sorted(one.values) == [f"other/{number}" for number in range(5)]
        assert one.connections <= 17


def test_what_a_silent_member_does_not_delete_the_others_do(tmp_path: Path) -> None:
    with services(1) as (one,):
        filled(one, others=0)
        gone = f"http://127.0.0.1:{free_ports(1)[0]}"
        assert cluster(tmp_path, gone, one.url).remove_keys() == 1350 and one.values == {}
        with pytest.raises(RunError, match="answers nothing: connection refused"):
            cluster(tmp_path, gone).remove_keys()


def test_what_a_member_holds_when_it_falls_silent_the_others_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are fewer batches than workers: those that find none left were gone when the silent one gave its back."""
    monkeypatch.setattr(external, "_ASK_S", 0.3)
    own = OwnKeys("p/1/", (Keys(4, 300, "p/1/"),))
    with services(2) as (one, other), socket.create_server(("127.0.0.1", 0)) as silent:
        for service in (one, other):
            service.values.update({own.generated[0].name(number): b"v" for number in range(300)})
        urls = one.url, f"http://127.0.0.1:{silent.getsockname()[1]}", other.url
        cluster(tmp_path, *urls, own=own).remove_keys()
        deleted = {request for service in (one, other) for request in service.requests}
        assert len(deleted) == 300


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda service: service.answers.update(DELETE=403), "HTTP 403: DELETE at 127.0.0.1:"),
        (lambda service: service.answers.update(DELETE=500), "HTTP 500: DELETE at 127.0.0.1:"),
    ],
)
def test_a_delete_that_is_refused_is_an_error(tmp_path: Path, change: Callable[[Service], None], told: str) -> None:
    with services(1) as (one,):
        filled(one)
        change(one)
        with pytest.raises(RunError, match=told):
            cluster(tmp_path, one.url).remove_keys()
        assert len(one.requests) <= 16


def test_without_a_delete_nothing_is_removed_in_silence(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, STAY))
    assert cluster_of(config, OwnKeys("p/1/")).remove_keys() == 0
    with pytest.raises(RunError, match='"delete" in the store'):
        cluster_of(config, OWN).remove_keys()
