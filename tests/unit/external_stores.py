"""Files of endpoints of ZooKeeper and Consul, and the clusters that they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from containernet_env.config import load_config
from containernet_env.model.config import Config
from containernet_env.model.keys import Keys
from containernet_env.runs.external_access import cluster_of
from containernet_env.stores.external import ExternalCluster, OwnKeys
from tests.unit.consul_server import ConsulCluster
from tests.unit.zookeeper_server import ZooKeeperCluster

PREFIX = "containernet-env/abc/"
KEYS = Keys(4, 5000, PREFIX)
OWN = OwnKeys(PREFIX, (KEYS,))


def config_of(folder: Path, store: str, endpoints: list[str], **more: Any) -> Config:
    path = folder / "endpoints.json"
    path.write_text(json.dumps({"store": store, "endpoints": endpoints, **more}))
    return load_config(path)


def of_consul(folder: Path, cluster: ConsulCluster, **more: Any) -> Config:
    return config_of(folder, "consul", [server.url for server in cluster.servers], **more)


def of_zookeeper(folder: Path, cluster: ZooKeeperCluster, **more: Any) -> Config:
    return config_of(folder, "zookeeper", [server.address for server in cluster.servers], **more)


def opened(config: Config, own: OwnKeys = OWN) -> ExternalCluster:
    return cluster_of(config, own)
