"""Links between namespaces, without Mininet and without the engine: as a program of its own has them."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.hosts import netns
from containernet_env.model.link import LinkSpec
from containernet_env.network.factory import LinkFactory, Place
from tests.root.network import namespaces, needs_emulator, needs_root

pytestmark = [pytest.mark.root, needs_root]


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
