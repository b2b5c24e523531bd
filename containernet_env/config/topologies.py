"""From a topology file, in both of its forms, to a `Config`: every problem is found before any is reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import make_dataclass
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from itertools import count, islice
from pathlib import Path
from typing import Any, ClassVar

from containernet_env.base.errors import ConfigError
from containernet_env.config.endpoints import KEY as ENDPOINTS
from containernet_env.config.endpoints import config_of_endpoints
from containernet_env.config.fields import Validated, validate
from containernet_env.config.links import BANDWIDTH, LINK_DELAY, RawHost
from containernet_env.config.reader import Document, json_path, read_document
from containernet_env.config.sites import (
    GRAPH,
    LINKS,
    NO_PLACES,
    RTT,
    SITE,
    SITES,
    SWITCH,
    SWITCHES,
    Places,
    RawSite,
    graph_of,
    sites_of,
)
from containernet_env.config.stores import DEFAULT_KIND, HTTP, STORE, StoreValue, store_choice
from containernet_env.model import kinds
from containernet_env.model.config import DILATION_MAX, Config, EtcdSettings, Node, StoreChoice
from containernet_env.model.hints import suggestion
from containernet_env.model.kinds import (
    Chosen,
    Listed,
    Location,
    Named,
    Refused,
    Section,
    keyed,
    not_beside,
    refuse,
    rule,
    section,
)
from containernet_env.model.names import nearest
from containernet_env.model.scenario import ALL_CLIENTS, EACH_CLIENT, MAX_CLIENTS
from containernet_env.model.topology import network_of
from containernet_env.stores.kinds import KINDS, store_of
from containernet_env.stores.store import Store

_IP, _MEM, _CPUS = "IPv4 address of the host", "memory limit, swap included", "limit of CPU time, in cpus"


def _either(own: str, key: str) -> dict[str, Any]:
    """JSON Schema: a host's own key, the equivalent key in its ``link``, or that of its site."""
    said = {"required": [key]}
    apart = {"properties": {"to_switch": said, "from_switch": said}, "required": ["to_switch", "from_switch"]}
    link = {"properties": {"link": {"anyOf": [said, apart]}}, "required": ["link"]}
    return {"anyOf": [{"required": [own]}, link, {"required": ["site"]}]}


@section
class RawNode(RawHost):
    """Members: bandwidth and delay are their own, said in the link, or the site's."""

    SCHEMA: ClassVar = {"allOf": [_either("bandwidth", "bandwidth"), _either("link_delay", "delay")]}
    IS_MEMBER: ClassVar = True

    ip: IPv4Address | None = keyed(kinds.IP, "IPv4 address of the host (the lowest free one)", default=None)
    memory_bytes: int | None = keyed(kinds.MEMORY, _MEM, "mem")
    cpus: Decimal | None = keyed(kinds.CPUS, _CPUS)
    fsync_ns: int | None = keyed(
        kinds.FSYNC, "how long an fsync takes on the member's data (as long as here)", "fsync", default=None
    )
    site: str | None = keyed(SITE, "the site where it is", default=None)
    switch: str | None = keyed(SWITCH, "the switch that its link leads to", default=None)
    count: int = keyed(kinds.integer(1, kinds.MAX_NODES), "how many such members there are", default=1)
    name: str | None = keyed(
        kinds.NAME,
        "name of the member (etcd1, etcd2, ... where it is left out); of several, with a number after it",
        default=None,
    )

    @rule
    def _several_have_no_address_of_their_own(self) -> None:
        if self.count > 1 and self.ip is not None:
            refuse("is the address of one member", "without a count above 1", "ip")

    @rule
    def _names_with_numbers_are_names(self) -> None:
        if self.name is not None and self.count > 1:
            try:
                for number in (1, self.count):
                    kinds.NAME.read(f"{self.name}{number}")
            except Refused as refused:
                refuse(f"with a number after it {refused.message}", kinds.NAME.form, "name")


