"""etcd as a store: see ``stores.protocol.Store``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from containernet_env.base import assets
from containernet_env.model.config import DEFAULT_STORE, Config, Node, StoreChoice
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.critical_path import Deployment
from containernet_env.stores.etcd.cluster import EtcdCluster, Member
from containernet_env.stores.etcd.critical_path import CriticalPath
from containernet_env.stores.etcd.external import ExternalEtcd
from containernet_env.stores.etcd.flags import CLIENT_PORT, DATA_DIR, TLS_DIR, etcd_flags, etcdctl_environment
from containernet_env.stores.etcd.last_words import last_words
from containernet_env.stores.etcd.timing import EtcdTiming, etcd_timing
from containernet_env.stores.etcd.tuning import FLAGS, VERSION, arguments, clash
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


@dataclass(frozen=True, slots=True)
class Etcd:
    """See ``stores.protocol.Store``."""

    choice: StoreChoice = DEFAULT_STORE
    name: ClassVar[str] = "etcd"
    title: ClassVar[str] = "etcd"
    program: ClassVar[str] = "etcd"
    client_port: ClassVar[int] = CLIENT_PORT
    last_words = staticmethod(last_words)
    lacks: ClassVar[Lacking] = {"default": 'has no third consistency beside "l" and "s"'}
    load_terms: ClassVar[LoadTerms] = LoadTerms()
    largest_value_bytes: ClassVar[int | None] = None
    keys_are_paths: ClassVar[bool] = False
    consistency: ClassVar[Mapping[str, str]] = {}

    @property
    def version(self) -> str:
        """See ``Store``."""
        return self.choice.version or assets.etcd_version()

    @property
    def image(self) -> ImageParts:
        """See ``Store``."""
        # The pinned one, however it is named.
        other = None if self.version == assets.etcd_version() else self.version
        return ImageParts("etcd", module=assets.etcd_module(version=other))

    def timing(self, config: Config, largest_member_rtt: RttExpectation | None) -> EtcdTiming:
        """See ``Store``."""
        return etcd_timing(config, largest_member_rtt)

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        """See ``Store``."""
        assert isinstance(timing, EtcdTiming)
        flags = (*etcd_flags(node, config, timing, run_id), *arguments(self.choice.flags))
        # It then also samples contended mutexes, all the time: such a member is another one.
        command = (*flags, "--enable-pprof") if profiled else flags
        secrets = TLS_DIR if config.etcd.tls else None
        environment = {**go_environment(node.memory_bytes), **etcdctl_environment(config)}
        return MemberStart(command, (DATA_DIR,), secrets, environment)

    def least_latencies(self, deployment: Deployment) -> LeastLatencies:
        """See ``Store``."""
        return CriticalPath(deployment).shares

    def trust(self, config: Config) -> Trust | None:
        """See ``Store``."""
        if not config.etcd.tls:
            return None
        # Only here: every command would wait for the import, and few runs need it.
        from containernet_env.stores.etcd.certificates import trust_of

        return trust_of(config)

    def cluster(self, places: Sequence[MemberPlace]) -> EtcdCluster:
        """See ``Store``."""
        return EtcdCluster([Member(place) for place in places])

    def place(self, prefix: str) -> tuple[LoadTerms, str]:
        """See ``stores.external.ExternalStore``."""
        return self.load_terms, prefix

    def external(
        self, config: Config, connections: Sequence[ExternalConnection], login: Login | None, own: OwnKeys
    ) -> ExternalEtcd:
        """See ``stores.external.ExternalStore``."""
        assert config.external is not None
        return ExternalEtcd(config.external, connections, login, own.prefix)


ETCD = Etcd()
KIND = StoreKind("etcd", Etcd, VERSION, FLAGS, clash)
