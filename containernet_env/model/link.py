"""The configuration of a link, independent of its implementation: rate, delay, queue, and random effects on frames."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from typing import Literal, get_args

FULL_FRAME_BYTES = 1514
"""An Ethernet frame with 1500 bytes of payload as links count it: no checksum, preamble or gap."""

USUAL_MS = 250
"""The time that a queue holds at its rate, within ``USUAL_MIN_FRAMES`` and ``USUAL_MAX_FRAMES``."""

USUAL_MIN_FRAMES = 200
USUAL_MAX_FRAMES = 2_000
MAX_FRAMES = 100_000
"""The most: 151 MB of full frames, of the 512 MiB that the link emulator has for all links together."""

_UNLIMITED_FRAMES = 1_000
"""Without a rate nothing waits, but netem needs a limit: this is its default."""


def product_frames(rtt_ns: int, rate_bps: int, overhead_bytes: int = 0) -> int:
    """The bandwidth-delay product in full frames with their overhead, rounded up."""
    return -(-rtt_ns * rate_bps // (8 * 10**9 * (FULL_FRAME_BYTES + overhead_bytes)))


def default_frames(rtt_ns: int, rate_bps: int, overhead_bytes: int = 0) -> int:
    """The default limit of a link that sends at ``rate_bps`` and over which the longest round trip takes ``rtt_ns``.

    Full frames of 250 ms at the rate, from 200 to 2,000; never less than the bandwidth-delay product, which a
    loss-based TCP needs at most to keep the link busy (RFC 3439, section 2.2, names the rule); at most 100,000.
    ``model.DefaultQueueFrames`` of the link emulator computes the same. The reasons are in docs/adr/0011.
    """
    usual = min(max(product_frames(USUAL_MS * 10**6, rate_bps, overhead_bytes), USUAL_MIN_FRAMES), USUAL_MAX_FRAMES)
    return min(max(product_frames(rtt_ns, rate_bps, overhead_bytes), usual), MAX_FRAMES)


def queue_frames(direction: DirectionSpec) -> int:
    """How many frames may wait to be sent: as configured, as planned, or as if the other link had the same delay."""
    if direction.queue_frames is not None:
        return direction.queue_frames
    if direction.default_queue_frames is not None:
        return direction.default_queue_frames
    if direction.rate_bps is None:
        return _UNLIMITED_FRAMES
    return default_frames(4 * direction.delay_ns, direction.rate_bps, direction.overhead_bytes)


Distribution = Literal["uniform", "normal"]

DELAY_MAX_NS = 3600 * 10**9
"""The longest delay, an hour (the link emulator's bound, link_emulator/model/params.go)."""

CORRELATION_MAX_NS = 10 * DELAY_MAX_NS
"""The longest correlation time (the link emulator's bound)."""

LEAST_CORRELATION, USUAL_CORRELATION = 8, 10
"""The shortest correlation time with which frames keep their order, and the default one, in units of the jitter.

``leastCorrelation`` in link_emulator/model/params.go has the derivation.
"""

REACH = {"uniform": 1, "normal": 4}
"""How far a delay can be from its mean, in units of the jitter: where the distribution ends or is truncated."""


def check_int(name: str, value: object, low: int, high: int) -> None:
    """Raise ``TypeError`` unless ``value`` is an ``int``, ``ValueError`` unless it is from ``low`` to ``high``."""
    # bool is an int to Python, but True is no number of nanoseconds.
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be {low} to {high}, got {value}")


def _check_ratio(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be 0 to 1, got {value}")


@dataclass(frozen=True, slots=True)
class Jitter:
    """Variation of the delay.

    ``distribution``: ``uniform`` draws from delay - ``ns`` to delay + ``ns``; ``normal`` has the delay as its mean and
    ``ns`` as its standard deviation, truncated at four of them. ``ns``: 1 or more. ``reorder``: whether each frame
    draws a delay of its own, so that one with a short delay may overtake; otherwise the delay changes with time, so
    slowly that frames keep their order. ``correlation_ns`` sets how slowly: delays this far apart have a correlation of
    a third, twice as far none. 8 times ``ns`` or more; ``None`` is 10 times ``ns``; with ``reorder`` always ``None``.
    """

    distribution: Distribution
    ns: int
    reorder: bool = False
    correlation_ns: int | None = None

    def __post_init__(self) -> None:
        if self.distribution not in REACH:
            raise ValueError(f"distribution must be uniform or normal, got {self.distribution!r}")
        check_int("ns", self.ns, 1, DELAY_MAX_NS)
        if not isinstance(self.reorder, bool):
            raise TypeError(f"reorder must be a bool, got {self.reorder!r}")
        if self.correlation_ns is None:
            return
        if self.reorder:
            raise ValueError("correlation_ns goes with jitter that keeps order, not with reorder")
        check_int("correlation_ns", self.correlation_ns, LEAST_CORRELATION * self.ns, CORRELATION_MAX_NS)

    @property
    def reach_ns(self) -> int:
        """By how much a delay can differ from its mean, either way."""
        return REACH[self.distribution] * self.ns

    @property
    def held_correlation_ns(self) -> int:
        """The correlation time in force; 0 where each frame draws a delay of its own."""
        if self.reorder:
            return 0
        return USUAL_CORRELATION * self.ns if self.correlation_ns is None else self.correlation_ns

    @property
    def deviation_ns(self) -> float:
        """Standard deviation of the delay; truncating the normal distribution at four reduces it by a thousandth."""
        return self.ns / math.sqrt(3) if self.distribution == "uniform" else float(self.ns)


@dataclass(frozen=True, slots=True)
class IndependentLoss:
    """Each frame is lost with the probability ``ratio`` (0 to 1), independently of the others."""

    ratio: float
    model: Literal["independent"] = field(default="independent", init=False)

    def __post_init__(self) -> None:
        _check_ratio("ratio", self.ratio)
        object.__setattr__(self, "ratio", float(self.ratio))

    @property
    def mean_ratio(self) -> float:
        """The share of frames that is lost in the long run."""
        return self.ratio

    @property
    def correlation(self) -> float:
        """Correlation of the losses of two consecutive frames."""
        return 0.0


@dataclass(frozen=True, slots=True)
class GilbertElliottLoss:
    """Losses in bursts: a good and a bad state, each with a loss ratio of its own; all values are 0 to 1.

    A frame is lost with the loss ratio of the current state, then the state changes with the probability of leaving
    it; the first frame meets the good state (Elliott, Bell System Technical Journal 42, 1963).
    """

    good_to_bad_ratio: float
    bad_to_good_ratio: float
    good_loss_ratio: float = 0.0
    bad_loss_ratio: float = 1.0
    model: Literal["gilbert_elliott"] = field(default="gilbert_elliott", init=False)

    def __post_init__(self) -> None:
        for name in ("good_to_bad_ratio", "bad_to_good_ratio", "good_loss_ratio", "bad_loss_ratio"):
            _check_ratio(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def mean_ratio(self) -> float:
        """The share of frames that is lost in the long run."""
        changes = self.good_to_bad_ratio + self.bad_to_good_ratio
        bad = self.good_to_bad_ratio / changes if changes else 0.0
        return (1 - bad) * self.good_loss_ratio + bad * self.bad_loss_ratio

    @property
    def correlation(self) -> float:
        """Correlation of the states that two consecutive frames meet, at least 0."""
        return max(0.0, 1 - self.good_to_bad_ratio - self.bad_to_good_ratio)


Loss = IndependentLoss | GilbertElliottLoss


# The link emulator's bounds (link_emulator/model/params.go); no other implementation allows more.
RATE_MIN_BPS, RATE_MAX_BPS = 1000, 10**12
QUEUE_MAX_FRAMES = 1_000_000
QUEUE_MAX_BYTES = 10**10
SEED_MAX = 2**53 - 1
OVERHEAD_MAX_BYTES = 1000


def draw_seed() -> int:
    """A random seed."""
    return secrets.randbelow(SEED_MAX + 1)


Uplink = Literal["host", "network"]
"""Where a host's frames are queued for the rate: at the host, as at a real NIC, or in the network behind it."""


@dataclass(frozen=True, slots=True)
class DirectionSpec:
    """One direction of a link, from the end that sends to the end that receives.

    ``delay_ns``: propagation delay in nanoseconds, 0 to an hour, added after a frame's last bit has been sent.
    ``rate_bps``: bits per second of whole Ethernet frames (header included, no preamble or checksum), 1000 to 10^12;
    ``None`` is unlimited. ``overhead_bytes``: further bytes per frame at the rate, 0 to 1000 (24: preamble, checksum
    and gap of Ethernet); counters and queue limits do not include it. ``queue_frames``, ``queue_bytes``: how much may
    wait to be sent, 1 or more; where both are ``None`` it is the implementation's documented default. ``jitter`` and
    ``loss``: see there; ``None`` is none. ``seed``: determines the random draws, 0 to 2^53 - 1, together with the names
    of link and direction, so that directions with the same seed draw independently; ``None`` leaves it to the
    implementation. ``default_queue_frames``: replaces the implementation's default for a limit that is left open, as
    far as the implementation can hold one; ``None`` keeps that default. ``uplink``: of a direction that a host sends on
    with a rate, where its frames wait; ``None`` leaves it to the implementation. Other directions ignore it.

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

    @property
    def queue(self) -> tuple[int | None, int | None] | None:
        """The configured queue limit, in frames and in bytes; ``None`` if none is."""
        limit = self.queue_frames, self.queue_bytes
        return None if limit == (None, None) else limit

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
        """A link whose two directions are equal; arguments as for ``DirectionSpec``."""
        direction = DirectionSpec(delay_ns, rate_bps, queue_frames)
        return cls(a_to_b=direction, b_to_a=direction)

    @property
    def is_symmetric(self) -> bool:
        """Whether both directions are configured equally."""
        return self.a_to_b == self.b_to_a

    def reversed(self) -> LinkSpec:
        """The same link seen from its other end."""
        return LinkSpec(a_to_b=self.b_to_a, b_to_a=self.a_to_b)
