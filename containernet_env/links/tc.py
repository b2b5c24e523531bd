"""Links carried out by the kernel: a veth pair with HTB (bandwidth) and netem (delay) on what each end sends.

HTB is the root and netem its leaf, so a frame first waits for its delay and then for its turn at the rate; it
arrives when a frame that waits for its turn first would. netem holds the frames of both waits in one queue: its
limit is the queue limit asked for plus room for all that the delay can hold at the rate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from containernet_env import netns
from containernet_env.errors import RunError
from containernet_env.links.base import ShapedLink, check_held
from containernet_env.links.spec import DirectionSpec, LinkSpec

DEFAULT_QUEUE_FRAMES = 1000
"""Frames that may wait for their turn where a spec leaves it open; netem's own default."""

MIN_FRAME_BYTES = 60
"""Smallest Ethernet frame without its checksum: as many fit into a delay as possible."""

# Without a rate nothing bounds what a delay holds but its sender: one million frames are 1.5 GB of full ones.
_UNLIMITED_RATE_FRAMES = 1_000_000
_ROOT, _CLASS, _LEAF = "1:", "1:1", "10:"
# tc keeps delays in ticks of 64 ns (PSCHED_SHIFT in linux/pkt_sched.h) and prints six digits of seconds.
DELAY_TOLERANCE_NS = 1_000
DELAY_TOLERANCE_RATIO = 1e-5
# tc prints a rate in the largest unit that leaves four digits or more, and cuts the rest off.
RATE_TOLERANCE_RATIO = 0.001
# HTB's classes have no JSON form in iproute2 6.1: the text is the only one that all versions print.
_HTB_CLASS = re.compile(r"^class htb (\S+) .*?\brate (\d+)([KMGT]?)bit ceil (\d+)([KMGT]?)bit", re.MULTILINE)
_RATE_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_MTU_BURST_BYTES = 1600
_BURST_S = 0.00025
_QUANTUM_MIN_BYTES, _QUANTUM_MAX_BYTES = 1514, 60_000


@dataclass(frozen=True, slots=True)
class End:
    """One end of a veth pair: its name, and a process in whose network namespace it is."""

    interface: str
    pid: int


def burst_bytes(rate_bps: int) -> int:
    """How much HTB may send at once: what 0.25 ms at the rate hold, and never less than a frame.

    A timer that wakes the queue late by up to that time then costs no bandwidth. At 1000 Mbit/s these are 31 kB.
    """
    return max(_MTU_BURST_BYTES, round(rate_bps / 8 * _BURST_S))


