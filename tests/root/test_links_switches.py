"""Whole networks of plain Mininet hosts, on every kind of switches: no engine is needed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from itertools import combinations
from typing import Any

import pytest
from mininet.link import TCLink
from mininet.node import Controller, Host, OVSSwitch
from mininet.topo import Topo

from containernet_env.base.errors import RunError, UsageError
from containernet_env.containernet.network import Containernet
from containernet_env.hosts import netns
from containernet_env.model.link import Link, LinkSpec
from containernet_env.model.topology import Host as ModelHost
from containernet_env.model.topology import Topology
from containernet_env.network import switches
from tests.deadline import eventually
from tests.root.network import (
    NETWORKS,
    PLAIN_HOSTS,
    apart,
    check_not_early,
    echoes,
    has_netem,
    keywords_of,
    machine_interfaces,
    needs_emulator,
    reach,
)

pytestmark = PLAIN_HOSTS


@pytest.fixture(params=NETWORKS)
def net(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Containernet]:
    before = machine_interfaces()
    with Containernet(controller=Controller, **keywords_of(request.param, monkeypatch)) as network:
        assert network.switches_kind == request.param
        yield network
    assert machine_interfaces() == before
    assert switches.list_ours() == []


def test_two_switches_and_their_names(net: Containernet) -> None:
    net.addController("c0")
    long = net.addHost("a-host-whose-name-is-longer-than-any-interface-name")
    h2 = net.addHost("h2", ip="10.0.0.7/8")
    s1, s2 = net.addSwitch("s1"), net.addSwitch("core", cls=OVSSwitch)
    net.addLink(long, s1, bw=100)
    net.addLink("s1", "core", cls=TCLink, bw=50)
    net.addLink(h2, s2)
    net.start()
    assert reach(*net.hosts)
    for link in net.links:
        for intf in (link.intf1, link.intf2):
            assert intf.name.startswith(net.run_id)
            assert len(intf.name) <= 15
            assert intf.status() == "OK"
    assert h2.intf("h2-eth0") is h2.defaultIntf()
    assert netns.run(h2.pid, ["ip", "link", "show", "dev", "h2-eth0"]).returncode == 0
    assert h2.defaultIntf().updateIP() == "10.0.0.7"
    assert net.links[1].read_back().a_to_b.rate_bps == 50_000_000


def test_the_cable_and_the_switch(net: Containernet) -> None:
    hosts = [net.addHost(f"h{number}") for number in (1, 2, 3)]
    s1 = net.addSwitch("s1")
    for host in hosts:
        net.addLink(host, s1)
    net.start()
    assert reach(*hosts)
    down_ns = net.link_down("h1", "s1")
    assert reach(*hosts[1:])
    assert apart(*hosts[:2])
    assert net.link_up("h1", "s1") > down_ns
    assert reach(*hosts[:2])
    s1.stop()
    assert apart(*hosts[:2])
    s1.start([])
    assert reach(*hosts[:2])


def test_links_hold_their_spec_whatever_becomes_of_their_switch(net: Containernet) -> None:
    # Open vSwitch takes the queueing discipline off an interface that becomes a port of its.
    s1, s2 = net.addSwitch("s1"), net.addSwitch("s2")
    for number, switch in ((1, s1), (2, s2), (3, s1)):
        net.addLink(net.addHost(f"h{number}"), switch, bw=20 * number)
    net.addLink(s1, s2, bw=80)
    net.start()
    s1.stop()
    s1.start([])
    net.configLinkStatus("h2", "s2", "down")
    net.configLinkStatus("h2", "s2", "up")
    net.addLink(net.addHost("h4"), s2, bw=100)
    assert reach(*net.hosts)
    held = [link.read_back() for link in net.links]
    rates = [mbps * 10**6 for mbps in (20, 40, 60, 80, 100)]
    assert [(spec.a_to_b.rate_bps, spec.b_to_a.rate_bps) for spec in held] == [(rate, rate) for rate in rates]


def test_rtts_through_a_switch_are_no_shorter_than_configured(net: Containernet) -> None:
    if net.links_kind == "netem" and not has_netem():
        pytest.skip("this kernel has no netem")
    net.addSwitch("s1")
    for number in (1, 2, 3):
        net.addLink(net.addHost(f"h{number}"), "s1", delay="3ms", bw=1000)
    net.start()
    assert reach(*net.hosts)
    for one, other in combinations(net.hosts, 2):
        check_not_early(one.pid, other.IP(), 12_000_000)


class Router(Host):
    """As Mininet's examples have it."""

    def config(self, **params: Any) -> Any:
        result = super().config(**params)
        self.cmd("sysctl net.ipv4.ip_forward=1")
        return result


