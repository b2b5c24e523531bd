"""A config as plain frozen values: a topology or the endpoints of an external cluster; units in the names."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Literal

from containernet_env.base.programs import UserProgram
from containernet_env.model.link import LinkSpec

DEFAULT_PREFIX = "containernet-env/"
PASSWORD_VARIABLE = "BENCHMARK_PASSWORD"
"""The variable with the user's password if no file has it; the benchmark server reads the same variable."""

PLACES = IPv4Network("192.0.2.0/24")
"""Placeholder addresses of members that have names and ports here: a documentation network (RFC 5737)."""


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
    """PEM files: the CAs that sign the members' certificates, and the client's own, if members require one."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class External:
    """Members by their endpoints, in the file's order. Without ``tls`` connections are in plain text.

    ``prefix`` is that of all written keys; each run adds its own id. The password of ``user`` is in ``password_file``
    or in the environment, and nowhere else. The token of Consul is in ``token_file``. ``http``: whether they use HTTP,
    as their endpoints then state.
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
        """Whether requests have credentials, by which members identify the client."""
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
        """The prefix of all keys of that run."""
        return f"{self.prefix}{run_id}/"

    @staticmethod
    def place(number: int) -> IPv4Address:
        """The placeholder address of member ``number`` (from 0), or of the client after the last one."""
        return PLACES.network_address + 1 + number


CLIENT_NAME = "benchmark"
"""The name of the client's node at run time."""

DataStore = Literal["disk", "tmpfs"]


@dataclass(frozen=True, slots=True)
class Node:
    """One host: a member of the cluster, or the client.

    ``memory_bytes``, ``cpus`` (cpu-seconds per second) and the link's rates are limits; ``None`` is
    unlimited. ``link`` is the host's link to the switch: its ``a`` is the host.
    """

    name: str
    ip: IPv4Address
    memory_bytes: int | None
    cpus: Decimal | None
    link: LinkSpec

    @property
    def delay_ns(self) -> int:
        """One-way delay from the host to its switch."""
        return self.link.a_to_b.delay_ns

    @property
    def rate_bps(self) -> int | None:
        """Bandwidth from the host to its switch; ``None`` is unlimited."""
        return self.link.a_to_b.rate_bps


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """The store's settings in the config, etcd's or another's; a timing of ``None`` is derived from the expected RTT.

    ``leader`` is the member that must lead in every scenario; ``None`` leaves that to elections. ``tls``: members and
    clients use TLS, each with a certificate of a CA that is made for the run.
    """

    heartbeat_ms: int | None = None
    election_ms: int | None = None
    data: DataStore = "disk"
    leader: str | None = None
    tls: bool = False


@dataclass(frozen=True, slots=True)
class HttpService:
    """How a service keeps values by key over HTTP/1.1: targets of requests with ``{key}`` once, and status codes.

    ``*_codes`` are those of success, ``missing_codes`` those of a read of a key that does not exist. Without ``delete``
    the keys of a run stay. ``health`` is the target of a GET that a member answers by itself, with any status; ``None``
    where none is known. Of members that are started here, ``port`` is where they serve clients and other members,
    and ``arguments`` those of their program, with placeholders.
    """

    put: str
    get: str
    delete: str | None
    put_codes: tuple[int, ...]
    get_codes: tuple[int, ...]
    delete_codes: tuple[int, ...]
    missing_codes: tuple[int, ...]
    port: int = 0
    arguments: tuple[str, ...] = ()
    health: str | None = None


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """The measured store: its kind, its version (``None``: the pinned one), and flags by name, sorted.

    ``binary`` is the user's program that its members run, for kinds that need one.
    ``service``: the HTTP requests of a store of the kind ``http``.
    """

    kind: str = "etcd"
    version: str | None = None
    flags: tuple[tuple[str, int | str], ...] = ()
    binary: UserProgram | None = None
    service: HttpService | None = None


DEFAULT_STORE = StoreChoice()


@dataclass(frozen=True, slots=True)
class Config:
    """A consistent config: names and addresses are unique, and addresses are inside ``subnet``.

    ``nodes`` are the members in the file's order, 1 to 100. ``scenarios`` is the scenario file the config
    names, resolved against the config's own directory; it has not been opened. ``sha256`` is of the file's
    bytes, in hex. ``external``: an external cluster; nodes then represent its members, with placeholder addresses
    and links.
    """

    path: Path
    sha256: str
    subnet: IPv4Network
    nodes: tuple[Node, ...]
    client: Node
    etcd: EtcdSettings
    scenarios: Path | None
    store: StoreChoice = DEFAULT_STORE
    external: External | None = None

    @property
    def keys_stay(self) -> bool:
        """Whether the keys of a run stay in the store, as configured in the file."""
        return self.store.service is not None and self.store.service.delete is None

    @property
    def hosts(self) -> tuple[Node, ...]:
        """The members in order, then the client."""
        return (*self.nodes, self.client)
