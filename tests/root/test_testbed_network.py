"""Neighbours of hosts in networks of plain Mininet hosts: entered for good where the kernel would not hold them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from containernet_env.containernet.network import Containernet
from containernet_env.hosts import netns
from tests.root.network import PLAIN_HOSTS, keywords_of, needs_emulator, reach

pytestmark = PLAIN_HOSTS


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
