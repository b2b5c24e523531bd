"""Clusters that this program neither starts nor stops: they are inspected, loaded under a prefix of keys, and cleaned.

Members are reached at their endpoints alone, over the same network as the load. Nothing here configures anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from containernet_env.base.errors import RunError
from containernet_env.base.http import Connection, HttpError, worded
from containernet_env.base.programs import LastWords, last_words
from containernet_env.base.work import side_by_side
from containernet_env.model.config import Config
from containernet_env.model.scenario import Keys
from containernet_env.model.usage import Leadership
from containernet_env.stores.cluster import Cluster, M, MemberPlace, MemberStatus

T = TypeVar("T")
REQUEST_S = 10.0
"""How long a member may take to answer a request about keys."""

# --- connections ------------------------------------------------------------------------------------------------------


class ExternalConnection(Connection):
    """Connections to one endpoint; there is one port, whichever a caller names.

    Messages describe the problem in a few words that can follow the endpoint, without the address.
    """

    @abstractmethod
    def with_headers(self, headers: Mapping[str, str]) -> ExternalConnection:
        """The same with these headers."""

    @abstractmethod
    def speaks_tls(self, timeout_s: float) -> bool:
        """Whether the endpoint speaks TLS, whatever its certificate; sends nothing over it."""

    @contextmanager
    def _errors(self, subject: str) -> Iterator[None]:
        with worded():
            yield


@dataclass(frozen=True, slots=True)
class Login:
    """The user of the cluster, where it has users; a token has no name beside it."""

    user: str | None
    password: str = field(repr=False)


@dataclass
class RemoteHost:
    """A ``MemberHost`` of an external member: it cannot be observed, and silence is not death."""

    name: str
    pid: int = 0
    alive: bool = True

    def ending(self, words: LastWords = last_words) -> str | None:
        return None

    def logs(self, tail: int = 20) -> str:
        raise RunError(f"the log of {self.name} is on its own machine")


# --- inspection -------------------------------------------------------------------------------------------------------

_SPEAKS_TLS = 'speaks TLS: its endpoint begins with https://, and "tls" names its CA'
_NO_TLS = "does not speak TLS"


def first_line(error: Exception, most: int | None = None) -> str:
    """The first line of an error, for a message in one line."""
    return str(error).partition("\n")[0][:most]


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """The keys of a run: they start with ``prefix``; ``generated`` are all that it can write, by whole names."""

    prefix: str
    generated: tuple[Keys, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberLook:
    """The answer of one endpoint: which member it is, or why it cannot be used (``problem``), in one line without URL.

    ``status`` is its own view, ``None`` if it gives none; ``refusal`` is why, where it is a member that refuses this
    user. ``cluster`` is a value that all members of its cluster share.
    """

    name: str
    url: str
    problem: str | None = None
    version: str | None = None
    member_name: str | None = None
    data_bytes: int | None = None
    status: MemberStatus | None = None
    cluster: str | frozenset[str] = ""
    refusal: RunError | None = None

    @property
    def leads(self) -> bool:
        """Whether it is the leader that it knows."""
        return self.status is not None and self.status.leader_id == self.status.member_id


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """The answers of all endpoints together, read without writing anything.

    ``identity`` differs between clusters, ``None`` if the store has none. ``size`` is how many members the cluster
    has itself. ``users``: whether the store has users; ``None`` if that is unknown. ``problem``: why it cannot be
    measured, in one line.
    """

    members: tuple[MemberLook, ...]
    identity: str | None = None
    size: int | None = None
    leadership: Leadership | None = None
    users: bool | None = None
    problem: str | None = None

    @property
    def problems(self) -> list[str]:
        own = [f"{member.url} {member.problem}" for member in self.members if member.problem is not None]
        return [*own, *([] if self.problem is None else [self.problem])]

    @property
    def statuses(self) -> list[MemberStatus]:
        return [member.status for member in self.members if member.status is not None]

    def conflict(self) -> str | None:
        """Why the members that give a status are no usable cluster together."""
        statuses = self.statuses
        if len({member.cluster for member in self.members if member.status is not None}) > 1:
            return "the endpoints are of different clusters"
        if len({status.member_id for status in statuses}) < len(statuses):
            return "two of the endpoints are of the same member"
        if statuses and all(status.leader_id is None for status in statuses):
            counts = f"{len(statuses)} of {len(self.members)} endpoints answer, and know no leader"
            return f"the cluster has no quorum: {counts}"
        return None

    def led(self) -> Leadership | None:
        """The leader in the newest term that a member knows; ``None`` if it is not one of the endpoints."""
        newest = max(self.statuses, key=lambda status: status.raft_term)
        leading = (look.name for look in self.members if look.status and look.status.member_id == newest.leader_id)
        name = next(leading, None)
        return None if name is None else Leadership(name, newest.raft_term)


class ExternalCluster(Cluster[M], ABC, Generic[M]):
    """An external cluster and the keys under one prefix; no other keys are read or written."""

    def __init__(
        self,
        member_at: Callable[[MemberPlace, str], M],
        config: Config,
        connections: Sequence[ExternalConnection],
        login: Login | None,
        own: OwnKeys,
    ) -> None:
        assert config.external is not None
        self._external, self._login, self._own = config.external, login, own
        self._user = None if login is None else login.user
        members = []
        for number, (endpoint, connection) in enumerate(zip(self._external.endpoints, connections, strict=True), 1):
            host = RemoteHost(f"{config.store.kind}{number}")
            place = MemberPlace(host, endpoint.host, self._access(connection), endpoint.address)
            members.append(member_at(place, own.prefix))
        super().__init__(members)
        self._plain = dict(zip(self.members, connections, strict=True))
        """The connection of each, without a login."""
        self._preferred = list(self.members)

    def _access(self, connection: ExternalConnection) -> Connection:
        """The connection of a member, with the login, if there is one."""
        return connection

    @abstractmethod
    def _look_at(self, member: M, look: MemberLook, timeout_s: float) -> MemberLook:
        """``look`` with the answers of one member, of which name and URL are known.

        Raises ``RunError`` if there is none, and ``HttpError`` for one that no member gives.
        """

    @abstractmethod
    def _judge(self, found: ClusterLook, timeout_s: float) -> ClusterLook:
        """``found`` with everything that the members' answers show together. Writes and raises nothing."""

    def _other(self, error: HttpError) -> str:
        """The fault of an endpoint that gives such an answer."""
        return str(error)

    def look(self, timeout_s: float) -> ClusterLook:
        """Inspect it; writes nothing, and raises nothing."""

        def look_at(member: M) -> MemberLook:
            look = MemberLook(member.name, self._external.urls[self.members.index(member)])
            try:
                return self._look_at(member, look, timeout_s)
            except RunError as error:
                problem = self._other(error) if isinstance(error, HttpError) else first_line(error)
                if problem == _NO_TLS:
                    problem += ": where it should not, its endpoint begins with http://"
            if self._external.tls is None and self._plain[member].speaks_tls(timeout_s):
                problem = _SPEAKS_TLS
            return replace(look, problem=problem)

        return self._judge(ClusterLook(tuple(side_by_side(look_at, self.members, len(self.members)))), timeout_s)

    def _at_one(self, act: Callable[[M], T]) -> T:
        """The result of ``act`` at the first member that gives one and has a quorum; it is queried first from then on.

        Raises RunError, at once for a refusal.
        """
        problem: RunError | None = None
        for member in tuple(self._preferred):
            try:
                return act(member)
            except RunError as error:
                if self._is_refusal(error):
                    raise
                problem = problem or error
            self._preferred.remove(member)
            self._preferred.append(member)
        assert problem is not None
        raise problem

    def _is_refusal(self, error: RunError) -> bool:
        """Whether another member would give the same answer."""
        return isinstance(error, HttpError) and error.status < 500

    def _request(self, method: str, path: str, body: Any = None, timeout_s: float = REQUEST_S) -> Any:
        """The answer to an HTTP request ``_at_one`` of the members. Raises RunError."""

        def query(member: M) -> Any:
            return member.connection.request_json(member.client_port, method, path, body, timeout_s=timeout_s)

        return self._at_one(query)

    def _lacking(self, has_key: Callable[[M], bool]) -> str | None:
        """Why a key that is at the first member is not at another one, or cannot be read; ``None`` if all have it."""
        for member in self.members:
            try:
                if not has_key(member):
                    first = self.members[0].endpoint
                    return f"{member.endpoint} lacks what {first} has: they are of different clusters"
            except RunError as error:
                return f"{member.endpoint}: {first_line(error)}"
        return None

    def may_load(self) -> str | None:
        """Why this user may not read, write and remove keys under the prefix; ``None`` if it may. Writes nothing.

        ``None`` also where only a write shows that.
        """
        return None

    def try_write(self) -> str | None:
        """Why it cannot be loaded, where only a write shows that; ``None`` if it can.

        It writes a key of the run, which is on record and may stay until ``remove_keys``.
        """
        return None

    @abstractmethod
    def keys(self) -> int | None:
        """How many keys there are under the prefix, as far as the store can count them; ``None`` if it cannot.

        Raises ``RunError``.
        """

    @abstractmethod
    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        """Remove all keys under the prefix in batches; after each, ``checked`` gets how many were removed so far.

        How many they were. Raises ``RunError``.
        """
