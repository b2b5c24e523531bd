"""Files that name the endpoints of an external cluster, in the place of a topology."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv6Address
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from containernet_env.config.fields import (
    LEFT_OUT,
    PATH,
    Chosen,
    FilePath,
    Kind,
    Length,
    StrictModel,
    choice,
    refuse,
    rule,
    text_schema,
    validate,
)
from containernet_env.config.reader import Document, Finding
from containernet_env.config.stores import RawService
from containernet_env.model.config import (
    CLIENT_NAME,
    DEFAULT_PREFIX,
    PLACES,
    Config,
    Endpoint,
    EtcdSettings,
    External,
    Node,
    StoreChoice,
    TlsFiles,
)
from containernet_env.model.link import LinkSpec
from containernet_env.stores.kinds import DEFAULT, KINDS
from containernet_env.stores.store import Endpoints

MAX_ENDPOINTS = 100
MAX_PREFIX_BYTES = 200
KEY = "endpoints"

ENDPOINT_FORM = (
    'http:// or https:// with a host and a port, such as "https://10.1.0.1:2379"; of ZooKeeper "10.1.0.1:2181"'
)
USER_FORM = "the name of a user, 1 to 256 bytes without a colon"
PREFIX_FORM = f'text of 2 to {MAX_PREFIX_BYTES} bytes that ends with a slash, such as "{DEFAULT_PREFIX}"'
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


def _parse_user(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= 256 or ":" in value or not value.isprintable():
        raise ValueError("is not the name of a user")
    return value


def _parse_prefix(value: object) -> str:
    fits = isinstance(value, str) and 2 <= len(value.encode()) <= MAX_PREFIX_BYTES and value.isprintable()
    if not fits or not str(value).endswith("/"):
        raise ValueError("is not a prefix of keys")
    return str(value)


_ENDPOINT_KIND = Kind(parse_endpoint, ENDPOINT_FORM, text_schema(_ENDPOINT.pattern))
_USER = Kind(_parse_user, USER_FORM, text_schema("[^:]{1,256}"))
_PREFIX = Kind(_parse_prefix, PREFIX_FORM, text_schema(".+/"))
_EXTERNAL = {name: store for name, store in KINDS.items() if store.externals is not None}
_Name = Annotated[str, choice(*(name for name, store in _EXTERNAL.items() if not store.needs_binary))]
StoreValue = Annotated[_Name | RawService, Chosen(lambda value: RawService if isinstance(value, dict) else _Name)]


class RawTls(StrictModel):
    """The files by which members and client know each other."""

    model_config = ConfigDict(title="TLS")

    ca: Annotated[str, PATH] = Field(description="certificates of the CAs that sign those of the members (PEM)")
    cert: FilePath = Field(default=None, description="the client's own certificate, where members ask for one (PEM)")
    key: FilePath = Field(default=None, description="its private key (PEM)")

    @rule
    def _certificate_and_key_are_given_together(self) -> None:
        if (self.cert is None) != (self.key is None):
            given, lacking = ("cert", "key") if self.key is None else ("key", "cert")
            refuse(f"has a {given} and no {lacking}", "both of cert and key, or none of them", key=given)


class RawEndpoints(StrictModel):
    """The form for an external cluster."""

    model_config = ConfigDict(title="Endpoints")

    endpoints: Annotated[list[Annotated[tuple[str | None, Endpoint], _ENDPOINT_KIND]], Length(1, MAX_ENDPOINTS)] = (
        Field(description="members of an external cluster, by where they serve clients")
    )
    store: StoreValue = Field(default=LEFT_OUT, description="what they run")
    tls: RawTls | None = Field(
        default=None,
        description="the files by which members and client know each other, for endpoints with https://",
    )
    user: Annotated[str | None, _USER] = Field(default=None, description="the user to log in as")
    password_file: FilePath = Field(
        default=None,
        description="file with the user's password on its first line (the environment variable BENCHMARK_PASSWORD)",
    )
    token_file: FilePath = Field(default=None, description="of Consul: file with the token (ACLs) on its first line")
    prefix: Annotated[str, _PREFIX] = Field(
        default=DEFAULT_PREFIX, description="what every key that is written starts with, before the run's id"
    )
    scenarios: FilePath = Field(default=None, description="scenario file")

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return self.store.kind if isinstance(self.store, RawService) else self.store or DEFAULT.name

    @property
    def rules(self) -> Endpoints:
        """The allowed content of such a file for that store."""
        return KINDS[self.kind].endpoints

    @rule
    def _the_store_has_users(self) -> None:
        if self.user is not None and (reason := self.rules.no_users) is not None:
            refuse(f"cannot log in: {reason}", "no user", key="user")

    @rule
    def _the_store_takes_tokens(self) -> None:
        if self.token_file is not None and not self.rules.takes_token:
            names = " or ".join(f'"{name}"' for name, store in _EXTERNAL.items() if store.endpoints.takes_token)
            refuse(f"is not for {self.kind}", f"no token_file, or the store {names}", key="token_file")

    @rule
    def _the_store_takes_the_prefix(self) -> None:
        if (problem := self.rules.bad_prefix(self.prefix)) is not None:
            refuse(*problem, key="prefix")

    @rule
    def _a_password_is_of_a_user(self) -> None:
        if self.password_file is not None and self.user is None:
            refuse("is a password without a user", "only together with user", key="password_file")

    @rule
    def _tls_goes_with_https(self) -> None:
        schemes = {scheme for scheme, _ in self.endpoints}
        if not self.rules.urls:
            title = KINDS[self.kind].title
            if schemes != {None}:
                allowed = 'hosts with ports, such as "10.1.0.1:2181"'
                refuse(f"name HTTP, which {title} does not speak", allowed, key=KEY)
            if self.tls is not None:
                refuse(f"is not supported for {title}", "no tls", key="tls")
            return
        if None in schemes:
            refuse("do not say whether they speak TLS", "all of them with http://, or all with https://", key=KEY)
        if len(schemes) > 1:
            refuse("mix http and https", "all of them with http://, or all with https://", key=KEY)
        if schemes == {"https"} and self.tls is None:
            allowed = '"tls": {"ca": FILE}, with the certificate of the CA that signs those of the members'
            refuse("speak TLS, and no CA is given", allowed, key=KEY)
        if schemes == {"http"} and self.tls is not None:
            refuse("is for endpoints that speak TLS", "endpoints with https://, or no tls", key="tls")


ENDPOINTS_FORM: TypeAdapter[RawEndpoints] = TypeAdapter(RawEndpoints)


def is_endpoints(value: Any) -> bool:
    """Whether a document has the form of endpoints, and not of a topology."""
    return isinstance(value, dict) and KEY in value


def config_of_endpoints(document: Document) -> Config:
    """The config in such a document. Raises ``ConfigError`` with every problem of it; opens no other file."""
    validated = validate(ENDPOINTS_FORM, document)
    document.refuse([*validated.findings, *_repeated(document.value[KEY])])
    raw = validated.value
    assert raw is not None  # refused otherwise
    folder = document.path.parent
    endpoints = tuple(endpoint for _, endpoint in raw.endpoints)
    external = External(
        endpoints,
        None if raw.tls is None else _tls_files(folder, raw.tls),
        raw.user,
        _below(folder, raw.password_file),
        raw.prefix,
        raw.rules.urls,
        _below(folder, raw.token_file),
    )
    service = raw.store.service if isinstance(raw.store, RawService) else None
    store = StoreChoice(raw.kind, service=service)
    nodes = tuple(_node(f"{store.kind}{number + 1}", number) for number in range(len(endpoints)))
    return Config(
        path=document.path,
        sha256=document.sha256,
        subnet=PLACES,
        nodes=nodes,
        client=_node(CLIENT_NAME, len(nodes)),
        etcd=EtcdSettings(),
        scenarios=_below(folder, raw.scenarios),
        store=store,
        external=external,
    )


def _tls_files(folder: Path, raw: RawTls) -> TlsFiles:
    return TlsFiles(folder / raw.ca, _below(folder, raw.cert), _below(folder, raw.key))


def _below(folder: Path, name: str | None) -> Path | None:
    return None if name is None else folder / name


def _node(name: str, number: int) -> Node:
    return Node(name, External.place(number), memory_bytes=None, cpus=None, link=LinkSpec())


def _repeated(listed: Any) -> Iterator[Finding]:
    seen: dict[Endpoint, int] = {}
    for index, value in enumerate(listed if isinstance(listed, list) else []):
        try:
            _, endpoint = parse_endpoint(value)
        except ValueError:
            continue  # reported where the value itself is validated
        if endpoint in seen:
            message = f"repeats the endpoint at $.{KEY}[{seen[endpoint]}]"
            yield Finding((KEY, index), message, allowed="each endpoint once")
        seen.setdefault(endpoint, index)
