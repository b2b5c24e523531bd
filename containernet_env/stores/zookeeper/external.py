"""A ZooKeeper cluster that somebody else runs, by its endpoints: what it is, and the keys below one znode.

Members are asked with the four-letter word ``srvr``, and over sessions. Nothing here writes but ``try_write`` and
``remove_keys``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from containernet_env.base.errors import RunError
from containernet_env.base.http import NoAnswerError
from containernet_env.base.work import side_by_side
from containernet_env.model.config import External
from containernet_env.model.usage import Leadership
from containernet_env.stores.external import ClusterLook, ExternalConnection, MemberLook, OwnKeys, places
from containernet_env.stores.protocol import MemberPlace, Written
from containernet_env.stores.zookeeper import session
from containernet_env.stores.zookeeper.cluster import ZooKeeperCluster, ZooKeeperMember
from containernet_env.stores.zookeeper.session import Session, ZnodeError
from containernet_env.stores.zookeeper.words import OBSERVER, MemberState

MARK = b"containernet-env"
"""What the znodes above the keys hold that runs have made: those without it are somebody's own, and stay."""
_ASK_S = 10.0
_BATCH_KEYS = 500
# What members that have no quorum say (NettyServerCnxn, ServerCnxn), and of words that they may not answer.
_NO_QUORUM = "serves no requests: it has found no quorum, and others have"
_NOT_SERVING, _NOT_ALLOWED = "not currently serving requests", "not in the whitelist"
# Another run may remove a znode that is empty while this one creates a child of it.
_TRIES = 5

T = TypeVar("T")


def chroot_of(prefix: str) -> str:
    """The znode below which keys with a prefix are."""
    return "/" + prefix.removesuffix("/")


def _above(chroot: str) -> list[str]:
    """The path and those above it, from the first one below the root on."""
    names = chroot.split("/")
    return ["/".join(names[:end]) for end in range(2, len(names) + 1)]


class _Member(ZooKeeperMember):
    """A member at an endpoint that a file names; keys are below ``chroot``."""

    def __init__(self, place: MemberPlace, chroot: str) -> None:
        super().__init__(place)
        self._chroot = chroot

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        """See ``members.Member``."""
        return session.values(self.connection, keys, timeout_s, self._chroot)


