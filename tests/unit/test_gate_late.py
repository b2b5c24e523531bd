"""Frames that the machine made late: a link as configured is not refused for them, and no wrong one is passed.

The figures are those of gates over 50 hosts on two cores: of three trains of 10 ms, one had its first frame 1.14 ms
late and was measured at 1126 Mbit/s, one was left out since its sender had paused, and one had 1003 Mbit/s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from containernet_env.analysis.gate_plan import MS, US, GatePlan, Train, plan_gate
from containernet_env.analysis.gate_trains import EMULATOR, Times
from containernet_env.analysis.gate_verdict import verdicts
from containernet_env.model.chance import Jitter
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.model.topology import Topology
from tests.unit.simulated import Fault, Stall, as_configured, carry, changed, check_of, star_of, wrong

MBIT = 10**6
FAST = star_of(*[LinkSpec.symmetric(3 * MS, 1000 * MBIT)] * 3, LinkSpec())
EQUAL = star_of(*[LinkSpec.symmetric(3 * MS, 1000 * MBIT)] * 4)
NAME = "h1>s1"


def few_trains(topology: Topology = FAST, count: int = 3, name: str = NAME) -> GatePlan:
    """A plan with as few trains of a direction as a large network has time for."""
    plan = plan_gate(topology)
    del plan.rates[name][count:]
    return plan


def arrival_ns(plan: GatePlan, train: Train) -> int:
    """When the first frame of a train is due."""
    stream = plan.streams[train.streams[0]]
    return stream.start_ns + sum(hop.spec.delay_ns for hop in plan.paths[stream.sender, stream.receiver])


def heads(plan: GatePlan, indices: Sequence[int], length_ns: int = 1150 * US, name: str = NAME) -> list[Stall]:
    """The emulator stands still as the first frames of these trains are due."""
    begins = [arrival_ns(plan, plan.rates[name][index]) - 10 * US for index in indices]
    return [(begin, begin + length_ns) for begin in begins]


def judge(
    plan: GatePlan,
    fault: Fault = as_configured,
    stalls: Sequence[Stall] = (),
    paused: Sequence[int] = (),
    bursts: Mapping[str, int] | None = None,
) -> NetworkProof:
    """A gate; the senders of the ``paused`` trains stop for 5 ms."""
    times = list(carry(plan, 1, fault, stalls=stalls))
    for name, frames in (bursts or {}).items():
        for train in plan.rates[name]:
            for stream in train.streams:
                times[stream] = burst(plan, times[stream], name, train.frame_bytes, frames)
    for index in paused:
        (stream,) = plan.rates[NAME][index].streams
        sent = [at + (5 * MS if number >= 5 else 0) for number, at in enumerate(times[stream].sent_ns)]
        times[stream] = replace(times[stream], sent_ns=sent)
    return NetworkProof("before", verdicts(plan, times, EMULATOR))


def burst(plan: GatePlan, of: Times, name: str, frame_bytes: int, frames: int) -> Times:
    """A train behind a token bucket, which no link has: after a pause, so many frames take no time."""
    (spec,) = [hop.spec for hop in plan.hops if hop.name == name]
    frame_ns = spec.serialization_ns(frame_bytes)
    earlier = [min(number, frames) * frame_ns for number in range(len(of.delay_ns))]
    return replace(of, delay_ns=[delay - by for delay, by in zip(of.delay_ns, earlier, strict=True)])


def rate(proof: NetworkProof, name: str = NAME) -> Check:
    return check_of(proof, name, "rate")


@pytest.mark.parametrize(
    ("late", "paused", "verdict", "why"),
    [
        ([1], [2], "proved", ""),  # was 1065 Mbit/s, the mean of both, and wrong
        ([0, 1], [], "unproved", "the first frames of 2 of 3 trains were late"),  # was 1126 Mbit/s and wrong
        ([0], [1, 2], "unproved", "the first frames of 1 of 1 trains were late"),
        ([0, 1, 2], [], "unproved", "the first frames of 3 of 3 trains were late"),
    ],
)
def test_trains_whose_first_frames_were_late_are_not_faster(
    late: list[int], paused: list[int], verdict: str, why: str
) -> None:
    plan = few_trains()
    proof = judge(plan, stalls=heads(plan, late), paused=paused)
    assert (rate(proof).verdict, rate(proof).why) == (verdict, why), rate(proof)
    assert not wrong(proof), proof.text


def test_a_network_that_delays_the_beginning_of_every_train_is_never_proved() -> None:
    plan = plan_gate(FAST)
    check = rate(judge(plan, stalls=heads(plan, range(len(plan.rates[NAME])))))
    assert (check.verdict, check.values["late"]) == ("unproved", len(plan.rates[NAME])), check


@pytest.mark.parametrize(
    ("share", "late"), [(0.95, []), (0.95, [1]), (1.03, []), (1.03, [1]), (1.05, []), (1.05, [1]), (1.05, [0, 1])]
)
def test_a_wrong_rate_is_wrong_also_where_first_frames_were_late(share: float, late: list[int]) -> None:
    plan = few_trains()
    proof = judge(plan, changed([NAME], rate_bps=round(1000 * MBIT * share)), heads(plan, late, 250 * US))
    assert rate(proof).verdict == "wrong", rate(proof)


@pytest.mark.parametrize("late", [[], [1]])
def test_a_link_that_lets_bursts_through_is_too_fast(late: list[int]) -> None:
    """Its first frames are in time, and those after them are early."""
    plan = few_trains()
    assert rate(judge(plan, stalls=heads(plan, late), bursts={NAME: 40})).verdict == "wrong"


def test_trains_of_several_senders_are_not_faster_for_late_first_frames() -> None:
    plan = few_trains(EQUAL, 2, "s1>h1")
    assert len(plan.rates["s1>h1"][0].streams) == 2
    assert rate(judge(plan), "s1>h1").verdict == "proved"
    proof = judge(plan, stalls=heads(plan, [1], name="s1>h1"))
    assert not wrong(proof), proof.text
    faster = judge(plan, changed(["s1>h1"], rate_bps=1050 * MBIT), heads(plan, [1], 250 * US, "s1>h1"))
    assert rate(faster, "s1>h1").verdict == "wrong"


def test_what_jitter_may_do_to_a_first_frame_is_not_late() -> None:
    spec = DirectionSpec(3 * MS, 20 * MBIT, jitter=Jitter("uniform", 200 * US))
    topology = star_of(*[LinkSpec(spec, DirectionSpec(3 * MS, 100 * MBIT))] * 3, LinkSpec())
    assert check_of(judge(plan_gate(topology)), NAME, "rate").values["late"] == 0


def test_two_trains_that_say_otherwise_prove_nothing() -> None:
    """One ended late: 1000 and 918 Mbit/s, whose mean was wrong."""
    plan = few_trains(count=2)
    end_ns = arrival_ns(plan, plan.rates[NAME][1]) + 10 * MS
    proof = judge(plan, stalls=[(end_ns - 500 * US, end_ns + MS)])
    check = rate(proof)
    assert (check.verdict, check.why) == ("unproved", "one half of its trains says otherwise than the other"), check
    assert rate(judge(plan, changed([NAME], rate_bps=900 * MBIT))).verdict == "wrong"


@pytest.mark.parametrize(
    ("more", "stall_ns", "verdict"),
    [
        (0, 0, "proved"),
        (0, 5 * MS, "proved"),
        (350, 0, "wrong"),
        (350, 5 * MS, "unproved"),  # of 363 frames too many, first frames 6.8 ms late
        (900_000, 2 * MS, "wrong"),
        (-350, 5 * MS, "wrong"),  # fewer do not fit for that
    ],
)
def test_more_frames_than_fit_are_explained_by_as_long_a_stall(more: int, stall_ns: int, verdict: str) -> None:
    plan = plan_gate(FAST)
    begin = arrival_ns(plan, plan.queues[NAME])
    (spec,) = [hop.spec for hop in plan.hops if hop.name == NAME]
    assert spec.default_queue_frames == 2000 or spec.queue_frames == 2000, spec
    fault = changed([NAME], queue_frames=2000 + more)
    proof = judge(plan, fault, [(begin, begin + stall_ns)] if stall_ns else [])
    assert check_of(proof, NAME, "queue").verdict == verdict, check_of(proof, NAME, "queue")


def test_times_of_a_train_of_which_nothing_came_are_not_late() -> None:
    plan = few_trains()
    times = list(carry(plan, 1))
    for train in plan.rates[NAME]:
        (stream,) = train.streams
        times[stream] = Times(times[stream].sent, 0, times[stream].sent_ns, [-1] * times[stream].sent)
    assert rate(NetworkProof("before", verdicts(plan, times, EMULATOR))).why == "too few frames arrived"
