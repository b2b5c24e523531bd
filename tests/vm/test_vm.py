"""The same links by HTB and netem on a kernel that has both, on Open vSwitch and on bridges, under cgroup v2.

One machine is booted for all of it; what it brings out is judged here. It is emulated: function and coarse times only.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.vm import machine, steps

LIMIT_S = 840.0
KINDS = ("ovs", "bridge")
SAID = {"ovs": "links by netem on Open vSwitch", "bridge": "links by netem on a Linux bridge"}
ASKED_NS = 12_000_000
MOST_NS = 16_000_000

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(machine.missing() is not None, reason=f"no virtual machine here: {machine.missing()}"),
]


@pytest.fixture(scope="session")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> machine.Outcome:
    """What the machine brought out. Its files stay in .build/vm for whoever looks for a reason."""
    return machine.run(steps.RING, machine.fresh_folder(), LIMIT_S)


def passed(outcome: machine.Outcome, step: str) -> set[str]:
    """The ids of the tests of a step that passed inside; what the others said is shown once, for the step."""
    path = outcome.results / f"{step}.xml"
    assert path.exists(), f"{step} was not carried out to its end"
    cases = ElementTree.parse(path).iter("testcase")
    return {
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is None and case.find("error") is None and case.find("skipped") is None
    }


def test_the_machine_did_the_whole_job(outcome: machine.Outcome) -> None:
    assert outcome.finished, f"not done after {outcome.wall_s:.0f} s; its console:\n{outcome.console[-3000:]}"
    failed = [step.name for step in steps.RING if outcome.statuses.get(step.name) != 0]
    assert not failed, "\n".join(f"{name}:\n{outcome.log(name, 200)}" for name in failed)


def test_its_kernel_has_what_this_ring_is_for(outcome: machine.Outcome) -> None:
    loaded = {line.split()[0] for line in outcome.log("modules", 1000).splitlines() if line}
    assert {"sch_netem", "openvswitch"} <= loaded
    assert "system" in outcome.log("openvswitch")
    assert "'CgroupVersion': '2'" in outcome.log("engine")


@pytest.mark.parametrize(
    "name",
    [
        "test_links_contract::test_the_rtt_is_the_one_that_was_asked_for[netem]",
        "test_links_contract::test_a_change_of_one_value_keeps_the_others[netem]",
        "test_links_contract::test_a_delay_comes_and_goes_and_the_bandwidth_stays[netem]",
        *(f"test_links_switches::test_two_switches_and_their_names[{kind}]" for kind in KINDS),
        *(f"test_live_links::test_a_partition_and_its_end[{kind}]" for kind in KINDS),
        *(f"test_live_links::test_a_cable_is_pulled_and_plugged_in[{kind}]" for kind in KINDS),
        "test_links_chance::test_as_many_frames_are_lost_as_was_asked[bursts-netem]",
        "test_links_chance::test_jitter_is_read_back_and_passes_the_proof_of_a_network[normal-netem]",
        "test_links_bandwidth::test_goodput_is_what_the_bandwidth_allows[10]",
        "test_ovs::test_what_a_killed_network_left_is_removed_and_nothing_else",
    ],
)
def test_a_promise_of_links_was_really_tested(outcome: machine.Outcome, name: str) -> None:
    # A test that skips itself inside would otherwise pass unseen.
    assert f"tests.root.{name}" in passed(outcome, "contracts")


def test_limits_are_held_and_read_back_under_cgroup_v2(outcome: machine.Outcome) -> None:
    names = {name.rpartition("::")[2] for name in passed(outcome, "limits")}
    assert names >= {
        "test_bring_up_gives_what_was_asked_and_nothing_more",
        "test_limits_change_while_it_runs_and_are_read_back",
        "test_commands_count_against_the_limits_and_get_no_more_capabilities",
    }


def test_what_a_killed_run_left_was_removed(outcome: machine.Outcome) -> None:
    assert "tests.vm.inside.test_runs::test_after_kill_9_clean_removes_everything" in passed(outcome, "runs")


def test_tc_prints_what_the_unit_tests_read(outcome: machine.Outcome) -> None:
    assert passed(outcome, "recorded")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_left_nothing_and_its_rows_have_no_errors(outcome: machine.Outcome, kind: str) -> None:
    assert f"tests.vm.inside.test_runs::test_a_run_writes_its_rows_and_leaves_nothing[{kind}]" in passed(
        outcome, "runs"
    )
    with (outcome.results / f"{kind}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["TestType"] for row in rows] == ["write"] * 2 + ["read"] * 2
    assert {row["Error"] for row in rows} == {"-"}, rows
    assert {row["Links"] for row in rows} == {"netem"}
    # 6 ms to a member and 12 ms between members: no write can be faster.
    assert all(float(row["Fastest"]) >= 0.018 for row in rows if row["TestType"] == "write"), rows
    assert SAID[kind] in (outcome.results / f"run-{kind}.log").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_rtts_are_12_to_16_ms_where_12_are_asked(outcome: machine.Outcome, kind: str) -> None:
    name = f"test_rtts_through_a_switch_are_as_asked[{kind}]"
    cases = ElementTree.parse(outcome.results / "contracts.xml").iter("testcase")
    (case,) = [case for case in cases if case.get("name") == name]
    medians_ns = {entry.get("name"): int(entry.get("value", "0")) for entry in case.iter("property")}
    assert len(medians_ns) == 3, outcome.log("contracts")
    assert all(ASKED_NS <= median_ns <= MOST_NS for median_ns in medians_ns.values()), medians_ns


@pytest.mark.parametrize("kind", KINDS)
def test_rtts_of_a_run_are_never_less_than_asked(outcome: machine.Outcome, kind: str) -> None:
    record = record_of(outcome.results, kind)
    assert record["switches"] == kind
    asked = [pair for pair in record["rtt"] if pair["propagation_ns"] == ASKED_NS]
    assert len(asked) == 3, record["rtt"]
    for pair in asked:
        # All pairs are measured at once there, which is much for such a processor: the fastest of the probes counts.
        assert ASKED_NS <= min(pair["samples_ns"]) <= MOST_NS, pair


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_has_the_limits_that_cgroup_v2_held(outcome: machine.Outcome, kind: str) -> None:
    record = record_of(outcome.results, kind)
    assert record["machine"]["cgroup_version"] == "2"
    for host in record["plan"]["hosts"]:
        held = record["limits"][host["name"]]
        assert held["cpu_quota_us"] == host["cpu_quota_us"], host
        assert held["memory_bytes"] == host["memory_bytes"], host
        assert held["memswap_bytes"] == host["memswap_bytes"], host


def record_of(results: Path, kind: str) -> dict[str, Any]:
    """The record of the run with that kind of switches."""
    (path,) = (results / f"{kind}.runs").glob("*.json")
    return dict(json.loads(path.read_text()))
