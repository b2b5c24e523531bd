"""Configuration files: strict JSON with comments, checked as a whole, turned into plain values."""

from __future__ import annotations

from containernet_env.config.loader import load_config
from containernet_env.config.model import CLIENT_NAME, Config, DataStore, EtcdSettings, Node

__all__ = ["CLIENT_NAME", "Config", "DataStore", "EtcdSettings", "Node", "load_config"]
