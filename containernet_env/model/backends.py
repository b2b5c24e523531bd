"""The implementations of hosts, links and switches that a user may choose, and which links each supports. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, get_args

from containernet_env.base.errors import UsageError
from containernet_env.model.link import (
    FULL_FRAME_BYTES,
    DirectionSpec,
    GilbertElliottLoss,
    IndependentLoss,
    Link,
    Loss,
    queue_frames,
)

EngineChoice = Literal["builtin", "containernet"]
LinksChoice = Literal["auto", "netem", "emulator"]
LinksKind = Literal["netem", "emulator"]
SwitchesChoice = Literal["auto", "ovs", "bridge"]
SwitchKind = Literal["emulator", "ovs", "bridge"]
ProfileKind = Literal["cpu", "allocs", "mutex"]


def check_choices(links: str, switches: str, engine: str = "builtin") -> None:
    """Raise ``UsageError`` for choices that do not exist or contradict each other; does not check the machine."""
    for name, choice, choices in (
        ("links", links, get_args(LinksChoice)),
        ("switches", switches, get_args(SwitchesChoice)),
        ("engine", engine, get_args(EngineChoice)),
    ):
        if choice not in choices:
            raise UsageError(f"{name}={choice!r}; allowed: {', '.join(choices)}")
    if switches != "auto" and links != "netem" and engine == "builtin":
        own = "the link emulator has switches of its own; allowed: switches='auto', or links='netem'"
        raise UsageError(f"switches={switches!r} with links={links!r}: {own}")


LEAST_NS = 2_000
"""The shortest delay and jitter: tc may report a shorter one as 0 (see ``tc.DELAY_TOLERANCE_NS``)."""


def netem_refusal(direction: DirectionSpec) -> str | None:
    """Why HTB and netem do not support this direction; ``None`` if they do."""
    jitter, limited = direction.jitter, direction.rate_bps is not None
    if direction.trace is not None:
        return "a trace: netem has one rate and one delay until tc changes them, which takes effect some time later"
    if direction.seed is not None:
        return "a seed: the kernel's random numbers cannot be repeated"
    if 0 < direction.delay_ns < LEAST_NS or (jitter is not None and jitter.ns < LEAST_NS):
        return "a delay or a jitter below 2 us: tc counts in whole microseconds, and reports up to one too little"
    if direction.duplication_ratio:
        return (
            "duplication: the kernel would send the second frame from the host once more, with its bandwidth and delay"
        )
    if direction.corruption_ratio:
        return "corruption: the kernel would also flip bits of Ethernet headers"
    if direction.aqm is not None:
        return "a queue discipline: what waits for the bandwidth is first in, first out there"
    if jitter is not None and not jitter.reorder:
        return "jitter that keeps the order of frames: netem reorders frames; set reordering"
    if jitter is not None and limited:
        return "jitter with a bandwidth: the kernel would vary the delay before a frame leaves the queue, not after"
    if needs_loss(direction.loss) and limited:
        return "loss with a bandwidth: the kernel would drop a frame before it uses its share of the bandwidth"
    queue = direction.queue_frames is not None or direction.queue_bytes is not None
    if queue and not limited:
        return "a queue limit without a bandwidth: no frame ever waits"
    if direction.queue_bytes is not None and direction.queue_frames is not None:
        return "a queue limit in both frames and bytes"
    if limited and direction.uplink == "network" and not needed(direction):
        return "an uplink that waits in the network, without a delay: HTB holds the frames at their host"
    if limited and direction.uplink == "host" and needed(direction):
        return "an uplink that waits at the host, with a delay: netem takes the frames from their host first"
    return None


def needs_loss(loss: Loss | None) -> bool:
    return loss is not None and loss != IndependentLoss(0.0)


def needed(direction: DirectionSpec) -> bool:
    """Whether a netem qdisc is needed: for a delay (jitter has one) or loss."""
    return direction.delay_ns > 0 or needs_loss(direction.loss)


# TCIntf.bwParamMax: above it the original prints a message and leaves the link without any limit.
KERNEL_RATE_MAX_BPS = 1_000_000_000
# The queue of HTB without netem: the interface's own limit (DEFAULT_TX_QUEUE_LEN in net/ethernet/eth.c of Linux).
_INTERFACE_QUEUE_FRAMES = 1000
# TCIntf prints a loss as a percentage with five digits after the point.
_LOSS_DIGITS = 5


def containernet_refusal(direction: DirectionSpec) -> str | None:
    """Why the original's TCLink does not support this direction; ``None`` if it does."""
    if (reason := netem_refusal(direction)) is not None:
        return reason
    if direction.rate_bps is not None and direction.rate_bps > KERNEL_RATE_MAX_BPS:
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
        return "a queue limit with a delay: its netem counts frames under way as queued frames"
    if direction.queue_frames is not None and direction.rate_bps is None:
        return "a queue limit without a bandwidth: no frame ever waits"
    return None


def needs_netem(direction: DirectionSpec) -> bool:
    """Whether netem is needed: for a delay, loss, and any limit of a queue, since its queues are netem's.

    Only HTB's own queue, the 1000 frames of an interface, needs none.
    """
    other = direction.rate_bps is not None and queue_frames(direction) != _INTERFACE_QUEUE_FRAMES
    return needed(direction) or direction.queue_frames is not None or other


def check(links: Iterable[Link], links_choice: str) -> None:
    """Raise one ``UsageError`` for all settings of these links that the original does not support."""
    problems = []
    if links_choice == "emulator":
        problems.append("--links emulator: its links are the kernel's")
    for link in links:
        for hop in link.hops:
            if (reason := containernet_refusal(hop.spec)) is not None:
                problems.append(f"from {hop.sender} to {hop.receiver}: {reason}")
    if problems:
        raise UsageError("the original Containernet does not support:\n" + "\n".join(f"  {line}" for line in problems))


# Of the link emulator: emulator.DefaultBufferBytes, the reserve for other frame sizes (framepool.shares), and
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
    most_bps = direction.fastest.rate_bps or direction.rate_bps
    travelling = -(-direction.longest_delay_ns * most_bps // (FULL_FRAME_BYTES * 8 * 10**9))
    return (waiting + 1 + travelling) * _PLACE_BYTES


def frame_memory_note(directions: Iterable[DirectionSpec]) -> str | None:
    """A warning if the queues and wires of all ``directions`` together can exceed the emulator's memory."""
    held = sum(most_held_bytes(direction) for direction in directions)
    if held <= FRAME_MEMORY_BYTES:
        return None
    megabytes = 1024 * 1024
    return (
        f"queues and wires of the links can hold {held // megabytes} MiB of full frames, the link emulator has "
        f"{FRAME_MEMORY_BYTES // megabytes} MiB: frames beyond that are lost, and reported after the scenario; "
        "smaller queues fit"
    )
