"""What a machine carries: bounds worked by hand, costs taken from outcomes, what `check` prints, the file of costs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from containernet_env.base import assets
from containernet_env.cli.render import machine_lines, render_machine
from containernet_env.config.plan import Plan, PlanOptions, config_hash
from containernet_env.config.planning import build_plan
from containernet_env.config.reader import document_of
from containernet_env.config.scenarios import ScenarioSet
from containernet_env.config.topologies import load_config
from containernet_env.model.disruption import Disruptions
from containernet_env.model.findings import RULES, Finding, Kind, reasons_text
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Dataset, Scenario, ScheduledScenario, Span
from containernet_env.model.usage import Consumers, Consumption, LinkStatistics, Usage
from containernet_env.results import capacity
from containernet_env.results.capacity import CostSample, MachineCosts, carried, cost_at, sample_of
from containernet_env.results.run_files import ClusterRecord, Sync
from containernet_env.runs import keeper as costs_module
from containernet_env.runs import machine
from containernet_env.runs import measure as measure_module
from tests.unit.answers import DOCS, closed_loop
from tests.unit.fakes import on_fakes, rows, run, write
from tests.unit.manifests import MACHINE
from tests.unit.report_rows import shown

KEY = capacity.MachineKey.of(MACHINE)
MEMORY = 24 << 30, 20 << 30
MS = 10**6
WRITE = replace(write("write-100"), clients=100, conns=10)
READ = replace(WRITE, name="read", type="read", consistency="s", target="cluster")


def sample(**changes: Any) -> CostSample:
    """2000 writes/s to the leader of three members; a request takes 3.7 ms of CPU time in all."""
    values: dict[str, Any] = {"at": "2026-01-01T00:00:00.000Z", "kind": "write", "one_member": True, "members": 3}
    values |= {"rate_per_s": 2000, "payload_bytes": 264, "requests": 1000, "clients": 100, "config": "another"}
    values |= {"cluster_ns": 2.5 * MS, "member_ns": 1.0 * MS, "client_ns": 0.6 * MS, "generator_ns": 0.5 * MS}
    values |= {"links_ns": 0.5 * MS, "rest_ns": 0.1 * MS, "frames": 10, "frame_bytes": 125}
    values |= {"busy_ratio": 0.5, "limit": "none"}
    return CostSample(**values | changes)


def plan_of(
    tmp_path: Path,
    *scenarios: Scenario,
    nodes: Sequence[dict[str, Any]] = ({},) * 3,
    client: Any = None,
    **options: Any,
) -> Plan:
    """Three members of 1 CPU, 3 ms from the switch without a bandwidth limit, the client at the switch.

    ``nodes``: what the members have instead; None for what they have not at all.
    """
    base = {"mem": "512m", "cpus": options.pop("cpus", 1), "bandwidth": "unlimited", "link_delay": "3ms"}
    written = [
        {key: value for key, value in ({"ip": f"10.0.0.{number}"} | base | node).items() if value is not None}
        for number, node in enumerate(nodes, 1)
    ]
    config = {"nodes": written, "etcd": {"data": options.pop("data", "disk")}} | ({"client": client} if client else {})
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    scenario_set = ScenarioSet(document_of(Path("s.json"), "{}"), Dataset(), scenarios or (WRITE,))
    return build_plan(load_config(path), scenario_set, PlanOptions(**{"machine_cores": 2} | options))


def known(*requests: CostSample, sync_ms: float | None = None) -> MachineCosts:
    syncs = [] if sync_ms is None else [capacity.SyncSample(at="", data="disk", median_ns=sync_ms * MS)]
    return MachineCosts(machine=KEY, requests=list(requests), syncs=syncs)


def outcome(*kinds: Kind, scenario: Scenario = WRITE, error: str | None = None, **load: Any) -> ScenarioOutcome:
    """1000 requests and 1000 of warm-up: 400 ms of CPU time of the leader's, 100 ms of each follower's."""
    ok = load.pop("ok", 1000)
    answer = closed_loop(ok=ok, cpu_s=0.05, requests_per_s=500.0, **load)
    answer["warmup"] = {"ok": 1000, "failed": 0, "unknown": 0, "abandoned": 0, "total_s": 1.0}
    port = {"received_frames": 10_000, "received_bytes": 1_000_000}
    used = Consumers(
        members={name: Consumption(cpu_ns=ms * MS) for name, ms in (("a", 100), ("b", 400), ("c", 100))},
        client=Consumption(cpu_ns=120 * MS),
        links=Consumption(cpu_ns=80 * MS),
        driver=Consumption(cpu_ns=20 * MS),
        machine=Consumption(cpu_ns=900 * MS),
    )
    return ScenarioOutcome(
        ScheduledScenario(scenario, 1),
        "2026-01-01T00:00:00.000Z",
        1,
        cluster=1,
        load=LoadResult.from_json(answer),
        network=LinkStatistics({"links": {"eu-us": {"a_to_b": {"frames": 7, "bytes": 7}}}, "ports": {"a-eth0": port}}),
        machine=Usage(1000 * MS, used),
        findings=tuple(Finding(kind, "invalid", kind) for kind in kinds),
        error=error,
    )


def shortages(plan: Plan, *samples: CostSample) -> tuple[Any, ...]:
    return carried(plan, known(*(samples or (sample(),)))).shortages


def of(*samples: CostSample, **options: Any) -> tuple[tuple[CostSample, ...], dict[str, Any], dict[str, Any]]:
    """The samples that are known, what the scenario has instead of 100 clients, and options of ``plan_of``."""
    load = {name: options.pop(name) for name in ("clients", "rate") if name in options}
    return samples or (sample(),), load, options


def client(cpus: float) -> dict[str, Any]:
    return {"ip": "10.0.0.9", "cpus": cpus}


def members(name: str, *values: Any) -> list[dict[str, Any]]:
    return [{name: value} for value in values]


JITTER = {"bandwidth": "unlimited", "jitter": {"distribution": "normal", "value": "100us"}}
NEAR = members("link", *(JITTER | {"delay": delay} for delay in ("3ms", "3ms", "1ms")))
LINKED = [node | dict.fromkeys(("link_delay", "bandwidth")) for node in NEAR]
REST = sample(rest_ns=3 * MS)
RARE, OFTEN = sample(rate_per_s=10, cluster_ns=249.9 * MS, links_ns=40 * MS), sample(rate_per_s=1000)


def test_what_is_short_and_how_many_cores_are_wanted(tmp_path: Path) -> None:
    for (samples, load, options), short in (
        # What it is said to fit with fits.
        (of(clients=10), []),
        (of(rate=Decimal(500)), []),
        (of(machine_cores=4), []),
        (of(cpus=0.1, client=client(0.6)), []),
        # Members and client have 2 of 3 cores, the emulator one; the kernel's 1.5 cores at 500/s come on top.
        (of(REST, cpus=0.5, client=client(0.5), machine_cores=3), []),
        (of(REST, cpus=0.5, client=client(0.6), machine_cores=3), [("machine", 3.3)]),
        # At 1 Mbit/s the leader sends two entries of 414 bytes for each write: 151/s. A majority may do without one.
        (of(nodes=members("bandwidth", 1, 1, 1)), []),
        (of(nodes=members("bandwidth", 1, 1, "unlimited")), [("machine", 3.7)]),
        (of(nodes=members("bandwidth", 1, 1000, 1000)), [("machine", 3.7)]),
        # 5000/s take 2.5 cores of each. The machine is asked for what they let through: 2000/s, 7.4 cores.
        (of(cpus="unlimited"), [("machine", 7.4), ("links", 2.5), ("generator", 2.5)]),
        # Members, client and the rest want 3.2 cores of the one that is left: 4 of them, and the one that is kept.
        (of(links_cpu=1, other_cores=(0,)), [("machine", 3.2)]),
        # Of 0.2, 0.2 and 0.6 cores: the member with the highest limit may lead, 600/s at most.
        (of(nodes=members("cpus", 0.2, 0.6, 0.2)), [("machine", 0.6 * 3.7)]),
        (of(client=client(0.5), machine_cores=8), [("client", 0.6)]),
        # m3 is 1 ms away: 2 ms to it, 8 ms to a follower. 10 clients / (10 + 2 ms) by it, / (14 + 2) by m1 or m2.
        (of(clients=10, cpus=100, nodes=LINKED), [("machine", 10 / 12e-3 * 3.7e-3)]),
        # 2 clients / (18 + 2 ms), not / (18 + 41.5 ms): between 10/s with 2.906 cores and 1000/s with 3.7.
        (of(RARE, OFTEN, clients=2), [("machine", 2.906 + (3.7 - 2.906) * 90 / 990)]),
    ):
        found = shortages(plan_of(tmp_path, replace(WRITE, **load), **options), *samples)
        wanted = [(name, pytest.approx(cores)) for name, cores in short]
        assert [(one.resource, one.wanted) for one in found] == wanted


def test_what_a_shortage_says_of_rate_clients_and_cores(tmp_path: Path) -> None:
    """100 clients / (18 ms floor + 2 ms CPU) would ask for 5000/s; a core of the leader's gives 1000/s: 3.7 cores."""
    (short,) = shortages(plan_of(tmp_path))
    assert (short.resource, short.has, short.enough, short.cores) == ("machine", 2, pytest.approx(1.9), 4)
    assert (short.wanted, short.rate_per_s) == pytest.approx((2.5 + 0.6 + 0.5 + 0.1, 1.9 / 3.7e-3))
    assert short.clients == 10  # 513.5/s, 20 ms each
    found = shortages(plan_of(tmp_path, cpus="unlimited"))
    assert [(round(one.rate_per_s), one.clients) for one in found] == [(514, 10), (1800, 36), (1800, 36)]
    (limited,) = shortages(plan_of(tmp_path, client=client(0.5), machine_cores=8))
    (kept,) = shortages(plan_of(tmp_path, links_cpu=1, other_cores=(0,)))  # a core for the emulator is not shared
    assert (limited.has, kept.has, kept.cores) == (0.5, 1, 5)


