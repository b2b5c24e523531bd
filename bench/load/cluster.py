"""An etcd cluster of plain processes on loopback, its data in one folder; ended by process id."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.load.plan import READ_KEY, VALUE_SIZE
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.stores.etcd.certificates import LOOPBACK, Authority, client_context

_POLL_S = 0.05
_ASK_TIMEOUT_S = 10.0
_START_TIMEOUT_S = 40.0
_END_TIMEOUT_S = 10.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Cluster:
    """``size`` members of ``program`` (etcd) below ``folder``, up within the ``with`` block.

    Every question has a deadline and raises RunError; the members die with this process, however it ends. With ``tls``
    members and clients have certificates; ``client_flags`` are the options by which both tools find theirs.
    """

    def __init__(self, program: Path, size: int, folder: Path, tls: bool = False) -> None:
        self.program = program
        self.folder = folder
        self.client_flags: tuple[str, ...] = ()
        self._member_flags: tuple[str, ...] = ()
        self._context: ssl.SSLContext | None = None
        if tls:
            self._make_certificates()
        ports = free_ports(2 * size)
        self.ports, self._peer_ports = ports[:size], ports[size:]
        self.endpoints = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.version = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def _make_certificates(self) -> None:
        authority = Authority()
        names: dict[str, Path] = {}
        member, client = authority.issue("member", [LOOPBACK]), authority.issue("client")
        contents = {"ca": authority.certificate, "cert": member.certificate, "key": member.key}
        for name, content in {**contents, "own": client.certificate, "own-key": client.key}.items():
            names[name] = self.folder / f"{name}.pem"
            names[name].touch(mode=0o600)
            names[name].write_bytes(content)
        own = {"cert-file": names["cert"], "key-file": names["key"], "trusted-ca-file": names["ca"]}
        self._member_flags = (*(f"--{flag}={path}" for flag, path in own.items()), "--client-cert-auth")
        theirs = {"cacert": names["ca"], "cert": names["own"], "key": names["own-key"]}
        self.client_flags = tuple(f"--{flag}={path}" for flag, path in theirs.items())
        self._context = client_context(authority, client)

    def __enter__(self) -> Cluster:
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

    def _start(self) -> None:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise MissingRequirementError("setpriv is not installed", "Install the package util-linux.")
        scheme = "http" if self._context is None else "https"
        peers = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(self._peer_ports))
        for i, (port, peer_port) in enumerate(zip(self.ports, self._peer_ports, strict=True)):
            argv = [setpriv, "--pdeathsig", "KILL", str(self.program), f"--name=m{i}"]
            argv += [f"--data-dir={self.folder / f'm{i}'}", f"--initial-cluster={peers}"]
            argv += [f"--{verb}-client-urls={scheme}://127.0.0.1:{port}" for verb in ("listen", "advertise")]
            argv += [f"--{verb}-peer-urls=http://127.0.0.1:{peer_port}" for verb in ("listen", "initial-advertise")]
            argv += ["--log-level=warn", *self._member_flags]
            with self._log(i).open("wb") as log:
                # A session of its own: the terminal's Ctrl-C is for the driver, which then ends the members.
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            self._processes.append(process)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._ready():
            self.check()
            if time.monotonic() > deadline:
                raise RunError(f"{len(self.ports)} etcd members had no common leader within {_START_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)
        self.ask("/v3/kv/put", {"key": text64(READ_KEY), "value": text64("v" * VALUE_SIZE)})

    def _ready(self) -> bool:
        try:
            answers = [self.ask("/v3/maintenance/status", {}, port) for port in self.ports]
        except RunError:
            # Not listening yet; the caller has the deadline.
            return False
        self.version = str(answers[0].get("version", ""))
        leaders = {str(answer.get("leader", "0")) for answer in answers}
        return len(leaders) == 1 and leaders != {"0"}

    def check(self) -> None:
        """Raise RunError, with its last words, if a member has ended."""
        for i, process in enumerate(self._processes):
            if process.poll() is not None:
                words = self._log(i).read_text(encoding="utf-8", errors="replace")[-500:]
                raise RunError(f"etcd member m{i} ended with status {process.returncode}: {words}")

    def ask(self, path: str, body: dict[str, Any], port: int | None = None) -> dict[str, Any]:
        """One call of a member's JSON gateway; of the first member where no port is named."""
        address, context = ("127.0.0.1", port or self.ports[0]), self._context
        connection: http.client.HTTPConnection
        if context is None:
            connection = http.client.HTTPConnection(*address, timeout=_ASK_TIMEOUT_S)
        else:
            connection = http.client.HTTPSConnection(*address, timeout=_ASK_TIMEOUT_S, context=context)
        try:
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
            fields = json.loads(text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RunError(f"etcd did not answer {path}: {error}") from error
        finally:
            connection.close()
        if answer.status != 200 or not isinstance(fields, dict):
            raise RunError(f"etcd answered {path} with {answer.status}: {text[:200]!r}")
        return fields

    def revision_and_keys(self) -> tuple[int, int]:
        """The store's revision and how many keys it holds, as a linearizable read sees them."""
        everything = base64.b64encode(b"\0").decode()
        answer = self.ask("/v3/kv/range", {"key": everything, "range_end": everything, "count_only": True})
        return int(answer["header"]["revision"]), int(answer.get("count", "0"))

    def outermost_keys(self) -> tuple[bytes, bytes]:
        """The first and the last key, in the order of bytes, beside the one that is read; RunError if there is none."""
        return self._first("ASCEND"), self._first("DESCEND")

    def _first(self, order: str) -> bytes:
        everything = base64.b64encode(b"\0").decode()
        asked = {"key": everything, "range_end": everything, "keys_only": True, "limit": 2, "sort_order": order}
        answer = self.ask("/v3/kv/range", {**asked, "sort_target": "KEY"})
        keys = [base64.b64decode(item["key"]) for item in answer.get("kvs", [])]
        for key in keys:
            if key != READ_KEY.encode():
                return key
        raise RunError("the store holds no key but the one that is read")

    def empty(self) -> None:
        """Delete every key but the one that is read."""
        key, after = text64(READ_KEY), text64(READ_KEY + "\0")
        everything = base64.b64encode(b"\0").decode()
        self.ask("/v3/kv/deleterange", {"key": everything, "range_end": key})
        self.ask("/v3/kv/deleterange", {"key": after, "range_end": everything})

    def cpu_s(self) -> float:
        """Processor time that all members have used so far, seconds, in steps of the kernel's tick (10 ms)."""
        ticks = 0
        for process in self._processes:
            try:
                fields = Path("/proc", str(process.pid), "stat").read_text(encoding="ascii").rpartition(")")[2].split()
            except OSError as error:
                raise RunError(f"an etcd member has ended: {error}") from error
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS_PER_S

    def _log(self, i: int) -> Path:
        return self.folder / f"m{i}.log"

    def _end(self) -> None:
        try:
            for process in self._processes:
                process.terminate()
            deadline = time.monotonic() + _END_TIMEOUT_S
            for process in self._processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise RunError(f"an etcd member did not end within {_END_TIMEOUT_S:.0f} s and was killed") from error
        finally:
            # Also where a signal strikes while they end: the folder is removed next.
            for process in self._processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            self._processes.clear()


def text64(text: str) -> str:
    """``text`` as the gateway wants keys and values."""
    return base64.b64encode(text.encode()).decode()


def free_ports(count: int) -> list[int]:
    """So many different TCP ports of loopback on which nothing listens now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
