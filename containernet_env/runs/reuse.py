"""Which plans can follow each other on one testbed, and what changes: see ``testbed.Testbed.turn_to``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any

from containernet_env.config.plan import HostPlan, Plan
from containernet_env.model.link import DirectionSpec, Link, LinkSpec
from containernet_env.model.outcome import Reused
from containernet_env.network.kernel import held_at_host, segments_at_once

# Connections between members outlive a change of their links. These reset their path estimates at the next losses; bbr,
# for example, uses the least RTT of the last ten seconds as that of the path.
_FORGETFUL = ("cubic", "reno")


@dataclass(frozen=True, slots=True)
class Change:
    """The changes to a kept testbed: CPU limits of these hosts, and these links."""

    limits: tuple[HostPlan, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def reused(self) -> Reused:
        """The state that the first scenario after it starts with; see ``model.outcome``."""
        if self.links:
            return "cluster;new-limits;new-links" if self.limits else "cluster;new-links"
        return "cluster;new-limits" if self.limits else "cluster"


def standing_key(plan: Plan) -> str:
    """Plans with the same one can follow each other on one testbed; they differ in loads, CPU limits and links.

    The members keep running, so everything that they are started with is equal: their flags, with the timing derived
    from RTTs, ``GOMEMLIMIT``, derived from the memory limit, and CPU limits that they do not follow (Java and ZooKeeper
    size their pools at their start). So are the settings of an existing link that cannot be changed.
    """
    is_live = plan.options.engine == "builtin"
    hosts = [_started(host, plan) if is_live else host for host in plan.hosts]
    links = [(link.a, link.b, _fixed(link.spec, plan) if is_live else link.spec) for link in plan.links]
    options = replace(plan.options, run_id="", seed=0, first_repetition=1)
    routes = plan.topology.routes(), plan.topology.reroutes
    text = repr((options, hosts, links, routes, plan.config.store, plan.dataset))
    return hashlib.sha256(text.encode()).hexdigest()


def change_between(standing: Plan, wanted: Plan) -> Change | None:
    """The change from the one plan to the other; ``None`` if that requires a new testbed.

    If the values of one link differ, all are reset: draws of losses and jitter restart with their seeds then.
    """
    if standing.options.seed != wanted.options.seed or standing_key(standing) != standing_key(wanted):
        return None
    hosts = zip(standing.hosts, wanted.hosts, strict=True)
    limits = tuple(new for old, new in hosts if old.cpu_quota_us != new.cpu_quota_us)
    return Change(limits, wanted.links if standing.links != wanted.links else ())


def all_fields(spec: LinkSpec) -> dict[str, dict[str, Any]]:
    """A whole spec as a change of both directions; the seeds are named, so draws restart."""
    sides = {"a_to_b": spec.a_to_b, "b_to_a": spec.b_to_a}
    return {side: {field.name: getattr(held, field.name) for field in fields(held)} for side, held in sides.items()}


def _started(host: HostPlan, plan: Plan) -> HostPlan:
    """A host without the settings that can be changed while it runs, and without the name of its run."""
    host = replace(host, command=tuple(word.replace(plan.run_id, "") for word in host.command))
    if host.role == "member" and not plan.store.follows_cpu_limit:
        return host
    return replace(host, cpus=None, cpu_quota_us=None)


def _fixed(spec: LinkSpec, plan: Plan) -> tuple[object, ...]:
    if plan.options.congestion_control not in _FORGETFUL:
        return (spec,)
    return _fixed_direction(spec.a_to_b), _fixed_direction(spec.b_to_a)


def _fixed_direction(direction: DirectionSpec) -> tuple[object, ...]:
    """The fixed settings of an existing link: where frames wait, and how much of a flow a host hands over at once.

    Sockets keep the latter as it was when they connected.
    """
    limits = (direction.rate_bps, direction.queue_frames, direction.queue_bytes)
    waits = direction.uplink, direction.aqm is None
    return *waits, *(limit is None for limit in limits), segments_at_once(held_at_host(direction))
