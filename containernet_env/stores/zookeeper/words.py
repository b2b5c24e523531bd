"""ZooKeeper's four-letter words: how a member is asked for its state, and what its answers say.

See ZooKeeper's Administrator's Guide, "The Four Letter Words".
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.stores.protocol import Connection
from containernet_env.stores.zookeeper.settings import CLIENT_PORT

Mode = Literal["leader", "follower", "standalone"]
PING = b"ruok"
"""Answered whether or not the member has found a quorum."""
OBSERVER = "srvr: is an observer"
_MOST_BYTES = 1 << 20
_FIELD = re.compile(r"^([A-Z][A-Za-z ]*): (.*)$", re.MULTILINE)
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")


@dataclass(frozen=True, slots=True)
class MemberState:
    """One member's own view. ``zxid``: its last transaction; of a leader it begins with the number of its election."""

    mode: Mode
    zxid: int
    version: str

    @property
    def epoch(self) -> int:
        """The number of the election, in the upper half of a zxid."""
        return self.zxid >> 32


def ask(connection: Connection, word: str, timeout_s: float) -> str:
    """A member's whole answer, after which it closes the connection. Raises ``RunError`` where there is none."""
    deadline = clock.monotonic() + timeout_s
    try:
        with connection.open(CLIENT_PORT, timeout_s=timeout_s) as made:
            made.sendall(word.encode())
            parts: list[bytes] = []
            while part := _received(made, deadline):
                parts.append(part)
                if sum(map(len, parts)) > _MOST_BYTES:
                    raise RunError(f"{word}: an answer of more than {_MOST_BYTES} bytes")
    except OSError as error:
        raise RunError(f"{word}: {error}") from error
    return b"".join(parts).decode(errors="replace")


def _received(made: socket.socket, deadline: float) -> bytes:
    left = deadline - clock.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    made.settimeout(left)
    return made.recv(1 << 16)


def parse_srvr(answer: str) -> MemberState:
    """The state that a member reports. Raises ``RunError`` where it serves no client, or reports something else."""
    fields = dict(_FIELD.findall(answer))
    version = _VERSION.match(fields.get("Zookeeper version", ""))
    mode = fields.get("Mode")
    if mode == "observer":
        raise RunError(OBSERVER)
    if version is None or mode not in ("leader", "follower", "standalone"):
        raise RunError(f"srvr: {answer.strip()[:80] or 'no answer'}")
    try:
        return MemberState(mode, int(fields["Zxid"], 16), version[0])
    except (KeyError, ValueError) as error:
        raise RunError(f"srvr: {answer.strip()[:80]}") from error


def parse_mntr(answer: str) -> Mapping[str, float]:
    """The figures that a member counts, without the ``zk_`` before their names; texts are left out."""
    values: dict[str, float] = {}
    for line in answer.splitlines():
        name, tab, value = line.partition("\t")
        if tab and name.startswith("zk_"):
            try:
                values[name.removeprefix("zk_")] = float(value)
            except ValueError:
                continue
    return values
