"""Links and a switch between namespaces, without Mininet and without the engine: as a program of its own has them."""

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
from tests.root.network import namespaces, needs_emulator, needs_root

pytestmark = [pytest.mark.root, needs_root]

PROJECT = Path(__file__).resolve().parents[2]

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
        factory.close()
