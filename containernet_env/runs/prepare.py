"""From files and options to a plan: nothing is created, and neither Docker's SDK nor Mininet is needed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.choices import EngineChoice, LinksChoice, SwitchesChoice
from containernet_env.model.config import Config
from containernet_env.model.scenario import ScenarioSet
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import Plan, PlanOptions


def prepare(
    topology: Config | Path | str,
    scenarios: ScenarioSet | Path | str | None,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    repeat: int = 1,
    links: LinksChoice = "auto",
    switches: SwitchesChoice = "auto",
    engine: EngineChoice = "builtin",
    congestion_control: str = "cubic",
) -> Plan:
    """The plan of a run, with a fresh run id; arguments as for ``runs.measure.measure``.

    Raises ``ConfigError`` with every problem of a file, and ``UsageError`` for options that cannot be.
    """
    config = topology if isinstance(topology, Config) else load_config(topology)
    chosen = scenarios or (QUICK_SCENARIOS if quick else config.scenarios or DEFAULT_SCENARIOS)
    scenario_set = chosen if isinstance(chosen, ScenarioSet) else load_scenarios(chosen)
    options = options_of(
        only=only,
        repeat=repeat,
        links=links,
        switches=switches,
        engine=engine,
        congestion_control=congestion_control,
    )
    return build_plan(config, scenario_set, options)


def prepare_shell(
    topology: Config | Path | str,
    *,
    links: LinksChoice = "auto",
    switches: SwitchesChoice = "auto",
    engine: EngineChoice = "builtin",
    congestion_control: str = "cubic",
) -> Plan:
    """The plan of a testbed on which nothing is measured. See ``prepare``."""
    config = topology if isinstance(topology, Config) else load_config(topology)
    options = options_of(links=links, switches=switches, engine=engine, congestion_control=congestion_control)
    return build_plan(config, None, options)


def options_of(
    *,
    only: Sequence[str] = (),
    repeat: int = 1,
    links: LinksChoice = "auto",
    switches: SwitchesChoice = "auto",
    engine: EngineChoice = "builtin",
    congestion_control: str = "cubic",
) -> PlanOptions:
    """Options on this machine, with a fresh run id."""
    return PlanOptions(
        machine_cores=os.cpu_count() or 1,
        run_id=secrets.token_hex(3),
        links=links,
        switches=switches,
        tcp_congestion_control=congestion_control,
        only=tuple(only),
        repeat=repeat,
        engine=engine,
    )