def test_a_triangle_of_switches_and_a_router(net: Containernet) -> None:
    one, two, three = (net.addSwitch(f"s{number}") for number in (1, 2, 3))
    if net.links_kind == "netem":
        net.addLink(one, two)
        net.addLink(two, three)
        with pytest.raises(UsageError, match="would close a loop of switches, which netem cannot have"):
            net.addLink(three, one)
        return
    net.addLink(one, two, delay="1ms")
    net.addLink(two, three, delay="2ms")
    net.addLink(three, one, delay="30ms")
    ways = {"h1": (one, 1), "h2": (three, 1), "h3": (two, 2), "h4": (three, 2)}
    for name, (switch, subnet) in ways.items():
        address = {"ip": f"10.0.{subnet}.1{name[1]}/24", "defaultRoute": f"via 10.0.{subnet}.1"}
        net.addLink(net.addHost(name, **address), switch)
    router = net.addHost("r0", cls=Router, ip="10.0.1.1/24")
    net.addLink(router, one, params1={"ip": "10.0.1.1/24"})
    net.addLink(router, two, params1={"ip": "10.0.2.1/24"})
    net.start()
    assert reach(*net.hosts)
    h1, h2, h3, h4 = (net[name] for name in ways)
    for other, least_ns in ((h2, 6_000_000), (h3, 0), (h4, 4_000_000)):
        check_not_early(h1.pid, other.IP(), least_ns)
    assert [switch.get("no_route") for switch in net.link_statistics()["switches"].values()] == [0, 0, 0]
    net.removeLink(node1=one, node2=two)
    assert reach(h1, h2, h3, h4)
    check_not_early(h1.pid, h2.IP(), 60_000_000)


def test_frames_take_another_way_while_a_link_is_down(net: Containernet) -> None:
    if net.links_kind == "netem":
        pytest.skip("links by netem cannot close a loop")
    ends = (("s1", "s2", 1), ("s2", "s3", 2), ("s3", "s1", 30))
    h1, h2, h3 = hosts = [net.addHost(f"h{number}") for number in (1, 2, 3)]
    for number in (1, 2, 3):
        net.addLink(f"h{number}", net.addSwitch(f"s{number}"))
    for a, b, delay_ms in ends:
        net.addLink(a, b, delay=f"{delay_ms}ms")
    made = [Link(host.name, f"s{host.name[1]}", LinkSpec()) for host in hosts]
    made += [Link(a, b, LinkSpec.symmetric(delay_ms * 10**6)) for a, b, delay_ms in ends]
    members = [ModelHost(host.name, "member", IPv4Address(host.IP()), 8) for host in hosts]
    topology = Topology(members, ["s1", "s2", "s3"], made, reroutes=True)
    net.set_routes(topology.routes(), topology.routes)
    net.start()
    assert reach(*hosts)
    direct = min(echoes(h1.pid, h2.IP()))
    net.configLinkStatus("s1", "s2", "down")
    assert reach(*hosts)
    check_not_early(h1.pid, h2.IP(), 2 * 32_000_000)
    net.link_down("s2", "s3")
    assert apart(h1, h2) and reach(h1, h3), "s2 is alone"
    net.link_up("s1", "s2")
    assert reach(*hosts)
    check_not_early(h2.pid, h3.IP(), 2 * 31_000_000)
    net.link_up("s2", "s3")
    assert reach(*hosts) and direct >= 2_000_000
    lost = net.link_statistics()["links"]["s1-s2"]["a_to_b"]["drops"]["down"]
    assert lost >= 10, "without another path, datagrams take the best one, over a link that is down"


def test_links_come_and_go_while_it_runs(net: Containernet) -> None:
    h1, s1 = net.addHost("h1"), net.addSwitch("s1")
    net.addLink(h1, s1)
    net.start()
    h2 = net.addHost("h2")
    net.addLink(h2, s1, params1={"ip": "10.0.0.9/8"})
    assert h2.IP() == "10.0.0.9"
    assert reach(h1, h2)
    h3 = net.addHost("h3")
    net.addLink(s1, h3)  # no address given: the host's own
    assert reach(h1, h3)
    net.removeLink(node1="h2", node2="s1")
    assert h2.intfs == {}
    net.addLink(h2, s1)
    assert reach(h1, h2)
    net.delHost(h2)
    assert "h2" not in net
    assert reach(h1, h3)


def test_an_address_is_its_hosts_until_that_has_another(net: Containernet) -> None:
    """The address before `setIP` stayed taken, the new one could be given again; Mininet's own count gave h3 h2's."""
    net.addSwitch("s1")
    for name, given in (("h1", {}), ("h2", {"ip": "10.0.0.3"}), ("h3", {})):
        net.addLink(net.addHost(name, **given), "s1")
    net.start()
    assert [host.IP() for host in net.hosts] == ["10.0.0.1", "10.0.0.3", "10.0.0.4"]
    net["h1"].setIP("10.0.0.9/8")
    with pytest.raises(UsageError, match=r"the address 10\.0\.0\.9 is h1's already"):
        net.addHost("h4", ip="10.0.0.9")
    net.addLink(net.addHost("h4", ip="10.0.0.1"), "s1")
    assert reach(*net.hosts)


