"""What the values of a host's link must be together, checked on raw JSON: also where the rest of a file is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from containernet_env.base.units import format_duration, parse_duration
from containernet_env.config.fields import BANDWIDTH_FORM, DELAY_FORM, UNLIMITED
from containernet_env.config.link_schema import FROM_SWITCH, TO_SWITCH, is_per_direction, parse_jitter
from containernet_env.config.positions import Location
from containernet_env.config.reader import Finding, json_path, render
from containernet_env.config.topology_schema import MAX_NODES
from containernet_env.model.link import LEAST_CORRELATION, REACH

# What a host's own key says for both directions, and its name in a ``link`` object.
_SAID_TWICE = (("link_delay", "delay", DELAY_FORM), ("bandwidth", "bandwidth", BANDWIDTH_FORM))


# What says nothing of a direction without a bandwidth.
_OF_A_BANDWIDTH = {"queue": "limits nothing", "overhead": "takes no time", "uplink": "says nothing"}


def link_findings(config: Any) -> Iterator[Finding]:
    """Every problem between the values of links in the raw JSON value of a config's object form."""
    if not isinstance(config, dict):
        return
    nodes = config.get("nodes")
    for index, node in enumerate(nodes[:MAX_NODES] if isinstance(nodes, list) else []):
        if isinstance(node, dict):
            yield from _host_findings(("nodes", index), node, is_member=True)
    if isinstance(config.get("client"), dict):
        yield from _host_findings(("client",), config["client"], is_member=False)


def _host_findings(location: Location, host: Mapping[str, Any], is_member: bool) -> Iterator[Finding]:
    directions = list(_directions(location, host.get("link")))
    for own, key, form in _SAID_TWICE:
        said = [(*place, key) for place, values in directions if key in values]
        if own in host and said:
            where = " and ".join(json_path(place) for place in said)
            message = f"is said again at {where}"
            yield Finding((*location, own), message, render(host[own]), "one of the two")
        elif is_member and own not in host:
            # In one direction of two: the other one is what is missing.
            missing = [(*place, key) for place, values in directions if key not in values] if said else []
            for place in missing if said else [(*location, own)]:
                yield Finding(place, "is missing", allowed=form)
    for place, values in directions:
        yield from _jitter_findings(place, values, host.get("link_delay", "0ms"))
        if values.get("bandwidth", host.get("bandwidth", UNLIMITED)) == UNLIMITED:
            for key, what in _OF_A_BANDWIDTH.items():
                if key in values:
                    yield Finding(
                        (*place, key), what, render(values[key]), "with a bandwidth: without one nothing waits"
                    )
        if place[-1] == FROM_SWITCH and "uplink" in values:
            allowed = f"in {TO_SWITCH}: it is about what the host sends"
            yield Finding((*place, "uplink"), "says nothing here", render(values["uplink"]), allowed)


def _directions(location: Location, link: Any) -> Iterator[tuple[Location, Mapping[str, Any]]]:
    """Where the values of each direction stand, and the values; one entry where both are said together."""
    place = (*location, "link")
    if is_per_direction(link):
        for side in (TO_SWITCH, FROM_SWITCH):
            values = link.get(side, {})
            if isinstance(values, dict):
                yield (*place, side), values
    elif isinstance(link, dict):
        yield place, link


def _jitter_findings(place: Location, values: Mapping[str, Any], host_delay: Any) -> Iterator[Finding]:
    jitter = values.get("jitter")
    if not isinstance(jitter, dict):
        return
    distribution = jitter.get("distribution")
    yield from _correlation_findings((*place, "jitter", "correlation"), jitter)
    try:
        delay_ns = parse_duration(values.get("delay", host_delay))
        jitter_ns = parse_jitter(jitter.get("value"))
        reach = REACH[distribution] if isinstance(distribution, str) else None
    except (ValueError, KeyError):
        return  # reported where the value itself is validated
    if reach is not None and reach * jitter_ns > delay_ns:
        part = "the delay" if reach == 1 else f"1/{reach} of the delay"
        yield Finding(
            (*place, "jitter", "value"),
            "would make the delay negative at times",
            render(jitter["value"]),
            f"at most {part}, {format_duration(delay_ns // reach)}",
        )


def _correlation_findings(place: Location, jitter: Mapping[str, Any]) -> Iterator[Finding]:
    if "correlation" not in jitter:
        return
    told = render(jitter["correlation"])
    if jitter.get("reorder") is True:
        yield Finding(place, "goes with jitter that keeps order", told, "without reorder: each frame draws a delay")
    try:
        correlation_ns, jitter_ns = parse_jitter(jitter["correlation"]), parse_jitter(jitter.get("value"))
    except ValueError:
        return  # reported where the value itself is validated
    if correlation_ns < LEAST_CORRELATION * jitter_ns:
        least = format_duration(LEAST_CORRELATION * jitter_ns)
        yield Finding(
            place, "is too short to keep order", told, f"at least {LEAST_CORRELATION} times the value, {least}"
        )