def test_rows_of_a_dilation_show_which_dilation_is_enough(tmp_path: Path) -> None:
    """3.7 ms a request and 1000/s, of 0.75 x 1.9 cores; slowed requests cost 6.2 ms, and members answer 2000/s."""
    slowed = {"dilation": 4, "cluster_ns": 5.0 * MS, "member_ns": 0.5 * MS}
    crowded = sample(limit="cores", busy_ratio=0.96)
    for samples, dilation in (
        ([sample()], 3),  # 3.7 / 1.425
        ([crowded], 3),  # each costs 1.7 times as much, so members answer as many fewer
        ([crowded, sample(**slowed)], 9),  # 12.4 / 1.425
        ([crowded, sample(**slowed, limit="members")], 9),
        ([crowded, sample(**slowed, limit="cores", busy_ratio=0.96)], 3),
        ([crowded, sample(**slowed, rate_per_s=100)], 3),  # nothing is known of 20 times that rate
        # A row of 0.55 of the cores was short of them, of 0.5 not: 0.525 are enough. A slowed one of 0.6 had enough.
        ([sample(), sample(limit="cores", busy_ratio=0.55)], 5),  # 3.7 / 0.7875
        ([sample(), sample(limit="cores", busy_ratio=0.55), sample(**slowed, busy_ratio=0.6)], 9),
    ):
        (short,) = shortages(plan_of(tmp_path), *samples)
        assert (short.resource, short.dilation) == ("machine", dilation), samples


