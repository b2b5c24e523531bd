"""Open vSwitch: what is ours in its database, and what becomes of it when its run was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts import owner
from containernet_env.network import factory, switches
from tests.root.network import machine_interfaces, needs_ovs, needs_root

pytestmark = [pytest.mark.root, needs_root, needs_ovs]

# Two switches: their link has both ends in the machine's own namespace, where nothing takes it along.
NETWORK = """
from containernet_env.containernet.network import Containernet
net = Containernet(links="netem", switches="ovs", run_id="0b0b0b", controller=None)
net.addSwitch("s1"), net.addSwitch("s2"), net.addHost("h1")
net.addLink("s1", "s2"), net.addLink("h1", "s1")
net.start()
print("up", flush=True)
input()
"""


@pytest.fixture(autouse=True)
def unchanged_machine() -> Iterator[None]:
    before = machine_interfaces(), switches.vsctl("list-br")
    yield
    assert (machine_interfaces(), switches.vsctl("list-br")) == before


def test_what_a_killed_network_left_is_removed_and_nothing_else() -> None:
    switches.vsctl("add-br", "theirs0")
    try:
        with subprocess.Popen(
            [sys.executable, "-c", NETWORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as driver:
            try:
                assert driver.stdout.readline() == b"up\n"
                bridges = [bridge.name for bridge in switches.list_ours()]
                assert len(bridges) == 2
                assert factory.remove_bridges() == ()  # in use
            finally:
                os.killpg(driver.pid, signal.SIGKILL)
        assert factory.remove_bridges() == tuple(f"bridge {name}" for name in bridges)
        assert not [name for name in machine_interfaces() if name.startswith("0b0b0b")]
        assert switches.vsctl("list-br").split() == ["theirs0"]
    finally:
        switches.vsctl("del-br", "theirs0")


def test_a_bridge_carries_its_owner_and_goes_with_its_ports() -> None:
    switches.add_bridge("cnenvtest0")
    try:
        assert switches.OurBridge("cnenvtest0", owner.current()) in switches.list_ours()
        subprocess.run(["ip", "link", "add", "cnenvtest1", "type", "veth", "peer", "cnenvtest2"], check=True)
        switches.add_port("cnenvtest0", "cnenvtest1")
        with pytest.raises(RunError, match="nosuchport"):
            switches.add_port("cnenvtest0", "nosuchport")
    finally:
        switches.remove_bridge("cnenvtest0")
    switches.remove_bridge("cnenvtest0")
