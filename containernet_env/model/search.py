"""A saturation search for the highest rate whose response times hold: configuration, next probe and result. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, fields
from decimal import Decimal
from itertools import pairwise
from math import ceil, isqrt, log, sqrt
from typing import Any, ClassVar, Literal

from containernet_env.base.units import format_duration, format_number
from containernet_env.model import kinds
from containernet_env.model import load_contract as contract
from containernet_env.model.kinds import Record, keyed, keys_of, refuse, rule, section

Percentile = Literal["50", "90", "95", "99", "99.9"]
PERCENTILES: tuple[Percentile, ...] = ("50", "90", "95", "99", "99.9")

BEYOND = 10
"""A percentile with fewer requests beyond it is unreliable; of 1000 requests, p99 has 10 beyond it."""
LIMIT_MIN_NS, LIMIT_MAX_NS = 1_000, contract.MOST["requestTimeout"] * 10**9
"""An objective below the first one is met by no network."""
PROBE_MAX_NS = 1_200 * 10**9
"""Probes that take a night are a mistake."""
LOW_PER_S = Decimal(10)
"""The lowest rate unless a file names one. It is probed only where the objective is missed at the rates above it."""
RATE_MIN, RATE_MAX = Decimal(str(contract.LEAST["rate"])), Decimal(contract.MOST["rate"])
HIGH_PER_S = RATE_MAX
"""The highest rate unless a file names one: the benchmark server's bound."""
STEP_NS = 5 * 10**9
WITHIN = Decimal("0.05")
REPEATS = 6
"""The least number of repeats whose interval has a confidence of 95 % (see ``confidence``)."""
WARMUP_NS = 10**9
"""Warm-up of each probe unless a file sets one."""
KEY_SPACE = 10_000
"""Key space of the writes of all probes unless a file sets one: the first writes create the keys, so that every probe
overwrites."""
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Objective:
    """A response time in ns that a percentile of an open loop may have at most."""

    percentile: Percentile
    limit_ns: int

    @property
    def text(self) -> str:
        """As in a row: ``p99<=50ms``."""
        return f"p{self.percentile}<={format_duration(self.limit_ns)}"


def _limit(percentile: Percentile) -> Any:
    meaning = f"the response time that the {percentile}th percentile of a probe may have at most"
    return keyed(kinds.duration(LIMIT_MIN_NS, LIMIT_MAX_NS), meaning, f"p{percentile}", default=None)