@section
class RawClient(RawHost):
    """The client's own address, limits and link; what is left out does not limit it."""

    ip: IPv4Address | None = keyed(kinds.IP, _IP, default=None)
    site: str | None = keyed(SITE, "the site where it is (the first one)", default=None)
    switch: str | None = keyed(SWITCH, "the switch that its link leads to (the first one)", default=None)
    memory_bytes: int | None = keyed(kinds.MEMORY, _MEM, "mem", shown=kinds.UNLIMITED, default=None)
    cpus: Decimal | None = keyed(kinds.CPUS, _CPUS, shown=kinds.UNLIMITED, default=None)
    bandwidth: int | None = keyed(*BANDWIDTH, shown=kinds.UNLIMITED, default=None)
    link_delay: int | None = keyed(*LINK_DELAY, shown="0ms", default=None)


@section
class RawNamedClient(RawClient):
    """One of several clients."""

    name: str | None = keyed(
        kinds.NAME, "name of the client (client-SITE, or client1, client2, ... where that is not one)", default=None
    )

    @rule
    def _is_called_as_no_rows_are(self) -> None:
        if self.name in (ALL_CLIENTS, EACH_CLIENT):
            refuse("is what the rows of several clients are called", "another name", "name")


LIST_FORM = Listed(RawNode, 1, kinds.MAX_NODES)
"""The nodes, which a file may have in place of an object."""


def _settings_of(store: type[Store]) -> Chosen:
    """The settings of a store, of which the JSON Schema leaves out those that it lacks.

    They are keys nevertheless, so that an error can give the reason.
    """
    namespace = {
        "__module__": __name__,
        "__doc__": f"Settings of {store.title} instead of the defaults.",
        "__slots__": (),
        "LACKING": store.lacks.keys(),
    }
    return Chosen((type(store.__name__, (EtcdSettings,), namespace),), lambda _: EtcdSettings)


SECTIONS = tuple(dict.fromkeys(store.section for store in KINDS.values()))
"""The keys of the settings of each kind of store."""


