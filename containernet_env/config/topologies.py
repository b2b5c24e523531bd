"""From a topology file, in both of its forms, to a `Config`: every problem is found before any is reported."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, create_model
from pydantic.config import JsonDict

from containernet_env.base.errors import ConfigError
from containernet_env.config import hints
from containernet_env.config.endpoints import config_of_endpoints, is_endpoints
from containernet_env.config.fields import (
    BANDWIDTH,
    CPUS,
    DELAY,
    ELECTION,
    HEARTBEAT,
    IP,
    LEFT_OUT,
    MAX_NODES,
    MEMBER,
    MEMORY,
    NAME,
    SUBNET,
    UNLIMITED,
    Boolean,
    DataChoice,
    FilePath,
    Length,
    StrictModel,
    adapter_of,
    as_far_as_good,
    parse_ip,
    parse_name,
    parse_subnet,
    refuse,
    rule,
    validate,
)
from containernet_env.config.links import RawLink, link_findings, link_spec
from containernet_env.config.reader import Document, Finding, Location, json_path, read_document, value_at
from containernet_env.config.stores import (
    DEFAULT_KIND,
    StoreValue,
    kind_named,
    kind_of,
    section_of,
    store_choice,
    store_findings,
)
from containernet_env.model.config import CLIENT_NAME, Config, EtcdSettings, Node, StoreChoice
from containernet_env.model.topology import star
from containernet_env.stores.etcd.store import ELECTION_PER_HEARTBEAT
from containernet_env.stores.kinds import KINDS, store_of
from containernet_env.stores.store import Store

_IP, _MEM, _CPUS = "IPv4 address of the host", "memory limit, swap included", "limit of CPU time, in cpus"
_BANDWIDTH = "bandwidth of the host's link in Mbit/s, each direction"
_LINK_DELAY = "one-way delay of the host's link, each direction"
_LINK = "the host's link in detail, for both directions together or for to_switch and from_switch apart"
_NO_LIMIT: JsonDict = {"default": UNLIMITED}


class RawNode(StrictModel):
    """A member as the list form has it: every key is required."""

    model_config = ConfigDict(title="Node")

    ip: Annotated[IPv4Address, IP] = Field(description=_IP)
    memory_bytes: Annotated[int | None, MEMORY] = Field(alias="mem", description=_MEM)
    cpus: Annotated[Decimal | None, CPUS] = Field(description=_CPUS)
    bandwidth: Annotated[int | None, BANDWIDTH] = Field(description=_BANDWIDTH)
    link_delay: Annotated[int, DELAY] = Field(description=_LINK_DELAY)


def _either(own: str, key: str) -> dict[str, Any]:
    """JSON Schema: a host's own key, or the equivalent key in its ``link``."""
    said = {"required": [key]}
    apart = {"properties": {"to_switch": said, "from_switch": said}, "required": ["to_switch", "from_switch"]}
    link = {"properties": {"link": {"anyOf": [said, apart]}}, "required": ["link"]}
    return {"anyOf": [{"required": [own]}, link]}


class RawNamedNode(RawNode):
    """A member as the object form has it: bandwidth and delay are its own, or said in its link."""

    model_config = ConfigDict(
        title="Named node",
        json_schema_extra={"allOf": [_either("bandwidth", "bandwidth"), _either("link_delay", "delay")]},
    )

    name: Annotated[str | None, NAME] = Field(
        default=None, description="name of the member (etcd1, etcd2, ... where it is left out)"
    )
    bandwidth: Annotated[int | None, BANDWIDTH] = Field(default=None, description=_BANDWIDTH)
    link_delay: Annotated[int, DELAY] = Field(default=LEFT_OUT, description=_LINK_DELAY)
    link: RawLink = Field(default=LEFT_OUT, description=_LINK)


class RawClient(StrictModel):
    """The client's own address, limits and link; what is left out does not limit it."""

    model_config = ConfigDict(title="Client")

    ip: Annotated[IPv4Address | None, IP] = Field(default=None, description=_IP)
    memory_bytes: Annotated[int | None, MEMORY] = Field(
        default=None, alias="mem", description=_MEM, json_schema_extra=_NO_LIMIT
    )
    cpus: Annotated[Decimal | None, CPUS] = Field(default=None, description=_CPUS, json_schema_extra=_NO_LIMIT)
    bandwidth: Annotated[int | None, BANDWIDTH] = Field(
        default=None, description=_BANDWIDTH, json_schema_extra=_NO_LIMIT
    )
    link_delay: Annotated[int, DELAY] = Field(default=0, description=_LINK_DELAY, json_schema_extra={"default": "0ms"})
    link: RawLink = Field(default=LEFT_OUT, description=_LINK)


