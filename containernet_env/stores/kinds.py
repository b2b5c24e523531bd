"""The supported stores."""

from __future__ import annotations

from collections.abc import Mapping

from containernet_env.model.config import Config
from containernet_env.stores.etcd.store import ETCD
from containernet_env.stores.external import ExternalStore
from containernet_env.stores.protocol import Store


def store_of(config: Config) -> Store:
    """The store that a config configures."""
    return ETCD


EXTERNAL: Mapping[str, ExternalStore] = {"etcd": ETCD}
"""Those that can be measured where somebody else runs them, by the word for them in a file with endpoints."""
