"""A Consul cluster that somebody else runs, by its endpoints: what it is, and the keys under one prefix.

Everything is asked over the agents' HTTP API. Nothing here writes but ``try_write`` and ``remove_keys``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from containernet_env.base.errors import RunError
from containernet_env.base.http import HttpError, NoAnswerError
from containernet_env.base.work import persistently, side_by_side
from containernet_env.model.config import External
from containernet_env.model.scenario import ALPHABET, Keys
from containernet_env.model.usage import Leadership
from containernet_env.stores.consul import cluster
from containernet_env.stores.consul.cluster import ConsulCluster
from containernet_env.stores.consul.settings import HTTP_PORT
from containernet_env.stores.external import (
    SPEAKS_TLS,
    ClusterLook,
    ExternalConnection,
    Login,
    MemberLook,
    OwnKeys,
    WithHeaders,
    places,
    why_silent,
)
from containernet_env.stores.members import PATIENCE_S, MemberStatus
from containernet_env.stores.protocol import MemberPlace

_ASK_S = 10.0
# Of the names of keys that are listed at once: answers have a bound of 16 MiB.
_MOST_LISTED_BYTES = 12 << 20
# What all versions take in one transaction (agent/txn_endpoint.go, maxTxnOps): one entry of the log.
_BATCH_KEYS = 64
_WANTS_TOKEN = 'asks for a token (ACLs): name its file with "token_file"'


class _Member(cluster.Member):
    """A server agent at an endpoint that a file names; what it is asked to read is within ``prefix``."""

    def __init__(self, place: MemberPlace, prefix: str) -> None:
        super().__init__(place)
        self.probe_key = prefix


class ExternalConsul(ConsulCluster):
    """See ``stores.external.ExternalCluster``."""

    def __init__(
        self, external: External, connections: Sequence[ExternalConnection], login: Login | None, own: OwnKeys
    ) -> None:
        self._external = external
        self._refusal = _WANTS_TOKEN
        if login is not None:
            connections = [WithHeaders(connection, {"X-Consul-Token": login.password}) for connection in connections]
            self._refusal = "refuses the token, or what it may do"
        self._connections = tuple(connections)
        self._asked = list(connections)
        self._own = own
        super().__init__([_Member(place, own.prefix) for place in places("consul", external, connections)])

    def look(self, timeout_s: float) -> ClusterLook:
        """See ``ExternalCluster``. Consul has no name for a cluster; servers of one name the same servers."""
        numbers = range(len(self.members))
        answers = side_by_side(lambda number: self._look_at(number, timeout_s), numbers, len(self.members))
        found = ClusterLook(tuple(look for look, _ in answers))
        views = [view for _, view in answers if view is not None]
        if not views:
            return found
        if len({view.status.member_id for view in views}) < len(views):
            return replace(found, problem="two of the endpoints are of the same member")
        if len({view.peers for view in views}) > 1:
            return replace(found, problem="the endpoints are of different clusters")
        if all(view.status.leader_id is None for view in views):
            told = f"{len(views)} of {len(answers)} endpoints answer, and know no leader"
            return replace(found, problem=f"the cluster has no quorum: {told}")
        if found.problems:
            return found
        if (problem := self._unreadable(timeout_s)) is not None:
            return replace(found, problem=problem)
        led = max((view.status for view in views), key=lambda status: status.raft_term)
        leader = next(
            (look for look, view in answers if view is not None and view.status.member_id == led.leader_id), None
        )
        return replace(
            found,
            size=len(views[0].peers),
            leadership=None if leader is None else Leadership(leader.name, led.raft_term),
        )

    def _look_at(self, number: int, timeout_s: float) -> tuple[MemberLook, _View | None]:
        member, connection = self.members[number], self._connections[number]
        look = MemberLook(member.name, self._external.urls[number])
        try:
            told = connection.request_json(HTTP_PORT, "GET", cluster.SELF, timeout_s=timeout_s)
            view = _View(cluster.status_of(told), frozenset(member.peers()))
            name, version = str(told["Config"]["NodeName"]), view.status.version
        except HttpError as error:
            if self._external.tls is None and connection.speaks_tls(timeout_s):
                return replace(look, problem=SPEAKS_TLS), None
            if error.status == 403:
                return replace(look, problem=self._refused(error)), None
            return replace(look, problem=f"is no Consul: {_first_line(error)[:80]}"), None
        except NoAnswerError as error:
            problem = why_silent(connection, error, self._external.tls is not None, timeout_s)
            return replace(look, problem=problem), None
        except (RunError, KeyError, TypeError, ValueError):
            # A client agent has no Raft.
            return replace(look, problem="is no server of Consul: GET /v1/agent/self says something else"), None
        leads = view.status.leader_id == view.status.member_id
        return replace(look, version=version, member_name=name, leads=leads), view

    def _unreadable(self, timeout_s: float) -> str | None:
        """Why consistent reads fail at a member; ``None`` where none does."""
        try:
            for member in self.members:
                member.read(timeout_s)
        except HttpError as error:
            if error.status == 403:
                return f"the cluster {self._refused(error)}"
            return f"the cluster has no quorum: a consistent read was not answered ({_first_line(error)})"
        except RunError as error:
            return f"the cluster has no quorum: a consistent read was not answered ({_first_line(error)})"
        return None

    def _refused(self, error: HttpError) -> str:
        """What a 403 means."""
        return f"{self._refusal} ({_first_line(error)[:160]})"

    def may_load(self) -> None:
        """See ``ExternalCluster``: whether it takes a put, only a put would tell."""
        return

    def try_write(self) -> str | None:
        """See ``ExternalCluster``: the first key is put, which all members have then, and deleted again."""
        if not self._own.generated:
            return None
        path, lacking = f"/v1/kv/{quote(self._own.generated[0].name(0))}", None
        for method in ("PUT", "DELETE"):
            try:
                done = self._ask(method, path)
            except HttpError as error:
                if error.status == 403:
                    return f"it {self._refused(error)}"
                return f"{method} {path}: {_first_line(error)}"
            if done is not True:
                return f"{method} {path} answers {str(done)[:40]}, and not true"
            if method == "PUT":
                lacking = self._lacking(f"{path}?consistent")
        return lacking

    def _lacking(self, path: str) -> str | None:
        """Why a key that is there is not there at a member, or cannot be read; ``None`` where all have it."""
        for member in self.members:
            try:
                member.connection.request_json(HTTP_PORT, "GET", path, timeout_s=_ASK_S)
            except HttpError as error:
                if error.status == 404:
                    first = self.members[0].endpoint
                    return f"{member.endpoint} has not what {first} has: they are of different clusters"
                return f"{member.endpoint}: {_first_line(error)}"
            except RunError as error:
                return f"{member.endpoint}: {error}"
        return None

    def keys(self) -> int:
        """See ``ExternalCluster``."""
        return len(self._listed(self._own.prefix))

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        """See ``ExternalCluster``: a few at once, for a whole prefix would be one entry of the log, however large."""
        removed = 0
        for part in self._parts():
            names = self._listed(part)
            for first in range(0, len(names), _BATCH_KEYS):
                batch = names[first : first + _BATCH_KEYS]
                verbs = [{"KV": {"Verb": "delete", "Key": name}} for name in batch]
                persistently(partial(self._ask, "PUT", "/v1/txn", verbs), PATIENCE_S)
                removed += len(batch)
                checked(removed)
        return removed

    def _parts(self) -> Iterator[str]:
        """Prefixes that few of the run's keys have in common, and last the one of all: answers have a bound."""
        for keys in self._own.generated:
            digits = 0
            while digits < keys.size and _listed_bytes(keys) * len(ALPHABET) ** (digits + 1) <= _MOST_LISTED_BYTES:
                digits += 1
            for first in range(0, keys.count, len(ALPHABET) ** digits):
                yield keys.name(first)[: -digits or None]
        yield self._own.prefix

    def _listed(self, prefix: str) -> list[str]:
        """The names of all keys with a prefix, by a consistent read. Raises RunError."""
        try:
            return list(self._ask("GET", f"/v1/kv/{quote(prefix)}?keys&consistent") or ())
        except HttpError as error:
            if error.status == 404:
                return []
            raise

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """A question to the first member that answers and knows a leader; it is asked first from then on.

        Raises RunError.
        """
        problem: RunError | None = None
        for connection in tuple(self._asked):
            try:
                return connection.request_json(HTTP_PORT, method, path, body, timeout_s=_ASK_S)
            except HttpError as error:
                if error.status < 500:
                    raise
                problem = problem or error
            except RunError as error:
                problem = problem or error
            self._asked.remove(connection)
            self._asked.append(connection)
        assert problem is not None
        raise problem


def _listed_bytes(keys: Keys) -> int:
    """How many bytes the name of each takes in a list, in JSON as Consul has it, or with more escapes."""
    name = keys.name(0)
    return len(json.dumps(name)) + len(",") + sum(5 * name.count(escaped) for escaped in "<>&")


@dataclass(frozen=True, slots=True)
class _View:
    """What one server says: its own state, and the addresses of all servers."""

    status: MemberStatus
    peers: frozenset[str]


def _first_line(error: RunError) -> str:
    return str(error).partition("\n")[0]
