"""The supported stores."""

from __future__ import annotations

from collections.abc import Mapping

from containernet_env.model.config import Config
from containernet_env.stores.consul import Consul
from containernet_env.stores.etcd import Etcd
from containernet_env.stores.http_service import Http
from containernet_env.stores.proxied import Cetcd, Zetcd
from containernet_env.stores.replicas import Replicas
from containernet_env.stores.store import Store
from containernet_env.stores.zookeeper import ZooKeeper

KINDS: Mapping[str, type[Store]] = {
    store.name: store for store in (Etcd, ZooKeeper, Consul, Replicas, Zetcd, Cetcd, Http)
}
"""By the name that topologies have for them; the first one is the default."""

DEFAULT: Store = next(iter(KINDS.values())).default()
"""The store of a topology that names none; each set-up makes the machine ready for it."""


def store_of(config: Config) -> Store:
    return KINDS[config.store.kind](config.store)
