"""The replicas as a store: see ``stores.protocol.Store``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from containernet_env.base import assets
from containernet_env.base.programs import last_words
from containernet_env.model.config import Config, Node, StoreChoice
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.critical_path import Deployment
from containernet_env.stores.features import Lacking
from containernet_env.stores.leaderless import LeaderlessCluster
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
from containernet_env.stores.replicas.cluster import Member
from containernet_env.stores.replicas.critical_path import CriticalPath
from containernet_env.stores.replicas.settings import (
    DATA_DIR,
    FLAGS,
    PORT,
    VERSION,
    Quorums,
    arguments,
    check,
)
from containernet_env.stores.replicas.timing import ReplicasTiming

_NAME = "replicas"
_OWN = StoreChoice(_NAME)
_NO_ELECTIONS = "have neither heartbeats nor elections"
_ONE_CONSISTENCY = "know no consistency but the flags ack and from"
_ONE_KEY = "know single keys alone"


@dataclass(frozen=True, slots=True)
class Replicas:
    """See ``stores.protocol.Store``."""

    choice: StoreChoice = _OWN
    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "the replicas"
    program: ClassVar[str] = _NAME
    client_port: ClassVar[int] = PORT
    last_words = staticmethod(last_words)
    # maxValue in replicas_image/table.go.
    largest_value_bytes: ClassVar[int | None] = 4 << 20
    keys_are_paths: ClassVar[bool] = False
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
        """See ``Store``: a hash of its sources."""
        return assets.replicas_version()

    @property
    def consistency(self) -> Mapping[str, str]:
        """See ``Store``."""
        return {"l": f"from {self._quorums.read or 'majority'}"}

    @property
    def load_terms(self) -> LoadTerms:
        """See ``Store``."""
        return self._quorums.terms

    @property
    def image(self) -> ImageParts:
        """See ``Store``."""
        return ImageParts(_NAME, module=assets.replicas_module())

    def timing(self, config: Config, largest_member_rtt: RttExpectation | None) -> ReplicasTiming:
        """See ``Store``."""
        check(config)
        return ReplicasTiming.for_rtt(largest_member_rtt)

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        """See ``Store``."""
        assert isinstance(timing, ReplicasTiming)
        environment = go_environment(node.memory_bytes)
        return MemberStart(arguments(node, config, timing.timeout_ms), (DATA_DIR,), environment=environment)

    def least_latencies(self, deployment: Deployment) -> LeastLatencies:
        """See ``Store``."""
        return CriticalPath(deployment, *self._quorums.among(len(deployment.members))).shares

    def trust(self, config: Config) -> Trust | None:
        """See ``Store``."""
        return None

    def cluster(self, places: Sequence[MemberPlace]) -> LeaderlessCluster[Member]:
        """See ``Store``."""
        ack, read = self._quorums.among(len(places))
        return LeaderlessCluster([Member(place, read) for place in places], max(ack, read))


KIND = StoreKind(_NAME, Replicas, VERSION, FLAGS, member="replica")
"""What a topology may choose of the replicas: how many of them writes and reads wait for."""
