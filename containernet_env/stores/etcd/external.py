"""An etcd cluster that somebody else runs, by its endpoints: what it is, and the keys under one prefix.

Everything is asked over the JSON gateway of the client port. Nothing here writes but ``remove_keys``.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.http import HttpError, NoAnswerError
from containernet_env.base.work import persistently, side_by_side
from containernet_env.model.config import External
from containernet_env.model.usage import Leadership
from containernet_env.stores.etcd import history
from containernet_env.stores.etcd.cluster import EtcdCluster, Member
from containernet_env.stores.etcd.flags import CLIENT_PORT
from containernet_env.stores.external import (
    SPEAKS_TLS,
    ClusterLook,
    ExternalConnection,
    Login,
    MemberLook,
    places,
    why_silent,
)
from containernet_env.stores.members import PATIENCE_S
from containernet_env.stores.protocol import MemberPlace, OwnHistory

BATCH_KEYS = 1000
"""So many keys are removed at once: one entry of etcd's log, which it applies within milliseconds."""
# etcd's JSON gateway (server/etcdserver/api/v3rpc, rpc.proto).
_LOGIN, _STATUS, _RANGE = "/v3/auth/authenticate", "/v3/maintenance/status", "/v3/kv/range"
_TXN, _DELETE, _MEMBERS = "/v3/kv/txn", "/v3/kv/deleterange", "/v3/cluster/member/list"
_ASK_S = 10.0
# What etcd says (api/v3rpc/rpctypes/error.go), in part.
_ASKS_USER, _NO_USERS, _WRONG_PASSWORD = "user name is empty", "authentication is not enabled", "invalid user ID"
_OLD_TOKENS = ("invalid auth token", "revision of auth store is old")
_DENIED = "permission denied"
_NO_QUORUM = ("request timed out", "no leader", "no answer in time")


class LoggedIn:
    """A connection whose requests carry a user's token; a new one where etcd has forgotten it. From any thread."""

    def __init__(self, connection: ExternalConnection, login: Login | None) -> None:
        self._connection = connection
        self._login = login
        self._lock = clock.Lock()
        self._token: str | None = None

    def log_in(self, timeout_s: float = _ASK_S) -> None:
        """Get a new token, where there is a user. Raises RunError."""
        if self._login is None:
            return
        body = {"name": self._login.user, "password": self._login.password}
        answer = self._connection.request_json(CLIENT_PORT, "POST", _LOGIN, body, timeout_s=timeout_s)
        try:
            token = str(answer["token"])
        except (KeyError, TypeError) as error:
            raise RunError("it answers a login without a token: is it a member of etcd?") from error
        with self._lock:
            self._token = token

    @property
    def headers(self) -> dict[str, str]:
        """What a request carries."""
        with self._lock:
            return {} if self._token is None else {"Authorization": self._token}

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        """See ``stores.protocol.Connection``."""
        if self._login is not None and not self.headers:
            self.log_in(timeout_s)
        try:
            return self._ask(port, method, path, body, timeout_s)
        except HttpError as error:
            if self._login is None or not any(words in str(error) for words in _OLD_TOKENS):
                raise
        self.log_in(timeout_s)
        return self._ask(port, method, path, body, timeout_s)

    def _ask(self, port: int, method: str, path: str, body: Any, timeout_s: float) -> Any:
        return self._connection.request_json(port, method, path, body, timeout_s=timeout_s, headers=self.headers)

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        """See ``stores.protocol.Connection``."""
        return self._connection.request_bytes(port, path, timeout_s=timeout_s)

    def open(self, port: int, *, timeout_s: float) -> socket.socket:
        """See ``stores.protocol.Connection``."""
        return self._connection.open(port, timeout_s=timeout_s)


class _ExternalMember(Member):
    """A member at an endpoint that a file names; what it is asked to read is within ``prefix``."""

    def __init__(self, place: MemberPlace, prefix: str) -> None:
        super().__init__(place)
        self.probe_key = _text64(prefix)


