"""From files and options to a plan, and what a run needs before it begins; nothing is created."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack, get_args

from containernet_env.base import assets
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.backends import EngineChoice, LinksChoice, ProfileKind, SwitchesChoice
from containernet_env.model.config import Config
from containernet_env.model.link import SEED_MAX, draw_seed
from containernet_env.model.scenario import ScenarioSet
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import KeptCore, Plan, PlanOptions, ProfileChoice
from containernet_env.runs.lock import RunLock, holder


def require_root() -> None:
    """Raises MissingRequirementError unless this is root."""
    if os.geteuid() != 0:
        raise MissingRequirementError(
            "containers, namespaces and links need root", "Run it again with sudo, or as root."
        )


def lock_for(plan: Plan) -> RunLock:
    """The lock that a run of a plan holds: the machine's, or without root one of the user's own.

    Raises RunError where somebody holds the machine's.
    """
    if plan.config.external is None or os.geteuid() == 0:
        return RunLock()
    if (held := holder()) is not None:
        raise RunError(
            f"another run is on (process {held.pid}); two at once would measure each other.\n  Wait for it to end."
        )
    return RunLock(assets.make() / "run.lock")


def kept_core(cpu: int) -> KeptCore:
    """The core, and those that are left for members, client and driver. Raises ``UsageError`` where it cannot be."""
    usable = sorted(os.sched_getaffinity(0))
    names = ", ".join(map(str, usable))
    if cpu not in usable:
        raise UsageError(f"links_cpu={cpu} is no core that this process may use; allowed: {names}")
    others = tuple(core for core in usable if core != cpu)
    if not others:
        raise UsageError(
            f"links_cpu={cpu} would leave no core for members, client and driver: this process may use {names} alone"
        )
    return KeptCore(cpu, others)


@contextmanager
def kept_off(core: KeptCore | None) -> Iterator[None]:
    """Within it this thread, and whatever it starts, uses the other cores. Raises ``RunError`` if that is refused."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, core.others)
        held = os.sched_getaffinity(0)
    except OSError as error:
        raise RunError(f"the driver cannot be kept off core {core.cpu}: {error.strerror}") from error
    try:
        if held != set(core.others):
            raise RunError(f"the driver is not kept off core {core.cpu}: the kernel holds {sorted(held)}")
        yield
    finally:
        os.sched_setaffinity(0, before)


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
    """What is measured besides: the quick scenarios, only those that match, the whole selection how often.

    ``first_repetition``: the number of the first one, from 1, by which seeds differ. ``fresh``: each repetition on a
    new cluster. ``retry_invalid``: how often a scenario whose figures are not certainly valid is measured again.
    ``links_cpu``: the core that is kept for the link emulator. ``profile``: which profiles are taken during each
    scenario ("cpu", "allocs", "mutex"), of ``profile_member`` (the leader where it is left out).
    """

    quick: bool
    only: Sequence[str]
    repeat: int
    first_repetition: int
    fresh: bool
    retry_invalid: int
    links_cpu: int | None
    profile: Sequence[str]
    profile_member: str | None


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
    links_cpu = choices.get("links_cpu")
    options = replace(
        _options(choices),
        only=tuple(choices.get("only", ())),
        repeat=choices.get("repeat", 1),
        first_repetition=choices.get("first_repetition", 1),
        fresh=choices.get("fresh", False),
        retry_invalid=choices.get("retry_invalid", 0),
        links_core=None if links_cpu is None else kept_core(links_cpu),
        profile=_profile(choices.get("profile", ()), choices.get("profile_member")),
    )
    return build_plan(config, scenario_set, options)


def on_this_machine(config: Config, scenario_set: ScenarioSet, options: PlanOptions) -> Plan:
    """The plan that another machine has made, for this one's cores; the same run id. Raises ``UsageError``."""
    core = None if options.links_cpu is None else kept_core(options.links_cpu)
    return build_plan(config, scenario_set, replace(options, machine_cores=os.cpu_count() or 1, links_core=core))


def _profile(kinds: Sequence[str], member: str | None) -> ProfileChoice | None:
    known = get_args(ProfileKind)
    if isinstance(kinds, str) or any(kind not in known for kind in kinds):
        raise UsageError(f"profile={kinds!r}; allowed: a list of {', '.join(known)}")
    if member is not None and not kinds:
        raise UsageError(f"profile_member={member!r} without profile: say which profiles are taken")
    return ProfileChoice(tuple(kind for kind in known if kind in kinds), member) if kinds else None


def prepare_shell(topology: Config | Path | str, **choices: Unpack[LabChoices]) -> Plan:
    """The plan of a testbed on which nothing is measured. See ``prepare``."""
    config = topology if isinstance(topology, Config) else load_config(topology)
    if config.external is not None:
        raise UsageError("this is an external cluster, so there is nothing to bring up\n  Give a topology.")
    return build_plan(config, None, _options(choices))


def _options(choices: LabChoices) -> PlanOptions:
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
        engine=choices.get("engine", "builtin"),
        seed=draw_seed() if seed is None else seed,
    )
