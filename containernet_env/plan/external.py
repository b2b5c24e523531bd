"""What cannot be done to a cluster that somebody else runs: refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator

from containernet_env.base.errors import ConfigError, Problem, UsageError
from containernet_env.model.config import Config
from containernet_env.model.scenario import ScenarioSet
from containernet_env.plan.plan import PlanOptions

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
    if problems and scenario_set is not None:
        raise ConfigError(str(scenario_set.path), problems)


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
