"""The queue of a host's network card, on its TAP: frames wait at the host for their turn, as with real hardware.

A TAP counts a frame as sent once it is in its ring, whatever the link behind it can carry. Without a queue of its own
the host would see no backpressure: TCP Small Queues (tcp_limit_output_bytes in ip-sysctl.rst) would not act, and a flow
would fill the queue of the link behind its own network card. docs/adr/0014 has the figures.
"""

from __future__ import annotations

import re
from dataclasses import replace

from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.hosts import netns
from containernet_env.model.link import RATE_MAX_BPS, DirectionSpec, LinkSpec
from containernet_env.model.queues import FULL_FRAME_BYTES, queue_frames
from containernet_env.network.interface import Interface
from containernet_env.network.kernel.tc import (
    RATE_TOLERANCE_RATIO,
    apply_direction,
    qdisc_counters,
    read_direction,
)
from containernet_env.network.link import check_held

_NOTHING = DirectionSpec()
_AT_ONCE_S = 0.0001
_MOST_AT_ONCE = 43
"""Full segments in the 64 KiB that TCP hands over at most."""
# Of what is released the frames that wait leave at once; without a queueing discipline they would be lost.
_RELEASED = DirectionSpec(rate_bps=RATE_MAX_BPS)


def held_at_host(direction: DirectionSpec) -> DirectionSpec:
    """The part of ``direction``, on which a host sends, that is held at the host: rate, overhead and queue.

    Nothing of a direction with a limit in both frames and bytes: no queue of the kernel's has two. Where several
    segments pass as one packet, HTB would count an overhead once for all of them: there the rate is that of full frames
    without their overhead. Smaller frames then wait behind the host for what is missing, where each has its overhead.
    """
    if direction.rate_bps is None or direction.uplink == "network":
        return _NOTHING
    at_host = DirectionSpec(rate_bps=direction.rate_bps, overhead_bytes=direction.overhead_bytes)
    if direction.overhead_bytes and segments_at_once(at_host) > 1:
        on_the_link = FULL_FRAME_BYTES + direction.overhead_bytes
        at_host = DirectionSpec(rate_bps=direction.rate_bps * FULL_FRAME_BYTES // on_the_link)
    if direction.queue_bytes is None:
        return replace(at_host, queue_frames=queue_frames(direction))
    return _NOTHING if direction.queue_frames is not None else replace(at_host, queue_bytes=direction.queue_bytes)


def segments_at_once(direction: DirectionSpec) -> int:
    """How many segments of a flow may pass HTB and its queue as one packet, 1 or more.

    Of up to 64 KiB, as TCP would have it, another frame would wait for 52 ms at 10 Mbit/s, and a queue would take them
    for one frame. More than one saves the sender's CPU time at high rates.
    """
    if direction.rate_bps is None:
        return 1
    return min(max(1, int(direction.rate_bps / 8 * _AT_ONCE_S / FULL_FRAME_BYTES)), _MOST_AT_ONCE)


class Uplink:
    """What holds frames back at the host's end of a link: HTB and a queue on its TAP.

    Raises ``RunError``, and ``MissingRequirementError`` where the kernel has no HTB.
    """

    def __init__(self, end: Interface) -> None:
        self.end = end
        self._held: DirectionSpec | None = _NOTHING
        self._counted_from = 0

    def apply(self, direction: DirectionSpec) -> None:
        """Hold back what ``direction`` asks for from now on; frames that wait stay. ``holds`` checks it."""
        wanted, held = held_at_host(direction), self._held
        if wanted == _NOTHING != held:
            wanted = _RELEASED
        if wanted == held:
            return
        self._held = None  # until it is known to be as wanted
        if wanted != _RELEASED:
            # Sockets keep what they found when they connected.
            segments = segments_at_once(wanted)
            netns.ip_batch(self.end.pid, [f"link set dev {self.end.name} gso_max_segs {segments}"])
        try:
            apply_direction(self.end, wanted, held)
        except RunError as error:
            # As the kernel says it, and as older versions of tc say it for the kernel.
            if not re.search("kind is unknown|Unknown qdisc|No such file", str(error)):
                raise
            raise MissingRequirementError(
                "this kernel has no HTB (sch_htb), in which frames of a host wait for their turn",
                'Load the module, or give every link "uplink": "network" in the topology file (docs/config.md).',
            ) from error
        self._held = wanted

    def holds(self) -> bool:
        """Whether frames wait here, as the kernel says. Raises ``RunError`` where it holds something else."""
        held = read_direction(self.end)
        asked = LinkSpec(self._held or _NOTHING)
        check_held(f"at {self.end.alias or self.end.name}", asked, LinkSpec(held), 0, RATE_TOLERANCE_RATIO)
        return held.rate_bps not in (None, RATE_MAX_BPS)

    def counters(self, *, reset: bool = False) -> dict[str, int] | None:
        """``dropped``: frames lost at the full queue since ``reset`` was last given (after it was read); ``waiting``.

        ``None`` where they cannot be read, since the host has ended.
        """
        if self._held == _NOTHING:
            return {"dropped": 0, "waiting": 0}
        try:
            counted = qdisc_counters(self.end)
        except RunError:
            return None
        dropped = counted["drops"] - self._counted_from
        if reset:
            self._counted_from = counted["drops"]
        return {"dropped": dropped, "waiting": counted["qlen"]}
