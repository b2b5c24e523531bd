"""As much of Consul's HTTP API as a run on a cluster of others asks, on 127.0.0.1, in threads of this process."""

from __future__ import annotations

import http.server
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from tests.unit.serving import served


class ConsulCluster:
    """What its servers share: ``values`` by key, in ``leader``'s hands (its number from 0; ``None``: there is none).

    ``terms``: what a server (by its number) takes for the term, where it is not 7. ``denied``: paths that begin with it
    are answered 403, as all requests are without ``token``; ``answers``: a status and a body by "METHOD path" that take
    the place of what it would do.
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.leader: int | None = 0
        self.terms: dict[int, int] = {}
        self.denied: str | None = None
        self.token: str | None = None
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.requests: list[str] = []
        self.servers: list[ConsulServer] = []

    def address(self, number: int) -> str:
        """How servers call each other."""
        return f"10.9.0.{number + 1}:8300"


class ConsulServer(http.server.ThreadingHTTPServer):
    """One of them."""

    daemon_threads = True

    def __init__(self, cluster: ConsulCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ConsulServer

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        cluster, request = self.server.cluster, f"{self.command} {self.path}"
        cluster.requests.append(request)
        if request in cluster.answers:
            status, answer = cluster.answers[request]
        elif (cluster.denied is not None and self.path.startswith(cluster.denied)) or (
            cluster.token is not None and self.headers.get("X-Consul-Token") != cluster.token
        ):
            status, answer = 403, b"Permission denied: anonymous token lacks permission"
        else:
            status, value = self._answer(cluster, body)
            answer = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _answer(self, cluster: ConsulCluster, body: bytes) -> tuple[int, Any]:
        own = cluster.address(self.server.number)
        led = "" if cluster.leader is None else cluster.address(cluster.leader)
        path, _, query = self.path.partition("?")
        if path == "/v1/agent/self":
            host, _, port = own.partition(":")
            return 200, {
                "Config": {"NodeName": f"node{self.server.number}", "NodeID": own, "Version": "1.16.1"},
                "Member": {"Addr": host, "Tags": {"port": port}},
                "Stats": {
                    "consul": {"leader_addr": led},
                    "raft": {"term": str(cluster.terms.get(self.server.number, 7))},
                },
            }
        if path == "/v1/status/peers":
            return 200, [cluster.address(server.number) for server in cluster.servers]
        if cluster.leader is None:
            return 500, b"No cluster leader"
        if path == "/v1/txn":
            for operation in json.loads(body):
                assert operation["KV"]["Verb"] == "delete"
                cluster.values.pop(operation["KV"]["Key"], None)
            return 200, {"Results": [], "Errors": None}
        key = unquote(path.removeprefix("/v1/kv/"))
        if self.command == "PUT":
            cluster.values[key] = body
            return 200, True
        if self.command == "DELETE":
            cluster.values.pop(key, None)
            return 200, True
        if "keys" in query.split("&"):
            found = sorted(name for name in cluster.values if name.startswith(key))
            return (200, found) if found else (404, b"")
        found = sorted(name for name in cluster.values if name == key or (name.startswith(key) and "recurse" in query))
        entries = [{"Key": name, "ModifyIndex": 1, "Value": b64encode(cluster.values[name]).decode()} for name in found]
        return (200, entries) if entries else (404, b"")

    do_PUT = do_GET = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Silent."""


@contextmanager
def consul(count: int) -> Iterator[ConsulCluster]:
    """A cluster of so many servers."""
    cluster = ConsulCluster()
    cluster.servers = [ConsulServer(cluster, number) for number in range(count)]
    with served(cluster.servers):
        yield cluster
