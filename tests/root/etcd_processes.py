"""Clusters of etcd processes on loopback, as somebody else may run them, and what of them a test asks."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from bench.load.cluster import Cluster, text64
from containernet_env.stores.etcd.certificates import Authority

USER, PASSWORD = "bench", "a pass word"
PREFIX = "containernet-env/"


class Secured(Cluster):
    """With TLS, whose members ask no client for a certificate, and with users: ``USER`` may use ``PREFIX`` alone."""

    def _make_certificates(self) -> None:
        super()._make_certificates()
        # With client certificates that have a CommonName, etcd would refuse its gateway as soon as there are users.
        self._member_flags = self._member_flags[:2]

    def add_users(self) -> None:
        """From here on everybody has to log in."""
        end = PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1)
        grant = {"name": USER, "perm": {"permType": "READWRITE", "key": text64(PREFIX), "range_end": text64(end)}}
        for path, body in (
            ("user/add", {"name": "root", "password": "root"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("role/add", {"name": USER}),
            ("role/grant", grant),
            ("user/add", {"name": USER, "password": PASSWORD}),
            ("user/grant", {"user": USER, "role": USER}),
            ("enable", {}),
        ):
            self.ask(f"/v3/auth/{path}", body)


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
