"""The proof of a network in a run: what spoils it, what it says, and how it is repeated after the last scenario."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from containernet_env.base.errors import RunError
from containernet_env.model.proof import Check, NetworkProof, named
from containernet_env.model.usage import LinkStatistics
from containernet_env.results.run_files import Proof
from containernet_env.runs import testbed as testbed_module
from tests.unit.fakes import make_bed, raising

ALLOWED = "0.040 ms early, 0.130 ms late"
GOOD = Check("etcd1>s1", "delay", "proved", "3.000 ms", "3.020 ms", ALLOWED)
LATE = replace(GOOD, verdict="wrong", measured="1503.000 ms")
SLOW = replace(LATE, kind="rate", configured="1000 Mbit/s")
SHORT = replace(LATE, kind="queue", configured="2000 frames")
UNPROVED = Check("etcd1>s1", "loss", "unproved", "0.1 %", why="500 frames cannot distinguish it from none")


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """See ``make_bed``; ``bed.gates`` has it find what ``Gates`` says."""
    bed: Any = make_bed(monkeypatch)
    bed.gates = partial(Gates, bed, monkeypatch)
    bed.hosts |= {host.name: SimpleNamespace(pid=1, alive=True, ending=lambda words: None) for host in bed.plan.hosts}
    return bed


class Gates:
    """Gates, one after the other: what each found, how long the emulator stood meanwhile, and what spoilt it."""

    def __init__(self, bed: Any, monkeypatch: pytest.MonkeyPatch, *gates: tuple[Check, int, str | None]) -> None:
        self.left = list(gates)
        self.hosts: list[list[str]] = []
        self.paused_ns = 0
        monkeypatch.setattr(testbed_module, "measure_gate", self.measure)
        bed.net.link_statistics = self.statistics

    def measure(self, topology: Any, pids: Any, *, moment: Any, hosts: list[str], **named: Any) -> Any:
        check, self.paused_ns, spoiled = self.left.pop(0)
        self.hosts.append(hosts)
        return FakeGate(NetworkProof(moment, (check,)), spoiled)

    def statistics(self, **options: Any) -> dict[str, Any]:
        return {"links": {}, "lateness": {"count": 9, "p99_ns": 5, "max_ns": self.paused_ns}}


@dataclass
class FakeGate:
    """What ``measure_gate`` gives."""

    proof: NetworkProof
    spoiled: str | None
    of: int = 0
    margin_ns: ClassVar[int] = 2_000_000

    def to_json(self) -> dict[str, Any]:
        return {"checks": [check.to_json() for check in self.proof.checks], "pairs": [], "paths": []}


LOST = "7 frames were lost at etcd2, since the prober had no room for them"
STOOD = "the link emulator was paused for 3.0 s while the network was proved"
TOO_LATE = "the link emulator was late by 90.0 ms while the network was proved"
SEEMINGLY = ["seemingly wrong: rate of etcd1>s1 (1000 Mbit/s)", "seemingly wrong: delay of etcd1>s1 (3.000 ms)"]
NOT_CONFIGURED = "the network is not the one that was configured: rate of etcd1>s1"


GATES: dict[str, tuple[list[Any], list[str], str | None]] = {
    # Stopped for 3 s during the proof: the network was 'not the one that was configured'.
    "a pause": ([(LATE, 3 * 10**9, None), (GOOD, 20_000, None)], [STOOD], None),
    "pauses": ([(LATE, 3 * 10**9, None)] * 10, [STOOD] * 9, f"{STOOD}, the last of 10 times: something else keeps"),
    "the prober's loss": ([(LATE, 0, LOST), (GOOD, 0, None)], [LOST], None),
    "losses": ([(GOOD, 0, LOST)] * 10, [LOST] * 9, f"{LOST}, the last of 10 times"),
    # Queues are measured last: of 4200 frames, 2800 came after the end, since the emulator was stopped for 90 ms.
    "the end": ([(SHORT, 90_000_000, None), (GOOD, 0, None)], [TOO_LATE], None),
    "the end of a discipline": ([(replace(SHORT, kind="aqm"), 90_000_000, None), (GOOD, 0, None)], [TOO_LATE], None),
    # Two labs were brought up at once: the rate of 1000 Mbit/s was 635 in a gate; 2 of 16 labs did not start.
    "what one gate finds": ([(SLOW, 0, None), (LATE, 0, None), (GOOD, 0, None)], SEEMINGLY, None),
    "what two find": ([(SLOW, 0, None), (LATE, 0, None), (SLOW, 0, None)], SEEMINGLY, NOT_CONFIGURED),
    "what two find with pauses between": (
        [(SLOW, 0, None), *[(GOOD, 0, LOST)] * 8, (SLOW, 0, None)], [SEEMINGLY[0], *[LOST] * 8], NOT_CONFIGURED,
    ),
    "what each finds anew": (
        [(SLOW, 0, None), (GOOD, 0, LOST), (LATE, 0, None), (SHORT, 0, None)], [SEEMINGLY[0], LOST, SEEMINGLY[1]],
        "seemingly wrong: queue of etcd1>s1 (2000 frames), the last of 4 times: something else keeps",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GATES)
def test_only_what_gates_agree_on_is_the_networks_fault(bed: Any, case: str) -> None:
    gates, notes, refused = GATES[case]
    made = bed.gates(*gates)
    with nullcontext() if refused is None else pytest.raises(RunError, match=f"^{re.escape(refused)}"):
        assert bed._prove_network() == "links by the emulator; 1 of 1 properties proved"
    assert (made.left, bed.progress.notes) == ([], [f"{note}: it is proved anew" for note in notes])


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"ports": {"etcd1": {"tap_drops": {"receive": 3}}}}, "etcd1: 3 frames lost after the link, since the host's"),
        ({"lateness": {"count": 9, "p99_ns": 2_500_000, "max_ns": 3_000_000}}, "the link emulator was late by 2.5 ms"),
    ],
)
def test_what_the_emulator_admits_is_not_the_links_fault(bed: Any, seen: dict[str, Any], said: str) -> None:
    gates = bed.gates((LATE, 0, None), (GOOD, 0, None))
    bed.net.link_statistics = lambda **options: gates.statistics() | seen
    bed._prove_network()
    (note,) = bed.progress.notes
    assert note.startswith(said) and note.endswith("while the network was proved: it is proved anew")


@pytest.mark.parametrize(("margin_ns", "excused"), [(2_000_000, True), (6_000_000, False)])
def test_what_comes_after_the_end_is_later_than_the_margin(
    bed: Any, monkeypatch: pytest.MonkeyPatch, margin_ns: int, excused: bool
) -> None:
    bed.gates((SHORT, 5_000_000, None), (GOOD, 0, None))
    monkeypatch.setattr(FakeGate, "margin_ns", margin_ns)
    bed._prove_network()
    assert bed.progress.notes[0].startswith(
        "the link emulator was late by 5.0 ms" if excused else "seemingly wrong: queue"
    )


def test_the_emulator_is_judged_once_it_has_caught_up(bed: Any) -> None:
    """Frames that wait for an emulator that was stopped are late only once it has read them."""
    gates, looks = bed.gates((LATE, 0, None), (GOOD, 0, None)), iter([[0], [1000, 0], [4200, 0], [4200, 3 * 10**9]])
    last = [0]

    def statistics(reset: bool = False) -> dict[str, Any]:
        last[:] = last if reset else next(looks, last)
        late = {"lateness": {"count": 9, "p99_ns": 5, "max_ns": last[-1]}}
        return gates.statistics() | {"links": {"etcd1-s1": {"a_to_b": {"offered": last[0], "drops": {}}}}} | late

    bed.net.link_statistics = statistics
    bed._prove_network()
    assert bed.progress.notes == [f"{STOOD}: it is proved anew"]


def test_a_network_that_is_off_by_itself_is_reported_in_a_table(bed: Any) -> None:
    bed.gates(*[(LATE, 50_000, None)] * 2)
    with pytest.raises(RunError) as refusal:
        bed._prove_network()
    said, head, row = str(refusal.value).splitlines()
    assert said == "the network is not the one that was configured: delay of etcd1>s1 (3.000 ms)"
    assert head.split() == ["direction", "property", "configured", "measured", "allowed"]
    assert re.split("  +", row) == [LATE.subject, LATE.kind, LATE.configured, LATE.measured, LATE.allowed]
    assert [(proof.passed, proof.moment, len(proof.checks)) for proof in bed.proofs] == [(False, "before", 1)] * 2


def test_what_is_not_proved_is_reported_by_name(bed: Any) -> None:
    bed.gates((UNPROVED, 0, None))
    assert bed._prove_network().endswith("0 of 1 properties proved")
    assert bed.progress.notes == ["not proved: loss of etcd1>s1 (0.1 %): 500 frames cannot distinguish it from none"]
    assert bed.gate.proof.text == "unproved: loss of etcd1>s1 (0.1 %)"
    assert bed.proofs[0].unproved == ["loss of etcd1>s1 (0.1 %): 500 frames cannot distinguish it from none"]


def test_after_the_last_scenario_a_network_that_is_off_is_reported_and_no_error(bed: Any) -> None:
    gates = bed.gates((GOOD, 0, None), *[(LATE, 0, None)] * 2)
    bed._prove_network()
    bed.hosts["etcd2"].alive = False
    proof = bed.prove_again()
    assert (proof.passed, proof.text) == (False, "wrong: delay of etcd1>s1 (3.000 ms)")
    assert gates.hosts == [["etcd1", "etcd2", "etcd3", "benchmark"], *[["etcd1", "etcd3", "benchmark"]] * 2]
    assert bed.gate.proof.passed  # what the rows were measured on
    assert [(p.moment, p.passed) for p in bed.proofs] == [("before", True), *[("after", False)] * 2]


def test_members_that_still_send_make_nothing_wrong_after_the_last_scenario(
    bed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.gates((LATE, 0, None))
    monkeypatch.setattr(testbed_module, "_QUIET_S", 0.0)
    monkeypatch.setattr(testbed_module, "_QUIET_LOOK_S", 0.0)
    carried = iter([0, 10_000_000, 12_500_000, 25_000_000])

    def statistics(**options: Any) -> dict[str, Any]:
        direction = {"bytes": next(carried, 0)}
        links = {link.name: {"a_to_b": direction, "b_to_a": direction} for link in bed.plan.topology.links}
        return {"at_ns": direction["bytes"] * 8, "links": links, "lateness": None}

    bed.net.link_statistics = statistics
    proof = bed.prove_again()
    assert proof.passed and proof.checks[0].why == "the hosts still filled 100% of etcd3-s1"
    # A gate that fails leaves its reason.
    why = "the network's measurement took more than 12 s"
    monkeypatch.setattr(testbed_module, "measure_gate", raising(RunError(why)))
    with pytest.raises(RunError, match=why):
        bed.prove_again()
    assert [(p.moment, p.passed, p.problems) for p in bed.proofs[1:]] == [("after", False, [why])]


def test_the_busiest_direction_counts_by_its_rate() -> None:
    def statistics(at_ns: int, *carried: int) -> LinkStatistics:
        a, b, c, d = ({"bytes": carried_bytes} for carried_bytes in carried)
        return LinkStatistics(
            {"at_ns": at_ns, "links": {"a": {"a_to_b": a, "b_to_a": b}, "b": {"a_to_b": c, "b_to_a": d}}}
        )

    before, now = statistics(0, 0, 0, 0, 0), statistics(10**9, 1_250, 2_500, 137_500, 0)
    rates = {"a": (100_000, 1_000_000), "b": (10_000_000, 10_000_000), "gone": (1, 1)}
    share, name = now.busiest_since(before, rates)
    assert (round(share, 6), name) == (0.11, "b")
    assert now.busiest_since(now, {}) == (0.0, "no link")


def test_a_proof_counts_many_of_a_kind_and_names_few() -> None:
    few = [replace(UNPROVED, subject=f"etcd{n}>s1") for n in (1, 2, 3)]
    more = [*few, replace(UNPROVED, subject="etcd4>s1"), replace(UNPROVED, kind="queue", configured="20 frames")]
    assert named(few) == "loss of etcd1>s1, etcd2>s1, etcd3>s1 (0.1 %)"
    message = "unproved: loss of 4 directions (0.1 %); queue of etcd1>s1 (20 frames)"
    assert NetworkProof("before", tuple(more)).text == message
    assert NetworkProof("before", (GOOD,)).text == "proved"
    # One of an older run is still of its form.
    older = {"at": "t", "at_ns": 1, "passed": True, "problems": [], "unproved": [], "pairs": []}
    assert Proof.model_validate(older).moment == "before"