def test_the_worst_comes_first_and_repetitions_count_once(tmp_path: Path) -> None:
    rated = replace(WRITE, name="rated", rate=Decimal(1))
    plan = plan_of(tmp_path, replace(WRITE, clients=12), replace(WRITE, name="worse", clients=18), rated, repeat=3)
    held = carried(plan, known(sample(), sample(rate_per_s=1)))
    assert [scenario.name for scenario in held.fit] == ["rated"]
    assert [(one.scenario.name, round(one.wanted, 2)) for one in held.shortages] == [
        ("worse", 3.33),
        ("write-100", 2.22),
    ]


def test_what_was_reached_on_the_same_config_bounds_what_as_many_clients_ask_for(tmp_path: Path) -> None:
    """400/s by 100 clients, with cores to spare: something else than this machine is the limit."""
    plan = plan_of(tmp_path, cpus="unlimited")
    same = config_hash(plan)
    for changes, fit in (
        ({"config": same}, True),
        ({"config": same, "limit": "members"}, True),
        ({"config": same, "limit": "cores"}, False),
        ({"config": same, "limit": "one core"}, False),
        ({"config": same, "clients": 99}, False),
        ({"config": same, "dilation": 4}, True),
        ({}, False),
    ):
        held = carried(plan, known(sample(), sample(rate_per_s=400, **changes)))
        assert bool(held.fit) is fit, changes
    # What requests cost is known in real time alone.
    assert carried(plan, known(sample(config=same, dilation=4))).unknown
    samples = [sample(config="c", rate_per_s=rate) for rate in (2000, 3000, 1000)]
    assert (capacity.reached_per_s(samples, "c", 100), capacity.reached_per_s(samples, "c", 101)) == (
        [3000],
        [],
    )


