"""A host's ``link`` object: what is configured for each direction of its link to the switch.

What the values must be together is checked on raw JSON: also where the rest of a file is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, get_args

from pydantic import ConfigDict, Discriminator, PlainValidator, Tag, WithJsonSchema

from containernet_env.base.units import format_duration, parse_duration, parse_size
from containernet_env.config import hints
from containernet_env.config.fields import (
    BANDWIDTH_FORM,
    DELAY_FORM,
    LEFT_OUT,
    MAX_NODES,
    NUMBER_PATTERN,
    UNLIMITED,
    Bandwidth,
    Delay,
    StrictModel,
    checked,
    choice,
    integer,
)
from containernet_env.config.reader import Finding, Location, json_path, render
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
    Loss,
    Uplink,
)

TO_SWITCH, FROM_SWITCH = "to_switch", "from_switch"
GILBERT_ELLIOTT = "gilbert-elliott"

# With spaces, so that a tag in an error's location is never taken for a key of the file.
_TOGETHER, _APART = "both directions", "each direction"
_RATIO, _MODEL = "a ratio", "a model"

RATIO_FORM = "a number from 0 to 1 such as 0.01"
LOSS_FORM = f'{RATIO_FORM}, or an object with "model": "{GILBERT_ELLIOTT}"'
JITTER_FORM = 'a number with s, ms, us or ns such as "500us", more than 0'
CORRELATION_FORM = (
    f'a number with s, ms, us or ns such as "10ms", at least {LEAST_CORRELATION} times the value, without reorder'
)
QUEUE_FORM = (
    f'a whole number of frames from 1 to {QUEUE_MAX_FRAMES}, or bytes with b, k, m or g such as "64k", '
    f"up to {QUEUE_MAX_BYTES}b"
)
REORDER_FORM = "true or false"


def parse_ratio(value: object) -> float:
    """A share of frames, 0 to 1. Raises ``ValueError`` with what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError("is not a number")
    if not 0 <= value <= 1:
        raise ValueError("is out of range")
    return float(value)


def parse_jitter(value: object) -> int:
    """Nanoseconds, 1 or more. Raises ``ValueError`` with what is wrong with it."""
    try:
        jitter_ns = parse_duration(value)
    except ValueError as error:
        raise ValueError("is not a jitter") from error
    if jitter_ns == 0:
        raise ValueError("is no jitter at all")
    return jitter_ns


def parse_queue(value: object) -> tuple[int | None, int | None]:
    """A queue limit as (frames, bytes), one of them ``None``. Raises ``ValueError`` with what is wrong with it."""
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


def _parse_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is not true or false")
    return value


def _ratio(form: str) -> tuple[PlainValidator, WithJsonSchema]:
    schema = {"type": "number", "minimum": 0, "maximum": 1, "description": form}
    return checked(parse_ratio, form, hints.numbers), WithJsonSchema(schema)


def _positive_duration(form: str) -> tuple[PlainValidator, WithJsonSchema]:
    schema = {"type": "string", "pattern": f"^{NUMBER_PATTERN}(s|ms|us|ns)$", "description": form}
    return checked(parse_jitter, form, hints.durations), WithJsonSchema(schema)


Ratio = Annotated[float, *_ratio(RATIO_FORM)]


class RawJitter(StrictModel):
    """How the delay varies."""

    model_config = ConfigDict(title="Jitter")

    distribution: Annotated[Distribution, *choice(*REACH)]
    value: Annotated[int, *_positive_duration(JITTER_FORM)]
    correlation: Annotated[int, *_positive_duration(CORRELATION_FORM)] = LEFT_OUT
    reorder: Annotated[
        bool,
        checked(_parse_bool, REORDER_FORM),
        WithJsonSchema({"type": "boolean", "description": REORDER_FORM}),
    ] = False


class RawGilbertElliott(StrictModel):
    """Losses in bursts."""

    model_config = ConfigDict(title="Gilbert-Elliott loss")

    model: Annotated[str, *choice(GILBERT_ELLIOTT)]
    good_to_bad_ratio: Ratio
    bad_to_good_ratio: Ratio
    good_loss_ratio: Ratio = 0.0
    bad_loss_ratio: Ratio = 1.0


def _loss_tag(value: object) -> str:
    return _MODEL if isinstance(value, (dict, RawGilbertElliott)) else _RATIO