class ExternalZooKeeper(ZooKeeperCluster):
    """See ``stores.external.ExternalCluster``."""

    def __init__(self, external: External, connections: Sequence[ExternalConnection], own: OwnKeys) -> None:
        self._external = external
        self._connections = tuple(connections)
        self._own = own
        self._chroot = chroot_of(own.prefix)
        super().__init__([_Member(place, self._chroot) for place in places("zookeeper", external, connections)])

    def look(self, timeout_s: float) -> ClusterLook:
        """See ``ExternalCluster``. ZooKeeper has no name for a cluster; members of one have the same configuration."""
        numbers = range(len(self.members))
        answers = side_by_side(lambda number: self._look_at(number, timeout_s), numbers, len(self.members))
        found = ClusterLook(tuple(look for look, _ in answers))
        if found.problems:
            return found
        states = [state for _, state in answers if state is not None]
        if not states:
            told = f"{len(answers)} of {len(answers)} endpoints answer, and serve no requests"
            return replace(found, problem=f"the cluster has no quorum: {told}")
        if len(states) < len(answers):
            told_each = (look if state else replace(look, problem=_NO_QUORUM) for look, state in answers)
            return replace(found, members=tuple(told_each))
        if len(answers) > 1 and any(state.mode == "standalone" for state in states):
            return replace(found, problem="the endpoints are of different clusters: a member is alone")
        try:
            views = [_ensemble(connection, timeout_s) for connection in self._connections]
        except RunError as error:
            return replace(found, problem=f"the cluster has no quorum: a sync was not answered ({_first_line(error)})")
        if len({view.server for view in views}) < len(views):
            return replace(found, problem="two of the endpoints are of the same member")
        if len({view.servers for view in views}) > 1:
            return replace(found, problem="the endpoints are of different clusters")
        leader = next((look for look in found.members if look.leads), None)
        leadership = None if leader is None else Leadership(leader.name, max(state.epoch for state in states))
        return replace(found, size=len(views[0].servers) or None, leadership=leadership)

    def _look_at(self, number: int, timeout_s: float) -> tuple[MemberLook, MemberState | None]:
        """What one endpoint says; no state where it is a member without a quorum."""
        member, connection = self.members[number], self._connections[number]
        look = MemberLook(member.name, self._external.urls[number])
        try:
            state = member.state(timeout_s)
        except NoAnswerError as error:
            return replace(look, problem=str(error)), None
        except RunError as error:
            text = _first_line(error)
            if _NOT_SERVING in text:
                return look, None
            if _NOT_ALLOWED in text:
                return replace(look, problem="does not answer srvr: allow it (4lw.commands.whitelist)"), None
            # What speaks TLS waits for more than the word.
            if isinstance(error.__cause__, OSError) and connection.speaks_tls(timeout_s):
                return replace(look, problem="speaks TLS, which loads for ZooKeeper do not"), None
            if text == OBSERVER:
                return replace(look, problem="is an observer, which does not vote: leave it out"), None
            return replace(look, problem=f"is no voting member of ZooKeeper: {text}"), None
        return replace(look, version=state.version, leads=state.mode in ("leader", "standalone")), state

    def may_load(self) -> None:
        """See ``ExternalCluster``: whether znodes may be created, only a create would tell."""
        return

    def try_write(self) -> str | None:
        """See ``ExternalCluster``: makes the znode that the keys are below, which all members have then."""
        try:
            with session.synced(self.members[0].connection, _ASK_S) as opened:
                self._try_delete(opened)
                self._make_chroot(opened)
        except ZnodeError as error:
            if error.code == session.NO_AUTH:
                return f"nobody may create, or delete, znodes here: {error}"
            return str(error)
        except RunError as error:
            return f"{self.members[0].endpoint}: {error}"
        for member in self.members[1:]:
            try:
                with session.synced(member.connection, _ASK_S) as opened:
                    if not opened.exists(self._chroot):
                        first = self.members[0].endpoint
                        return f"{member.endpoint} has not what {first} has: they are of different clusters"
            except RunError as error:
                return f"{member.endpoint}: {error}"
        return None

    def _try_delete(self, opened: Session) -> None:
        """Make a znode beside the first one that lacks, and delete it: what is refused ends with the session.

        Below it all will be of this run. Raises RunError.
        """
        there = [path for path in _above(self._chroot) if opened.exists(path)]
        trial = f"{there[-1] if there else ''}/{self._chroot.rpartition('/')[2]}"
        opened.create(trial, MARK, ephemeral=True)
        opened.delete(trial)

    def _make_chroot(self, opened: Session) -> None:
        """Create the znodes of its path that are not there. Raises RunError."""
        for tried in range(_TRIES):
            try:
                for path in _above(self._chroot):
                    if not opened.exists(path):
                        opened.create(path, MARK)
                return
            except ZnodeError as error:
                if error.code not in (session.NO_NODE, session.NODE_EXISTS) or tried == _TRIES - 1:
                    raise

    def keys(self) -> int:
        """See ``ExternalCluster``: how many znodes are below the one of the prefix, at any depth."""
        return self._at_one(lambda opened: opened.descendants(self._chroot))

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        """See ``ExternalCluster``; then the znodes above them that runs have made and that are empty."""
        removed = 0

        def remove(opened: Session) -> None:
            nonlocal removed
            while names := opened.children(self._chroot):
                for first in range(0, len(names), _BATCH_KEYS):
                    paths = [f"{self._chroot}/{name}" for name in names[first : first + _BATCH_KEYS]]
                    removed += opened.delete_all(paths, _ASK_S)
                    checked(removed)
            for path in reversed(_above(self._chroot)):
                # Of those that are gone, or were never made, the ones above may be there.
                if opened.exists(path) and not (_is_of_runs(opened, path) and opened.delete_empty(path)):
                    break

        self._at_one(remove)
        return removed

    def _at_one(self, act: Callable[[Session], T]) -> T:
        """What it gives in a session at the first member that takes part in it to the end. Raises RunError."""
        problems = list[RunError]()
        for member in self.members:
            try:
                with session.synced(member.connection, _ASK_S) as opened:
                    return act(opened)
            except ZnodeError:
                raise
            except RunError as error:
                problems.append(error)
        raise problems[0]


def _is_of_runs(opened: Session, path: str) -> bool:
    """Whether runs have made a znode. Raises RunError."""
    try:
        return opened.data(path) == MARK
    except ZnodeError as error:
        if error.code == session.NO_AUTH:  # those that runs make may be read by everybody
            return False
        raise


@dataclass(frozen=True, slots=True)
class _Ensemble:
    """What one member says: its own number, and the servers of the cluster, none where it does not say."""

    server: int
    servers: frozenset[str]


def _ensemble(connection: ExternalConnection, timeout_s: float) -> _Ensemble:
    """What a session tells; a majority agrees on each. Raises RunError."""
    with session.synced(connection, timeout_s) as opened:
        return _Ensemble(opened.server, opened.voters())


def _first_line(error: RunError) -> str:
    return str(error).partition("\n")[0][:120]
