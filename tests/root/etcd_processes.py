"""Clusters of etcd processes on loopback, as somebody else may run them, and what of them a test asks."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from bench.load.cluster import Cluster
from bench.load.secured import PASSWORD, PREFIX, USER, Secured
from containernet_env.stores.etcd.certificates import Authority


def endpoints_file(folder: Path, cluster: Cluster, **more: Any) -> Path:
    """A file with the endpoints of a cluster; ``more`` are further keys, or others in the place of these."""
    scheme = "https" if isinstance(cluster, Secured) else "http"
    values: dict[str, Any] = {"endpoints": [f"{scheme}://127.0.0.1:{port}" for port in cluster.ports]}
    if isinstance(cluster, Secured):
        (folder / "password").write_text(f"{PASSWORD}\n")
        values |= {"tls": {"ca": str(cluster.folder / "ca.pem")}, "user": USER, "password_file": "password"}
    path = folder / "endpoints.json"
    path.write_text(json.dumps({name: value for name, value in {**values, **more}.items() if value is not None}))
    return path


def other_authority(folder: Path) -> Path:
    """The certificate of a CA that has signed nothing."""
    path = folder / "other-ca.pem"
    path.write_bytes(Authority().certificate)
    return path


def keys_below(cluster: Cluster, prefix: str = PREFIX) -> list[str]:
    """The keys that start with a prefix; of a cluster without users."""
    first, end = prefix.encode(), prefix[:-1].encode() + bytes([ord(prefix[-1]) + 1])
    body = {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(end).decode(), "keys_only": True}
    return [base64.b64decode(item["key"]).decode() for item in cluster.ask("/v3/kv/range", body).get("kvs", [])]
