"""What cannot be done to a cluster that somebody else runs: refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from containernet_env.base.errors import ConfigError, Problem, UsageError
from containernet_env.model import load_contract as contract
from containernet_env.model.config import Config
from containernet_env.model.keys import Keys
from containernet_env.model.scenario import Dataset, Scenario, ScenarioSet
from containernet_env.plan.plan import Plan, PlanOptions
from containernet_env.stores.keyvalue.external import MOST_KEYS

UNSEEN_NOTE = "somebody else runs this cluster: its cores, disks and network are not seen, so no row is certainly valid"
_LINKS = "there are no hosts and no links of ours"


def check_external(config: Config, scenario_set: ScenarioSet | None, options: PlanOptions) -> None:
    """Raise ``UsageError`` for options, and ``ConfigError`` for events, that need hosts or links of ours."""
    for name, reason in _refused(options):
        raise UsageError(f"{config.path}: somebody else runs this cluster: {name} cannot be: {reason}")
    places = scenario_set.event_places if scenario_set is not None else ()
    problems = [
        Problem(
            place.where,
            f"cannot be done to {config.path}, which somebody else runs",
            json.dumps(place.event.target),
            "no events",
            place.line,
            place.column,
        )
        for place in places
    ]
    if scenario_set is not None:
        problems += _too_many_keys(config, scenario_set)
    if problems and scenario_set is not None:
        raise ConfigError(str(scenario_set.path), problems)


def keys_of(plan: Plan) -> tuple[Keys, ...]:
    """The keys that a run can write, by their whole names; none twice."""
    assert plan.config.external is not None
    prefix = plan.config.external.prefix_of(plan.run_id)
    return keys_written((planned.scheduled.scenario for planned in plan.scenarios), plan.dataset, prefix)


def keys_written(scenarios: Iterable[Scenario], dataset: Dataset, prefix: str = "") -> tuple[Keys, ...]:
    """The keys that scenarios can write, the data set's among them; ``prefix`` comes before those of their own."""
    most: dict[tuple[str, int], int] = {}
    for scenario in scenarios:
        keys = dataset.all_keys if scenario.uses_dataset else Keys(scenario.key_size, _count(scenario))
        own = (prefix + keys.prefix + ("" if scenario.uses_dataset else scenario.key_prefix), keys.size)
        most[own] = max(keys.count, most.get(own, 0))
    return tuple(Keys(size, count, start) for (start, size), count in most.items())


def _count(scenario: Scenario) -> int:
    """How many different keys a write writes at most: the server's own rule (DistinctKeys in spec/spec.go)."""
    if scenario.key_space is not None:
        return scenario.key_space
    return (scenario.total or 0) + scenario.warmup.requests + contract.KEY_SPACE_OF_DURATION


def _too_many_keys(config: Config, scenario_set: ScenarioSet) -> Iterator[Problem]:
    """Scenarios that write more keys than can be deleted one by one."""
    service = config.store.service
    if service is None or service.delete is None:
        return
    for block in scenario_set.block_places:
        scenarios = [item for item in scenario_set.scenarios if item.name in block.scenarios]
        if (count := sum(keys.count for keys in keys_written(scenarios, scenario_set.dataset))) > MOST_KEYS:
            message = f"can write {count:,} different keys, which are deleted one by one from {config.path} afterwards"
            allowed = f'at most {MOST_KEYS:,}: a smaller "keySpace" or data set, or "keys": "stay" in the store'
            yield Problem(block.where, message, None, allowed, block.line, block.column)


def _refused(options: PlanOptions) -> Iterator[tuple[str, str]]:
    if options.engine != "builtin":
        yield f"engine={options.engine!r}", _LINKS
    if options.links != "auto":
        yield f"links={options.links!r}", _LINKS
    if options.switches != "auto":
        yield f"switches={options.switches!r}", _LINKS
    if options.tcp_congestion_control != "cubic":
        yield "another congestion control", "the members' TCP is theirs, and the load uses that of this machine"
    if options.links_core is not None:
        yield "links_cpu", "no link emulator runs"
    if options.fresh:
        yield "fresh", "nothing here can start it anew; repetitions share the cluster"
    if options.retry_invalid:
        yield "retry_invalid", "its rows are never certainly valid, so each would be measured as often as that allows"
    if options.profile is not None:
        yield "profile", "members give profiles only where they are started for that (--enable-pprof)"
