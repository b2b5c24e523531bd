"""etcd as a store: version and flags, timing, how its members are started, and its floor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from containernet_env.base import assets
from containernet_env.base.errors import ConfigError, Problem
from containernet_env.base.units import parse_size
from containernet_env.model import kinds
from containernet_env.model.config import ELECTION_MAX_MS, ELECTION_PER_HEARTBEAT, HEARTBEAT_MAX_MS, Config, Node
from containernet_env.model.dilation import slowed
from containernet_env.model.kinds import Kind
from containernet_env.model.scenario import Scenario
from containernet_env.model.topology import RttExpectation
from containernet_env.stores import store
from containernet_env.stores.etcd.cluster import CLIENT_PORT, PEER_PORT, EtcdCluster, EtcdMember, ExternalEtcd
from containernet_env.stores.store import MemberStart, Request, Timing, Trust, WriteSizes, key_bytes

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
    """etcd, in the version that is pinned or in another one."""

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
        from containernet_env.stores.etcd.certificates import LOOPBACK, Authority, client_context

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
        """The sizes of the messages of a scenario's writes."""
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
        """The sizes of request and answer of a scenario's reads, with as many keys in an answer as there are at
        most."""
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
        return _request(request), _answer(_RESPONSE_HEADER + scenario.keys_answered * _bytes(pair) + _SMALL)
