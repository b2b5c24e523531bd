"""Changes while a network runs, and what its links saw: on both kinds of links, with plain Mininet hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.containernet.network import Containernet
from containernet_env.containernet.shell import run_command
from containernet_env.hosts import netns
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.model.link import DirectionSpec, IndependentLoss, Jitter
from containernet_env.network.kernel import part_lines
from tests.deadline import eventually
from tests.root.network import NETWORKS, PLAIN_HOSTS, answers, apart, keywords_of, needs_emulator, reach, star

pytestmark = PLAIN_HOSTS

MS, MBIT = 1_000_000, 1_000_000


@pytest.fixture(params=NETWORKS)
def net(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Containernet]:
    """Three hosts on a switch at 100 Mbit/s."""
    with star(request.param, monkeypatch, bw=100) as network:
        yield network


@pytest.fixture
def emulated_net(monkeypatch: pytest.MonkeyPatch) -> Iterator[Containernet]:
    with star("emulator", monkeypatch, bw=100) as network:
        yield network


@lru_cache(maxsize=1)
def kernel_can_part() -> bool:
    """Whether this kernel has what a partition without the emulator needs."""
    with ThrowawayNamespace() as namespace:
        lines = "\n".join(part_lines("lo", ["02:00:00:00:00:01"]))
        return netns.run(namespace.pid, ["tc", "-batch", "-"], input=f"{lines}\n", check=False).returncode == 0


def test_the_rate_changes_in_both_directions_or_one(net: Containernet) -> None:
    first_ns = net.set_rate("h1", "s1", 50)
    held = net.link_between("h1", "s1").read_back()
    assert (held.a_to_b.rate_bps, held.b_to_a.rate_bps) == (50 * MBIT, 50 * MBIT)
    assert net.set_rate("s1", "h1", 10, one_way=True) > first_ns
    held = net.link_between("h1", "s1").read_back()
    assert (held.a_to_b.rate_bps, held.b_to_a.rate_bps) == (50 * MBIT, 10 * MBIT)
    net.set_rate("h1", "s1", None)
    assert net.link_between("h1", "s1").read_back().a_to_b.rate_bps is None
    assert reach(*net.hosts)


def test_a_partition_and_its_end(net: Containernet) -> None:
    if net.links_kind != "emulator" and not kernel_can_part():
        pytest.skip("this kernel has no cls_u32 or no act_gact")
    h1, h2, h3 = net.hosts
    assert reach(*net.hosts)
    parted_ns = net.partition([["h1"], ["h2", h3]])
    assert reach(h2, h3)
    assert apart(h1, h2)
    assert apart(h3, h1)
    net.partition([["h1", "h3"], ["h2"]])  # in place of the first
    assert reach(h1, h3)
    assert apart(h2, h3)
    net.partition([["h1"], ["h2"]])  # h3 is in no set
    assert reach(h1, h3)
    assert reach(h2, h3)
    assert apart(h1, h2)
    net.removeLink(node1="h1", node2="s1")
    net.addLink("h1", "s1")  # which is parted like the one before
    assert reach(h1, h3)
    assert apart(h1, h2)
    assert net.heal() > parted_ns
    assert reach(*net.hosts)
    net.heal()
    net.partition([["h1"], ["h2"]])
    net.removeHost("h2")
    assert net.parted == ()
    assert reach(h1, h3)


def test_neighbours_find_an_address_that_moved_though_it_sends_nothing(net: Containernet) -> None:
    """They needed 9 to 49 s: until the kernel had doubts about an entry, asked for it and got no answer."""
    h1, h2, _ = net.hosts
    assert reach(h1, h2)

    def known(mac: str) -> bool:
        shown = netns.run(h2.pid, ["ip", "neighbour", "show", h1.IP()]).stdout
        return f"lladdr {mac} " in shown

    h1.setMAC("02:00:00:00:00:42")
    eventually(lambda: known("02:00:00:00:00:42"), "h2 knows the new address of h1")
    net.removeLink(node1="h1", node2="s1")
    net.addSwitch("s2")
    net.addLink("s1", "s2")
    link = net.addLink("h1", "s2", addr1="02:00:00:00:00:43")
    assert link.name == "h1-s2"
    eventually(lambda: known("02:00:00:00:00:43"), "h2 knows where h1 is now")
    assert reach(*net.hosts)
    net.removeHost("h1")
    net.addLink(net.addHost("h1", ip=h1.params["ip"]), "s1", addr1="02:00:00:00:00:43")
    assert reach(*net.hosts)


@needs_emulator
@pytest.mark.parametrize("between", ["router", "bridge"])
def test_a_partition_of_one_network_that_a_host_forwards_in(between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have addresses of one network, but nothing between them is a switch."""
    with Containernet(controller=None, **keywords_of("emulator", monkeypatch)) as net:
        h1, h2, middle = net.addHost("h1"), net.addHost("h2"), net.addHost("m")
        net.addLink(h1, middle)
        net.addLink(h2, middle, params2={"ip": "10.0.0.4/8"})
        net.start()
        net.partition([["h1"], ["h2"]])  # nothing forwards yet
        net.heal()
        if between == "router":
            ends = zip((h1, h2), (middle.IP(), "10.0.0.4"), middle.intfs.values(), strict=True)
            for (host, gateway, own), other in zip(ends, (h2, h1), strict=True):
                netns.ip_batch(host.pid, [f"route add {other.IP()} via {gateway}"])
                netns.ip_batch(middle.pid, [f"route add {host.IP()} dev {own.name}"])
            netns.run(middle.pid, ["sysctl", "-w", "net.ipv4.ip_forward=1"])
        else:
            ports = [f"link set dev {own.name} master br0" for own in middle.intfs.values()]
            netns.ip_batch(middle.pid, ["link add br0 type bridge", *ports, "link set dev br0 up"])
        assert reach(h1, h2)
        with pytest.raises(UsageError, match="h1 reaches h2 through m, which is in no set"):
            net.partition([["h1"], ["h2"]])
        net.partition([["h1", "m"], ["h2"]])
        assert apart(h1, h2)


