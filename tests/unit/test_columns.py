"""What the columns of a row hold for each kind of load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from containernet_env.config import load_config
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter
from containernet_env.model.config import HttpService, StoreChoice
from containernet_env.model.findings import load_findings
from containernet_env.model.keys import ONE_KEY, Span
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.link_statistics import LinkStatistics
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.run_facts import RunFacts
from containernet_env.model.scenario import Scenario, ScheduledScenario
from containernet_env.results.columns import COLUMNS, SEED_COLUMNS, TABLE, row_of
from containernet_env.stores.kinds import KINDS
from tests.unit.answers import closed_loop, open_loop, results, schema, without_answers

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "3node-3ms.json"
FACTS = RunFacts(load_config(CONFIG), "run-1", store_version="3.7.3")
READ = Scenario(
    name="r", type="read", total=500, clients=10, conns=2, key_size=8, val_size=256, key_space=1000, consistency="l"
)
NEW = ("OfferedRate_per_s", "AchievedRate_per_s", "Unsent", "Unknown", "FellBehind")
SERVICE = tuple(f"ServiceTime_{p}%_s" for p in ("50", "95", "99", "99.9"))


def outcome(scenario: Scenario, result: Mapping[str, Any] | None = None, **changes: Any) -> ScenarioOutcome:
    load = LoadResult.from_json(result) if result is not None else None
    return ScenarioOutcome(ScheduledScenario(scenario, 1), "t", 1, load=load, **changes)


def row(scenario: Scenario, result: Mapping[str, Any] | None, error: str | None = None) -> dict[str, str]:
    made = row_of(FACTS, outcome(scenario, result, error=error))
    assert tuple(made) == COLUMNS
    return made


def values(made: dict[str, str], *columns: str) -> list[str]:
    return [made[column] for column in columns]


def test_a_closed_loop_has_no_schedule() -> None:
    made = row(READ, closed_loop(ok=998, failed=2, outcomes={"ok": 998, "failed": 0, "unknown": 2, "unsent": 0}))
    assert values(made, *NEW) == ["-", "-", "-", "2", "-"]
    assert values(made, *SERVICE) == ["-"] * 4
    assert values(made, "Errors", "Excluded", "GeneratorLate") == ["2", "2", "-"]


def test_an_open_loop_shows_its_rate_and_both_times() -> None:
    result = open_loop(
        schedule__fell_behind=True,
        schedule__unsent=4,
        rate_offered_per_s=500.0,
        rate_achieved_per_s=499.87654,
        outcomes__unknown=2,
        outcomes__unsent=4,
        schedule__generator_late=3,
        service_time__percentiles_s__50=0.001,
        service_time__percentiles_s__95=0.0012345678,
        service_time__percentiles_s__99=0.003,
    )
    made = row(replace(READ, rate=Decimal(500)), result)
    assert values(made, *NEW) == ["500.0000", "499.8765", "4", "2", "yes"]
    assert values(made, *SERVICE) == ["0.001000", "0.001235", "0.003000", "-"]
    assert values(made, "GeneratorLate", "Excluded") == ["3", "6"]
    assert values(row(replace(READ, rate=Decimal(500)), open_loop()), "FellBehind", "Unsent", "Error") == [
        "no",
        "0",
        "-",
    ]


def test_a_load_in_which_nothing_succeeded_has_no_times() -> None:
    made = row(replace(READ, rate=Decimal(500)), without_answers(open_loop(), 50), "all failed")
    assert values(made, *SERVICE, "50%", "99%", "Slowest", "Requests/sec") == ["-"] * 8
    assert made["Errors"] == "50"


def test_a_row_not_run_says_what_was_asked() -> None:
    made = row(replace(READ, rate=Decimal("0.5")), None, "not run: x")
    assert values(made, "OfferedRate_per_s", "AchievedRate_per_s", "RequestCount") == ["0.5000", "-", "500"]


def test_the_request_count_of_a_duration_follows_from_its_rate() -> None:
    timed = replace(READ, total=None, duration_ns=10**10)
    assert row(timed, None, "not run: x")["RequestCount"] == "-"
    assert row(replace(timed, rate=Decimal(500)), None)["RequestCount"] == "5000"


def test_the_requests_of_a_duration_without_a_rate_are_those_that_were_sent() -> None:
    timed = replace(READ, total=None, duration_ns=10**10)
    assert row(timed, closed_loop(requests=1000))["RequestCount"] == "1000"
    # Poisson arrivals make the rate's number of requests on average only.
    poisson = replace(timed, rate=Decimal(5), arrival="poisson")
    assert row(poisson, open_loop(requests=50))["RequestCount"] == "50"


def test_a_percentile_that_cannot_be_told_from_the_slowest_is_left_out() -> None:
    few = open_loop()
    assert few["ok"] == 50 and few["percentiles_s"]["99"] == few["slowest_s"]
    made = row(replace(READ, rate=Decimal(100)), few)
    assert values(made, "99%", "99.9%", "ServiceTime_99%_s", "ServiceTime_99.9%_s") == ["-"] * 4
    # The seed's own columns keep its meaning.
    assert made["95%"] == f"{few['percentiles_s']['95']:.6f}"
    many = closed_loop()
    assert many["ok"] == 1000 and values(row(READ, many), "99%", "99.9%") == [
        f"{many['response_time']['percentiles_s'][p]:.6f}" for p in ("99", "99.9")
    ]


def test_a_mixed_load_has_what_writes_and_reads_have() -> None:
    made = row(replace(READ, type="mixed", put_ratio=Decimal("0.2")), None)
    assert values(made, "TestType", "KeySize", "ValueSize", "Consistency") == ["mixed", "8", "256", "l"]


def test_second_tries_are_told_where_the_store_has_them() -> None:
    zookeeper = replace(FACTS, second_tries=True)
    write = replace(READ, type="write", consistency=None)
    mixed, txn = replace(READ, type="mixed", put_ratio=Decimal("0.2")), replace(write, type="txn")
    for facts, scenario, told, shown in (
        (zookeeper, write, {"second_tries": 7}, "7"),
        (zookeeper, write, {}, "0"),
        (zookeeper, mixed, {"second_tries": 7}, "7"),
        (zookeeper, READ, {}, "-"),
        (zookeeper, txn, {}, "-"),
        (FACTS, write, {}, "-"),
    ):
        assert row_of(facts, outcome(scenario, closed_loop() | told))["SecondTries"] == shown
    assert row_of(zookeeper, outcome(write))["SecondTries"] == "-"


def test_the_columns_say_of_every_store_what_it_puts_there() -> None:
    meanings = {column.name: column.meaning for column in TABLE}
    service = HttpService("/kv/{key}", "/kv/{key}", None, (200,), (200,), (), (404,))
    for kind in KINDS.values():
        store = kind.make(StoreChoice(kind.name, service=service))
        named = re.search(rf"\b{store.title}\b", meanings["SecondTries"]) is not None
        assert store.load_terms.second_tries == named, kind.name
        for words in store.consistency.values():
            assert f"`{re.sub(r'[0-9]+', 'N', words)}`" in meanings["Consistency"], kind.name


def test_a_row_says_what_a_read_asks_for() -> None:
    columns = ("ReadSpan", "ReadLimit", "ReadAnswer")
    for span, shown in (
        (ONE_KEY, ["1 key", "-", "values"]),
        (Span(keys=100, limit=10), ["100 keys", "10", "values"]),
        (Span(prefix="d/0", answer="keys"), ["prefix d/0", "-", "keys"]),
        (Span(start="a", end="b", limit=7, answer="count"), ["a to b", "7", "count"]),
    ):
        assert values(row(replace(READ, span=span), None), *columns) == shown
    for writes in (replace(READ, type="write", consistency=None), replace(READ, type="txn", consistency=None)):
        made = row(writes, None)
        assert values(made, *columns, "Consistency", "KeySize", "ValueSize") == ["-"] * 4 + ["8", "256"]


@pytest.mark.parametrize(("realtime", "shown"), [(True, "yes"), (False, "no"), (None, "-")])
def test_a_row_says_whether_the_links_had_real_time_priority(realtime: bool | None, shown: str) -> None:
    facts = replace(FACTS, realtime=realtime)
    made = row_of(facts, outcome(READ))
    assert made["Realtime"] == shown


@pytest.mark.parametrize(
    ("network", "shown"),
    [
        (None, ["-", "-"]),
        ({"stamps": None, "lateness": None}, ["-", "-"]),
        ({"lateness": {"count": 0, "p99_ns": 0}}, ["-", "-"]),
        ({"stamps": "read", "lateness": {"count": 5, "p99_ns": 1_234_567}}, ["read", "1234.6"]),
    ],
)
def test_a_row_says_how_late_its_frames_were(network: dict[str, Any] | None, shown: list[str]) -> None:
    seen = LinkStatistics(network) if network is not None else None
    made = row_of(FACTS, outcome(READ, network=seen))
    assert values(made, "LinkStamps", "LinkLateness_99%_us") == shown


MS = 1_000_000
PLAIN = LinkSpec.symmetric(3 * MS, 10**9)


@pytest.mark.parametrize(
    ("links", "jitter", "loss"),
    [
        ([PLAIN, PLAIN], "0", "0"),
        ([LinkSpec.symmetric()] * 2, "0", "0"),
        (
            [LinkSpec(DirectionSpec(3 * MS, jitter=Jitter("normal", 500_000)), DirectionSpec(3 * MS))] * 2,
            "normal 0.5/0",
            "0",
        ),
        (
            [LinkSpec(*[DirectionSpec(3 * MS, jitter=Jitter("uniform", MS, reorder=True))] * 2), PLAIN],
            "uniform 1 reordering;0",
            "0",
        ),
        ([LinkSpec(*[DirectionSpec(loss=IndependentLoss(1e-7))] * 2)] * 2, "0", "0.0000001"),
        ([LinkSpec(DirectionSpec(loss=GilbertElliottLoss(0.01, 0.03)), DirectionSpec())], "0", "0.25 in bursts/0"),
    ],
)
def test_a_row_tells_jitter_and_loss_of_the_members_links(links: list[LinkSpec], jitter: str, loss: str) -> None:
    nodes = tuple(replace(FACTS.config.nodes[0], link=link) for link in links)
    facts = replace(FACTS, config=replace(FACTS.config, nodes=nodes))
    made = row_of(facts, outcome(READ))
    assert values(made, "LinkJitter_ms", "LinkLoss_ratio") == [jitter, loss]


class Recorder(dict[str, Any]):
    """A JSON object that notes in ``read`` the path of every field that somebody asks it for."""

    def __init__(self, fields: dict[str, Any], path: tuple[str, ...], read: set[tuple[str, ...]]) -> None:
        super().__init__(fields)
        self._path, self._read = path, read

    def __getitem__(self, name: str) -> Any:
        self._read.add((*self._path, name))
        value = super().__getitem__(name)
        return Recorder(value, (*self._path, name), self._read) if isinstance(value, dict) else value

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def required_at(path: tuple[str, ...]) -> set[str]:
    """The fields that the schema requires of the object at ``path`` of a result."""
    place = schema()
    for name in (*path, None):
        if "anyOf" in place:
            place = next(form for form in place["anyOf"] if form.get("type") != "null")
        if "$ref" in place:
            place = schema()["$defs"][place["$ref"].rpartition("/")[2]]
        if name is not None:
            place = place["properties"][name]
    return set(place["required"])


@pytest.mark.parametrize("asked", results())
def test_every_example_makes_a_row_of_fields_that_every_result_has(asked: str) -> None:
    read: set[tuple[str, ...]] = set()
    result = Recorder(results()[asked], (), read)
    figures = row(READ, result)
    tuple(load_findings(LoadResult.from_json(result)))
    assert ("outcomes", "unknown") in read, "nothing was recorded"
    for *parents, name in read:
        assert name in required_at(tuple(parents)), f"{'.'.join((*parents, name))} is read and not required"
    assert figures["Errors"] == str(result["failed"])


def test_a_row_says_what_was_varied() -> None:
    node, *others = FACTS.config.nodes
    small = replace(node, cpus=Decimal("0.5"), memory_bytes=None)
    client = replace(FACTS.config.client, link=LinkSpec(DirectionSpec(MS, 10**8), DirectionSpec(2 * MS)))
    facts = replace(
        FACTS,
        config=replace(FACTS.config, nodes=(small, *others), client=client),
        timing={"heartbeat_ms": 100, "election_ms": 1000, "heartbeat_from": "default"},
        congestion_control="cubic",
    )
    made = row_of(facts, outcome(READ))
    assert values(made, "Cpus", "Memory_bytes") == ["0.5;1;1", "unlimited;536870912;536870912"]
    assert values(made, "ClientLink", "ClientCpus") == ["1/2 ms 100/unlimited Mbit/s", "unlimited"]
    assert values(made, "Heartbeat_ms", "ElectionTimeout_ms", "Data") == ["100", "1000", "disk"]
    assert made["CongestionControl"] == "cubic"


def test_the_text_of_a_row_stays_on_one_line() -> None:
    assert row(READ, None, 'first line\n  second, "quoted"\tline')["Error"] == 'first line second, "quoted" line'


def test_names_of_numbers_carry_their_unit() -> None:
    """All but counts and the seed's own columns, whose percentiles `99%` and `99.9%` continue."""
    for column in TABLE[len(SEED_COLUMNS) :]:
        if column.number and column.unit and column.name not in ("99%", "99.9%"):
            assert column.name.endswith(("_per_s", f"_{column.unit}")), column.name
