"""From files and options to a plan, and what a run needs before it begins; nothing is created."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack, get_args

from containernet_env.base import assets, programs
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError, allow_open_files
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.containernet import testbed_network
from containernet_env.model.backends import EngineChoice, LinksChoice, ProfileKind, SwitchesChoice
from containernet_env.model.config import Config
from containernet_env.model.link import SEED_MAX, draw_seed
from containernet_env.model.scenario import ScenarioSet
from containernet_env.network.factory import choose, choose_switches
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import Plan, PlanOptions, ProfileChoice
from containernet_env.results.csv_file import FORMS
from containernet_env.results.files import reason, remedy
from containernet_env.results.run_directory import check_place, least_bytes
from containernet_env.runs.lock import RunLock, holder
from containernet_env.runs.testbed import kept_core


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


# What hosts choose from: the same list in every network namespace (net/ipv4/sysctl_net_ipv4.c of Linux).
_CONGESTION_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
# Of a run, and of each host: connections, namespaces, processes and their pipes, files of /proc for each thread and of
# cgroups; several times what was seen.
_OPEN_FILES, _OPEN_FILES_PER_HOST = 256, 96
# Longer than any header.
_HEADER_BYTES = 1 << 16


def preflight(plan: Plan, out: Path | None = None) -> str:
    """Raise what the run of ``plan`` with its rows in ``out`` would raise; a sentence about what is left open.

    Nothing is created that stays: as root, netem and Open vSwitch are tried out where the plan insists on one of them.
    Raises ``UsageError``, and ``MissingRequirementError`` where the machine lacks something.
    """
    if out is not None:
        check_out(plan, out)
    if plan.config.external is not None:
        allow_open_files(_OPEN_FILES)
        return "Only a run can tell whether the endpoints answer and let this user in; so does `check`."
    _check_congestion_control(plan.options.tcp_congestion_control)
    allow_open_files(_OPEN_FILES + _OPEN_FILES_PER_HOST * len(plan.hosts))
    open_questions = ["whether the Docker engine and its images are ready"]
    if os.geteuid() == 0:
        _check_network(plan)
    else:
        open_questions += _check_network_without_root(plan)
    return f"Only a run{'' if os.geteuid() == 0 else ' as root'} can tell: {'; '.join(open_questions)}."


def check_out(plan: Plan, out: Path) -> None:
    """Raise what keeping the rows of ``plan`` in ``out`` would raise."""
    check_place(out, least_bytes(len(plan.scenarios), len(plan.hosts), len(plan.cluster_ends)))
    _check_header(out)


def _check_header(out: Path) -> None:
    """That rows can be appended to a file, as `results.csv_file.ResultsFile` finds that out."""
    try:
        with out.open("rb") as file:
            first, newline, _ = file.read(_HEADER_BYTES).partition(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot write results to {out}: {reason(error)}\n  {remedy(error)}") from error
    text = first.decode(errors="replace")
    headers = [",".join(form) for form in FORMS]
    torn = not newline and any(header.startswith(text) for header in headers)
    if not torn and text.rstrip("\r") not in headers:
        raise UsageError(
            f"{out} is not a results file: its first line is neither our header nor the seed's.\n"
            f"  got: {text[:100]!r}\n  Choose another file, or move this one away."
        )


def _check_congestion_control(algorithm: str) -> None:
    try:
        available = _CONGESTION_CONTROLS.read_text().split()
    except OSError:
        return  # the host's own namespace tells it
    if algorithm not in available:
        raise UsageError(
            f"--congestion-control: this kernel has no TCP congestion control {algorithm!r}; "
            f"it has: {', '.join(available)}"
        )


def _check_network(plan: Plan) -> None:
    if plan.options.engine == "containernet":
        testbed_network.require(plan)
    elif plan.options.links == "netem":
        choose_switches(plan.options.switches, choose("netem"))


def _check_network_without_root(plan: Plan) -> list[str]:
    """What can be told without trying it out; the questions that are left open."""
    wants_ovs = plan.options.switches == "ovs"
    if wants_ovs and programs.which("ovs-vsctl") is None:
        choose_switches("ovs", "netem")
    if plan.options.engine == "containernet":
        testbed_network.require_original()
        return ["whether this kernel has what the original Containernet needs"]
    questions = ["whether Open vSwitch can make a bridge"] if wants_ovs else []
    return [*questions, "whether this kernel has netem"] if plan.options.links == "netem" else questions


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
        raise UsageError("somebody else runs this cluster, so there is nothing to bring up\n  Give a topology.")
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
