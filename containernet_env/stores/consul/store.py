"""Consul as a store: see ``stores.protocol.Store``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from containernet_env.base import assets
from containernet_env.model.config import Config, Node, StoreChoice
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.consul.cluster import ConsulCluster, Member
from containernet_env.stores.consul.critical_path import CriticalPath
from containernet_env.stores.consul.external import ExternalConsul
from containernet_env.stores.consul.log import last_words
from containernet_env.stores.consul.settings import DATA_DIR, HTTP_PORT, arguments
from containernet_env.stores.consul.timing import ConsulTiming, consul_timing
from containernet_env.stores.consul.tuning import FLAGS, VERSION
from containernet_env.stores.critical_path import Deployment
from containernet_env.stores.external import ExternalConnection, Login, OwnKeys
from containernet_env.stores.features import Lacking
from containernet_env.stores.memory import go_environment
from containernet_env.stores.protocol import (
    ImageParts,
    LeastLatencies,
    LoadTerms,
    MemberPlace,
    MemberStart,
    StoreKind,
    Timing,
    Trust,
)

_NAME = "consul"
_PINNED = StoreChoice(_NAME)
_NO_RANGES = "answers ranges without an end or a limit"
# A transaction of bbolt ends with two fdatasyncs, one of the pages and one of the page that points to them (tx.go);
# hashicorp/raft-wal appends to its file, and syncs that once.
_SYNCS = {"boltdb": 2, "wal": 1}


@dataclass(frozen=True, slots=True)
class Consul:
    """See ``stores.protocol.Store``."""

    choice: StoreChoice = _PINNED
    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Consul"
    program: ClassVar[str] = _NAME
    client_port: ClassVar[int] = HTTP_PORT
    last_words = staticmethod(last_words)
    load_terms: ClassVar[LoadTerms] = LoadTerms({"store": "consul"})
    # Consul's own bound of a value, which limits.kv_max_value_size may change (docs: limits).
    largest_value_bytes: ClassVar[int | None] = 512 << 10
    keys_are_paths: ClassVar[bool] = True
    consistency: ClassVar[Mapping[str, str]] = {"s": "stale"}
    lacks: ClassVar[Lacking] = {
        "heartbeat_interval": "scales all its timeouts by one number, the flag raft_multiplier",
        "election_timeout": "scales all its timeouts by one number, the flag raft_multiplier",
        "tls": "is run without TLS here",
        "profile": "is not profiled here",
        "span": _NO_RANGES,
        "limit": _NO_RANGES,
        "keysOnly": _NO_RANGES,
        "countOnly": _NO_RANGES,
    }

    @property
    def version(self) -> str:
        """See ``Store``."""
        return self.choice.version or assets.consul_version()

    @property
    def image(self) -> ImageParts:
        """See ``Store``."""
        # The pinned one, however it is named.
        other = None if self.version == assets.consul_version() else self.version
        return ImageParts(_NAME, module=assets.consul_module(version=other))

    def timing(self, config: Config, largest_member_rtt: RttExpectation | None) -> ConsulTiming:
        """See ``Store``."""
        return consul_timing(config, largest_member_rtt)

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        """See ``Store``."""
        assert isinstance(timing, ConsulTiming)
        return MemberStart(arguments(node, config, timing), (DATA_DIR,), environment=go_environment(node.memory_bytes))

    def least_latencies(self, deployment: Deployment) -> LeastLatencies:
        """See ``Store``."""
        syncs = _SYNCS[str(dict(self.choice.flags).get("raft_logstore", "boltdb"))]
        return CriticalPath(deployment, syncs).shares

    def trust(self, config: Config) -> Trust | None:
        """See ``Store``."""
        return None

    def cluster(self, places: Sequence[MemberPlace]) -> ConsulCluster:
        """See ``Store``."""
        return ConsulCluster([Member(place) for place in places])

    def place(self, prefix: str) -> tuple[LoadTerms, str]:
        """See ``stores.external.ExternalStore``."""
        return self.load_terms, prefix

    def external(
        self, config: Config, connections: Sequence[ExternalConnection], login: Login | None, own: OwnKeys
    ) -> ExternalConsul:
        """See ``ExternalStore``."""
        assert config.external is not None
        return ExternalConsul(config.external, connections, login, own)


KIND = StoreKind(_NAME, Consul, VERSION, FLAGS)
"""What a topology may choose of Consul: its version, and some of its configuration."""
