"""What a gate says of simulated networks: as configured, and with every fault that it is there to catch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from containernet_env.analysis.gate_plan import MS, US, GatePlan, plan_gate
from containernet_env.analysis.gate_trains import EMULATOR, KERNEL, Allowed, Times, fits
from containernet_env.analysis.gate_verdict import verdicts
from containernet_env.fidelity.gate import Gate, allowed_for
from containernet_env.fidelity.rtt import Tolerance
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter, Loss
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.proof import NetworkProof
from containernet_env.model.topology import Topology
from tests.unit.simulated import Fault, as_configured, carry, changed, check_of, gate, star_of, wrong

MBIT = 10**6
FREE = LinkSpec()
UP = DirectionSpec(3 * MS, 20 * MBIT, jitter=Jitter("uniform", MS), loss=IndependentLoss(0.02))
DOWN = DirectionSpec(500 * US, 10 * MBIT)
IMPAIRED = star_of(*[LinkSpec(UP, DOWN)] * 2, FREE)
PLAIN = star_of(*[LinkSpec.symmetric(3 * MS, 100 * MBIT)] * 3, FREE)
EQUAL = star_of(*[LinkSpec.symmetric(MS, 10 * MBIT)] * 4)
WITH_OVERHEAD = star_of(
    *[LinkSpec(DirectionSpec(MS, 10 * MBIT), DirectionSpec(MS, 10 * MBIT, overhead_bytes=200))] * 3, FREE
)


@pytest.mark.parametrize(
    ("topology", "text"),
    [
        (IMPAIRED, "unproved: rate of h1>s1, h2>s1 (20 Mbit/s)"),  # jitter spreads the ends of trains
        (PLAIN, "proved"),
        (EQUAL, "proved"),
        (WITH_OVERHEAD, "proved"),
    ],
    ids=["impaired", "plain", "equal", "overhead"],
)
def test_a_network_as_configured_is_proved_whatever_chance_does(topology: Topology, text: str) -> None:
    for seed in range(5):
        proof = gate(topology, seed)
        assert proof.text == text, (seed, [check.line for check in proof.checks if check.verdict != "proved"])


def test_overhead_that_is_not_carried_out_is_a_wrong_rate() -> None:
    proof = gate(WITH_OVERHEAD, 1, changed(overhead_bytes=0))
    assert {("s1>h1", "rate"), ("s1>h2", "rate"), ("s1>h3", "rate")} <= wrong(proof), proof.text


@pytest.mark.parametrize("correlation_ns", [None, 200 * MS])
@pytest.mark.parametrize("jitter", [Jitter("uniform", 300 * US), Jitter("uniform", 8 * MS), Jitter("normal", 3 * MS)])
def test_jitter_that_changes_slowly_is_never_wrong(jitter: Jitter, correlation_ns: int | None) -> None:
    """A gate sees few of its values, and what it cannot tell is unproved."""
    spec = DirectionSpec(40 * MS, 20 * MBIT, jitter=replace(jitter, correlation_ns=correlation_ns))
    for seed in range(3):
        proof = gate(star_of(*[LinkSpec(spec, spec)] * 3), seed)
        assert not wrong(proof), (seed, proof.text)


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        pytest.param(changed(rate_bps=None), {"rate", "queue"}, id="no-rate"),
        pytest.param(changed(loss=None), {"loss"}, id="no-loss"),
        pytest.param(changed(jitter=None), {"jitter"}, id="no-jitter"),
        pytest.param(
            lambda name, spec: replace(spec, delay_ns=spec.delay_ns * 9 // 10, jitter=None), {"delay"}, id="early"
        ),
        pytest.param(changed(default_queue_frames=10**6), {"queue"}, id="no-limit"),
        pytest.param(changed(["s1>h1", "s1>h2"], delay_ns=400 * US), {"delay"}, id="400-for-500-us"),
        pytest.param(changed(["h1>s1"], loss=IndependentLoss(0.04)), {"loss"}, id="twice-the-loss"),
        pytest.param(changed(["s1>h1"], loss=IndependentLoss(0.02)), {"loss"}, id="loss-where-none-is"),
        pytest.param(changed(["h1>s1"], jitter=Jitter("uniform", 2 * MS)), {"jitter"}, id="twice-the-jitter"),
        pytest.param(changed(["s1>h1"], rate_bps=11 * MBIT), {"rate"}, id="a-tenth-faster"),
        pytest.param(changed(["s1>h1"], default_queue_frames=150), {"queue"}, id="a-shorter-queue"),
        pytest.param(changed(["s1>h1"], delay_ns=900 * US), {"delay"}, id="late"),
    ],
)
def test_a_fault_is_caught(fault: Fault, kinds: set[str]) -> None:
    proof = gate(IMPAIRED, 3, fault)
    assert {kind for _, kind in wrong(proof)} >= kinds, proof.text


@pytest.mark.parametrize("name", ["h3>s1", "s1>h3"])
def test_a_limit_where_none_is_shows_at_the_direction_itself(name: str) -> None:
    assert name in {subject for subject, _ in wrong(gate(IMPAIRED, 3, changed([name], rate_bps=MBIT)))}


def test_swapped_directions_are_caught_on_each_link() -> None:
    specs = {hop.name: hop.spec for hop in plan_gate(IMPAIRED).hops}

    def swap(name: str, spec: DirectionSpec) -> DirectionSpec:
        sender, receiver = name.split(">")
        return specs[f"{receiver}>{sender}"] if "h1" in name else spec

    proof = gate(IMPAIRED, 3, swap)
    assert wrong(proof) >= {(name, kind) for name in ("h1>s1", "s1>h1") for kind in ("delay", "rate")}
    assert not wrong(proof) & {(name, kind) for name in ("h2>s1", "s1>h2") for kind in ("delay", "loss", "rate")}


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (changed(["h2>s1"], delay_ns=4 * MS), "h2>s1"),
        (changed(["s1>h3"], delay_ns=2_900 * US), "s1>h3"),
        (changed(["s1>h2"], rate_bps=50 * MBIT), "s1>h2"),
        (changed(["h1>s1"], loss=IndependentLoss(0.05)), "h1>s1"),
    ],
)
def test_only_the_direction_at_fault_is_named(fault: Fault, name: str) -> None:
    assert {subject for subject, _ in wrong(gate(PLAIN, 5, fault))} == {name}


@pytest.mark.parametrize("direction", ["h1>s1", "s1>h1"])
@pytest.mark.parametrize("values", [{"rate_bps": None}, {"rate_bps": 8 * MBIT}])
def test_a_rate_shows_where_all_links_are_alike(direction: str, values: dict[str, int | None]) -> None:
    assert (direction, "rate") in wrong(gate(EQUAL, 2, changed([direction], **values)))


def test_two_hosts_on_equal_links_prove_no_rate_but_that_it_is_not_lower() -> None:
    topology = star_of(*[LinkSpec.symmetric(MS, 10 * MBIT)] * 2)
    check = check_of(gate(topology), "h1>s1", "rate")
    assert check.verdict == "unproved" and check.why.startswith("no path is faster: not below "), check
    lower = gate(topology, 1, changed(["h1>s1"], rate_bps=9 * MBIT))
    assert check_of(lower, "h1>s1", "rate").verdict == "wrong"


def test_a_direction_that_the_others_cannot_fill_is_proved_to_be_no_slower_than_they_are() -> None:
    """Its trains take as long as the slowest direction on their way, and the next ones wait for them."""
    topology = star_of(*[LinkSpec.symmetric(MS, 10 * MBIT)] * 3, LinkSpec.symmetric(0, 1000 * MBIT))
    proof = gate(topology)
    assert not wrong(proof), proof.text
    for name in ("h4>s1", "s1>h4"):
        check = check_of(proof, name, "rate")
        assert check.verdict == "unproved" and check.why.startswith("no path is faster: not below "), check
    assert ("h4>s1", "rate") in wrong(gate(topology, 1, changed(["h4>s1"], rate_bps=5 * MBIT)))


def test_two_directions_that_only_one_path_crosses_are_named_together() -> None:
    topology = star_of(LinkSpec.symmetric(3 * MS, 100 * MBIT), FREE)
    proof = gate(topology, 1, changed(["h1>s1"], delay_ns=2 * MS))
    assert wrong(proof) == {("h1>s1>h2", "delay")}


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        (IndependentLoss(0.001), "unproved"),
        (IndependentLoss(0.02), "proved"),
        (IndependentLoss(0.3), "proved"),
        (GilbertElliottLoss(0.001, 0.1), "unproved"),
        (IndependentLoss(1.0), "proved"),
    ],
    ids=str,
)
def test_what_the_samples_cannot_decide_is_unproved(loss: Loss, verdict: str) -> None:
    link = LinkSpec(DirectionSpec(MS, 10 * MBIT, loss=loss), DirectionSpec(MS, 10 * MBIT))
    proof = gate(star_of(link, LinkSpec.symmetric(MS, 10 * MBIT), FREE))
    check = check_of(proof, "h1>s1", "loss")
    assert check.verdict == verdict, check
    # A host that no frame leaves is known to no switch: those for it are flooded, and take their share of other links.
    assert proof.passed or loss.mean_ratio == 1
    if verdict == "unproved":
        assert f"loss of h1>s1 ({loss.mean_ratio * 100:g} %)" in proof.text


def test_a_path_that_loses_everything_proves_no_delay_and_is_as_configured() -> None:
    link = LinkSpec(DirectionSpec(MS, 10 * MBIT, loss=IndependentLoss(1.0)), DirectionSpec(MS, 10 * MBIT))
    proof = gate(star_of(link, FREE))
    assert proof.passed
    check = check_of(proof, "h1>s1", "delay")
    assert (check.verdict, check.why) == ("unproved", "too few frames arrived")
    assert check_of(proof, "h1>s1", "rate").why == check_of(proof, "h1>s1", "queue").why == "every frame is lost"


def test_a_link_that_is_down_is_wrong() -> None:
    proof = gate(PLAIN, 1, changed(["h1>s1"], loss=IndependentLoss(1.0)))
    assert ("h1>s1", "loss") in wrong(proof)
    assert check_of(proof, "h1>s1", "loss").measured == "999 of 999 lost"


def test_jitter_that_spreads_less_than_a_machine_is_late_is_unproved() -> None:
    tiny = LinkSpec(DirectionSpec(MS, 10 * MBIT, jitter=Jitter("uniform", 50 * US)), DirectionSpec(MS))
    check = check_of(gate(star_of(tiny, FREE, FREE)), "h1>s1", "jitter")
    assert check.verdict == "unproved" and check.why.endswith("do not tell it from none")


def test_jitter_that_nobody_configured_makes_a_tenth_of_the_frames_early() -> None:
    proof = gate(PLAIN, 2, changed(["h1>s1"], jitter=Jitter("uniform", MS)))
    check = check_of(proof, "h1>s1", "delay")
    assert (check.verdict, check.why) == ("wrong", "a tenth of the frames is early")


def test_a_sender_that_paused_in_every_train_proves_no_rate() -> None:
    plan = plan_gate(PLAIN)
    times = list(carry(plan, 1))
    for train in plan.rates["h1>s1"]:
        (stream,) = train.streams
        sent = [at + (MS * 5 if number >= 5 else 0) for number, at in enumerate(times[stream].sent_ns)]
        times[stream] = replace(times[stream], sent_ns=sent)
    proof = NetworkProof("before", verdicts(plan, times, EMULATOR))
    check = check_of(proof, "h1>s1", "rate")
    assert (check.verdict, check.why) == ("unproved", "the sender was too slow")
    assert proof.passed


def test_a_sender_that_filled_no_queue_proves_no_limit() -> None:
    plan = plan_gate(PLAIN)
    times = list(carry(plan, 1))
    (stream,) = plan.queues["h1>s1"].streams
    few = times[stream]
    times[stream] = Times(500, 500, few.sent_ns[:500], few.delay_ns[:500])
    check = check_of(NetworkProof("before", verdicts(plan, times, EMULATOR)), "h1>s1", "queue")
    assert (check.verdict, check.why) == ("unproved", "the sender was too slow to fill it")


@pytest.mark.parametrize("rate", [100 * MBIT, 10_000 * MBIT])
def test_a_machine_that_is_too_slow_for_a_rate_proves_none(rate: int) -> None:
    topology = star_of(*[LinkSpec.symmetric(MS, rate)] * 2, FREE)
    proof = gate(topology, 1, changed(["h1>s1"], rate_bps=rate // 2))
    check = check_of(proof, "h1>s1", "rate")
    assert check.verdict == ("wrong" if rate == 100 * MBIT else "unproved"), check


@pytest.mark.parametrize(
    ("spec", "capacity"),
    [
        (DirectionSpec(MS, 10 * MBIT, queue_frames=20), 20),
        (DirectionSpec(MS, 10 * MBIT, queue_bytes=60_000), 39),
        (DirectionSpec(MS, 10 * MBIT, queue_frames=100, queue_bytes=10**6), 100),
    ],
)
def test_queue_limits_in_frames_and_bytes_are_told(spec: DirectionSpec, capacity: int) -> None:
    topology = star_of(LinkSpec(spec, DirectionSpec(MS, 10 * MBIT)), FREE, FREE)
    check = check_of(gate(topology), "h1>s1", "queue")
    assert check.verdict == "proved" and abs(float(check.measured.split()[0]) - capacity) <= 4, check
    half = gate(topology, 1, changed(["h1>s1"], queue_frames=capacity // 2))
    assert check_of(half, "h1>s1", "queue").verdict == "wrong"


def test_a_queue_that_takes_no_full_frame_proves_no_rate() -> None:
    topology = star_of(
        LinkSpec(DirectionSpec(MS, 10 * MBIT, queue_bytes=1000), DirectionSpec(MS, 10 * MBIT)), FREE, FREE
    )
    proof = gate(topology)
    check = check_of(proof, "h1>s1", "rate")
    assert (check.verdict, check.why) == ("unproved", "its queue takes no second frame")
    assert proof.passed, proof.text


def test_a_queue_takes_what_waits_and_what_goes_on_meanwhile() -> None:
    assert fits([0] * 50, 1000.0, 10) == 11  # one is being sent
    assert fits(list(range(0, 50_000, 1000)), 1000.0, 1) == 50  # as fast as they are sent
    assert fits(list(range(0, 50_000, 500)), 1000.0, 10) == 60


@pytest.mark.parametrize(
    ("links", "tolerance", "early_ns", "late_ns"),
    [
        ("emulator", None, 25_000 + 15_000, 100_000 + 30_000),
        ("netem", None, 500_000 + 150_000, 500_000 + 150_000),
        ("emulator", Tolerance(1_000_000, 0.0), 500_000, 500_000),
        ("netem", Tolerance(1_000_000, 0.5), 1_500_000, 1_500_000),
    ],
)
def test_what_is_allowed_follows_from_the_kind_of_links_or_from_the_user(
    links: str, tolerance: Tolerance | None, early_ns: int, late_ns: int
) -> None:
    allowed = allowed_for(links, tolerance)
    assert (allowed.early(3 * MS), allowed.late(3 * MS)) == (early_ns, late_ns)
    assert allowed.rate_ratio == (EMULATOR if links == "emulator" else KERNEL).rate_ratio


def test_a_tolerance_of_nothing_makes_every_delay_wrong() -> None:
    plan = plan_gate(PLAIN)
    proof = NetworkProof("before", verdicts(plan, carry(plan, 1), allowed_for("emulator", Tolerance(1, 0.0))))
    assert {kind for _, kind in wrong(proof)} == {"delay"} and len(wrong(proof)) == 8


def measured(topology: Topology) -> Gate:
    plan: GatePlan = plan_gate(topology)
    times = carry(plan, 1, as_configured)
    allowed: Allowed = EMULATOR
    return Gate(NetworkProof("before", verdicts(plan, times, allowed)), plan, times, topology)


def test_the_record_has_round_trips_and_every_delay() -> None:
    found = measured(IMPAIRED)
    expected_ns = IMPAIRED.expected_rtt_ns("h1", "h3")
    assert abs((found.rtt_ns("h1", "h3") or 0) - expected_ns) < 300 * US
    record = found.to_json()
    assert {(pair["a"], pair["b"]) for pair in record["pairs"]} == {("h1", "h2"), ("h1", "h3"), ("h2", "h3")}
    path = next(path for path in record["paths"] if (path["a"], path["b"]) == ("h1", "h3"))
    assert path["sent"] > 2000 and 0.005 < path["lost"] / path["sent"] < 0.06
    assert len(path["delays_ns"]) > 100 and min(path["delays_ns"]) >= 2 * MS
    assert {check["kind"] for check in record["checks"] if check["verdict"] != "proved"} == {"rate"}