@section
class Search(Record):
    """The objectives of a search for the highest rate at which all of them hold, and how it is searched.

    Rates are from ``low`` to ``high`` (requests/s). Each probe takes ``step_ns``, or longer where a percentile needs
    it. The search ends when neighbouring rates, ``within`` (a ratio) of each other, hold and miss the objectives in
    ``repeats`` probes each.
    """

    SCHEMA: ClassVar = {"anyOf": [{"required": [f"p{percentile}"]} for percentile in PERCENTILES]}

    p50_ns: int | None = _limit("50")
    p90_ns: int | None = _limit("90")
    p95_ns: int | None = _limit("95")
    p99_ns: int | None = _limit("99")
    p99_9_ns: int | None = _limit("99.9")
    low: Decimal = keyed(
        kinds.decimal(RATE_MIN, RATE_MAX), "the lowest rate that is probed, in requests/s", "from", default=LOW_PER_S
    )
    high: Decimal = keyed(
        kinds.decimal(RATE_MIN, RATE_MAX),
        "the highest rate that is probed (the highest that the benchmark server takes)",
        "to",
        default=HIGH_PER_S,
    )
    step_ns: int = keyed(
        kinds.duration(100 * 10**6, 600 * 10**9),
        "how long each probe sends requests, longer where a percentile needs it",
        "step",
        default=STEP_NS,
    )
    within: Decimal = keyed(
        kinds.decimal(Decimal("0.01"), Decimal("0.5")),
        "how far neighbouring rates are apart, as a ratio",
        default=WITHIN,
    )
    repeats: int = keyed(
        kinds.integer(3, 20), "how many probes have to agree at each end of the interval", default=REPEATS
    )

    @rule
    def _has_an_objective(self) -> None:
        if not self.objectives:
            refuse("is missing", "a response time for p50, p90, p95, p99 or p99.9, at least one", "p99")

    @rule
    def _objectives_rise(self) -> None:
        for one, other in pairwise(self.objectives):
            if one.limit_ns >= other.limit_ns:
                allowed = f"less than p{other.percentile}, {format_duration(other.limit_ns)}"
                refuse(f"follows from p{other.percentile}", allowed, f"p{one.percentile}")

    @rule
    def _ends_above_its_start(self) -> None:
        if self.high <= self.low:
            key, allowed = "to", f"more than from, {format_number(self.low)}"
            if self.high == HIGH_PER_S:
                key, allowed = "from", f"less than {format_number(self.high)}"
            refuse("leaves no rates to search", allowed, key)

    @rule
    def _lowest_rate_has_enough_requests(self) -> None:
        if not self.objectives:
            return
        samples = self.samples(poisson=False)
        if samples * 10**9 > self.low * PROBE_MAX_NS:
            least = Decimal(samples * 10**9) / PROBE_MAX_NS
            message = f"is too low: p{self.objectives[-1].percentile} needs {samples} requests in each probe"
            allowed = f"at least {format_number(round(least, 3))}, at which that takes {format_duration(PROBE_MAX_NS)}"
            refuse(message, allowed, "from")

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Those that are configured, by rising percentiles."""
        limits = (self.p50_ns, self.p90_ns, self.p95_ns, self.p99_ns, self.p99_9_ns)
        pairs = zip(PERCENTILES, limits, strict=True)
        return tuple(Objective(percentile, limit_ns) for percentile, limit_ns in pairs if limit_ns is not None)

    @property
    def text(self) -> str:
        """The objectives as in a row: ``p50<=5ms;p99<=50ms``."""
        return ";".join(objective.text for objective in self.objectives)

    @property
    def name(self) -> str:
        """Its part of a scenario's name: ``search-p99-50ms``, and settings that differ from the default."""
        parts = ["search"]
        for key in keys_of(Search).values():
            if (value := getattr(self, key.attribute)) != key.default:
                is_time = key.attribute.endswith("_ns")
                gap = "-" if key.default is None else ""
                parts.append(f"{key.name}{gap}{format_duration(value) if is_time else format_number(value)}")
        return "-".join(parts)

    @property
    def confidence(self) -> float:
        """Confidence of the interval between the rates: 1 - 2 / 2^n for n repeats, by the sign test at both ends.

        Where a rate holds in fewer than half of all probes, n of n hold with a probability of at most 1 / 2^n; the same
        applies to n misses if it holds in more than half of them.
        """
        return 1 - 2.0 ** (1 - self.repeats)

    def samples(self, poisson: bool) -> int:
        """How many requests a probe has at least, so that ``BEYOND`` are beyond its highest percentile.

        The number of Poisson arrivals varies: on average it is four standard deviations higher.
        """
        beyond = 1 - Decimal(self.objectives[-1].percentile) / 100
        least = ceil(BEYOND / beyond)
        return least + 4 * (isqrt(least) + 1) if poisson else least

    def length_ns(self, rate: Decimal, poisson: bool) -> int:
        """How long a probe sends requests at a rate, in whole ms."""
        return max(self.step_ns, ceil(self.samples(poisson) * 1000 / rate) * 10**6)

    def rates(self) -> tuple[Decimal, ...]:
        """The rates that may be probed, rising: each is the one before and ``within`` of it; four digits are kept."""
        found, ratio = [self.low], float(1 + self.within)
        while (rate := _rounded(float(self.low) * ratio ** len(found))) < float(self.high) / sqrt(ratio):
            found.append(rate)
        return (*found, self.high)


def _rounded(rate: float) -> Decimal:
    return Decimal(f"{rate:.{_DIGITS - 1}e}")


Verdict = Literal["held", "missed", "failed", "generator", "machine"]
"""How a probe ended: every objective held; one was missed, or requests were never sent; requests failed, or the cluster
lost its leader or a member; or it is undetermined, since the load generator or the machine was too slow."""

Purpose = Literal["bracket", "bisect", "repeat"]

