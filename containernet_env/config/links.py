"""A host's ``link`` object: the configuration of each direction of its link to the switch.

Combinations of values are checked on raw JSON: also if the rest of a file is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, get_args

from pydantic import ConfigDict, Field

from containernet_env.base.units import format_duration, format_size, parse_duration, parse_size
from containernet_env.config import hints
from containernet_env.config.fields import (
    BANDWIDTH,
    BOOLEAN,
    DELAY,
    LEFT_OUT,
    MAX_NODES,
    NUMBER_PATTERN,
    RATIO,
    UNLIMITED,
    Chosen,
    Kind,
    StrictModel,
    choice,
    integer,
    refuse,
    rule,
    text_schema,
)
from containernet_env.config.reader import Finding, Location, json_path
from containernet_env.model.link import (
    LEAST_CORRELATION,
    OVERHEAD_MAX_BYTES,
    QUEUE_MAX_BYTES,
    QUEUE_MAX_FRAMES,
    REACH,
    SEED_MAX,
    DirectionSpec,
    Distribution,
    GilbertElliottLoss,
    IndependentLoss,
    Jitter,
    LinkSpec,
    Uplink,
)

TO_SWITCH, FROM_SWITCH = "to_switch", "from_switch"
_GILBERT_ELLIOTT = "gilbert-elliott"


def parse_jitter(value: object) -> int:
    """Nanoseconds, 1 or more. Raises ``ValueError`` with its problem."""
    try:
        jitter_ns = parse_duration(value)
    except ValueError as error:
        raise ValueError("is not a jitter") from error
    if jitter_ns == 0:
        raise ValueError("is no jitter at all")
    return jitter_ns


def _parse_queue(value: object) -> tuple[int | None, int | None]:
    """A queue limit as (frames, bytes), one of them ``None``. Raises ``ValueError`` with its problem."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= QUEUE_MAX_FRAMES:
            raise ValueError("is out of range")
        return value, None
    try:
        size = parse_size(value)
    except ValueError as error:
        raise ValueError("is not a queue limit") from error
    if not 1 <= size <= QUEUE_MAX_BYTES:
        raise ValueError("is out of range")
    return None, size


def _positive_duration(form: str) -> Kind:
    form = f"a number with s, ms, us or ns such as {form}"
    schema = text_schema(f"{NUMBER_PATTERN}(s|ms|us|ns)")
    return Kind(parse_jitter, form, schema, hints.durations, format_duration, "duration")


class RawJitter(StrictModel):
    """How the delay varies."""

    model_config = ConfigDict(title="Jitter")

    distribution: Annotated[Distribution, choice(*REACH)] = Field(
        description="how it is drawn (normal: the value is the standard deviation)"
    )
    ns: Annotated[int, _positive_duration('"500us", more than 0')] = Field(
        alias="value", description="size of the jitter, at most the delay, with normal a quarter of it"
    )
    correlation_ns: Annotated[
        int | None,
        _positive_duration(f'"10ms", at least {LEAST_CORRELATION} times the value, without reorder'),
    ] = Field(default=None, alias="correlation", description="how slowly the delay varies (10 times the value)")
    reorder: Annotated[bool, BOOLEAN] = Field(
        default=False,
        description="whether each frame draws a delay of its own, so that frames may overtake each other",
    )

    @rule
    def _correlation_goes_with_order(self) -> None:
        if self.correlation_ns is not None and self.reorder:
            allowed = "without reorder: each frame draws a delay"
            refuse("goes with jitter that keeps order", allowed, key="correlation")

    @rule
    def _correlation_keeps_order(self) -> None:
        least_ns = LEAST_CORRELATION * self.ns
        if self.correlation_ns is not None and self.correlation_ns < least_ns:
            allowed = f"at least {LEAST_CORRELATION} times the value, {format_duration(least_ns)}"
            refuse("is too short to keep order", allowed, key="correlation")


class RawGilbertElliott(StrictModel):
    """Losses in bursts."""

    model_config = ConfigDict(title="Gilbert-Elliott loss")

    kind: Annotated[str, choice(_GILBERT_ELLIOTT)] = Field(alias="model", description="model of the losses")
    good_to_bad_ratio: Annotated[float, RATIO] = Field(
        description="probability that the state becomes bad after a frame"
    )
    bad_to_good_ratio: Annotated[float, RATIO] = Field(
        description="probability that the state becomes good after a frame"
    )
    good_loss_ratio: Annotated[float, RATIO] = Field(
        default=0.0, description="probability that a frame is lost in the good state"
    )
    bad_loss_ratio: Annotated[float, RATIO] = Field(
        default=1.0, description="probability that a frame is lost in the bad state"
    )


def _written_loss(loss: IndependentLoss | GilbertElliottLoss) -> Any:
    if isinstance(loss, IndependentLoss):
        return loss.ratio
    return {"model": _GILBERT_ELLIOTT, **RawGilbertElliott.written(loss)}


def _written_queue(limit: tuple[int | None, int | None]) -> Any:
    frames, size = limit
    return frames if size is None else format_size(size)


_LOSS = replace(RATIO, form=f'{RATIO.form}, or an object with "model": "{_GILBERT_ELLIOTT}"')
_Ratio = Annotated[Any, _LOSS]
_QUEUE = Kind(
    _parse_queue,
    f'a whole number of frames from 1 to {QUEUE_MAX_FRAMES}, or bytes with b, k, m or g such as "64k", '
    f"up to {QUEUE_MAX_BYTES}b",
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": QUEUE_MAX_FRAMES},
            text_schema(f"{NUMBER_PATTERN}[bkmgBKMG]"),
        ]
    },
    hints.queues,
    _written_queue,
    "count",
)