class RawEtcd(StrictModel):
    """Settings of etcd instead of the defaults."""

    model_config = ConfigDict(title="etcd")

    heartbeat_ms: Annotated[int | None, HEARTBEAT] = Field(
        default=None,
        alias="heartbeat_interval",
        description="etcd's heartbeat (the larger of 100 ms and the largest RTT)",
    )
    election_ms: Annotated[int | None, ELECTION] = Field(
        default=None,
        alias="election_timeout",
        description="etcd's election timeout, at least 5 heartbeats (the larger of 1000 ms and 10 RTTs)",
    )
    data: DataChoice = Field(default="disk", description="where members keep their data, on disk or in memory")
    leader: Annotated[str | None, MEMBER] = Field(
        default=None, description="the member that is made the leader before each scenario (left to elections)"
    )
    tls: Boolean = Field(
        default=False, description="whether members and clients speak TLS, with certificates made for the run"
    )

    @property
    def settings(self) -> EtcdSettings:
        """They as a value."""
        return EtcdSettings(**dict(self))

    @rule
    def _election_is_longer_than_heartbeats(self) -> None:
        if self.heartbeat_ms is None or self.election_ms is None:
            return
        least_ms = ELECTION_PER_HEARTBEAT * self.heartbeat_ms
        if self.election_ms < least_ms:
            allowed = f"at least {ELECTION_PER_HEARTBEAT} x heartbeat_interval, {least_ms}ms"
            refuse("is too short for the heartbeat", allowed, key="election_timeout")


NodeList = Annotated[list[RawNamedNode], Length(1, MAX_NODES)]
PlainNodeList = Annotated[list[RawNode], Length(1, MAX_NODES)]


def _settings_of(store: type[Store]) -> type[RawEtcd]:
    """The settings of a store other than etcd.

    JSON Schema leaves out those that it lacks; they are keys nevertheless, so that an error can give the reason.
    """

    def leave_out(schema: dict[str, Any]) -> None:
        properties = schema["properties"].items()
        schema["properties"] = {key: value for key, value in properties if key not in store.lacks}

    namespace = {
        "__module__": __name__,
        "__doc__": f"Settings of {store.title} instead of the defaults.",
        "model_config": ConfigDict(title=store.__name__, json_schema_extra=leave_out),
    }
    return type(f"Raw{store.__name__}", (RawEtcd,), namespace)


SECTIONS: Mapping[str, type[RawEtcd]] = {
    section: RawEtcd if section == RawEtcd.model_config["title"] else _settings_of(KINDS[section])
    for section in dict.fromkeys(store.section for store in KINDS.values())
}
"""The models of the settings of each kind of store, by their keys."""


class RawConfig(StrictModel):
    """The object form, without the settings of stores: ``CONFIG`` has them."""

    model_config = ConfigDict(title="Config")

    subnet: Annotated[IPv4Network | None, SUBNET] = Field(
        default=None, description="network of all hosts (the /24 of the first address)"
    )
    nodes: NodeList = Field(description="members of the cluster")
    client: RawClient = Field(default=RawClient(), description="the host that makes the load")
    store: StoreValue = Field(default=LEFT_OUT, description="the store that is measured")
    scenarios: FilePath = Field(default=None, description="scenario file")

    @rule
    def _settings_are_of_the_store(self) -> None:
        wanted = KINDS[kind_named(self.store)].section
        for section in SECTIONS:
            if section in self.model_fields_set and section != wanted:
                refuse("is about another store than the one that is measured", f'"{wanted}": ...', key=section)


_FIELDS: dict[str, Any] = {
    section: (model, Field(model(), description=f"settings of {KINDS[section].title}"))
    for section, model in SECTIONS.items()
}
CONFIG: type[RawConfig] = create_model("RawConfig", __base__=RawConfig, __doc__="The object form.", **_FIELDS)
NODE: TypeAdapter[RawNamedNode] = TypeAdapter(RawNamedNode)
LIST_FORM: TypeAdapter[list[RawNode]] = TypeAdapter(PlainNodeList)
OBJECT_FORM: TypeAdapter[RawConfig] = TypeAdapter(CONFIG)


# In the list form, and where the object form leaves it out, the subnet is the network of this size that the
# first address is in.
DEFAULT_PREFIX = 24


def load_config(path: Path | str) -> Config:
    """The config in a file. Raises ``ConfigError`` with every problem of it; reads no other file but a store's."""
    return config_of(read_document(Path(path)))