def test_nothing_is_said_of_loads_unlike_those_measured(tmp_path: Path) -> None:
    unlike = (replace(WRITE, name="large", val_size=100_000), replace(WRITE, name="all", target="cluster"), READ)
    held = carried(plan_of(tmp_path, *unlike), known(sample()))
    assert [scenario.name for scenario in held.unknown] == ["large", "all", "read"]
    five = carried(plan_of(tmp_path), known(sample(members=5)))
    assert (five.unknown, five.fit, five.shortages) == ((WRITE,), (), ())


def test_what_a_request_costs_at_a_rate() -> None:
    """Heartbeats cost the same at any: 0.2 cores and 1 ms for each request are 21 ms at 10/s, 1.2 ms at 1000/s."""
    samples = [sample(rate_per_s=rate, cluster_ns=(0.2 / rate + 1e-3) * 1e9) for rate in (10, 1000)]
    costs = {rate: cost_at(samples, rate) for rate in (5, 10, 100, 1000, 3000)}
    found = {rate: cost.cluster_ns / MS for rate, cost in costs.items() if cost is not None}
    assert found == {rate: pytest.approx(ms) for rate, ms in {5: 21, 10: 21, 100: 3, 1000: 1.2, 3000: 1.2}.items()}
    # What a limit was reached at stands for all above it.
    assert cost_at([], 1000) is None and cost_at([sample()], 6001) is None
    for limit in ("members", "one core", "cores"):
        assert cost_at([sample(limit=limit)], 1_000_000) == cost_at([sample()], 3000)
    assert cost_at([sample(limit="cores"), sample(rate_per_s=9000)], 1_000_000) is None


def test_of_several_runs_the_median_counts_by_requests_and_frames_where_there_are_most() -> None:
    samples = [sample(links_ns=9, requests=10), sample(links_ns=8, requests=10), sample(links_ns=2, requests=1000)]
    cost = cost_at(samples, 1000)
    assert cost is not None and cost.links_ns == 2
    # Twice the rate is another group: between the two the number of cores is interpolated.
    slow, fast = sample(rate_per_s=4000, links_ns=8), sample(rate_per_s=16_000, links_ns=2, requests=9999)
    found = [cost.links_ns for rate in (4000, 8000, 16_000) if (cost := cost_at([slow, fast], rate)) is not None]
    assert found == pytest.approx([8, 4, 2])
    rare, often = sample(rate_per_s=10, links_ns=MS), sample(rate_per_s=9000, links_ns=50_000, frame_bytes=90)
    assert capacity.forwarding([rare, rare, often]) == (180_000, 90)


def test_how_busy_a_machine_may_be_is_learnt_from_its_rows() -> None:
    def rows_at(*busy: tuple[float, bool]) -> list[CostSample]:
        return [sample(busy_ratio=ratio, limit="cores" if crowded else "none") for ratio, crowded in busy]

    assert capacity.full_share([]) == 0.95
    assert capacity.full_share(rows_at((0.3, False), (0.9, False), (0.97, True))) == 0.95
    assert capacity.full_share(rows_at((0.6, False), (0.7, False), (0.8, True), (0.9, True))) == 0.75
    # One row that waited for another reason, among ten that did not.
    assert (
        capacity.full_share(rows_at((0.2, True), *[(0.5 + 0.04 * n, False) for n in range(10)], (0.99, True))) == 0.95
    )


def test_what_a_request_cost_counts_those_of_the_warm_up() -> None:
    found = sample_of(outcome(), 3, 2, "c")
    open_loop = sample_of(outcome(scenario=replace(WRITE, rate=Decimal(500))), 3, 2, "c")
    assert found is not None and open_loop is not None and open_loop.clients == 0
    assert (found.requests, found.rate_per_s, found.payload_bytes) == (2000, 500, 264)
    assert (found.config, found.clients) == ("c", 100)
    per_request_us = {name: getattr(found, f"{name}_ns") / 1000 for name in ("cluster", "member", "client", "links")}
    assert per_request_us == {"cluster": 300, "member": 200, "client": 60, "links": 40}
    # The generator's figure is of the measured time alone; 100 ms of the machine's are nobody's else.
    assert (found.generator_ns, found.rest_ns) == (pytest.approx(50_000), 50_000)
    assert (found.frames, found.frame_bytes, found.busy_ratio) == (5, 100, 0.45)


