"""Which scenarios and options a store can carry out."""

from __future__ import annotations

import json
from collections.abc import Iterator

from containernet_env.base.errors import ConfigError, Problem, UsageError
from containernet_env.model.config import Config
from containernet_env.model.keys import is_path
from containernet_env.model.scenario import Scenario, ScenarioSet
from containernet_env.plan.plan import ProfileChoice
from containernet_env.stores.features import of_scenario
from containernet_env.stores.protocol import Store


def check_scenarios(config: Config, scenario_set: ScenarioSet, store: Store) -> None:
    """Raise ``ConfigError`` with everything in scenarios that the store lacks, once for each place of the file."""
    blocks = {name: block for block in scenario_set.block_places for name in block.scenarios}
    problems: dict[tuple[str, str], Problem] = {}
    for scenario in scenario_set.scenarios:
        block = blocks.get(scenario.name)
        for key, reason in _refusals(scenario, store).items():
            message = f"cannot be done: {store.title}, the store of {config.path}, {reason}"
            if block is None:
                problem = Problem("$.scenarios", f"{key} of {scenario.name} {message}")
            elif key in block.keys:
                got, line, column = block.keys[key]
                problem = Problem(f"{block.where}.{key}", message, got, None, line, column)
            else:
                problem = Problem(block.where, f"its {key} {message}", None, None, block.line, block.column)
            problems.setdefault((problem.path, problem.message), problem)
    prefix = scenario_set.dataset.key_prefix
    if store.keys_are_paths and not is_path(prefix):
        message = f"cannot be done: {store.title}, the store of {config.path}, redirects what asks for such keys"
        allowed = "no empty part, '.' or '..' between slashes"
        where = "$.dataset.keyPrefix"
        problems[where, message] = Problem(where, message, json.dumps(prefix), allowed)
    if problems:
        raise ConfigError(str(scenario_set.path), list(problems.values()))


def _refusals(scenario: Scenario, store: Store) -> dict[str, str]:
    """By the key that asks for it."""

    def found() -> Iterator[tuple[str, str]]:
        most = store.largest_value_bytes
        if most is not None and scenario.val_size > most:
            yield "data", f"takes values of at most {most} bytes"
        for feature, key in of_scenario(scenario):
            if (reason := store.lacks.get(feature)) is not None:
                yield key, reason

    return dict(found())


def check_profile(config: Config, profile: ProfileChoice | None, store: Store) -> None:
    """Raise ``UsageError`` for profiles that cannot be taken."""
    if profile is None:
        return
    if (reason := store.lacks.get("profile")) is not None:
        raise UsageError(f"profile={','.join(profile.kinds)}: {store.title} {reason}")
    names = [node.name for node in config.nodes]
    if profile.member is not None and profile.member not in names:
        raise UsageError(f"profile_member={profile.member!r} is no member of {config.path}: it has {', '.join(names)}")
