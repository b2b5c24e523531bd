"""Which links the original Containernet (its TCLink) cannot carry out. Pure: known before anything exists.

Its TCIntf makes HTB the root and netem the leaf of what an interface sends, as our own links by the kernel do, so all
that netem cannot do faithfully is refused for the same reasons.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from containernet_env.base.errors import UsageError
from containernet_env.model import netem_rules
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss
from containernet_env.model.link import DirectionSpec
from containernet_env.model.queues import queue_frames
from containernet_env.model.topology import Link

# TCIntf.bwParamMax: above it the original prints a message and leaves the link without any limit.
RATE_MAX_BPS = 1_000_000_000
# The queue of HTB without netem: the interface's own limit (DEFAULT_TX_QUEUE_LEN in net/ethernet/eth.c of Linux).
_INTERFACE_QUEUE_FRAMES = 1000
# TCIntf prints a loss as a percentage with five digits after the point.
_LOSS_DIGITS = 5


def refusal(direction: DirectionSpec) -> str | None:
    """Why its TCLink cannot carry this out as configured; ``None`` where it can."""
    if (reason := netem_rules.refusal(direction)) is not None:
        return reason
    if direction.rate_bps is not None and direction.rate_bps > RATE_MAX_BPS:
        return "a bandwidth above 1000 Mbit/s: it would ignore it and leave the link unlimited"
    if direction.jitter is not None and direction.jitter.distribution != "uniform":
        return f"{direction.jitter.distribution} jitter: it has no keyword for a distribution"
    if isinstance(direction.loss, GilbertElliottLoss):
        return "loss in bursts: it has no keyword for it"
    if isinstance(direction.loss, IndependentLoss):
        percent = direction.loss.ratio * 100
        if not math.isclose(percent, round(percent, _LOSS_DIGITS)):
            return f"a loss of {percent:.10g} %: it writes {_LOSS_DIGITS} digits after the point"
    if direction.queue_bytes is not None:
        return "a queue limit in bytes: it has no keyword for it"
    if direction.overhead_bytes:
        return "an overhead of each frame: it has no keyword for it"
    if direction.queue_frames is not None and direction.delay_ns:
        return "a queue limit with a delay: its netem counts frames under way with those that wait"
    if direction.queue_frames is not None and direction.rate_bps is None:
        return "a queue limit without a bandwidth: nothing ever waits"
    return None


def needs_netem(direction: DirectionSpec) -> bool:
    """Whether netem is needed: for a delay, loss, and any limit of a queue, since its queues are netem's.

    Only what HTB holds by itself, the 1000 frames of an interface, needs none.
    """
    other = direction.rate_bps is not None and queue_frames(direction) != _INTERFACE_QUEUE_FRAMES
    return netem_rules.needed(direction) or direction.queue_frames is not None or other


def check(links: Iterable[Link], links_choice: str) -> None:
    """Raise one ``UsageError`` for all that the original cannot carry out of these links."""
    problems = []
    if links_choice == "emulator":
        problems.append("--links emulator: its links are the kernel's")
    for link in links:
        for sender, receiver, direction in ((link.a, link.b, link.spec.a_to_b), (link.b, link.a, link.spec.b_to_a)):
            if (reason := refusal(direction)) is not None:
                problems.append(f"from {sender} to {receiver}: {reason}")
    if problems:
        raise UsageError("the original Containernet cannot carry out:\n" + "\n".join(f"  {line}" for line in problems))