def test_how_much_data_a_request_or_its_answer_has_and_its_kind() -> None:
    scan = replace(READ, span=Span(keys=100), key_space=1000)
    keys, half = replace(READ, span=Span(answer="keys")), Decimal("0.5")
    sizes = {WRITE: 264, READ: 264, scan: 26_400, replace(scan, put_ratio=half): 26_400}
    sizes |= {keys: 8, replace(keys, put_ratio=half): 264}
    assert {scenario: capacity.payload_bytes(scenario) for scenario in sizes} == sizes
    mixed = replace(READ, type="mixed", consistency="l", put_ratio=Decimal("0.25"))
    kinds = [capacity.kind_of(scenario) for scenario in (WRITE, READ, mixed, replace(WRITE, type="txn"))]
    assert kinds == ["write", "read serializable", "mixed 0.2 linearizable", "txn"]


FULL: tuple[Kind, ...] = ("machine_full", "generator_waited", "member_waited", "link_lateness")
SPOIL: tuple[Kind, ...] = ("machine_shared", "machine_stolen", "network_off", "leader_changed", "few_answers")
THROTTLED = replace(outcome(), findings=(Finding("member_throttled", "info", "etcd1"),))


def test_only_rows_that_nothing_but_want_of_cores_spoils_tell_a_cost() -> None:
    for held, members, limit in (
        (outcome(*FULL), 3, "cores"),
        (outcome("generator_saturated", "generator_waited"), 3, "one core"),
        (THROTTLED, 3, "members"),
        (outcome(), 3, "none"),
        *((outcome(*FULL, kind), 3, None) for kind in SPOIL),
        *((outcome(error="1 failed"), 3, None), (outcome(), 5, None), (replace(outcome(), machine=None), 3, None)),
    ):
        found = sample_of(held, members, 2, "c")
        assert (found and found.limit) == limit, held
    slow = sample_of(replace(outcome(), dilation=3), 3, 2, "c")
    assert slow is not None and (slow.dilation, slow.rate_per_s, slow.busy_ratio) == (3, 500, 0.15)


# --- what would make a row valid --------------------------------------------------------------------------------------

FITS = "it fits with about 10 clients, a rate of 510/s, 4 cores, CPU limits that add up to 1 core or a dilation of 3"


def test_a_row_that_is_not_valid_says_what_would_fit(tmp_path: Path) -> None:
    for kinds, costs, told in (
        ((), (sample(),), None),
        (FULL, (sample(),), FITS),
        (("machine_full", "few_answers"), (sample(),), f"{FITS}; what helps: more requests or a longer duration"),
        (("generator_waited",), (), "what helps: fewer clients, a lower rate or more cores"),
        (
            ("machine_shared", "generator_waited", "machine_full"),
            (),
            "what helps: a machine that does nothing else, fewer clients, a lower rate, more cores or lower CPU limits "
            "of members",
        ),
        (("leader_changed",), (sample(),), None),
    ):
        assert capacity.advice(plan_of(tmp_path), outcome(*kinds), known(*costs)) == told, kinds


def test_a_run_weighs_its_own_costs_and_those_that_are_kept(tmp_path: Path, place: Path) -> None:
    own = (
        "it fits with about 77 clients, a rate of 4,200/s, 3 cores, CPU limits that add up to 1 core or a dilation of 2"
    )
    assert costs_module.advised(plan_of(tmp_path), KEY, outcome("generator_waited")).advice == own
    capacity.add(KEY, [sample()], [])
    # Such a row is no sample itself.
    spoiled = costs_module.advised(plan_of(tmp_path), KEY, outcome("machine_full", "few_answers"))
    assert spoiled.advice == f"{FITS}; what helps: more requests or a longer duration"


def test_every_reason_has_words() -> None:
    assert all(bool(rule.words) == (set(rule.effects) != {"info"}) for rule in RULES.values())
    assert reasons_text("machine_full;of another version") == "all cores were busy, of another version"


MANY = [replace(WRITE, name=f"write-{clients}", clients=clients) for clients in (5, 10, 90, 100)]


