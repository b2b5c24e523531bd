"""``Containernet``: a Mininet network whose hosts may be containers, with Containernet's names.

A script of Containernet's runs here after changing one import: ``from containernet_env.containernet.network import
Containernet``. Each difference is listed in docs/containernet.md.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from ipaddress import IPv4Address, IPv4Interface
from types import TracebackType
from typing import Any

import mininet.node  # noqa: F401 - before mininet.link, which cannot be imported first where it is Containernet's
from mininet.link import Intf, Link, OVSLink, TCIntf, TCLink, TCULink
from mininet.log import error, info
from mininet.net import VERSION, Mininet
from mininet.node import Controller, Host, NullController, Switch
from mininet.util import ipAdd

from containernet_env.base import clock, programs
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.base.work import side_by_side
from containernet_env.config.plan import HostPlan
from containernet_env.containernet.docker import ContainerContext, Docker, new_run_id, planned_options
from containernet_env.containernet.links import (
    NetworkLink,
    NetworkSwitch,
    StandInController,
    link_spec,
    split,
    wrap,
)
from containernet_env.containernet.live_links import LiveLinks
from containernet_env.containernet.shell import CommandLine, guard_stock_command_line
from containernet_env.containernet.testbed_network import TestbedNetwork
from containernet_env.hosts import engine
from containernet_env.hosts.engine import EngineGoneError
from containernet_env.hosts.netns import ProcessGoneError, ip_batch
from containernet_env.model.backends import LinksKind, SwitchKind, check_choices
from containernet_env.model.link import DirectionSpec, LinkSpec, draw_seed
from containernet_env.model.topology import way_to
from containernet_env.network.factory import DESCRIPTIONS, LinkFactory, Place, choose, choose_switches
from containernet_env.network.interface import Interface, enter_neighbours, parse_address, too_many_neighbours
from containernet_env.network.link import EventHandler, Rerouted, Routes

# The name of the step that removes unlisted containers; errors do not repeat it, since the hosts' steps name theirs.
CONTAINERS = "containers"


def prepare() -> None:
    """Before a network is made: Mininet runs as root, with its programs, and leaves the machine as it is."""
    if os.geteuid() != 0:
        raise MissingRequirementError("networks and containers can only be made by root", "Run it with sudo.")
    # Mininet's init() would raise sysctls of this machine and never restore them.
    Mininet.inited = True
    # Hosts that are no containers run mnexec and bash, the original Containernet also ifconfig and brctl.
    programs.complete_path()


def remove_containers(run_id: str) -> None:
    """Remove those of a run, by its label: also one that an interrupt kept from being recorded."""
    engine.remove_containers([container.id for container in engine.list_ours(run_id)])


def attempt(name: str, step: Callable[[], object], problems: list[tuple[str, Exception]]) -> None:
    """Run one step; an exception is added to ``problems`` with the step's name."""
    try:
        step()
    except Exception as failure:  # noqa: BLE001 - reported at the end, with all others
        problems.append((name, failure))


def tear_down_error(problems: Sequence[tuple[str, Exception]]) -> RunError:
    """The error to raise for failed steps: ``EngineGoneError`` if the engine has ended, naming what remains in it."""
    gone = [(name, failure) for name, failure in problems if isinstance(failure, EngineGoneError)]
    others = [f"{name}: {failure}" for name, failure in problems if not isinstance(failure, EngineGoneError)]
    if not gone:
        return RunError("could not be removed:\n" + "\n".join(f"  {problem}" for problem in others))
    hosts = ", ".join(name for name, _ in gone if name != CONTAINERS)
    stay = f"the containers of {hosts} stay in it, their processes have been ended" if hosts else ""
    failure = gone[0][1]
    assert isinstance(failure, EngineGoneError)
    return EngineGoneError(failure.state, "; ".join([*filter(None, [stay]), *others]))


def reconnect(host: Any, links: Iterable[Any], factory: LinkFactory) -> None:
    """Create the links of ``host`` again with their last configuration, and their routes; addresses are read back.

    A link to a host that has ended is created when that host is restarted. Raises ``RunError`` if the addresses read
    back differ.
    """
    nodes = {host}
    for link in links:
        own, peer = (link.intf1, link.intf2) if link.intf1.node is host else (link.intf2, link.intf1)
        if hasattr(peer.node, "alive") and not (peer.node.alive and peer.node.pid == peer.held.pid):
            link.held.clear()
            own.held.pid = host.pid
            continue
        nodes.add(peer.node)
        configured = (own.held.ip, own.held.mac)
        factory.remake_link(link.held, own.held, host.pid)
        held = (own.held.read_address(), own.held.read_mac())
        if held != configured:
            raise RunError(f"host {host.name}: its address is {held}, not {configured}")
    for node in nodes:
        # A route over a link that is still missing cannot be set yet.
        missing = any(link is not None and not link.held.made for link in (intf.link for intf in node.intfs.values()))
        for route in getattr(node, "routes", {}).values():
            with suppress(RunError) if missing else nullcontext():
                ip_batch(node.pid, [route])


