"""The proof of a network in a run: what spoils it, what it says, and how it is repeated after the last scenario."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.model.link_statistics import LinkStatistics
from containernet_env.model.proof import Check, NetworkProof, named
from containernet_env.results.run_files import Proof
from containernet_env.runs import network_prover
from tests.unit.testbed_fakes import make_bed

GOOD = Check("etcd1>s1", "delay", "proved", "3.000 ms", "3.020 ms", "0.040 ms early, 0.130 ms late")
LATE = Check("etcd1>s1", "delay", "wrong", "3.000 ms", "1503.000 ms", "0.040 ms early, 0.130 ms late")
UNTOLD = Check("etcd1>s1", "loss", "unproved", "0.1 %", why="500 frames do not tell it from none")


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """See ``make_bed``."""
    bed = make_bed(monkeypatch)
    bed.hosts |= {host.name: SimpleNamespace(pid=1, alive=True, ending=lambda words: None) for host in bed.plan.hosts}
    return bed


class Gates:
    """Gates, one after the other: what each found, how long the emulator stood meanwhile, and what spoilt it."""

    def __init__(self, bed: Any, monkeypatch: pytest.MonkeyPatch, *gates: tuple[Check, int, str | None]) -> None:
        self.left = list(gates)
        self.hosts: list[list[str]] = []
        self.paused_ns = 0
        monkeypatch.setattr(network_prover, "measure_gate", self.measure)
        bed.net.link_statistics = self.statistics

    def measure(self, topology: Any, pids: Any, *, moment: Any, hosts: list[str], **named: Any) -> Any:
        check, self.paused_ns, spoiled = self.left.pop(0)
        self.hosts.append(hosts)
        return FakeGate(NetworkProof(moment, (check,)), spoiled)

    def statistics(self, *, reset: bool = False, buckets: bool = False) -> dict[str, Any]:
        delay = {"count": 9, "p99_ns": 5, "max_ns": self.paused_ns}
        return {"links": {}, "lateness": delay}


class FakeGate(SimpleNamespace):
    """What ``measure_gate`` gives."""

    def __init__(self, proof: NetworkProof, spoiled: str | None, **more: Any) -> None:
        super().__init__(proof=proof, spoiled=spoiled, **more)

    def with_proof(self, proof: NetworkProof) -> Any:
        return FakeGate(proof, self.spoiled)

    def to_json(self) -> dict[str, Any]:
        return {"checks": [check.to_json() for check in self.proof.checks], "pairs": [], "paths": []}


def test_a_network_whose_emulator_stood_still_is_measured_anew(bed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped for 3 s during the proof: the network was 'not the one that was configured'."""
    gates = Gates(bed, monkeypatch, (LATE, 3_000_000_000, None), (GOOD, 20_000, None))
    assert bed._prove_network() == "links by the emulator; 1 of 1 properties proved"
    assert gates.left == []
    stood = "the link emulator stood still for 3.0 s while the network was proved"
    assert bed._progress.notes == [f"{stood}: it is proved anew"]


def test_an_emulator_that_stands_still_again_and_again_is_what_is_wrong(
    bed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Gates(bed, monkeypatch, *[(LATE, 900_000_000, None)] * 3)
    with pytest.raises(
        RunError, match=r"^the link emulator stood still for 0.9 s .*, 3 times in a row: something else keeps"
    ):
        bed._prove_network()


def test_frames_that_the_prober_lost_are_nobody_elses_fault(bed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = "7 frames were lost at etcd2, since the prober had no room for them"
    Gates(bed, monkeypatch, (LATE, 0, lost), (GOOD, 0, None))
    bed._prove_network()
    assert bed._progress.notes == [f"{lost}: it is proved anew"]
    Gates(bed, monkeypatch, *[(GOOD, 0, lost)] * 3)
    with pytest.raises(RunError, match=r"^7 frames were lost at etcd2.*, 3 times in a row"):
        bed._prove_network()


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"ports": {"etcd1": {"tap_drops": {"receive": 3}}}}, "etcd1: 3 frames lost after the link, since the host's"),
        ({"lateness": {"count": 9, "p99_ns": 2_500_000, "max_ns": 3_000_000}}, "the link emulator was late by 2.5 ms"),
    ],
)
def test_what_the_emulator_admits_is_not_the_links_fault(
    bed: Any, monkeypatch: pytest.MonkeyPatch, seen: dict[str, Any], said: str
) -> None:
    gates = Gates(bed, monkeypatch, (LATE, 0, None), (GOOD, 0, None))
    bed.net.link_statistics = lambda **asked: gates.statistics() | seen
    bed._prove_network()
    (note,) = bed._progress.notes
    assert note.startswith(said) and note.endswith("while the network was proved: it is proved anew")


