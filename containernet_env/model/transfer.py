"""How long a message takes over links that carry nothing else. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from containernet_env.model.chance import REACH, Jitter
from containernet_env.model.link import DirectionSpec
from containernet_env.model.queues import FULL_FRAME_BYTES
from containernet_env.model.topology import Topology

SEGMENT_HEADER_BYTES = 14 + 20 + 20 + 12
"""Around the payload of a TCP segment: Ethernet, IPv4, TCP, and its timestamps (RFC 7323), which Linux sends."""

MAX_PAYLOAD_BYTES = FULL_FRAME_BYTES - SEGMENT_HEADER_BYTES
"""The most that a frame carries of a TCP stream: 1448 bytes."""


def frames_of(payload_bytes: int) -> tuple[int, int]:
    """How many frames carry so much of a TCP stream (at least one), and how long the last one is in bytes."""
    full, rest = divmod(payload_bytes, MAX_PAYLOAD_BYTES)
    if rest or not full:
        return full + 1, SEGMENT_HEADER_BYTES + rest
    return full, FULL_FRAME_BYTES


def serialization_ns(hops: Sequence[DirectionSpec], payload_bytes: int) -> int:
    """From the first bit sent at the first hop to the last bit sent at the last one, delays left out.

    Every hop stores and forwards each frame and sends frames in order, so frame f has left hop h at
    t(h, f) = max(t(h-1, f), t(h, f-1)) + its time at the rate of h. All frames but the last are full: the longest way
    through that grid waits for all full ones at the slowest hop, visits the hops up to some hop j with a full frame,
    and those from j on with the last one.
    """
    if not hops:
        return 0
    frames, last_bytes = frames_of(payload_bytes)
    of_last = [hop.serialization_ns(last_bytes) for hop in hops]
    if frames == 1:
        return sum(of_last)
    of_full = [hop.serialization_ns(FULL_FRAME_BYTES) for hop in hops]
    return (frames - 2) * max(of_full) + max(sum(of_full[: j + 1]) + sum(of_last[j:]) for j in range(len(hops)))


class UnloadedNetwork:
    """One-way times on a network that carries nothing else; with ``draws`` the jitter of each is drawn from them.

    Left out is what TCP and HTTP/2 windows, losses and CPUs add: it can only be later.
    """

    def __init__(self, topology: Topology, draws: Random | None = None) -> None:
        self._topology = topology
        self._draws = draws

    def one_way_ns(self, a: str, b: str, payload_bytes: int) -> float:
        """From host ``a`` sending a message to host ``b`` having all of it."""
        hops = self._topology.path(a, b)
        return serialization_ns(hops, payload_bytes) + sum(self._delay_ns(hop) for hop in hops)

    def sending_ns(self, a: str, b: str, payload_bytes: int) -> int:
        """How long the message occupies the first link on the way from ``a`` to ``b``."""
        return serialization_ns(self._topology.path(a, b)[:1], payload_bytes)

    def _delay_ns(self, hop: DirectionSpec) -> float:
        if hop.jitter is None or self._draws is None:
            return hop.delay_ns
        return hop.delay_ns + _drawn_ns(hop.jitter, self._draws)


def has_jitter(topology: Topology) -> bool:
    """Whether any direction of any link has jitter."""
    return any(side.jitter is not None for link in topology.links for side in (link.spec.a_to_b, link.spec.b_to_a))


def _drawn_ns(jitter: Jitter, draws: Random) -> float:
    """By how much a delay differs from its mean; the same distributions as link_emulator/model/chance.go."""
    if jitter.distribution == "uniform":
        return draws.uniform(-jitter.ns, jitter.ns)
    while abs(z := draws.gauss(0.0, 1.0)) > REACH["normal"]:
        pass
    return z * jitter.ns