__all__ = ["Containernet", "Docker"]

# Mininet passes these to every switch class; they concern OpenFlow.
_IGNORED_KEYWORDS = frozenset(
    {"listenPort", "inNamespace", "dpid", "protocols", "failMode", "opts", "batch", "isSwitch"}
)
_LINK_CLASSES = (None, Link, TCLink, TCULink, OVSLink)
_PREFIX_LENGTH = 24  # Mininet's, of an ipBase without one
_PORT_KEYWORDS = ("intfName1", "intfName2", "addr1", "addr2")


class Containernet(LiveLinks, Mininet):  # type: ignore[misc]
    """The network. Also a context manager that stops it.

    ``links`` chooses the link backend (see ``network.factory.choose``), ``switches`` the switches of netem
    links ("auto", "ovs", "bridge"; see ``network.factory.choose_switches``). ``run_id`` (6 hexadecimal characters,
    random by default) prefixes every name; ``emulator_core`` is the only core of the emulator's data thread, and with
    ``offload`` it exchanges several TCP segments at once with the hosts. ``seed`` is that of the directions of links
    without one of their own; ``None`` draws it. ``params`` are Mininet's keywords. Needs root.
    """

    def __init__(
        self,
        *,
        links: str = "auto",
        switches: str = "auto",
        run_id: str | None = None,
        emulator_core: int | None = None,
        offload: bool = False,
        seed: int | None = None,
        **params: Any,
    ) -> None:
        prepare()
        if params.get("inNamespace"):
            raise UsageError("inNamespace=True needs a control network, which is not offered")
        check_choices(links, switches)
        if "ipBase" in params:
            _address("ipBase", str(params["ipBase"]), _PREFIX_LENGTH)
        self.links_kind: LinksKind = choose(links)
        self.switches_kind: SwitchKind = choose_switches(switches, self.links_kind)
        if offload and self.links_kind != "emulator":
            raise UsageError("offload is an option of the link emulator, which links='netem' does not use")
        self.run_id = run_id or new_run_id()
        self._pool = clock.ThreadPoolExecutor(engine.PARALLEL, thread_name_prefix="containernet")
        self.context = ContainerContext(self.run_id, self._pool, self.reconnect)
        self._handlers: list[EventHandler] = []
        self.seed = draw_seed() if seed is None else seed
        self.factory = LinkFactory(
            self.switches_kind, self.run_id, None, self._event, self.seed, emulator_core, offload
        )
        self.fabric = self.factory.fabric
        self._stop_lock, self.changing = clock.Lock(), clock.RLock()
        self._stopped = False
        self._problems: list[tuple[str, Exception]] = []
        self._started = False
        # The entries of `staticArp`; see `_neighbours`.
        self._entered: dict[Any, list[tuple[str, str]]] | None = None
        # For a script that ends without stop(), by an exception for instance.
        atexit.register(self._stop_at_exit)
        self._had_containers = False
        topo, build = params.pop("topo", None), params.pop("build", True)
        super().__init__(topo=None, build=False, **params)
        self.topo = topo
        if topo and build:
            try:
                self.build()
            except BaseException:
                self.stop()
                raise

    # --- nodes -------------------------------------------------------------------------------------------------

    def addHost(self, name: str, cls: Callable[..., Any] | None = None, **params: Any) -> Any:
        """Add a host: Mininet's ``Host``, ``Docker``, or a class of yours. Raises ``UsageError`` for a name or an
        address that is in use."""
        self._check_new(name)
        wanted = cls or self.host
        if isinstance(wanted, type) and issubclass(wanted, Docker):
            params.setdefault("context", self.context)
            self._had_containers = True
        address = params.get("ip")
        owners = self._owners()
        if address and (owner := owners.get(str(address).split("/")[0])) is not None:
            raise UsageError(f"host {name}: the address {address} is {owner}'s already")
        # Mininet counts the addresses that it gives by itself, whoever has one of them.
        while not address and ipAdd(self.nextIP, self.prefixLen, self.ipBaseNum) in owners:
            self.nextIP += 1
        if address:
            params["ip"] = "{}/{}".format(*_address(f"host {name}", str(address), self.prefixLen))
        return super().addHost(name, cls=wanted, **params)

    def _owners(self) -> dict[str, str]:
        """The host of every address: those of its interfaces now, else the one that its first interface will have."""
        owners = {}
        for host in self.hosts:
            held = [intf.ip for intf in host.intfs.values() if intf.ip] or [host.params.get("ip")]
            owners.update({str(address).split("/")[0]: host.name for address in held if address})
        return owners

    def addDocker(self, name: str, cls: type[Docker] = Docker, **params: Any) -> Docker:
        """Add a container as a host; returns before it is up (see ``Docker``)."""
        host = self.addHost(name, cls=cls, **params)
        assert isinstance(host, Docker)
        return host

    def removeDocker(self, name: str | Docker, **_params: Any) -> None:
        self.delNode(self[name] if isinstance(name, str) else name)

    removeHost = removeDocker

    def delNode(self, node: Any, nodes: list[Any] | None = None) -> None:
        for link in [link for link in self.links if node in (link.intf1.node, link.intf2.node)]:
            self.delLink(link)
        if isinstance(node, NetworkSwitch):
            self.factory.remove_switch(node.held)
            node.terminate()
            self.switches.remove(node)
            del self.nameToNode[node.name]
            return
        super().delNode(node, nodes)
        with self.changing:
            kept = [tuple(name for name in names if name != node.name) for names in self.parted]
            self.parted = tuple(names for names in kept if names)
            if len(self.parted) == 1:
                self.heal()
            self.part_again()

    def addSwitch(self, name: str, cls: Any = None, **params: Any) -> Any:
        """Add a switch that learns addresses by itself, for any of Mininet's switch classes."""
        self._check_new(name)
        wanted = cls or self.switch
        if not (isinstance(wanted, type) and issubclass(wanted, Switch)):
            raise UsageError(f"switch {name}: {wanted!r} is not a switch class")
        return super().addSwitch(name, cls=self._make_switch, **params)

    def _make_switch(self, name: str, **params: Any) -> NetworkSwitch:
        unknown = sorted(key for key in set(params) - _IGNORED_KEYWORDS if params[key])
        if unknown:  # it may change how a switch forwards
            raise UsageError(f"switch {name}: unknown keyword {', '.join(unknown)}")
        return NetworkSwitch(self.factory.make_switch(name))

    def addController(self, name: Any = "c0", controller: Any = None, **params: Any) -> Any:
        """Accepted for compatibility: switches here need no controller, so a stand-in is added."""
        wanted = controller or self.controller
        if wanted is NullController:
            return None
        label = name.name if isinstance(name, Controller) else name
        self._check_new(label)
        info(f"*** Controller {label}: a stand-in, since the switches need none\n")
        return super().addController(label, controller=StandInController)

    def _check_new(self, name: str) -> None:
        if self._stopped:
            raise UsageError("this network has been stopped")
        if name in self.nameToNode:
            raise UsageError(f"two nodes are called {name!r}")

    # --- links -------------------------------------------------------------------------------------------------

    def addLink(
        self, node1: Any, node2: Any, port1: int | None = None, port2: int | None = None, cls: Any = None, **params: Any
    ) -> NetworkLink:
        """Join two nodes (or names), before or after ``start``.

        ``delay`` ("3ms"), ``bw`` (Mbit/s) and ``max_queue_size`` (frames) count per direction; in ``params1`` and
        ``params2``, for the direction that end sends on, besides ``ip`` and ``mac`` of its interface. Raises
        ``UsageError`` for unknown keywords and for values that the link backend does not support.
        """
        one, two = self._node(node1), self._node(node2)
        where = f"link {one.name}-{two.name}"
        wanted = self.link if cls is None else cls
        if wanted not in _LINK_CLASSES:
            raise UsageError(f"{where}: link class {getattr(wanted, '__name__', wanted)} is not offered; use TCLink")
        if self.intf not in (None, Intf, TCIntf):
            raise UsageError(f"{where}: interface class {self.intf!r} is not offered")
        addresses1, shape1 = split(params.pop("params1", None))
        addresses2, shape2 = split(params.pop("params2", None))
        named = {key: params.pop(key) for key in _PORT_KEYWORDS if key in params}
        spec = link_spec(params, shape1, shape2, where)
        addresses1.setdefault("mac", named.get("addr1"))
        addresses2.setdefault("mac", named.get("addr2"))
        aliases = (named.get("intfName1"), named.get("intfName2"))
        return self._join(one, two, spec, (port1, port2), (addresses1, addresses2), aliases)

    def _join(
        self,
        one: Any,
        two: Any,
        spec: LinkSpec,
        ports: tuple[int | None, int | None] = (None, None),
        addresses: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
        aliases: tuple[str | None, str | None] = (None, None),
        route: bool = True,
    ) -> NetworkLink:
        if self._joined(one, two):
            if self.links_kind != "emulator":
                raise UsageError(f"link {one.name}-{two.name} would close a loop of switches, which netem cannot have")
            self._routed = True
        fresh = [node for node in (one, two) if isinstance(node, Host) and not node.intfs]
        owners = {intf.ip: host.name for host in self.hosts for intf in host.intfs.values() if intf.ip}
        places = []
        for node, port, given, alias in zip((one, two), ports, addresses, aliases, strict=True):
            own = node.params if node in fresh else {}
            end = {"ip": own.get("ip"), "mac": own.get("mac"), **_given(given)}
            if end["ip"]:
                where = f"link {one.name}-{two.name}, {node.name}"
                ip, _ = _address(where, str(end["ip"]))
                if isinstance(node, Host) and owners.setdefault(ip, node.name) != node.name:
                    raise UsageError(f"{where}: the address {ip} is {owners[ip]}'s already")
            at, address = (node.held, None) if isinstance(node, NetworkSwitch) else (node.pid, end["ip"])
            places.append(Place(node.name, at, node.newPort() if port is None else port, end["mac"], address, alias))
        link = wrap(self.factory.make_link(places[0], places[1], spec), (one, two), places, self._announce)
        self.links.append(link)
        try:
            with self.changing:
                self.part_again()
            if route:
                self._route(link)
            # Mininet configures hosts at start; this one's first interface has come later.
            for node in fresh if self._started else ():
                _configure(node, addresses=False)
        except BaseException:
            self.delLink(link)
            raise
        self._announce(link.intf1, link.intf2)
        return link

    def delLink(self, link: Any) -> None:
        """See Mininet; a host that loses its first link gets the address of another one, or none."""
        super().delLink(link)
        self._route(link)
        self._announce()

    def _joined(self, one: Any, two: Any) -> bool:
        """Whether two switches are connected by links between switches. Raises ``UsageError`` for one with itself."""
        if one is two:
            raise UsageError(f"{one.name} cannot be linked to itself")
        pairs, reached, size = [{link.intf1.node, link.intf2.node} for link in self.links], {one}, 0
        while len(reached) > size and isinstance(one, Switch) and isinstance(two, Switch):
            size = len(reached)
            reached |= {end for ends in pairs if ends & reached for end in ends if isinstance(end, Switch)}
        return two in reached

    _routed = False
    """Whether links between switches have closed a loop."""

    def _route(self, changed: Any) -> None:
        """After a link between switches came or went, where links close a loop: give the switches the routes with the
        least delay, as links are configured now."""
        if not self._routed or not all(isinstance(intf.node, Switch) for intf in (changed.intf1, changed.intf2)):
            return
        names: dict[tuple[str, str], str] = {}
        directions: dict[str, dict[str, DirectionSpec]] = {switch.name: {} for switch in self.switches}
        for link in self.links:
            one, two = link.intf1.node, link.intf2.node
            if isinstance(one, Switch) and isinstance(two, Switch) and (one.name, two.name) not in names:
                names[one.name, two.name] = names[two.name, one.name] = link.name
                directions[one.name][two.name] = link.held.spec.a_to_b
                directions[two.name][one.name] = link.held.spec.b_to_a
        routes: dict[str, dict[str, str]] = {name: {} for name in directions}
        for end in directions:
            for at, following in way_to(end, directions).items():
                routes[at][end] = names[at, following]
        self.set_routes(routes)

    def set_routes(self, routes: Routes, rerouted: Rerouted | None = None) -> None:
        """Forward frames between switches along these; see ``Fabric.route``.

        Adding or removing a link between switches replaces them by the routes with the least delay.
        """
        self.factory.fabric.route(routes, rerouted)

    def removeLink(self, link: Any = None, node1: Any = None, node2: Any = None) -> None:
        """Remove a link, or the first between two nodes (Containernet's call)."""
        if link is None:
            between = self.linksBetween(self._node(node1), self._node(node2))
            if not between:
                raise UsageError(f"there is no link between {node1} and {node2}")
            link = between[0]
        self.delLink(link)

    # --- start and tests ---------------------------------------------------------------------------------------

    def wait_up(self) -> None:
        """Return when every container runs; raises one ``RunError`` that names each host that failed."""
        problems = []
        for host in self._dockers():
            try:
                host.wait_up()
            except RunError as failure:
                problems.append(str(failure))
        if problems:
            raise RunError("\n".join(problems))

    def _dockers(self) -> list[Docker]:
        return [host for host in self.hosts if isinstance(host, Docker)]

    def configHosts(self) -> None:
        self.wait_up()
        # list() raises the exceptions of the threads.
        list(self._pool.map(lambda host: _configure(host, addresses=bool(host.intfs)), self.hosts))

    def staticArp(self) -> None:
        """Make every host a permanent neighbour of every other in its IP networks, so that no ARP is needed.

        In parallel; ended hosts are left out. The kernel bounds the neighbours that it has resolved, over
        all namespaces together (``net.ipv4.neigh.default.gc_thresh3``, 1024: all pairs of 32 hosts); permanent ones do
        not count.
        """
        self._entered = self._neighbours()
        self._enter(self._entered)

    def _enter(self, neighbours: Mapping[Any, list[tuple[str, str]]]) -> None:
        def enter(own: Any) -> None:
            with suppress(ProcessGoneError):
                enter_neighbours(own.node.pid, own.name, neighbours[own])

        list(self._pool.map(enter, neighbours))

    def _keep_neighbours(self, came_up: Iterable[Any]) -> None:
        """Enter neighbours that have changed, and all of them where hosts could not resolve each other any more.

        The kernel removes the neighbours of an interface that goes down, permanent ones too.
        """
        held = self._neighbours()
        if self._entered is None and not too_many_neighbours(sum(map(len, held.values()))):
            return
        again = {own: held[own] for own in came_up if own in held} if held == self._entered else held
        self._entered = held
        self._enter(again)

    def _neighbours(self) -> dict[Any, list[tuple[str, str]]]:
        """For every interface with an address, the IPv4 and Ethernet addresses of other hosts in its IP network."""
        intfs = [intf for host in self.hosts for intf in host.intfs.values()]
        ends = [intf for intf in intfs if intf.ip is not None and intf.link.held.made]
        networks = {end: IPv4Interface(f"{end.ip}/{end.prefixLen}").network for end in ends}
        members = {
            network: [end for end in ends if IPv4Address(end.ip) in network] for network in set(networks.values())
        }
        return {
            own: [(end.ip, end.mac) for end in members[network] if end.node is not own.node]
            for own, network in networks.items()
        }

    def _announce(self, *interfaces: Any) -> None:
        """While the network runs, update names and neighbours of hosts after interfaces came up or changed."""
        if not self._started:
            return
        self.write_names()
        self._keep_neighbours(interfaces)
        for intf in interfaces:
            if isinstance(intf.held, Interface):
                intf.held.announce()

    def reconnect(self, name: str) -> None:
        """Create the links of a host again after its container was restarted, with the settings in force before.

        Pulled cables stay pulled, and the partition applies. See ``reconnect.reconnect``.
        """
        host = self[name]
        links = [link for link in self.links if host in (link.intf1.node, link.intf2.node)]
        with self.changing:
            reconnect(host, links, self.factory)
            made = [link for link in links if link.held.made]
            for link in made:
                if not link.plugged:
                    link.set_up(False)
            self.part_again()
        self._announce(*(intf for link in made for intf in (link.intf1, link.intf2)))

    def start(self) -> None:
        """See Mininet. Raises ``RunError`` for a container that did not come up; ``stop`` removes what exists."""
        self.wait_up()
        super().start()
        self._started = True
        self._announce()

    def interact(self) -> None:
        """See Mininet; the command line has the commands of docs/containernet.md."""
        self.start()
        CommandLine(self)
        self.stop()

    def on_event(self, handler: EventHandler) -> None:
        """Call ``handler`` from another thread when a port goes down or the link emulator dies."""
        self._handlers.append(handler)

    def _event(self, kind: str, text: str) -> None:
        for handler in list(self._handlers):
            handler(kind, text)

    # --- the end -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take everything down, side by side. Idempotent; may be called at any time, also after a start cut short.

        Resources that are gone already are tolerated. Every step runs; then ``RunError`` names what could not be
        removed, ``EngineGoneError`` the containers of an ended engine, whose processes are ended in any case.
        The work is done on threads, so a ``KeyboardInterrupt`` here does not cut it short: it is raised at the end.
        """
        interrupt: BaseException | None = None
        while True:
            try:
                # Not Thread.join: when interrupted, it treats the thread as ended (bpo-45274 in CPython up to 3.12).
                done = clock.Event()
                try:
                    clock.Thread(target=self._stop_once, args=(done,), name="tear-down").start()
                except RuntimeError:  # no thread can be started
                    self._stop_once(done)
                done.wait()
                break
            except BaseException as raised:  # noqa: BLE001 - raised below, when nothing is left behind
                # The next round waits for the thread that may have been started, by its lock.
                interrupt = raised
        if self._stopped:
            atexit.unregister(self._stop_at_exit)
        if interrupt is not None:
            raise interrupt
        if self._problems:
            raise tear_down_error(self._problems)

    def _stop_once(self, done: clock.Event) -> None:
        try:
            with self._stop_lock:
                if not self._stopped:
                    self._problems = []
                    self._tear_down(self._problems)
                    self._stopped = not self._problems
        finally:
            done.set()

    def _tear_down(self, problems: list[tuple[str, Exception]]) -> None:
        self.context.closing.set()
        attempt("captures", self.stop_captures, problems)
        steps: list[tuple[str, Callable[[], None]]] = [(host.name, host.terminate) for host in self.hosts]
        steps += [(node.name, node.terminate) for node in (*self.switches, *self.controllers)]
        steps.append(("links", self.factory.close))
        # The links first: they do not need the engine, in which hosts wait for each other.
        side_by_side(lambda step: attempt(*step, problems), steps[::-1], engine.PARALLEL + 1)
        self._pool.shutdown(wait=True, cancel_futures=True)
        for host in self._dockers():
            attempt(host.name, host.wait_gone, problems)
        if self._had_containers:
            attempt(CONTAINERS, lambda: remove_containers(self.run_id), problems)
        if self.terms:
            attempt("terminals", self.stopXterms, problems)

    def _stop_at_exit(self) -> None:
        reported = self._problems
        try:
            self.stop()  # on this thread: none can be started while Python exits
        except RunError as failure:
            if not reported or str(failure) != str(tear_down_error(reported)):
                error(f"*** {failure}\n")

    def __enter__(self) -> Containernet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _given(keywords: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keywords.items() if value is not None}


def _address(where: str, text: str, prefix_length: int | None = None) -> tuple[str, int]:
    """``parse_address``, with ``where`` in its errors."""
    try:
        return parse_address(text, prefix_length)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _configure(host: Any, addresses: bool) -> None:
    """Mininet's ``configDefault``, which would forget the addresses of a host that has no interface yet."""
    left_out = {} if addresses else {"ip": None, "mac": None}
    host.config(**{**host.params, **left_out})


