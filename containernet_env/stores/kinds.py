"""The supported stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from containernet_env.model.config import Config, StoreChoice
from containernet_env.stores.consul.store import KIND as CONSUL
from containernet_env.stores.consul.store import Consul
from containernet_env.stores.etcd.store import KIND as ETCD
from containernet_env.stores.etcd.store import Etcd
from containernet_env.stores.external import ExternalStore
from containernet_env.stores.keyvalue.store import KIND as HTTP
from containernet_env.stores.keyvalue.store import KeyValue
from containernet_env.stores.protocol import Store, StoreKind
from containernet_env.stores.proxied.store import KINDS as PROXIED
from containernet_env.stores.replicas.store import KIND as REPLICAS
from containernet_env.stores.zookeeper.store import KIND as ZOOKEEPER
from containernet_env.stores.zookeeper.store import ZooKeeper

KINDS: Mapping[str, StoreKind] = {kind.name: kind for kind in (ETCD, ZOOKEEPER, CONSUL, REPLICAS, *PROXIED, HTTP)}
"""By the name that topologies have for them; the first one is the default."""

DEFAULT: Store = next(iter(KINDS.values())).make(StoreChoice())
"""The store of a topology that names none; each set-up makes the machine ready for it."""

EXTERNAL: Mapping[str, Callable[[StoreChoice], ExternalStore]] = {
    "etcd": Etcd,
    "zookeeper": ZooKeeper,
    "consul": Consul,
    "http": KeyValue,
}
"""Those that can be measured where somebody else runs them, by their kind in a file with endpoints."""


def external_store_of(config: Config) -> ExternalStore:
    """The store of a config that names endpoints."""
    return EXTERNAL[config.store.kind](config.store)


def store_of(config: Config) -> Store:
    """The store that a config configures."""
    return KINDS[config.store.kind].make(config.store) if config.external is None else external_store_of(config)
