"""A service by its URLs, as a store: see ``stores.protocol.Store``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from containernet_env.base.programs import last_words
from containernet_env.model.config import Config, HttpService, Node, StoreChoice
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.critical_path import Deployment
from containernet_env.stores.external import ExternalConnection, Login, OwnKeys, UnknownTiming
from containernet_env.stores.features import Lacking
from containernet_env.stores.flags import Flag
from containernet_env.stores.keyvalue.cluster import Member
from containernet_env.stores.keyvalue.critical_path import CriticalPath
from containernet_env.stores.keyvalue.external import ExternalService
from containernet_env.stores.keyvalue.service import load_terms
from containernet_env.stores.keyvalue.settings import DATA_DIR, arguments
from containernet_env.stores.leaderless import LeaderlessCluster
from containernet_env.stores.memory import go_environment
from containernet_env.stores.protocol import (
    USER_PROGRAM,
    ImageParts,
    LeastLatencies,
    LoadTerms,
    MemberPlace,
    MemberStart,
    StoreKind,
    Timing,
)

_NAME = "http"
_NO_ELECTIONS = "is known by its URLs alone, and they tell of neither heartbeats nor elections"
_ONE_CONSISTENCY = "knows no consistency but that of its URLs"
_ONE_KEY = "is known by the URLs of single keys alone"


@dataclass(frozen=True, slots=True)
class KeyValue:
    """See ``stores.protocol.Store``. Its members are started from a program of the user's, or by somebody else."""

    choice: StoreChoice
    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "the service"
    program: ClassVar[str] = USER_PROGRAM
    last_words = staticmethod(last_words)
    largest_value_bytes: ClassVar[int | None] = None
    keys_are_paths: ClassVar[bool] = False
    consistency: ClassVar[Mapping[str, str]] = {"l": "by URL"}
    lacks: ClassVar[Lacking] = {
        "heartbeat_interval": _NO_ELECTIONS,
        "election_timeout": _NO_ELECTIONS,
        "leader": "has no leader that is known",
        "tls": "speaks plain HTTP in hosts of ours",
        "profile": "is not profiled",
        "txn": "is known by its URLs alone, and they tell of no transactions",
        "serializable": _ONE_CONSISTENCY,
        "default": _ONE_CONSISTENCY,
        "span": _ONE_KEY,
        "limit": _ONE_KEY,
        "keysOnly": _ONE_KEY,
        "countOnly": _ONE_KEY,
    }

    @property
    def service(self) -> HttpService:
        """How it is spoken to."""
        assert self.choice.service is not None
        return self.choice.service

    @property
    def version(self) -> str:
        """See ``Store``: a hash of the program; nothing where somebody else runs it."""
        return "" if self.choice.binary is None else self.choice.binary.short

    @property
    def client_port(self) -> int:
        """See ``Store``."""
        return self.service.port

    @property
    def load_terms(self) -> LoadTerms:
        """See ``Store``."""
        return load_terms(self.service)

    @property
    def image(self) -> ImageParts:
        """See ``Store``."""
        return ImageParts(_NAME, binary=self.choice.binary)

    def timing(self, config: Config, largest_member_rtt: RttExpectation | None) -> Timing:
        """See ``Store``: what there is of it, the service knows."""
        return UnknownTiming()

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        """See ``Store``."""
        environment = go_environment(node.memory_bytes)
        return MemberStart(arguments(node, config, self.service), (DATA_DIR,), environment=environment)

    def least_latencies(self, deployment: Deployment) -> LeastLatencies:
        """See ``Store``."""
        return CriticalPath(deployment, self.service).shares

    def trust(self, config: Config) -> None:
        """See ``Store``."""
        return

    def cluster(self, places: Sequence[MemberPlace]) -> LeaderlessCluster[Member]:
        """See ``Store``."""
        members = [Member(place, self.service, self.client_port, version=self.version) for place in places]
        return LeaderlessCluster(members, quorum=1)

    def place(self, prefix: str) -> tuple[LoadTerms, str]:
        """See ``stores.external.ExternalStore``."""
        return self.load_terms, prefix

    def external(
        self, config: Config, connections: Sequence[ExternalConnection], login: Login | None, own: OwnKeys
    ) -> ExternalService:
        """See ``stores.external.ExternalStore``."""
        assert config.external is not None
        return ExternalService(config.external, self.service, connections, own)


def _no_version(value: object) -> str:
    raise ValueError("cannot be chosen")


KIND = StoreKind(_NAME, KeyValue, Flag("none: the program is yours", _no_version), {}, needs_binary=True)
"""What a topology may choose of a service is in ``config.service_schema``."""
