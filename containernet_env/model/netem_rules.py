"""Which links HTB and netem can carry out as configured, and why others are refused. Pure."""

from __future__ import annotations

from containernet_env.model.chance import IndependentLoss, Loss
from containernet_env.model.link import DirectionSpec

LEAST_NS = 2_000
"""The shortest delay and jitter: tc may report a shorter one as 0 (see ``tc.DELAY_TOLERANCE_NS``)."""


def refusal(direction: DirectionSpec) -> str | None:
    """Why HTB and netem cannot carry this out as configured; ``None`` where they can."""
    jitter, limited = direction.jitter, direction.rate_bps is not None
    if direction.seed is not None:
        return "a seed: the kernel's random numbers cannot be repeated"
    if 0 < direction.delay_ns < LEAST_NS or (jitter is not None and jitter.ns < LEAST_NS):
        return "a delay or a jitter below 2 us: tc counts in whole microseconds, and tells up to one too little"
    if jitter is not None and not jitter.reorder:
        return "jitter that keeps the order of frames: netem lets frames overtake each other; ask for reordering"
    if jitter is not None and limited:
        return "jitter with a bandwidth: the kernel would vary the delay before a frame has had its turn, not after"
    if needs_loss(direction.loss) and limited:
        return "loss with a bandwidth: the kernel would lose a frame before it has taken its time at the bandwidth"
    queue = direction.queue_frames is not None or direction.queue_bytes is not None
    if queue and not limited:
        return "a queue limit without a bandwidth: nothing ever waits"
    if direction.queue_bytes is not None and direction.queue_frames is not None:
        return "a queue limit in both frames and bytes"
    if limited and direction.uplink == "network" and not needed(direction):
        return "an uplink that waits in the network, without a delay: HTB holds the frames at their host"
    if limited and direction.uplink == "host" and needed(direction):
        return "an uplink that waits at the host, with a delay: netem takes the frames from their host before"
    return None


def needs_loss(loss: Loss | None) -> bool:
    """Whether frames are to be lost at all."""
    return loss is not None and loss != IndependentLoss(0.0)


def needed(direction: DirectionSpec) -> bool:
    """Whether a netem qdisc is needed: for a delay (jitter has one) or loss."""
    return direction.delay_ns > 0 or needs_loss(direction.loss)
