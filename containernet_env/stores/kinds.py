"""The supported stores."""

from __future__ import annotations

from containernet_env.model.config import Config
from containernet_env.stores.etcd.store import ETCD
from containernet_env.stores.protocol import Store


def store_of(config: Config) -> Store:
    """The store that a config configures."""
    return ETCD
