"""etcd: its versions and flags, timing, members, logs and metrics, its own history, its floor, and external clusters.

Of an external cluster all requests go to the JSON gateway of the client port; nothing is written but by
``remove_keys``.
"""

from __future__ import annotations

import base64
import json
import math
import re
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, ClassVar, Self

from containernet_env.base import assets, clock
from containernet_env.base.errors import ConfigError, Problem, RunError
from containernet_env.base.http import Connection, HttpError
from containernet_env.base.units import parse_size
from containernet_env.base.work import persistently
from containernet_env.model import kinds
from containernet_env.model.backends import ProfileKind
from containernet_env.model.config import ELECTION_MAX_MS, ELECTION_PER_HEARTBEAT, HEARTBEAT_MAX_MS, Config, Node
from containernet_env.model.dilation import slowed
from containernet_env.model.kinds import Kind
from containernet_env.model.scenario import Scenario
from containernet_env.model.topology import RttExpectation
from containernet_env.model.usage import Durations, MemberActivity
from containernet_env.stores import cluster, external, store
from containernet_env.stores.cluster import (
    POLL_S,
    QUERY_S,
    Counters,
    LogForm,
    LogPart,
    MemberStatus,
    OwnHistory,
    Written,
)
from containernet_env.stores.profiling import Profiling
from containernet_env.stores.store import MemberStart, Request, Timing, Trust, WriteSizes, key_bytes

CLIENT_PORT, PEER_PORT = 2379, 2380

# --- log --------------------------------------------------------------------------------------------------------------

# etcd's log in the form "console" (zap's ConsoleEncoder): time, level, perhaps a logger, caller, message, perhaps
# fields as JSON, with tabs between; a stack trace may follow on lines of its own.
LINE = re.compile(
    r"^(?P<at>[0-9-]{10}T[0-9:.]+Z)\t(?P<level>[a-z]+)\t(?:[^\t\n]*\t)?[^\t\n]+\.go:[0-9]+"
    r"\t(?P<message>[^\t\n]*)(?:\t(?P<fields>\{.*\}))?$",
    re.MULTILINE,
)
_ENDS = ("dpanic", "panic", "fatal")
SIGNALLED = "received signal; shutting down"


def _detail(line: re.Match[str]) -> str:
    try:
        fields = json.loads(line["fields"] or "{}")
    except ValueError:
        fields = {}
    if line["message"] == SIGNALLED:
        return f" ({fields.get('signal')})"
    return f": {fields['error']}" if fields.get("error") else ""


LOG = LogForm(
    LINE,
    ("error", *_ENDS),
    "warn",
    # Ids of members, as raft's own messages have them: "8e9e05c52164694d stepped down to follower ...".
    varying=re.compile(r"\b[0-9a-f]{13,16}\b"),
    placeholder="ID",
    ends=_ENDS,
    signalled=SIGNALLED,
    ready="ready to serve client requests",
    detail=_detail,
)


# --- metrics ----------------------------------------------------------------------------------------------------------

# Names are those of etcd 3.4 to 3.7 (https://etcd.io/docs/v3.6/metrics/).
_LEADER_CHANGES = "etcd_server_leader_changes_seen_total"
_FAILED_PROPOSALS = "etcd_server_proposals_failed_total"
_DATA_BYTES = "etcd_mvcc_db_total_size_in_bytes"
_LOG_SYNCS = "etcd_disk_wal_fsync_duration_seconds"
_COMMITS = "etcd_disk_backend_commit_duration_seconds"
_STARTED = "process_start_time_seconds"
METRICS = (_LEADER_CHANGES, _FAILED_PROPOSALS, _DATA_BYTES, _STARTED, _LOG_SYNCS, _COMMITS)


def _durations(before: Counters, after: Counters, name: str) -> Durations | None:
    """The growth of a histogram, whose buckets are cumulative."""
    total, start, end = f"{name}_sum", f'{name}_bucket{{le="', '"}'
    samples = [sample for sample in after if sample.startswith(start)]
    same_buckets = {*samples} == {sample for sample in before if sample.startswith(start)}
    if total not in before or total not in after or not same_buckets:
        return None
    bounds_s = {float(sample.removeprefix(start).removesuffix(end)): sample for sample in samples}
    buckets: list[tuple[float | None, int]] = []
    counted = 0
    for bound_s, sample in sorted(bounds_s.items()):
        below = int(after[sample] - before[sample])
        buckets.append((None if bound_s == inf else bound_s, below - counted))
        counted = below
    return Durations.of(after[total] - before[total], tuple(buckets))


# --- history ----------------------------------------------------------------------------------------------------------

