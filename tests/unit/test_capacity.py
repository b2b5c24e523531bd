"""What a machine carries: costs taken from outcomes, bounds worked by hand, what `check` prints."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from containernet_env.analysis.capacity import carried
from containernet_env.analysis.request_costs import (
    ForwardingCost,
    cost_at,
    forwarding_cost,
    full_share,
    kind_of,
    payload_bytes,
    reached_per_s,
    sample_of,
)
from containernet_env.cli import check, group
from containernet_env.cli.capacity import Memory, machine_lines, render_machine
from containernet_env.config import load_config
from containernet_env.model.findings import Finding, Kind
from containernet_env.model.keys import Span
from containernet_env.plan.build import build_plan
from containernet_env.plan.identity import config_hash
from containernet_env.plan.plan import KeptCore, Plan
from containernet_env.results import machine_costs
from containernet_env.results.machine_costs import CostSample, MachineCosts
from containernet_env.runs import machine
from tests.unit.answers import DOCS
from tests.unit.cost_samples import MEMORY, MS, READ, WRITE, known, outcome, own_place, plan_of, sample


def test_members_that_their_own_limits_stop_set_the_rate(tmp_path: Path) -> None:
    """100 clients / (18 ms floor + 2 ms CPU) would ask for 5000/s; a core of the leader's gives 1000/s: 3.7 cores."""
    (short,) = carried(plan_of(tmp_path), known(sample())).shortages
    assert (short.resource, short.has, short.enough, short.cores) == ("machine", 2, pytest.approx(1.9), 4)
    assert short.wanted == pytest.approx(2.5 + 0.6 + 0.5 + 0.1)
    assert short.rate_per_s == pytest.approx(1.9 / 3.7e-3)
    assert short.clients == 10  # 513.5/s, 20 ms each


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"clients": 10}, {}),
        ({"rate": Decimal(500)}, {}),
        ({}, {"machine_cores": 4}),
        ({}, {"cpus": 0.1, "client": {"ip": "10.0.0.9", "cpus": 0.6}}),
    ],
)
def test_what_it_is_said_to_fit_with_fits(tmp_path: Path, changes: dict[str, Any], options: dict[str, Any]) -> None:
    held = carried(plan_of(tmp_path, replace(WRITE, **changes), **options), known(sample()))
    assert [scenario.name for scenario in held.fit] == ["write-100"]


def test_without_limits_the_one_core_of_generator_and_links_is_too_small(tmp_path: Path) -> None:
    """5000/s take 2.5 cores of each. The machine is asked for what they let through: 2000/s, 7.4 cores."""
    held = carried(plan_of(tmp_path, cpus="unlimited"), known(sample()))
    assert [(one.resource, round(one.wanted, 6)) for one in held.shortages] == [
        ("machine", 7.4),
        ("links", 2.5),
        ("generator", 2.5),
    ]
    assert [round(one.rate_per_s) for one in held.shortages] == [514, 1800, 1800]
    assert [one.clients for one in held.shortages] == [10, 36, 36]


def test_a_core_that_is_kept_for_the_emulator_is_not_shared(tmp_path: Path) -> None:
    """Members, client and the rest want 3.2 cores of the one that is left: 4 of them, and the one that is kept."""
    (short,) = carried(plan_of(tmp_path, links_core=KeptCore(1, (0,))), known(sample())).shortages
    assert (short.has, short.cores) == (1, 5)
    assert short.wanted == pytest.approx(3.2)


def test_a_full_machine_is_no_fault_where_all_limits_fit_into_it(tmp_path: Path) -> None:
    """Members and client have 2 of 3 cores, the emulator one; the kernel's 1.5 cores at 500/s come on top."""
    plan = plan_of(tmp_path, cpus=0.5, client={"ip": "10.0.0.9", "cpus": 0.5}, machine_cores=3)
    assert carried(plan, known(sample(rest_ns=3 * MS))).fit
    plan = plan_of(tmp_path, cpus=0.5, client={"ip": "10.0.0.9", "cpus": 0.6}, machine_cores=3)
    assert carried(plan, known(sample(rest_ns=3 * MS))).shortages


def test_the_worst_comes_first_and_repetitions_count_once(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        replace(WRITE, clients=12),
        replace(WRITE, name="worse", clients=18),
        replace(WRITE, name="rated", rate=Decimal(1)),
        repeat=3,
    )
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
        ({}, False),
    ):
        held = carried(plan, known(sample(), sample(rate_per_s=400, **changes)))
        assert bool(held.fit) is fit, changes


