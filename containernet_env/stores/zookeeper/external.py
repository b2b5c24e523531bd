"""An external ZooKeeper cluster: which one it is, and the keys below one znode.

Members are queried with the four-letter word ``srvr``, and over sessions. Nothing here writes but ``try_write`` and
``remove_keys``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from containernet_env.base.errors import RunError
from containernet_env.base.http import HttpError, NoAnswerError
from containernet_env.model.usage import Leadership
from containernet_env.stores.cluster import MemberPlace
from containernet_env.stores.external import (
    REQUEST_S,
    ClusterLook,
    ExternalCluster,
    ExternalConnection,
    MemberLook,
    MemberView,
    first_line,
)
from containernet_env.stores.store import path_problem
from containernet_env.stores.zookeeper import cluster as zookeeper
from containernet_env.stores.zookeeper.cluster import (
    OBSERVER,
    Session,
    ZnodeError,
    ZooKeeperCluster,
    ZooKeeperMember,
    synced,
)

MARK = b"containernet-env"
"""The content of the znodes above the keys that runs have made: those without it are of others, and stay."""
_BATCH_KEYS = 500
# Answers of members without a quorum (NettyServerCnxn, ServerCnxn), and to words that are not allowed.
_NO_QUORUM = "serves no requests: it has found no quorum, and others have"
_NOT_SERVING, _NOT_ALLOWED = "not currently serving requests", "not in the whitelist"
# Another run may remove a znode that is empty while this one creates a child of it.
_TRIES = 5
_TEXT = 120

T = TypeVar("T")


def bad_prefix(prefix: str) -> tuple[str, str] | None:
    """The fault of a prefix of keys, and the allowed form, if there is a fault."""
    if (problem := path_problem(prefix)) is not None:
        return problem
    if not prefix.isascii() or " " in prefix:
        return "is no path of a znode here", "names of visible ASCII characters"
    if prefix.startswith("zookeeper/"):
        return "is of ZooKeeper's own znodes", "a prefix that does not begin with zookeeper/"
    return None


def chroot_of(prefix: str) -> str:
    """The znode below which keys with a prefix are."""
    return "/" + prefix.removesuffix("/")


def _above(chroot: str) -> list[str]:
    """The path and those above it, from the first one below the root on."""
    names = chroot.split("/")
    return ["/".join(names[:end]) for end in range(2, len(names) + 1)]


class ExternalZooKeeper(ExternalCluster[ZooKeeperMember], ZooKeeperCluster):
    """An external ZooKeeper cluster; see ``ExternalCluster``.

    ZooKeeper has no name for a cluster; members of one have the same configuration.
    """

    @property
    def _chroot(self) -> str:
        return chroot_of(self._own.prefix)

    def _member_at(self, place: MemberPlace) -> ZooKeeperMember:
        return ZooKeeperMember(place, self._chroot)

    def _other(self, error: HttpError) -> str:
        return str(error)  # it speaks no HTTP

    def _is_refusal(self, error: RunError) -> bool:
        return isinstance(error, ZnodeError)

    def _look_at(
        self, member: ZooKeeperMember, look: MemberLook, connection: ExternalConnection, timeout_s: float
    ) -> MemberLook:
        # A member without a quorum has no view.
        try:
            state = member.state(timeout_s)
        except NoAnswerError:
            raise
        except RunError as error:
            text = first_line(error, _TEXT)
            if _NOT_SERVING in text:
                return look
            if _NOT_ALLOWED in text:
                return replace(look, problem="does not answer srvr: allow it (4lw.commands.whitelist)")
            # A port with TLS waits for more than the word.
            if isinstance(error.__cause__, OSError) and connection.speaks_tls(timeout_s):
                return replace(look, problem="speaks TLS, which loads for ZooKeeper do not")
            if text == OBSERVER:
                return replace(look, problem="is an observer, which does not vote: leave it out")
            return replace(look, problem=f"is no voting member of ZooKeeper: {text}")
        leads = state.mode in ("leader", "standalone")
        view = MemberView(member.name, state.mode, member.name if leads else None, state.epoch)
        return replace(look, version=state.version, leads=leads, view=view)

    def _judge(self, found: ClusterLook, timeout_s: float) -> ClusterLook:
        count = len(found.members)
        if found.problems:
            return found
        if not found.views:
            counts = f"{count} of {count} endpoints answer, and serve no requests"
            return replace(found, problem=f"the cluster has no quorum: {counts}")
        if len(found.views) < count:
            looks = (look if look.view else replace(look, problem=_NO_QUORUM) for look in found.members)
            return replace(found, members=tuple(looks))
        if count > 1 and any(view.cluster == "standalone" for view in found.views):
            return replace(found, problem="the endpoints are of different clusters: a member is alone")
        try:
            # Number of the member, and the servers of its cluster, on which a majority agrees in each session.
            sessions = [_numbers(connection, timeout_s) for connection in self._plain]
        except RunError as error:
            reason = first_line(error, _TEXT)
            return replace(found, problem=f"the cluster has no quorum: a sync was not answered ({reason})")
        if len({own for own, _ in sessions}) < count:
            return replace(found, problem="two of the endpoints are of the same member")
        if len({servers for _, servers in sessions}) > 1:
            return replace(found, problem="the endpoints are of different clusters")
        leader = next((look.name for look in found.members if look.leads), None)
        newest = max(view.term for view in found.views)
        leadership = None if leader is None else Leadership(leader, newest)
        return replace(found, size=len(sessions[0][1]) or None, leadership=leadership)

    def try_write(self) -> str | None:
        # Makes the znode that the keys are below, which all members have then.
        try:
            with synced(self.members[0].connection, REQUEST_S) as opened:
                self._try_delete(opened)
                self._make_chroot(opened)
        except ZnodeError as error:
            if error.code == zookeeper.NO_AUTH:
                return f"znodes may not be created, or deleted, here: {error}"
            return str(error)
        except RunError as error:
            return f"{self.members[0].endpoint}: {error}"
        return self._lacking(lambda member: self._in_session(member, lambda opened: opened.exists(self._chroot)))

    def _try_delete(self, opened: Session) -> None:
        """Make a znode beside the first one that lacks, and delete it: where that is refused it ends with the session.

        All znodes below it will be of this run. Raises RunError.
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
                if error.code not in (zookeeper.NO_NODE, zookeeper.NODE_EXISTS) or tried == _TRIES - 1:
                    raise

    def keys(self) -> int:
        # The znodes below the one of the prefix, at any depth.
        return self._at_one(lambda member: self._in_session(member, lambda opened: opened.descendants(self._chroot)))

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        # Then the znodes above them that runs have made and that are empty.
        removed = 0

        def remove(opened: Session) -> None:
            nonlocal removed
            while names := opened.children(self._chroot):
                for first in range(0, len(names), _BATCH_KEYS):
                    paths = [f"{self._chroot}/{name}" for name in names[first : first + _BATCH_KEYS]]
                    removed += opened.delete_all(paths, REQUEST_S)
                    checked(removed)
            for path in reversed(_above(self._chroot)):
                # If some are gone, or were never made, the ones above may exist.
                if opened.exists(path) and not (_is_of_runs(opened, path) and opened.delete_empty(path)):
                    break

        self._at_one(lambda member: self._in_session(member, remove))
        return removed

    @staticmethod
    def _in_session(member: ZooKeeperMember, act: Callable[[Session], T]) -> T:
        with synced(member.connection, REQUEST_S) as opened:
            return act(opened)


def _is_of_runs(opened: Session, path: str) -> bool:
    """Whether runs have made a znode. Raises RunError."""
    try:
        found = opened.read(path)
        return found is not None and found[0] == MARK
    except ZnodeError as error:
        if error.code == zookeeper.NO_AUTH:  # those that runs make can be read by all clients
            return False
        raise


def _numbers(connection: ExternalConnection, timeout_s: float) -> tuple[int, frozenset[str]]:
    """A member's own number, and those of all servers of its cluster, none if it does not list them. Raises
    RunError."""
    with synced(connection, timeout_s) as opened:
        return opened.server, opened.voters()
