"""A running etcd cluster, seen from the driver: its members, their logs and metrics, and the store's own history."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf
from typing import Any, ClassVar

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.http import Connection, streamed
from containernet_env.base.work import persistently
from containernet_env.model.backends import ProfileKind
from containernet_env.model.usage import Durations, MemberActivity
from containernet_env.stores import cluster
from containernet_env.stores.cluster import ASK_S, POLL_S, Counters, LogForm, LogPart, MemberStatus, OwnHistory, Written
from containernet_env.stores.profiling import Profiling

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
    """The cause that a line's fields name."""
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


def revision(connection: Connection, prefix: str = "", timeout_s: float = HISTORY_S) -> int:
    """The revision of the store, by a linearizable read of keys that start with ``prefix``. Raises RunError."""
    return _last_write(connection, prefix, timeout_s)[0]


def events(
    connection: Connection, prefix: str, since: int, timeout_s: float, headers: Mapping[str, str] | None = None
) -> Iterator[Written]:
    """Every write of keys that start with ``prefix``, at revisions from ``since`` up to the present, in order.

    ``headers`` are sent besides. Raises RunError if some of them are compacted, and once ``timeout_s`` are over.
    """
    deadline = clock.monotonic() + timeout_s
    _, last = _last_write(connection, prefix, timeout_s)
    if last < since:
        return
    made = connection.open(CLIENT_PORT, timeout_s=_SILENCE_S)
    request = {"create_request": {**span(prefix), "start_revision": str(since)}}
    with streamed(made, "POST", _WATCH, request, headers) as answer:
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


def _last_write(connection: Connection, prefix: str, timeout_s: float) -> tuple[int, int]:
    """The revision of the store, and that of the last write of these keys; 0 where there is none."""
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
PROBE_KEY = base64.b64encode(b"\x00containernet-env").decode()
# The query of a member to its peers before it joins them (server/etcdserver, cluster_util.go).
_MEMBERS = "/members"
# For so long the others wait for the first one, and a round trip for each: 49 peers on links of 100 ms both ways have
# refused it by then.
_FIRST_TIMEOUT_S = 10.0
# A member that knows no leader reports "0".
_STATUS = "/v3/maintenance/status"
_MOVE_LEADER = "/v3/maintenance/transfer-leadership"
_NO_LEADER = "0"


class EtcdMember(cluster.Member):
    """One etcd member and the host it runs on; ``probe_key``, in base64, is one that no load writes."""

    client_port = CLIENT_PORT
    # Answered by the member from memory (server/etcdserver/api/etcdhttp/version.go): no quorum, no disk.
    ping_request = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    log_form: ClassVar[LogForm] = LOG
    metrics = (CLIENT_PORT, "/metrics", METRICS)

    def __init__(self, place: cluster.MemberPlace, probe_key: str = PROBE_KEY) -> None:
        super().__init__(place)
        self.probe_key = probe_key
        self.peer_url = f"http://{place.ip}:{PEER_PORT}"

    def status(self, timeout_s: float = ASK_S) -> MemberStatus:
        answer = self.connection.request_json(CLIENT_PORT, "POST", _STATUS, {}, timeout_s=timeout_s)
        try:
            leader_id = str(answer.get("leader", _NO_LEADER))
            return MemberStatus(
                member_id=str(answer["header"]["member_id"]),
                leader_id=None if leader_id == _NO_LEADER else leader_id,
                raft_term=int(answer.get("raftTerm", 0)),
                version=str(answer["version"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{self.name} does not say who leads: is it a member of etcd?") from error

    def read(self, timeout_s: float) -> None:
        self.connection.request_json(CLIENT_PORT, "POST", _RANGE, {"key": self.probe_key}, timeout_s=timeout_s)

    def hand_over(self, member_id: str, timeout_s: float) -> None:
        self.connection.request_json(
            CLIENT_PORT, "POST", _MOVE_LEADER, {"targetID": member_id}, timeout_s=max(timeout_s, 0.1)
        )

    def has_started(self) -> bool:
        # It serves clients once it has registered with a leader, and peers before.
        return self.serves_peers(ASK_S)

    def serves_peers(self, timeout_s: float) -> bool:
        """Whether this member answers its peers' query for the members."""
        try:
            self.connection.request_json(PEER_PORT, "GET", _MEMBERS, timeout_s=timeout_s)
        except RunError:
            return False
        return True

    @staticmethod
    def activity(before: Counters, after: Counters, log: LogPart | None) -> MemberActivity:
        data_bytes = int(after[_DATA_BYTES]) if _DATA_BYTES in after else None
        warnings = None if log is None else log.warnings
        if not before or not after or before.get(_STARTED) != after.get(_STARTED):
            return MemberActivity(data_bytes=data_bytes, warnings=warnings)
        return MemberActivity(
            leader_changes=cluster.grown(before, after, _LEADER_CHANGES),
            log_syncs=_durations(before, after, _LOG_SYNCS),
            commits=_durations(before, after, _COMMITS),
            failed_proposals=cluster.grown(before, after, _FAILED_PROPOSALS),
            data_bytes=data_bytes,
            data_grown_bytes=cluster.grown(before, after, _DATA_BYTES),
            warnings=warnings,
        )


class EtcdCluster(cluster.Cluster[EtcdMember]):
    """The members of one run, in config order."""

    def _open_gates(self, deadline: float, broken: cluster.Broken) -> None:
        # A member that starts queries its peers in the order of their URLs for the members, until one answers, and
        # waits a second for each that listens and does not answer yet. So the first in that order starts before the
        # others: those that it queries refuse at once, and it answers all of them.
        first, *others = sorted(self.members, key=lambda member: member.peer_url)
        first.start(deadline)
        if others:
            first_s = _FIRST_TIMEOUT_S + len(others) * self.waits.rtt_s
            self._wait_for_first(first, broken, min(deadline, clock.monotonic() + first_s))
        list(self._pool.map(lambda member: member.start(deadline), others))

    def _wait_for_first(self, first: EtcdMember, broken: cluster.Broken, deadline: float) -> None:
        """Return once the member answers its peers; at the deadline in any case."""
        while not first.serves_peers(timeout_s=POLL_S * 5) and clock.monotonic() < deadline:
            self._check_start([first], broken)
            clock.sleep(POLL_S / 5)

    def profile(self, member: str, kinds: Sequence[ProfileKind]) -> Profiling | None:
        found = next((living for living in self.living() if living.name == member), None)
        return None if found is None else Profiling(found.connection, CLIENT_PORT, kinds)

    def revision(self) -> int:
        timeout_s = self.ask_s + HISTORY_S
        return persistently(lambda: revision(self._answering().connection, timeout_s=timeout_s), self.patience_s)

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        answering = persistently(self._answering, self.patience_s)
        return OwnHistory(events(answering.connection, prefix, since, timeout_s))

    def _answering(self) -> EtcdMember:
        """A member that answers. Raises RunError if none does."""
        for member, status in self.statuses().items():
            if status is not None and status.leader_id is not None:
                return member
        raise RunError("no member answers")
