"""The configuration of a link, independent of its implementation: values that every implementation understands."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Literal, get_args

from containernet_env.model.chance import (
    DELAY_MAX_NS,
    REACH,
    GilbertElliottLoss,
    IndependentLoss,
    Jitter,
    Loss,
    check_int,
)

# The link emulator's bounds (link_emulator/model/params.go); no other implementation takes more.
RATE_MIN_BPS, RATE_MAX_BPS = 1000, 10**12
QUEUE_MAX_FRAMES = 1_000_000
QUEUE_MAX_BYTES = 10**10
SEED_MAX = 2**53 - 1
OVERHEAD_MAX_BYTES = 1000


def draw_seed() -> int:
    """A seed that nobody chose."""
    return secrets.randbelow(SEED_MAX + 1)


Uplink = Literal["host", "network"]
"""Where frames of a host wait for their turn at the rate: at the host, as at a real NIC, or in the network behind."""


@dataclass(frozen=True, slots=True)
class DirectionSpec:
    """One direction of a link, from the end that sends to the end that receives.

    ``delay_ns``: propagation delay in nanoseconds, 0 to an hour, added after a frame's last bit has been sent.
    ``rate_bps``: bits per second of whole Ethernet frames (header included, no preamble or checksum), 1000 to 10^12;
    ``None`` is unlimited. ``overhead_bytes``: what a frame takes at the rate besides, 0 to 1000 (24: preamble, checksum
    and gap of Ethernet); counters and queue limits do not include it. ``queue_frames``, ``queue_bytes``: how much may
    wait to be sent, 1 or more; where both are ``None`` it is the implementation's documented default. ``jitter`` and
    ``loss``: see there; ``None`` is none. ``seed``: determines the random draws, 0 to 2^53 - 1, together with the names
    of link and direction, so that directions with the same seed draw independently; ``None`` leaves it to the
    implementation. ``default_queue_frames``: replaces the implementation's default for a limit that is left open, as
    far as the implementation can hold one; ``None`` keeps that default. ``uplink``: of a direction that a host sends on
    with a rate, where its frames wait; ``None`` leaves it to the implementation. Other directions take no notice of it.

    Raises ``ValueError`` for a value outside these ranges and for a jitter that would make a delay negative,
    ``TypeError`` for one of another type.
    """

    delay_ns: int = 0
    rate_bps: int | None = None
    queue_frames: int | None = None
    queue_bytes: int | None = None
    jitter: Jitter | None = None
    loss: Loss | None = None
    seed: int | None = None
    default_queue_frames: int | None = None
    overhead_bytes: int = 0
    uplink: Uplink | None = None

    def __post_init__(self) -> None:
        check_int("delay_ns", self.delay_ns, 0, DELAY_MAX_NS)
        check_int("overhead_bytes", self.overhead_bytes, 0, OVERHEAD_MAX_BYTES)
        if self.uplink is not None and self.uplink not in get_args(Uplink):
            raise ValueError(f"uplink must be {' or '.join(get_args(Uplink))}, got {self.uplink!r}")
        for name, low, high in (
            ("rate_bps", RATE_MIN_BPS, RATE_MAX_BPS),
            ("queue_frames", 1, QUEUE_MAX_FRAMES),
            ("queue_bytes", 1, QUEUE_MAX_BYTES),
            ("default_queue_frames", 1, QUEUE_MAX_FRAMES),
            ("seed", 0, SEED_MAX),
        ):
            if (value := getattr(self, name)) is not None:
                check_int(name, value, low, high)
        if not isinstance(self.jitter, Jitter | None):
            raise TypeError(f"jitter must be a Jitter, got {self.jitter!r}")
        if not isinstance(self.loss, IndependentLoss | GilbertElliottLoss | None):
            raise TypeError(f"loss must be an IndependentLoss or a GilbertElliottLoss, got {self.loss!r}")
        if self.jitter is not None and self.jitter.reach_ns > self.delay_ns:
            # Truncating the distribution at zero would change it.
            kind = self.jitter.distribution
            part = "the delay" if REACH[kind] == 1 else f"1/{REACH[kind]} of the delay"
            raise ValueError(
                f"{kind} jitter of {self.jitter.ns} ns would make delays of {self.delay_ns} ns negative; "
                f"allowed: at most {part}, {self.delay_ns // REACH[kind]} ns"
            )

    def serialization_ns(self, frame_bytes: int) -> int:
        """Nanoseconds to send a frame of ``frame_bytes`` (0 or more) at this rate, rounded up; 0 if unlimited."""
        check_int("frame_bytes", frame_bytes, 0, QUEUE_MAX_BYTES)
        if self.rate_bps is None:
            return 0
        bit_ns = (frame_bytes + self.overhead_bytes) * 8 * 1_000_000_000
        return -(-bit_ns // self.rate_bps)


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """Both directions of a link between its ends ``a`` and ``b``; on a host's link, ``a`` is the host."""

    a_to_b: DirectionSpec = DirectionSpec()
    b_to_a: DirectionSpec = DirectionSpec()

    @classmethod
    def symmetric(cls, delay_ns: int = 0, rate_bps: int | None = None, queue_frames: int | None = None) -> LinkSpec:
        """A link whose two directions are alike; arguments as for ``DirectionSpec``."""
        direction = DirectionSpec(delay_ns, rate_bps, queue_frames)
        return cls(a_to_b=direction, b_to_a=direction)

    @property
    def is_symmetric(self) -> bool:
        """Whether both directions are configured alike."""
        return self.a_to_b == self.b_to_a

    def reversed(self) -> LinkSpec:
        """The same link seen from its other end."""
        return LinkSpec(a_to_b=self.b_to_a, b_to_a=self.a_to_b)
