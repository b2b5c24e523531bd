"""etcd as a store: version and flags, timing, how its members are started, and its floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

from containernet_env.base import assets
from containernet_env.base.errors import ConfigError, Problem
from containernet_env.model.config import Config, Node
from containernet_env.model.scenario import Scenario
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.etcd.cluster import CLIENT_PORT, PEER_PORT, EtcdCluster, EtcdMember
from containernet_env.stores.etcd.external import ExternalEtcd
from containernet_env.stores.floor import CriticalPath, Deployment, key_bytes
from containernet_env.stores.store import (
    NO_LEADER,
    Flag,
    Heartbeat,
    ImageParts,
    Lacking,
    LoadTerms,
    MemberStart,
    Store,
    Timing,
    Trust,
    go_environment,
    largest_rtt_words,
    milliseconds,
    one_of,
    rtt_ms,
    size,
    version_from,
    whole,
)

DATA_DIR = "/var/lib/etcd"
TLS_DIR = "/run/tls"
"""Where a member finds its certificates and its key; see ``certificates``."""
CA_FILE, CERTIFICATE_FILE, KEY_FILE = (f"{TLS_DIR}/{name}" for name in ("ca.pem", "cert.pem", "key.pem"))

# --- flags ------------------------------------------------------------------------------------------------------------

_HOUR_MS = 3_600_000
_REVISIONS, _TIME = whole(1, 10**9), milliseconds(1000, 10_000 * _HOUR_MS)


def _parse_retention(value: object) -> int | str:
    return _REVISIONS.parse(value) if isinstance(value, int) else _TIME.parse(value)


FLAGS: Mapping[str, Flag] = {
    "snapshot-count": whole(1, 10**9),
    "quota-backend-bytes": size(1 << 20, 1 << 40),
    "backend-batch-limit": whole(1, 10**7),
    "backend-batch-interval": milliseconds(1, 60_000),
    "auto-compaction-mode": one_of("periodic", "revision"),
    "auto-compaction-retention": Flag(f"{_TIME.allowed}; with revision {_REVISIONS.allowed}", _parse_retention),
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


@dataclass(frozen=True, slots=True)
class WriteSizes:
    """A put or a transaction: from the client and back, forwarded to the leader, and from the leader to a follower."""

    request: int
    answer: int
    proposal: int
    append: int

    @classmethod
    def of(cls, scenario: Scenario) -> WriteSizes:
        """Those of the writes of a scenario."""
        key = key_bytes(scenario)
        put = _bytes(key) + _bytes(scenario.val_size)
        message, answer = put, _RESPONSE_HEADER
        if scenario.type == "txn":
            # benchmark_image/internal/store/etcd/wire/request.go: if the key exists, it is put again.
            compare = _SMALL + _SMALL + _bytes(key) + _SMALL
            message = _bytes(compare) + _bytes(_bytes(put))
            answer += _SMALL + _bytes(_bytes(_bytes(_INDEX)))  # succeeded; a put's answer with the revision alone
        # InternalRaftRequest: a header (field 100, so a tag of two bytes) with the request's id, and the request.
        proposed = 1 + _bytes(_ID) + _bytes(message)
        entry = _bytes(proposed)
        return cls(
            request=_request(message),
            answer=_answer(answer),
            proposal=_raft(_bytes(entry)),
            append=_chunk(_APPEND + _SMALL + _INDEX + entry),
        )


@dataclass(frozen=True, slots=True)
class ReadSizes:
    """A range: from the client and back."""

    request: int
    answer: int

    @classmethod
    def of(cls, scenario: Scenario) -> ReadSizes:
        """Those of the reads of a scenario, with as many keys in an answer as there are at most."""
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
        answer = _RESPONSE_HEADER + scenario.keys_answered * _bytes(pair) + _SMALL
        return cls(_request(request), _answer(answer))


# --- timing -----------------------------------------------------------------------------------------------------------

# etcd's own rules (server/embed/config.go): election at most maxElectionMs, and at least 5 heartbeats.
ELECTION_MAX_MS = 50_000
ELECTION_PER_HEARTBEAT = 5
HEARTBEAT_MAX_MS = ELECTION_MAX_MS // ELECTION_PER_HEARTBEAT
# etcd's defaults, and its tuning guide's rules: heartbeat about the RTT, election at least ten times that.
_HEARTBEAT_MIN_MS = 100
_ELECTION_MIN_MS = 1000
_ELECTION_PER_RTT = 10

_MAY_CHANGE = "leaders may change under load"
_ORIGIN = {
    "default": "etcd's default",
    "rtt": "from the largest RTT",
    "config": "from the config",
    "heartbeat": "10 heartbeats",
}


@dataclass(frozen=True, slots=True)
class EtcdTiming(Timing):
    """Raft's timing, in milliseconds; ``*_from`` is where a value comes from."""

    heartbeat_ms: int
    election_ms: int
    heartbeat_from: Literal["default", "rtt", "config"]
    election_from: Literal["default", "rtt", "config", "heartbeat"]

    @property
    def settle_s(self) -> float:
        # Two elections.
        return 2 * self.election_ms / 1000

    @property
    def member_timeout_s(self) -> float:
        return self.election_ms / 1000

    @property
    def short(self) -> str:
        return f"heartbeat {self.heartbeat_ms} ms, election {self.election_ms} ms"

    @property
    def long(self) -> str:
        heartbeat, election = _ORIGIN[self.heartbeat_from], _ORIGIN[self.election_from]
        if heartbeat == election:
            return f"heartbeat {self.heartbeat_ms} ms, election timeout {self.election_ms} ms ({heartbeat})"
        return f"heartbeat {self.heartbeat_ms} ms ({heartbeat}), election timeout {self.election_ms} ms ({election})"

    def values(self) -> dict[str, int | str]:
        return asdict(self)

    def notes(self, largest: RttExpectation) -> Iterator[str]:
        rtt = largest_rtt_words(largest)
        if self.heartbeat_ms * 10**6 < largest.expected_ns:
            yield f"the heartbeat of {self.heartbeat_ms} ms is below {rtt}, about which etcd advises: {_MAY_CHANGE}"
        election = f"the election timeout of {self.election_ms} ms"
        if self.election_ms * 10**6 < largest.expected_ns:
            yield f"{election} is below {rtt}: {NO_LEADER}"
        elif self.election_ms * 10**6 < _ELECTION_PER_RTT * largest.expected_ns:
            yield f"{election} is below 10 times {rtt}, the least that etcd advises: {_MAY_CHANGE}"

    @property
    def heartbeat(self) -> Heartbeat:
        return Heartbeat(self.heartbeat_ms, HEARTBEAT, HEARTBEAT_ANSWER)


