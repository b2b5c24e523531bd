"""What a run needs of a store that somebody else runs: it is looked at, loaded under a prefix, and cleaned.

Members are reached at their endpoints alone, over the same network as the load. Nothing here starts, stops or
configures anything.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from containernet_env.base.errors import RunError
from containernet_env.base.http import NoAnswerError
from containernet_env.base.programs import LastWords, last_words
from containernet_env.model.config import Config, External
from containernet_env.model.scenario import Keys
from containernet_env.model.topology import RttExpectation
from containernet_env.model.usage import Leadership
from containernet_env.stores.protocol import Cluster, Connection, LoadTerms, MemberPlace, Store

MEMBER_TIMEOUT_S = 2.0
"""For how long a member may be silent before it counts as such: its election timeout is not known, and a longer silence
is none of one that lives (``model.findings.SILENCE_MAX_S``)."""


class UnknownTiming:
    """See ``stores.protocol.Timing``: that of a cluster which somebody else has configured."""

    settle_s = 0.0
    member_timeout_s = MEMBER_TIMEOUT_S
    short = "timing not known"
    long = "its timing is not known"

    def values(self) -> Mapping[str, int | str]:
        """None that is known."""
        return {}

    def notes(self, largest: RttExpectation) -> Iterator[str]:
        """Nothing is known, so there is nothing to say."""
        return iter(())

    heartbeat = None


class ExternalConnection(Connection, Protocol):
    """A connection to one endpoint; there is one port, whichever a caller names.

    Errors say what is wrong in a few words that can follow the endpoint.
    """

    def request_json(
        self,
        port: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """See ``Connection``; ``headers`` are sent besides."""

    def request_bytes(
        self, port: int, path: str, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """See ``Connection``; ``headers`` are sent besides."""

    def speaks_tls(self, timeout_s: float) -> bool:
        """Whether TLS is spoken there, whoever that is; nothing is sent over it."""


@dataclass(frozen=True, slots=True)
class WithHeaders:
    """A connection to an endpoint whose requests all carry the same headers, which may be secret."""

    connection: ExternalConnection
    headers: Mapping[str, str] = field(repr=False)

    def request_json(
        self,
        port: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """See ``ExternalConnection``."""
        sent = {**self.headers, **(headers or {})}
        return self.connection.request_json(port, method, path, body, timeout_s=timeout_s, headers=sent)

    def request_bytes(
        self, port: int, path: str, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """See ``ExternalConnection``."""
        sent = {**self.headers, **(headers or {})}
        return self.connection.request_bytes(port, path, timeout_s=timeout_s, headers=sent)

    def open(self, port: int, *, timeout_s: float) -> socket.socket:
        """See ``ExternalConnection``."""
        return self.connection.open(port, timeout_s=timeout_s)

    def speaks_tls(self, timeout_s: float) -> bool:
        """See ``ExternalConnection``."""
        return self.connection.speaks_tls(timeout_s)


@dataclass
class Elsewhere:
    """The host of a member that somebody else runs: nothing of it can be seen, and silence is not death."""

    name: str
    pid: int = 0
    alive: bool = True

    def ending(self, words: LastWords = last_words) -> str | None:
        """See ``stores.protocol.MemberHost``: nobody knows."""
        return None

    def logs(self, tail: int = 20) -> str:
        """See ``MemberHost``. Raises RunError."""
        raise RunError(f"the log of {self.name} is where it runs")


def places(kind: str, external: External, connections: Iterable[Connection]) -> Iterator[MemberPlace]:
    """Where its members are, in their order, each with the connection to it; their names are kind and number."""
    for number, (endpoint, connection) in enumerate(zip(external.endpoints, connections, strict=True), start=1):
        yield MemberPlace(Elsewhere(f"{kind}{number}"), endpoint.host, connection, endpoint.address)


SPEAKS_TLS = 'speaks TLS: its endpoint begins with https://, and "tls" names its CA'


def why_silent(connection: ExternalConnection, error: NoAnswerError, tls: bool, timeout_s: float) -> str:
    """What is wrong with an endpoint that gave no answer; ``tls``: whether TLS was spoken."""
    if not tls and connection.speaks_tls(timeout_s):
        return SPEAKS_TLS
    if str(error) == "does not speak TLS":
        return "does not speak TLS: where it should not, its endpoint begins with http://"
    return str(error)


@dataclass(frozen=True, slots=True)
class Login:
    """Who asks, where the store wants to know; a token has no name beside it."""

    user: str | None
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """The keys of a run: they start with ``prefix``; ``generated`` are all that it can write, by whole names."""

    prefix: str
    generated: tuple[Keys, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberLook:
    """What one endpoint said: who it is, or why it cannot be used (``problem``), in one line without its URL."""

    name: str
    url: str
    problem: str | None = None
    version: str | None = None
    member_name: str | None = None
    leads: bool = False
    data_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """What the endpoints say together, read without writing anything.

    ``identity`` tells the cluster from others, ``None`` where it does not tell. ``size`` is how many members it has
    itself. ``users``: whether the store asks who somebody is; ``None`` where that is not known. ``problem``: why it
    cannot be measured, in one line.
    """

    members: tuple[MemberLook, ...]
    identity: str | None = None
    size: int | None = None
    leadership: Leadership | None = None
    users: bool | None = None
    problem: str | None = None

    @property
    def problems(self) -> list[str]:
        """Everything that keeps it from being measured, a line each."""
        own = [f"{member.url} {member.problem}" for member in self.members if member.problem is not None]
        return [*own, *([] if self.problem is None else [self.problem])]


class ExternalCluster(Cluster, Protocol):
    """A running cluster under one prefix of keys; what it is asked about keys is about these alone."""

    def look(self, timeout_s: float) -> ClusterLook:
        """What it is; writes nothing, and raises nothing."""

    def may_load(self) -> str | None:
        """Why this user may not read, write and remove keys under the prefix; ``None`` where it may. Writes nothing."""

    def try_write(self) -> str | None:
        """Why it cannot be loaded, where only a write tells that; ``None`` where it can.

        What it writes is a key of the run, which is on record; it may stay until ``remove_keys``.
        """

    def keys(self) -> int | None:
        """How many keys there are under the prefix, as far as the store tells that; ``None`` where it does not.

        Raises ``RunError``.
        """

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        """Remove all keys under the prefix in batches, ``checked`` after each with how many that were so far.

        How many they were. Raises ``RunError``.
        """


class ExternalStore(Store, Protocol):
    """A kind of store that can be measured where somebody else runs it."""

    def place(self, prefix: str) -> tuple[LoadTerms, str]:
        """How loads speak with it so that all they write is under ``prefix``, and what each key begins with then."""

    def external(
        self, config: Config, connections: Sequence[ExternalConnection], login: Login | None, own: OwnKeys
    ) -> ExternalCluster:
        """The cluster of ``config.external``, each with the connection to it, in their order; nothing is sent yet."""
