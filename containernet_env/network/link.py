"""What every link promises, whichever way it is carried out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from containernet_env.base import clock
from containernet_env.base.errors import RunError, UsageError
from containernet_env.model.dilation import default_queue_frames
from containernet_env.model.link import DirectionSpec, IndependentLoss, Jitter, LinkSpec, Loss
from containernet_env.model.usage import SIDES
from containernet_env.network.interface import Interface, Port

EventHandler = Callable[[str, str], None]
"""Called with the kind of an event ("port_down", "emulator_died") and one line of text, from any thread."""


_LEFT_OPEN = ("queue_frames", "queue_bytes", "seed", "uplink")
# Fields that `check_held` does not compare exactly, or not at all: a trace is followed only while a scenario runs.
_JUDGED = {*_LEFT_OPEN, "delay_ns", "rate_bps", "overhead_bytes", "jitter", "loss", "default_queue_frames", "trace"}


def check_held(
    name: str, configured: LinkSpec, held: LinkSpec, delay_tolerance_ns: int = 0, rate_tolerance_ratio: float = 0.0
) -> None:
    """Raise ``RunError`` that names the link and the value unless the system holds the configured spec.

    The tolerances are for systems that report values less exactly than they hold them. That of delays applies to
    jitters too. A value that was left open (``None`` for a limit, a seed or the like) may be anything.
    """
    for side, wanted, got in zip(SIDES, configured.sides, held.sides, strict=True):
        near = abs(wanted.delay_ns - got.delay_ns) <= delay_tolerance_ns
        if wanted.rate_bps is None or got.rate_bps is None:
            near &= wanted.rate_bps == got.rate_bps
        else:
            near &= abs(wanted.rate_bps - got.rate_bps) <= wanted.rate_bps * rate_tolerance_ratio
        # Without a rate a frame takes no time.
        near &= wanted.rate_bps is None or wanted.overhead_bytes == got.overhead_bytes
        for field in _LEFT_OPEN:
            near &= getattr(wanted, field) in (None, getattr(got, field))
        for field in DirectionSpec.__dataclass_fields__.keys() - _JUDGED:
            near &= getattr(wanted, field) == getattr(got, field)
        near &= _same_jitter(wanted.jitter, got.jitter, delay_tolerance_ns) and _same_loss(wanted.loss, got.loss)
        if not near:
            raise RunError(f"link {name}, {side.replace('_', ' ')}: configured {wanted}, the system holds {got}")


def _same_jitter(wanted: Jitter | None, got: Jitter | None, tolerance_ns: int) -> bool:
    if wanted is None or got is None:
        return wanted is got
    return (
        (wanted.distribution, wanted.reorder) == (got.distribution, got.reorder)
        and wanted.correlation_ns in (None, got.correlation_ns)
        and abs(wanted.ns - got.ns) <= tolerance_ns
    )


def _same_loss(wanted: Loss | None, got: Loss | None) -> bool:
    if isinstance(wanted, IndependentLoss) and wanted.ratio == 0 and got is None:
        return True
    if wanted is None or got is None or wanted.model != got.model:
        return wanted is got
    # tc prints six digits of a share that the kernel holds in 32 bits.
    pairs = zip(astuple(wanted), astuple(got), strict=True)
    return all(
        math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-9) if isinstance(one, float) else one == other
        for one, other in pairs
    )


class ShapedLink(ABC):
    """One link between two ends, as the system holds it.

    An implementation carries out every part of a spec or refuses it; nothing is approximated or left out in
    silence. All calls are made by one thread at a time. They raise ``RunError``. ``spec`` was last applied,
    seen from the first of ``ends``; ``made``: whether ``clear`` has something to remove.
    """

    def __init__(self, name: str, ends: tuple[Port, Port], spec: LinkSpec) -> None:
        self.name = name
        self.ends = ends
        self.spec = spec
        self.made = False
        self._default_queues: dict[str, int | None] = {}  # set by `change_directions`, by direction

    @abstractmethod
    def make(self) -> None:
        """Create the interfaces at its ends, each where it belongs, and down; ``clear`` takes them away."""

    @abstractmethod
    def apply(self, spec: LinkSpec) -> int:
        """Make the link behave as ``spec`` from now on; return when that took effect (monotonic, ns).

        Both directions are replaced as a whole, so a change of the delay keeps the rate only if the spec has it. Must
        check by ``read_back`` that the system took the spec, and raise if not.
        """

    @abstractmethod
    def read_back(self) -> LinkSpec:
        """The spec that the system holds now: read from it, never remembered.

        A value the spec left open (a queue limit of ``None``) comes back as the number in force.
        """

    @abstractmethod
    def clear(self) -> None:
        """Remove the link and its interfaces. Idempotent; tolerates only that they are gone already."""

    @abstractmethod
    def statistics(self) -> dict[str, Any]:
        """The link's counters: ``a_to_b`` and ``b_to_a`` (from the first end on) as ``link_statistics`` has them."""

    @abstractmethod
    def set_up(self, up: bool) -> int:
        """Plug the cable in or pull it: frames are lost while it is down; addresses and routes stay.

        When it took effect (monotonic, ns).
        """

    def set_mtu(self, end: Interface, size_bytes: int) -> None:
        """Replace the MTU of an end: longer frames are neither sent nor received there."""
        end.set_mtu(size_bytes)

    def change(self, sender: Port, **values: Any) -> int:
        """Change fields of the direction that ``sender`` (one of ``ends``) sends on; the others stay.

        See ``apply``. Raises ``UsageError`` for values that are out of range or do not go together.
        """
        return self.change_directions({"a_to_b" if sender is self.ends[0] else "b_to_a": values})

    def change_directions(self, changes: Mapping[str, Mapping[str, Any]], dilation: int = 1) -> int:
        """Change fields of ``a_to_b``, ``b_to_a`` or both, at one moment where the system can; see ``change``.

        The link runs ``dilation`` times slower than real time: where no default queue limit was planned, it is that of
        the emulated direction.
        """
        try:
            sides = {name: replace(getattr(self.spec, name), **values) for name, values in changes.items()}
            for name, side in sides.items() if dilation > 1 else ():
                if side.default_queue_frames in (None, self._default_queues.get(name)):
                    self._default_queues[name] = default_queue_frames(side, dilation)
                    sides[name] = replace(side, default_queue_frames=self._default_queues[name])
            spec = replace(self.spec, **sides)
        except (TypeError, ValueError) as error:
            raise UsageError(f"link {self.name}: {error}") from error
        return self.apply_change(spec, changes)

    def apply_change(self, spec: LinkSpec, changes: Mapping[str, Mapping[str, Any]]) -> int:
        """``apply`` a spec with these ``changes``; for links to which it matters that a field was named at all."""
        return self.apply(spec)


