"""From files and options to a plan: nothing is created, and neither Docker's SDK nor Mininet is needed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from containernet_env.base.errors import UsageError
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.choices import EngineChoice, LinksChoice, SwitchesChoice
from containernet_env.model.config import Config
from containernet_env.model.link import SEED_MAX, draw_seed
from containernet_env.model.scenario import ScenarioSet
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import Plan, PlanOptions


class LabChoices(TypedDict, total=False):
    """What makes hosts and links, and how their TCP behaves; the options of `run` and `shell` have these names.

    ``seed`` is that of links that have none of their own; where it is left out or ``None``, it is drawn.
    """

    links: LinksChoice
    switches: SwitchesChoice
    engine: EngineChoice
    congestion_control: str
    seed: int | None


class RunChoices(LabChoices, total=False):
    """What is measured besides: the quick scenarios, only those that match, the whole selection how often."""

    quick: bool
    only: Sequence[str]
    repeat: int


def prepare(
    topology: Config | Path | str, scenarios: ScenarioSet | Path | str | None, **choices: Unpack[RunChoices]
) -> Plan:
    """The plan of a run, with a fresh run id; arguments as for ``runs.measure.measure``.

    Raises ``ConfigError`` with every problem of a file, and ``UsageError`` for options that cannot be.
    """
    if unknown := choices.keys() - RunChoices.__optional_keys__:
        raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
    if choices.get("quick") and scenarios is not None:
        raise UsageError("quick and scenarios both name the scenarios: give one of them")
    if isinstance(choices.get("only"), str):
        raise UsageError(f"only={choices['only']!r}; allowed: a list of names, globs and types")
    config = topology if isinstance(topology, Config) else load_config(topology)
    quick = choices.get("quick", False)
    chosen = scenarios or (QUICK_SCENARIOS if quick else config.scenarios or DEFAULT_SCENARIOS)
    scenario_set = chosen if isinstance(chosen, ScenarioSet) else load_scenarios(chosen)
    options = _options(choices, choices.get("only", ()), choices.get("repeat", 1))
    return build_plan(config, scenario_set, options)


def prepare_shell(topology: Config | Path | str, **choices: Unpack[LabChoices]) -> Plan:
    """The plan of a testbed on which nothing is measured. See ``prepare``."""
    config = topology if isinstance(topology, Config) else load_config(topology)
    return build_plan(config, None, _options(choices))


def _options(choices: LabChoices, only: Sequence[str] = (), repeat: int = 1) -> PlanOptions:
    """Options on this machine, with a fresh run id, and a fresh seed where none is given."""
    seed = choices.get("seed")
    if seed is not None and not 0 <= seed <= SEED_MAX:
        raise UsageError(f"seed={seed}; allowed: 0 to {SEED_MAX}")
    return PlanOptions(
        machine_cores=os.cpu_count() or 1,
        run_id=secrets.token_hex(3),
        links=choices.get("links", "auto"),
        switches=choices.get("switches", "auto"),
        tcp_congestion_control=choices.get("congestion_control", "cubic"),
        only=tuple(only),
        repeat=repeat,
        engine=choices.get("engine", "builtin"),
        seed=draw_seed() if seed is None else seed,
    )
