"""What topologies and scenarios can ask of a store, and what one kind lacks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from containernet_env.model.scenario import Consistency, Scenario

Feature = Literal[
    "heartbeat_interval",
    "election_timeout",
    "data",
    "leader",
    "tls",
    "profile",
    "txn",
    "linearizable",
    "serializable",
    "default",
    "span",
    "limit",
    "keysOnly",
    "countOnly",
    "history",
    "valSize",
]
"""By the keys or values of the files that ask for it; ``profile`` is the option."""

_CONSISTENCIES: Mapping[Consistency, Feature] = {"l": "linearizable", "s": "serializable", "default": "default"}

Lacking = Mapping[str, str]
"""What a kind of store lacks, by its ``Feature``, and why: the end of a sentence such as "has no range reads"."""


def of_scenario(scenario: Scenario) -> Iterator[tuple[Feature, str]]:
    """What a scenario asks for, and the key of its block that does."""
    if scenario.type == "txn":
        yield "txn", "type"
    if scenario.consistency is not None:
        yield _CONSISTENCIES[scenario.consistency], "consistency"
    span = scenario.span
    if span.keys:
        yield "span", "spanKeys"
    if span.prefix is not None:
        yield "span", "prefix"
    if span.start is not None:
        yield "span", "span"
    if span.limit is not None:
        yield "limit", "limit"
    if span.answer == "keys":
        yield "keysOnly", "keysOnly"
    if span.answer == "count":
        yield "countOnly", "countOnly"
    if scenario.history:
        yield "history", "history"
