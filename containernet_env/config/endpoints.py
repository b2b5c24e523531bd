"""Files that name the endpoints of an external cluster, in the place of a topology."""

from __future__ import annotations

import re
from dataclasses import fields
from ipaddress import IPv6Address
from pathlib import Path

from containernet_env.config.fields import Validated, validate
from containernet_env.config.reader import Document
from containernet_env.config.stores import RawService
from containernet_env.model import kinds
from containernet_env.model.config import PLACES, Config, Endpoint, EtcdSettings, External, Node, StoreChoice
from containernet_env.model.kinds import Chosen, Kind, Listed, Section, keyed, refuse, rule, section
from containernet_env.model.link import LinkSpec
from containernet_env.stores.kinds import DEFAULT, KINDS
from containernet_env.stores.store import Endpoints

MAX_ENDPOINTS = 100
KEY = "endpoints"

# Of a name (RFC 1123 section 2.1); resolvers refuse longer ones.
MAX_HOST_BYTES = 253
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]{{2,45}}\])"
_ENDPOINT = re.compile(rf"(?:(https?)://)?({_HOST}):([0-9]{{1,5}})", re.ASCII)


def parse_endpoint(value: object) -> tuple[str | None, Endpoint]:
    """Scheme, if there is one, and endpoint. Raises ``ValueError`` with the fault."""
    match = _ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    if match is None or len(match[2]) > MAX_HOST_BYTES:
        raise ValueError("is not an endpoint")
    host, port = match[2].strip("[]"), int(match[3])
    if match[2].startswith("["):
        try:
            host = str(IPv6Address(host))
        except ValueError as error:
            raise ValueError("is not an endpoint") from error
    if not 1 <= port <= 65_535:
        raise ValueError("has a port out of range")
    return match[1], Endpoint(host, port)


_ENDPOINT_KIND = Kind(
    parse_endpoint,
    'http:// or https:// with a host and a port, such as "https://10.1.0.1:2379"; of ZooKeeper "10.1.0.1:2181"',
    kinds.text_schema(_ENDPOINT.pattern),
)
_EXTERNAL = {name: store for name, store in KINDS.items() if store.externals is not None}
_NAME = kinds.choice(*(name for name, store in _EXTERNAL.items() if not store.needs_binary))
_STORE = Chosen((_NAME, RawService), lambda value: RawService if isinstance(value, dict) else _NAME)


@section
class RawEndpoints(Section, External):
    """The form for an external cluster."""

    endpoints: tuple[tuple[str | None, Endpoint], ...] = keyed(  # type: ignore[assignment]  # with their schemes
        Listed(_ENDPOINT_KIND, 1, MAX_ENDPOINTS, unique=True),
        "members of an external cluster, by where they serve clients",
    )
    store: str | RawService = keyed(_STORE, "what they run", default=DEFAULT.name)
    scenarios: Path | None = keyed(kinds.PATH, "scenario file", default=None)

    @property
    def kind(self) -> str:
        return self.store.kind if isinstance(self.store, RawService) else self.store

    @property
    def rules(self) -> Endpoints:
        """The allowed content of such a file for that store."""
        return KINDS[self.kind].endpoints

    @rule
    def _the_store_has_users(self) -> None:
        if self.user is not None and (reason := self.rules.no_users) is not None:
            refuse(f"cannot log in: {reason}", "no user", "user")

    @rule
    def _the_store_takes_tokens(self) -> None:
        if self.token_file is not None and not self.rules.takes_token:
            names = " or ".join(f'"{name}"' for name, store in _EXTERNAL.items() if store.endpoints.takes_token)
            refuse(f"is not for {self.kind}", f"no token_file, or the store {names}", "token_file")

    @rule
    def _the_store_takes_the_prefix(self) -> None:
        if (problem := self.rules.bad_prefix(self.prefix)) is not None:
            refuse(*problem, "prefix")

    @rule
    def _a_password_is_of_a_user(self) -> None:
        if self.password_file is not None and self.user is None:
            refuse("is a password without a user", "only together with user", "password_file")

    @rule
    def _tls_goes_with_https(self) -> None:
        schemes = {scheme for scheme, _ in self.endpoints}
        if not self.rules.urls:
            title = KINDS[self.kind].title
            if schemes != {None}:
                allowed = 'hosts with ports, such as "10.1.0.1:2181"'
                refuse(f"name HTTP, which {title} does not speak", allowed, KEY)
            if self.tls is not None:
                refuse(f"is not supported for {title}", "no tls", "tls")
            return
        if None in schemes:
            refuse("do not say whether they speak TLS", "all of them with http://, or all with https://", KEY)
        if len(schemes) > 1:
            refuse("mix http and https", "all of them with http://, or all with https://", KEY)
        if schemes == {"https"} and self.tls is None:
            allowed = '"tls": {"ca": FILE}, with the certificate of the CA that signs those of the members'
            refuse("speak TLS, and no CA is given", allowed, KEY)
        if schemes == {"http"} and self.tls is not None:
            refuse("is for endpoints that speak TLS", "endpoints with https://, or no tls", "tls")


def config_of_endpoints(document: Document) -> Config:
    """The config in such a document. Raises ``ConfigError`` with every problem of it; opens no other file."""
    validated: Validated[RawEndpoints] = validate(RawEndpoints, document)
    document.refuse(validated.refusals)
    raw = validated.value
    own = {item.name: getattr(raw, item.name) for item in fields(External)}
    external = External(**{**own, "endpoints": tuple(item for _, item in raw.endpoints), "http": raw.rules.urls})
    service = raw.store.service if isinstance(raw.store, RawService) else None
    store = StoreChoice(raw.kind, service=service)
    nodes = tuple(_node(f"{store.kind}{number + 1}", number) for number in range(len(raw.endpoints)))
    return Config(
        path=document.path,
        sha256=document.sha256,
        subnet=PLACES,
        nodes=nodes,
        clients=(_node(kinds.CLIENT_NAME, len(nodes)),),
        etcd=EtcdSettings(),
        scenarios=raw.scenarios,
        store=store,
        external=external,
    )


def _node(name: str, number: int) -> Node:
    return Node(name, External.place(number), memory_bytes=None, cpus=None, link=LinkSpec())
