"""The most frame memory of the link emulator that the links of a topology can need."""

from __future__ import annotations

from collections.abc import Iterable

from containernet_env.model.link import DirectionSpec
from containernet_env.model.queues import FULL_FRAME_BYTES, queue_frames

# Of the link emulator: emulator.DefaultBufferBytes, what is reserved for other sizes of frames (framepool.shares), and
# the memory that a full frame takes (framepool.sizes).
_LIMIT_BYTES = 512 * 1024 * 1024
_SHARES = 16
_OTHER_SIZES = 3
_PLACE_BYTES = 2048

FRAME_MEMORY_BYTES = _LIMIT_BYTES - _OTHER_SIZES * (_LIMIT_BYTES // _SHARES)
"""The memory available to full frames."""


def most_held_bytes(direction: DirectionSpec) -> int:
    """Memory of the full frames that wait in a full queue and travel on a full wire; 0 without a rate: none wait."""
    if direction.rate_bps is None:
        return 0
    limits = [direction.queue_frames] if direction.queue_frames is not None else []
    limits += [direction.queue_bytes // FULL_FRAME_BYTES] if direction.queue_bytes is not None else []
    waiting = min(limits, default=queue_frames(direction))
    reach_ns = direction.jitter.reach_ns if direction.jitter is not None else 0
    travelling = -(-(direction.delay_ns + reach_ns) * direction.rate_bps // (FULL_FRAME_BYTES * 8 * 10**9))
    return (waiting + 1 + travelling) * _PLACE_BYTES


def frame_memory_note(directions: Iterable[DirectionSpec]) -> str | None:
    """A line of warning where the queues and wires of all ``directions`` together can hold more than there is."""
    held = sum(most_held_bytes(direction) for direction in directions)
    if held <= FRAME_MEMORY_BYTES:
        return None
    megabytes = 1024 * 1024
    return (
        f"queues and wires of the links can hold {held // megabytes} MiB of full frames, the link emulator has "
        f"{FRAME_MEMORY_BYTES // megabytes} MiB: what finds no room is lost, and told after the scenario; "
        "smaller queues fit"
    )