# etcd's JSON gateway (server/etcdserver/api/v3rpc, rpc.proto).
_RANGE, _WATCH = "/v3/kv/range", "/v3/watch"
HISTORY_S = 5.0
# A member reads a million small events from its memory and disk in some seconds, a tenth of a core in a minute.
_SILENCE_S = 10.0
_LINE_BYTES = 256 << 20


def events(connection: Connection, prefix: str, since: int, timeout_s: float) -> Iterator[Written]:
    """Every write of keys that start with ``prefix``, at revisions from ``since`` up to the present, in order.

    Raises RunError if some of them are compacted, and once ``timeout_s`` are over.
    """
    deadline = clock.monotonic() + timeout_s
    _, last = last_write(connection, prefix, timeout_s)
    if last < since:
        return
    request = {"create_request": {**span(prefix), "start_revision": str(since)}}
    with connection.stream(CLIENT_PORT, "POST", _WATCH, request, timeout_s=_SILENCE_S) as answer:
        while True:
            if clock.monotonic() > deadline:
                raise RunError(f"the store's history could not be read within {timeout_s:g} s")
            line = answer.readline(_LINE_BYTES)
            if not line:
                raise RunError("the store ended its history early")
            for event in _events_of(line):
                yield event
                if event.revision >= last:
                    return


def _events_of(line: bytes) -> Iterator[Written]:
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise RunError(f"the store's history cannot be read: {line[:80]!r}") from error
    if "error" in answer:
        raise RunError(f"the store refuses its history: {answer['error']}")
    result = answer["result"]
    if result.get("canceled"):
        compacted = result.get("compact_revision")
        reason = f"it is compacted up to revision {compacted}" if compacted else str(result.get("cancel_reason"))
        raise RunError(f"the store no longer has its history: {reason}")
    for event in result.get("events", ()):
        if event.get("type", "PUT") == "PUT":
            entry = event["kv"]
            key = base64.b64decode(entry["key"]).decode(errors="replace")
            yield Written.of(int(entry["mod_revision"]), key, base64.b64decode(entry.get("value", "")))


def last_write(connection: Connection, prefix: str, timeout_s: float) -> tuple[int, int]:
    """The revision of the store, by a linearizable read, and that of the last write of these keys; 0 without one."""
    newest = {"sort_order": "DESCEND", "sort_target": "MOD", "limit": 1, "keys_only": True}
    answer = connection.request_json(CLIENT_PORT, "POST", _RANGE, {**span(prefix), **newest}, timeout_s=timeout_s)
    found = answer.get("kvs", ())
    return int(answer["header"]["revision"]), int(found[0]["mod_revision"]) if found else 0


def span(prefix: str) -> dict[str, Any]:
    """The keys that start with ``prefix``, whose last byte is below 0xff in every UTF-8 text."""
    raw = prefix.encode()
    first, end = (raw, raw[:-1] + bytes([raw[-1] + 1])) if raw else (b"\0", b"\0")
    return {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(end).decode()}


# --- members ----------------------------------------------------------------------------------------------------------

# A key under which nothing is ever written: the linearizable read that proves a quorum answers.
_PROBE_KEY = "\0containernet-env"
# The query of a member to its peers before it joins them (server/etcdserver, cluster_util.go).
_MEMBERS = "/members"
# For so long the others wait for the first one, and a round trip for each: 49 peers on links of 100 ms both ways have
# refused it by then.
_FIRST_TIMEOUT_S = 10.0
# A member that knows no leader reports "0".
_STATUS = "/v3/maintenance/status"
_MOVE_LEADER = "/v3/maintenance/transfer-leadership"
_NO_LEADER = "0"


def status_of(answer: Any) -> MemberStatus:
    """The status that a member answers. Raises AttributeError, KeyError, TypeError or ValueError for another form."""
    leader_id = str(answer.get("leader", _NO_LEADER))
    return MemberStatus(
        member_id=str(answer["header"]["member_id"]),
        leader_id=None if leader_id == _NO_LEADER else leader_id,
        raft_term=int(answer.get("raftTerm", 0)),
        version=str(answer["version"]),
    )