def test_a_topology_object(net: Containernet) -> None:
    class Pair(Topo):
        def build(self, **_options: Any) -> None:
            self.addSwitch("s1")
            for name in ("h1", "h2"):
                self.addHost(name)
                self.addLink(name, "s1", bw=10)

    net.topo = Pair()
    net.start()
    assert reach(*net.hosts)


MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda net: net.addLink("h1", "s1", dealy="3ms"), "did you mean delay"),
    (lambda net: net.addLink("h1", "s9"), "no node called 's9'"),
    (lambda net: net.addLink("h1", "h1"), "itself"),
    (lambda net: net.addLink("h1", "s1", cls=int), "not offered"),
    (lambda net: net.addLink("h1", "s1", params1={"ip": "10.0.0.999/8"}), "not an IPv4 address"),
    (
        lambda net: net.addLink("h1", "s1", params1={"ip": "fd00::1/64"}),
        "link h1-s1, h1: 'fd00::1/64' is an IPv6 address",
    ),
    (lambda net: net.addHost("h9", ip="fd00::1/64"), "host h9: 'fd00::1/64' is an IPv6 address"),
    (lambda net: net.addHost("h9", ip="fd00::1"), "host h9: 'fd00::1' is an IPv6 address"),
    (lambda net: net.addHost("h9", ip="10.0.0.999"), "host h9: '10.0.0.999' is not an IPv4 address"),
    (lambda net: type(net)(ipBase="fd00::/64"), "ipBase: 'fd00::/64' is an IPv6 address"),
    (
        lambda net: net.addLink("s1", "h1", params2={"ip": "10.0.0.2/8"}),
        r"link s1-h1, h1: .* 10\.0\.0\.2 is h2's already",
    ),
    (
        lambda net: net.addLink("h1", "h2", params1={"ip": "10.0.0.3/8"}, params2={"ip": "10.0.0.3/8"}),
        "is h1's already",
    ),
    (lambda net: net.addHost("h1"), "two nodes"),
    (lambda net: net.addSwitch("h1"), "two nodes"),
    (lambda net: net.addHost("h9", ip="10.0.0.1/8"), "is h1's already"),
    (lambda net: net.addSwitch("s9", stp=True), "unknown keyword stp"),
    (lambda net: net.addSwitch("s9", cls=int), "not a switch class"),
    (lambda net: net.set_link_up("h1", "s2", True), "no link between"),
]


def test_mistakes_are_errors_and_leave_nothing(net: Containernet) -> None:
    net.addHost("h1", ip="10.0.0.1/8")
    net.addLink(net.addSwitch("s1"), net.addSwitch("s2"))
    net.addLink(net.addHost("h2", ip="10.0.0.2/8"), "s2")
    for change, words in MISTAKES:
        with pytest.raises(UsageError, match=words):
            change(net)
        assert len(net.links) == 2
    net.addLink("h1", "s1")
    net.addLink("h1", "s2", params1={"ip": "10.0.0.1/8"})
    net.start()


def test_stopping_twice_and_then_using_it(net: Containernet) -> None:
    net.addHost("h1")
    net.stop()
    net.stop()
    with pytest.raises(UsageError, match="stopped"):
        net.addHost("h2")


@needs_emulator
def test_the_death_of_the_emulator_is_reported_at_once() -> None:
    heard: list[tuple[str, str]] = []
    with Containernet(links="emulator") as net:
        net.on_event(lambda kind, text: heard.append((kind, text)))
        h1, s1 = net.addHost("h1"), net.addSwitch("s1")
        net.addLink(h1, s1)
        os.kill(net.factory.emulator.pid, signal.SIGKILL)
        eventually(lambda: any(kind == "emulator_died" for kind, _ in heard), "the event")
        with pytest.raises(RunError, match="it has ended"):
            net.addSwitch("s2")


@needs_emulator
def test_a_host_that_ends_takes_its_link_along_and_nothing_else() -> None:
    heard: list[tuple[str, str]] = []
    with Containernet(links="emulator") as net:
        net.on_event(lambda kind, text: heard.append((kind, text)))
        hosts = [net.addHost(f"h{number}") for number in (1, 2, 3)]
        s1 = net.addSwitch("s1")
        for host in hosts:
            net.addLink(host, s1, delay="1ms")
        net.start()
        hosts[0].terminate()
        eventually(
            lambda: any(kind == "port_down" and text.startswith("h1-eth0:") for kind, text in heard), "the event"
        )
        assert reach(*hosts[1:])
