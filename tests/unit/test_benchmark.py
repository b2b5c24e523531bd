"""What the benchmark server is asked for, what becomes of its answers, and what they say of a schedule."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.http import HttpError, NoAnswerError
from containernet_env.model.findings import load_findings
from containernet_env.model.load_result import SCHEMA, LoadResult
from containernet_env.model.scenario import Dataset, Scenario, ScheduledScenario, Span, Warmup
from containernet_env.runs.load import Answer, BenchmarkServer, request_of
from containernet_env.stores.store import LoadTerms
from tests.unit.answers import benchmarks, check, check_request, closed_loop, examples, open_loop, results, schema
from tests.unit.fakes import read, write

ENDPOINTS = {"etcd1": "10.0.0.1:2379", "etcd2": "10.0.0.2:2379"}
WRITE, READ = write("w"), replace(read("r"), key_space=10_000, consistency="s")
TIMED, ZIPF = {"total": None, "duration_ns": 1_500_000_000}, {"zipf_exponent": Decimal("1.2")}


SPANS = Span(keys=10, limit=3, answer="keys")
PREFIX, RANGE = Span(prefix="000", answer="count"), Span(start="0", end="1")


def asked(scenario: Scenario, **more: Any) -> tuple[str, dict[str, Any]]:
    """The path and the body of the request."""
    path, body = request_of(scenario, ENDPOINTS, 1800.0, **more)
    check_request(path, body)
    return path, body


def test_a_closed_loop_asks_for_what_it_always_did() -> None:
    common = {"endpoints": "10.0.0.1:2379,10.0.0.2:2379", "clients": 10, "conns": 2, "requestTimeout": 20.0}
    common |= {"runTimeout": 1800.0, "keySize": 8}
    written = {"total": 1000, "keySpace": 1000, "valSize": 256, "sequentialKeys": True, "targetLeader": True}
    assert asked(WRITE) == ("/benchmark/write", common | written)
    read = {"total": 500, "keySpace": 10_000, "consistency": "s", "requireFound": True}
    assert asked(READ) == ("/benchmark/read", common | read)


@pytest.mark.parametrize(
    ("base", "changes", "added", "without"),
    [
        (WRITE, {"target": "cluster"}, {"targetLeader": False}, ""),
        (WRITE, {"target": "etcd2"}, {"targetMember": "10.0.0.2:2379"}, "targetLeader"),
        (READ, {"target": "etcd2"}, {"targetMember": "10.0.0.2:2379"}, ""),
        (READ, {"target": "leader"}, {"targetLeader": True}, ""),
        (WRITE, {"rate": Decimal("0.5")}, {"rate": 0.5, "arrival": "constant"}, ""),
        (READ, {"rate": Decimal(500), "arrival": "poisson"}, {"rate": 500.0, "arrival": "poisson"}, ""),
        # A duration stands for the total, and writes ever new keys.
        (WRITE, {"key_space": None, **TIMED}, {"duration": 1.5}, "total keySpace"),
        (READ, TIMED, {"duration": 1.5}, "total"),
        (READ, {"warmup": Warmup(requests=50)}, {"warmupRequests": 50}, ""),
        (READ, {"warmup": Warmup(length_ns=10**9)}, {"warmupDuration": 1.0}, ""),
        (READ, {"keys": "uniform"}, {"keyOrder": "uniform"}, ""),
        (READ, {"keys": "zipfian", **ZIPF}, {"keyOrder": "zipfian", "zipfExponent": 1.2}, ""),
        (READ, {"verify": True}, {"verify": True, "valSize": 256}, ""),
        (WRITE, {"keys": "shuffled", "key_space": 5000}, {"keyOrder": "shuffled", "keySpace": 5000}, "sequentialKeys"),
        (WRITE, {"keys": "zipfian", **ZIPF}, {"keyOrder": "zipfian", "zipfExponent": 1.2}, "sequentialKeys"),
        (READ, {"request_timeout_ns": 10**9}, {"requestTimeout": 1.0}, ""),
        (READ, {"stall_timeout_ns": 0}, {"stallTimeout": 0.0}, ""),
        (READ, {"span": SPANS, "keys": "uniform", "key_prefix": "d/"},
            {"keyOrder": "uniform", "keyPrefix": "d/", "spanKeys": 10, "limit": 3, "keysOnly": True}, ""),
        # A name tells what is read: which keys there are is of use for verifying only.
        (READ, {"span": PREFIX}, {"key": "000", "prefix": True, "countOnly": True}, "keySize keySpace"),
        (READ, {"span": RANGE, "verify": True}, {"key": "0", "endRange": "1", "verify": True, "valSize": 256}, ""),
        # They write the values of the data set.
        (READ, {"type": "txn", "consistency": None, "key_prefix": "d/"},
            {"keyOrder": "sequential", "valSize": 256, "keyPrefix": "d/"}, "consistency requireFound"),
        (READ, {"type": "mixed", "put_ratio": Decimal("0.2")},
            {"ratio": 0.2, "keyOrder": "sequential", "valSize": 256}, ""),
    ],
)  # fmt: skip
def test_what_a_scenario_has_is_asked_for_and_nothing_else(
    base: Scenario, changes: dict[str, Any], added: dict[str, Any], without: str
) -> None:
    path, body = asked(replace(base, **changes))
    assert path == f"/benchmark/{changes.get('type', base.type)}"
    assert body == {name: value for name, value in asked(base)[1].items() if name not in without.split()} | added


def test_a_seed_of_the_load_leaves_the_values_alone() -> None:
    assert asked(WRITE, load_seed=7)[1] == asked(WRITE)[1] | {"loadSeed": 7}
    again = [ScheduledScenario(replace(WRITE, seed=seed), repetition) for seed in (0, 5) for repetition in (1, 2)]
    assert [item.load_seed for item in again] == [0, 1, 5, 6]
    # Values follow from the seed: nobody may ask for another one than whoever loaded the data set.
    assert "seed" not in asked(Dataset().load)[1]


def test_a_store_adds_its_terms_and_may_have_no_leader() -> None:
    assert asked(WRITE, terms=LoadTerms({"store": "consul"}))[1] == asked(WRITE)[1] | {"store": "consul"}
    puts, gets = {"putPath": "/v0/entity?id={key}&ack=2"}, {"getPath": "/v0/entity?id={key}&from=2"}
    terms = LoadTerms({"store": "http"}, puts, gets, leaderless=True)
    for scenario, added in (
        (WRITE, puts),
        (replace(READ, consistency="l"), gets),
        (replace(READ, type="mixed", put_ratio=Decimal("0.5"), consistency="l"), puts | gets),
    ):
        _, body = asked(scenario, terms=terms)
        assert added.items() <= body.items() and not {"putPath", "getPath"} & (body.keys() - added.keys())
        assert "targetLeader" not in body
        assert body.get("targetMember") == ("10.0.0.1:2379" if scenario.target == "leader" else None)
    for leader, member in (("etcd2", "10.0.0.2:2379"), ("dead", "10.0.0.1:2379")):
        _, body = asked(WRITE, terms=terms, leader=leader)
        assert body["targetMember"] == member and "targetLeader" not in body


def findings(result: dict[str, Any]) -> list[str]:
    return [finding.text for finding in load_findings(LoadResult.from_json(result))]


def test_lateness_is_told_with_its_cause() -> None:
    assert findings(closed_loop()) == findings(open_loop()) == []
    late = {"schedule__fell_behind": True, "schedule__worst_lag_s": 0.8, "schedule__late": 1200}
    assert findings(open_loop(**late, schedule__unsent=7, schedule__clients_short=True)) == [
        "behind its schedule: 1,200 requests started late, by up to 0.800 s; 7 were never sent; all clients were busy"
    ]
    assert findings(open_loop(**late, schedule__generator_late=3))[1] == (
        "the generator itself was too slow for 3 requests: their figures are not the store's"
    )


def test_the_examples_in_the_documentation_are_what_the_schema_allows() -> None:
    assert {result["operation"] for result in results().values()} == {"put", "range", "mixed", "txn"}
    for result in results().values():
        check(result)
    assert schema()["properties"]["schema"] == {"const": SCHEMA}


class Connection:
    """To a server with these answers in turn; one that ``breaks`` does so while a benchmark runs."""

    def __init__(self, *answers: tuple[int, Any], breaks: bool = False) -> None:
        self.answers, self.breaks = list(answers), breaks
        self.asked: list[tuple[str, str]] = []
        self.server = BenchmarkServer(self)

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        if path == "/progress":
            idle = next(answer for asked, _, answer in examples() if asked.endswith("/progress"))
            return idle | {"running": True, "job": "b" * 32}
        if method == "POST" and self.breaks:
            self.server.progress()  # as whoever follows the benchmark does
            raise NoAnswerError("connection reset by peer")
        self.asked.append((method, path))
        status, answer = self.answers.pop(0)
        if status == 200:
            return answer
        raise HttpError(status, answer, answer["error"]) if status else NoAnswerError("refused")


@pytest.mark.parametrize(("status", "answer"), [*benchmarks(), (500, {"error": "no member", "result": None})])
def test_every_documented_answer_of_a_benchmark_is_understood(status: int, answer: Any) -> None:
    """Also that of a failed one without figures, which has its error only."""
    outcome = Connection((status, answer)).server.run("/benchmark/write", {}, 1.0)
    result, error = (answer, None) if status == 200 else (answer.get("result"), answer.get("error"))
    assert outcome.load == (result and LoadResult.from_json(result))
    assert outcome.error == (error if result else f"HTTP {status}: {error}")


def test_a_result_of_another_version_is_refused() -> None:
    changed = {"of version 2": {"schema": 2}, "of version '3'": {"schema": "3"}}
    results = {got: closed_loop() | changes for got, changes in changed.items()} | {"without a version": {"ok": 5}}
    for got, result in results.items():
        for answer in ((200, result), (500, {"error": "3 failed", "result": result})):
            with pytest.raises(RunError, match=f"a result {got}; version {SCHEMA} is read here.*build.sh"):
                Connection(answer).server.run("/benchmark/write", {}, 1.0)


def test_a_result_whose_connection_broke_is_fetched_once_the_benchmark_has_ended_or_lost() -> None:
    def after(*answers: tuple[int, Any]) -> tuple[Connection, Answer]:
        broken = Connection(*answers, breaks=True)
        return broken, broken.server.run("/benchmark/write", {}, 1.0)

    ended = {"error": "cancelled", "result": closed_loop(reason="cancelled")}
    broken, outcome = after((409, {"error": "still running"}), (500, ended))
    assert (outcome.load, outcome.error) == (LoadResult.from_json(ended["result"]), "cancelled") and not outcome.lost
    assert broken.asked == [("GET", "/benchmark/result/" + "b" * 32)] * 2
    assert after((200, closed_loop()))[1].error is None
    for status in (0, 404):
        _, outcome = after((status, {"error": "there is none"}))
        assert outcome.lost and outcome.error == "the benchmark server did not answer: connection reset by peer"