def config_of(document: Document) -> Config:
    """The config in a document. Raises ``ConfigError`` with every problem of it."""
    path, value = document.path, document.value
    if is_endpoints(value):
        return config_of_endpoints(document)
    raw: RawConfig | None = None
    if isinstance(value, list):
        listed = validate(LIST_FORM, document)
        findings = listed.findings
        if listed.value is not None:
            nodes = [RawNamedNode.model_construct(**dict(node)) for node in listed.value]
            raw = CONFIG.model_construct(nodes=nodes)
    elif isinstance(value, dict):
        validated = validate(OBJECT_FORM, document)
        raw, findings = validated.value, validated.findings
        findings.extend(link_findings(value))
        findings.extend(store_findings(value, path.parent))
        findings.extend(_timing_findings(value, raw))
        findings.extend(_lack_findings(value))
    else:
        allowed = "a list of nodes, or an object with the key nodes or endpoints"
        findings = [Finding((), "is not a config", allowed=allowed)]
    addresses = _Addresses.of(value)
    findings.extend(addresses.findings())
    findings.extend(_leader_findings(value, addresses.names))
    document.refuse(findings)
    assert raw is not None and addresses.subnet is not None  # refused otherwise
    names = _names(value)
    client_ip = raw.client.ip or addresses.highest_free()
    assert client_ip is not None
    return Config(
        path=path,
        sha256=document.sha256,
        subnet=addresses.subnet,
        nodes=tuple(_node(node.name or names(index), node.ip, node) for index, node in enumerate(raw.nodes)),
        client=_node(CLIENT_NAME, client_ip, raw.client),
        etcd=_section(raw).settings,
        scenarios=path.parent / raw.scenarios if raw.scenarios else None,
        store=store_choice(raw.store, path.parent),
    )


def _names(value: Any) -> Callable[[int], str]:
    """The name of each node that has none of its own, by its index; etcd's where the store is none of ours."""
    kind = kind_of(value) if isinstance(value, dict) else None
    return KINDS[kind or DEFAULT_KIND].node_name


def _section(raw: RawConfig) -> RawEtcd:
    """The settings of the store that is measured."""
    settings: RawEtcd = getattr(raw, KINDS[kind_named(raw.store)].section)
    return settings


def _node(name: str, ip: IPv4Address, raw: RawNamedNode | RawClient) -> Node:
    link = link_spec(raw.link, raw.link_delay, raw.bandwidth)
    return Node(name=name, ip=ip, memory_bytes=raw.memory_bytes, cpus=raw.cpus, link=link)


def _leader_findings(value: Any, names: Sequence[tuple[Location, str]]) -> Iterator[Finding]:
    """Whether the leader is one of the nodes, where all of them have good names."""
    place = section_of(value if isinstance(value, dict) else {}), "leader"
    try:
        leader = parse_name(value_at(value, place))
        nodes = value_at(value, ("nodes",))
    except (KeyError, ValueError):
        return  # there is none, or it is reported where the value itself is validated
    known = [name for _, name in names]
    if leader not in known and isinstance(nodes, list) and len(known) == len(nodes):
        near = hints.closest(leader, known)
        meant = f', did you mean "{near}"?' if near is not None else ""
        yield Finding(place, f"is not the name of a node{meant}", allowed=", ".join(known))


def _lack_findings(value: Mapping[str, Any]) -> Iterator[Finding]:
    """Which settings the store does not have."""
    kind = kind_of(value)
    if kind is None:
        return
    section = KINDS[kind].section
    settings = value.get(section)
    if not isinstance(settings, dict):
        return
    store = KINDS[kind]
    for key, given in settings.items():
        if (reason := store.lacks.get(key)) is not None and given is not False:
            message = f"cannot be had: {store.title} {reason}"
            yield Finding((section, key), message, allowed=f"no {key}", at_key=True)


