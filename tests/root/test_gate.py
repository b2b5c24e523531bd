"""A gate over real links: what it sends arrives, in order and never early, and what it counts is what links count.

What its verdicts say of which network is exact, in simulated time: tests/unit/test_gate*.py.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.topology import PROBE_FRAME_BYTES, Topology
from tests.root.gate_star import star
from tests.root.network import COARSE, needs_emulator, needs_root
from tests.unit.simulated import star_of, triangle_of

pytestmark = [
    pytest.mark.root,
    needs_root,
    needs_emulator,
    pytest.mark.skipif(COARSE, reason="the link emulator needs a real processor"),
]

MS, MBIT = 10**6, 10**6
CLOCK_NS = 2_000
"""By how much a wall clock that is slewed, the prober's, may be off within the time of a frame, and a little more."""
LINK = LinkSpec(DirectionSpec(3 * MS, 100 * MBIT), DirectionSpec(MS, 50 * MBIT))


STAR = star_of(*[LINK] * 3, LinkSpec())
# From h1 to h3 over s2, and directly back.
TRIANGLE = triangle_of(LINK, LINK, LinkSpec(DirectionSpec(3 * MS), DirectionSpec(30 * MS, 100 * MBIT)))


@pytest.mark.parametrize("topology", [STAR, TRIANGLE], ids=["star", "triangle"])
def test_frames_arrive_in_order_never_early_and_are_counted(topology: Topology) -> None:
    with star(topology) as made:
        gate = made.gate()
        if gate.spoiled is not None:
            pytest.skip(f"disturbed: {gate.spoiled}")
        for (a, b), stream in gate.plan.delays.items():
            times = gate.times[stream]
            came = [at + delay for at, delay in zip(times.sent_ns, times.delay_ns, strict=True) if delay >= 0]
            assert came and all(one <= two for one, two in pairwise(came)), (a, b)
            least_ns = sum(hop.delay_ns + hop.serialization_ns(PROBE_FRAME_BYTES) for hop in made.topology.path(a, b))
            assert min(gate.delays_ns(a, b)) >= least_ns - CLOCK_NS, (a, b)
        sent = dict.fromkeys(gate.plan.hosts, 0)
        received = dict(sent)
        for stream, times in zip(gate.plan.streams, gate.times, strict=True):
            assert 0 <= times.received <= times.sent <= stream.count
            sent[stream.sender] += times.sent
            received[stream.receiver] += times.received
        for host, link in made.links.items():
            counted = link.statistics()
            for side in ("a_to_b", "b_to_a"):
                of = counted[side]
                assert of["offered"] == of["frames"] + sum(of["drops"].values()) + of["in_flight"], (host, side, of)
            if host not in sent:
                continue
            # The warm-up sends some more; what a host sent and the emulator did not read, the kernel has counted.
            assert counted["a_to_b"]["offered"] + made.unread() >= sent[host], (host, counted, sent)
            assert counted["b_to_a"]["frames"] >= received[host], (host, counted, received)