class EtcdMember(cluster.Member):
    client_port = CLIENT_PORT
    # Answered by the member from memory (server/etcdserver/api/etcdhttp/version.go): no quorum, no disk.
    ping_request = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    log_form: ClassVar[LogForm] = LOG
    metrics = (CLIENT_PORT, "/metrics", METRICS)

    def status(self, timeout_s: float = QUERY_S) -> MemberStatus:
        answer = self.connection.request_json(CLIENT_PORT, "POST", _STATUS, {}, timeout_s=timeout_s)
        try:
            return status_of(answer)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{self.name} does not say who leads: is it a member of etcd?") from error

    def read(self, timeout_s: float) -> None:
        self.connection.request_json(
            CLIENT_PORT, "POST", _RANGE, {"key": _text64(self.prefix or _PROBE_KEY)}, timeout_s=timeout_s
        )

    def hand_over(self, member_id: str, timeout_s: float) -> None:
        self.connection.request_json(
            CLIENT_PORT, "POST", _MOVE_LEADER, {"targetID": member_id}, timeout_s=max(timeout_s, 0.1)
        )

    def has_started(self, timeout_s: float = QUERY_S) -> bool:
        # It serves clients once it has registered with a leader, and peers before.
        try:
            self.connection.request_json(PEER_PORT, "GET", _MEMBERS, timeout_s=timeout_s)
        except RunError:
            return False
        return True

    @staticmethod
    def activity(before: Counters, after: Counters, log: LogPart | None) -> MemberActivity:
        if before.get(_STARTED) != after.get(_STARTED):
            before = {}  # it counts from 0 again
        return MemberActivity(
            leader_changes=cluster.grown(before, after, _LEADER_CHANGES),
            log_syncs=_durations(before, after, _LOG_SYNCS),
            commits=_durations(before, after, _COMMITS),
            failed_proposals=cluster.grown(before, after, _FAILED_PROPOSALS),
            data_bytes=int(after[_DATA_BYTES]) if _DATA_BYTES in after else None,
            data_grown_bytes=cluster.grown(before, after, _DATA_BYTES),
            warnings=None if log is None else log.warnings,
        )


class EtcdCluster(cluster.Cluster[EtcdMember]):
    def _open_gates(self, deadline: float, broken: cluster.Broken) -> None:
        # A member that starts queries its peers in the order of their URLs for the members, until one answers, and
        # waits a second for each that listens and does not answer yet. So the first in that order starts before the
        # others: those that it queries refuse at once, and it answers all of them.
        first, *others = sorted(self.members, key=lambda member: f"{member.place.ip}:{PEER_PORT}")
        first.start(deadline)
        if others:
            first_s = _FIRST_TIMEOUT_S + len(others) * self.waits.rtt_s
            first_deadline = min(deadline, clock.monotonic() + first_s)
            while not first.has_started(POLL_S * 5) and clock.monotonic() < first_deadline:
                self._check_start([first], broken)
                clock.sleep(POLL_S / 5)
        list(self._pool.map(lambda member: member.start(deadline), others))

    def profile(self, member: str, kinds: Sequence[ProfileKind]) -> Profiling | None:
        found = next((living for living in self.living() if living.name == member), None)
        return None if found is None else Profiling(found.connection, CLIENT_PORT, kinds)

    def revision(self) -> int:
        timeout_s = self.query_s + HISTORY_S

        def query() -> int:
            member = self._answering()
            return last_write(member.connection, member.prefix, timeout_s)[0]

        return persistently(query, self.patience_s)

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        connection = persistently(self._answering, self.patience_s).connection
        return OwnHistory(events(connection, prefix, since, timeout_s))

    def _answering(self) -> EtcdMember:
        for member, status in self.statuses().items():
            if status is not None and status.leader_id is not None:
                return member
        raise RunError("no member answers")


# --- external clusters ------------------------------------------------------------------------------------------------

BATCH_KEYS = 1000
"""So many keys are removed at once: one entry of etcd's log, which it applies within milliseconds."""
# etcd's JSON gateway (server/etcdserver/api/v3rpc, rpc.proto).
_LOGIN, _LIST = "/v3/auth/authenticate", "/v3/cluster/member/list"
_TXN, _DELETE = "/v3/kv/txn", "/v3/kv/deleterange"
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


class LoggedIn(Connection):
    """A connection whose requests carry a user's token; a new one where etcd has forgotten it. From any thread."""

    _errors = external.ExternalConnection._errors

    def __init__(self, connection: external.ExternalConnection, login: external.Login) -> None:
        self._connection, self._login = connection, login
        self.host, self.authority = connection.host, connection.authority

    def log_in(self, timeout_s: float = external.REQUEST_S) -> None:
        """Get a new token. Raises ``RunError``."""
        body = {"name": self._login.user, "password": self._login.password}
        answer = self._connection.request_json(CLIENT_PORT, "POST", _LOGIN, body, timeout_s=timeout_s)
        try:
            self.headers = {"Authorization": str(answer["token"])}
        except (KeyError, TypeError) as error:
            raise RunError("it answers a login without a token: is it a member of etcd?") from error

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        if not self.headers:
            self.log_in(timeout_s)
        try:
            return super().request_json(port, method, path, body, timeout_s=timeout_s)
        except HttpError as error:
            if not any(words in str(error) for words in _OLD_TOKENS):
                raise
        self.log_in(timeout_s)
        return super().request_json(port, method, path, body, timeout_s=timeout_s)

    def _connect(self, port: int, timeout_s: float | None) -> socket.socket:
        return self._connection.open(port, timeout_s=timeout_s)


