"""etcd behind a proxy as a store: see ``stores.protocol.Store``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from containernet_env.model.config import Config, Node, StoreChoice
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.critical_path import Deployment
from containernet_env.stores.etcd.store import KIND as ETCD
from containernet_env.stores.etcd.store import Etcd
from containernet_env.stores.etcd.timing import EtcdTiming
from containernet_env.stores.features import Lacking
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
from containernet_env.stores.proxied.cetcd import CETCD
from containernet_env.stores.proxied.cluster import ProxiedCluster, version_of
from containernet_env.stores.proxied.critical_path import CriticalPath
from containernet_env.stores.proxied.last_words import last_words
from containernet_env.stores.proxied.proxy import Proxy
from containernet_env.stores.proxied.zetcd import ZETCD


@dataclass(frozen=True, slots=True)
class ProxiedEtcd:
    """See ``stores.protocol.Store``. What is not the proxy's is etcd's."""

    proxy: Proxy
    choice: StoreChoice
    program: ClassVar[str] = "start-etcd-and-proxy"
    last_words = staticmethod(last_words)

    @property
    def _etcd(self) -> Etcd:
        return Etcd(replace(self.choice, kind="etcd", binary=None))

    @property
    def name(self) -> str:
        """See ``Store``."""
        return self.proxy.name

    @property
    def title(self) -> str:
        """See ``Store``."""
        return self.proxy.name

    @property
    def version(self) -> str:
        """See ``Store``."""
        return version_of(self._etcd.version, self.choice.binary)

    @property
    def image(self) -> ImageParts:
        """See ``Store``."""
        module, binary = self._etcd.image.module, self.choice.binary
        return ImageParts(self.name, (self.program,), module, folder="proxy_image", binary=binary)

    @property
    def lacks(self) -> Lacking:
        """See ``Store``."""
        return self.proxy.lacks

    @property
    def load_terms(self) -> LoadTerms:
        """See ``Store``."""
        return self.proxy.load_terms

    @property
    def largest_value_bytes(self) -> int | None:
        """See ``Store``."""
        return self.proxy.largest_value_bytes

    @property
    def keys_are_paths(self) -> bool:
        """See ``Store``."""
        return self.proxy.keys_are_paths

    @property
    def consistency(self) -> Mapping[str, str]:
        """See ``Store``."""
        return self.proxy.consistency

    @property
    def client_port(self) -> int:
        """See ``Store``."""
        return self.proxy.port

    def timing(self, config: Config, largest_member_rtt: RttExpectation | None) -> EtcdTiming:
        """See ``Store``."""
        return self._etcd.timing(config, largest_member_rtt)

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        """See ``Store``: the arguments of the proxy, which are two, then those of etcd. Each has half of the memory."""
        half = replace(node, memory_bytes=node.memory_bytes and node.memory_bytes // 2)
        start = self._etcd.start(half, config, timing, run_id, profiled=profiled)
        return replace(start, command=(*self.proxy.arguments, *start.command))

    def least_latencies(self, deployment: Deployment) -> LeastLatencies:
        """See ``Store``."""
        return CriticalPath(deployment, self.proxy).shares

    def trust(self, config: Config) -> Trust | None:
        """See ``Store``."""
        return None

    def cluster(self, places: Sequence[MemberPlace]) -> ProxiedCluster:
        """See ``Store``."""
        return ProxiedCluster(places, self.proxy, self.choice.binary)


def _kind(proxy: Proxy) -> StoreKind:
    make = partial(ProxiedEtcd, proxy)
    return StoreKind(proxy.name, make, ETCD.version, ETCD.flags, ETCD.clash, needs_binary=True, settings=ETCD.name)


KINDS = (_kind(ZETCD), _kind(CETCD))
