"""What a run asks for before it begins: root, and that no other one is on."""

from __future__ import annotations

import os

from containernet_env.base import cache
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.plan.plan import Plan
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
    return RunLock(cache.make() / "run.lock")
