"""Which rate a saturation search probes next, and what follows from the probes. Pure: it is told how each one ended.

The response of a store is stochastic, so there is no rate below which every probe holds and above which every one
misses. What is searched is the rate at which half of all probes hold. docs/load.md has the method and its sources.

1. Bracket: from the lowest rate at which a probe of the configured length has enough requests, rates are doubled while
   they hold, or halved until one does.
2. Bisect in the logarithm of the rate, until the rates that held and missed are neighbours.
3. Repeat: the upper end is the least rate at or above the one that missed at which no repeat holds; the lower end is
   the highest rate below that at which all of them hold. A rate where they disagree is neither: the ends move apart, by
   1, 2, 4 ... rates, and back by bisection. The probes of 1 and 2 are no repeats: their rates were chosen by what they
   gave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from decimal import Decimal
from math import log

from containernet_env.model.search import End, Purpose, Search, Verdict

MAX_PROBES = 100
"""A search that has not ended by then does not: its probes contradict each other over a wide range of rates."""
WIDEST = 2
"""Probes that contradict each other over more than this ratio of rates have found none."""
_LIMITED = 3
"""So many times generator or machine may spoil a repeat at a rate before they count as the limit there."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next probe: at a rate, given by its index too."""

    index: int
    rate: Decimal
    purpose: Purpose


_Course = Generator[tuple[int, Purpose], Verdict, None]


class Saturation:
    """One search: ``next`` is the probe to make, ``tell`` takes how it ended; ``next`` ``None`` is the end."""

    def __init__(self, search: Search, poisson: bool = False) -> None:
        self._search = search
        self.rates = search.rates()
        self._top = len(self.rates) - 1
        enough = search.samples(poisson) * 10**9
        self._start = next((i for i, rate in enumerate(self.rates) if rate * search.step_ns >= enough), self._top)
        self._held: Counter[int] = Counter()
        self._missed: Counter[int] = Counter()
        self._limits: dict[int, End] = {}
        self._told = 0
        self._exhausted = False
        self._course = self._run()
        self.next: Step | None = self._step(next(self._course))

    def _step(self, wanted: tuple[int, Purpose]) -> Step:
        index, purpose = wanted
        return Step(index, self.rates[index], purpose)

    def tell(self, verdict: Verdict) -> None:
        """How the probe ended that ``next`` asked for."""
        step = self.next
        assert step is not None, "the search has ended"
        if step.purpose == "repeat":
            self._held[step.index] += verdict == "held"
            self._missed[step.index] += verdict in ("missed", "failed")
        self._told += 1
        try:
            self.next = self._step(self._course.send(verdict))
        except StopIteration:
            self.next = None
            return
        if self._told >= MAX_PROBES:
            self.next, self._exhausted = None, True

    def _run(self) -> _Course:
        low, high = yield from self._bracket()
        while high - low > 1:
            middle = (low + high) // 2
            if (yield middle, "bisect") == "held":
                low = middle
            else:
                high = middle
        high = yield from self._upper_end(high)
        yield from self._lower_end(high - 1)

    def _bracket(self) -> Generator[tuple[int, Purpose], Verdict, tuple[int, int]]:
        """The highest index that held and the least that did not; one beyond the rates where there is none."""
        low, high, index = -1, self._top + 1, self._start
        double = max(1, round(log(2) / log(1 + self._search.within)))
        while True:
            if (yield index, "bracket") == "held":
                low = index
            else:
                high = index
            if low == self._top or high == 0 or (low >= 0 and high <= self._top):
                return low, high
            index = min(index + double, self._top) if low >= 0 else max(index - double, 0)

    def _upper_end(self, index: int) -> Generator[tuple[int, Purpose], Verdict, int]:
        """The least index from this one on at which no repeat holds, or generator or machine are the limit."""
        below, stride = index - 1, 1
        while index <= self._top and not (yield from self._all(index, held=False)):
            below, index = index, min(index + stride, self._top) if index < self._top else index + 1
            stride *= 2
        while index - below > 1:
            middle = (below + index) // 2
            if (yield from self._all(middle, held=False)):
                index = middle
            else:
                below = middle
        return index

    def _lower_end(self, index: int) -> Generator[tuple[int, Purpose], Verdict, int]:
        """The highest index from this one down at which all repeats hold; -1 where there is none."""
        above, stride = index + 1, 1
        while index >= 0 and not (yield from self._all(index, held=True)):
            above, index = index, max(index - stride, 0) if index > 0 else -1
            stride *= 2
        while above - index > 1:
            middle = (above + index) // 2
            if (yield from self._all(middle, held=True)):
                index = middle
            else:
                above = middle
        return index

    def _all(self, index: int, held: bool) -> Generator[tuple[int, Purpose], Verdict, bool]:
        """Whether all repeats at a rate hold, or miss; the first that does not decides.

        A rate that generator or machine do not carry holds in none.
        """
        spoilt = 0
        while True:
            agree, differ = (self._held, self._missed) if held else (self._missed, self._held)
            if differ[index]:
                return False
            if agree[index] >= self._search.repeats:
                return True
            if index in self._limits:
                return not held
            verdict = yield index, "repeat"
            if verdict in ("generator", "machine"):
                spoilt += 1
                if spoilt == _LIMITED:
                    self._limits[index] = "generator" if verdict == "generator" else "machine"

    @property
    def low(self) -> int | None:
        """The index of the highest rate at which all repeats held."""
        held = (i for i, n in self._held.items() if n >= self._search.repeats and not self._missed[i])
        return max(held, default=None)

    @property
    def high(self) -> int | None:
        """The index of the least rate above it at which none did."""
        low = -1 if self.low is None else self.low
        missed = (i for i, n in self._missed.items() if n >= self._search.repeats and not self._held[i])
        return min((i for i in missed if i > low), default=None)

    @property
    def end(self) -> End:
        """Why it ended; ``ended`` where it did not come to its end."""
        if self._exhausted:
            return "noise"
        if self.next is not None:
            return "ended"
        low, high = -1 if self.low is None else self.low, self._top if self.high is None else self.high
        limited = [index for index in self._limits if low < index <= high]
        if limited:
            return self._limits[min(limited)]
        if self.low is None:
            return "from"
        if self.high is None:
            return "to"
        return "noise" if self.rates[high] > WIDEST * self.rates[low] else "found"

    @property
    def limited_at(self) -> Decimal | None:
        """The least rate above the one that held at which generator or machine were the limit."""
        low = -1 if self.low is None else self.low
        index = min((index for index in self._limits if index > low), default=None)
        return None if index is None else self.rates[index]