def etcd_timing(config: Config, largest: RttExpectation | None) -> EtcdTiming:
    """Heartbeat max(100 ms, RTT), election max(1000 ms, 10 x RTT) in whole ms; values in the config take precedence.

    Raises ``ConfigError`` when a configured value and a derived one together break etcd's own rules.
    """
    largest_ms, configured = rtt_ms(largest), config.etcd
    heartbeat_from: Literal["default", "rtt", "config"]
    election_from: Literal["default", "rtt", "config", "heartbeat"]
    if configured.heartbeat_ms is not None:
        heartbeat_ms, heartbeat_from = configured.heartbeat_ms, "config"
    else:
        heartbeat_ms = min(max(_HEARTBEAT_MIN_MS, largest_ms), HEARTBEAT_MAX_MS)
        heartbeat_from = "rtt" if heartbeat_ms > _HEARTBEAT_MIN_MS else "default"
    if configured.election_ms is not None:
        election_ms, election_from = configured.election_ms, "config"
    else:
        by_rtt_ms = max(_ELECTION_MIN_MS, _ELECTION_PER_RTT * largest_ms)
        by_heartbeat_ms = _ELECTION_PER_RTT * configured.heartbeat_ms if configured.heartbeat_ms is not None else 0
        election_ms = min(max(by_rtt_ms, by_heartbeat_ms), ELECTION_MAX_MS)
        if by_heartbeat_ms > by_rtt_ms:
            election_from = "heartbeat"
        else:
            election_from = "rtt" if by_rtt_ms > _ELECTION_MIN_MS else "default"
    least_ms = ELECTION_PER_HEARTBEAT * heartbeat_ms
    if election_ms < least_ms:
        raise ConfigError(
            str(config.path),
            [
                Problem(
                    "$.etcd.election_timeout",
                    f"is too short for the heartbeat of {heartbeat_ms}ms, which follows from the largest RTT",
                    f"{election_ms}ms",
                    f"at least {ELECTION_PER_HEARTBEAT} heartbeats, {least_ms}ms",
                )
            ],
        )
    return EtcdTiming(heartbeat_ms, election_ms, heartbeat_from, election_from)


