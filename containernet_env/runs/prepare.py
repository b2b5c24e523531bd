"""From files and options to a plan, and the prerequisites of a run before it begins; nothing is created."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from containernet_env.base import assets
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.base.units import about_duration
from containernet_env.config.plan import AUTO, OPTIONS, Plan, PlanOptions
from containernet_env.config.planning import at_most, build_plan, with_dilations
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, ScenarioSet, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.backends import ProfileKind
from containernet_env.model.config import Config
from containernet_env.model.link import SEED_MAX, draw_seed
from containernet_env.runs.lock import RunLock, holder


def require_root() -> None:
    """Raises MissingRequirementError unless this is root."""
    if os.geteuid() != 0:
        raise MissingRequirementError(
            "containers, namespaces and links need root", "Run it again with sudo, or as root."
        )


def lock_for(plan: Plan) -> RunLock:
    """The lock that a run of a plan holds: the machine's, or without root one of the user's own.

    Raises RunError if the machine's is held.
    """
    if plan.config.external is None or os.geteuid() == 0:
        return RunLock()
    if (held := holder()) is not None:
        raise RunError(
            f"another run is on (process {held.pid}); concurrent runs would distort each other.\n  Wait for it to end."
        )
    return RunLock(assets.make() / "run.lock")


def other_cores(cpu: int) -> tuple[int, ...]:
    """The cores that are left beside ``cpu`` for members, client and driver. Raises ``UsageError`` for none."""
    usable = sorted(os.sched_getaffinity(0))
    names = ", ".join(map(str, usable))
    if cpu not in usable:
        raise UsageError(f"links_cpu={cpu} is no core that this process may use; allowed: {names}")
    others = tuple(core for core in usable if core != cpu)
    if not others:
        raise UsageError(
            f"links_cpu={cpu} would leave no core for members, client and driver: this process may use {names} alone"
        )
    return others


@contextmanager
def kept_off(cpu: int | None, others: Collection[int]) -> Iterator[None]:
    """Within it this thread, and its children, use the ``others`` if a core is kept. Raises ``RunError``."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, others)
        held = os.sched_getaffinity(0)
    except OSError as error:
        raise RunError(f"the driver cannot be kept off core {cpu}: {error.strerror}") from error
    try:
        if held != set(others):
            raise RunError(f"the driver is not kept off core {cpu}: the kernel holds {sorted(held)}")
        yield
    finally:
        os.sched_setaffinity(0, before)


def prepare(
    topology: Config | Path | str, scenarios: ScenarioSet | Path | str | None, *, quick: bool = False, **choices: Any
) -> Plan:
    """The plan of a run, with a fresh run id; arguments as for ``runs.measure.measure``.

    Raises ``ConfigError`` with every problem of a file, and ``UsageError`` for options that cannot be.
    """
    if quick and scenarios is not None:
        raise UsageError("quick and scenarios both name the scenarios: give one of them")
    options = _options(choices)
    config = topology if isinstance(topology, Config) else load_config(topology)
    chosen = scenarios or (QUICK_SCENARIOS if quick else config.scenarios or DEFAULT_SCENARIOS)
    scenario_set = chosen if isinstance(chosen, ScenarioSet) else load_scenarios(chosen)
    plan = build_plan(config, scenario_set, options)
    return plan if options.dilation != AUTO else _as_needed(plan)


def _as_needed(plan: Plan) -> Plan:
    """The plan with each scenario as slow as this machine needs, as far as its last runs show."""
    from containernet_env.results import capacity
    from containernet_env.runs import machine

    known, _ = capacity.read(machine.key())
    factors = {name: at_most(plan, name, factor) for name, factor in capacity.dilations(plan, known).items()}
    slower = with_dilations(plan, factors)
    counts = Counter(planned.dilation for planned in slower.scenarios)
    parts = [f"{counts[factor]} scenario{'s' * (counts[factor] > 1)} at {factor}" for factor in sorted(counts)]
    note = f"dilation auto: {', '.join(parts)}; about {about_duration(slower.estimated_s)}"
    return replace(slower, notes=(f"{note}; a scenario without a valid row is tried once more", *slower.notes))


def on_this_machine(plan: Plan) -> Plan:
    """The plan that another machine has made, for this one's cores; the same run id. Raises ``UsageError``."""
    options = plan.options
    others = () if options.links_cpu is None else other_cores(options.links_cpu)
    options = replace(options, machine_cores=os.cpu_count() or 1, other_cores=others)
    return build_plan(plan.config, plan.scenario_set, options)


def prepare_shell(topology: Config | Path | str, **choices: Any) -> Plan:
    """The plan of a testbed on which nothing is measured. See ``prepare``."""
    config = topology if isinstance(topology, Config) else load_config(topology)
    if config.external is not None:
        raise UsageError("this is an external cluster, so there is nothing to bring up\n  Give a topology.")
    options = _options(choices)
    if options.dilation == AUTO:
        raise UsageError("dilation=auto: nothing is measured here; allowed: a number")
    return build_plan(config, None, options)


def _options(choices: Mapping[str, Any]) -> PlanOptions:
    """Options on this machine, with a fresh run id, and a fresh seed if none is given."""
    if unknown := choices.keys() - OPTIONS.keys():
        raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
    given = dict(choices)
    if given.get("dilation") == "auto":
        given["dilation"] = AUTO
    if isinstance(given.get("only"), str):
        raise UsageError(f"only={given['only']!r}; allowed: a list of names, globs and types")
    if given.get("seed") is None:
        given["seed"] = draw_seed()
    elif not 0 <= given["seed"] <= SEED_MAX:
        raise UsageError(f"seed={given['seed']}; allowed: 0 to {SEED_MAX}")
    kinds, known = given.get("profile", ()), get_args(ProfileKind)
    if isinstance(kinds, str) or any(kind not in known for kind in kinds):
        raise UsageError(f"profile={kinds!r}; allowed: a list of {', '.join(known)}")
    if given.get("profile_member") is not None and not kinds:
        raise UsageError(f"profile_member={given['profile_member']!r} without profile: say which profiles are taken")
    given |= {"only": tuple(given.get("only", ())), "profile": tuple(kind for kind in known if kind in kinds)}
    if given.get("links_cpu") is not None:
        given["other_cores"] = other_cores(given["links_cpu"])
    return PlanOptions(machine_cores=os.cpu_count() or 1, run_id=secrets.token_hex(3), **given)