def delay_room_frames(direction: DirectionSpec) -> int:
    """How many frames the delay alone can hold."""
    if direction.delay_ns == 0:
        return 0
    if direction.rate_bps is None:
        return _UNLIMITED_RATE_FRAMES
    bits = direction.delay_ns * direction.rate_bps // 10**9
    return min(_UNLIMITED_RATE_FRAMES, -(-bits // (8 * MIN_FRAME_BYTES)))


def tc_commands(interface: str, direction: DirectionSpec) -> list[list[str]]:
    """Arguments of ``tc``, in order, that make what ``interface`` sends be like ``direction`` (from no qdisc)."""
    commands = []
    parent = ["root"]
    queue = direction.queue_frames or DEFAULT_QUEUE_FRAMES
    if direction.rate_bps is not None:
        rate = f"{direction.rate_bps}bit"
        burst = str(burst_bytes(direction.rate_bps))
        quantum = min(max(direction.rate_bps // 8 // 10, _QUANTUM_MIN_BYTES), _QUANTUM_MAX_BYTES)
        commands.append(["qdisc", "add", "dev", interface, "root", "handle", _ROOT, "htb", "default", "1"])
        commands.append(
            [
                *["class", "add", "dev", interface, "parent", _ROOT, "classid", _CLASS, "htb"],
                *["rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", str(quantum)],
            ]
        )
        parent = ["parent", _CLASS]
    if direction.delay_ns:
        limit = queue + delay_room_frames(direction)
        commands.append(
            [
                *["qdisc", "add", "dev", interface, *parent, "handle", _LEAF, "netem"],
                *["limit", str(limit), "delay", f"{direction.delay_ns / 1000:.3f}us"],
            ]
        )
    elif direction.rate_bps is not None:
        commands.append(["qdisc", "add", "dev", interface, *parent, "handle", _LEAF, "pfifo", "limit", str(queue)])
    elif direction.queue_frames is not None:
        raise RunError(f"{interface}: a queue limit means nothing without a bandwidth: nothing ever waits")
    return commands


def direction_from_tc(qdiscs: Sequence[Mapping[str, Any]], classes: str) -> DirectionSpec:
    """What ``tc -j qdisc show`` (parsed) and ``tc class show`` (text) say of one interface, as a spec.

    Raises ``RunError`` for anything that is not of the form that ``tc_commands`` makes.
    """
    rate_bps: int | None = None
    delay_ns = 0
    limit: int | None = None
    for qdisc in qdiscs:
        kind, options = qdisc.get("kind"), qdisc.get("options", {})
        if kind == "htb":
            rate_bps = _class_rate_bps(classes)
        elif kind == "netem":
            delay_ns = _netem_delay_ns(options)
            limit = int(options["limit"])
        elif kind == "pfifo":
            limit = int(options["limit"])
        elif kind != "noqueue":
            raise RunError(f"an unknown queueing discipline is in the way: {kind}")
    held = DirectionSpec(delay_ns, rate_bps)
    if limit is None:
        return held
    return DirectionSpec(delay_ns, rate_bps, max(1, limit - delay_room_frames(held)))


def _class_rate_bps(classes: str) -> int:
    found = _HTB_CLASS.findall(classes)
    if len(found) != 1 or found[0][0] != _CLASS or found[0][1:3] != found[0][3:5]:
        raise RunError(f"the HTB class {_CLASS} is not as it was made: {classes.strip()!r}")
    return int(found[0][1]) * _RATE_UNITS[found[0][2]]


def _netem_delay_ns(options: Mapping[str, Any]) -> int:
    extra = {"loss-random", "duplicate", "corrupt", "reorder", "rate", "slot"} & set(options)
    delay = options.get("delay", {"delay": 0, "jitter": 0})
    if extra or delay.get("jitter"):
        raise RunError(f"netem holds more than was asked: {dict(options)}")
    return round(float(delay["delay"]) * 1e9)  # tc prints seconds


def _tc(end: End, *words: str) -> str:
    return netns.run(end.pid, ["tc", *words]).stdout


def apply_direction(end: End, direction: DirectionSpec) -> None:
    """Make what ``end`` sends be like ``direction``, whatever it was like before."""
    if any(qdisc.get("root") and qdisc.get("kind") != "noqueue" for qdisc in _qdiscs(end)):
        _tc(end, "qdisc", "delete", "dev", end.interface, "root")
    for command in tc_commands(end.interface, direction):
        _tc(end, *command)


def read_direction(end: End) -> DirectionSpec:
    """What the kernel holds for what ``end`` sends."""
    return direction_from_tc(_qdiscs(end), _tc(end, "class", "show", "dev", end.interface))


def _qdiscs(end: End) -> list[dict[str, Any]]:
    output = _tc(end, "-j", "qdisc", "show", "dev", end.interface)
    return list(json.loads(output)) if output.strip() else []


class VethLink(ShapedLink):
    """A veth pair between two namespaces; ``end1`` and ``end2`` belong to ``intf1`` and ``intf2``."""

    def __init__(self, name: str, end1: End, end2: End, spec: LinkSpec) -> None:
        super().__init__(name, spec)
        self.end1, self.end2 = end1, end2
        self._made = False

    def make(self, mac1: str, mac2: str, mtu: int) -> None:
        """Create the pair, each end where it belongs: neither is ever seen in the machine's own namespace."""
        one, two = self.end1, self.end2
        self._made = True
        netns.ip_batch(
            one.pid,
            [
                f"link add name {one.interface} address {mac1} mtu {mtu} "
                f"type veth peer name {two.interface} address {mac2} mtu {mtu} netns {two.pid}"
            ],
        )

    def apply(self, spec: LinkSpec) -> None:
        """See ``LinkImplementation``; raises at the first ``tc`` error."""
        apply_direction(self.end1, spec.a_to_b)
        apply_direction(self.end2, spec.b_to_a)
        longest_ns = max(spec.a_to_b.delay_ns, spec.b_to_a.delay_ns)
        told_ns = max(DELAY_TOLERANCE_NS, round(longest_ns * DELAY_TOLERANCE_RATIO))
        check_held(self.name, spec, self.read_back(), told_ns, RATE_TOLERANCE_RATIO)
        self.spec = spec

    def read_back(self) -> LinkSpec:
        """See ``LinkImplementation``."""
        return LinkSpec(read_direction(self.end1), read_direction(self.end2))

    def set_up(self, up: bool) -> None:
        """See ``ShapedLink``: the second end is set down, the first loses its carrier and keeps its addresses."""
        netns.ip_batch(self.end2.pid, [f"link set dev {self.end2.interface} {'up' if up else 'down'}"])

    def clear(self) -> None:
        """See ``LinkImplementation``: one end takes the other with it."""
        if not self._made:
            return
        self._made = False
        for end in (self.end1, self.end2):
            try:
                netns.ip_batch(end.pid, [f"link delete dev {end.interface}"])
                return
            except RunError as error:
                # Gone with its namespace, or with the other end.
                if "Cannot find device" not in str(error) and "cannot enter the network namespace" not in str(error):
                    raise
