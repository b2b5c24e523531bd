"""What clusters without a leader have in common, whose members count nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Generic

from containernet_env.model.usage import Leadership, MemberActivity, StoreActivity
from containernet_env.stores.members import M, MemberCluster, MemberStatus


class NothingCounted:
    """See ``stores.protocol.Observation``: the members count nothing."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def end(self) -> StoreActivity:
        """See ``Observation``."""
        return StoreActivity({name: MemberActivity() for name in self._names})


class LeaderlessCluster(MemberCluster[M], Generic[M]):
    """See ``stores.protocol.Cluster``: loads for the leader go to the first living member of the topology."""

    lacks = "no answer to a read from every member"

    def __init__(self, members: Sequence[M], quorum: int) -> None:
        super().__init__(members)
        self.quorum = quorum

    def _leadership(self, statuses: Mapping[M, MemberStatus | None], required: int) -> Leadership | None:
        return self.leadership() if sum(map(bool, statuses.values())) >= required else None

    def leadership(self) -> Leadership | None:
        """See ``stores.protocol.Cluster``; no query decides it, so one without an answer changes nothing."""
        name = self.leader_now(0.0, ())
        return None if name is None else Leadership(name, None)

    def leader_now(self, timeout_s: float, without: Collection[str]) -> str | None:
        """See ``stores.protocol.Cluster``."""
        return next((member.name for member in self.living() if member.name not in without), None)

    def _is_ready(self, statuses: Mapping[M, MemberStatus | None]) -> bool:
        # Each may answer by itself before it reaches the others.
        return self.answers(self.ask_s)

    def observe(self) -> NothingCounted:
        """See ``stores.protocol.Cluster``."""
        return NothingCounted([member.name for member in self.living()])
