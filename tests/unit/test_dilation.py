"""What runs slower than real time: what is scaled on the way to the testbed, and back into rows."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.config.plan import AUTO, cell_hash, config_hash, plan_values
from containernet_env.config.planning import at_most, dilated, with_dilations
from containernet_env.model import load_contract as contract
from containernet_env.model.config import DILATION_MAX
from containernet_env.model.dilation import emulated, emulated_outcome, slowed
from containernet_env.model.disruption import Disruption, Disruptions, ExecutedEvent
from containernet_env.model.findings import Finding
from containernet_env.model.link import CoDel, DirectionSpec, IndependentLoss, Jitter, LinkSpec
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario, ScheduledScenario, Warmup
from containernet_env.model.usage import (
    Consumers,
    Consumption,
    Durations,
    Leadership,
    MemberActivity,
    StoreActivity,
    Usage,
)
from containernet_env.network.gate import times_from_json
from containernet_env.report import runs
from containernet_env.results import capacity
from containernet_env.results.capacity import MachineKey
from containernet_env.results.columns import COLUMNS
from containernet_env.results.run_directory import scenario_line
from containernet_env.results.run_files import ScenarioLine
from containernet_env.results.statistics import decode
from containernet_env.runs.follow import timeout_s
from containernet_env.runs.keeper import next_dilation
from containernet_env.runs.load import Answer
from containernet_env.runs.matrix import Start
from containernet_env.runs.preflight import check_out
from containernet_env.runs.prepare import prepare, prepare_shell
from tests.unit import blocks
from tests.unit.answers import results, schema
from tests.unit.fakes import Bench, result_of, write


def plan_of(
    tmp_path: Path, topology: dict[str, Any], scenarios: list[dict[str, Any]], dilation: int | None = None
) -> Any:
    return blocks.planned(tmp_path, topology, *scenarios, dilation=dilation)


NODES = [
    {"ip": f"10.0.0.{251 + n}", "mem": "500m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"} for n in range(3)
]
LOAD = {"clients": 1, "conns": 1}
KEY = MachineKey(cpu_model="c", architecture="a", cores=2, kernel="k")


def scenario(**load: Any) -> dict[str, Any]:
    more = {"duration": "1s"} if "rate" in load else {"total": 100}
    held = {name: value for name, value in (LOAD | more | load).items() if value is not None}
    return {"type": "write", "target": "leader", "data": {"keySize": 8, "valSize": 9}, "load": held}


def numbers(value: Any, path: str = "") -> dict[str, Any]:
    """Every number in an object, by its path."""
    if is_dataclass(value):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {at: one for key, item in items for at, one in numbers(item, f"{path}.{key}").items()}
    return {path: value} if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else {}


def ratios(before: Any, after: Any) -> dict[str, float]:
    """By path, how many times larger a number became; only of those that changed."""
    old, new = numbers(before), numbers(after)
    assert old.keys() == new.keys()
    return {path.lstrip("."): float(new[path] / old[path]) for path in old if old[path] != new[path]}


def test_times_of_a_configuration_are_longer_and_rates_lower() -> None:
    side = DirectionSpec(
        3_000_000, 10**9, 500, jitter=Jitter("uniform", 1000, correlation_ns=9000), loss=IndependentLoss(0.1),
        duplication_ratio=0.1, aqm=CoDel(),
    )  # fmt: skip
    assert ratios(LinkSpec(side, side), slowed(LinkSpec(side, side), 4)) == {
        f"{way}.{name}": ratio
        for way in ("a_to_b", "b_to_a")
        for name, ratio in {"delay_ns": 4, "rate_bps": 0.25, "jitter.ns": 4, "jitter.correlation_ns": 4}.items()
    } | {f"{way}.aqm.{name}_ns": 4 for way in ("a_to_b", "b_to_a") for name in ("target", "interval")}
    events = tuple(
        Disruption(verb=verb, target="etcd1", at_ns=10**9, for_ns=10**8, value=value)
        for verb, value in (("delay", 5_000_000), ("rate", 10**6), ("loss", 0.5))
    )
    load = Scenario(
        name="w", type="write", total=100, rate=Decimal(50), clients=2, conns=1, key_size=8, val_size=9, key_space=7,
        warmup=Warmup(length_ns=10**9), stall_timeout_ns=10**9, seed=3, events=events,
    )  # fmt: skip
    times = ("warmup.length_ns", "request_timeout_ns", "stall_timeout_ns", "events.0.value")
    times += tuple(f"events.{n}.{name}" for n in range(3) for name in ("at_ns", "for_ns"))
    expected = dict.fromkeys(times, 4.0) | {"rate": 0.25, "events.1.value": 0.25}
    assert ratios(load, slowed(load, 4)) == expected
    assert isinstance(slowed(events[1], 3).value, int)


def test_five_regions_of_three_members_run_as_slow_as_two_cores_need(tmp_path: Path) -> None:
    regions = ("eu-central-1", "us-east-1", "us-west-2", "ap-northeast-1", "ap-southeast-2")
    nodes = [{"mem": "512m", "cpus": 1, "bandwidth": 1000, "site": name, "count": 3} for name in regions]
    plan = plan_of(tmp_path, {"rtt": "aws-2025", "nodes": nodes}, [scenario(total=1000)])
    real = dilated(plan.at(8))
    assert {host.cpu_quota_us / host.cpu_period_us for host in real.hosts if host.cpus} == {1 / 8}
    assert real.timing.member_timeout_s == 8 * plan.timing.member_timeout_s
    assert (real.waits.start_s, real.waits.dilation) == (8 * plan.waits.start_s, 8)
    between, rtts = plan.config.switch_links, [*ratios(plan.rtt, real.rtt).values()]
    assert real.config.switch_links == slowed(between, 8) != between
    assert [node.link for node in real.config.hosts] == [slowed(node.link, 8) for node in plan.config.hosts]
    assert len(rtts) > len(plan.rtt) and rtts == pytest.approx([8] * len(rtts))
    assert real.topology.routes() == plan.topology.routes()
    name = plan.scenarios[0].scheduled.scenario.name
    assert at_most(plan, name, 100) == 19, "etcd's election timeout is 50 s at most"


def test_what_was_measured_is_in_emulated_time_and_work_stays_work() -> None:
    used = Consumption(**{item.name: 4000 for item in fields(Consumption)})
    usage = Usage(4000, Consumers({"etcd1": used}))
    scaled = (
        *("throttled_ns", "run_delay_ns", "syncs_late_ns"),
        *("cpu_pressure_ns", "memory_pressure_ns", "io_pressure_ns"),
    )
    assert ratios(usage, emulated(usage, 4)) == {
        "window_ns": 0.25, **{f"used.members.etcd1.{name}": 0.25 for name in scaled}
    }  # fmt: skip
    store = StoreActivity({"m": MemberActivity(log_syncs=Durations(3, 0.5, 1.0, ((1.0, 2), (None, 1))), data_bytes=8)})
    syncs = "members.m.log_syncs"
    times = (f"{syncs}.mean_s", f"{syncs}.p99_at_most_s", f"{syncs}.buckets.0.0")
    assert ratios(store, emulated(store, 2)) == dict.fromkeys(times, 0.5)
    counted = MemberActivity(warnings={"a slow rate": 8, "second": 8})
    assert ratios(counted, emulated(counted, 2)) == {}
    event = Disruption(verb="delay", target="m", at_ns=1, for_ns=1, value=5_000_000)
    planned = ScheduledScenario(replace(write("w"), events=(event,)), 1)
    acts: list[Any] = [("event", "delay"), ("for", "reset")]
    done = Disruptions(
        "1",
        tuple(
            ExecutedEvent(1, 1, cause, verb, "m", 20_000_000, ("m",), 4, 400, 8, answered_ns=800)
            for cause, verb in acts
        ),
    )
    outcome = ScenarioOutcome(planned, "now", 1, disruptions=done)
    names = ("value", "asked_ns", "since_start_ns")
    assert ratios(done, emulated_outcome(outcome, 4).disruptions) == {
        f"executed.{n}.{name}": 0.25 for n in range(2) for name in names
    }


def named_numbers(held: Any) -> set[str]:
    """The names of all numbers in a JSON Schema."""
    if isinstance(held, list):
        return {name for item in held for name in named_numbers(item)}
    if not isinstance(held, dict):
        return set()
    properties = held.get("properties", {})
    own = {name for name, item in properties.items() if re.search('"(number|integer)"', json.dumps(item))}
    return own.union(*(named_numbers(item) for item in held.values()))


def test_what_of_the_load_generators_answer_is_a_time_or_a_rate(snapshot: Any) -> None:
    names = sorted(named_numbers(schema()))
    by_ratio: dict[float, list[str]] = {}
    for name in names:
        by_ratio.setdefault(emulated({name: 4096}, 4)[name] / 4096, []).append(name)
    assert "\n".join(f"{ratio:g}: {' '.join(held)}" for ratio, held in sorted(by_ratio.items())) == snapshot


def test_histograms_and_counters_of_links_are_scaled_and_lost_frames_stay_lost() -> None:
    found = [load["response_time"] for load in results().values() if "histogram" in (load["response_time"] or {})]
    text = found[0]["histogram"]
    exact, scaled = decode(text), decode(emulated({"histogram": text}, 4)["histogram"])
    assert scaled.counts == tuple((round(value / 4), count) for value, count in exact.counts)
    assert emulated({"errors": {"after 1_s": 3}}, 4) == {"errors": {"after 1_s": 3}}
    assert emulated({"lateness": {"buckets": [[4000, 7]]}}, 4) == {"lateness": {"buckets": [[1000, 7]]}}
    stream = {"sent": 2, "received": 1, "sent_ns": [400, 800], "delay_ns": [-1, 4000]}
    (times,) = times_from_json({"streams": [stream]}, 4)
    assert (times.sent_ns, times.delay_ns, times.delays_ns) == ([100, 200], [-1, 1000], [1000])


def test_a_plan_runs_slower_in_everything_and_stays_the_same_experiment(tmp_path: Path) -> None:
    nodes = [*NODES[:-1], NODES[-1] | {"fsync": "2ms"}]
    topology = {"nodes": nodes, "client": {"cpus": 0.5}, "etcd": {"heartbeat_interval": "50ms"}}
    (plan, four, ten) = (plan_of(tmp_path, topology, [scenario()], factor) for factor in (None, 4, 20))
    real = dilated(four)
    assert dilated(plan) is plan
    assert (real.timing.values["heartbeat_ms"], real.timing.member_timeout_s) == (200, 4.0)
    assert {"--heartbeat-interval=200", "--election-timeout=4000", "--backend-batch-interval=400ms"} <= {
        *real.hosts[0].command
    }
    limits = [(host.cpu_quota_us, host.cpu_period_us, host.tcp_rto_min_ms) for host in real.hosts[2:]]
    assert limits == [(100_000, 400_000, 800), (50_000, 400_000, 800)]
    assert [[host.fsync_ns for host in one.hosts[1:]] for one in (four, real)] == [
        [None, 2_000_000, None],
        [None, 8_000_000, None],
    ]
    # The kernel takes no period above 1 s.
    assert [(host.cpu_quota_us, host.cpu_period_us) for host in dilated(ten).hosts[2:]] == [
        (50_000, 10**6),
        (25_000, 10**6),
    ]
    side, planned = real.links[0].spec.a_to_b, plan.links[0].spec.a_to_b
    assert (side.delay_ns, side.rate_bps) == (12_000_000, 250_000_000)
    assert side.default_queue_frames == planned.default_queue_frames, "as long in emulated time"
    assert real.largest_member_rtt and plan.largest_member_rtt
    assert real.largest_member_rtt.expected_ns == 4 * plan.largest_member_rtt.expected_ns
    assert real.scenarios == four.scenarios, "slowed when they run"
    # Rows with another factor are of the same configuration, and cells of a sweep are others.
    assert config_hash(plan) == config_hash(four)
    scheduled = plan.scenarios[0].scheduled
    assert len({cell_hash(one, scheduled) for one in (plan, four, ten)}) == 3
    assert "dilation" not in plan_values(plan) and plan_values(four)["dilation"] == 4
    assert four.estimated_s > 2 * plan.estimated_s
    assert any("dilation 4" in note for note in four.notes)


def test_the_factor_of_the_topology_counts_where_no_option_names_one(tmp_path: Path) -> None:
    topology = {"nodes": NODES, "dilation": 3}
    assert [plan_of(tmp_path, topology, [scenario()], factor).dilation for factor in (None, 5, 1)] == [3, 5, 1]
    assert [prepare_shell(tmp_path / "topology.json", dilation=factor).dilation for factor in (None, 5, 1)] == [3, 5, 1]
    with pytest.raises(UsageError, match="dilation=auto: nothing is measured here; allowed: a number"):
        prepare_shell(tmp_path / "topology.json", dilation="auto")


@pytest.mark.parametrize(
    ("topology", "load", "factor", "why"),
    [
        ({}, {}, 101, "dilation=101; allowed: 1 to 100"),
        ({}, {}, 60, "etcd takes no election timeout of 60000 ms, but at most 50000"),
        ({"store": "consul"}, {}, 11, "Consul takes no raft_multiplier of 11, but at most 10"),
        ({}, {"timeout": "2000s"}, 2, "timeout of .* would take 4000s, more than"),
        ({}, {"rate": 0.1, "duration": "20s"}, 2, "the rate of .* would be below 0.1/s"),
        ({"client": {"bandwidth": 0.01}}, {}, 11, "rate_bps must be 1000 to"),
        ({"client": {"cpus": 0.01}}, {}, 11, "the CPU limit of benchmark would be below 1 ms in each second"),
        ({"nodes": [NODES[0] | {"fsync": "1s"}]}, {}, 11, "an fsync of etcd1 would take more than 5s"),
        ({}, {"total": None, "search": {"p99": "50ms", "from": 2}}, 21, "the rate of .* would be below 0.1/s"),
    ],
)
def test_what_cannot_be_as_slow_is_refused(tmp_path: Path, topology: Any, load: Any, factor: int, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        plan_of(tmp_path, {"nodes": NODES, **topology}, [scenario(**load)], factor)


def test_an_event_that_no_link_can_have_is_refused(tmp_path: Path) -> None:
    event = {"at": "1s", "rate": 0.01, "of": "leader"}
    loaded = {**scenario(total=None, duration="9s"), "events": [event]}
    assert plan_of(tmp_path, {"nodes": NODES}, [loaded], 10).dilation == 10
    with pytest.raises(UsageError, match="rate_bps must be 1000 to"):
        plan_of(tmp_path, {"nodes": NODES}, [loaded], 11)


@pytest.mark.simulated()
def test_a_load_runs_slower_and_its_row_is_in_emulated_time() -> None:
    load = replace(write("w"), rate=Decimal(500), warmup=Warmup(length_ns=10**9))
    bench = Bench(load, dilation=4)
    bench.server.answer(Answer(result_of(1000), None))
    assert bench.run() == ["-"]
    _, body = bench.server.asked[0]
    assert (body["rate"], body["warmupDuration"], body["requestTimeout"]) == (125.0, 4.0, 80.0)
    (row,) = bench.rows()
    plain = Bench(load)
    plain.server.answer(Answer(result_of(1000), None))
    plain.run()
    (undilated,) = plain.rows()
    assert (row["Dilation"], undilated["Dilation"]) == ("4", "1")
    for name in ("Total", "50%", "Slowest", "Average"):
        assert float(row[name]) == pytest.approx(float(undilated[name]) / 4, rel=1e-3), name
    assert float(row["Requests/sec"]) == pytest.approx(4 * float(undilated["Requests/sec"]))
    assert row["OfferedRate_per_s"] == undilated["OfferedRate_per_s"] == "500.0000"
    assert bench.outcomes[0].network and bench.outcomes[0].network.lateness_ns("p99") == 5_000
    whole = [one.outcomes[0].load for one in (bench, plain)]
    assert whole[0] and whole[1] and 4 * whole[0].values["total_s"] == whole[1].values["total_s"]


# --- auto -------------------------------------------------------------------------------------------------------------


def test_a_scenario_that_cannot_be_slow_holds_back_no_other(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"nodes": NODES}, [scenario(), scenario(rate=0.1, duration="20s")], AUTO)
    quick, rare = (planned.scheduled.scenario.name for planned in plan.scenarios)
    assert [at_most(plan, name, 9) for name in (quick, rare)] == [9, 1]
    slower = with_dilations(plan, {quick: 9})
    assert dilated(slower.at(9)).timing.member_timeout_s == 9 * plan.timing.member_timeout_s
    assert [item.dilation for item in slower.scenarios] == [1, 9] and slower.cluster_ends == (1, 2)
    # A further attempt has a testbed of its own, also where the last scenario was as slow.
    last = replace(slower.scenarios[1], scheduled=replace(slower.scenarios[1].scheduled, attempt=2))
    assert replace(slower, scenarios=(*slower.scenarios, last)).cluster_ends == (1, 2, 3)
    with pytest.raises(UsageError, match=f"the rate of {rare} would be below 0.1/s"):
        with_dilations(plan, {quick: 9, rare: 2})


@pytest.mark.parametrize(
    ("kinds", "dilation", "wanted"),
    [
        # By the limits: 3 members, the generator and the emulator on two cores.
        (("generator_waited",), 1, 3),
        (("generator_waited",), 2, 4),
        (("member_waited", "machine_full"), 3, 6),
        (("generator_waited",), 60, 100),
        (("generator_waited",), 100, None),
        (("generator_waited", "machine_stolen"), 3, 6),
        (("machine_stolen",), 3, 3),
        (("machine_stolen", "leader_changed"), 1, None),
        (("leader_changed",), 1, None),
        (("client_throttled",), 1, None),
        (("client_throttled", "generator_waited"), 1, None),
        ((), 1, None),
    ],
)
def test_a_row_that_is_not_valid_because_of_the_machine_is_tried_once_more(
    tmp_path: Path, kinds: tuple[str, ...], dilation: int, wanted: int | None
) -> None:
    plan = plan_of(
        tmp_path, {"nodes": NODES, "etcd": {"election_timeout": "100ms", "heartbeat_interval": "10ms"}}, [scenario()]
    )
    found = tuple(Finding(kind, "invalid", "...") for kind in kinds)
    outcome = ScenarioOutcome(
        plan.scenarios[0].scheduled, "now", 1, load=result_of(9), findings=found, dilation=dilation
    )
    assert next_dilation(plan.at(dilation), KEY, outcome) == wanted
    assert next_dilation(plan.at(dilation), KEY, replace(outcome, error="failed")) is None


def test_ten_members_have_their_limits_at_six_times_the_cores(tmp_path: Path) -> None:
    ten = [{**NODES[0], "ip": f"10.0.0.{1 + n}"} for n in range(10)]
    assert capacity.enough_dilation(plan_of(tmp_path, {"nodes": ten}, [scenario()])) == 6
    free = [*ten[1:], {**ten[0], "cpus": "unlimited"}]
    assert capacity.enough_dilation(plan_of(tmp_path, {"nodes": free}, [scenario()])) == 1


def test_auto_is_no_slower_than_the_store_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        capacity, "dilations", lambda plan, known: {item.name: 60 for item in plan.scenario_set.scenarios}
    )
    plan = plan_of(tmp_path, {"nodes": NODES}, [scenario()])
    config, loads = tmp_path / "topology.json", tmp_path / "scenarios.json"
    assert [item.dilation for item in prepare(config, loads, dilation="auto").scenarios] == [50]
    found = (Finding("generator_waited", "invalid", "..."),)
    outcome = ScenarioOutcome(plan.scenarios[0].scheduled, "now", 1, load=result_of(9), findings=found, dilation=30)
    assert next_dilation(plan.at(30), KEY, outcome) == 50
    assert next_dilation(plan.at(50), KEY, replace(outcome, dilation=50)) is None


def test_an_election_and_a_silence_are_explained_by_what_happened_in_real_time() -> None:
    """A member was away for less than an election; the moment at which it answered is one of the machine's clock.

    In emulated time it was away for 0.45 s, and the election timeout is 1 s.
    """
    load = replace(write("w"), events=(Disruption(verb="freeze", target="leader", at_ns=10**9),))
    bench = Bench(load, dilation=4)
    acts: list[Any] = [
        ("event", "freeze", 4 * 10**9, None),
        ("for", "thaw", 4 * 10**9 + 10**8, 4 * 10**9 + 18 * 10**8),
    ]
    done = Disruptions(
        "1",
        tuple(
            ExecutedEvent(1, 1, cause, verb, "m", None, ("etcd1",), None, at_ns, at_ns, "etcd1", late)
            for cause, verb, at_ns, late in acts
        ),
    )
    real = ScenarioOutcome(ScheduledScenario(load, 1), "now", 1, load=result_of(9), disruptions=done)
    bench.target.member_timeout_s = 4.0
    start, after = Start(Leadership("etcd1", 1), frozenset(), ()), Leadership("etcd2", 2)
    for silent_s, effect in ((1.44, "info"), (1.46, "invalid")):
        found = list(bench.matrix._findings(emulated_outcome(real, 4), real, {"etcd1": silent_s}, start, after))
        assert [finding.effect for finding in found if finding.kind == "leader_changed"] == ["invalid"]
        assert [finding.effect for finding in found if finding.kind == "member_silent"] == [effect], silent_s


def test_events_of_a_page_lie_at_their_times_in_emulated_time() -> None:
    events = [SimpleNamespace(kind="member_died", text="etcd1 ended", at_ns=10**9 + n * 10**9) for n in (8, 44)]
    run: Any = SimpleNamespace(disruptions=(), events=events)
    line = ScenarioLine.model_construct(scenario="w", repetition=1, dilation=4, load={"began_ns": 10**9})
    found = runs._events(run, line, 10.0)
    assert [event.at_s for event in found] == [2.0]


def test_a_file_that_cannot_hold_the_factor_or_offload_takes_no_such_rows(tmp_path: Path) -> None:
    out, plan = tmp_path / "out.csv", plan_of(tmp_path, {"nodes": NODES}, [scenario()])
    out.write_text(",".join(name for name in COLUMNS if name != "Dilation") + "\n")
    check_out(plan, out)
    for factor in (2, AUTO):
        with pytest.raises(UsageError, match="no column Dilation"):
            check_out(plan_of(tmp_path, {"nodes": NODES}, [scenario()], factor), out)
    out.write_text(",".join(name for name in COLUMNS if name != "LinkOffload") + "\n")
    check_out(plan, out)
    with pytest.raises(UsageError, match="no column LinkOffload"):
        check_out(replace(plan, options=replace(plan.options, offload=True)), out)


def test_the_load_generator_takes_every_factor_and_as_many_times_as_long() -> None:
    assert contract.MOST["dilation"] == DILATION_MAX
    assert timeout_s(write("w"), dilation=20) == 20 * timeout_s(write("w"))


@pytest.mark.simulated()
def test_a_line_of_an_earlier_version_is_of_real_time() -> None:
    bench = Bench(write("w"))
    bench.server.answer(Answer(result_of(9), None))
    bench.run()
    line = scenario_line(bench.outcomes[0]).model_dump(by_alias=True)
    assert line.pop("dilation") == 1
    assert ScenarioLine.model_validate(line).dilation == 1
