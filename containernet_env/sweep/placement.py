"""Where the testbeds of a sweep are measured: the seam between what is kept of a sweep and the machines that measure.

`runner.Here` is this machine, `workers.Workers` are those of a Dask cluster. Journal, ledger, order and tries are the
runner's and the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from containernet_env.base.errors import RunError
from containernet_env.base.work import Stop
from containernet_env.network.rtt import Tolerance
from containernet_env.plan.plan import Plan
from containernet_env.sweep.design import Bed, Cell, Design
from containernet_env.sweep.progress import Course

# So many testbeds in a row that could not be brought up are no chance any more.
_BEDS_LOST = 3


@dataclass(frozen=True, slots=True)
class Job:
    """Cells of one block that are measured as one run, in this order, on a testbed of their own."""

    bed: Bed
    cells: tuple[Cell, ...]
    repetition: int


@dataclass(slots=True)
class Begun:
    """A job that is on its way: its plan, and who is told its course.

    ``is_killed``: its machine was lost, so nobody has measured its network once more.
    """

    job: Job
    plan: Plan
    course: Course
    is_killed: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended: the rows that are in OUT now, the ``error`` that ended it, if any, and how long it took (s).

    ``place``: the machine's name where there are several, else empty. ``blocked``: what is left of the testbed would be
    in the way of the next one.
    """

    begun: Begun
    rows: Sequence[Mapping[str, str]]
    error: RunError | None
    seconds: float
    place: str = ""
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all testbeds of a sweep; ``command`` is what manifests say of the caller."""

    out: Path
    tolerance: Tolerance | None
    command: tuple[str, ...]


class Placement(Protocol):
    """Machines that measure testbeds.

    ``several``: they measure more than one at once, so that a round holds the testbeds of several blocks. ``at_once``:
    how many, now.
    """

    several: bool

    @property
    def at_once(self) -> int:
        """At least 1."""

    def check(self, design: Design, out: Path | None) -> str:
        """Raise what measuring it would raise before anything is created; a sentence about what is left open."""

    def held(self, design: Design) -> AbstractContextManager[None]:
        """The machines are this sweep's within it, as far as they can be. Raises what keeps them from measuring."""

    def measure(
        self, jobs: Iterable[Job], terms: Terms, begin: Callable[[Job], Begun], stop: Stop
    ) -> Generator[Ended, None, None]:
        """Measure each job once, in an order like theirs; ``begin`` is called right before each.

        What a job measured is in OUT when it is yielded, and when the iterator is closed, which ends what still runs.
        Raises ``Interrupted`` when ``stop`` asks for that, and ``RunError`` for what ends the sweep.
        """

    def used(self, place: str) -> None:
        """Something was measured on a testbed there."""

    def lost(self, place: str, bed: str, why: str) -> None:
        """A testbed could not be used there. Raises ``RunError`` where nothing else is left to be tried."""


class Losses:
    """Counts testbeds in a row that could not be used on one machine, of ``beds`` that a sweep has."""

    def __init__(self, beds: int) -> None:
        self._all = beds
        self._lost: list[str] = []

    def clear(self) -> None:
        """One could."""
        self._lost.clear()

    def add(self, bed: str) -> None:
        """One could not."""
        self._lost.append(bed)

    @property
    def number(self) -> int:
        """How many in a row."""
        return len(self._lost)

    @property
    def beds(self) -> set[str]:
        """Which ones."""
        return set(self._lost)

    @property
    def are_several(self) -> bool:
        """Whether they are too many in a row to be chance."""
        return len(self._lost) >= _BEDS_LOST

    @property
    def are_many(self) -> bool:
        """Whether that is the machine: one testbed that cannot be, for want of memory, says nothing of others."""
        return self.are_several and 2 * len(self.beds) > self._all
