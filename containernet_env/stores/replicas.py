"""The small replicated store of replicas_image, which exists to be measured: a key-value service with quorums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from containernet_env.base import assets
from containernet_env.base.errors import ConfigError, Problem
from containernet_env.model import kinds
from containernet_env.model.config import Config, HttpService, Node
from containernet_env.model.topology import RttExpectation
from containernet_env.stores import store
from containernet_env.stores.cluster import Cluster, MemberPlace
from containernet_env.stores.http_service import Http
from containernet_env.stores.store import MemberStart, Request, Timing, key_bytes

MODULE = assets.GoModule("replicas", assets.ROOT / "replicas_image", {"replicas": "."}, ours=False)
# The service's own default, and as for the elections of other stores: a silence of ten round trips is not caused by the
# network.
_TIMEOUT_MS, _PER_RTT = 1000, 10
# Sizes are least ones: keys and values, and the fixed text of a request and an answer of a client.
_REQUEST = len("GET /v0/entity?id= HTTP/1.1\r\nHost: 1.1.1.1:8080\r\n\r\n")
_ANSWER = len("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nDate: Mon, 23 Nov 2026 03:05:16 GMT\r\n\r\n")
_SMALL = 1
_ARGUMENTS = "--listen=0.0.0.0:{port}", "--id={index}", "--peers={peers}", "--data={data}"


def sources_hash() -> str:
    """The version of the replicas: a hash of their sources, 12 hexadecimal digits."""
    return assets.hash_files(MODULE.folder, assets.compiled_files(MODULE.folder))[:12]


class Replicas(Http):
    """The replicas, of which a topology chooses how many acknowledge a write, and how many a read queries."""

    name: ClassVar[str] = "replicas"
    title: ClassVar[str] = "the replicas"
    node = "replica"
    program: ClassVar[str] = "replicas"
    needs_binary = False
    externals = None
    follows_cpu_limit = True
    versions = store.no_version("the replicas are built from this project's own sources")
    # A majority each by default.
    flags: ClassVar[Mapping[str, kinds.Kind]] = {"ack": kinds.integer(1, 100), "from": kinds.integer(1, 100)}
    # maxValue in replicas_image/table.go.
    largest_value_bytes = 4 << 20
    lacks: ClassVar[store.Lacking] = {
        **dict.fromkeys(store.ELECTIONS, "have neither heartbeats nor elections"),
        "leader": "have no leader that could be chosen",
        "tls": "speak plain HTTP",
        "profile": "are not profiled",
        "txn": "have no transactions",
        **dict.fromkeys(("serializable", "default"), "have no consistency but the flags ack and from"),
        **dict.fromkeys(store.RANGES, "take single keys alone"),
    }

    def _quorum(self, flag: str, replicas: int) -> int:
        return int(dict(self.choice.flags).get(flag, replicas // 2 + 1))

    @property
    def service(self) -> HttpService:
        flags = dict(self.choice.flags)
        put, get = (
            "/v0/entity?id={key}" + (f"&{flag}={flags[flag]}" if flag in flags else "") for flag in ("ack", "from")
        )
        return HttpService(put, get, None, (201,), (200,), (), (404,), 8080, _ARGUMENTS, "/status")

    @property
    def version(self) -> str:
        return sources_hash()

    @property
    def consistency(self) -> Mapping[str, str]:
        return {"l": f"from {dict(self.choice.flags).get('from', 'majority')}"}

    @property
    def load_terms(self) -> store.LoadTerms:
        service = self.service
        return store.LoadTerms({"store": "http"}, {"putPath": service.put}, {"getPath": service.get}, leaderless=True)

    @property
    def image(self) -> store.ImageParts:
        return store.ImageParts("replicas", module=MODULE)

    def timing(self, config: Config, largest: RttExpectation | None) -> Timing:
        there = len(config.nodes)
        problems = [
            Problem(f"$.store.flags.{name}", "is more than there are replicas", str(value), f"at most {there}")
            for name, value in self.choice.flags
            if int(value) > there
        ]
        if problems:
            raise ConfigError(str(config.path), problems)
        timeout_ms = max(_TIMEOUT_MS, _PER_RTT * math.ceil(store.largest_rtt(largest)[0]))
        return Timing(
            short=f"timeout {timeout_ms} ms",
            long=f"requests wait {timeout_ms} ms for other replicas; there are no heartbeats and no elections",
            values={"timeout_ms": timeout_ms},
            settle_s=0.5,  # they agree on nothing
            member_timeout_s=timeout_ms / 1000,
        )

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        start = super().start(node, config, timing, run_id)
        return replace(start, command=(*start.command, f"--timeout={timing.values['timeout_ms']}ms"))

    def cluster(self, places: Sequence[MemberPlace]) -> Cluster[Any]:
        cluster = super().cluster(places)
        cluster.quorum = max(self._quorum(flag, len(places)) for flag in ("ack", "from"))
        return cluster

    def write_ns(self, request: Request) -> float:
        # A write goes to all replicas, and ends with the last ack that is needed; the replica's own is one of them.
        sent, ack = request.written_bytes, self._quorum("ack", len(request.members))
        acks_ns = sorted(
            request.sync_ns[name] + request.there_and_back_ns(request.receiver, name, sent, _SMALL)
            for name in request.living
        )
        return request.client_ns(_REQUEST + sent, _ANSWER) + acks_ns[min(ack, len(acks_ns)) - 1]

    def read_ns(self, request: Request) -> float:
        # A read queries no more replicas than it needs, those that come after it in the topology, and waits for all.
        key, value, receiver = key_bytes(request.scenario), request.scenario.val_size, request.receiver
        living, at = request.living, request.living.index(receiver)
        count = min(self._quorum("from", len(request.members)), len(living))
        others = [living[(at + step) % len(living)] for step in range(1, count)]
        answers_ns = max((request.there_and_back_ns(receiver, name, key, value) for name in others), default=0.0)
        return request.client_ns(_REQUEST + key, _ANSWER + value) + answers_ns
