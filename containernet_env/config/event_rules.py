"""What the events of a block must keep to together, and with its loads."""

from __future__ import annotations

from collections.abc import Iterator

from containernet_env.base.units import format_duration
from containernet_env.config.event_schema import RawEvent
from containernet_env.config.load_schema import RawLoad
from containernet_env.config.positions import Location
from containernet_env.config.reader import Document, Finding, json_path, render, value_at
from containernet_env.config.scenario_schema import RawAnyBlock
from containernet_env.model.disruption import UNDOING
from containernet_env.model.scenario import EventPlace


def event_findings(document: Document, location: Location, block: RawAnyBlock) -> Iterator[Finding]:
    """Events of a block that never come, or that end what nothing begins."""
    if block.events and any(load.search is not None for load in block.load):
        got = render(value_at(document.value, (*location, "events")))
        yield Finding((*location, "events"), "would spoil the probes of a search", got, "only beside total or duration")
    lengths = [length for load in block.load if (length := _shortest_ns(load)) is not None]
    begun = {event.verb for event in block.events}
    for place, event in _placed(document, location, block):
        key, first_ns = ("at", event.at_ns) if event.at_ns is not None else ("every", event.every_ns or 0)
        if lengths and first_ns >= min(lengths):
            allowed = f"less than the load takes, {format_duration(min(lengths))}"
            got = render(value_at(document.value, (*place, key)))
            yield Finding((*place, key), "is not before the end of the load", got, allowed)
        undone = next((verb for verb, undoing in UNDOING.items() if undoing == event.verb), None)
        if undone is not None and undone not in begun:
            got = render(value_at(document.value, (*place, event.target_key)))
            allowed = f"only beside an event that does: {undone.replace('_', ' ')}"
            yield Finding((*place, event.target_key), "ends what no event begins", got, allowed)


def event_places(document: Document, location: Location, block: RawAnyBlock) -> Iterator[EventPlace]:
    """Where each event of a block stands: its target."""
    for place, event in _placed(document, location, block):
        target = (*place, event.target_key)
        yield EventPlace(json_path(target), event.disruption, *document.line_and_column(target))


def _placed(document: Document, location: Location, block: RawAnyBlock) -> Iterator[tuple[Location, RawEvent]]:
    place: Location = (*location, "events")
    listed = bool(block.events) and isinstance(value_at(document.value, place), list)
    for index, event in enumerate(block.events):
        yield (*place, *((index,) if listed else ())), event


def _shortest_ns(load: RawLoad) -> int | None:
    """How long it takes at its highest rate; ``None`` where the store decides."""
    if load.duration_ns is not None:
        return load.duration_ns
    return int(load.total * 10**9 / max(load.rate)) if load.rate and load.total is not None else None
