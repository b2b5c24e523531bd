"""What is measured: the cells of the comparison and the command lines of both tools."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEMBERS = (1, 3)
KEY_SIZE = 8
VALUE_SIZE = 64
# The one key that both tools read; longer than the written ones, so that it is none of them.
READ_KEY = "bench/load"
REQUEST_TIMEOUT_S = 20
RUN_TIMEOUT_S = 45

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase

OURS, ETCD = "ours", "etcd"
OURS_TLS = "ours with TLS"
"""Our program for the cells with TLS."""


@dataclass(frozen=True)
class Load:
    """Connections and clients, and the requests of a run by operation: 1 to 3 s on two cores for either tool."""

    conns: int
    clients: int
    totals: dict[str, int]
    members: tuple[int, ...] = MEMBERS
    tls: bool = False


LOADS = (
    Load(100, 1000, {"put": 20_000, "range-s": 40_000, "range-l": 40_000}),
    Load(10, 100, {"put": 15_000, "range-s": 30_000, "range-l": 30_000}),
    Load(1, 1, {"put": 3_000, "range-s": 6_000, "range-l": 3_000}),
    # As many clients as one process is to drive: do all of them get their answers?
    Load(100, 3000, {"put": 15_000}, members=(1,)),
    Load(3000, 3000, {"put": 15_000}, members=(1,)),
    # TLS between clients and members, with certificates on both sides: a cluster of its own.
    Load(100, 1000, {"put": 20_000, "range-s": 40_000}, members=(1,), tls=True),
    Load(1, 1, {"put": 3_000, "range-s": 6_000}, members=(1,), tls=True),
)
CLUSTERS = ((1, False), (3, False), (1, True))
"""How many members, and whether they speak TLS with clients."""
# Three members on the same cores answer more slowly.
SHARE_OF_THREE = {"put": 0.5, "range-s": 1.0, "range-l": 0.5}
QUICK_SHARE = 0.05


@dataclass(frozen=True)
class Cell:
    """One load on one cluster; ``operation`` is put, range-s (serializable) or range-l (linearizable)."""

    members: int
    conns: int
    clients: int
    operation: str
    total: int
    tls: bool = False

    @property
    def name(self) -> str:
        return f"{self.operation} {self.conns}/{self.clients} on {self.members}{' with TLS' if self.tls else ''}"


def cells(members: int, share: float = 1.0, tls: bool = False) -> tuple[Cell, ...]:
    """The cells of a cluster of ``members``; every total times ``share``, at least 50 requests and one a client."""
    if members > 1:
        shares = {operation: share * part for operation, part in SHARE_OF_THREE.items()}
    else:
        shares = dict.fromkeys(SHARE_OF_THREE, share)
    return tuple(
        Cell(members, load.conns, load.clients, operation, max(50, load.clients, round(total * shares[operation])), tls)
        for load in LOADS
        if members in load.members and load.tls == tls
        for operation, total in load.totals.items()
    )


def command(
    tool: str, cell: Cell, total: int, endpoints: str, programs: dict[str, Path], tls: Sequence[str] = ()
) -> list[str]:
    """The argument list that runs ``total`` requests of ``cell`` with ``tool``.

    Keys are sequential and as many as requests, because that is the one order that both tools have. ``tls`` are the
    options that name certificates; they are the same for both.
    """
    common = [f"--endpoints={endpoints}", f"--conns={cell.conns}", f"--clients={cell.clients}", f"--total={total}"]
    common += tls
    verb, _, consistency = cell.operation.partition("-")
    if verb == "put":
        common += [f"--key-size={KEY_SIZE}", f"--val-size={VALUE_SIZE}", f"--key-space-size={total}"]
        common += ["--sequential-keys"]
    else:
        common += [READ_KEY, f"--consistency={consistency}"]
    if tool == ETCD:
        return [str(programs[ETCD]), verb, *common, "--precise", "--dial-timeout=10s"]
    ours = [f"--request-timeout={REQUEST_TIMEOUT_S}s", f"--run-timeout={RUN_TIMEOUT_S}s", "--output=json"]
    ours += ["--require-found"] if verb == "range" else []
    return [str(programs[OURS_TLS if cell.tls else OURS]), verb, *common, *ours]


def key_name(tool: str, number: int) -> bytes:
    """The name of key ``number`` as ``tool`` writes it: ours in digits, etcd's tool as a zigzag varint."""
    if tool == ETCD:
        rest, name = 2 * number, bytearray()
        while rest >= 0x80:
            name.append(rest & 0x7F | 0x80)
            rest >>= 7
        name.append(rest)
        return bytes(name).ljust(KEY_SIZE, b"\0")
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.rjust(KEY_SIZE, _DIGITS[0]).encode()


def outermost_keys(tool: str, total: int) -> tuple[bytes, bytes]:
    """The first and the last, in the order of bytes, of the keys that ``tool`` writes in ``total`` puts."""
    names = [key_name(tool, number) for number in range(total)]
    return min(names), max(names)