@section
class RawConfig(Section):
    """The object form, without the settings of stores: ``OBJECT_FORM`` has them."""

    SCHEMA: ClassVar = {"not": {"required": ["client", "clients"]}}

    subnet: IPv4Network | None = keyed(
        kinds.SUBNET, "network of all hosts (the /24 of the first address)", default=None
    )
    nodes: tuple[RawNode, ...] = keyed(LIST_FORM, "members of the cluster")
    client: RawClient = keyed(RawClient, "the host that makes the load", default=RawClient())
    clients: tuple[RawNamedClient, ...] = keyed(
        Listed(RawNamedClient, 1, MAX_CLIENTS), "several hosts that make the load together", default=()
    )
    store: StoreValue = keyed(STORE, "the store that is measured", default=DEFAULT_KIND)
    scenarios: Path | None = keyed(kinds.PATH, "scenario file", default=None)
    sites: dict[str, RawSite] | None = keyed(
        Named(SITE, RawSite), "places where hosts are, each with a switch of its own", default=None
    )
    rtt: Any = keyed(RTT, "round-trip times between sites: by pair, or a table", default=None)
    switches: tuple[str, ...] | None = keyed(SWITCHES, "switches, each by its name", default=None)
    links: dict[str, Any] | None = keyed(
        LINKS, "links between switches by pair: their one-way delay, or all that they do to frames", default=None
    )
    reroute: bool = keyed(
        kinds.BOOLEAN, "whether frames take other ways while a link between switches is down", default=False
    )
    dilation: int = keyed(
        kinds.integer(1, DILATION_MAX), "how many times slower than real time the testbed runs", default=1
    )

    @property
    def kind(self) -> type[Store]:
        """The kind of the store that is measured; the default one if that is none of ours."""
        store: StoreValue = getattr(self, "store", DEFAULT_KIND)
        return KINDS[store if isinstance(store, str) else getattr(store, "kind", DEFAULT_KIND)]

    @property
    def settings(self) -> EtcdSettings:
        settings: EtcdSettings = getattr(self, self.kind.section)
        return settings

    @property
    def members(self) -> list[RawNode]:
        """The nodes, as often as each is there."""
        return [node for node in getattr(self, "nodes", ()) for _ in range(getattr(node, "count", 1))]

    @property
    def names(self) -> list[tuple[Location, str]]:
        """The names of members, and their places."""
        named = [(index, node) for index, node in enumerate(self.members) if hasattr(node, "name")]
        numbers = {id(node): count(1) for _, node in named}
        return [((*node.at, "name"), self._name(node, index, next(numbers[id(node)]))) for index, node in named]

    @property
    def loading(self) -> tuple[RawClient, ...]:
        return getattr(self, "clients", ()) or (self.client,)

    @property
    def client_names(self) -> list[tuple[Location, str]]:
        """The names of these, and their places."""
        if not (named := getattr(self, "clients", ())):
            return [(("client",), kinds.CLIENT_NAME)]
        sites = [getattr(client, "site", None) for client in named]
        return [
            ((*client.at, "name"), getattr(client, "name", None) or f"client-{site}")
            if site is not None and sites.count(site) == 1
            else ((*client.at, "name"), getattr(client, "name", None) or f"client{number}")
            for number, (client, site) in enumerate(zip(named, sites, strict=True), start=1)
        ]

    def _name(self, node: RawNode, index: int, number: int) -> str:
        if node.name is None:
            return self.kind.node_name(index)
        return node.name if getattr(node, "count", 1) == 1 else f"{node.name}{number}"

    @property
    def addresses(self) -> list[tuple[Location, IPv4Address]]:
        """The addresses of nodes, then the clients', and their places."""
        hosts = (*getattr(self, "nodes", ()), *self.loading)
        return [((*host.at, "ip"), host.ip) for host in hosts if getattr(host, "ip", None) is not None]

    @property
    def network(self) -> IPv4Network | None:
        """The subnet; without one, that of the first node's address."""
        first = [ip for place, ip in self.addresses if place[0] not in ("client", "clients")][:1]
        if "subnet" in self.given:
            return getattr(self, "subnet", None)
        if not first:
            return DEFAULT_SUBNET if self.members else None
        return IPv4Network((first[0], DEFAULT_PREFIX), strict=False)

    def free_addresses(self, network: IPv4Network, step: int = 1) -> Iterator[IPv4Address]:
        """The addresses of hosts in the network that none has, the lowest first, or with a ``step`` of -1 the last."""
        taken = {ip for _, ip in self.addresses}
        numbers = range(int(network.network_address) + 1, int(network.broadcast_address))[::step]
        return (ip for ip in map(IPv4Address, numbers) if ip not in taken)

    _has_one_client_or_several = not_beside("clients", "client", "either client, of one, or clients")

    @rule
    def _the_program_is_named(self) -> None:
        if isinstance(self.store, str) and self.kind.needs_binary:
            more = ', "port": NUMBER, "put": TEMPLATE, "get": TEMPLATE' if self.store == HTTP else ""
            allowed = f'{{"kind": "{self.store}", "binary": PATH{more}}}'
            refuse("has no binary, the program that its members run", allowed, "store")

    @rule
    def _settings_are_of_the_store(self) -> None:
        wanted = KINDS[self.store if isinstance(self.store, str) else self.store.kind].section
        for name in SECTIONS:
            if name in self.given and name != wanted:
                refuse("is about another store than the one that is measured", f'"{wanted}": ...', name)


OBJECT_FORM: type[RawConfig] = make_dataclass(
    "RawConfig",
    [
        (
            name,
            EtcdSettings,
            keyed(_settings_of(KINDS[name]), f"settings of {KINDS[name].title}", default=EtcdSettings()),
        )
        for name in SECTIONS
    ],
    bases=(RawConfig,),
    namespace={"__doc__": "The object form.", "__module__": __name__},
    frozen=True,
    slots=True,
    kw_only=True,
)


# In the list form, and where the object form leaves it out, the subnet is the network of this size that the
# first address is in; where there is none, the other one.
DEFAULT_PREFIX = 24
DEFAULT_SUBNET = IPv4Network("10.0.0.0/24")


def load_config(path: Path | str) -> Config:
    """The config in a file. Raises ``ConfigError`` with every problem of it; reads no other file but a store's."""
    return config_of(read_document(Path(path)))