def test_the_highest_rate_that_was_reached_counts() -> None:
    samples = [sample(config="c", rate_per_s=rate) for rate in (2000, 3000, 1000)]
    assert list(reached_per_s(samples, "c", 100)) == [3000]
    assert list(reached_per_s(samples, "c", 101)) == []


def test_the_member_with_the_highest_limit_may_lead(tmp_path: Path) -> None:
    """Of 0.2, 0.2 and 0.6 cores: 600/s at most, 2.22 cores."""
    plan = plan_of(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for node, cpus in zip(config["nodes"], (0.2, 0.6, 0.2), strict=True):
        node["cpus"] = cpus
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = build_plan(load_config(tmp_path / "config.json"), plan.scenario_set, plan.options)
    (short,) = carried(plan, known(sample())).shortages
    assert short.wanted == pytest.approx(0.6 * 3.7)


def test_what_frames_cost_is_taken_where_there_are_most_requests() -> None:
    found = forwarding_cost(
        [*[sample(rate_per_s=10, links_ns=MS)] * 2, sample(rate_per_s=9000, links_ns=50_000, frame_bytes=90)]
    )
    assert found == ForwardingCost(5000, 90)


def test_a_limit_of_the_client_is_told(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, client={"ip": "10.0.0.9", "cpus": 0.5}, machine_cores=8)
    (short,) = carried(plan, known(sample())).shortages
    assert (short.resource, short.wanted, short.has) == ("client", pytest.approx(0.6), 0.5)


def test_a_bandwidth_bounds_what_can_be_asked_where_all_members_have_one(tmp_path: Path) -> None:
    """At 1 Mbit/s the leader sends two entries of 414 bytes for each write: 151/s. A majority may do without one."""
    plan = plan_of(tmp_path)
    for bandwidths, fit in (((1, 1, 1), True), ((1, 1, "unlimited"), False), ((1, 1000, 1000), False)):
        config = json.loads((tmp_path / "config.json").read_text())
        for node, bandwidth in zip(config["nodes"], bandwidths, strict=True):
            node["bandwidth"] = bandwidth
        (tmp_path / "config.json").write_text(json.dumps(config))
        plan = build_plan(load_config(tmp_path / "config.json"), plan.scenario_set, plan.options)
        assert bool(carried(plan, known(sample())).fit) is fit, bandwidths


def test_the_leader_that_answers_soonest_counts_and_jitter_does_not(tmp_path: Path) -> None:
    """m3 is 1 ms away: 2 ms to it, 8 ms to a follower. 10 clients / (10 + 2 ms) by it, / (14 + 2) by m1 or m2."""
    plan = plan_of(tmp_path, replace(WRITE, clients=10), cpus=100)
    config = json.loads((tmp_path / "config.json").read_text())
    for node, delay in zip(config["nodes"], ("3ms", "3ms", "1ms"), strict=True):
        jitter = {"distribution": "normal", "value": "100us"}
        node.update(link={"delay": delay, "bandwidth": "unlimited", "jitter": jitter})
        del node["link_delay"], node["bandwidth"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = build_plan(load_config(tmp_path / "config.json"), plan.scenario_set, plan.options)
    (short,) = carried(plan, known(sample())).shortages
    assert short.wanted == pytest.approx(10 / 12e-3 * 3.7e-3)


def test_nothing_is_said_of_loads_unlike_those_measured(tmp_path: Path) -> None:
    unlike = (
        replace(WRITE, name="large", val_size=100_000),
        replace(WRITE, name="all", target="cluster"),
        READ,
    )
    held = carried(plan_of(tmp_path, *unlike), known(sample()))
    assert [scenario.name for scenario in held.unknown] == ["large", "all", "read"]
    five = carried(plan_of(tmp_path), known(sample(members=5)))
    assert (five.unknown, five.fit, five.shortages) == ((WRITE,), (), ())


def test_heartbeats_cost_the_same_at_any_rate() -> None:
    """0.2 cores and 1 ms for each request: 21 ms at 10/s, 1.2 ms at 1000/s; between them 3 ms at 100/s."""
    samples = [sample(rate_per_s=rate, cluster_ns=(0.2 / rate + 1e-3) * 1e9) for rate in (10, 1000)]
    costs = {rate: cost_at(samples, rate) for rate in (5, 10, 100, 1000, 3000)}
    found = {rate: cost.cluster_ns / MS for rate, cost in costs.items() if cost is not None}
    assert found == {rate: pytest.approx(ms) for rate, ms in {5: 21, 10: 21, 100: 3, 1000: 1.2, 3000: 1.2}.items()}


def test_what_a_limit_was_reached_at_stands_for_all_above_it() -> None:
    assert cost_at([], 1000) is None
    assert cost_at([sample()], 6001) is None
    for limit in ("members", "one core", "cores"):
        assert cost_at([sample(limit=limit)], 1_000_000) == cost_at([sample()], 3000)
    assert cost_at([sample(limit="cores"), sample(rate_per_s=9000)], 1_000_000) is None


def test_the_rate_follows_from_what_a_request_costs_where_there_are_many(tmp_path: Path) -> None:
    """2 clients / (18 + 2 ms), not / (18 + 41.5 ms): between 10/s with 2.906 cores and 1000/s with 3.7."""
    rare = sample(rate_per_s=10, cluster_ns=249.9 * MS, links_ns=40 * MS)
    (short,) = carried(plan_of(tmp_path, replace(WRITE, clients=2)), known(rare, sample(rate_per_s=1000))).shortages
    assert short.wanted == pytest.approx(2.906 + (3.7 - 2.906) * 90 / 990)


def test_of_several_runs_the_median_counts_by_requests() -> None:
    samples = [sample(links_ns=9, requests=10), sample(links_ns=8, requests=10), sample(links_ns=2, requests=1000)]
    cost = cost_at(samples, 1000)
    assert cost is not None
    assert cost.links_ns == 2


def test_how_busy_a_machine_may_be_is_learnt_from_its_rows() -> None:
    def rows_at(*busy: tuple[float, bool]) -> list[CostSample]:
        return [sample(busy_ratio=ratio, limit="cores" if crowded else "none") for ratio, crowded in busy]

    assert full_share([]) == 0.95
    assert full_share(rows_at((0.3, False), (0.9, False), (0.97, True))) == 0.95
    assert full_share(rows_at((0.6, False), (0.7, False), (0.8, True), (0.9, True))) == 0.7
    # One row that waited for another reason, among ten that did not.
    assert full_share(rows_at((0.2, True), *[(0.5 + 0.04 * n, False) for n in range(10)], (0.99, True))) == 0.95


def test_what_a_request_cost_counts_those_of_the_warm_up() -> None:
    found = sample_of(outcome(), 3, 2, "c")
    assert found is not None
    assert (found.requests, found.rate_per_s, found.payload_bytes) == (2000, 500, 264)
    assert (found.config, found.clients) == ("c", 100)
    open_loop = sample_of(outcome(scenario=replace(WRITE, rate=Decimal(500))), 3, 2, "c")
    assert open_loop is not None
    assert open_loop.clients == 0
    per_request_us = {name: getattr(found, f"{name}_ns") / 1000 for name in ("cluster", "member", "client", "links")}
    assert per_request_us == {"cluster": 300, "member": 200, "client": 60, "links": 40}
    # The generator's figure is of the measured time alone; 100 ms of the machine's are nobody's else.
    assert (found.generator_ns, found.rest_ns) == (pytest.approx(50_000), 50_000)
    assert (found.frames, found.frame_bytes, found.busy_ratio) == (5, 100, 0.45)


def test_how_much_data_a_request_or_its_answer_has() -> None:
    scan = replace(READ, span=Span(keys=100), key_space=1000)
    sizes = [payload_bytes(scenario) for scenario in (WRITE, READ, scan, replace(scan, put_ratio=Decimal("0.5")))]
    assert sizes == [264, 264, 26_400, 26_400]
    assert payload_bytes(replace(READ, span=Span(answer="keys"))) == 8
    assert payload_bytes(replace(READ, span=Span(answer="keys"), put_ratio=Decimal("0.5"))) == 264


def test_only_rows_that_nothing_but_want_of_cores_spoils_tell_a_cost() -> None:
    full: list[Kind] = ["machine_full", "generator_waited", "member_waited", "link_lateness"]
    crowded = sample_of(outcome(*full), 3, 2, "c")
    assert crowded is not None
    assert crowded.limit == "cores"
    thread = sample_of(outcome("generator_saturated", "generator_waited"), 3, 2, "c")
    assert thread is not None
    assert thread.limit == "one core"
    throttled = replace(outcome(), findings=(Finding("member_throttled", "told", "etcd1"),))
    for held, limit in ((throttled, "members"), (outcome(), "none")):
        found = sample_of(held, 3, 2, "c")
        assert found is not None
        assert found.limit == limit
    for kind in ("machine_shared", "machine_stolen", "network_off", "leader_changed", "few_answers"):
        assert sample_of(outcome(*full, kind), 3, 2, "c") is None
    assert sample_of(outcome(error="1 failed"), 3, 2, "c") is None
    assert sample_of(outcome(), 5, 2, "c") is None
    assert sample_of(replace(outcome(), machine=None), 3, 2, "c") is None


def test_kinds_of_requests() -> None:
    mixed = replace(READ, type="mixed", consistency="l", put_ratio=Decimal("0.25"))
    kinds = [kind_of(scenario) for scenario in (WRITE, READ, mixed, replace(WRITE, type="txn"))]
    assert kinds == ["write", "read serializable", "mixed 0.2 linearizable", "txn"]


def printed(plan: Plan, costs: MachineCosts, memory: Memory = MEMORY) -> list[str]:
    return list(machine_lines(plan, carried(plan, costs), "Some CPU", memory))


def test_what_check_prints_of_a_machine(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A disk is named where an fdatasync is a large part of a floor: of 6 ms to the leader, 12 and its time beyond."""
    many = [replace(WRITE, name=f"write-{clients}", clients=clients) for clients in (5, 10, 90, 100)]
    small = plan_of(tmp_path, *many, replace(READ, name="read-l", consistency="l"))
    kept = plan_of(tmp_path, machine_cores=6, links_core=KeptCore(5, (0, 1, 2, 3, 4)))
    two = plan_of(tmp_path, WRITE, replace(WRITE, name="b"), machine_cores=4)
    assert {
        "of which nothing is known": printed(plan_of(tmp_path), known()),
        "too small for some": printed(small, known(sample(), sync_ms=0.1), Memory(4 << 30, 1 << 30)),
        "with a core for the emulator": printed(kept, known(sample())),
        "that carries all": printed(two, known(sample())),
        "with a slow disk": printed(plan_of(tmp_path), known(sync_ms=40)),
        "with a faster disk": printed(plan_of(tmp_path), known(sync_ms=17)),
        "with a slow disk and data in memory": printed(plan_of(tmp_path, data="tmpfs"), known(sync_ms=40)),
        "with links by netem": printed(plan_of(tmp_path, links="netem"), known(sample())),
    } == snapshot


def test_the_example_in_the_documentation_is_what_check_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [replace(WRITE, name=f"write-{clients}", clients=clients) for clients in (5, 10, 90, 100)]
    costs = known(sample(), sync_ms=0.1)
    monkeypatch.setattr(machine_costs, "read", lambda key: (costs, None))
    monkeypatch.setattr(machine, "cpu_model", lambda: "Some CPU")
    monkeypatch.setattr(machine, "memory_bytes", lambda: MEMORY.all_bytes)
    monkeypatch.setattr(machine, "memory_available_bytes", lambda: MEMORY.available_bytes)
    output = StringIO()
    render_machine(plan_of(tmp_path, *many), Console(file=output, width=80))
    assert f"```text\n{output.getvalue().lstrip()}```" in (DOCS / "fidelity.md").read_text(encoding="utf-8")


def test_check_and_a_dry_run_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = own_place(tmp_path, monkeypatch)
    plan = plan_of(tmp_path)
    machine_costs.add(machine.key(), [sample(frames=5, links_ns=50_000)], [])
    for words in (["check", str(plan.config.path)], ["run", str(plan.config.path), "--dry-run"]):
        said = CliRunner().invoke(group, words).output
        assert "\nThis machine\n" in said
        assert "  the links carry about 90,000 frames/s, 90 Mbit/s in frames of 125 bytes\n" in said
    place.write_text("{")
    result = CliRunner().invoke(check.command, [str(plan.config.path)])
    assert (result.exit_code, f"  {place} is not what a run has left there" in result.output) == (0, True)
