"""A service by its URLs, as a store: see ``stores.protocol.Store``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from containernet_env.base.endings import last_words
from containernet_env.base.errors import RunError
from containernet_env.model.config import Config, HttpService, Node, StoreChoice
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.critical_path import Deployment
from containernet_env.stores.external import ExternalConnection, Login, OwnKeys, UnknownTiming
from containernet_env.stores.features import Lacking
from containernet_env.stores.keyvalue.cluster import Member
from containernet_env.stores.keyvalue.critical_path import CriticalPath
from containernet_env.stores.keyvalue.external import ExternalService
from containernet_env.stores.keyvalue.service import load_terms
from containernet_env.stores.leaderless import LeaderlessCluster
from containernet_env.stores.protocol import LeastLatencies, LoadTerms, MemberPlace, Timing

_NAME = "http"
_NOT_STARTED = "the members of this service are started by somebody else"
_ONE_KEY = "is known by the URLs of single keys alone"


@dataclass(frozen=True, slots=True)
class KeyValue:
    """See ``stores.protocol.Store``. It is measured where somebody else runs it: no member is started here."""

    choice: StoreChoice
    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "the service"
    version: ClassVar[str] = ""
    entry_point: ClassVar[str] = ""
    client_port: ClassVar[int] = 0
    last_words = staticmethod(last_words)
    largest_value_bytes: ClassVar[int | None] = None
    consistency: ClassVar[Mapping[str, str]] = {"l": "by URL"}
    lacks: ClassVar[Lacking] = {
        "profile": "is not profiled",
        "txn": "is known by its URLs alone, and they tell of no transactions",
        "serializable": "knows no consistency but that of its URLs",
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
    def load_terms(self) -> LoadTerms:
        """See ``Store``."""
        return load_terms(self.service)

    @property
    def image(self) -> NoReturn:
        """See ``Store``: there is none, since no member is started here."""
        raise RunError(_NOT_STARTED)

    def timing(self, config: Config, largest_member_rtt: RttExpectation | None) -> Timing:
        """See ``Store``: what of it there is, the service knows."""
        return UnknownTiming()

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> NoReturn:
        """See ``Store``: no member is started here."""
        raise RunError(_NOT_STARTED)

    def least_latencies(self, deployment: Deployment) -> LeastLatencies:
        """See ``Store``."""
        return CriticalPath(deployment, self.service).shares

    def trust(self, config: Config) -> None:
        """See ``Store``."""
        return

    def cluster(self, places: Sequence[MemberPlace]) -> LeaderlessCluster[Member]:
        """See ``Store``."""
        return LeaderlessCluster([Member(place, self.service, self.client_port) for place in places], quorum=1)

    def external(
        self, config: Config, connections: Sequence[ExternalConnection], login: Login | None, own: OwnKeys
    ) -> ExternalService:
        """See ``stores.external.ExternalStore``."""
        assert config.external is not None
        return ExternalService(config.external, self.service, connections, own)