def printed(plan: Plan, costs: MachineCosts, memory: tuple[int, int] = MEMORY) -> list[str]:
    return list(machine_lines(plan, carried(plan, costs), "Some CPU", *memory))


def test_where_everything_runs_slower_disk_and_links_are_faster(tmp_path: Path) -> None:
    costs = known(sample(), sync_ms=20)
    plain, slow = ("\n".join(printed(plan_of(tmp_path, WRITE, dilation=factor), costs)) for factor in (1, 4))
    assert "an fdatasync takes 20.00 ms" in plain and "it measures less of the disk" in plain
    assert "an fdatasync takes 5.00 ms" in slow and "it measures less of the disk" not in slow
    assert "the links carry about 18,000 frames/s" in plain and "the links carry about 72,000 frames/s" in slow


def test_what_check_prints_of_a_machine(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A disk is named where an fdatasync is a large part of a floor: of 6 ms to the leader, 12 and its time beyond."""
    small = plan_of(tmp_path, *MANY, replace(READ, name="read-l", consistency="l"))
    kept = plan_of(tmp_path, machine_cores=6, links_cpu=5, other_cores=(0, 1, 2, 3, 4))
    two = plan_of(tmp_path, WRITE, replace(WRITE, name="b"), machine_cores=4)
    assert {
        "of which nothing is known": printed(plan_of(tmp_path), known()),
        "too small for some": printed(small, known(sample(), sync_ms=0.1), (4 << 30, 1 << 30)),
        "with a core for the emulator": printed(kept, known(sample())),
        "that carries all": printed(two, known(sample())),
        "with a slow disk": printed(plan_of(tmp_path), known(sync_ms=40)),
        "with a faster disk": printed(plan_of(tmp_path), known(sync_ms=17)),
        "with a slow disk and data in memory": printed(plan_of(tmp_path, data="tmpfs"), known(sync_ms=40)),
        "with links by netem": printed(plan_of(tmp_path, links="netem"), known(sample())),
    } == snapshot


def test_the_example_in_the_documentation_is_what_check_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = known(sample(), sync_ms=0.1)
    monkeypatch.setattr(capacity, "read", lambda key: (costs, None))
    monkeypatch.setattr(machine, "cpu_model", lambda: "Some CPU")
    monkeypatch.setattr(machine, "memory_bytes", lambda: MEMORY[0])
    monkeypatch.setattr(machine, "memory_available_bytes", lambda: MEMORY[1])
    output = StringIO()
    render_machine(plan_of(tmp_path, *MANY), Console(file=output, width=80))
    assert f"```text\n{output.getvalue().lstrip()}```" in (DOCS / "fidelity.md").read_text(encoding="utf-8")


def test_check_and_a_dry_run_say_it(place: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    capacity.add(machine.key(), [sample(frames=5, links_ns=50_000)], [])
    for words in (("check", plan.config.path), ("run", plan.config.path, "--dry-run")):
        said = shown(*words).output
        assert "\nThis machine\n" in said
        assert "  the links carry about 90,000 frames/s, 90 Mbit/s in frames of 125 bytes\n" in said
    place.write_text("{")
    result = shown("check", plan.config.path)
    assert (result.exit_code, f"  {place} is not what a run has left there" in result.output) == (0, True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this machine's file is for a test; whoever made it keeps new files to himself."""
    umask = os.umask(0o077)
    monkeypatch.setattr(assets, "MACHINE", tmp_path / "cache")
    monkeypatch.setattr(assets, "own", lambda: tmp_path / "cache")
    yield tmp_path / "cache" / capacity.NAME
    os.umask(umask)


def test_the_file_keeps_the_last_of_each_group_of_each_machine(place: Path) -> None:
    other = KEY.model_copy(update={"cores": 4})
    capacity.add(other, [sample(links_ns=7)], [])
    for number in range(20):
        added = [sample(links_ns=number), sample(kind="txn", links_ns=number)]
        capacity.add(KEY, added, known(sync_ms=number).syncs)
    held, note = capacity.read(KEY)
    assert note is None
    for kind in ("write", "txn"):
        assert [one.links_ns for one in held.requests if one.kind == kind] == list(range(11, 20))
    assert [one.median_ns for one in held.syncs] == [number * MS for number in range(11, 20)]
    assert [one.links_ns for one in capacity.read(other)[0].requests] == [7]
    assert capacity.read(KEY.model_copy(update={"kernel": "7.0"}))[0].requests == []
    assert (place.stat().st_mode & 0o777, os.listdir(place.parent)) == (0o644, [capacity.NAME])
    for cores in range(5, 15):
        capacity.add(KEY.model_copy(update={"cores": cores}), [sample()], [])
    assert len(json.loads(place.read_text())["machines"]) == capacity.KEPT_MACHINES
    # All samples together are bounded, too.
    many = [sample(members=number) for number in range(1, capacity.KEPT_SAMPLES + 50)]
    capacity.add(KEY, many, [])
    assert [one.members for one in capacity.read(KEY)[0].requests] == [one.members for one in many[49:]]
    assert place.stat().st_size < 1 << 20


def test_a_full_disk_leaves_the_file_as_it_was(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capacity.add(KEY, [sample()], [])
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left on device"):
        capacity.add(KEY, [sample(), sample()], [])
    assert (capacity.read(KEY), os.listdir(place.parent)) == ((known(sample()), None), [capacity.NAME])


NOT_OURS = [b"", b"{", b"\xff\xfe", b"[]", b"[" * 100_000, b" " * (5 << 20), b'{"schema": 2, "machines": []}']
NOT_OURS += [b'{"schema": 1, "machines": [], "more": 1}', b'{"schema": 1, "machines": [{"machine": {"cores": -1}}]}']


@pytest.mark.parametrize("content", NOT_OURS)
def test_a_file_that_is_not_ours_is_ignored_with_a_note_and_replaced(place: Path, content: bytes) -> None:
    place.parent.mkdir()
    place.write_bytes(content)
    held, note = capacity.read(KEY)
    assert held == known()
    assert note == f"{place} is not what a run has left there: it is ignored, and the next run replaces it"
    capacity.add(KEY, [sample()], [])
    assert capacity.read(KEY) == (known(sample()), None)


def test_what_is_no_file_at_all_is_ignored_with_a_note(place: Path) -> None:
    place.parent.mkdir()
    for make in (os.mkfifo, os.mkdir):
        place.unlink(missing_ok=True)
        make(place)
        assert "cannot be read: it is no regular file" in str(capacity.read(KEY)[1])
    with pytest.raises(IsADirectoryError):
        capacity.add(KEY, [sample()], [])
    assert os.listdir(place.parent) == [capacity.NAME]


def test_a_run_keeps_what_requests_cost(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_fakes(monkeypatch)
    monkeypatch.setattr(measure_module, "keep_costs", costs_module.keep_costs)
    run(tmp_path / "out.csv")
    assert [(one.data, one.median_ns) for one in capacity.read(KEY)[0].syncs] == [("disk", 500_000)]
    for plan in (plan_of(tmp_path), plan_of(tmp_path, profile=("cpu",))):
        struck = replace(outcome(), disruptions=Disruptions("1"))
        assert costs_module.keep_costs(plan, MACHINE, [], [outcome(), outcome("machine_shared"), struck]) is None
    assert len(capacity.read(KEY)[0].requests) == 1
    # An fsync that is configured says nothing about this machine's disk.
    plan = plan_of(tmp_path)
    hosts = [replace(host, fsync_ns=10**7 if host.name == "etcd1" else None) for host in plan.hosts]
    plan = replace(plan, hosts=tuple(hosts))
    sync = {
        name: Sync(samples=9, median_ns=ns, slowest_ns=ns)
        for name, ns in (("etcd1", 10**7), ("etcd2", 2000), ("etcd3", 4000))
    }
    for held in (sync, {"etcd1": sync["etcd1"]}):
        assert (
            costs_module.keep_costs(
                plan,
                MACHINE,
                [ClusterRecord(number=1, at="then", leader_at_start="etcd1", term_at_start=2, sync=held)],
                [],
            )
            is None
        )
    assert [one.median_ns for one in capacity.read(KEY)[0].syncs] == [500_000, 3000]
    place.unlink()
    place.parent.rmdir()
    place.parent.write_text("no folder")
    assert run(tmp_path / "out.csv").failed == 0
    for error, words in (
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ):
        monkeypatch.setattr(capacity, "add", mock.Mock(side_effect=error))
        assert run(tmp_path / "out.csv").failed == 0
        note = costs_module.keep_costs(plan_of(tmp_path), MACHINE, [], [])
        assert note == f"what requests cost on this machine is not kept: {words}"
    assert [row["Error"] for row in rows(tmp_path / "out.csv")] == ["-"] * 4