class ExternalEtcd(EtcdCluster):
    """See ``stores.external.ExternalCluster``."""

    def __init__(
        self, external: External, connections: Sequence[ExternalConnection], login: Login | None, prefix: str
    ) -> None:
        self._external = external
        self._plain = tuple(connections)
        self._user = None if login is None else login.user
        self._known = tuple(LoggedIn(connection, login) for connection in connections)
        self._prefix = prefix
        super().__init__([_ExternalMember(place, prefix) for place in places("etcd", external, self._known)])

    def look(self, timeout_s: float) -> ClusterLook:
        """See ``ExternalCluster``."""
        numbers = range(len(self.members))
        answers = side_by_side(lambda number: self._look_at(number, timeout_s), numbers, len(self.members))
        looks = tuple(look for look, _ in answers)
        statuses = [status for _, status in answers if isinstance(status, _Status)]
        found = ClusterLook(looks)
        refusals = [error for _, error in answers if isinstance(error, RunError)]
        if refusals and not found.problems:
            return self._refused(found, refusals[0])
        if not statuses:
            return found
        identities = {status.cluster for status in statuses}
        if len(identities) > 1:
            return replace(found, problem="the endpoints are of different clusters")
        found = replace(found, identity=identities.pop())
        ids = {status.member for status in statuses}
        if len(ids) < len(statuses):
            return replace(found, problem="two of the endpoints are of the same member")
        if all(status.leader == "0" for status in statuses):
            told = f"{len(statuses)} of {len(looks)} endpoints answer, and know no leader"
            return replace(found, problem=f"the cluster has no quorum: {told}")
        if found.problems:
            return found
        return self._look_inside(found, statuses, timeout_s)

    def _look_at(self, number: int, timeout_s: float) -> tuple[MemberLook, _Status | RunError | None]:
        """What one endpoint says; an error where it is etcd, and does not say more to this user."""
        look = MemberLook(self.members[number].name, self._external.urls[number])
        plain, connection = self._plain[number], self._known[number]
        try:
            told = plain.request_json(CLIENT_PORT, "GET", "/version", timeout_s=timeout_s)
            if not isinstance(told, dict) or "etcdserver" not in told:
                return replace(look, problem="is no etcd: GET /version answers something else"), None
        except HttpError as error:
            return replace(look, problem=self._no_etcd(plain, error, timeout_s)), None
        except NoAnswerError as error:
            secured = self._external.tls is not None
            return replace(look, problem=why_silent(plain, error, secured, timeout_s)), None
        look = replace(look, version=str(told["etcdserver"]))
        try:
            # Who it is may be told to users alone.
            status = _Status.of(connection.request_json(CLIENT_PORT, "POST", _STATUS, {}, timeout_s=timeout_s))
        except HttpError as error:
            if _OF_LEARNER in str(error):
                return replace(look, problem=_LEARNER), None
            if "CommonName" in str(error):
                return replace(look, problem=_COMMON_NAME), None
            if error.status == 404:
                return replace(look, problem="has no JSON gateway (--enable-grpc-gateway)"), None
            return look, error
        except RunError as error:
            return look, error
        except (KeyError, TypeError, ValueError, AttributeError):
            return replace(look, problem="is no etcd whose JSON gateway can be read"), None
        if status.is_learner:
            return replace(look, problem=_LEARNER), None
        return replace(look, leads=status.leader == status.member, data_bytes=status.data_bytes), status

    def _no_etcd(self, connection: ExternalConnection, error: HttpError, timeout_s: float) -> str:
        if self._external.tls is None and connection.speaks_tls(timeout_s):
            return SPEAKS_TLS
        return f"is no etcd: {_first_line(error)[:80]}"

    def _look_inside(self, found: ClusterLook, statuses: Sequence[_Status], timeout_s: float) -> ClusterLook:
        """What only a quorum, and only who is let in, is told."""
        try:
            for connection in self._known:  # each must answer, and let this user read
                body = {**history.span(self._prefix), "count_only": True}
                connection.request_json(CLIENT_PORT, "POST", _RANGE, body, timeout_s=timeout_s)
        except RunError as error:
            return self._refused(found, error)
        found = replace(found, users=self._user is not None)
        led = max(statuses, key=lambda status: status.term)
        named = {member["ID"]: str(member.get("name", "")) for member in self._listed(timeout_s)}
        by_id = {status.member: look for status, look in zip(statuses, found.members, strict=True)}
        looks = tuple(replace(look, member_name=named.get(member)) for member, look in by_id.items())
        leader = by_id.get(led.leader)
        return replace(
            found,
            members=looks,
            size=len(named) or None,
            leadership=None if leader is None else Leadership(leader.name, led.term),
        )

    def _listed(self, timeout_s: float) -> list[dict[str, Any]]:
        """The members that the cluster has itself; none where nobody says."""
        try:
            answer = self._ask(_MEMBERS, {"linearizable": False}, timeout_s)
            return [member for member in answer["members"] if "ID" in member]
        except (RunError, KeyError, TypeError):
            return []

    def _refused(self, found: ClusterLook, error: RunError) -> ClusterLook:
        """A cluster that answers, and cannot be measured."""
        has_users = any(words in str(error) for words in (_ASKS_USER, _WRONG_PASSWORD, _DENIED))
        return replace(found, users=has_users or None, problem=self._refusal(error))

    def _refusal(self, error: RunError) -> str:
        text = _first_line(error)
        user = self._user
        if _ASKS_USER in text:
            return 'the cluster has users: name one with "user"'
        if _NO_USERS in text:
            return f'the cluster has no users (authentication is not enabled): leave out "user": "{user}"'
        if _WRONG_PASSWORD in text:
            return f"the cluster refuses the password of {user}, or there is no such user"
        if _DENIED in text:
            return f"{user} may not read keys under {self._prefix}: permission denied"
        if any(words in text for words in _NO_QUORUM):
            return f"the cluster has no quorum: a linearizable read was not answered ({text})"
        return f"the cluster cannot be read: {text}"

    def may_load(self) -> str | None:
        """See ``ExternalCluster``; in transactions whose condition never holds."""
        asked = history.span(self._prefix)
        put = {"request_put": {"key": _text64(self._prefix), "value": ""}}
        never = {"target": "VERSION", "result": "LESS", "key": _text64(self._prefix), "version": "0"}
        attempts = {"write": [put], "remove": [{"request_delete_range": asked}, {"request_range": asked}]}
        for verb, operations in attempts.items():
            try:
                self._ask(_TXN, {"compare": [never], "success": operations})
            except RunError as error:
                if _DENIED in str(error):
                    return f"{self._user} may not {verb} keys under {self._prefix}: permission denied"
                return f"keys under {self._prefix} cannot be written: {_first_line(error)}"
        return None

    def try_write(self) -> None:
        """See ``ExternalCluster``: that has been told already."""
        return

    def keys(self) -> int:
        """See ``ExternalCluster``."""
        return int(self._range({"count_only": True}).get("count", 0))

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        """See ``ExternalCluster``."""
        removed = 0
        while found := self._range({"keys_only": True, "limit": BATCH_KEYS}).get("kvs"):
            first, last = found[0]["key"], base64.b64decode(found[-1]["key"])
            after = base64.b64encode(last + b"\0").decode()
            span = {"key": first, "range_end": after}
            removed += int(persistently(partial(self._ask, _DELETE, span), PATIENCE_S).get("deleted", 0))
            checked(removed)
        return removed

    def revision(self) -> int:
        """See ``stores.protocol.Cluster``."""
        return persistently(lambda: history.revision(self._answering().connection, self._prefix), PATIENCE_S)

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        """See ``stores.protocol.Cluster``."""
        connection = self._known[self.members.index(persistently(self._answering, PATIENCE_S))]
        return OwnHistory(history.events(connection, prefix, since, timeout_s, connection.headers))

    def _range(self, more: dict[str, Any], timeout_s: float = _ASK_S) -> Any:
        return self._ask(_RANGE, {**history.span(self._prefix), **more}, timeout_s)

    def _ask(self, path: str, body: dict[str, Any], timeout_s: float = _ASK_S) -> Any:
        """A question to the first member that answers. Raises RunError."""
        problem: RunError | None = None
        for connection in self._known:
            try:
                return connection.request_json(CLIENT_PORT, "POST", path, body, timeout_s=timeout_s)
            except HttpError:
                raise
            except RunError as error:
                problem = problem or error
        assert problem is not None
        raise problem