def test_what_only_one_gate_finds_wrong_is_not_the_networks(bed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two labs were brought up at once: the rate of 1000 Mbit/s was 635 in a gate; 2 of 16 labs did not start."""
    slow = replace(LATE, kind="rate", asked="1000 Mbit/s")
    gates = Gates(bed, monkeypatch, (slow, 0, None), (LATE, 0, None), (GOOD, 0, None))
    assert bed._prove_network().endswith("1 of 1 properties proved") and gates.left == []
    assert bed._progress.notes == [
        "seemingly wrong: rate of etcd1>s1 (1000 Mbit/s): it is proved anew",
        "seemingly wrong: delay of etcd1>s1 (3.000 ms): it is proved anew",
    ]
    Gates(bed, monkeypatch, (slow, 0, None), (LATE, 0, None), (slow, 0, None))
    with pytest.raises(RunError, match=r"^the network is not the one that was configured: rate of etcd1>s1"):
        bed._prove_network()


def test_a_network_that_is_off_by_itself_is_told_in_a_table(bed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Gates(bed, monkeypatch, *[(LATE, 50_000, None)] * 2)
    with pytest.raises(RunError) as refusal:
        bed._prove_network()
    said, head, row = str(refusal.value).splitlines()
    assert said == "the network is not the one that was configured: delay of etcd1>s1 (3.000 ms)"
    assert head.split() == ["direction", "property", "asked", "measured", "allowed"]
    assert re.split("  +", row) == [LATE.subject, LATE.kind, LATE.asked, LATE.measured, LATE.allowed]
    assert [(proof.passed, proof.moment, len(proof.checks)) for proof in bed.proofs] == [(False, "before", 1)] * 2


def test_what_is_not_proved_is_told_by_name(bed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Gates(bed, monkeypatch, (UNTOLD, 0, None))
    assert bed._prove_network().endswith("0 of 1 properties proved")
    assert bed._progress.notes == ["not proved: loss of etcd1>s1 (0.1 %)"]
    assert bed.gate.proof.text == "unproved: loss of etcd1>s1 (0.1 %)"
    assert bed.proofs[0].unproved == ["loss of etcd1>s1 (0.1 %): 500 frames do not tell it from none"]


def test_after_the_last_scenario_a_network_that_is_off_is_told_and_no_error(
    bed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = Gates(bed, monkeypatch, (GOOD, 0, None), *[(LATE, 0, None)] * 2)
    bed._prove_network()
    bed.hosts["etcd2"].alive = False
    proof = bed.prove_again("after")
    assert not proof.passed
    assert proof.text == "wrong: delay of etcd1>s1 (3.000 ms)"
    assert gates.hosts == [["etcd1", "etcd2", "etcd3", "benchmark"], *[["etcd1", "etcd3", "benchmark"]] * 2]
    assert bed.gate.proof.passed  # what the rows were measured on
    assert [(p.moment, p.passed) for p in bed.proofs] == [("before", True), *[("after", False)] * 2]


def test_members_that_still_send_make_nothing_wrong_after_the_last_scenario(
    bed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Gates(bed, monkeypatch, (LATE, 0, None))
    monkeypatch.setattr(network_prover, "_QUIET_S", 0.0)
    monkeypatch.setattr(network_prover, "_QUIET_LOOK_S", 0.0)
    carried = iter([0, 10_000_000, 12_500_000, 25_000_000])

    def statistics(**asked: Any) -> dict[str, Any]:
        carried_bytes = next(carried, 0)
        direction = {"bytes": carried_bytes}
        links = {link.name: {"a_to_b": direction, "b_to_a": direction} for link in bed.plan.topology.links}
        return {"at_ns": carried_bytes * 8, "links": links, "lateness": None}

    bed.net.link_statistics = statistics
    proof = bed.prove_again("after")
    assert proof.passed
    assert proof.checks[0].why == "the hosts still filled 100% of etcd3-s1"


def test_a_gate_after_the_last_scenario_that_fails_leaves_its_reason(bed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise RunError("the network's measurement took more than 12 s")

    monkeypatch.setattr(network_prover, "measure_gate", fail)
    with pytest.raises(RunError, match="took more than 12 s"):
        bed.prove_again("after")
    assert [(p.moment, p.passed, p.problems) for p in bed.proofs] == [
        ("after", False, ["the network's measurement took more than 12 s"])
    ]


def test_the_busiest_direction_counts_by_its_rate() -> None:
    def statistics(at_ns: int, *carried: int) -> LinkStatistics:
        sides = [{"bytes": carried_bytes} for carried_bytes in carried]
        links = {"a": {"a_to_b": sides[0], "b_to_a": sides[1]}, "b": {"a_to_b": sides[2], "b_to_a": sides[3]}}
        return LinkStatistics({"at_ns": at_ns, "links": links})

    before, now = statistics(0, 0, 0, 0, 0), statistics(10**9, 1_250, 2_500, 125_000, 0)
    rates = {"a": (100_000, 1_000_000), "b": (10_000_000, 10_000_000), "gone": (1, 1)}
    share, name = now.busiest_since(before, rates)
    assert (round(share, 6), name) == (0.1, "a") or (round(share, 6), name) == (0.1, "b")
    assert now.busiest_since(now, {}) == (0.0, "no link")


def test_many_of_a_kind_are_counted_and_few_are_named() -> None:
    few = [Check(f"etcd{n}>s1", "loss", "unproved", "0.1 %") for n in (1, 2, 3)]
    more = [*few, Check("etcd4>s1", "loss", "unproved", "0.1 %"), Check("etcd1>s1", "queue", "unproved", "20 frames")]
    assert named(few) == "loss of etcd1>s1, etcd2>s1, etcd3>s1 (0.1 %)"
    assert NetworkProof("before", tuple(more)).text == (
        "unproved: loss of 4 directions (0.1 %); queue of etcd1>s1 (20 frames)"
    )
    assert NetworkProof("before", (GOOD,)).text == "proved"


def test_a_proof_of_an_older_run_is_still_of_its_form() -> None:
    older = {"at": "t", "at_ns": 1, "passed": True, "problems": [], "unproved": [], "pairs": []}
    assert Proof.model_validate(older).moment == "before"
