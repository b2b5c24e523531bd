"""Which events of a scenario file a topology, its links and its engine can carry out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from containernet_env.base.errors import ConfigError, Problem
from containernet_env.model import containernet_rules, netem_rules
from containernet_env.model.chance import IndependentLoss
from containernet_env.model.config import Config
from containernet_env.model.disruption import DRAWN_TARGETS, STRUCK, Disruption
from containernet_env.model.link import DirectionSpec
from containernet_env.model.scenario import EventPlace, ScenarioSet
from containernet_env.plan.plan import PlanOptions

FIELDS = {"delay": "delay_ns", "rate": "rate_bps", "loss": "loss"}


def check_events(config: Config, scenario_set: ScenarioSet, options: PlanOptions) -> None:
    """Raise ``ConfigError`` with every event that cannot be carried out."""
    problems = [
        Problem(place.where, message, json.dumps(place.event.target), allowed, place.line, place.column)
        for place in scenario_set.event_places
        for message, allowed in _refusals(config, place, options)
    ]
    if problems:
        raise ConfigError(str(scenario_set.path), problems)


def _refusals(config: Config, place: EventPlace, options: PlanOptions) -> Iterator[tuple[str, str]]:
    """What is wrong with one event, and what is allowed."""
    event, names = place.event, [node.name for node in config.nodes]
    words = (*DRAWN_TARGETS, *STRUCK.values())
    if event.target not in (*words, *names):
        yield f"is not a member of {config.path}", ", ".join(names)
        return
    if event.verb == "partition" and len(names) < 2:
        yield "has nobody to be parted from", "a topology of two members or more"
    if event.target == "followers" and len(names) < 2:
        yield "does not exist", "a topology of two members or more"
    if event.verb in ("kill", "restart"):
        if config.etcd.data == "tmpfs":
            yield "would lose its data, which is on tmpfs", f'"data": "disk" in {config.path}, or freeze'
        if options.engine == "containernet":
            yield "cannot be started again by the original Containernet", "the engine builtin, or freeze"
    for name, reason in _unshapeable(config, event, options):
        yield f"cannot be carried out on the link of {name}: {reason}", "what goes with the rest of that link"


def changed(direction: DirectionSpec, event: Disruption) -> DirectionSpec:
    """A direction of a link while a delay, a loss or a rate is in force. Raises ``ValueError`` where they clash."""
    value = event.value
    if event.verb == "loss":
        return replace(direction, loss=IndependentLoss(float(value)) if value else None)
    if event.verb == "delay":
        return replace(direction, delay_ns=int(value or 0))
    return replace(direction, rate_bps=None if value is None else int(value))


def _unshapeable(config: Config, event: Disruption, options: PlanOptions) -> Iterator[tuple[str, str]]:
    if event.verb not in FIELDS:
        return
    refusal = containernet_rules.refusal if options.engine == "containernet" else netem_rules.refusal
    by_kernel = options.engine == "containernet" or options.links == "netem"
    for node in config.nodes:
        if event.target in (node.name, *DRAWN_TARGETS):
            for direction in (node.link.a_to_b, node.link.b_to_a):
                try:
                    reason = refusal(made) if (made := changed(direction, event)) and by_kernel else None
                except ValueError as error:
                    reason = str(error)
                if reason is not None:
                    yield node.name, reason
                    break