guard_stock_command_line(Containernet)


class BuiltinNetwork(Containernet, TestbedNetwork):
    """The network of ``--engine builtin``."""

    backend_name = "builtin"
    backend_version = f"Mininet {VERSION}"
    backend_commit = None
    hosts_kind = "docker"

    @property
    def link_backend(self) -> str:
        return DESCRIPTIONS[self.switches_kind]

    def add_host(self, plan: HostPlan, image: str, command: Sequence[str]) -> Docker:
        return self.addDocker(
            plan.name,
            ip=f"{plan.ip}/{plan.prefix_length}",
            dimage=image,
            dcmd=list(command),
            **planned_options(plan),
            cpuset_cpus=",".join(map(str, plan.cpuset)) or None,
            cap_drop=["ALL"],
            logs=True,
        )

    def add_switch(self, name: str) -> None:
        self.addSwitch(name)

    def add_link(self, node1: str, node2: str, spec: LinkSpec) -> None:
        self._join(self._node(node1), self._node(node2), spec, route=False)  # see set_routes

    def link_backend_log(self) -> str | None:
        return self.factory.emulator.log if self.factory.emulator.hello else None

    def link_backend_answers(self, timeout_s: float) -> bool:
        return self.factory.emulator.answers(timeout_s)

    def link_backend_facts(self) -> Mapping[str, Any]:
        return self.factory.emulator.hello