def _link_tag(value: object) -> str:
    if isinstance(value, dict):
        return _APART if is_per_direction(value) else _TOGETHER
    return _APART if isinstance(value, RawDirections) else _TOGETHER


def is_per_direction(value: object) -> bool:
    """Whether a ``link`` object says its values for each direction apart."""
    return isinstance(value, dict) and bool({TO_SWITCH, FROM_SWITCH} & set(value))


class RawDirection(StrictModel):
    """What is asked of one direction, or of both; what is left out is none, or what the host's own keys say."""

    model_config = ConfigDict(title="Direction of a link")

    delay: Delay = LEFT_OUT
    bandwidth: Bandwidth = None
    jitter: RawJitter = LEFT_OUT
    loss: Annotated[
        Annotated[Any, *_ratio(LOSS_FORM), Tag(_RATIO)] | Annotated[RawGilbertElliott, Tag(_MODEL)],
        Discriminator(_loss_tag),
    ] = LEFT_OUT
    queue: Annotated[
        tuple[int | None, int | None] | None,
        checked(parse_queue, QUEUE_FORM, hints.queues),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": QUEUE_MAX_FRAMES},
                    {"type": "string", "pattern": f"^{NUMBER_PATTERN}[bkmgBKMG]$"},
                ],
                "description": QUEUE_FORM,
            }
        ),
    ] = LEFT_OUT
    overhead: Annotated[int, *integer(0, OVERHEAD_MAX_BYTES)] = 0
    uplink: Annotated[Uplink, *choice(*get_args(Uplink))] = LEFT_OUT
    seed: Annotated[int, *integer(0, SEED_MAX)] = LEFT_OUT


class RawDirections(StrictModel):
    """The two directions apart."""

    model_config = ConfigDict(title="Directions of a link", json_schema_extra={"minProperties": 1})

    to_switch: RawDirection = LEFT_OUT
    from_switch: RawDirection = LEFT_OUT


RawLink = Annotated[
    Annotated[RawDirection, Tag(_TOGETHER)] | Annotated[RawDirections, Tag(_APART)], Discriminator(_link_tag)
]


def model_in_link(link: object, steps: Sequence[str | int]) -> type[StrictModel]:
    """The model of the object that ``steps`` lead to from a ``link`` object."""
    if is_per_direction(link):
        if not steps:
            return RawDirections
        steps = steps[1:]
    models: dict[str | int, type[StrictModel]] = {"jitter": RawJitter, "loss": RawGilbertElliott}
    return models[steps[0]] if steps else RawDirection


def link_spec(raw: RawDirection | RawDirections | None, delay_ns: int | None, rate_bps: int | None) -> LinkSpec:
    """The link that is asked for; ``delay_ns`` and ``rate_bps`` are the host's own keys."""
    if isinstance(raw, RawDirections):
        to_switch, from_switch = raw.to_switch or RawDirection(), raw.from_switch or RawDirection()
    else:
        to_switch = from_switch = raw or RawDirection()
    # What the host sends is the only direction that has an uplink.
    return LinkSpec(
        replace(_direction(to_switch, delay_ns, rate_bps), uplink=to_switch.uplink),
        _direction(from_switch, delay_ns, rate_bps),
    )


def _direction(raw: RawDirection, delay_ns: int | None, rate_bps: int | None) -> DirectionSpec:
    given = raw.model_fields_set
    frames, size = raw.queue or (None, None)
    return DirectionSpec(
        raw.delay if "delay" in given else delay_ns or 0,
        raw.bandwidth if "bandwidth" in given else rate_bps,
        frames,
        size,
        _jitter(raw.jitter),
        _loss(raw.loss),
        raw.seed,
        overhead_bytes=raw.overhead,
    )


def _jitter(raw: RawJitter | None) -> Jitter | None:
    return None if raw is None else Jitter(raw.distribution, raw.value, raw.reorder, raw.correlation)


def _loss(raw: RawGilbertElliott | float | None) -> Loss | None:
    if isinstance(raw, RawGilbertElliott):
        return GilbertElliottLoss(raw.good_to_bad_ratio, raw.bad_to_good_ratio, raw.good_loss_ratio, raw.bad_loss_ratio)
    return None if raw is None else IndependentLoss(raw)


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
