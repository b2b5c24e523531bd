"""What every implementation of a link promises, whichever way it carries a link out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from mininet.link import Link

from containernet_env.errors import RunError
from containernet_env.links.spec import DirectionSpec, LinkSpec

EventHandler = Callable[[str, str], None]
"""Called with the kind of an event ("port_down", "emulator_died") and one line of text, from any thread."""


class LinkImplementation(Protocol):
    """One link between two nodes, as the system holds it.

    An implementation carries out every part of a spec or refuses it; nothing is approximated or left out in
    silence. All three calls are made by one thread at a time. They raise ``RunError``.
    """

    def apply(self, spec: LinkSpec) -> None:
        """Make the link behave as ``spec`` from now on, whatever it did before.

        Both directions are replaced as a whole, so a change of the delay keeps the rate only because the spec says
        so. Must check by ``read_back`` that the system took it, and raise if not.
        """

    def read_back(self) -> LinkSpec:
        """The spec that the system holds now: asked from it, never remembered.

        A value the spec left open (a queue limit of ``None``) comes back as the number in force.
        """

    def clear(self) -> None:
        """Remove the link and its interfaces. Idempotent; tolerates only that they are gone already."""


def check_held(
    name: str, asked: LinkSpec, held: LinkSpec, delay_tolerance_ns: int = 0, rate_tolerance_ratio: float = 0.0
) -> None:
    """Raise ``RunError`` that names the link and the value unless the system holds what was asked.

    The tolerances are for systems that tell less exactly than they hold; they say nothing of how links behave.
    """
    for direction, wanted, got in (
        ("a to b", asked.a_to_b, held.a_to_b),
        ("b to a", asked.b_to_a, held.b_to_a),
    ):
        delay_off = abs(wanted.delay_ns - got.delay_ns) > delay_tolerance_ns
        queue_off = wanted.queue_frames is not None and wanted.queue_frames != got.queue_frames
        if wanted.rate_bps is None or got.rate_bps is None:
            rate_off = wanted.rate_bps != got.rate_bps
        else:
            rate_off = abs(wanted.rate_bps - got.rate_bps) > wanted.rate_bps * rate_tolerance_ratio
        if delay_off or queue_off or rate_off:
            raise RunError(f"link {name}, {direction}: asked for {wanted}, the system holds {got}")


class ShapedLink(Link):  # type: ignore[misc]
    """A Mininet link that carries a spec; subclasses make it real (see ``LinkImplementation``).

    ``intf1`` and ``intf2`` are its interfaces, ``spec`` what was last applied, seen from ``intf1``'s node.
    """

    def __init__(self, name: str, spec: LinkSpec) -> None:
        # Mininet's own constructor would create interfaces in its own way.
        self.name = name
        self.spec = spec
        self.intf1: Any = None
        self.intf2: Any = None

    def apply(self, spec: LinkSpec) -> None:
        """See ``LinkImplementation``."""
        raise NotImplementedError

    def read_back(self) -> LinkSpec:
        """See ``LinkImplementation``."""
        raise NotImplementedError

    def clear(self) -> None:
        """See ``LinkImplementation``."""
        raise NotImplementedError

    def set_up(self, up: bool) -> None:
        """Plug the cable in or pull it: frames are lost while it is down; addresses and routes stay."""
        raise NotImplementedError

    def change(self, sender: Any, **values: Any) -> None:
        """Change fields of the direction that ``sender`` (``intf1`` or ``intf2``) sends on; the others stay."""
        if sender is self.intf1:
            spec = replace(self.spec, a_to_b=replace(self.spec.a_to_b, **values))
        else:
            spec = replace(self.spec, b_to_a=replace(self.spec.b_to_a, **values))
        self.apply(spec)

    def direction_from(self, sender: Any) -> DirectionSpec:
        """What is asked of the direction that ``sender`` sends on."""
        return self.spec.a_to_b if sender is self.intf1 else self.spec.b_to_a

    def delete(self) -> None:
        """Mininet's name for ``clear``; the nodes forget their interfaces."""
        self.clear()
        for intf in (self.intf1, self.intf2):
            if intf is not None:
                intf.forget()

    def stop(self) -> None:
        """Mininet's name for ``clear`` at the end of a network."""
        self.delete()

    def __str__(self) -> str:
        return f"{self.intf1}<->{self.intf2}"