Routes = Mapping[str, Mapping[str, str]]
"""By switch, and by each other one that frames have to reach, the link to take."""
Rerouted = Callable[[Collection[str]], Routes]
"""The routes while the links of these names are down."""


class Fabric(ABC):
    """Operations on all links of one network."""

    @abstractmethod
    def partition(self, sets: Sequence[Sequence[Interface]]) -> int:
        """Keep these sets of hosts' interfaces apart, in place of an earlier partition."""

    @abstractmethod
    def heal(self) -> int:
        """End the partition; without one, nothing changes."""

    def route(self, routes: Routes, rerouted: Rerouted | None = None) -> None:
        """Forward frames between switches along these routes.

        With ``rerouted`` the routes are replaced by those that it gives at the moment at which a link between switches
        goes down or up; without it, frames over a link that is down are lost.
        """
        raise UsageError("switches whose links close a loop need links by the link emulator")

    @abstractmethod
    def statistics(self, links: Sequence[ShapedLink], *, reset: bool, buckets: bool) -> dict[str, Any]:
        """Counters of these links since they came up, or since ``reset`` was last given (after it was read).

        ``links``: by name, ``up`` and the directions as ``link_statistics`` has them; ``ports``, ``switches``,
        ``stamps``, ``unmatched`` and ``lateness``: of the link emulator; ``at_ns``: when.
        ``buckets``: with histograms.
        """


def counters_of(links: Sequence[ShapedLink]) -> dict[str, Any]:
    """``Fabric.statistics`` of links that are not the emulator's."""
    return {
        "at_ns": clock.monotonic_ns(),
        "links": {link.name: link.statistics() for link in links},
        "ports": {},
        "switches": {},
        "stamps": None,
        "unmatched": None,
        "lateness": None,
    }