def config_of(document: Document) -> Config:
    """The config in a document. Raises ``ConfigError`` with every problem of it."""
    path, value = document.path, document.value
    if isinstance(value, dict) and ENDPOINTS in value:
        return config_of_endpoints(document)
    raw, refusals = OBJECT_FORM(nodes=()), []
    if isinstance(value, list):
        listed = validate(LIST_FORM, document)
        raw, refusals = OBJECT_FORM(nodes=listed.value or ()), listed.refusals
    elif isinstance(value, dict):
        validated = validate(OBJECT_FORM, document)
        raw, refusals = validated.value, [*validated.refusals, *_timing_refusals(validated)]
        refusals += _lack_refusals(raw.kind, value.get(raw.kind.section))
    else:
        allowed = "a list of nodes, or an object with the key nodes or endpoints"
        refusals.append(Refused("is not a config", allowed, ()))
    network = raw.network
    refusals += [*_repeated([*raw.names, *raw.client_names], "name"), *_repeated(raw.addresses, "address")]
    refusals += _leader_refusals(raw)
    places, of_places = _places(raw) if not refusals else (NO_PLACES, [])
    refusals += of_places
    if network is not None:
        refusals += _network_refusals(raw, network)
    document.refuse(refusals)
    assert network is not None  # refused otherwise
    lowest, highest = raw.free_addresses(network), raw.free_addresses(network, -1)
    names = [name for _, name in raw.names]
    config = Config(
        path=path,
        sha256=document.sha256,
        subnet=network,
        nodes=tuple(
            _node(name, node, node.ip or next(lowest), places) for name, node in zip(names, raw.members, strict=True)
        ),
        clients=tuple(
            _node(name, client, client.ip or next(highest), places)
            for (_, name), client in zip(raw.client_names, raw.loading, strict=True)
        ),
        etcd=raw.settings,
        scenarios=raw.scenarios,
        store=store_choice(raw.store),
        dilation=raw.dilation,
        sites=places.names if places.keys == SITES else (),
        switches=places.names if places.keys == GRAPH else (),
        switch_links=places.links,
        reroute=raw.reroute,
    )
    if places.names:
        document.refuse(_timing_problems(config, raw.kind.section))
    return config


def _node(name: str, raw: RawNode | RawClient, ip: IPv4Address, places: Places = NO_PLACES) -> Node:
    at = {places.keys[2]: places.of(raw)}
    fsync_ns = raw.fsync_ns if isinstance(raw, RawNode) else None
    return Node(name, ip, raw.memory_bytes, raw.cpus, raw.link_spec(*places.link_of(raw)), **at, fsync_ns=fsync_ns)


def _places(raw: RawConfig) -> tuple[Places, list[Refused]]:
    """The sites or switches, and their problems."""
    nodes = getattr(raw, "nodes", ())
    hosts = [*nodes, *raw.loading]
    given = {
        keys: [
            *((key,) for key in keys[:2] if getattr(raw, key, None) is not None),
            *((*host.at, keys[2]) for host in hosts if getattr(host, keys[2], None) is not None),
        ]
        for keys in (SITES, GRAPH)
    }
    places, refusals = NO_PLACES, list[Refused]()
    if all(given.values()):
        allowed = "sites with rtt, or switches with links"
        return places, [Refused("is given beside sites", allowed, given[GRAPH][0], at_key=True)]
    if given[GRAPH]:
        places, refusals = _graph(raw, hosts)
    elif given[SITES]:
        of_hosts = [((*host.at, "site"), host.site) for host in hosts if getattr(host, "site", None) is not None]
        places, refusals = sites_of(raw.sites or {}, of_hosts, raw.rtt)
    if raw.reroute and not refusals and len(places.links) < max(1, len(places.names)):
        message = "has no effect: where a link goes down, there is no other way"
        refusals.append(Refused(message, "links between switches that close a loop", ("reroute",)))
    if not any(given.values()):
        return places, refusals
    of_places, of_links, of_host = places.keys
    allowed = ", ".join(places.names) or f"the name of a {of_host}"
    refusals += [Refused("is missing", allowed, (*host.at, of_host)) for host in nodes if of_host not in host.given]
    named = [((of_places, name if places.keys == SITES else at), name) for at, name in enumerate(places.names)]
    refusals += _repeated([*named, *raw.names, *raw.client_names], "name")
    for host in hosts:
        problems = host.link_problems(*places.link_of(host)) if places.of(host) in places.delays_ns else ()
        refusals += [one.below(host.at) for one in problems]
    # The link emulator, the plan and events know links by their names, and events members, too.
    names = [*raw.names, *raw.client_names]
    own = [
        (place, f"{name}-{places.of(host)}")
        for (place, name), host in zip(names, (*raw.members, *raw.loading), strict=True)
    ]
    links = [((of_links,), f"{link.a}-{link.b}") for link in places.links]
    refusals += _repeated([*links, *own, *names], "name of the link")
    return places, [*dict.fromkeys(refusals)]


