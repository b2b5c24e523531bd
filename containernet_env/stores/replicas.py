"""The small replicated store of replicas_image, which exists to be measured, as a store."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from containernet_env.base import assets
from containernet_env.base.errors import ConfigError, Problem, RunError
from containernet_env.model.config import Config, Node, StoreChoice
from containernet_env.model.topology import RttExpectation
from containernet_env.stores import cluster
from containernet_env.stores.cluster import ASK_S, LeaderlessCluster, MemberPlace, MemberStatus, Written, read_each
from containernet_env.stores.floor import Request, key_bytes
from containernet_env.stores.store import (
    Flag,
    ImageParts,
    Lacking,
    LoadTerms,
    MemberStart,
    Store,
    Timing,
    go_environment,
    largest_rtt,
    no_version,
    whole,
)

MODULE = assets.GoModule("replicas", assets.ROOT / "replicas_image", {"replicas": "."}, ours=False)
DATA_DIR = "/var/lib/replicas"
PORT = 8080
FLAGS: Mapping[str, Flag] = {"ack": whole(1, 100), "from": whole(1, 100)}
"""The number of replicas that acknowledge a write, and that a read queries; by default a majority each."""
# The service's own default, and as for the elections of other stores: a silence of ten round trips is not caused by the
# network.
_TIMEOUT_MS, _PER_RTT = 1000, 10


def sources_hash() -> str:
    """The version of the replicas: a hash of their sources, 12 hexadecimal digits."""
    return assets.hash_files(MODULE.folder, assets.compiled_files(MODULE.folder))[:12]


@dataclass(frozen=True, slots=True)
class Quorums:
    """``None``: a majority, as the service takes it where a request names no number."""

    ack: int | None = None
    read: int | None = None

    @classmethod
    def of(cls, choice: StoreChoice) -> Quorums:
        """Those that a topology chooses."""
        flags = {name: int(value) for name, value in choice.flags}
        return cls(flags.get("ack"), flags.get("from"))

    def among(self, replicas: int) -> tuple[int, int]:
        """Their numbers for so many replicas."""
        majority = replicas // 2 + 1
        return self.ack or majority, self.read or majority

    @property
    def terms(self) -> LoadTerms:
        """Requests of a load: templates of URLs, with the key in its place."""
        put = "/v0/entity?id={key}" + (f"&ack={self.ack}" if self.ack else "")
        get = "/v0/entity?id={key}" + (f"&from={self.read}" if self.read else "")
        return LoadTerms({"store": "http"}, {"putPath": put}, {"getPath": get}, leaderless=True)


def check(config: Config) -> None:
    """Raise ``ConfigError`` if more replicas are to answer than there are."""
    there = len(config.nodes)
    problems = [
        Problem(f"$.store.flags.{name}", "is more than there are replicas", str(value), f"at most {there}")
        for name, value in config.store.flags
        if int(value) > there
    ]
    if problems:
        raise ConfigError(str(config.path), problems)


def arguments(node: Node, config: Config, timeout_ms: object) -> tuple[str, ...]:
    """The arguments of one replica."""
    names = [member.name for member in config.nodes]
    peers = ",".join(f"{member.ip}:{PORT}" for member in config.nodes)
    return (
        f"--listen=0.0.0.0:{PORT}",
        f"--id={names.index(node.name)}",
        f"--peers={peers}",
        f"--data={DATA_DIR}",
        f"--timeout={timeout_ms}ms",
    )


# Sizes are least ones: keys and values, and the fixed text of a request and an answer of a client.
_REQUEST = len("GET /v0/entity?id= HTTP/1.1\r\nHost: 1.1.1.1:8080\r\n\r\n")
_ANSWER = len("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nDate: Mon, 23 Nov 2026 03:05:16 GMT\r\n\r\n")
_SMALL = 1


_STATUS = "/status"
_ENTITY = "/v0/entity?id={}&from={}"
# A key that no load writes.
_PROBE = "\0containernet-env"
_PING = b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Replica(cluster.Member):
    """One replica and the host it runs on; ``read_quorum`` is how many a read queries."""

    client_port = PORT
    ping_request = _PING

    def __init__(self, place: MemberPlace, read_quorum: int) -> None:
        super().__init__(place)
        self._read_quorum = read_quorum
        self._version = sources_hash()

    def status(self, timeout_s: float = ASK_S) -> MemberStatus:
        # A replica follows no other.
        answer = self.connection.request_json(PORT, "GET", _STATUS, timeout_s=timeout_s)
        try:
            number = str(answer["id"])
        except (KeyError, TypeError) as error:
            raise RunError(f"{self.name} does not say which replica it is") from error
        return MemberStatus(number, number, 0, self._version)

    def read(self, timeout_s: float) -> None:
        self._value(_PROBE, timeout_s)

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        # As many replicas are queried as by each read of a load.
        return read_each(keys, timeout_s, self._value)

    def _value(self, key: str, timeout_s: float) -> bytes | None:
        """The value of a key; ``None`` if there is no such key. Raises RunError."""
        path = _ENTITY.format(quote(key, safe=""), self._read_quorum)
        try:
            return self.connection.request_bytes(PORT, path, timeout_s=timeout_s)
        except RunError as error:
            # So many replicas have no such key.
            if getattr(error, "status", None) != 404:
                raise
            return None


_NO_ELECTIONS = "have neither heartbeats nor elections"
_ONE_CONSISTENCY = "have no consistency but the flags ack and from"
_ONE_KEY = "take single keys alone"


class Replicas(Store):
    """The replicas, of which a topology chooses how many of them writes and reads wait for."""

    name: ClassVar[str] = "replicas"
    title: ClassVar[str] = "the replicas"
    node = "replica"
    program: ClassVar[str] = "replicas"
    members = Replica
    versions = no_version("the replicas are built from this project's own sources")
    flags = FLAGS
    # maxValue in replicas_image/table.go.
    largest_value_bytes = 4 << 20
    lacks: ClassVar[Lacking] = {
        "heartbeat_interval": _NO_ELECTIONS,
        "election_timeout": _NO_ELECTIONS,
        "leader": "have no leader that could be chosen",
        "tls": "speak plain HTTP",
        "profile": "are not profiled",
        "txn": "have no transactions",
        "serializable": _ONE_CONSISTENCY,
        "default": _ONE_CONSISTENCY,
        "span": _ONE_KEY,
        "limit": _ONE_KEY,
        "keysOnly": _ONE_KEY,
        "countOnly": _ONE_KEY,
    }

    @property
    def _quorums(self) -> Quorums:
        return Quorums.of(self.choice)

    @property
    def version(self) -> str:
        return sources_hash()

    @property
    def consistency(self) -> Mapping[str, str]:
        return {"l": f"from {self._quorums.read or 'majority'}"}

    @property
    def load_terms(self) -> LoadTerms:
        return self._quorums.terms

    @property
    def image(self) -> ImageParts:
        return ImageParts("replicas", module=MODULE, disk_bytes=15 * 10**6)

    def timing(self, config: Config, largest: RttExpectation | None) -> Timing:
        # Replicas wait for each other for a second or ten of the largest RTTs; there are neither heartbeats nor
        # elections.
        check(config)
        timeout_ms = max(_TIMEOUT_MS, _PER_RTT * math.ceil(largest_rtt(largest)[0]))
        return Timing(
            short=f"timeout {timeout_ms} ms",
            long=f"requests wait {timeout_ms} ms for other replicas; there are no heartbeats and no elections",
            values={"timeout_ms": timeout_ms},
            settle_s=0.5,  # they agree on nothing
            member_timeout_s=timeout_ms / 1000,
        )

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        environment = go_environment(node.memory_bytes)
        return MemberStart(arguments(node, config, timing.values["timeout_ms"]), (DATA_DIR,), environment=environment)

    def write_ns(self, request: Request) -> float:
        # A write goes to all replicas, and ends with the last ack that is needed; the replica's own is one of them.
        sent, (ack, _) = request.written_bytes, self._quorums.among(len(request.members))
        acks_ns = sorted(
            request.sync_ns[name] + request.there_and_back_ns(request.receiver, name, sent, _SMALL)
            for name in request.living
        )
        return request.client_ns(_REQUEST + sent, _ANSWER) + acks_ns[min(ack, len(acks_ns)) - 1]

    def read_ns(self, request: Request) -> float:
        # A read queries no more replicas than it needs, those that come after it in the topology, and waits for all.
        key, value, receiver = key_bytes(request.scenario), request.scenario.val_size, request.receiver
        _, read = self._quorums.among(len(request.members))
        living, at = request.living, request.living.index(receiver)
        others = [living[(at + step) % len(living)] for step in range(1, min(read, len(living)))]
        answers_ns = max((request.there_and_back_ns(receiver, name, key, value) for name in others), default=0.0)
        return request.client_ns(_REQUEST + key, _ANSWER + value) + answers_ns

    def cluster(self, places: Sequence[MemberPlace]) -> LeaderlessCluster[Replica]:
        ack, read = self._quorums.among(len(places))
        return LeaderlessCluster([Replica(place, read) for place in places], max(ack, read))
