"""What clusters have in common in which nobody leads, and whose members count nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

from containernet_env.model.leadership import Leadership
from containernet_env.model.store_activity import MemberActivity, StoreActivity
from containernet_env.stores.members import M, MemberCluster, MemberStatus

_ASK_S = 2.0


class NothingCounted:
    """See ``stores.protocol.Observation``: the members count nothing."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def end(self) -> StoreActivity:
        """See ``Observation``."""
        return StoreActivity({name: MemberActivity() for name in self._names})


class LeaderlessCluster(MemberCluster[M], Generic[M]):
    """See ``stores.protocol.Cluster``: the first member that answers is the one called the leader."""

    lacks = "no answer to a read from every member"

    def __init__(self, members: Sequence[M], quorum: int) -> None:
        super().__init__(members)
        self.quorum = quorum

    def _leadership(self, statuses: Mapping[M, MemberStatus | None], required: int) -> Leadership | None:
        # In the topology's order, whoever answered first.
        answering = [member for member in self.members if statuses.get(member) is not None]
        return Leadership(answering[0].name, 0) if len(answering) >= max(required, 1) else None

    def _is_ready(self, statuses: Mapping[M, MemberStatus | None]) -> bool:
        # Each may answer by itself before it reaches the others.
        return self.answers(_ASK_S)

    def observe(self) -> NothingCounted:
        """See ``stores.protocol.Cluster``."""
        return NothingCounted([member.name for member in self.living()])