# interceptor.go of server/etcdserver/api/v3rpc: a learner answers status and serializable reads alone.
_OF_LEARNER = "not supported for learner"
_LEARNER = (
    "is a learner, which takes no writes and no linearizable reads: leave it out, or make it a voting member "
    "(etcdctl member promote)"
)
# accessController of server/embed/serve.go.
_COMMON_NAME = (
    "has users, and refuses its JSON gateway to clients whose certificate has a CommonName: "
    'give "tls" a client\'s certificate without one'
)


@dataclass(frozen=True, slots=True)
class _Status:
    """One member's own view; ids as etcd prints them."""

    cluster: str
    member: str
    leader: str
    term: int
    version: str
    data_bytes: int | None
    is_learner: bool

    @classmethod
    def of(cls, answer: Any) -> _Status:
        header, size = answer["header"], answer.get("dbSize")
        return cls(
            cluster=str(header["cluster_id"]),
            member=str(header["member_id"]),
            leader=str(answer.get("leader", "0")),
            term=int(answer.get("raftTerm", 0)),
            version=str(answer["version"]),
            data_bytes=None if size is None else int(size),
            is_learner=bool(answer.get("isLearner", False)),
        )


def _first_line(error: RunError) -> str:
    return str(error).partition("\n")[0]


def _text64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
