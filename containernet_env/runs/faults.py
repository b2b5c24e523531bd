"""What events do to the members of a testbed and to their links: each call at once, and read back on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from containernet_env.base.errors import RunError
from containernet_env.containernet.testbed_network import TestbedHost, TestbedNetwork
from containernet_env.model.disruption import Disruption, Verb
from containernet_env.model.topology import Link
from containernet_env.plan.event_rules import FIELDS, changed
from containernet_env.stores.protocol import Broken


class Faults(Protocol):
    """What can be done to ``members``; what takes effect says when (CLOCK_MONOTONIC, ns). Raises ``RunError``."""

    @property
    def members(self) -> Sequence[str]:
        """In config order."""

    @property
    def links_at_once(self) -> bool:
        """Whether a change of a link takes effect when its call begins, as with the emulator, or when it returns."""

    def partition(self, sets: Sequence[Sequence[str]]) -> int:
        """Keep these sets of members apart, in place of an earlier partition; all else reaches everybody."""

    def heal(self) -> int:
        """End the partition."""

    def set_link_up(self, member: str, up: bool) -> int:
        """Unplug its link, or plug it in."""

    def shape(self, member: str, event: Disruption) -> int:
        """Give its link the delay, loss or rate of an event, both directions."""

    def unshape(self, member: str, verbs: Sequence[Verb]) -> int:
        """Put these of delay, loss and rate back to what the topology says."""

    def freeze(self, member: str) -> int: ...

    def thaw(self, member: str) -> int: ...

    def kill(self, member: str) -> int: ...

    def wait_frozen(self, member: str, frozen: bool) -> None:
        """Return once the kernel says so."""

    def restart(self, member: str, ready: Callable[[], None], broken: Broken) -> int:
        """Start a killed member again and return once it answers; when it was let go.

        Before that, limits, links and neighbours are put back and read back, and ``ready`` is called. Once ``broken``
        gives a reason it is given up.
        """

    def check(self, member: str) -> None:
        """Raise ``RunError`` unless its link is up, as the system says, and as the topology says."""

    def give_up(self, reason: str) -> None:
        """The testbed cannot be put back to what it was: nothing can be measured on it any more."""


Restart = Callable[[str, Callable[[], None], Broken], int]


class TestbedFaults:
    """See ``Faults``. ``links`` are the plan's, of the members by name."""

    __test__ = False  # not a test class, whatever its name begins with

    def __init__(
        self,
        net: TestbedNetwork,
        hosts: Mapping[str, TestbedHost],
        links: Mapping[str, Link],
        restart: Restart,
        give_up: Callable[[str], None],
    ) -> None:
        self._net = net
        self._hosts = hosts
        self._links = links
        self._restart = restart
        self._give_up = give_up
        self.members = tuple(links)
        self.links_at_once = net.links_kind == "emulator"

    def partition(self, sets: Sequence[Sequence[str]]) -> int:
        """See ``Faults``."""
        return self._net.partition(sets)

    def heal(self) -> int:
        """See ``Faults``."""
        return self._net.heal()

    def set_link_up(self, member: str, up: bool) -> int:
        """See ``Faults``."""
        link = self._links[member]
        return self._net.set_link_up(link.a, link.b, up)

    def shape(self, member: str, event: Disruption) -> int:
        """See ``Faults``."""
        spec, field = self._links[member].spec, FIELDS[event.verb]
        return self._change(
            member,
            {
                side: {field: getattr(changed(direction, event), field)}
                for side, direction in (("a_to_b", spec.a_to_b), ("b_to_a", spec.b_to_a))
            },
        )

    def unshape(self, member: str, verbs: Sequence[Verb]) -> int:
        """See ``Faults``."""
        spec, fields = self._links[member].spec, [FIELDS[verb] for verb in verbs]
        sides = (("a_to_b", spec.a_to_b), ("b_to_a", spec.b_to_a))
        return self._change(member, {side: {field: getattr(held, field) for field in fields} for side, held in sides})

    def _change(self, member: str, changes: Mapping[str, Mapping[str, Any]]) -> int:
        link = self._links[member]
        return self._net.link_between(link.a, link.b).change_directions(changes)

    def freeze(self, member: str) -> int:
        """See ``Faults``."""
        return self._hosts[member].freeze()

    def thaw(self, member: str) -> int:
        """See ``Faults``."""
        return self._hosts[member].thaw()

    def kill(self, member: str) -> int:
        """See ``Faults``."""
        return self._hosts[member].kill()

    def wait_frozen(self, member: str, frozen: bool) -> None:
        """See ``Faults``."""
        self._hosts[member].wait_frozen(frozen)

    def restart(self, member: str, ready: Callable[[], None], broken: Broken) -> int:
        """See ``Faults``."""
        return self._restart(member, ready, broken)

    def check(self, member: str) -> None:
        """See ``Faults``: each change was read back when it was made, so here it is told that none was forgotten."""
        planned = self._links[member]
        link = self._net.link_between(planned.a, planned.b)
        if not link.statistics()["up"]:
            raise RunError(f"the link of {member} is down")
        if link.spec != planned.spec:
            raise RunError(f"the link of {member} is {link.spec}, not {planned.spec}")

    def give_up(self, reason: str) -> None:
        """See ``Faults``."""
        self._give_up(reason)
