"""An external etcd cluster: which one it is, and the keys under one prefix.

All requests go to the JSON gateway of the client port. Nothing here writes but ``remove_keys``.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from containernet_env.base.errors import RunError
from containernet_env.base.http import HttpError
from containernet_env.base.work import persistently
from containernet_env.stores.cluster import PATIENCE_S, MemberPlace, OwnHistory
from containernet_env.stores.etcd import cluster as etcd
from containernet_env.stores.etcd.cluster import CLIENT_PORT, EtcdCluster, EtcdMember, span
from containernet_env.stores.external import (
    REQUEST_S,
    ClusterLook,
    ExternalCluster,
    ExternalConnection,
    Login,
    MemberLook,
    MemberView,
    first_line,
)

BATCH_KEYS = 1000
"""So many keys are removed at once: one entry of etcd's log, which it applies within milliseconds."""
# etcd's JSON gateway (server/etcdserver/api/v3rpc, rpc.proto).
_LOGIN, _STATUS, _RANGE = "/v3/auth/authenticate", "/v3/maintenance/status", "/v3/kv/range"
_TXN, _DELETE, _MEMBERS = "/v3/kv/txn", "/v3/kv/deleterange", "/v3/cluster/member/list"
# Parts of etcd's errors (api/v3rpc/rpctypes/error.go).
_WANTS_USER, _NO_USERS, _WRONG_PASSWORD = "user name is empty", "authentication is not enabled", "invalid user ID"
_OLD_TOKENS = ("invalid auth token", "revision of auth store is old")
_DENIED = "permission denied"
_NO_QUORUM = ("request timed out", "no leader", "no answer in time")
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


class LoggedIn:
    """A connection whose requests carry a user's token; a new one where etcd has forgotten it. From any thread."""

    def __init__(self, connection: ExternalConnection, login: Login | None) -> None:
        self._connection = connection
        self._login = login
        self.headers: dict[str, str] = {}
        """The headers of each request."""

    def log_in(self, timeout_s: float = REQUEST_S) -> None:
        """Get a new token, where there is a user. Raises RunError."""
        if self._login is None:
            return
        body = {"name": self._login.user, "password": self._login.password}
        answer = self._connection.request_json(CLIENT_PORT, "POST", _LOGIN, body, timeout_s=timeout_s)
        try:
            token = str(answer["token"])
        except (KeyError, TypeError) as error:
            raise RunError("it answers a login without a token: is it a member of etcd?") from error
        self.headers = {"Authorization": token}

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        """See ``Connection``."""

        def request() -> Any:
            connection = self._connection.with_headers(self.headers)
            return connection.request_json(port, method, path, body, timeout_s=timeout_s)

        if self._login is not None and not self.headers:
            self.log_in(timeout_s)
        try:
            return request()
        except HttpError as error:
            if self._login is None or not any(words in str(error) for words in _OLD_TOKENS):
                raise
        self.log_in(timeout_s)
        return request()

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        """See ``Connection``."""
        return self._connection.with_headers(self.headers).request_bytes(port, path, timeout_s=timeout_s)

    def open(self, port: int, *, timeout_s: float) -> socket.socket:
        """See ``Connection``."""
        return self._connection.open(port, timeout_s=timeout_s)


