"""Which machine measures which testbed next. Pure.

Each machine measures whole blocks where there are as many: then a difference between machines is none between cells.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from containernet_env.base.errors import RunError
from containernet_env.sweep.placement import Job, Losses


class Roster:
    """The testbeds of a round that nobody has begun, and what is known of who measures them; ``beds`` a sweep has."""

    def __init__(self, beds: int) -> None:
        self._beds = beds
        self._waiting: dict[int, deque[Job]] = {}
        self._own: dict[str, int] = {}
        self._failed: dict[str, set[str]] = {}
        self._losses: dict[str, Losses] = {}
        self._resting: set[str] = set()

    def fill(self, jobs: Iterable[Job]) -> None:
        """Begin a round: all of its testbeds, by blocks and in their order."""
        self._waiting.clear()
        self._own.clear()
        for job in jobs:
            self._waiting.setdefault(job.repetition, deque()).append(job)

    @property
    def waiting(self) -> int:
        """How many nobody has begun."""
        return sum(map(len, self._waiting.values()))

    def take(self, place: str, usable: Collection[str]) -> Job | None:
        """The next one for ``place``, one of those that are ``usable``; ``None`` where there is none for it.

        Of its own block; else of the first block that is nobody's, which is its own from then on; else of the block
        that has the most left. A testbed that could not be used there is left to others that have not tried it.
        """
        for block in self._blocks(place, usable):
            jobs = self._waiting[block]
            for job in jobs:
                tried = self._failed.get(job.bed.key, set())
                if place not in tried or tried.issuperset(usable):
                    jobs.remove(job)
                    if not jobs:
                        del self._waiting[block]
                    if block not in self._own.values():
                        self._own[place] = block
                    return job
        return None

    def _blocks(self, place: str, usable: Collection[str]) -> list[int]:
        self._own = {name: block for name, block in self._own.items() if name in usable and block in self._waiting}
        own = self._own.get(place)
        taken = set(self._own.values()) - {own}
        free = [block for block in self._waiting if block not in taken and block != own]
        shared = sorted((block for block in self._waiting if block in taken), key=lambda b: -len(self._waiting[b]))
        return [*([] if own is None else [own]), *free, *shared]

    def usable(self, places: Collection[str]) -> set[str]:
        """Those of some machines that get testbeds: all where none else would."""
        found = set(places) - self._resting
        if not found:
            self._resting.clear()
        return found or set(places)

    def used(self, place: str) -> None:
        """Something was measured there."""
        self._losses.pop(place, None)
        self._resting.discard(place)

    def failed(self, place: str, job: Job) -> None:
        """A testbed could not be used there, or was lost with the machine: when it is tried again, others go first."""
        self._failed.setdefault(job.bed.key, set()).add(place)

    def lost(self, place: str, bed: str, places: Collection[str], why: str) -> bool:
        """A testbed could not be used at one of the machines; whether that one gets no others from now on.

        It does not after several in a row, while others do. Raises ``RunError`` where none does, and more than half of
        all testbeds were among those that could not be used.
        """
        losses = self._losses.setdefault(place, Losses(self._beds))
        losses.add(bed)
        if not losses.are_several or place in self._resting:
            return False
        self._resting.add(place)
        if self._resting.issuperset(places):
            lost = {bed for found in self._losses.values() for bed in found.beds}
            if 2 * len(lost) > self._beds:
                raise RunError(f"no machine could use its last testbeds, so the sweep ends: {why}")
            self._resting.clear()
        return place in self._resting