@needs_emulator
def test_every_parameter_changes_and_the_others_stay(emulated_net: Containernet) -> None:
    net = emulated_net
    net.set_delay("h1", "s1", "10ms")
    jitter = Jitter("normal", MS, correlation_ns=20 * MS)
    net.set_jitter("h1", "s1", jitter, one_way=True)
    net.set_loss("s1", "h1", 0.25, one_way=True)
    net.change_link("h1", "s1", queue_bytes=50_000, seed=5)
    link = net.link_between("s1", "h1")
    wanted = DirectionSpec(10 * MS, 100 * MBIT, None, 50_000, jitter, None, 5, uplink="host")
    assert link.read_back().a_to_b == wanted
    assert link.read_back().b_to_a == DirectionSpec(10 * MS, 100 * MBIT, None, 50_000, None, IndependentLoss(0.25), 5)
    net.set_loss("h1", "s1", 0)
    assert link.read_back().b_to_a.loss is None


MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda net: net.set_delay("h1", "h2", "10ms"), "no link between"),
    (lambda net: net.set_delay("h9", "s1", "10ms"), "no node called 'h9'"),
    (lambda net: net.set_delay("h1", "s1", "10"), "with its unit"),
    (lambda net: net.set_rate("h1", "s1", 0), "rate_bps must be"),
    (lambda net: net.change_link("h1", "s1", dealy_ns=5), "dealy_ns"),
    (lambda net: net.partition([["h1"]]), "two or more sets"),
    (lambda net: net.partition([["h1"], []]), "two or more sets"),
    (lambda net: net.partition([["h1"], ["h1", "h2"]]), "h1 is in the partition twice"),
    (lambda net: net.partition([["h1"], ["s1"]]), "h1 is in the partition twice"),  # s1 stands for all its hosts
    (lambda net: net.partition([["h1"], ["s9"]]), "there is no node called 's9'"),
]


def test_mistakes_are_errors_and_change_nothing(net: Containernet) -> None:
    for change, words in MISTAKES:
        with pytest.raises(UsageError, match=words):
            change(net)
        assert net.link_between("h1", "s1").read_back().a_to_b.rate_bps == 100 * MBIT
    assert reach(*net.hosts)


def test_what_the_links_saw(net: Containernet) -> None:
    h1, h2, h3 = net.hosts
    for _ in range(10):
        assert reach(h1, h2)
    seen = net.link_statistics(reset=True)
    assert set(seen["links"]) == {"h1-s1", "h2-s1", "h3-s1"}
    for side in ("a_to_b", "b_to_a"):
        assert seen["links"]["h1-s1"][side]["frames"] >= 10
        assert seen["links"]["h1-s1"][side]["bytes"] >= 10 * 42
    reset_ns = seen["at_ns"]
    assert reach(h2, h3)
    seen = net.link_statistics()
    assert seen["at_ns"] > reset_ns
    assert seen["links"]["h2-s1"]["a_to_b"]["frames"] >= 2
    # Not what came before; but the kernel may look for a neighbour or a router just then.
    assert seen["links"]["h1-s1"]["a_to_b"]["frames"] < 5


def test_the_mtu_of_hosts_holds_on_the_way_too(net: Containernet, capsys: pytest.CaptureFixture[str]) -> None:
    """`ifconfig("mtu 9000")` was accepted, and frames above 1518 bytes vanished."""
    h1, h2, _ = net.hosts
    net.addSwitch("s2")
    net.addLink("s1", "s2")
    h4 = net.addHost("h4", ip="10.0.0.4")
    net.addLink(h4, "s2")
    for host in (h1, h2, h4):
        host.intf().ifconfig("mtu 9000")
    for host in (h2, h4):
        assert answers(h1.pid, host.pid, host.IP(), bytes(9000 - 28))
    assert run_command(net, "links") == 0
    said = capsys.readouterr().out
    assert "mtu of h1: 9000" in said and "mtu of s" not in said
    with pytest.raises(UsageError, match=r"mtu '9'; allowed: 68 to 65521"):
        h1.intf().ifconfig("mtu 9")


