"""A host's ``link`` object: the configuration of each direction of its link to the switch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, ClassVar

from containernet_env.config.fields import written
from containernet_env.config.reader import json_path
from containernet_env.config.traces import RawTraces
from containernet_env.model import kinds
from containernet_env.model.kinds import Chosen, Location, Refused, Section, keyed, rule, rule_of_parts, section
from containernet_env.model.link import QUEUE_MAX_BYTES, QUEUE_MAX_FRAMES, DirectionSpec, LinkSpec, refuse_trace

TO_SWITCH, FROM_SWITCH = "to_switch", "from_switch"


_QUEUE = kinds.count_or(
    kinds.integer(1, QUEUE_MAX_FRAMES),
    "frames",
    kinds.size(1, QUEUE_MAX_BYTES, such="64k", what="a queue limit"),
    lambda frames, size: (frames, size),
    lambda limit: limit,
    "count",
)


@section
class RawDirection(Section, DirectionSpec):
    """One direction, or both; what is left out is none, or what the host's own keys say."""

    queue: tuple[int | None, int | None] | None = keyed(
        _QUEUE, "what may wait to be sent (250 ms of the bandwidth)", default=None
    )
    trace: RawTraces | None = keyed(  # type: ignore[assignment]
        RawTraces, "files that it follows while a scenario runs", default=None
    )

    @rule
    def _trace_goes_with_the_rest(self) -> None:
        refuse_trace(None if self.trace is None else self.trace.traces, self)

    def _delays_stay_positive(self) -> None:
        """The delay may be the host's own: see `RawHost`."""

    def own_delay_ns(self, of_host: int | None) -> int:
        """The delay, or that of the host's own key."""
        return self.delay_ns if "delay" in self.given else of_host or 0

    def own_rate_bps(self, of_host: int | None) -> int | None:
        """The rate, or that of the host's own key."""
        return self.rate_bps if "bandwidth" in self.given else of_host

    def spec(self, delay_ns: int | None, rate_bps: int | None) -> DirectionSpec:
        """The direction; ``delay_ns`` and ``rate_bps`` are the host's own keys. Raises `Refused`."""
        values = {item.name: getattr(self, item.name) for item in fields(DirectionSpec)}
        values |= {"delay_ns": self.own_delay_ns(delay_ns), "rate_bps": self.own_rate_bps(rate_bps)}
        values["queue_frames"], values["queue_bytes"] = self.queue or (None, None)
        values["trace"] = self.trace and self.trace.traces
        return DirectionSpec(**values)


@section
class RawDirections(Section):
    """The two directions apart."""

    SCHEMA: ClassVar = {"minProperties": 1}

    to_switch: RawDirection = keyed(RawDirection, "frames from the host to the switch", default=RawDirection())
    from_switch: RawDirection = keyed(RawDirection, "frames from the switch to the host", default=RawDirection())


def _is_per_direction(value: object) -> bool:
    return isinstance(value, dict) and bool({TO_SWITCH, FROM_SWITCH} & set(value))


def _written_link(link: LinkSpec) -> dict[str, Any]:
    """Each direction apart, always with a delay and a bandwidth."""
    sides = {TO_SWITCH: link.a_to_b, FROM_SWITCH: link.b_to_a}
    return {side: written(RawDirection, direction, ("delay_ns", "rate_bps")) for side, direction in sides.items()}


BANDWIDTH = kinds.BANDWIDTH, "bandwidth of the host's link in Mbit/s, each direction"
LINK_DELAY = kinds.DELAY, "one-way delay of the host's link, each direction"
_LINK = Chosen(
    (RawDirection, RawDirections),
    lambda value: RawDirections if _is_per_direction(value) else RawDirection,
    _written_link,
)
# A host's own key for both directions, and its name in a ``link`` object.
_SAID_TWICE = (("link_delay", "delay", kinds.DELAY.form), ("bandwidth", "bandwidth", kinds.BANDWIDTH.form))
# Keys without meaning for a direction without a bandwidth.
_OF_A_BANDWIDTH = {
    "queue": "limits nothing",
    "overhead": "takes no time",
    "uplink": "says nothing",
    "aqm": "has no queue",
}