def _graph(raw: RawConfig, hosts: Sequence[RawNode | RawClient]) -> tuple[Places, list[Refused]]:
    """The switches, and the problems of them and of those that hosts name."""
    if not raw.switches:
        return Places(keys=GRAPH), [Refused("is missing", "the names of all switches", ("switches",))]
    places, refusals = graph_of(raw.switches, raw.links or {})
    for host in hosts:
        if host.switch is not None and host.switch not in places.names:
            message = f"is not one of the switches{suggestion(host.switch, [*places.names])}"
            refusals.append(Refused(message, ", ".join(places.names), (*host.at, "switch"), f'"{host.switch}"'))
    return places, refusals


def _leader_refusals(raw: RawConfig) -> Iterator[Refused]:
    """Whether the leader is one of the nodes, where all of them have good names."""
    leader = getattr(getattr(raw, raw.kind.section, None), "leader", None)
    names = [name for _, name in raw.names]
    if leader is not None and leader not in names and len(names) == len(raw.members):
        near = nearest(leader, names)
        meant = f', did you mean "{near}"?' if near is not None else ""
        place = (raw.kind.section, "leader")
        yield Refused(f"is not the name of a node{meant}", ", ".join(names), place)


def _lack_refusals(store: type[Store], settings: Any) -> Iterator[Refused]:
    for key, given in settings.items() if isinstance(settings, dict) else ():
        if (reason := store.lacks.get(key)) is not None and given is not False:
            message = f"cannot be had: {store.title} {reason}"
            yield Refused(message, f"no {key}", (store.section, key), at_key=True)


def _timing_refusals(validated: Validated[RawConfig]) -> Iterator[Refused]:
    """Whether the store takes its timing, which may follow from the RTTs between members: those that are good."""
    raw = validated.value
    section = raw.kind.section
    if not validated.is_good((section,)):
        return
    # Names, addresses and the client's link make no difference to that.
    nodes = [node for node in raw.members if validated.is_good(node.at)]
    if any(node.site or node.switch for node in nodes):
        return  # see config_of
    members = tuple(_node(raw.kind.node_name(index), node, IPv4Address(0)) for index, node in enumerate(nodes))
    clients, store = (_node(kinds.CLIENT_NAME, RawClient(), IPv4Address(0)),), StoreChoice(raw.kind.name)
    config = Config(Path(), "", IPv4Network(0), members, clients, raw.settings, None, store)
    yield from _timing_problems(config, section)


def _timing_problems(config: Config, section: str) -> Iterator[Refused]:
    try:
        store_of(config).timing(config, network_of(config, queues=False).largest_member_rtt())
    except ConfigError as error:
        for problem in error.problems:
            yield Refused(problem.message, problem.allowed, (section, "election_timeout"), problem.got)


def _network_refusals(raw: RawConfig, network: IPv4Network) -> Iterator[Refused]:
    """Addresses outside the subnet, no room for the client."""
    ends = {network.network_address: "network", network.broadcast_address: "broadcast"}
    source = "" if "subnet" in raw.given else " (the /24 of the first address)"
    for location, ip in raw.addresses:
        if ip not in network:
            yield Refused("is outside the subnet", f"an address in {network}{source}", location, f'"{ip}"')
        elif ip in ends:
            allowed = f"{network.network_address + 1} to {network.broadcast_address - 1}"
            yield Refused(f"is the {ends[ip]} address of {network}", allowed, location, f'"{ip}"')
    wanted = sum(getattr(node, "ip", node) is None for node in raw.members)
    wanted += sum("ip" not in client.given for client in raw.loading)
    if len([*islice(raw.free_addresses(network), wanted)]) < wanted:
        whom = "the client" if wanted == 1 else f"{wanted} hosts"
        yield Refused(f"has no address left for {whom}", kinds.SUBNET.form, ("subnet",), f'"{network}"')
    if len(raw.members) > kinds.MAX_NODES:
        yield Refused("are too many", f"at most {kinds.MAX_NODES}", ("nodes",), f"{len(raw.members)} members")


def _repeated(found: Sequence[tuple[Location, object]], what: str) -> Iterator[Refused]:
    first_at: dict[object, Location] = {}
    for location, value in found:
        if value in first_at:
            other = json_path(first_at[value])
            yield Refused(f"repeats the {what} at {other}", f"each {what} once", location, f'"{value}"')
        first_at.setdefault(value, location)