@needs_emulator
def test_every_frame_is_accounted_for(emulated_net: Containernet) -> None:
    net = emulated_net
    h1, h2, h3 = net.hosts
    assert reach(h1, h2, h3)  # their addresses are known before anything is lost
    net.set_loss("h2", "s1", 0.5)
    for _ in range(6):  # no frame of these is lost less than once in 1e6 times: 24 cross it at least
        assert reach(h1, h2, h3)
    seen = net.link_statistics()
    for link in seen["links"].values():
        for side in (link["a_to_b"], link["b_to_a"]):
            assert side["offered"] == side["frames"] + sum(side["drops"].values()) + side["in_flight"]
    assert sum(seen["links"]["h2-s1"][side]["drops"]["loss"] for side in ("a_to_b", "b_to_a")) > 0
    for name, port in seen["ports"].items():
        link = seen["links"][name.replace("-eth0", "-s1")]
        assert port["received_frames"] == link["a_to_b"]["offered"] + sum(port["drops"].values())
        assert port["sent_frames"] == link["b_to_a"]["frames"]
    switch = seen["switches"]["s1"]
    assert switch["forwarded"] + switch["flooded"] + switch["filtered"] + switch["invalid_source"] == sum(
        link["a_to_b"]["frames"] for link in seen["links"].values()
    )


@needs_emulator
def test_more_hosts_reach_each_other_than_the_kernel_resolves_neighbours_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 40 hosts, 540 of 1,600 pings were lost: the kernel has 1024 entries for all namespaces together by default.

    33 hosts that all talk to each other pass it.
    """
    keywords: dict[str, Any] = keywords_of("emulator", monkeypatch)
    monkeypatch.setattr(netns, "read_sysctl", lambda pid, name: "1024")
    with Containernet(controller=None, **keywords) as net:
        net.addSwitch("s1")

        def add(number: int) -> Any:
            host = net.addHost(f"h{number}")
            net.addLink(host, "s1")
            return host

        hosts = [add(number) for number in range(23)]
        net.start()
        assert permanent(hosts[0].pid) == []
        hosts.append(add(24))
        assert {len(permanent(host.pid)) for host in hosts} == {23}
        hosts += [add(number) for number in range(25, 34)]
        hosts[0].setIP("10.0.0.99/8")
        entries = [line.split()[0] for line in permanent(hosts[-1].pid)]
        assert len(entries) == 33 and "10.0.0.99" in entries  # what has gone stays, and does no harm
        assert all(reach(hosts[0], other) for other in hosts[1:]) and all(reach(*pair) for pair in pairwise(hosts))
        for host in hosts:  # the kernel resolved none
            held = netns.run(host.pid, ["ip", "-4", "neighbour", "show", "nud", "all"]).stdout.splitlines()
            assert all("PERMANENT" in line or "NOARP" in line for line in held), held


def permanent(pid: int, *interface: str) -> list[str]:
    """The neighbours in that namespace, or at an interface of it, that were entered for good."""
    at = [word for name in interface for word in ("dev", name)]
    return netns.run(pid, ["ip", "neighbour", "show", *at, "nud", "permanent"]).stdout.splitlines()


@pytest.mark.parametrize("kind", [pytest.param("emulator", marks=needs_emulator), "bridge"])
def test_a_scripts_static_neighbours_and_addresses(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keywords: dict[str, Any] = keywords_of(kind, monkeypatch)
    with Containernet(controller=None, autoSetMacs=True, autoStaticArp=True, **keywords) as net:
        net.addSwitch("s1")
        net.addSwitch("s2")
        hosts = [net.addHost(name) for name in ("h1", "h2", "h3")]
        ends = [net.addLink(host, "s1").intf1 for host in hosts]
        for n, host in enumerate(hosts[:2], 1):
            ends.append(net.addLink(host, "s2", params1={"ip": f"192.168.1.{n}/24"}).intf1)
        loose = net.addHost("h4")
        net.start()
        for end in ends:
            entries = sorted((words[0], words[-2]) for words in map(str.split, permanent(end.node.pid, end.name)))
            others = ends[:3] if end in ends[:3] else ends[3:]
            assert entries == [(other.IP(), other.MAC()) for other in others if other is not end]
        # The kernel forgets them when their interface goes down.
        for down, up in (
            (lambda: net.link_down("h1", "s1"), lambda: net.link_up("h1", "s1")),
            (lambda: hosts[0].intf().ifconfig("down"), lambda: hosts[0].intf().ifconfig("up")),
        ):
            down()
            up()
            assert len(permanent(hosts[0].pid)) == 3
        assert [host.MAC() for host in hosts] == [f"00:00:00:00:00:0{n}" for n in (1, 2, 3)]
        assert loose.intfs == {}
        hosts[2].terminate()
        net.staticArp()  # one that has ended is left out
        assert len(permanent(hosts[0].pid)) == 3
