"""Links carried out by the kernel: a veth pair with HTB (bandwidth) and netem (delay); partitions of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from containernet_env.base import clock
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.hosts import netns
from containernet_env.model import backends
from containernet_env.model.link import (
    FULL_FRAME_BYTES,
    LINK_RATE_MAX_BPS,
    DirectionSpec,
    GilbertElliottLoss,
    IndependentLoss,
    Jitter,
    LinkSpec,
    Loss,
    queue_frames,
)
from containernet_env.model.usage import SIDES, since, veth_counters
from containernet_env.network.interface import Interface, delete_interface
from containernet_env.network.link import Fabric, ShapedLink, check_held, counters_of

_NEVER_SET = frozenset({"loss-state", "duplicate", "corrupt", "reorder", "rate", "slot"})


def options(direction: DirectionSpec) -> str:
    """netem's options for ``tc``, each after a space, without its limit."""
    jitter, loss, text = direction.jitter, direction.loss, ""
    if direction.delay_ns:
        text += f" delay {direction.delay_ns / 1000:.3f}us"
    if jitter is not None:
        # Without a table the kernel draws uniformly; tc's table is cut at four standard deviations, as specified.
        text += f" {jitter.ns / 1000:.3f}us{' distribution normal' if jitter.distribution == 'normal' else ''}"
    if isinstance(loss, GilbertElliottLoss):
        ratios = (loss.good_to_bad_ratio, loss.bad_to_good_ratio, loss.bad_loss_ratio, loss.good_loss_ratio)
        text += f" loss gemodel {' '.join(map(_percent, ratios))}"
    elif loss is not None and loss.ratio > 0:
        text += f" loss random {_percent(loss.ratio)}"
    return text


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.10f}".rstrip("0").rstrip(".") + "%"


def netem_held(options: Mapping[str, Any], configured: Jitter | None) -> tuple[int, Jitter | None, Loss | None]:
    """Delay (ns), jitter and loss of a netem qdisc, from the output of ``tc -j``.

    The kernel does not report the distribution: that of ``configured`` is returned. Raises ``RunError`` for options
    that are never set.
    """
    delay = options.get("delay", {"delay": 0, "jitter": 0})
    random, chain = options.get("loss-random"), options.get("loss-gemodel")
    if _NEVER_SET & set(options) or delay.get("correlation") or (random or {}).get("correlation"):
        raise RunError(f"netem holds more than configured: {dict(options)}")
    jitter: Jitter | None = None
    loss: Loss | None = None
    jitter_ns = round(float(delay.get("jitter", 0)) * 1e9)  # tc prints seconds
    if jitter_ns:
        if configured is None:
            raise RunError(f"netem holds more than configured: {dict(options)}")
        jitter = Jitter(configured.distribution, jitter_ns, reorder=True)
    if random is not None:
        loss = IndependentLoss(float(random["loss"]))
    elif chain is not None:
        loss = GilbertElliottLoss(*(float(chain[key]) for key in ("p", "r", "1-k", "1-h")))
    return round(float(delay["delay"]) * 1e9), jitter, loss


def in_place(old: Sequence[str], new: Sequence[str]) -> list[str] | None:
    """The commands that turn the result of ``old`` (commands of ``tc ... add``) into that of ``new``.

    A bandwidth that both have stays in force. Frames that wait or travel are lost only if netem replaces a plain queue
    or the other way round. ``None`` if the root differs and everything has to be rebuilt.
    """
    if not old or not new or _shape(old[0]) != _shape(new[0]):
        return None
    commands: list[str] = []
    for before, after in zip_longest(old, new):
        if after is None:
            break  # went with what was below it
        if before is None or any(" replace " in command for command in commands):
            commands.append(after)  # what was here went with what was below it
        elif before != after:
            verb = "change" if _shape(before) == _shape(after) else "replace"
            commands.append(after.replace(" add ", f" {verb} ", 1))
    return commands


def _shape(command: str) -> list[str]:
    """The parts of a command that cannot be changed later: place, kind, and netem's table, which stays once loaded."""
    return re.findall(r"\b(?:qdisc|class|htb|netem|pfifo|bfifo|distribution)\b", command)