def _timing_findings(value: Mapping[str, Any], raw: RawConfig | None) -> Iterator[Finding]:
    """Whether the store takes its timing, which may follow from the RTTs between members: those that are good."""
    kind = kind_of(value)
    if kind is None:
        return
    section = KINDS[kind].section
    if raw is not None:
        settings = getattr(raw, section)
    else:
        settings = as_far_as_good(adapter_of(SECTIONS[section]), value.get(section, {}))
    if settings is None:
        return
    if raw is not None:
        nodes = raw.nodes
    else:
        listed = value.get("nodes")
        alone = [as_far_as_good(NODE, node) for node in listed[:MAX_NODES]] if isinstance(listed, list) else []
        nodes = [node for node in alone if node is not None]
    # Names, addresses and the client's link make no difference to that.
    members = []
    for index, node in enumerate(nodes):
        with contextlib.suppress(ValueError):  # `link_findings` reports it
            members.append(_node(KINDS[kind].node_name(index), node.ip, node))
    client = _node(CLIENT_NAME, IPv4Address(0), RawClient())
    etcd, store = settings.settings, StoreChoice(kind)
    config = Config(Path(), "", IPv4Network(0), tuple(members), client, etcd, None, store)
    try:
        store_of(config).timing(config, star(config).largest_member_rtt())
    except ConfigError as error:
        for problem in error.problems:
            yield Finding((section, "election_timeout"), problem.message, problem.got, problem.allowed)


@dataclass(frozen=True)
class _Addresses:
    """Names and addresses of a document as far as they are valid, even if the rest of it is not.

    ``names`` and ``ips`` hold the place of each, in the file's order; the client's address comes last.
    """

    names: Sequence[tuple[Location, str]]
    ips: Sequence[tuple[Location, IPv4Address]]
    subnet: IPv4Network | None
    subnet_given: bool
    client_given: bool

    @classmethod
    def of(cls, value: Any) -> _Addresses:
        """The valid part of the raw JSON value of a config in either form."""
        top = value if isinstance(value, dict) else {}
        prefix: Location = ("nodes",) if isinstance(value, dict) else ()
        nodes = top.get("nodes") if isinstance(value, dict) else value
        names: list[tuple[Location, str]] = []
        default_name = _names(value)
        ips: list[tuple[Location, IPv4Address]] = []
        for index, node in enumerate(nodes[:MAX_NODES] if isinstance(nodes, list) else []):
            if not isinstance(node, dict):
                continue
            location = (*prefix, index)
            name = default_name(index) if isinstance(value, list) else node.get("name", default_name(index))
            _keep(names, (*location, "name"), parse_name, name)
            _keep(ips, (*location, "ip"), parse_ip, node.get("ip"))
        first = ips[0][1] if ips else None
        client = top.get("client")
        client_given = isinstance(client, dict) and "ip" in client
        if isinstance(client, dict):
            _keep(ips, ("client", "ip"), parse_ip, client.get("ip"))
        subnet = None
        if "subnet" in top:
            subnets: list[tuple[Location, IPv4Network]] = []
            _keep(subnets, ("subnet",), parse_subnet, top["subnet"])
            subnet = subnets[0][1] if subnets else None
        elif first is not None:
            subnet = IPv4Network((first, DEFAULT_PREFIX), strict=False)
        return cls(names, ips, subnet, "subnet" in top, client_given)

    def findings(self) -> Iterator[Finding]:
        """Names and addresses given twice, addresses outside the subnet, no room for the client."""
        yield from _repeated(self.names, "name")
        yield from _repeated(self.ips, "address")
        if self.subnet is None:
            return
        for location, ip in self.ips:
            if ip not in self.subnet:
                source = "" if self.subnet_given else " (the /24 of the first address)"
                yield Finding(location, "is outside the subnet", f'"{ip}"', f"an address in {self.subnet}{source}")
            elif ip in (self.subnet.network_address, self.subnet.broadcast_address):
                kind = "network" if ip == self.subnet.network_address else "broadcast"
                yield Finding(
                    location,
                    f"is the {kind} address of {self.subnet}",
                    f'"{ip}"',
                    f"{self.subnet.network_address + 1} to {self.subnet.broadcast_address - 1}",
                )
        if not self.client_given and self.highest_free() is None:
            yield Finding(("subnet",), "has no address left for the client", f'"{self.subnet}"', SUBNET.form)

    def highest_free(self) -> IPv4Address | None:
        """The highest host address of the subnet that no member has."""
        assert self.subnet is not None
        taken = {ip for _, ip in self.ips}
        address = self.subnet.broadcast_address - 1
        while address > self.subnet.network_address:
            if address not in taken:
                return address
            address -= 1
        return None


def _keep(found: list[tuple[Location, Any]], location: Location, parse: Any, value: object) -> None:
    try:
        found.append((location, parse(value)))
    except ValueError:
        return  # reported where the value itself is validated


def _repeated(found: Sequence[tuple[Location, object]], what: str) -> Iterator[Finding]:
    first_at: dict[object, Location] = {}
    for location, value in found:
        if value in first_at:
            other = json_path(first_at[value])
            yield Finding(location, f"repeats the {what} at {other}", f'"{value}"', f"each {what} once")
        first_at.setdefault(value, location)