class ExternalEtcd(ExternalCluster[EtcdMember], EtcdCluster):
    """An external etcd cluster; see ``ExternalCluster``."""

    def _access(self, connection: ExternalConnection) -> LoggedIn:
        return LoggedIn(connection, self._login)

    def _member_at(self, place: MemberPlace) -> EtcdMember:
        return EtcdMember(place, _text64(self._own.prefix))

    def _look_at(
        self, member: EtcdMember, look: MemberLook, connection: ExternalConnection, timeout_s: float
    ) -> MemberLook:
        answer = connection.request_json(CLIENT_PORT, "GET", "/version", timeout_s=timeout_s)
        if not isinstance(answer, dict) or "etcdserver" not in answer:
            return replace(look, problem="is no etcd: GET /version answers something else")
        look = replace(look, version=str(answer["etcdserver"]))
        try:
            # Only users may get a status.
            status = member.connection.request_json(CLIENT_PORT, "POST", _STATUS, {}, timeout_s=timeout_s)
            header, size, leader = status["header"], status.get("dbSize"), str(status.get("leader", "0"))
            identity, term = str(header["cluster_id"]), int(status.get("raftTerm", 0))
            view = MemberView(str(header["member_id"]), identity, None if leader == "0" else leader, term)
            data_bytes = None if size is None else int(size)
        except HttpError as error:
            if _OF_LEARNER in str(error):
                return replace(look, problem=_LEARNER)
            if "CommonName" in str(error):
                return replace(look, problem=_COMMON_NAME)
            if error.status == 404:
                return replace(look, problem="has no JSON gateway (--enable-grpc-gateway)")
            return replace(look, refusal=error)
        except RunError as error:
            return replace(look, refusal=error)
        except (KeyError, TypeError, ValueError, AttributeError):
            return replace(look, problem="is no etcd whose JSON gateway can be read")
        if status.get("isLearner", False):
            return replace(look, problem=_LEARNER)
        return replace(look, leads=view.leader == view.member, data_bytes=data_bytes, view=view)

    def _other(self, error: HttpError) -> str:
        return f"is no etcd: {first_line(error, 80)}"

    def _judge(self, found: ClusterLook, timeout_s: float) -> ClusterLook:
        refusals = [member.refusal for member in found.members if member.refusal is not None]
        if refusals and not found.problems:
            return self._refused(found, refusals[0])
        if not found.views:
            return found
        identities = {str(view.cluster) for view in found.views}
        found = replace(found, identity=identities.pop() if len(identities) == 1 else None, problem=found.conflict())
        if found.problems:
            return found
        try:
            # Only a quorum, and only for a user with permission: each must answer, and let this user read.
            for member in self.members:
                body = {**span(self._own.prefix), "count_only": True}
                member.connection.request_json(CLIENT_PORT, "POST", _RANGE, body, timeout_s=timeout_s)
        except RunError as error:
            return self._refused(found, error)
        named = {listed["ID"]: str(listed.get("name", "")) for listed in self._listed(timeout_s)}
        looks = tuple(replace(look, member_name=named.get(look.view.member)) for look in found.members if look.view)
        users = self._user is not None
        return replace(found, members=looks, size=len(named) or None, leadership=found.led(), users=users)

    def _listed(self, timeout_s: float) -> list[dict[str, Any]]:
        """The members that the cluster has itself; none where no member answers."""
        try:
            answer = self._ask("POST", _MEMBERS, {"linearizable": False}, timeout_s)
            return [member for member in answer["members"] if "ID" in member]
        except (RunError, KeyError, TypeError):
            return []

    def _refused(self, found: ClusterLook, error: RunError) -> ClusterLook:
        """A cluster that answers, and cannot be measured."""
        has_users = any(words in str(error) for words in (_WANTS_USER, _WRONG_PASSWORD, _DENIED))
        return replace(found, users=has_users or None, problem=self._refusal(first_line(error)))

    def _refusal(self, text: str) -> str:
        user = self._user
        if _WANTS_USER in text:
            return 'the cluster has users: name one with "user"'
        if _NO_USERS in text:
            return f'the cluster has no users (authentication is not enabled): leave out "user": "{user}"'
        if _WRONG_PASSWORD in text:
            return f"the cluster refuses the password of {user}, or there is no such user"
        if _DENIED in text:
            return f"{user} may not read keys under {self._own.prefix}: permission denied"
        if any(words in text for words in _NO_QUORUM):
            return f"the cluster has no quorum: a linearizable read was not answered ({text})"
        return f"the cluster cannot be read: {text}"

    def may_load(self) -> str | None:
        # In transactions whose condition never holds.
        prefix, keys = self._own.prefix, span(self._own.prefix)
        put = {"request_put": {"key": _text64(prefix), "value": ""}}
        never = {"target": "VERSION", "result": "LESS", "key": _text64(prefix), "version": "0"}
        attempts = {"write": [put], "remove": [{"request_delete_range": keys}, {"request_range": keys}]}
        for verb, operations in attempts.items():
            try:
                self._ask("POST", _TXN, {"compare": [never], "success": operations})
            except RunError as error:
                if _DENIED in str(error):
                    return f"{self._user} may not {verb} keys under {prefix}: permission denied"
                return f"keys under {prefix} cannot be written: {first_line(error)}"
        return None

    def keys(self) -> int:
        return int(self._range({"count_only": True}).get("count", 0))

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        removed = 0
        while found := self._range({"keys_only": True, "limit": BATCH_KEYS}).get("kvs"):
            first, last = found[0]["key"], base64.b64decode(found[-1]["key"])
            batch = {"key": first, "range_end": base64.b64encode(last + b"\0").decode()}
            removed += int(persistently(partial(self._ask, "POST", _DELETE, batch), PATIENCE_S).get("deleted", 0))
            checked(removed)
        return removed

    def revision(self) -> int:
        return persistently(lambda: etcd.revision(self._answering().connection, self._own.prefix), PATIENCE_S)

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        connection = persistently(self._answering, PATIENCE_S).connection
        assert isinstance(connection, LoggedIn)
        return OwnHistory(etcd.events(connection, prefix, since, timeout_s, connection.headers))

    def _range(self, more: dict[str, Any]) -> Any:
        return self._ask("POST", _RANGE, {**span(self._own.prefix), **more})


def _text64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
