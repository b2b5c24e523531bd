"""What is asked of a link, free of how it is carried out: values that every implementation understands."""

from __future__ import annotations

from dataclasses import dataclass


def _check_int(name: str, value: object, minimum: int) -> None:
    # bool is an int to Python, but True is no number of nanoseconds.
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be {minimum} or more, got {value}")


@dataclass(frozen=True, slots=True)
class DirectionSpec:
    """One direction of a link, from the end that sends to the end that receives.

    ``delay_ns``: propagation delay in nanoseconds, 0 or more, added after a frame's last bit has been sent.
    ``rate_bps``: bits per second of whole Ethernet frames (header included, no preamble or checksum), more
    than 0; ``None`` is unlimited. ``queue_frames``: how many frames may wait to be sent, 1 or more; ``None``
    leaves it to the implementation's documented default.

    Raises ``ValueError`` for a value outside these ranges, ``TypeError`` for one that is not an ``int``.
    """

    delay_ns: int = 0
    rate_bps: int | None = None
    queue_frames: int | None = None

    def __post_init__(self) -> None:
        _check_int("delay_ns", self.delay_ns, minimum=0)
        if self.rate_bps is not None:
            _check_int("rate_bps", self.rate_bps, minimum=1)
        if self.queue_frames is not None:
            _check_int("queue_frames", self.queue_frames, minimum=1)

    def serialization_ns(self, frame_bytes: int) -> int:
        """Nanoseconds to send ``frame_bytes`` (0 or more) at this rate, rounded up; 0 if unlimited."""
        _check_int("frame_bytes", frame_bytes, minimum=0)
        if self.rate_bps is None:
            return 0
        bit_ns = frame_bytes * 8 * 1_000_000_000
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
        """Whether both directions are asked to be alike."""
        return self.a_to_b == self.b_to_a

    def reversed(self) -> LinkSpec:
        """The same link seen from its other end."""
        return LinkSpec(a_to_b=self.b_to_a, b_to_a=self.a_to_b)