class RawDirection(StrictModel):
    """One direction, or both; what is left out is none, or what the host's own keys say."""

    model_config = ConfigDict(title="Direction of a link")

    delay_ns: Annotated[int | None, DELAY] = Field(default=LEFT_OUT, alias="delay", description="one-way delay")
    rate_bps: Annotated[int | None, BANDWIDTH] = Field(
        default=None, alias="bandwidth", description="bandwidth of the host's link in Mbit/s, each direction"
    )
    jitter: RawJitter = Field(default=LEFT_OUT, description="how the delay varies")
    loss: Annotated[
        _Ratio | RawGilbertElliott,
        Chosen(lambda value: RawGilbertElliott if isinstance(value, dict) else _Ratio, _written_loss),
    ] = Field(default=None, description="share of frames that is lost, or an object for losses in bursts")
    queue: Annotated[tuple[int | None, int | None] | None, _QUEUE] = Field(
        default=None, description="what may wait to be sent (250 ms of the bandwidth)"
    )
    overhead_bytes: Annotated[int, integer(0, OVERHEAD_MAX_BYTES)] = Field(
        default=0,
        alias="overhead",
        description="bytes that each frame takes at the bandwidth besides its own (24 for preamble, checksum and gap)",
    )
    uplink: Annotated[Uplink | None, choice(*get_args(Uplink))] = Field(
        default=None,
        description="where the host's frames wait: at the host, as behind a real network card, or in the network",
    )
    seed: Annotated[int | None, integer(0, SEED_MAX)] = Field(
        default=None, description="fixes the random draws (drawn for each run, and recorded)"
    )

    def spec(self, delay_ns: int | None, rate_bps: int | None) -> DirectionSpec:
        """The direction; ``delay_ns`` and ``rate_bps`` are the host's own keys."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        if self.delay_ns is None:
            values["delay_ns"] = delay_ns or 0
        if "rate_bps" not in self.model_fields_set:
            values["rate_bps"] = rate_bps
        values["queue_frames"], values["queue_bytes"] = values.pop("queue") or (None, None)
        if self.jitter is not None:
            values["jitter"] = Jitter(**dict(self.jitter))
        if isinstance(self.loss, RawGilbertElliott):
            values["loss"] = GilbertElliottLoss(**self.loss.model_dump(exclude={"kind"}))
        elif self.loss is not None:
            values["loss"] = IndependentLoss(self.loss)
        return DirectionSpec(**values)


class RawDirections(StrictModel):
    """The two directions apart."""

    model_config = ConfigDict(title="Directions of a link", json_schema_extra={"minProperties": 1})

    to_switch: RawDirection = Field(default=RawDirection(), description="frames from the host to the switch")
    from_switch: RawDirection = Field(default=RawDirection(), description="frames from the switch to the host")


def is_per_direction(value: object) -> bool:
    """Whether a ``link`` object gives values for each direction separately."""
    return isinstance(value, dict) and bool({TO_SWITCH, FROM_SWITCH} & set(value))


def _written_link(link: LinkSpec) -> dict[str, Any]:
    """Each direction apart, always with a delay and a bandwidth."""
    return {TO_SWITCH: _written_direction(link.a_to_b), FROM_SWITCH: _written_direction(link.b_to_a)}


def _written_direction(direction: DirectionSpec) -> dict[str, Any]:
    return RawDirection.written(direction, always=("delay_ns", "rate_bps"))


LINK = Chosen(lambda value: RawDirections if is_per_direction(value) else RawDirection, _written_link)
RawLink = Annotated[RawDirection | RawDirections, LINK]


def link_spec(raw: RawDirection | RawDirections | None, delay_ns: int | None, rate_bps: int | None) -> LinkSpec:
    """The link that is configured; ``delay_ns`` and ``rate_bps`` are the host's own keys."""
    if isinstance(raw, RawDirections):
        to_switch, from_switch = raw.to_switch, raw.from_switch
    else:
        to_switch = from_switch = raw or RawDirection()
    # Only frames that the host sends use an uplink.
    back = replace(from_switch.spec(delay_ns, rate_bps), uplink=None)
    return LinkSpec(to_switch.spec(delay_ns, rate_bps), back)


# The value of a host's own key for both directions, and its name in a ``link`` object.
_SAID_TWICE = (("link_delay", "delay", DELAY.form), ("bandwidth", "bandwidth", BANDWIDTH.form))


# Keys without meaning for a direction without a bandwidth.
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
            yield Finding((*location, own), message, allowed="one of the two")
        elif is_member and own not in host:
            # In one direction of two: the other one is missing.
            missing = [(*place, key) for place, values in directions if key not in values] if said else []
            for place in missing if said else [(*location, own)]:
                yield Finding(place, "is missing", allowed=form)
    for place, values in directions:
        yield from _jitter_findings(place, values, host.get("link_delay", "0ms"))
        if values.get("bandwidth", host.get("bandwidth", UNLIMITED)) == UNLIMITED:
            for key, what in _OF_A_BANDWIDTH.items():
                if key in values:
                    yield Finding((*place, key), what, allowed="with a bandwidth: without one nothing waits")
        if place[-1] == FROM_SWITCH and "uplink" in values:
            allowed = f"in {TO_SWITCH}: it is about what the host sends"
            yield Finding((*place, "uplink"), "says nothing here", allowed=allowed)


def _directions(location: Location, link: Any) -> Iterator[tuple[Location, Mapping[str, Any]]]:
    """The places of the values of each direction, and the values; one entry if both are given together."""
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
            allowed=f"at most {part}, {format_duration(delay_ns // reach)}",
        )