# --- floor ------------------------------------------------------------------------------------------------------------


class EtcdPath(CriticalPath):
    """The critical path of a request in etcd; docs/floor.md derives it, with the places in etcd's and raft's source."""

    def write_sizes(self, scenario: Scenario) -> WriteSizes:
        """The sizes of a write's messages."""
        return WriteSizes.of(scenario)

    def read_sizes(self, scenario: Scenario) -> ReadSizes:
        """The sizes of a read's messages."""
        return ReadSizes.of(scenario)

    def write_ns(self, scenario: Scenario, receiver: str, leader: str | None) -> float:
        # The leader syncs its log while the followers sync theirs. A follower that got the request learns of the commit
        # with the leader's next message, and answers no sooner than its own sync is over.
        assert leader is not None
        sizes, sync_ns, one_way = (
            self.write_sizes(scenario),
            self._deployment.sync_ns,
            self._deployment.network.one_way_ns,
        )
        latency_ns = self._deployment.client_ns(receiver, sizes.request, sizes.answer)
        agreed_ns = max(sync_ns[leader], self._quorum_ns(leader, sizes.append, APPEND_ANSWER, sync_ns))
        if receiver == leader:
            return latency_ns + agreed_ns
        heard_ns = agreed_ns + one_way(leader, receiver, COMMIT)
        synced_ns = one_way(leader, receiver, sizes.append) + sync_ns[receiver]
        return latency_ns + one_way(receiver, leader, sizes.proposal) + max(heard_ns, synced_ns)

    def read_ns(self, scenario: Scenario, receiver: str, leader: str | None) -> float:
        # For a linearizable read the leader makes sure that it still leads by a round of heartbeats; a follower
        # requests from it the index to read at.
        sizes = self.read_sizes(scenario)
        latency_ns = self._deployment.client_ns(receiver, sizes.request, sizes.answer)
        if scenario.consistency == "s" or leader is None:
            return latency_ns
        latency_ns += self._quorum_ns(leader, HEARTBEAT, HEARTBEAT_ANSWER, {})
        return latency_ns + self._deployment.there_and_back_ns(receiver, leader, READ_INDEX, READ_INDEX_ANSWER)

    def _quorum_ns(self, leader: str, message: int, answer: int, sync_ns: Mapping[str, float]) -> float:
        """Until the leader has the answers of as many followers as complete a majority with it; 0 for one member."""
        needed = len(self._deployment.members) // 2
        return self._deployment.answered_ns(leader, needed, message, answer, sync_ns)


# --- the store --------------------------------------------------------------------------------------------------------


def etcd_flags(node: Node, config: Config, timing: EtcdTiming, run_id: str) -> tuple[str, ...]:
    """The arguments of one member's etcd, static bootstrap."""
    scheme = "https" if config.etcd.tls else "http"
    cluster = ",".join(f"{member.name}={scheme}://{member.ip}:{PEER_PORT}" for member in config.nodes)
    flags = {
        "name": node.name,
        "data-dir": DATA_DIR,
        "listen-client-urls": f"{scheme}://0.0.0.0:{CLIENT_PORT}",
        "advertise-client-urls": f"{scheme}://{node.ip}:{CLIENT_PORT}",
        "listen-peer-urls": f"{scheme}://0.0.0.0:{PEER_PORT}",
        "initial-advertise-peer-urls": f"{scheme}://{node.ip}:{PEER_PORT}",
        "initial-cluster": cluster,
        "initial-cluster-state": "new",
        # Members of another run refuse this one, should it ever reach them.
        "initial-cluster-token": f"containernet-env-{run_id}",
        "heartbeat-interval": str(timing.heartbeat_ms),
        "election-timeout": str(timing.election_ms),
        # Elections and lost peers are logged at level info; requests are not. Plain lines read well in a
        # failure message.
        "log-level": "info",
        "log-format": "console",
    }
    if config.etcd.tls:
        for prefix in ("", "peer-"):
            flags[f"{prefix}cert-file"], flags[f"{prefix}key-file"] = CERTIFICATE_FILE, KEY_FILE
            flags[f"{prefix}trusted-ca-file"], flags[f"{prefix}client-cert-auth"] = CA_FILE, "true"
    return tuple(f"--{name}={value}" for name, value in flags.items())