class ExternalEtcd(external.ExternalCluster[EtcdMember], EtcdCluster):
    def _access(self, connection: external.ExternalConnection) -> Connection:
        return connection if self._login is None else LoggedIn(connection, self._login)

    def _look_at(self, member: EtcdMember, look: external.MemberLook, timeout_s: float) -> external.MemberLook:
        answer = self._plain[member].request_json(CLIENT_PORT, "GET", "/version", timeout_s=timeout_s)
        if not isinstance(answer, dict) or "etcdserver" not in answer:
            return replace(look, problem="is no etcd: GET /version answers something else")
        look = replace(look, version=str(answer["etcdserver"]))
        try:
            # Only users may get a status.
            status = member.connection.request_json(CLIENT_PORT, "POST", _STATUS, {}, timeout_s=timeout_s)
            own, identity, size = status_of(status), str(status["header"]["cluster_id"]), status.get("dbSize")
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
        return replace(look, data_bytes=data_bytes, status=own, cluster=identity)

    def _other(self, error: HttpError) -> str:
        return f"is no etcd: {external.first_line(error, 80)}"

    def _judge(self, found: external.ClusterLook, timeout_s: float) -> external.ClusterLook:
        refusals = [member.refusal for member in found.members if member.refusal is not None]
        if refusals and not found.problems:
            return self._refused(found, refusals[0])
        identities = {str(look.cluster) for look in found.members if look.status is not None}
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
        leadership, users, looks = found.led(), self._user is not None, zip(found.members, found.statuses, strict=True)
        members = tuple(replace(look, member_name=named.get(status.member_id)) for look, status in looks)
        return replace(found, members=members, size=len(named) or None, leadership=leadership, users=users)

    def _listed(self, timeout_s: float) -> list[dict[str, Any]]:
        try:
            answer = self._request("POST", _LIST, {"linearizable": False}, timeout_s)
            return [member for member in answer["members"] if "ID" in member]
        except (RunError, KeyError, TypeError):
            return []

    def _refused(self, found: external.ClusterLook, error: RunError) -> external.ClusterLook:
        """A cluster that answers, and cannot be measured."""
        has_users = any(words in str(error) for words in (_WANTS_USER, _WRONG_PASSWORD, _DENIED))
        return replace(found, users=has_users or None, problem=self._refusal(external.first_line(error)))

    def _refusal(self, text: str) -> str:
        user = self._user
        meanings = {
            _WANTS_USER: 'the cluster has users: name one with "user"',
            _NO_USERS: f'the cluster has no users (authentication is not enabled): leave out "user": "{user}"',
            _WRONG_PASSWORD: f"the cluster refuses the password of {user}, or there is no such user",
            _DENIED: f"{user} may not read keys under {self._own.prefix}: permission denied",
            **dict.fromkeys(_NO_QUORUM, f"the cluster has no quorum: a linearizable read was not answered ({text})"),
        }
        return next((meanings[words] for words in meanings if words in text), f"the cluster cannot be read: {text}")

    def may_load(self) -> str | None:
        # In transactions whose condition never holds.
        prefix, keys = self._own.prefix, span(self._own.prefix)
        put = {"request_put": {"key": _text64(prefix), "value": ""}}
        never = {"target": "VERSION", "result": "LESS", "key": _text64(prefix), "version": "0"}
        attempts = {"write": [put], "remove": [{"request_delete_range": keys}, {"request_range": keys}]}
        for verb, operations in attempts.items():
            try:
                self._request("POST", _TXN, {"compare": [never], "success": operations})
            except RunError as error:
                if _DENIED in str(error):
                    return f"{self._user} may not {verb} keys under {prefix}: permission denied"
                return f"keys under {prefix} cannot be written: {external.first_line(error)}"
        return None

    def keys(self) -> int:
        return int(self._range({"count_only": True}).get("count", 0))

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        removed = 0
        while found := self._range({"keys_only": True, "limit": BATCH_KEYS}).get("kvs"):
            first, last = found[0]["key"], base64.b64decode(found[-1]["key"])
            batch = {"key": first, "range_end": base64.b64encode(last + b"\0").decode()}
            removed += int(
                persistently(partial(self._request, "POST", _DELETE, batch), cluster.PATIENCE_S).get("deleted", 0)
            )
            checked(removed)
        return removed

    def _range(self, more: dict[str, Any]) -> Any:
        return self._request("POST", _RANGE, {**span(self._own.prefix), **more})


