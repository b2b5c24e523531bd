"""What the columns of a row hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.config.plan import PlanOptions
from containernet_env.model.config import EtcdSettings, HttpService, StoreChoice
from containernet_env.model.disruption import Disruption, Disruptions, ExecutedEvent
from containernet_env.model.findings import Effect, Finding, Kind, load_findings
from containernet_env.model.link import DirectionSpec, GilbertElliottLoss, IndependentLoss, Jitter, LinkSpec
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.model.scenario import ONE_KEY, Scenario, ScheduledScenario, Span
from containernet_env.model.search import Probe, Search, SearchResult
from containernet_env.model.topology import RttExpectation
from containernet_env.model.usage import Consumers, Consumption, LinkStatistics, Usage
from containernet_env.results.columns import COLUMNS, SEED_COLUMNS, TABLE, RunFacts, row_of
from containernet_env.runs.manifest import flags_of
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.store import LoadTerms, Timing
from tests.unit.answers import closed_loop, open_loop, results, schema, without_answers
from tests.unit.fakes import CONFIG as PATH
from tests.unit.fakes import read
from tests.unit.manifests import LINKS, MACHINE, manifest, plan_of

PLAN = plan_of(PATH)
CONFIG = PLAN.config
FACTS = RunFacts("run-1", PLAN, manifest(PLAN))
SECOND_TRIES_STORE: Any = SimpleNamespace(name="etcd", consistency={}, load_terms=LoadTerms({}, second_tries=True))
S, MS = 10**9, 10**6


def outcome(scenario: Scenario, result: Mapping[str, Any] | None = None, **changes: Any) -> ScenarioOutcome:
    load = LoadResult.from_json(result) if result is not None else None
    return ScenarioOutcome(ScheduledScenario(scenario, 1), "t", 1, load=load, **changes)


PERCENTILES = ("10", "25", "50", "75", "90", "95", "99", "99.9")
SEARCH = Search(p95_ns=5_000_000, p99_ns=50_000_000, low=Decimal(10), high=Decimal(1000))
PROBE = Probe(1, "repeat", Decimal("251.5"), 6.5, 7, "held", "", (0.004, 0.04))


def percentiles(first: int) -> dict[str, float | None]:
    return {percent: index / 100 for index, percent in enumerate(PERCENTILES, first)}


def every_figure() -> ScenarioOutcome:
    counts: dict[str, Any] = {"requests": 2000, "ok": 1900, "failed": 60, "done": 1960, "requests_per_s": 253.25}
    counts["outcomes"] = {"ok": 1900, "failed": 50, "unknown": 10, "unsent": 40}
    times = {"total_s": 7.5, "drain_s": 0.4375, "slowest_s": 0.9, "fastest_s": 0.1, "average_s": 0.2, "stddev_s": 0.05}
    client = {"busy_ratio": 0.0625, "pauses": 6, "paused_s": 0.375, "run_delay_s": 0.3125, "mean_run_delay_s": 0.0001}
    schedule = {"fell_behind": True, "unsent": 40, "generator_late": 3, "late": 5}
    made = open_loop(
        **counts | times | client,
        **{f"schedule__{name}": value for name, value in schedule.items()},
        rate_achieved_per_s=261.5,
        percentiles_s=percentiles(11),
        response_time__percentiles_s=percentiles(21) | {"99.99": None},
        service_time__percentiles_s=percentiles(31) | {"99.99": None},
    )
    rows = [(0, 1_900_000_000), (None, None), (3_500_000_000, 4_900_000_000)]
    timeline = [{"first_ok_ns": first, "last_ok_ns": last, "gap_ns": 0, "gap_end_ns": last} for first, last in rows]
    sizes = {"total": 2000, "clients": 12, "conns": 7, "key_size": 9, "val_size": 250, "key_space": 100}
    asked: dict[str, Any] = {"name": "m", "type": "mixed", "consistency": "s", "target": "etcd2"}
    kill = Disruption(verb="kill", target="leader", at_ns=2 * S)
    loss = Disruption(verb="loss", target="etcd3", every_ns=5 * S, value=0.01)
    asked |= {"put_ratio": Decimal("0.5"), "rate": Decimal("267.25"), "search": SEARCH, "events": (kill, loss)}
    scenario = Scenario(**sizes | asked)
    carried = (
        ExecutedEvent(1, 1, "event", "kill", "leader", None, ("etcd1",), 2 * S, 9, 2_000_000_000, "etcd1"),
        ExecutedEvent(2, 1, "event", "loss", "etcd3", 0.01, ("etcd3",), 5 * S, 12, 5_001_000_000, "etcd2"),
        ExecutedEvent(0, 1, "end", "restart", "etcd1", None, ("etcd1",), None, 13, 7 * S),
    )
    used = Consumers(
        members={"etcd1": Consumption(cpu_ns=S), "etcd2": Consumption(cpu_ns=2 * S)},
        client=Consumption(cpu_ns=875_000_000, throttled_ns=125_400_000),
        links=Consumption(cpu_ns=500_000_000),
        driver=Consumption(cpu_ns=77),
        machine=Consumption(cpu_ns=99, steal_ns=250_000_000),
    )
    network = {"links": {}, "ports": {}, "stamps": "read", "lateness": {"count": 9, "p99_ns": 20_300}}
    led: dict[str, Any] = {"leader": "etcd1>etcd3", "leader_at_start": "etcd1", "term_at_start": 4, "term_at_end": 6}
    found: dict[Kind, Effect] = {"few_answers": "unknown", "links_paused": "invalid", "fell_behind": "info"}
    return ScenarioOutcome(
        ScheduledScenario(scenario, 3, "5ce7a810", attempt=2),
        "2026-01-01T00:00:00.000Z",
        1,
        **led,
        cluster=2,
        reused="cluster",
        floor_s=0.2,
        load=LoadResult.from_json(made | {"longest_gap_s": 1.4, "timeline": timeline, "second_tries": 13}),
        network=LinkStatistics(network),
        disruptions=Disruptions("7/m/3.2", carried),
        machine=Usage(2 * S, used),
        search=SearchResult(SEARCH, "found", Decimal("251.5"), Decimal("264.25"), "held", (PROBE,) * 23),
        error="60 requests failed",
        findings=tuple(Finding(kind, effect, "text") for kind, effect in found.items()),
    )


def test_every_column_holds_its_own_figure(snapshot: SnapshotAssertion) -> None:
    nodes = tuple(
        replace(node, cpus=Decimal(index) / 2, memory_bytes=index * 2**20) for index, node in enumerate(CONFIG.nodes, 1)
    )
    client = replace(CONFIG.clients[0], cpus=Decimal("1.5"), memory_bytes=2**28)
    config = replace(CONFIG, nodes=nodes, clients=(client,), etcd=EtcdSettings(data="tmpfs", leader="etcd2"))
    proof = NetworkProof("before", (Check("etcd1>s1", "loss", "unproved", "0.1 %"),))
    rtt = RttExpectation("etcd1", "etcd2", 12_000_000, 12_003_400)
    timing = Timing(values={"heartbeat_ms": 130, "election_ms": 1300})
    plan = replace(PLAN, config=config, largest_member_rtt=rtt, store=SECOND_TRIES_STORE, timing=timing)
    options = PlanOptions(4, seed=4711, congestion_control="bbr", links_cpu=1, offload=True)
    known = manifest(
        PLAN,
        flags=flags_of(options, None),
        machine=MACHINE.model_copy(update={"cpu_model": "cpu x", "cores": 4}),
        links=LINKS.model_copy(update={"link_emulator": {"realtime": False}}),
        config_hash="c0ffee",
    )
    told: dict[str, Any] = {"labs": 2, "commit": "abc", "machine": "node7", "hosts": "containernet"}
    facts = RunFacts("run-7", plan, known, proof, 12_023_600, **told)
    row = row_of(facts, every_figure())
    assert tuple(row) == COLUMNS
    assert row == snapshot


READ = read("r")
RATED = replace(READ, rate=Decimal(500))
TIMED = replace(READ, total=None, duration_ns=10 * S)
WRITE = replace(READ, type="write", consistency=None)
MIXED = replace(READ, type="mixed", put_ratio=Decimal("0.2"))
TXN = replace(WRITE, type="txn")
NO_SERVICE_TIME = {f"ServiceTime_{p}%_s": "-" for p in ("50", "95", "99", "99.9")}
NO_READ = dict.fromkeys(("ReadSpan", "ReadLimit", "ReadAnswer", "Consistency"), "-")
SIZES = {"KeySize": "8", "ValueSize": "256"}
ZOOKEEPER = replace(FACTS, plan=replace(PLAN, store=SECOND_TRIES_STORE))
SECOND_TRIES = closed_loop() | {"second_tries": 7}
FEW, MANY = open_loop(), closed_loop()
OUTCOMES = {"ok": 998, "failed": 0, "unknown": 2, "unsent": 0}


def reads(columns: Any, **span: Any) -> Any:
    return outcome(replace(READ, span=Span(**span))), dict(zip(NO_READ, columns, strict=False))


def linked(links: list[LinkSpec], jitter: str, loss: str) -> Any:
    """A row of members with these links."""
    nodes = tuple(replace(CONFIG.nodes[0], link=link) for link in links)
    return outcome(READ), {"LinkJitter_ms": jitter, "LinkLoss_ratio": loss}, with_config(nodes=nodes)


def with_config(**changes: Any) -> RunFacts:
    return replace(FACTS, plan=replace(PLAN, config=replace(CONFIG, **changes)))


def with_priority(realtime: bool | None) -> RunFacts:
    links = LINKS.model_copy(update={"link_emulator": {"realtime": realtime}})
    return replace(FACTS, manifest=manifest(PLAN, links=links))


def late(network: dict[str, Any] | None, stamps: str, lateness_us: str) -> Any:
    seen = LinkStatistics(network) if network is not None else None
    shown = {"LinkStamps": stamps, "LinkLateness_99%_us": lateness_us}
    return outcome(READ, network=seen), shown


def varied() -> RunFacts:
    node, *others = CONFIG.nodes
    client = replace(CONFIG.clients[0], link=LinkSpec(DirectionSpec(MS, 10**8), DirectionSpec(2 * MS)))
    small = replace(node, cpus=Decimal("0.5"), memory_bytes=None)
    return with_config(nodes=(small, *others), clients=(client,))


PLAIN, JITTERY = LinkSpec.symmetric(3 * MS, 10**9), Jitter("normal", 500_000)
CASES: dict[str, tuple[ScenarioOutcome, dict[str, str], *tuple[RunFacts, ...]]] = {
    "a closed loop has no schedule": (
        outcome(READ, closed_loop(ok=998, failed=2, outcomes=OUTCOMES)),
        dict.fromkeys(("OfferedRate_per_s", "AchievedRate_per_s", "Unsent", "FellBehind", "GeneratorLate"), "-")
        | {"Unknown": "2", "Errors": "2", "Excluded": "2", **NO_SERVICE_TIME},
    ),
    "an open loop that kept up": (outcome(RATED, FEW), {"FellBehind": "no", "Unsent": "0", "Error": "-"}),
    "nothing succeeded": (
        outcome(RATED, without_answers(FEW, 50), error="all failed"),
        dict.fromkeys(("50%", "99%", "Slowest", "Requests/sec"), "-") | {"Errors": "50", **NO_SERVICE_TIME},
    ),
    "not run": (
        outcome(replace(READ, rate=Decimal("0.5")), error="not run: x"),
        {"OfferedRate_per_s": "0.5000", "AchievedRate_per_s": "-", "RequestCount": "500"},
    ),
    "the text of an error stays on one line": (
        outcome(READ, error='first line\n  second, "quoted"\tline'),
        {"Error": 'first line second, "quoted" line'},
    ),
    "a duration": (outcome(TIMED), {"RequestCount": "-"}),
    "a duration with a rate": (outcome(replace(TIMED, rate=Decimal(500))), {"RequestCount": "5000"}),
    "a duration that sent": (outcome(TIMED, closed_loop(requests=1000)), {"RequestCount": "1000"}),
    # Poisson arrivals make the rate's number of requests on average only.
    "a duration with Poisson arrivals": (
        outcome(replace(TIMED, rate=Decimal(5), arrival="poisson"), open_loop(requests=50)),
        {"RequestCount": "50"},
    ),
    # The seed's own columns keep its meaning.
    "percentiles that cannot be told from the slowest": (
        outcome(replace(READ, rate=Decimal(100)), FEW),
        dict.fromkeys(("99%", "99.9%", "ServiceTime_99%_s", "ServiceTime_99.9%_s"), "-")
        | {"95%": f"{FEW['percentiles_s']['95']:.6f}"},
    ),
    "percentiles of many": (
        outcome(READ, MANY),
        {f"{p}%": f"{MANY['response_time']['percentiles_s'][p]:.6f}" for p in ("99", "99.9")},
    ),
    "a mixed load has what writes and reads have": (outcome(MIXED), {"TestType": "mixed", "Consistency": "l", **SIZES}),
    "a write": (outcome(WRITE), NO_READ | SIZES),
    "a transaction": (outcome(TXN), NO_READ | SIZES),
    "second tries of writes": (outcome(WRITE, SECOND_TRIES), {"SecondTries": "7"}, ZOOKEEPER),
    "no second tries": (outcome(WRITE, closed_loop()), {"SecondTries": "0"}, ZOOKEEPER),
    "second tries of mixed loads": (outcome(MIXED, SECOND_TRIES), {"SecondTries": "7"}, ZOOKEEPER),
    "reads are not tried again": (outcome(READ, closed_loop()), {"SecondTries": "-"}, ZOOKEEPER),
    "transactions are not tried again": (outcome(TXN, closed_loop()), {"SecondTries": "-"}, ZOOKEEPER),
    "a write that was not run": (outcome(WRITE), {"SecondTries": "-"}, ZOOKEEPER),
    "a store without second tries": (outcome(WRITE, closed_loop()), {"SecondTries": "-"}),
    "one key": (outcome(replace(READ, span=ONE_KEY)), {"ReadSpan": "1 key", "ReadAnswer": "values"}),
    "keys": reads(("2 keys", "10", "values"), keys=2, limit=10),
    "a prefix": reads(("prefix d/0", "-", "keys"), prefix="d/0", answer="keys"),
    "a range": reads(("a to b", "7", "count"), start="a", end="b", limit=7, answer="count"),
    **{
        f"real-time priority {realtime}": (outcome(READ), {"Realtime": shown}, with_priority(realtime))
        for realtime, shown in ((True, "yes"), (False, "no"), (None, "-"))
    },
    "no network": late(None, "-", "-"),
    "no lateness": late({"stamps": None, "lateness": None}, "-", "-"),
    "no frames": late({"lateness": {"count": 0, "p99_ns": 0}}, "-", "-"),
    "late frames": late({"stamps": "read", "lateness": {"count": 5, "p99_ns": 1_234_567}}, "read", "1234.6"),
    "plain links": linked([PLAIN, PLAIN], "0", "0"),
    "jitter in one direction": linked(
        [LinkSpec(DirectionSpec(3 * MS, jitter=JITTERY), DirectionSpec(3 * MS))] * 2, "normal 0.5/0", "0"
    ),
    "jitter of one link": linked(
        [LinkSpec(*[DirectionSpec(3 * MS, jitter=Jitter("uniform", MS, reorder=True))] * 2), PLAIN],
        "uniform 1 reordering;0",
        "0",
    ),
    "rare loss": linked([LinkSpec(*[DirectionSpec(loss=IndependentLoss(1e-7))] * 2)] * 2, "0", "0.0000001"),
    "loss in bursts": linked(
        [LinkSpec(DirectionSpec(loss=GilbertElliottLoss(0.01, 0.03)), DirectionSpec())], "0", "0.25 in bursts/0"
    ),
    "what was varied": (
        outcome(READ),
        {"Cpus": "0.5;1;1", "Memory_bytes": "unlimited;536870912;536870912", "ClientCpus": "unlimited"}
        | {"ClientLink": "1/2 ms 100/unlimited Mbit/s", "Data": "disk"},
        varied(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_columns(name: str) -> None:
    held, shown, *facts = CASES[name]
    made = row_of(*(facts or [FACTS]), held)
    assert tuple(made) == COLUMNS and {column: made[column] for column in shown} == shown


def test_the_columns_say_of_every_store_what_it_puts_there() -> None:
    meanings = {column.name: column.meaning for column in TABLE}
    service = HttpService("/kv/{key}", "/kv/{key}", None, (200,), (200,), (), (404,))
    for kind in KINDS.values():
        store = kind(StoreChoice(kind.name, service=service))
        named = re.search(rf"\b{store.title}\b", meanings["SecondTries"]) is not None
        assert store.load_terms.second_tries == named, kind.name
        for words in store.consistency.values():
            assert f"`{re.sub(r'[0-9]+', 'N', words)}`" in meanings["Consistency"], kind.name


def test_names_of_numbers_carry_their_unit() -> None:
    """All but counts and the seed's own columns, whose percentiles `99%` and `99.9%` continue."""
    for column in TABLE[len(SEED_COLUMNS) :]:
        if column.number and column.unit and column.name not in ("99%", "99.9%"):
            assert column.name.endswith(("_per_s", f"_{column.unit}")), column.name


def required(value: Any, form: dict[str, Any]) -> Any:
    """A part of a result without the fields that its schema does not require."""
    if "anyOf" in form:
        form = next(one for one in form["anyOf"] if one.get("type") != "null")
    if "$ref" in form:
        form = schema()["$defs"][form["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        return [required(item, form["items"]) for item in value]
    if not isinstance(value, dict) or "properties" not in form:
        return value
    return {name: required(value[name], form["properties"][name]) for name in form["required"]}


@pytest.mark.parametrize("asked", results())
def test_every_example_makes_a_row_of_fields_that_every_result_has(asked: str) -> None:
    result = results()[asked]
    figures = row_of(FACTS, outcome(READ, required(result, schema())))
    assert figures == row_of(FACTS, outcome(READ, result)) and figures["Errors"] == str(result["failed"])
    load = LoadResult.from_json(required(result, schema()))
    assert list(load_findings(load)) == list(load_findings(LoadResult.from_json(result)))
