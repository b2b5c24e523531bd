"""The testbed's network on plain Mininet hosts: what a run does between its containers and its cluster."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from containernet_env.config.plan import PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.topologies import load_config
from containernet_env.containernet.network import Containernet
from containernet_env.hosts import netns
from containernet_env.model.link import LinkSpec
from containernet_env.runs.progress import Silent
from containernet_env.runs.testbed import Testbed
from containernet_env.setup.images import Images
from tests.root.network import PLAIN_HOSTS, keywords_of, needs_emulator, reach

pytestmark = PLAIN_HOSTS

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "3node-3ms.json"


class PlainHosts(Testbed):
    """A testbed whose hosts are no containers."""

    def _start_hosts(self) -> None:
        for plan in self.plan.hosts:
            self.hosts[plan.name] = self.net.addHost(plan.name, ip=f"{plan.ip}/{plan.prefix_length}")

    def gone(self, names: Any = None) -> str | None:
        return self.failure  # no shell reports its end


@needs_emulator
def test_more_hosts_reach_each_other_than_the_kernel_resolves_neighbours_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's bound is 1024 entries for all namespaces together: 33 hosts that all talk to each other pass it."""
    config = load_config(CONFIG)
    member = replace(config.nodes[0], link=LinkSpec.symmetric(3_000_000, 10**9))
    nodes = tuple(replace(member, name=f"etcd{n}", ip=IPv4Address(f"10.0.0.{n}")) for n in range(1, 34))
    kinds: Any = keywords_of("emulator", monkeypatch)
    plan = build_plan(replace(config, nodes=nodes), None, PlanOptions(machine_cores=2, run_id="tstbed", **kinds))
    testbed = PlainHosts(plan, Images(member="none", benchmark="none"), Silent())
    try:
        testbed._start_hosts()
        testbed._connect()
        first, *others = testbed.hosts.values()
        assert all(reach(first, other) for other in others)
        assert all(reach(*pair) for pair in pairwise(others))
        assert sum(resolved(host.pid) for host in testbed.hosts.values()) == 0
        for host in testbed.hosts.values():
            assert len(permanent(host.pid)) == len(others), host.name
    finally:
        testbed.down()


@needs_emulator
def test_a_script_with_many_hosts_loses_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 40 hosts, 540 of 1,600 pings were lost: the kernel's table of neighbours was full."""
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
        hosts.append(add(25))
        hosts[0].setIP("10.0.0.99/8")
        entries = [line.split()[0] for line in permanent(hosts[-1].pid)]
        assert len(entries) == 25 and "10.0.0.99" in entries  # what has gone stays, and does no harm
        assert reach(hosts[0], hosts[-1])


def permanent(pid: int) -> list[str]:
    """The neighbours in that namespace that were entered for good."""
    return netns.run(pid, ["ip", "neighbour", "show", "nud", "permanent"]).stdout.splitlines()


def resolved(pid: int) -> int:
    """How many neighbours the kernel holds in that namespace that are not permanent."""
    shown = netns.run(pid, ["ip", "-4", "neighbour", "show", "nud", "all"]).stdout
    return sum("PERMANENT" not in line and "NOARP" not in line for line in shown.splitlines())


@pytest.mark.parametrize("kind", [pytest.param("emulator", marks=needs_emulator), "bridge"])
def test_a_scripts_static_neighbours_and_addresses(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keywords: dict[str, Any] = keywords_of(kind, monkeypatch)
    with Containernet(controller=None, autoSetMacs=True, autoStaticArp=True, **keywords) as net:
        net.addSwitch("s1")
        hosts = [net.addHost(name) for name in ("h1", "h2", "h3")]
        for host in hosts:
            net.addLink(host, "s1")
        loose = net.addHost("h4")
        net.start()
        for host in hosts:
            entries = sorted((words[0], words[-2]) for words in map(str.split, permanent(host.pid)))
            assert entries == [(other.IP(), other.MAC()) for other in hosts if other is not host]
        # The kernel forgets them when their interface goes down.
        for down, up in (
            (lambda: net.link_down("h1", "s1"), lambda: net.link_up("h1", "s1")),
            (lambda: hosts[0].intf().ifconfig("down"), lambda: hosts[0].intf().ifconfig("up")),
        ):
            down()
            up()
            assert len(permanent(hosts[0].pid)) == 2
        assert [host.MAC() for host in hosts] == [f"00:00:00:00:00:0{n}" for n in (1, 2, 3)]
        assert loose.intfs == {}
