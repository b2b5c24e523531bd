"""Links and switches between namespaces, without Mininet and without the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.hosts import netns
from containernet_env.model.link import LinkSpec
from containernet_env.network.factory import LinkFactory, Place
from containernet_env.network.interface import Interface
from tests.root.network import (
    ADDRESSES,
    NETWORKS,
    answers,
    machine_interfaces,
    namespaces,
    needs_emulator,
    needs_ovs,
    needs_root,
    silent,
)

pytestmark = [pytest.mark.root, needs_root]

PROJECT = Path(__file__).resolve().parents[2]
KINDS = [NETWORKS[0], "bridge", pytest.param("ovs", marks=needs_ovs)]

# Two namespaces joined through a switch of the link emulator, in a process that has never met Mininet.
PROGRAM = """
import sys
from contextlib import closing
from containernet_env.model.link import LinkSpec
from containernet_env.network.factory import LinkFactory, Place
from tests.root.network import ADDRESSES, answers, namespaces

with namespaces() as pids, closing(LinkFactory("emulator", "0c0c0c", None, print)) as factory:
    switch = factory.make_switch("s1")
    for number, (pid, address) in enumerate(zip(pids, ADDRESSES), 1):
        link = factory.make_link(
            Place(f"h{number}", pid, address=f"{address}/24"), Place("s1", switch, number),
            LinkSpec.symmetric(1_000_000, 100_000_000),
        )
        assert link.read_back().b_to_a.rate_bps == 100_000_000
    assert answers(*pids, ADDRESSES[1])
    assert factory.fabric.statistics([link], reset=False, buckets=False)["links"]["h2-s1"]["a_to_b"]["frames"]
print(sorted({"mininet", "docker"} & set(sys.modules)))
"""


@needs_emulator
def test_neither_mininet_nor_the_engines_sdk_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_two_namespaces_on_two_switches(kind: str) -> None:
    before = machine_interfaces()
    factory = LinkFactory(kind, "0d0d0d", None, lambda kind, text: None)  # type: ignore[arg-type]
    with namespaces() as pids, closing(factory):
        first, second = factory.make_switch("s1"), factory.make_switch("s2")
        spec = LinkSpec.symmetric(0, 50_000_000)
        h1, h2 = (
            Place(name, pid, address=f"{ip}/24") for name, pid, ip in zip(("h1", "h2"), pids, ADDRESSES, strict=True)
        )
        link = factory.make_link(h1, Place("s1", first, 1), spec)
        others = [
            factory.make_link(Place("s1", first, 2), Place("s2", second, 2), spec),
            factory.make_link(h2, Place("s2", second, 1), spec),
        ]
        assert answers(*pids, ADDRESSES[1])
        end = link.ends[0]
        assert isinstance(end, Interface)
        assert (end.read_address(), end.read_mac()) == (ADDRESSES[0], end.mac)
        # People's name for it is an alternative one of the kernel's.
        assert netns.run(pids[0], ["ip", "link", "show", "dev", "h1-eth0"]).returncode == 0
        link.change(end, rate_bps=10_000_000)
        held = link.read_back()
        assert (held.a_to_b.rate_bps, held.b_to_a.rate_bps) == (10_000_000, 50_000_000)
        link.set_up(False)
        assert silent(*pids, ADDRESSES[1])
        link.set_up(True)
        assert answers(*pids, ADDRESSES[1])
        for made in (link, *others):
            made.clear()
        factory.remove_switch(second)
        factory.remove_switch(second)
        factory.close()
    assert machine_interfaces() == before


@needs_emulator
def test_a_link_that_fails_leaves_nothing_and_none_is_made_into_the_machine() -> None:
    factory = LinkFactory("emulator", "0e0e0e", None, lambda kind, text: None)
    with namespaces() as (one, two), closing(factory):
        with pytest.raises(UsageError, match="not an IPv4 address"):
            factory.make_link(Place("h1", one, address="10.0.0.999/24"), Place("h2", two), LinkSpec())
        assert "0e0e0e" not in netns.run(one, ["ip", "link"]).stdout
        with pytest.raises(UsageError, match="h2 is in the machine's own network namespace"):
            factory.make_link(Place("h1", one), Place("h2", os.getpid()), LinkSpec())
        # The ends' own addresses are free again.
        factory.make_link(Place("h1", one), Place("h2", two), LinkSpec())