def _text64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


DATA_DIR = "/var/lib/etcd"
TLS_DIR = "/run/tls"
"""Where a member finds its certificates and its key."""
_CA, _CERTIFICATE, _KEY = (f"{TLS_DIR}/{name}" for name in ("ca.pem", "cert.pem", "key.pem"))

# --- flags ------------------------------------------------------------------------------------------------------------

_HOUR_MS = 3_600_000
_BATCH_INTERVAL = "100ms"  # etcd's default (server/storage/backend, defaultBatchInterval)
_ANY_TIME = kinds.milliseconds(1, 10_000 * _HOUR_MS, "100ms")
_REVISIONS, _TIME = kinds.integer(1, 10**9), kinds.milliseconds(1000, 10_000 * _HOUR_MS, "3600s")


def _parse_retention(value: object) -> Any:
    return _REVISIONS.parse(value) if isinstance(value, int) else f"{_TIME.parse(value)}ms"


FLAGS: Mapping[str, Kind] = {
    "snapshot-count": kinds.integer(1, 10**9),
    "quota-backend-bytes": kinds.size(1 << 20, 1 << 40, "4g", "an amount of bytes"),
    "backend-batch-limit": kinds.integer(1, 10**7),
    "backend-batch-interval": kinds.milliseconds(1, 60_000, "100ms"),
    "auto-compaction-mode": kinds.choice("periodic", "revision"),
    "auto-compaction-retention": Kind(_parse_retention, f"{_TIME.form}; with revision {_REVISIONS.form}", {}),
}
"""See etcd's ``--help`` (server/etcdmain/help.go). Flags for addresses, identity and timing are not among them."""

# --- messages ---------------------------------------------------------------------------------------------------------

# How many bytes etcd's messages are in a TCP stream, once a connection has carried some: a least size, right within a
# few bytes, since numbers that grow (revision, index, term) are taken as they are early in a run. Fields are those of
# etcd's api/etcdserverpb/rpc.proto and raft_internal.proto, and of raft/v3's raftpb/raft.proto.

# A field of a protobuf message: its tag, and its value as a varint.
_TAG = 1
_ID = _TAG + 9  # members', clusters' and requests' ids: most 64-bit numbers take 9 or 10 bytes
_SMALL = _TAG + 1  # below 128: types, terms, booleans
_INDEX = _TAG + 2  # revisions and indices below 16,384

# HTTP/2 (RFC 9113): a frame's header, and the most that a DATA frame may hold unless both sides agree on more.
_FRAME, _DATA_MAX = 9, 16_384
# gRPC's prefix of a message: compressed or not, and its length (gRPC's doc/PROTOCOL-HTTP2.md).
_PREFIX = 5
# Header fields are in HPACK's tables (RFC 7541) from the second request on, and take a byte each: the seven of
# benchmark_image/internal/h2/frame.go; status and content type of an answer; and the status in its trailers.
_REQUEST_FIELDS, _ANSWER_FIELDS, _TRAILER_FIELDS = 7, 2, 1

# server/etcdserver/api/rafthttp: msgappv2_codec.go (type, number of entries, each with its length, commit index), and
# message.go (length of the message).
_APPEND, _MESSAGE_LENGTH = 1 + 8 + 8 + 8, 8


