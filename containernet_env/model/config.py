"""A config as plain frozen values: a topology or the endpoints of an external cluster; units in the names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Literal

from containernet_env.base.programs import UserProgram
from containernet_env.model import kinds
from containernet_env.model.kinds import Record, keyed, record, refuse, rule
from containernet_env.model.link import Link, LinkSpec

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
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@record
class TlsFiles(Record):
    """The files by which members and client know each other."""

    ca: Path = keyed(kinds.PATH, "certificates of the CAs that sign those of the members (PEM)")
    cert: Path | None = keyed(kinds.PATH, "the client's own certificate, where members ask for one (PEM)", default=None)
    key: Path | None = keyed(kinds.PATH, "its private key (PEM)", default=None)

    @rule
    def _certificate_and_key_are_given_together(self) -> None:
        if (self.cert is None) != (self.key is None):
            given, lacking = ("cert", "key") if self.key is None else ("key", "cert")
            refuse(f"has a {given} and no {lacking}", "both of cert and key, or none of them", given)


MAX_PREFIX_BYTES = 200


_USER = kinds.checked(
    lambda value: (
        isinstance(value, str) and 1 <= len(value.encode()) <= 256 and ":" not in value and value.isprintable()
    ),
    "is not the name of a user",
    "the name of a user, 1 to 256 bytes without a colon",
    kinds.text_schema("[^:]{1,256}"),
)
_PREFIX = kinds.checked(
    lambda value: (
        isinstance(value, str)
        and 2 <= len(value.encode()) <= MAX_PREFIX_BYTES
        and value.isprintable()
        and value.endswith("/")
    ),
    "is not a prefix of keys",
    f'text of 2 to {MAX_PREFIX_BYTES} bytes that ends with a slash, such as "{DEFAULT_PREFIX}"',
    kinds.text_schema(".+/"),
)


@record
class External(Record):
    """Members by their endpoints, in the file's order. Without ``tls`` connections are in plain text.

    Each run adds its own id to ``prefix``. The password of ``user`` is in ``password_file`` or in the environment, and
    nowhere else. ``http``: whether they use HTTP, as their endpoints then state.
    """

    endpoints: tuple[Endpoint, ...]
    tls: TlsFiles | None = keyed(
        TlsFiles, "the files by which members and client know each other, for endpoints with https://", default=None
    )
    user: str | None = keyed(_USER, "the user to log in as", default=None)
    password_file: Path | None = keyed(
        kinds.PATH,
        "file with the user's password on its first line (the environment variable BENCHMARK_PASSWORD)",
        default=None,
    )
    prefix: str = keyed(
        _PREFIX, "what every key that is written starts with, before the run's id", default=DEFAULT_PREFIX
    )
    http: bool = True
    token_file: Path | None = keyed(kinds.PATH, "of Consul: file with the token (ACLs) on its first line", default=None)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(self.url(endpoint) for endpoint in self.endpoints)

    def url(self, endpoint: Endpoint) -> str:
        """One of them."""
        if not self.http:
            return endpoint.address
        return f"{'https' if self.tls else 'http'}://{endpoint.address}"

    def prefix_of(self, run_id: str) -> str:
        return f"{self.prefix}{run_id}/"

    @staticmethod
    def place(number: int) -> IPv4Address:
        """The placeholder address of member ``number`` (from 0), or of the client after the last one."""
        return PLACES.network_address + 1 + number


DILATION_MAX = 100
"""The largest factor by which a testbed runs slower than real time (``model.dilation``)."""

DataStore = Literal["disk", "tmpfs"]


@dataclass(frozen=True, slots=True)
class Node:
    """One host: a member of the cluster, or the client.

    ``memory_bytes``, ``cpus`` (cpu-seconds per second) and the link's rates are limits; ``None`` is unlimited.
    ``fsync_ns`` is how long an fsync takes on a member's data; ``None``: as long as it does here. ``link`` is the
    host's link to the switch, that of its ``site`` if it has one, or ``switch``: its ``a`` is the host.
    """

    name: str
    ip: IPv4Address
    memory_bytes: int | None
    cpus: Decimal | None
    link: LinkSpec
    site: str | None = None
    switch: str | None = None
    fsync_ns: int | None = None


def ways_named(text: str, places: Collection[str]) -> list[tuple[str, str]]:
    """The pairs of sites or switches that ``a-b`` (both ways) or ``a>b`` (one way) can mean: several where names have
    a "-"."""
    sign = ">" if ">" in text else "-"
    ends = [(text[:at], text[at + 1 :]) for at, letter in enumerate(text) if letter == sign]
    return [(a, b) for a, b in ends if a in places and b in places and a != b]


ELECTION_MAX_MS = 50_000
ELECTION_PER_HEARTBEAT = 5
HEARTBEAT_MAX_MS = ELECTION_MAX_MS // ELECTION_PER_HEARTBEAT
"""etcd's own rules (server/embed/config.go): election at most maxElectionMs, and at least 5 heartbeats."""


