"""The same links by HTB and netem on a kernel that has both, on Open vSwitch and on bridges, under cgroup v2.

One machine is booted for all of it; what it brings out is judged here. It is emulated: function and coarse times only.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import docker
import pytest

from tests.vm import machine, steps

# Against hanging: the job takes 320 to 530 s on two cores.
LIMIT_S = 2400.0
LIMIT_ORIGINAL_S = 1200.0
KINDS = ("ovs", "bridge")
CONFIGURED_NS = 12_000_000
"""The RTT between two members, and of the contract tests."""
SOURCE = machine.original()
JOB = steps.RING if SOURCE is None else (*steps.RING, *steps.RING_ORIGINAL)
needs_source = pytest.mark.skipif(
    SOURCE is None, reason=f"{machine.SOURCE} names no checkout of the original Containernet"
)


@dataclass(frozen=True)
class Run:
    """A whole run in the machine: its files are called ``name``, the rest is what they should say."""

    name: str
    switches: str
    engine: str
    links: str
    said: str
    test: tuple[str, str]


BUILTIN = "runs", "test_runs::test_a_run_writes_its_rows_and_leaves_nothing"
ON_ORIGINAL = "original-runs", "test_original::test_a_run_on_the_original_writes_its_rows_and_leaves_nothing"
RUNS = [
    Run("ovs", "ovs", "builtin", "netem", "links by netem on Open vSwitch", BUILTIN),
    Run("bridge", "bridge", "builtin", "netem", "links by netem on a Linux bridge", BUILTIN),
    Run("original-ovs", "ovs", "containernet", "tclink", "Containernet's TCLink on its OVSBridge", ON_ORIGINAL),
    Run("original-bridge", "bridge", "containernet", "tclink", "Containernet's TCLink on its LinuxBridge", ON_ORIGINAL),
]
EACH_RUN = pytest.mark.parametrize(
    "run",
    [pytest.param(run, id=run.name, marks=[needs_source] if run.engine == "containernet" else []) for run in RUNS],
)

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(machine.missing() is not None, reason=f"no virtual machine here: {machine.missing()}"),
]


@pytest.fixture(scope="session")
def outcome() -> machine.Outcome:
    """The results of the machine, whose files stay in .build/vm.

    QEMU's emulation has been seen to hang, with its processors busy. Nothing is proved then, and the ring is skipped.
    """
    limit_s = LIMIT_S + (LIMIT_ORIGINAL_S if SOURCE is not None else 0)
    outcome = machine.run(JOB, machine.fresh_folder(), limit_s)
    if outcome.hung:
        pytest.skip(f"disturbed: the emulated machine hung after this: {outcome.last_progress()}")
    return outcome


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
    assert outcome.finished, f"not done after {outcome.wall_s:.0f} s; its console:\n{outcome.console[-8000:]}"
    failed = [step.name for step in JOB if outcome.statuses.get(step.name) != 0]
    assert not failed, "\n".join(f"{name}:\n{outcome.log(name, 200)}" for name in failed)


def test_its_kernel_has_what_this_ring_is_for(outcome: machine.Outcome) -> None:
    loaded = {line.split()[0] for line in outcome.log("modules", 1000).splitlines() if line}
    assert {"sch_netem", "openvswitch"} <= loaded
    assert "system" in outcome.log("openvswitch")
    assert "'CgroupVersion': '2'" in outcome.log("engine")


@pytest.mark.parametrize(
    "name",
    [
        "test_links_contract::test_the_rtt_is_no_shorter_than_configured[netem]",
        "test_links_contract::test_a_change_of_one_value_keeps_the_others[netem]",
        "test_links_contract::test_a_queue_is_as_deep_as_configured[netem]",
        "test_links_contract::test_a_delay_comes_and_goes_and_the_bandwidth_stays[netem]",
        "test_links_switches::test_two_switches_and_their_names[ovs]",
        *(f"test_links_switches::test_rtts_through_a_switch_are_no_shorter_than_configured[{kind}]" for kind in KINDS),
        *(f"test_live_links::test_a_partition_and_its_end[{kind}]" for kind in KINDS),
        "test_links_switches::test_the_cable_and_the_switch[ovs]",
        "test_links_chance::test_as_many_frames_are_lost_as_configured[bursts-netem]",
        "test_links_chance::test_jitter_is_read_back_and_makes_no_frame_too_early[normal-netem]",
        "test_ovs::test_what_a_killed_network_left_is_removed_and_nothing_else",
        "test_disk::test_an_fsync_takes_the_configured_time_there_and_nowhere_else",
        "test_disk::test_the_files_are_those_of_the_directory",
    ],
)
def test_a_promise_of_links_and_disks_was_really_tested(outcome: machine.Outcome, name: str) -> None:
    # A test that skips itself inside would otherwise pass unseen.
    assert f"tests.root.{name}" in passed(outcome, "kernel")


def test_limits_are_held_and_read_back_under_cgroup_v2(outcome: machine.Outcome) -> None:
    names = {name.rpartition("::")[2] for name in passed(outcome, "kernel")}
    assert names >= {
        "test_bring_up_gives_what_was_asked_and_nothing_more",
        "test_limits_change_while_it_runs_and_are_read_back",
        "test_commands_count_against_the_limits_and_get_no_more_capabilities",
    }


def test_what_a_killed_run_left_was_removed(outcome: machine.Outcome) -> None:
    assert "tests.vm.inside.test_runs::test_after_kill_9_clean_removes_everything" in passed(outcome, "runs")


def test_tc_prints_what_the_unit_tests_read(outcome: machine.Outcome) -> None:
    assert "tests.vm.inside.test_recorded::test_tc_prints_what_was_recorded" in passed(outcome, "kernel")


@needs_source
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "test_hosts_have_what_the_plan_asks_and_nothing_more",
        "test_links_hold_what_was_asked_and_change_while_it_runs",
        "test_delay_and_loss_change_while_it_runs",
        "test_cables_and_partitions",
    ],
)
def test_a_promise_of_networks_was_really_tested_on_the_original(
    outcome: machine.Outcome, name: str, kind: str
) -> None:
    wanted = f"tests.docker.test_network_engines::{name}[containernet-{kind}]"
    assert wanted in passed(outcome, "original-networks")


@needs_source
def test_what_a_killed_run_on_the_original_left_was_removed(outcome: machine.Outcome) -> None:
    name = "test_after_kill_9_of_a_run_on_the_original_clean_removes_everything"
    assert f"tests.vm.inside.test_original::{name}" in passed(outcome, "original-runs")


@EACH_RUN
def test_a_run_left_nothing_and_its_rows_have_no_errors(outcome: machine.Outcome, run: Run) -> None:
    step, test = run.test
    assert f"tests.vm.inside.{test}[{run.switches}]" in passed(outcome, step)
    with (outcome.results / f"{run.name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["TestType"] for row in rows] == ["write", "read"]
    assert {row["Error"] for row in rows} == {"-"}, rows
    assert {row["Links"] for row in rows} == {run.links}
    # 6 ms to a member and 12 ms between members: no write can be faster.
    assert all(float(row["Fastest"]) >= 0.018 for row in rows if row["TestType"] == "write"), rows
    assert run.said in (outcome.results / f"run-{run.name}.log").read_text()


@EACH_RUN
def test_no_frame_of_a_run_is_early(outcome: machine.Outcome, run: Run) -> None:
    before = [proof for proof in read(outcome, run, "network.json")["proofs"] if proof["moment"] == "before"][-1]
    assert before["passed"], before["problems"]
    fastest = {(path["a"], path["b"]): min(path["delays_ns"]) for path in before["paths"]}
    members = [(a, b) for a, b in fastest if a < b and "benchmark" not in (a, b)]
    assert len(members) == 3, fastest
    for a, b in members:
        assert fastest[a, b] + fastest[b, a] >= CONFIGURED_NS, (a, b, fastest)


@EACH_RUN
def test_the_manifest_says_what_made_hosts_and_links(outcome: machine.Outcome, run: Run) -> None:
    links = read(outcome, run, "manifest.json")["links"]
    assert (links["network"], links["links"], links["switches"]) == (run.engine, run.links, run.switches)
    assert "Mininet " in links["network_version"]
    # The guest has the SDK that setup.py pins, as this machine has. The checkout's .git stays here.
    assert links["docker_sdk"] == docker.__version__
    assert links["network_commit"] is None


@EACH_RUN
def test_the_manifest_has_the_limits_that_cgroup_v2_held(outcome: machine.Outcome, run: Run) -> None:
    manifest = read(outcome, run, "manifest.json")
    assert manifest["machine"]["cgroup_version"] == "2"
    for host in manifest["plan"]["hosts"]:
        held = manifest["hosts"][host["name"]]["limits"]
        assert held["cpu_quota_us"] == host["cpu_quota_us"], host
        assert held["memory_bytes"] == host["memory_bytes"], host
        assert held["memswap_bytes"] == host["memswap_bytes"], host


def read(outcome: machine.Outcome, run: Run, name: str) -> dict[str, Any]:
    """A JSON file of a run's directory."""
    (path,) = (outcome.results / f"{run.name}.runs").glob(f"*/{name}")
    return dict(json.loads(path.read_text()))
