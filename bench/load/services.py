"""Consul and the replicas as plain processes on loopback, their data in one folder; ended by process id."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.load.members import Members, free_ports
from containernet_env.base.errors import RunError

_ASK_TIMEOUT_S = 5.0
_CONSUL_HCL = "disable_update_check = true, performance { raft_multiplier = 1 }"

CONSUL, REPLICAS = "consul", "replicas"


class Service(Members):
    """``size`` members of ``kind`` by ``program`` below ``folder``, up within the ``with`` block.

    Consul's agents have their default ports on addresses of their own, 127.0.61.1 and following, as in a network.
    """

    def __init__(self, kind: str, program: Path, size: int, folder: Path) -> None:
        super().__init__(kind, folder)
        self.kind = kind
        self.program = program
        if kind == CONSUL:
            self.endpoints = [f"127.0.61.{i + 1}:8500" for i in range(size)]
        else:
            self.endpoints = [f"127.0.0.1:{port}" for port in free_ports(size)]

    def _commands(self) -> Iterator[Sequence[str | Path]]:
        for i in range(len(self.endpoints)):
            yield [self.program, *self._arguments(i)]

    def _arguments(self, i: int) -> list[str]:
        data, size = self.folder / f"m{i}", len(self.endpoints)
        if self.kind == REPLICAS:
            own = [f"--listen={self.endpoints[i]}", f"--id={i}", f"--peers={','.join(self.endpoints)}"]
            return [*own, f"--data={data}"]
        hosts = [endpoint.partition(":")[0] for endpoint in self.endpoints]
        own = ["agent", "-server", f"-bootstrap-expect={size}", f"-node=m{i}", f"-bind={hosts[i]}"]
        own += [f"-client={hosts[i]}", f"-data-dir={data}", "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1"]
        own += ["-serf-wan-port=-1", "-log-level=warn", "-disable-host-node-id", "-hcl", _CONSUL_HCL]
        return [*own, "-retry-interval=1s", *(f"-retry-join={host}" for host in hosts)]

    def _ready(self) -> bool:
        """Whether each member takes a write."""
        try:
            return all(
                self.ask("PUT", i, self.path("put", f"ready{i}"), b"v") < 300 for i in range(len(self.endpoints))
            )
        except RunError:
            # Not listening yet; the caller has the deadline.
            return False

    def path(self, operation: str, key: str) -> str:
        """The target of a put, get-l (linearizable) or get-s (of what the member has) of ``key``."""
        majority = len(self.endpoints) // 2 + 1
        if self.kind == REPLICAS:
            return f"/v0/entity?id={key}&ack={majority}&from={1 if operation == 'get-s' else majority}"
        return f"/v1/kv/{key}" + {"put": "", "get-l": "?raw&consistent", "get-s": "?raw&stale"}[operation]

    def ask(self, method: str, member: int, path: str, body: bytes | None = None) -> int:
        """The status of one request to a member. RunError where there is no answer."""
        connection = http.client.HTTPConnection(self.endpoints[member], timeout=_ASK_TIMEOUT_S)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException) as error:
            raise RunError(f"{self.kind} did not answer {path}: {error}") from error
        finally:
            connection.close()
