"""An etcd cluster of plain processes on loopback, its data in one folder; ended by process id."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.load.members import Members, free_ports
from bench.load.plan import READ_KEY, VALUE_SIZE
from containernet_env.base.errors import RunError
from containernet_env.stores.certificates import LOOPBACK, Authority, client_context

_ASK_TIMEOUT_S = 10.0


class Cluster(Members):
    """``size`` members of ``program`` (etcd) below ``folder``, up within the ``with`` block.

    Every question has a deadline and raises RunError. With ``tls`` members and clients have certificates;
    ``client_flags`` are the options by which both tools find theirs.
    """

    def __init__(self, program: Path, size: int, folder: Path, tls: bool = False) -> None:
        super().__init__("etcd", folder)
        self.program = program
        self.client_flags: tuple[str, ...] = ()
        self._member_flags: tuple[str, ...] = ()
        self._context: ssl.SSLContext | None = None
        if tls:
            self._make_certificates()
        ports = free_ports(2 * size)
        self.ports, self._peer_ports = ports[:size], ports[size:]
        self.endpoints = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.version = ""

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

    def _commands(self) -> Iterator[Sequence[str | Path]]:
        scheme = "http" if self._context is None else "https"
        peers = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(self._peer_ports))
        for i, (port, peer_port) in enumerate(zip(self.ports, self._peer_ports, strict=True)):
            own = [f"--name=m{i}", f"--data-dir={self.folder / f'm{i}'}", f"--initial-cluster={peers}"]
            own += [f"--{verb}-client-urls={scheme}://127.0.0.1:{port}" for verb in ("listen", "advertise")]
            own += [f"--{verb}-peer-urls=http://127.0.0.1:{peer_port}" for verb in ("listen", "initial-advertise")]
            yield [self.program, *own, "--log-level=warn", *self._member_flags]

    def _start(self) -> None:
        super()._start()
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


def text64(text: str) -> str:
    """``text`` as the gateway wants keys and values."""
    return base64.b64encode(text.encode()).decode()
