"""What a gate proves it has told: a fault as large as docs/fidelity.md says is caught, and a smaller one not proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containernet_env.analysis.gate_plan import MS, US, plan_gate
from containernet_env.analysis.gate_trains import EMULATOR
from containernet_env.analysis.gate_verdict import verdicts
from containernet_env.config import load_config
from containernet_env.fidelity import gate as gate_module
from containernet_env.fidelity.gate import measure_gate
from containernet_env.model.chance import GilbertElliottLoss, Jitter
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.proof import NetworkProof
from containernet_env.model.topology import star
from tests.unit.simulated import Fault, carry, changed, check_of, gate, star_of, wrong

MBIT = 10**6
FREE = LinkSpec()
CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("*.json"))
PLAIN = star_of(*[LinkSpec.symmetric(3 * MS, 100 * MBIT)] * 3, FREE)
UP = DirectionSpec(3 * MS, 20 * MBIT, jitter=Jitter("uniform", MS))
JITTER = star_of(*[LinkSpec(UP, DirectionSpec(500 * US, 10 * MBIT))] * 2, FREE)
REORDER = star_of(
    *[LinkSpec(replace(UP, jitter=Jitter("uniform", MS, reorder=True)), DirectionSpec(500 * US, 10 * MBIT))] * 2, FREE
)


def unproved(proof: NetworkProof) -> set[tuple[str, str]]:
    """What of which direction the samples do not tell."""
    return {(check.subject, check.kind) for check in proof.of("unproved")}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_is_proved_wholly(path: Path) -> None:
    """But for a client on 1 ms and 1000 Mbit/s before members on 50 ms and 100: nothing fills its link."""
    client = ("benchmark>s1", "s1>benchmark")
    known = {"wan-50ms": {(name, kind) for name in client for kind in ("delay", "rate", "queue")}}
    topology = star(load_config(path))
    for seed in range(3):
        proof = gate(topology, seed)
        assert proof.passed, proof.text
        assert unproved(proof) == known.get(path.stem, set()), [check.line for check in proof.of("unproved")]


# --- delays -----------------------------------------------------------------------------------------------------------


def test_a_fifth_of_the_frames_of_one_direction_that_is_late_is_wrong() -> None:
    """Median and lowest tenth were as configured."""
    proof = gate(PLAIN, 1, delayed=[("h1", 0.2, 10 * MS)])
    assert {subject for subject, kind in wrong(proof) if kind == "delay"} == {"h1>s1"}, proof.text
    assert "frames are late" in check_of(proof, "h1>s1", "delay").why


def test_a_few_frames_that_a_machine_makes_late_are_not() -> None:
    late = {"wake_ns": 10_000, "late_wake": {"ratio": 0.02, "ns": 300_000}}
    for seed in range(3):
        assert gate(PLAIN, seed, noise=late).text == "proved"


def test_frames_that_jitter_cannot_make_so_late_are_wrong() -> None:
    assert ("h1>s1", "jitter") in wrong(gate(JITTER, 1, delayed=[("h1", 0.1, 10 * MS)]))


@pytest.mark.parametrize(("delay_ns", "verdict"), [(0, "proved"), (20 * US, "unproved"), (200 * US, "unproved")])
def test_a_delay_that_is_not_told_from_half_of_it_is_unproved(delay_ns: int, verdict: str) -> None:
    topology = star_of(*[LinkSpec.symmetric(delay_ns, 100 * MBIT)] * 3, FREE)
    check = check_of(gate(topology), "h1>s1", "delay")
    assert check.verdict == verdict, check
    if delay_ns:
        assert check.why.endswith("ms are allowed, more than half of it")


def test_a_delay_of_300_us_is_told_from_half_of_it_and_half_more() -> None:
    topology = star_of(*[LinkSpec.symmetric(300 * US, 100 * MBIT)] * 3, FREE)
    assert gate(topology).text == "proved"
    for other in (150 * US, 450 * US):
        assert ("h1>s1", "delay") in wrong(gate(topology, 1, changed(["h1>s1"], delay_ns=other)))


def test_directions_whose_swap_on_every_link_nobody_can_see_are_unproved() -> None:
    one, other = DirectionSpec(MS, 100 * MBIT), DirectionSpec(5 * MS, 100 * MBIT)
    alike, and_free = star_of(*[LinkSpec(one, other)] * 4), star_of(*[LinkSpec(one, other)] * 3, FREE)
    check = check_of(gate(alike), "h1>s1", "delay")
    assert check.verdict == "unproved" and "both directions of every link" in check.why
    assert gate(and_free).text == "proved"


def test_one_path_that_is_off_is_named_where_no_direction_is() -> None:
    plan = plan_gate(PLAIN)
    times = list(carry(plan, 1))
    stream = plan.delays["h1", "h2"]
    times[stream] = replace(times[stream], delay_ns=[delay + MS for delay in times[stream].delay_ns])
    assert wrong(NetworkProof("before", verdicts(plan, times, EMULATOR))) == {("h1>s1>h2", "delay")}


def test_two_directions_that_make_up_for_each_other_are_both_named() -> None:
    def fault(name: str, spec: DirectionSpec) -> DirectionSpec:
        off = {"h1>s1": MS, "s1>h2": -MS}.get(name, 0)
        return replace(spec, delay_ns=spec.delay_ns + off)

    assert wrong(gate(PLAIN, 1, fault)) == {("h1>s1", "delay"), ("s1>h2", "delay")}


# --- rates ------------------------------------------------------------------------------------------------------------


def test_a_rate_that_a_busy_machine_may_have_made_lower_is_neither_wrong_nor_proved() -> None:
    """976.9 Mbit/s of 1000 in two gates, on two cores that compiled: the run was refused."""
    topology = star_of(*[LinkSpec.symmetric(3 * MS, 1000 * MBIT)] * 3, FREE)
    for share, verdict in ((0.97, "unproved"), (1.03, "wrong")):
        proof = gate(topology, 1, changed(["h1>s1"], rate_bps=round(1000 * MBIT * share)))
        (found,) = [check for check in proof.checks if (check.subject, check.kind) == ("h1>s1", "rate")]
        assert found.verdict == verdict, found


@pytest.mark.parametrize("rate", [10 * MBIT, 100 * MBIT, 1000 * MBIT])
@pytest.mark.parametrize("share", [0.95, 1.05])
def test_a_rate_that_is_5_percent_off_is_wrong(rate: int, share: float) -> None:
    topology = star_of(*[LinkSpec.symmetric(3 * MS, rate)] * 3, FREE)
    assert ("h1>s1", "rate") in wrong(gate(topology, 1, changed(["h1>s1"], rate_bps=round(rate * share))))


def test_a_rate_behind_a_queue_that_holds_no_long_train_is_unproved() -> None:
    link = LinkSpec.symmetric(3 * MS, 1000 * MBIT, queue_frames=100)
    check = check_of(gate(star_of(*[link] * 3, FREE)), "h1>s1", "rate")
    assert check.verdict == "unproved" and check.why.startswith("it is told only where a rate is "), check


@pytest.mark.parametrize(
    ("rate", "verdict"), [(10 * MBIT, "proved"), (100 * MBIT, "proved"), (1000 * MBIT, "unproved")]
)
def test_what_a_frame_takes_besides_is_told_from_nothing_or_unproved(rate: int, verdict: str) -> None:
    direction = DirectionSpec(3 * MS, rate, overhead_bytes=24)
    topology = star_of(*[LinkSpec(direction, direction)] * 3, FREE)
    for name in ("h1>s1", "s1>h1"):
        check = check_of(gate(topology), name, "rate")
        assert check.verdict == verdict, check
        without = gate(topology, 1, changed(overhead_bytes=0))
        assert check_of(without, name, "rate").verdict in (("wrong",) if verdict == "proved" else ("wrong", "unproved"))
    if verdict == "unproved":
        assert check.why.startswith("what a frame takes besides (24 bytes) is told only where")


# --- jitter and loss --------------------------------------------------------------------------------------------------


def made(**values: Any) -> Fault:
    """Jitter is another one where there is some."""
    return lambda name, spec: replace(spec, jitter=Jitter("uniform", MS, **values)) if spec.jitter else spec


def test_jitter_that_keeps_the_order_and_jitter_that_does_not_are_told_apart() -> None:
    for seed in range(5):
        for topology in (JITTER, REORDER):  # whose trains it spreads
            proof = gate(topology, seed)
            assert proof.passed and unproved(proof) == {("h1>s1", "rate"), ("h2>s1", "rate")}, (seed, proof.text)
        assert ("h1>s1", "jitter") in wrong(gate(JITTER, seed, made(reorder=True)))
        assert ("h1>s1", "jitter") in wrong(gate(REORDER, seed, made()))


def test_frames_that_overtake_where_order_is_kept_are_wrong_however_few_values_there_are() -> None:
    slow = Jitter("uniform", 8 * MS)
    topology = star_of(*[LinkSpec(replace(UP, delay_ns=40 * MS, jitter=slow))] * 2, FREE)
    fault = changed(["h1>s1", "h2>s1"], jitter=replace(slow, reorder=True))
    proof = gate(topology, 1, fault)
    assert check_of(proof, "h1>s1", "jitter").measured.endswith("frames overtook one")


def test_jitter_that_changes_five_times_as_slowly_is_wrong() -> None:
    assert ("h1>s1", "jitter") in wrong(gate(JITTER, 3, made(correlation_ns=50 * MS)))


def test_losses_in_bursts_are_unproved_for_only_their_number_is_told() -> None:
    loss = GilbertElliottLoss(0.05, 0.5)
    link = LinkSpec(DirectionSpec(MS, 100 * MBIT, loss=loss))
    check = check_of(gate(star_of(link, FREE, FREE)), "h1>s1", "loss")
    assert check.verdict == "unproved" and check.why.endswith("lost in bursts is not told"), check


# --- what spoils a gate -----------------------------------------------------------------------------------------------


def answered(
    monkeypatch: pytest.MonkeyPatch, host: Mapping[str, Any], step_ns: int = 0, links: str = "emulator"
) -> tuple[str | None, Any]:
    """Why a gate says nothing where the prober answers so, and what the prober was asked."""
    asked: dict[str, Any] = {}

    def ask(verb: str, request: Any, *rest: Any) -> dict[str, Any]:
        asked.update(request)
        host_ok = {"warm": True, "ring_lost": 0, "refused": 0}
        hosts = [{"name": of["name"], **host_ok, **(host if of["name"] == "h2" else {})} for of in request["hosts"]]
        streams = [{"sent": 0, "received": 0} for _ in request["streams"]]
        return {"streams": streams, "hosts": hosts, "clock_step_ns": step_ns}

    monkeypatch.setattr(gate_module, "ask", ask)
    found = measure_gate(PLAIN, dict.fromkeys(("h1", "h2", "h3", "h4"), 1), links=links)
    return found.spoiled, asked


@pytest.mark.parametrize(
    ("host", "step_ns", "why"),
    [
        ({}, 0, None),
        ({}, 400_000, None),  # slewed by 0.05 % within about a second
        ({"ring_lost": 3}, 0, "3 frames were lost at h2, since the prober had no room for them"),
        (
            {"refused": 7, "error": "no buffer space available"},
            0,
            "the kernel did not send 7 frames of h2 (no buffer space available)",
        ),
        ({}, -5_000_000, "the machine's clock was set by 5.000 ms"),
    ],
)
def test_what_spoils_a_gate_is_no_fault_of_a_link(
    monkeypatch: pytest.MonkeyPatch, host: Mapping[str, Any], step_ns: int, why: str | None
) -> None:
    assert answered(monkeypatch, host, step_ns)[0] == why


def test_frames_pass_by_the_hosts_own_queues_where_the_emulator_carries_the_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for links in ("emulator", "netem"):
        assert answered(monkeypatch, {}, links=links)[1]["bypass_qdisc"] is (links == "emulator")


def test_what_a_queue_of_the_kernel_drops_at_its_host_spoils_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on netem: 'the kernel did not send 14419 frames of benchmark (no buffer space available)'."""
    assert answered(monkeypatch, {"refused": 14_419, "error": "no buffer space available"}, links="netem")[0] is None