@section
class RawHost(Section):
    """The part of a host that is its link; bandwidth and delay are its own keys, or said in ``link``."""

    LAST: ClassVar = ("site", "switch", "count", "bandwidth", "link_delay", "link")
    IS_MEMBER: ClassVar = False

    site: str | None = None
    bandwidth: int | None = keyed(*BANDWIDTH, default=None)
    link_delay: int | None = keyed(*LINK_DELAY, default=None)
    link: RawDirection | RawDirections | None = keyed(
        _LINK,
        "the host's link in detail, for both directions together or for to_switch and from_switch apart",
        default=None,
    )

    def link_spec(self, delay_ns: int | None, rate_bps: int | None) -> LinkSpec:
        """The link, with the delay and the bandwidth of the host or of its site. Raises `Refused`."""
        sides = [side for _, side in self._directions()] or [RawDirection()]
        there, back = (side.spec(delay_ns, rate_bps) for side in (sides[0], sides[-1]))
        if there.trace is not None and there.trace.bandwidth is not None:
            there = replace(there, uplink="network")  # the queue at a host does not follow
        # Only frames that the host sends use an uplink.
        return LinkSpec(there, replace(back, uplink=None))

    def _directions(self) -> Iterator[tuple[Location, RawDirection]]:
        """Each direction that is given, with its place in the host; one if both are given together."""
        if isinstance(self.link, RawDirections):
            for side in (TO_SWITCH, FROM_SWITCH):
                yield ("link", side), getattr(self.link, side)
        elif self.link is not None:
            yield ("link",), self.link

    @rule_of_parts
    def _delay_and_bandwidth_are_said_once(self) -> Iterator[Refused]:
        directions = [*self._directions()]
        for own, key, form in _SAID_TWICE:
            said = [(*place, key) for place, direction in directions if key in direction.given]
            if own in self.given and said:
                where = " and ".join(json_path((*self.at, *place)) for place in said)
                yield Refused(f"is said again at {where}", "one of the two", own)
            elif self.IS_MEMBER and own not in self.given and self.site is None:
                # In one direction of two: the other one is missing.
                missing = [(*place, key) for place, direction in directions if key not in direction.given]
                yield from (Refused("is missing", form, place) for place in (missing if said else [(own,)]))

    @rule_of_parts
    def _link_makes_sense(self) -> Iterator[Refused]:
        if self.site is None:
            yield from self.link_problems(self.link_delay, self.bandwidth)

    def link_problems(self, delay_ns: int | None, rate_bps: int | None) -> Iterator[Refused]:
        """What of ``link`` cannot be with the host's own delay and bandwidth, or those of its site."""
        for place, direction in self._directions():
            with contextlib.suppress(AttributeError):  # of a value that is refused itself
                try:
                    DirectionSpec(direction.own_delay_ns(delay_ns), jitter=direction.jitter)
                except Refused as refused:
                    yield refused.below(place)
            if place[-1] == FROM_SWITCH and "uplink" in direction.given:
                allowed = f"in {TO_SWITCH}: it is about what the host sends"
                yield Refused("says nothing here", allowed, (*place, "uplink"))
            with contextlib.suppress(AttributeError):
                yield from without_a_bandwidth(direction, rate_bps, place)


def without_a_bandwidth(direction: RawDirection, rate_bps: int | None, place: Location = ()) -> Iterator[Refused]:
    """The keys of a direction that mean nothing for it, which has no bandwidth, neither its own nor ``rate_bps``."""
    if direction.own_rate_bps(rate_bps) is None:
        for key in [key for key in _OF_A_BANDWIDTH if key in direction.given]:
            yield Refused(_OF_A_BANDWIDTH[key], "with a bandwidth: without one nothing waits", (*place, key))
        if direction.trace is not None and direction.trace.bandwidth is not None:
            allowed = "with a bandwidth, which holds before and after it"
            yield Refused("has nothing to return to", allowed, (*place, "trace", "bandwidth"))