# Only the delay and its sender bound what netem holds: one million full frames are 1.5 GB.
NETEM_LIMIT_FRAMES = 1_000_000
_NOTHING = DirectionSpec()
_ROOT, _CLASS, _NETEM = "1:", "1:1", "10:"
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
    """HTB's burst: 0.25 ms at the rate, and at least a frame.

    A timer that wakes the queue late by up to that time then costs no bandwidth. At 1000 Mbit/s these are 31 kB.
    """
    return max(_MTU_BURST_BYTES, round(rate_bps / 8 * _BURST_S))


def tc_commands(interface: str, direction: DirectionSpec) -> list[str]:
    """Commands of ``tc``, in order, that shape what ``interface`` sends as ``direction``, from no qdisc.

    Raises ``UsageError`` for a direction that HTB and netem cannot carry out.
    """
    if (refusal := backends.netem_refusal(direction)) is not None:
        raise UsageError(f"{interface}: HTB and netem do not support {refusal}; the link emulator can")
    commands, place, rate = [], "root", direction.rate_bps
    if rate is not None:
        burst = burst_bytes(rate)
        quantum = min(max(rate // 8 // 10, _QUANTUM_MIN_BYTES), _QUANTUM_MAX_BYTES)
        overhead = f" overhead {direction.overhead_bytes}" if direction.overhead_bytes else ""
        commands += [
            f"qdisc add dev {interface} root handle {_ROOT} htb default 1",
            f"class add dev {interface} parent {_ROOT} classid {_CLASS} htb rate {rate}bit ceil {rate}bit "
            f"burst {burst} cburst {burst} quantum {quantum}{overhead}",
        ]
        place = f"parent {_CLASS}"
    digit = 0
    if backends.needed(direction):
        commands.append(
            f"qdisc add dev {interface} {place} handle {_NETEM} netem limit {NETEM_LIMIT_FRAMES}{options(direction)}"
        )
        place, digit = f"parent {_NETEM}1", 1
    if rate is not None:
        # Another handle for each kind and place: only so does one take the place of another.
        queue = f"2{digit}: pfifo limit {queue_frames(direction)}"
        if direction.queue_bytes is not None:
            queue = f"3{digit}: bfifo limit {direction.queue_bytes}"
        commands.append(f"qdisc add dev {interface} {place} handle {queue}")
    return commands


def direction_from_tc(
    qdiscs: Sequence[Mapping[str, Any]],
    classes: str,
    configured: DirectionSpec = _NOTHING,
    class_id: str = _CLASS,
    netem_limit: int = NETEM_LIMIT_FRAMES,
    netem_queue_frames: int | None = None,
) -> DirectionSpec:
    """The spec of one interface, from ``tc -j qdisc show`` (parsed) and ``tc class show`` (text).

    The distribution of a jitter, which the kernel does not report, is that of ``configured``. ``class_id`` is that of
    HTB's only class, ``netem_limit`` netem's limit, and ``netem_queue_frames`` the part of it that is the queue's.
    Raises ``RunError`` for anything that ``tc_commands`` does not make.
    """
    held = DirectionSpec()
    for qdisc in qdiscs:
        kind, options = qdisc.get("kind"), qdisc.get("options", {})
        if kind == "htb":
            found = _HTB_CLASS.findall(classes)
            if len(found) != 1 or found[0][0] != class_id or found[0][1:3] != found[0][4:6]:
                raise RunError(f"the HTB class {class_id} is not as it was made: {classes.strip()!r}")
            _, rate, unit, overhead, *_ = found[0]
            held = replace(held, rate_bps=int(rate) * _RATE_UNITS[unit], overhead_bytes=int(overhead or 0))
        elif kind == "netem":
            delay_ns, jitter, loss = netem_held(options, configured.jitter)
            if int(options["limit"]) != netem_limit:
                raise RunError(f"a netem with a limit of {options['limit']} frames was not configured")
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
    return bool(qdisc.get("handle") == "0:")


def delay_tolerance_ns(delay_ns: int) -> int:
    """The largest difference between the delay that tc was given and the one that it prints."""
    return max(DELAY_TOLERANCE_NS, round(delay_ns * DELAY_TOLERANCE_RATIO))


def _tc(end: Interface, *words: str) -> str:
    return netns.run(end.pid, ["tc", *words]).stdout


def _batch(end: Interface, lines: Sequence[str]) -> None:
    netns.run(end.pid, ["tc", "-batch", "-"], input="".join(f"{line}\n" for line in lines))


def apply_direction(end: Interface, direction: DirectionSpec, held: DirectionSpec | None = None) -> None:
    """Shape what ``end`` sends as ``direction``; ``held`` is its present shape, ``None`` if that is unknown."""
    commands = tc_commands(end.name, direction)
    changes = in_place(tc_commands(end.name, held), commands) if held is not None else None
    if changes is None:
        if held != _NOTHING:
            clear_direction(end)
        changes = commands
    if changes:
        _batch(end, changes)


def clear_direction(end: Interface) -> None:
    """Remove all shaping of what ``end`` sends; frames that wait in it are lost."""
    if any(qdisc.get("root") and not _is_default(qdisc) for qdisc in _qdiscs(end)):
        _tc(end, "qdisc", "delete", "dev", end.name, "root")


def read_direction(end: Interface, configured: DirectionSpec = _NOTHING, **made: Any) -> DirectionSpec:
    """The shape of what ``end`` sends, as the kernel holds it; ``configured``, ``made``: see ``direction_from_tc``."""
    return direction_from_tc(_qdiscs(end), _tc(end, "class", "show", "dev", end.name), configured, **made)


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
        for end, direction in zip(self._interfaces, spec.sides, strict=True):
            self._refuse(end, direction)  # before anything is changed
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

    def _refuse(self, end: Interface, direction: DirectionSpec) -> None:
        tc_commands(end.name, direction)

    def _apply(self, spec: LinkSpec, held: LinkSpec | None) -> None:
        befores = (None, None) if held is None else held.sides
        for end, direction, before in zip(self._interfaces, spec.sides, befores, strict=True):
            apply_direction(end, direction, before)

    def check(self) -> None:
        """Raise ``RunError`` unless the kernel holds the spec that was last applied."""
        longest_ns = max(self.spec.a_to_b.delay_ns, self.spec.b_to_a.delay_ns)
        check_held(self.name, self.spec, self.read_back(), delay_tolerance_ns(longest_ns), RATE_TOLERANCE_RATIO)

    def read_back(self) -> LinkSpec:
        """See ``ShapedLink``; values that the kernel does not report are the configured ones."""
        return LinkSpec(*map(self._held, self._interfaces, self.spec.sides))

    def _held(self, end: Interface, direction: DirectionSpec) -> DirectionSpec:
        return read_direction(end, direction)

    def reset_counters(self) -> None:
        """Let ``statistics`` count from now on."""
        self._counted_from = {}
        self._counted_from = self.statistics()

    def statistics(self) -> dict[str, Any]:
        counters: dict[str, Any] = {}
        up = True
        for side, end in zip(SIDES, self._interfaces, strict=True):
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


_AT_ONCE_S = 0.0001
_MOST_AT_ONCE = 43
"""Full segments in the 64 KiB that TCP hands over at most."""
# Waiting frames of a released queue leave at once; without a queueing discipline they would be lost.
_RELEASED = DirectionSpec(rate_bps=LINK_RATE_MAX_BPS)


def held_at_host(direction: DirectionSpec) -> DirectionSpec:
    """The part of ``direction``, on which a host sends, that is held at the host: rate, overhead and queue.

    Nothing of a direction with a limit in both frames and bytes, since no queue of the kernel's has two, and of one
    with a queue discipline, which is to have the queue. Where several
    segments pass as one packet, HTB would count an overhead once for all of them: there the rate is that of full frames
    without their overhead. Smaller frames then wait behind the host for the rest, where each has its overhead.
    """
    if direction.rate_bps is None or direction.uplink == "network" or direction.aqm is not None:
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
    """The queue at the host's end of a link, which holds frames back: HTB and a queue on its TAP.

    Raises ``RunError``, and ``MissingRequirementError`` where the kernel has no HTB.
    """

    def __init__(self, end: Interface) -> None:
        self.end = end
        self._held: DirectionSpec | None = _NOTHING
        self._counted_from = 0

    def apply(self, direction: DirectionSpec) -> None:
        """Hold frames back as ``direction`` says from now on; waiting frames stay. ``holds`` checks it."""
        wanted, held = held_at_host(direction), self._held
        if wanted == _NOTHING != held:
            wanted = _RELEASED
        if wanted == held:
            return
        self._held = None  # unknown until it is done
        if wanted != _RELEASED:
            # Sockets keep what they found when they connected.
            segments = segments_at_once(wanted)
            netns.ip_batch(self.end.pid, [f"link set dev {self.end.name} gso_max_segs {segments}"])
        try:
            apply_direction(self.end, wanted, held)
        except RunError as error:
            # The message of the kernel, and of older versions of tc.
            if not re.search("kind is unknown|Unknown qdisc|No such file", str(error)):
                raise
            raise MissingRequirementError(
                "this kernel has no HTB (sch_htb), in which frames of a host wait for their turn",
                'Load the module, or give every link "uplink": "network" in the topology file (docs/config.md).',
            ) from error
        self._held = wanted

    def holds(self) -> bool:
        """Whether frames wait here, read from the kernel. Raises ``RunError`` if it holds something else."""
        held = read_direction(self.end)
        configured = LinkSpec(self._held or _NOTHING)
        check_held(f"at {self.end.alias or self.end.name}", configured, LinkSpec(held), 0, RATE_TOLERANCE_RATIO)
        return held.rate_bps not in (None, LINK_RATE_MAX_BPS)

    def counters(self, *, reset: bool = False) -> dict[str, int] | None:
        """``dropped``: frames lost at the full queue since ``reset`` was last given (after it was read); ``waiting``.

        ``None`` if they cannot be read because the host has ended.
        """
        if self._held == _NOTHING:
            return {"dropped": 0, "waiting": 0}
        try:
            counted = next(qdisc for qdisc in _qdiscs(self.end, "-s") if qdisc.get("root"))
        except RunError:
            return None
        dropped = counted["drops"] - self._counted_from
        if reset:
            self._counted_from = counted["drops"]
        return {"dropped": dropped, "waiting": counted["qlen"]}


def part_lines(interface: str, macs: Sequence[str]) -> list[str]:
    """Lines for ``tc -batch`` that let ``interface`` drop what ``macs`` send, in place of what it dropped before."""
    lines = [f"qdisc replace dev {interface} clsact", f"filter delete dev {interface} ingress"]
    for mac in macs:
        digits = mac.replace(":", "")
        # The source address is the 6 bytes from 8 before the network header on.
        lines.append(
            f"filter add dev {interface} ingress protocol all prio 1 u32 match u32 0x{digits[:8]} 0xffffffff at -8 "
            f"match u16 0x{digits[8:]} 0xffff at -4 action drop"
        )
    return lines


class KernelFabric(Fabric):
    """The kernel: hosts follow each other within milliseconds, and the time is when the last was done."""

    def __init__(self) -> None:
        self._parted: set[Interface] = set()

    def partition(self, sets: Sequence[Sequence[Interface]]) -> int:
        """See ``Fabric``; at an error nothing stays parted. Raises ``RunError``."""
        stale = self._parted - {end for members in sets for end in members}
        try:
            for number, members in enumerate(sets):
                others = [str(end.mac) for other, ends in enumerate(sets) if other != number for end in ends]
                for end in members:
                    self._parted.add(end)
                    with suppress(netns.ProcessGoneError):  # of a host that has ended
                        _batch(end, part_lines(end.name, others))
            self._heal(stale)
        except RunError:
            self.heal()
            raise
        return clock.monotonic_ns()

    def heal(self) -> int:
        self._heal(set(self._parted))
        return clock.monotonic_ns()

    def statistics(self, links: Sequence[ShapedLink], *, reset: bool, buckets: bool) -> dict[str, Any]:
        statistics = counters_of(links)
        if reset:
            for link in links:
                if isinstance(link, VethLink):
                    link.reset_counters()
        return statistics

    def _heal(self, ends: set[Interface]) -> None:
        for end in ends:
            self._parted.discard(end)
            try:
                _batch(end, [f"qdisc delete dev {end.name} clsact"])
            except netns.ProcessGoneError:
                continue
            except RunError as error:
                # Its link was removed or made again, or the partition failed before it was there.
                gone = ("Cannot find device", "Cannot find specified qdisc", "Invalid handle", "No such file")
                if not any(words in str(error) for words in gone):
                    raise
