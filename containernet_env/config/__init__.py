"""Configuration files: strict JSON with comments, checked as a whole, turned into plain values."""

from __future__ import annotations

from containernet_env.config.topologies import load_config
from containernet_env.model.config import CLIENT_NAME, Config, DataStore, EtcdSettings, Node

__all__ = ["CLIENT_NAME", "Config", "DataStore", "EtcdSettings", "Node", "load_config"]
