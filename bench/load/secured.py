"""An etcd cluster of plain processes on loopback with TLS and users."""

from __future__ import annotations

from bench.load.cluster import Cluster, text64

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
