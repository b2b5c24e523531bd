"""Consul and the replicas as plain processes on loopback, their data in one folder; ended by process id."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType

from bench.load.cluster import free_ports
from containernet_env.base.errors import MissingRequirementError, RunError

_POLL_S = 0.05
_ASK_TIMEOUT_S = 5.0
_START_TIMEOUT_S = 40.0
_END_TIMEOUT_S = 10.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CONSUL_HCL = "disable_update_check = true, performance { raft_multiplier = 1 }"

CONSUL, REPLICAS = "consul", "replicas"


class Service:
    """``size`` members of ``kind`` by ``program`` below ``folder``, up within the ``with`` block.

    Consul's agents have their default ports on addresses of their own, 127.0.61.1 and following, as in a network.
    """

    def __init__(self, kind: str, program: Path, size: int, folder: Path) -> None:
        self.kind = kind
        self.program = program
        self.folder = folder
        if kind == CONSUL:
            self.endpoints = [f"127.0.61.{i + 1}:8500" for i in range(size)]
        else:
            self.endpoints = [f"127.0.0.1:{port}" for port in free_ports(size)]
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Service:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _command(self, i: int) -> list[str]:
        data, size = self.folder / f"m{i}", len(self.endpoints)
        if self.kind == REPLICAS:
            own = [f"--listen={self.endpoints[i]}", f"--id={i}", f"--peers={','.join(self.endpoints)}"]
            return [*own, f"--data={data}"]
        hosts = [endpoint.partition(":")[0] for endpoint in self.endpoints]
        own = ["agent", "-server", f"-bootstrap-expect={size}", f"-node=m{i}", f"-bind={hosts[i]}"]
        own += [f"-client={hosts[i]}", f"-data-dir={data}", "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1"]
        own += ["-serf-wan-port=-1", "-log-level=warn", "-disable-host-node-id", "-hcl", _CONSUL_HCL]
        return [*own, "-retry-interval=1s", *(f"-retry-join={host}" for host in hosts)]

    def _start(self) -> None:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise MissingRequirementError("setpriv is not installed", "Install the package util-linux.")
        for i in range(len(self.endpoints)):
            argv = [setpriv, "--pdeathsig", "KILL", str(self.program), *self._command(i)]
            with self._log(i).open("wb") as log:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            self._processes.append(process)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._ready():
            self.check()
            if time.monotonic() > deadline:
                raise RunError(
                    f"{len(self.endpoints)} members of {self.kind} were not ready in {_START_TIMEOUT_S:.0f} s"
                )
            time.sleep(_POLL_S)

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

    def check(self) -> None:
        """Raise RunError, with its last words, if a member has ended."""
        for i, process in enumerate(self._processes):
            if process.poll() is not None:
                words = self._log(i).read_text(encoding="utf-8", errors="replace")[-500:]
                raise RunError(f"member m{i} of {self.kind} ended with status {process.returncode}: {words}")

    def cpu_s(self) -> float:
        """CPU time that all members have used so far, seconds, in steps of the kernel's tick (10 ms)."""
        ticks = 0
        for process in self._processes:
            fields = Path("/proc", str(process.pid), "stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS_PER_S

    def _log(self, i: int) -> Path:
        return self.folder / f"m{i}.log"

    def _end(self) -> None:
        for process in self._processes:
            process.kill()  # nothing of their data is needed any more
        for process in self._processes:
            process.wait(_END_TIMEOUT_S)
        self._processes.clear()
