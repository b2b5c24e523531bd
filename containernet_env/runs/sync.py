"""How long an fdatasync takes where each member of a testbed keeps its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from containernet_env.base.container_files import root_of
from containernet_env.base.errors import RunError
from containernet_env.hosts.data_sync import BUDGET_S, SyncTimes, measure_sync
from containernet_env.plan.plan import Plan
from containernet_env.stores.protocol import MemberHost

ALL_BUDGET_S = 1.0
"""What it may take for all members together."""


def measure_syncs(
    plan: Plan, hosts: Mapping[str, MemberHost], check: Callable[[], None], note: Callable[[str], None]
) -> dict[str, SyncTimes]:
    """Measure one member after the other, while nobody else writes; those where it cannot be measured are left out.

    ``check`` is called before each, and where one fails: it raises where a host that has ended is why.
    """
    members = [host for host in plan.hosts if host.data]
    measured: dict[str, SyncTimes] = {}
    for host in members:
        check()
        try:
            budget_s = min(BUDGET_S, ALL_BUDGET_S / len(members))
            measured[host.name] = measure_sync(root_of(hosts[host.name].pid), host.data[0], budget_s)
        except RunError as error:
            check()
            note(f"{host.name}: {error}; writes have no floor")
    return measured
