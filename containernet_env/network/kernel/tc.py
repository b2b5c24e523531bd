"""Links carried out by the kernel: a veth pair with HTB (bandwidth) and netem (delay) on what each end sends.

HTB is the root and netem its leaf, so a frame first waits for its delay and then for its turn at the rate; it
arrives when a frame that waits for its turn first would. Frames whose delay is over wait in a queue of their own, the
child of netem, whose limit is that of the link: the same as without a delay, and as on links by the emulator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from containernet_env.base import clock
from containernet_env.base.errors import RunError, UsageError
from containernet_env.hosts import netns
from containernet_env.model import netem_rules
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.link_statistics import since, veth_counters
from containernet_env.model.queues import queue_frames
from containernet_env.network.interface import Interface, delete_interface
from containernet_env.network.kernel import netem
from containernet_env.network.link import ShapedLink, check_held

# Only the delay and its sender bound what netem holds: one million full frames are 1.5 GB.
NETEM_LIMIT_FRAMES = 1_000_000
_NOTHING = DirectionSpec()
_ROOT, _CLASS = "1:", "1:1"
# A qdisc of another kind needs another handle to take the place of one.
_NETEM = "10:"
_FIFOS = {_CLASS: {"pfifo": "20:", "bfifo": "30:"}, f"{_NETEM}1": {"pfifo": "21:", "bfifo": "31:"}}
# tc 6.1 cuts a delay to whole microseconds, holds it in ticks of 64 ns (PSCHED_SHIFT in linux/pkt_sched.h) and prints
# that cut to whole microseconds again, with six digits: 1.5 ms is held as 1.499968 ms and printed as 0.001499.
DELAY_TOLERANCE_NS = 2_100
DELAY_TOLERANCE_RATIO = 1e-5
# tc prints a rate in the largest unit that leaves four digits or more, and cuts the rest off.
RATE_TOLERANCE_RATIO = 0.001
# HTB's classes have no JSON form in iproute2 6.1: the text is the only one that all versions print.
_HTB_CLASS = re.compile(
    r"^class htb (\S+) .*?\brate (\d+)([KMGT]?)bit (?:overhead (\d+) )?ceil (\d+)([KMGT]?)bit", re.MULTILINE
)
_RATE_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_MTU_BURST_BYTES = 1600
_BURST_S = 0.00025
_QUANTUM_MIN_BYTES, _QUANTUM_MAX_BYTES = 1514, 60_000


def burst_bytes(rate_bps: int) -> int:
    """How much HTB may send at once: what 0.25 ms at the rate hold, and never less than a frame.

    A timer that wakes the queue late by up to that time then costs no bandwidth. At 1000 Mbit/s these are 31 kB.
    """
    return max(_MTU_BURST_BYTES, round(rate_bps / 8 * _BURST_S))


def tc_commands(interface: str, direction: DirectionSpec) -> list[list[str]]:
    """Arguments of ``tc``, in order, that make what ``interface`` sends be like ``direction`` (from no qdisc).

    Raises ``UsageError`` for what HTB and netem cannot carry out.
    """
    if (refusal := netem_rules.refusal(direction)) is not None:
        raise UsageError(f"{interface}: HTB and netem cannot carry out {refusal}; the link emulator can")
    commands = []
    parent, place = "root", ["root"]
    if direction.rate_bps is not None:
        rate = f"{direction.rate_bps}bit"
        burst = str(burst_bytes(direction.rate_bps))
        quantum = min(max(direction.rate_bps // 8 // 10, _QUANTUM_MIN_BYTES), _QUANTUM_MAX_BYTES)
        overhead = ["overhead", str(direction.overhead_bytes)] if direction.overhead_bytes else []
        commands.append(["qdisc", "add", "dev", interface, "root", "handle", _ROOT, "htb", "default", "1"])
        commands.append(
            [
                *["class", "add", "dev", interface, "parent", _ROOT, "classid", _CLASS, "htb"],
                *["rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", str(quantum), *overhead],
            ]
        )
        parent, place = _CLASS, ["parent", _CLASS]
    if netem_rules.needed(direction):
        commands.append(
            [
                *["qdisc", "add", "dev", interface, *place, "handle", _NETEM, "netem"],
                *["limit", str(NETEM_LIMIT_FRAMES), *netem.options(direction)],
            ]
        )
        parent = f"{_NETEM}1"
    if direction.rate_bps is not None:
        limit, kind = (queue_frames(direction), "pfifo")
        if direction.queue_bytes is not None:
            limit, kind = direction.queue_bytes, "bfifo"
        handle = _FIFOS[parent][kind]
        commands.append(
            ["qdisc", "add", "dev", interface, "parent", parent, "handle", handle, kind, "limit", str(limit)]
        )
    return commands


def direction_from_tc(
    qdiscs: Sequence[Mapping[str, Any]],
    classes: str,
    asked: DirectionSpec = _NOTHING,
    class_id: str = _CLASS,
    netem_limit: int = NETEM_LIMIT_FRAMES,
    netem_queue_frames: int | None = None,
) -> DirectionSpec:
    """What ``tc -j qdisc show`` (parsed) and ``tc class show`` (text) say of one interface, as a spec.

    ``asked`` is taken for the distribution of a jitter, which the kernel does not tell. ``class_id`` is that of HTB's
    only class, ``netem_limit`` what netem is to hold, and ``netem_queue_frames`` the part of it that is the queue's.
    Raises ``RunError`` for anything that is not of the form that ``tc_commands`` makes.
    """
    held = DirectionSpec()
    for qdisc in qdiscs:
        kind, options = qdisc.get("kind"), qdisc.get("options", {})
        if kind == "htb":
            rate_bps, overhead_bytes = _class_rate(classes, class_id)
            held = replace(held, rate_bps=rate_bps, overhead_bytes=overhead_bytes)
        elif kind == "netem":
            delay_ns, jitter, loss = netem.held(options, asked.jitter)
            if int(options["limit"]) != netem_limit:
                raise RunError(f"a netem with a limit of {options['limit']} frames is not one that was asked for")
            held = replace(held, delay_ns=delay_ns, jitter=jitter, loss=loss)
            if netem_queue_frames is not None:
                held = replace(held, queue_frames=netem_queue_frames)
        elif kind == "pfifo":
            held = replace(held, queue_frames=int(options["limit"]))
        elif kind == "bfifo":
            held = replace(held, queue_bytes=int(options["limit"]))
        elif kind != "clsact" and not _is_default(qdisc):  # clsact: a partition's
            raise RunError(f"an unknown queueing discipline is in the way: {kind}")
    return held


def _is_default(qdisc: Mapping[str, Any]) -> bool:
    """Whether the kernel gave it to the interface by itself: those have no handle."""
    return bool(qdisc.get("handle") == "0:")


def delay_tolerance_ns(delay_ns: int) -> int:
    """By how much tc may print another delay than the one it was given."""
    return max(DELAY_TOLERANCE_NS, round(delay_ns * DELAY_TOLERANCE_RATIO))


def _class_rate(classes: str, class_id: str) -> tuple[int, int]:
    """Rate and overhead (bytes) of the only class."""
    found = _HTB_CLASS.findall(classes)
    if len(found) != 1 or found[0][0] != class_id or found[0][1:3] != found[0][4:6]:
        raise RunError(f"the HTB class {class_id} is not as it was made: {classes.strip()!r}")
    _, rate, unit, overhead, *_ = found[0]
    return int(rate) * _RATE_UNITS[unit], int(overhead or 0)


def _tc(end: Interface, *words: str) -> str:
    return netns.run(end.pid, ["tc", *words]).stdout


def apply_direction(end: Interface, direction: DirectionSpec, held: DirectionSpec | None = None) -> None:
    """Make what ``end`` sends be like ``direction``; ``held`` is what it is like, ``None`` where that is not known."""
    commands = tc_commands(end.name, direction)
    changes = netem.in_place(tc_commands(end.name, held), commands) if held is not None else None
    if changes is None:
        if held != _NOTHING:
            clear_direction(end)
        changes = commands
    if changes:
        batch = "".join(f"{' '.join(command)}\n" for command in changes)
        netns.run(end.pid, ["tc", "-batch", "-"], input=batch)


def clear_direction(end: Interface) -> None:
    """Take whatever shapes what ``end`` sends away; frames that wait in it are lost."""
    if any(qdisc.get("root") and not _is_default(qdisc) for qdisc in _qdiscs(end)):
        _tc(end, "qdisc", "delete", "dev", end.name, "root")


def read_direction(end: Interface, asked: DirectionSpec = _NOTHING, **made: Any) -> DirectionSpec:
    """What the kernel holds for what ``end`` sends; ``asked``, ``made``: see ``direction_from_tc``."""
    return direction_from_tc(_qdiscs(end), _tc(end, "class", "show", "dev", end.name), asked, **made)


def qdisc_counters(end: Interface) -> Mapping[str, Any]:
    """Counters of the root of what shapes what ``end`` sends, as ``tc -s -j qdisc show`` has them."""
    return next(qdisc for qdisc in _qdiscs(end, "-s") if qdisc.get("root"))


def _qdiscs(end: Interface, *options: str) -> list[dict[str, Any]]:
    output = _tc(end, *options, "-j", "qdisc", "show", "dev", end.name)
    return list(json.loads(output)) if output.strip() else []


class VethLink(ShapedLink):
    """See ``ShapedLink``: a veth pair between two namespaces."""

    def __init__(self, name: str, ends: tuple[Interface, Interface], spec: LinkSpec) -> None:
        super().__init__(name, ends, spec)
        self._interfaces = ends
        self._applied = False
        self._counted_from: dict[str, dict[str, Any]] = {}

    def make(self) -> None:
        """See ``ShapedLink``: neither end is ever seen in the machine's own namespace, unless it belongs there.

        One segment at a time goes over it: netem would delay, lose and count up to 64 KiB of a flow as one frame.
        """
        one, two = self._interfaces
        self.made = True
        netns.ip_batch(
            one.pid,
            [
                f"link add name {one.name} address {one.mac} mtu {one.mtu_bytes} gso_max_segs 1 type veth "
                f"peer name {two.name} address {two.mac} mtu {two.mtu_bytes} gso_max_segs 1 netns {two.pid}"
            ],
        )

    def apply(self, spec: LinkSpec) -> int:
        """See ``ShapedLink``; raises at the first ``tc`` error.

        One direction after the other, some milliseconds apart; the time is when both had changed. Frames that wait or
        travel stay unless a qdisc of another kind is needed. Where ``tc`` fails, the link is made as it was before.
        """
        held = self.spec if self._applied else None
        for end, direction in zip(self._interfaces, (spec.a_to_b, spec.b_to_a), strict=True):
            tc_commands(end.name, direction)  # refuses before anything is changed
        self._applied = False
        try:
            self._apply(spec, held)
        except RunError:
            if held is not None:
                self._apply(held, None)
                self._applied = True
            raise
        at_ns = clock.monotonic_ns()
        self.spec = spec
        self.check()
        self._applied = True
        return at_ns

    def _apply(self, spec: LinkSpec, held: LinkSpec | None) -> None:
        one, two = self._interfaces
        apply_direction(one, spec.a_to_b, held.a_to_b if held is not None else None)
        apply_direction(two, spec.b_to_a, held.b_to_a if held is not None else None)

    def check(self) -> None:
        """Raise ``RunError`` unless the kernel holds what was last asked for."""
        longest_ns = max(self.spec.a_to_b.delay_ns, self.spec.b_to_a.delay_ns)
        check_held(self.name, self.spec, self.read_back(), delay_tolerance_ns(longest_ns), RATE_TOLERANCE_RATIO)

    def read_back(self) -> LinkSpec:
        """See ``ShapedLink``; but what the kernel does not tell is as asked (see ``direction_from_tc``)."""
        one, two = self._interfaces
        return LinkSpec(read_direction(one, self.spec.a_to_b), read_direction(two, self.spec.b_to_a))

    def reset_counters(self) -> None:
        """Let ``statistics`` count from now on."""
        self._counted_from = {}
        now = self.statistics()
        self._counted_from = {side: now[side] for side in ("a_to_b", "b_to_a")}

    def statistics(self) -> dict[str, Any]:
        """See ``ShapedLink``."""
        counters: dict[str, Any] = {}
        up = True
        for side, end in zip(("a_to_b", "b_to_a"), self._interfaces, strict=True):
            output = netns.run(end.pid, ["ip", "-s", "-j", "link", "show", "dev", end.name]).stdout
            shown = next(entry for entry in json.loads(output) if entry)
            up = up and "LOWER_UP" in shown["flags"]
            now = veth_counters(shown, _qdiscs(end, "-s"))
            counters[side] = since(self._counted_from[side], now) if side in self._counted_from else now
        return {"up": up, **counters}

    def set_up(self, up: bool) -> int:
        """See ``ShapedLink``: the second end is set down, the first loses its carrier and keeps its addresses."""
        self._interfaces[1].set_up(up)
        return clock.monotonic_ns()

    def clear(self) -> None:
        """See ``ShapedLink``: one end takes the other with it."""
        if not self.made:
            return
        self.made = self._applied = False
        for end in self._interfaces:
            try:
                if delete_interface(end.pid, end.name):
                    return
            except netns.ProcessGoneError:
                continue  # gone with its namespace