def etcdctl_environment(config: Config) -> dict[str, str]:
    """The variables with which etcdctl is accepted by the member beside which it is started."""
    files = {"CACERT": CA_FILE, "CERT": CERTIFICATE_FILE, "KEY": KEY_FILE}
    return {f"ETCDCTL_{name}": path for name, path in files.items()} if config.etcd.tls else {}


class Etcd(Store):
    """etcd, in the version that is pinned or in another one."""

    name: ClassVar[str] = "etcd"
    title: ClassVar[str] = "etcd"
    program: ClassVar[str] = "etcd"
    members: ClassVar[type[EtcdMember]] = EtcdMember
    clusters = EtcdCluster
    externals: ClassVar[type[ExternalEtcd] | None] = ExternalEtcd
    # From the oldest whose modules have the paths that are built.
    versions = version_from(
        (3, 6, 0), r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,4})(-(?:alpha|beta|rc)\.[0-9]{1,3})?", "3.6.8"
    )
    flags = FLAGS
    # Every write waits for more of them.
    most_members = 7
    lacks: ClassVar[Lacking] = {"default": 'has no third consistency beside "l" and "s"'}
    load_terms: ClassVar[LoadTerms] = LoadTerms()

    @classmethod
    def clash(cls, flags: Mapping[str, int | str]) -> tuple[str, str, str] | None:
        # A retention is a time or a number of revisions, by the mode.
        mode, retention = (flags.get(f"auto-compaction-{name}") for name in ("mode", "retention"))
        if mode is not None and retention is None:
            return "auto-compaction-mode", "says nothing by itself", "auto-compaction-retention beside it"
        if retention is not None and isinstance(retention, int) != (mode == "revision"):
            allowed = _REVISIONS.allowed if mode == "revision" else _TIME.allowed
            return "auto-compaction-retention", f"does not go with the mode {mode or 'periodic'}", allowed
        return None

    @property
    def _etcd_version(self) -> str:
        return self.choice.version or assets.etcd_version()

    @property
    def version(self) -> str:
        return self._etcd_version

    @property
    def image(self) -> ImageParts:
        # The pinned one, however it is named.
        other = None if self._etcd_version == assets.etcd_version() else self._etcd_version
        return ImageParts("etcd", module=assets.etcd_module(version=other), disk_bytes=55 * 10**6)

    def timing(self, config: Config, largest: RttExpectation | None) -> EtcdTiming:
        return etcd_timing(config, largest)

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        assert isinstance(timing, EtcdTiming)
        chosen = (f"--{name}={FLAGS[name].argument(value)}" for name, value in self.choice.flags)
        command = (*etcd_flags(node, config, timing, run_id), *chosen)
        if profiled:
            # It then also samples contended mutexes, all the time: such a member is another one.
            command = (*command, "--enable-pprof")
        environment = {**go_environment(node.memory_bytes), **etcdctl_environment(config)}
        return MemberStart(command, (DATA_DIR,), TLS_DIR if config.etcd.tls else None, environment)

    def critical_path(self, deployment: Deployment) -> CriticalPath:
        return EtcdPath(deployment)

    def trust(self, config: Config) -> Trust | None:
        if not config.etcd.tls:
            return None
        # Only here: every command would wait for the import, and few runs need it.
        from containernet_env.stores.etcd.certificates import trust_of

        return trust_of(config)