def _varint(number: int) -> int:
    """How many bytes a number takes."""
    return max(1, -(-number.bit_length() // 7))


def _bytes(length: int) -> int:
    """A field of so many bytes."""
    return _TAG + _varint(length) + length


_RESPONSE_HEADER = _bytes(_ID + _ID + _INDEX + _SMALL)  # cluster, member, revision, term


def _request(message: int) -> int:
    """A gRPC request of the load generator."""
    data = _PREFIX + message
    return _FRAME + _REQUEST_FIELDS + -(-data // _DATA_MAX) * _FRAME + data


def _answer(message: int) -> int:
    """Its answer: headers, data, trailers."""
    data = _PREFIX + message
    return _FRAME + _ANSWER_FIELDS + -(-data // _DATA_MAX) * _FRAME + data + _FRAME + _TRAILER_FIELDS


def _chunk(content: int) -> int:
    """A chunk of HTTP/1.1 (RFC 9112, section 7.1), in which members send each other messages."""
    return len(f"{content:x}") + 2 + content + 2


def _raft(*fields: int) -> int:
    """A message between members: type, to, from, and the fields given."""
    return _chunk(_MESSAGE_LENGTH + _SMALL + _ID + _ID + sum(fields))


_CONTEXT = _bytes(8)
HEARTBEAT = _raft(_SMALL, _INDEX, _CONTEXT)
HEARTBEAT_ANSWER = _raft(_SMALL, _CONTEXT)
READ_INDEX = _raft(_bytes(_bytes(8)))
READ_INDEX_ANSWER = _raft(_SMALL, _INDEX, _bytes(_bytes(8)))
APPEND_ANSWER = _raft(_SMALL, _INDEX)
COMMIT = _chunk(1 + 8 + 8)
"""An append without entries, which has the commit index."""


# --- timing -----------------------------------------------------------------------------------------------------------

# etcd's defaults, and its tuning guide's rules: heartbeat about the RTT, election at least ten times that.
_HEARTBEAT_MIN_MS = 100
_ELECTION_MIN_MS = 1000
_ELECTION_PER_RTT = 10

_ORIGIN = {
    "default": "etcd's default",
    "rtt": "from the largest RTT",
    "config": "from the config",
    "heartbeat": "10 heartbeats",
}


# --- the store --------------------------------------------------------------------------------------------------------


class Etcd(store.Store):
    name: ClassVar[str] = "etcd"
    title: ClassVar[str] = "etcd"
    program: ClassVar[str] = "etcd"
    members: ClassVar[type[EtcdMember]] = EtcdMember
    clusters = EtcdCluster
    externals: ClassVar[type[ExternalEtcd] | None] = ExternalEtcd
    # From the oldest whose modules have the paths that are built.
    versions = store.version_from(
        (3, 6, 0), r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,4})(-(?:alpha|beta|rc)\.[0-9]{1,3})?", "3.6.8"
    )
    flags = FLAGS
    # Every write waits for more of them.
    most_members = 7
    waits_for_majority = True
    follows_cpu_limit = True
    lacks: ClassVar[store.Lacking] = {"default": 'has no third consistency beside "l" and "s"'}
    load_terms: ClassVar[store.LoadTerms] = store.LoadTerms()

    @classmethod
    def clash(cls, flags: Mapping[str, int | str]) -> tuple[str, str, str] | None:
        # A retention is a time or a number of revisions, by the mode.
        mode, retention = (flags.get(f"auto-compaction-{name}") for name in ("mode", "retention"))
        if mode is not None and retention is None:
            return "auto-compaction-mode", "says nothing by itself", "auto-compaction-retention beside it"
        if retention is not None and isinstance(retention, int) != (mode == "revision"):
            allowed = _REVISIONS.form if mode == "revision" else _TIME.form
            return "auto-compaction-retention", f"does not go with the mode {mode or 'periodic'}", allowed
        return None

    @property
    def version(self) -> str:
        return self.choice.version or assets.etcd_version()

    @property
    def image(self) -> store.ImageParts:
        # The pinned one, however it is named.
        other = None if self.choice.version == assets.etcd_version() else self.choice.version
        return store.ImageParts("etcd", module=assets.etcd_module(version=other))

    def timing(self, config: Config, largest: RttExpectation | None) -> Timing:
        # Heartbeat max(100 ms, RTT), election max(1000 ms, 10 x RTT) in whole ms, unless the config has them. A
        # configured value and a derived one together may break etcd's own rules.
        (rtt_ms, rtt), configured = store.largest_rtt(largest), config.etcd
        heartbeat_ms, heartbeat_from = configured.heartbeat_ms, "config"
        if heartbeat_ms is None:
            heartbeat_ms = min(max(_HEARTBEAT_MIN_MS, math.ceil(rtt_ms)), HEARTBEAT_MAX_MS)
            heartbeat_from = "rtt" if heartbeat_ms > _HEARTBEAT_MIN_MS else "default"
        election_ms, election_from = configured.election_ms, "config"
        if election_ms is None:
            by_rtt_ms, by_heartbeat_ms = (
                _ELECTION_PER_RTT * ms for ms in (math.ceil(rtt_ms), configured.heartbeat_ms or 0)
            )
            wanted = {"default": _ELECTION_MIN_MS, "rtt": by_rtt_ms, "heartbeat": by_heartbeat_ms}
            election_from = max(wanted, key=wanted.__getitem__)
            election_ms = min(wanted[election_from], ELECTION_MAX_MS)
        least_ms = ELECTION_PER_HEARTBEAT * heartbeat_ms
        if election_ms < least_ms:
            problem = Problem(
                "$.etcd.election_timeout",
                f"is too short for the heartbeat of {heartbeat_ms}ms, which follows from the largest RTT",
                f"{election_ms}ms",
                f"at least {ELECTION_PER_HEARTBEAT} heartbeats, {least_ms}ms",
            )
            raise ConfigError(str(config.path), [problem])
        may_change, election, notes = "leaders may change under load", f"the election timeout of {election_ms} ms", []
        if heartbeat_ms < rtt_ms:
            notes.append(f"the heartbeat of {heartbeat_ms} ms is below {rtt}, about which etcd advises: {may_change}")
        if election_ms < rtt_ms:
            notes.append(f"{election} is below {rtt}: {store.NO_LEADER}")
        elif election_ms < _ELECTION_PER_RTT * rtt_ms:
            notes.append(f"{election} is below 10 times {rtt}, the least that etcd advises: {may_change}")
        same = f" ({_ORIGIN[heartbeat_from]})" if heartbeat_from != election_from else ""
        return Timing(
            short=f"heartbeat {heartbeat_ms} ms, election {election_ms} ms",
            long=f"heartbeat {heartbeat_ms} ms{same}, election timeout {election_ms} ms ({_ORIGIN[election_from]})",
            values={
                "heartbeat_ms": heartbeat_ms,
                "election_ms": election_ms,
                "heartbeat_from": heartbeat_from,
                "election_from": election_from,
            },
            settle_s=2 * election_ms / 1000,  # two elections
            member_timeout_s=election_ms / 1000,
            heartbeat=store.Heartbeat(heartbeat_ms, HEARTBEAT, HEARTBEAT_ANSWER),
            notes=tuple(notes),
        )

    def slowed(self, timing: Timing, factor: int) -> tuple[Self, Timing]:
        # The longest delays until writes are in its data file, and until its history is compacted.
        flags = {"backend-batch-interval": _BATCH_INTERVAL, **dict(self.choice.flags)}
        for name in ("backend-batch-interval", "auto-compaction-retention"):
            if isinstance(length := flags.get(name), str):
                flags[name] = f"{factor * _ANY_TIME.parse(length)}ms"
        slower = slowed(timing, factor)
        if (election_ms := int(slower.values["election_ms"])) > ELECTION_MAX_MS:
            raise ValueError(f"etcd takes no election timeout of {election_ms} ms, but at most {ELECTION_MAX_MS}")
        return type(self)(replace(self.choice, flags=tuple(sorted(flags.items())))), slower

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        scheme = "https" if config.etcd.tls else "http"
        flags = {
            "name": node.name,
            "data-dir": DATA_DIR,
            "listen-client-urls": f"{scheme}://0.0.0.0:{CLIENT_PORT}",
            "advertise-client-urls": f"{scheme}://{node.ip}:{CLIENT_PORT}",
            "listen-peer-urls": f"{scheme}://0.0.0.0:{PEER_PORT}",
            "initial-advertise-peer-urls": f"{scheme}://{node.ip}:{PEER_PORT}",
            "initial-cluster": ",".join(f"{each.name}={scheme}://{each.ip}:{PEER_PORT}" for each in config.nodes),
            "initial-cluster-state": "new",
            # Members of another run refuse this one, should it ever reach them.
            "initial-cluster-token": f"containernet-env-{run_id}",
            "heartbeat-interval": timing.values["heartbeat_ms"],
            "election-timeout": timing.values["election_ms"],
            # Elections and lost peers are logged at level info; requests are not. Plain lines read well in a
            # failure message.
            "log-level": "info",
            "log-format": "console",
        }
        environment = store.go_environment(node.memory_bytes)
        if config.etcd.tls:
            for prefix in ("", "peer-"):
                flags |= {f"{prefix}cert-file": _CERTIFICATE, f"{prefix}key-file": _KEY}
                flags |= {f"{prefix}trusted-ca-file": _CA, f"{prefix}client-cert-auth": "true"}
            # With these etcdctl is accepted by the member beside which it is started.
            environment |= {"ETCDCTL_CACERT": _CA, "ETCDCTL_CERT": _CERTIFICATE, "ETCDCTL_KEY": _KEY}
        flags |= dict(self.choice.flags)
        if (quota := flags.get("quota-backend-bytes")) is not None:
            flags["quota-backend-bytes"] = parse_size(quota)
        # With profiles it also samples contended mutexes, all the time: such a member is another one.
        more = ("--enable-pprof",) if profiled else ()
        command = (*(f"--{name}={value}" for name, value in flags.items()), *more)
        return MemberStart(command, (DATA_DIR,), TLS_DIR if config.etcd.tls else None, environment)

    def trust(self, config: Config) -> Trust | None:
        if not config.etcd.tls:
            return None
        # Only here: every command would wait for the import, and few runs need it.
        from containernet_env.stores.certificates import LOOPBACK, Authority, client_context

        authority, files = Authority(), {}
        for node in config.nodes:
            issued = authority.issue(node.name, (str(node.ip), LOOPBACK, node.name, "localhost"))
            files[node.name] = {_CA: authority.certificate, _CERTIFICATE: issued.certificate, _KEY: issued.key}
        request = {"caFile": "ca.pem", "certFile": "cert.pem", "keyFile": "key.pem"}
        issued = authority.issue("client")
        contents = authority.certificate, issued.certificate, issued.key
        paths = (f"{store.CLIENT_SECRETS}/{name}" for name in request.values())
        files |= {client.name: dict(zip(paths, contents, strict=True)) for client in config.clients}
        return Trust(client_context(authority, authority.issue("driver")), files, request)

    # The critical path of a request in etcd; docs/floor.md derives it, with the places in etcd's and raft's source.

    def write_ns(self, request: Request) -> float:
        # The leader syncs its log while the followers sync theirs. A follower that got the request learns of the commit
        # with the leader's next message, and answers no sooner than its own sync is over.
        sizes, sync_ns, one_way_ns = self.write_sizes(request.scenario), request.sync_ns, request.network.one_way_ns
        leader, receiver = request.leader, request.receiver
        assert leader is not None
        latency_ns = request.client_ns(sizes.request, sizes.answer)
        copied_ns = request.answered_ns(request.followers_needed, sizes.copied, APPEND_ANSWER, sync_ns)
        agreed_ns = max(sync_ns[leader], copied_ns)
        if receiver == leader:
            return latency_ns + agreed_ns
        heard_ns = agreed_ns + one_way_ns(leader, receiver, COMMIT)
        synced_ns = one_way_ns(leader, receiver, sizes.copied) + sync_ns[receiver]
        return latency_ns + one_way_ns(receiver, leader, sizes.forwarded) + max(heard_ns, synced_ns)

    def read_ns(self, request: Request) -> float:
        # For a linearizable read the leader makes sure that it still leads by a round of heartbeats; a follower
        # requests from it the index to read at.
        latency_ns = request.client_ns(*self.read_sizes(request.scenario))
        if request.scenario.consistency == "s":
            return latency_ns
        latency_ns += request.answered_ns(request.followers_needed, HEARTBEAT, HEARTBEAT_ANSWER, {})
        return latency_ns + request.forwarded_ns(READ_INDEX, READ_INDEX_ANSWER)

    def write_sizes(self, scenario: Scenario) -> WriteSizes:
        key = key_bytes(scenario)
        put = _bytes(key) + _bytes(scenario.val_size)
        message, answer = put, _RESPONSE_HEADER
        if scenario.type == "txn":
            # benchmark_image/internal/store/etcd/wire/request.go: if the key exists, it is put again.
            compare = _SMALL + _SMALL + _bytes(key) + _SMALL
            message = _bytes(compare) + _bytes(_bytes(put))
            answer += _SMALL + _bytes(_bytes(_bytes(_INDEX)))  # succeeded; a put's answer with the revision alone
        # InternalRaftRequest: a header (field 100, so a tag of two bytes) with the request's id, and the request.
        entry = _bytes(1 + _bytes(_ID) + _bytes(message))
        append = _chunk(_APPEND + _SMALL + _INDEX + entry)
        return WriteSizes(_request(message), _answer(answer), forwarded=_raft(_bytes(entry)), copied=append)

    def read_sizes(self, scenario: Scenario) -> tuple[int, int]:
        """The sizes of request and answer of a scenario's reads: of the median answer, or less."""
        span, key = scenario.span, key_bytes(scenario)
        start, end = key, key + 1 if span.keys else 0
        if span.prefix is not None:
            start = end = len(span.prefix)
        elif span.start is not None and span.end is not None:
            start, end = len(span.start), len(span.end)
        request = _bytes(start) + (_bytes(end) if end else 0)
        request += _SMALL * sum((span.answer != "values", scenario.consistency == "s", span.limit is not None))
        pair = _bytes(key) + _INDEX + _INDEX + _SMALL  # created, modified, version
        pair += _bytes(scenario.val_size) if span.answer == "values" else 0
        return _request(request), _answer(_RESPONSE_HEADER + scenario.median_keys_answered * _bytes(pair) + _SMALL)