End = Literal["found", "from", "to", "generator", "machine", "noise", "ended"]
"""Why a search ended.

``found``: the rate was found. ``from``: not even the lowest rate held in all repeats. ``to``: the highest one did, or
was not missed in all of them. ``generator``, ``machine``: beyond the rate that held they were the limit. ``noise``: too
many probes contradicted each other. ``ended``: the row's error is the reason.
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe: an open loop at one rate, with a seed of its own.

    ``objectives_s`` are the percentiles of the response time that have an objective, in its order; ``None`` if it is
    unknown. ``why`` is one line; empty if the objectives held.
    """

    number: int
    purpose: Purpose
    rate: Decimal
    seconds: float
    seed: int
    verdict: Verdict
    why: str
    objectives_s: tuple[float | None, ...]

    def values(self) -> dict[str, Any]:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        rate = float(values.pop("rate"))
        return {**values, "rate_per_s": rate, "objectives_s": [*self.objectives_s]}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search: ``low_per_s`` held in all repeats, ``high_per_s``, the least rate above it, in none.

    Either is ``None`` if no such rate was found. ``text`` is one line for people.
    """

    search: Search
    end: End
    low_per_s: Decimal | None
    high_per_s: Decimal | None
    text: str
    probes: tuple[Probe, ...]

    @property
    def rate_per_s(self) -> Decimal | None:
        """The rate that was searched; ``None`` if it was not determined."""
        return self.low_per_s if self.end == "found" else None

    def values(self) -> dict[str, Any]:
        rates = {"rate_per_s": self.rate_per_s, "low_per_s": self.low_per_s, "high_per_s": self.high_per_s}
        return {
            "objective": self.search.text,
            "end": self.end,
            **{name: None if rate is None else float(rate) for name, rate in rates.items()},
            "confidence": self.search.confidence,
            "repeats": self.search.repeats,
            "text": self.text,
            "probes": [probe.values() for probe in self.probes],
        }


def rate_text(rate: Decimal) -> str:
    """A rate for people: ``4,200/s``."""
    return f"{rate:,.0f}/s" if rate >= 100 else f"{format_number(rate)}/s"


MAX_PROBES = 100
"""The most probes of a search; with more, its probes contradict each other over a wide range of rates."""
WIDEST = 2
"""Probes that contradict each other over a wider ratio of rates determine no rate."""
_LIMITED = 3
"""How often generator or machine may invalidate a repeat at a rate before they count as the limit there."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next probe: at a rate, given by its index too."""

    index: int
    rate: Decimal
    purpose: Purpose


_Course = Generator[tuple[int, Purpose], Verdict, None]


class Saturation:
    """One search: ``next`` is the probe to make, ``record`` takes its verdict; ``next`` ``None`` is the end."""

    def __init__(self, search: Search, poisson: bool = False) -> None:
        self._search = search
        self.rates = search.rates()
        self._top = len(self.rates) - 1
        enough = search.samples(poisson) * 10**9
        self._start = next((i for i, rate in enumerate(self.rates) if rate * search.step_ns >= enough), self._top)
        self._held: Counter[int] = Counter()
        self._missed: Counter[int] = Counter()
        self._limits: dict[int, End] = {}
        self._recorded = 0
        self._exhausted = False
        self._course = self._run()
        self.next: Step | None = self._step(next(self._course))

    def _step(self, wanted: tuple[int, Purpose]) -> Step:
        index, purpose = wanted
        return Step(index, self.rates[index], purpose)

    def record(self, verdict: Verdict) -> None:
        """Record the verdict of the probe ``next``."""
        step = self.next
        assert step is not None, "the search has ended"
        if step.purpose == "repeat":
            self._held[step.index] += verdict == "held"
            self._missed[step.index] += verdict in ("missed", "failed")
        self._recorded += 1
        try:
            self.next = self._step(self._course.send(verdict))
        except StopIteration:
            self.next = None
            return
        if self._recorded >= MAX_PROBES:
            self.next, self._exhausted = None, True

    def _run(self) -> _Course:
        low, high = yield from self._bracket()
        while high - low > 1:
            middle = (low + high) // 2
            if (yield middle, "bisect") == "held":
                low = middle
            else:
                high = middle
        high = yield from self._end(high, held=False)
        yield from self._end(high - 1, held=True)

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

    def _end(self, index: int, held: bool) -> Generator[tuple[int, Purpose], Verdict, int]:
        """The highest index from this one down at which all repeats hold, -1 where there is none; or unless ``held``
        the least from this one up at which none does, or generator or machine are the limit."""
        way, last = (-1, 0) if held else (1, self._top)
        before, stride = index - way, 1
        while 0 <= index <= self._top and not (yield from self._all(index, held)):
            before = index
            index = index + way if index == last else min(max(index + way * stride, 0), self._top)
            stride *= 2
        while abs(index - before) > 1:
            middle = (before + index) // 2
            if (yield from self._all(middle, held)):
                index = middle
            else:
                before = middle
        return index

    def _all(self, index: int, held: bool) -> Generator[tuple[int, Purpose], Verdict, bool]:
        """Whether all repeats at a rate hold, or miss; the first that does not decides.

        A rate at which generator or machine are the limit holds in none.
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
