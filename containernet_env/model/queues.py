"""Default queue limits: how much may wait to be sent where a config leaves it open. Pure."""

from __future__ import annotations

from containernet_env.model.link import DirectionSpec

FULL_FRAME_BYTES = 1514
"""An Ethernet frame with 1500 bytes of payload as links count it: no checksum, preamble or gap."""

USUAL_MS = 250
"""What a queue holds at its rate, within ``USUAL_MIN_FRAMES`` and ``USUAL_MAX_FRAMES``."""

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
    ``model.DefaultQueueFrames`` of the link emulator computes the same. docs/adr/0011 says why.
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