@record
class EtcdSettings(Record):
    """Settings of etcd instead of the defaults.

    Or those of another store; a timing of ``None`` is derived from the expected RTT.
    """

    heartbeat_ms: int | None = keyed(
        kinds.milliseconds(1, HEARTBEAT_MAX_MS, "100ms"),
        "etcd's heartbeat (the larger of 100 ms and the largest RTT)",
        "heartbeat_interval",
        default=None,
    )
    election_ms: int | None = keyed(
        kinds.milliseconds(ELECTION_PER_HEARTBEAT, ELECTION_MAX_MS, "1000ms"),
        "etcd's election timeout, at least 5 heartbeats (the larger of 1000 ms and 10 RTTs)",
        "election_timeout",
        default=None,
    )
    data: DataStore = keyed(
        kinds.choice("disk", "tmpfs"), "where members keep their data, on disk or in memory", default="disk"
    )
    leader: str | None = keyed(
        kinds.MEMBER, "the member that is made the leader before each scenario (left to elections)", default=None
    )
    tls: bool = keyed(
        kinds.BOOLEAN, "whether members and clients speak TLS, with certificates made for the run", default=False
    )

    @rule
    def _election_is_longer_than_heartbeats(self) -> None:
        if self.heartbeat_ms is None or self.election_ms is None:
            return
        least_ms = ELECTION_PER_HEARTBEAT * self.heartbeat_ms
        if self.election_ms < least_ms:
            allowed = f"at least {ELECTION_PER_HEARTBEAT} x heartbeat_interval, {least_ms}ms"
            refuse("is too short for the heartbeat", allowed, "election_timeout")


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

    ``nodes`` are the members in the file's order, 1 to 300, ``clients`` the hosts that make the load, at least one.
    ``scenarios`` is the scenario file the config names, resolved against the config's own directory; it has not been
    opened. ``sha256`` is of the file's bytes, in hex.
    ``external``: an external cluster; nodes then represent its members, with placeholder addresses and links.
    ``dilation``: how many times slower than real time it runs. ``sites``: the names of the sites, in order, of which
    each has a switch; or ``switches``: their names; without any, all hosts are on one switch. ``switch_links`` join
    them; with ``reroute`` frames take other ways while one is down.
    """

    path: Path
    sha256: str
    subnet: IPv4Network
    nodes: tuple[Node, ...]
    clients: tuple[Node, ...]
    etcd: EtcdSettings
    scenarios: Path | None
    store: StoreChoice = DEFAULT_STORE
    external: External | None = None
    dilation: int = 1
    sites: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    switch_links: tuple[Link, ...] = ()
    reroute: bool = False

    @property
    def keys_stay(self) -> bool:
        """Whether the keys of a run stay in the store, as configured in the file."""
        return self.store.service is not None and self.store.service.delete is None

    @property
    def hosts(self) -> tuple[Node, ...]:
        """The members in order, then the clients."""
        return (*self.nodes, *self.clients)
