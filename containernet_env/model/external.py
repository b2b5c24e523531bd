"""A cluster that somebody else runs: where its members are, and how one is let in. Nothing here is opened."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

DEFAULT_PREFIX = "containernet-env/"
PASSWORD_VARIABLE = "BENCHMARK_PASSWORD"
"""Where the password of the user is where no file has it; the benchmark server reads the same variable."""

PLACES = IPv4Network("192.0.2.0/24")
"""Stands for the addresses of members, which are names and ports here: a network of documentation (RFC 5737)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one member serves clients; ``host`` is a name or an address, an IPv6 one without its brackets."""

    host: str
    port: int

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the CAs that sign the members' certificates, and the client's own, where members ask for one."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class External:
    """Members by their endpoints, in the file's order. Without ``tls`` they are spoken to in plain text.

    ``prefix`` is that of all keys which are written; each run adds its own id. The password of ``user`` is in
    ``password_file`` or in the environment, and nowhere else. The token of Consul is in ``token_file``.
    ``http``: whether they speak HTTP, as their endpoints say then.
    """

    endpoints: tuple[Endpoint, ...]
    tls: TlsFiles | None = None
    user: str | None = None
    password_file: Path | None = None
    prefix: str = DEFAULT_PREFIX
    http: bool = True
    token_file: Path | None = None

    @property
    def is_known(self) -> bool:
        """Whether members are told who asks."""
        return self.user is not None or self.token_file is not None

    @property
    def urls(self) -> tuple[str, ...]:
        """As the file has them."""
        return tuple(self.url(endpoint) for endpoint in self.endpoints)

    def url(self, endpoint: Endpoint) -> str:
        """One of them."""
        if not self.http:
            return endpoint.address
        return f"{'https' if self.tls else 'http'}://{endpoint.address}"

    def prefix_of(self, run_id: str) -> str:
        """What every key of that run starts with."""
        return f"{self.prefix}{run_id}/"

    @staticmethod
    def place(number: int) -> IPv4Address:
        """What stands for the address of member ``number`` (from 0), or of the client after the last one."""
        return PLACES.network_address + 1 + number
