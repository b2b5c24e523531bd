"""Scenarios: the loads of a run, one after the other, the data set that they read, and the names of its keys."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from math import ceil
from typing import Any, Literal, Self

from containernet_env.base.units import format_duration, format_number
from containernet_env.model import kinds
from containernet_env.model import load_contract as contract
from containernet_env.model.disruption import Disruption
from containernet_env.model.kinds import Form, Listed, Location, Record, Refused, keyed, record, rule, section
from containernet_env.model.search import KEY_SPACE, RATE_MAX, RATE_MIN, WARMUP_NS, Search

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The digits of a key's number, in the order in which keys sort."""

Answer = Literal["values", "keys", "count"]


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys ``prefix`` + number in ``size`` bytes, for the numbers 0 to before ``count``; they sort as their numbers."""

    size: int
    count: int
    prefix: str = ""

    def name(self, number: int) -> str:
        digits = []
        while number:
            number, digit = divmod(number, len(ALPHABET))
            digits.append(ALPHABET[digit])
        return self.prefix + "".join(reversed(digits)).rjust(self.size, ALPHABET[0])

    def within(self, start: str, end: str) -> range:
        """The numbers of the keys from ``start`` to before ``end``, both ASCII."""
        numbers = range(self.count)
        first, last = (bisect_left(numbers, bound, key=self.name) for bound in (start, end))
        return range(first, max(first, last))


@dataclass(frozen=True, slots=True)
class Span:
    """The keys of one read: at most one of ``prefix``, ``start`` with ``end``, and ``keys``; without any, one key.

    ``prefix``: all keys that start with it. ``start``, ``end``: all keys from ``start`` to before ``end``. ``keys``: a
    range scan of this many consecutive keys of the data set from the next key on, fewer at its end. An answer holds
    the first ``limit`` of them (``None``: all) with their values, or the keys alone, or only their count.
    """

    prefix: str | None = None
    start: str | None = None
    end: str | None = None
    keys: int | None = None
    limit: int | None = None
    answer: Answer = "values"

    @property
    def named(self) -> bool:
        """Whether every read requests the same keys, by name."""
        return self.prefix is not None or self.start is not None

    @property
    def label(self) -> str:
        """Its part of a scenario's name; empty for one key with its value."""
        of = {"values": "", "keys": "keysonly", "count": "countonly"}[self.answer]
        limit = "" if self.limit is None else f"limit{self.limit}"
        return "-".join(filter(None, (self._extent("prefix:", "..", "span"), limit, of)))

    @property
    def shown(self) -> str:
        """The requested keys as in the CSV, without limit and answer."""
        extent = self._extent("prefix ", " to ", "")
        return extent if self.named else "1 key" if self.keys in (None, 1) else f"{extent} keys"

    def _extent(self, of_prefix: str, between: str, of_keys: str) -> str:
        if self.prefix is not None:
            return f"{of_prefix}{self.prefix}"
        if self.start is not None:
            return f"{self.start}{between}{self.end}"
        return "" if self.keys is None else f"{of_keys}{self.keys}"

    def bounds(self, dataset: Keys) -> tuple[str, str]:
        """The smallest key that a read may find, and the end of the range, exclusive."""
        if self.prefix is not None:
            return self.prefix, after_prefix(self.prefix)
        if self.start is not None and self.end is not None:
            return self.start, self.end
        return dataset.name(0), dataset.name(dataset.count - 1) + "\0"

    def answered(self, dataset: Keys) -> int:
        """How many keys an answer holds at most."""
        if self.answer == "count":
            return 0
        requested = len(dataset.within(*self.bounds(dataset))) if self.named else min(self.keys or 1, dataset.count)
        return requested if self.limit is None else min(requested, self.limit)


ONE_KEY = Span()


def is_path(prefix: str) -> bool:
    """Whether a key prefix stays unchanged in a URL path: no part of it is empty, "." or ".."."""
    return set(prefix.split("/")[:-1]).isdisjoint(("", ".", ".."))


def after_prefix(prefix: str) -> str:
    """The smallest key after all keys that start with ``prefix``, ASCII of at least one character."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


ScenarioType = Literal["write", "read", "mixed", "txn"]
Arrival = Literal["constant", "poisson"]
KeyOrder = Literal["sequential", "shuffled", "uniform", "zipfian"]
Consistency = Literal["l", "s", "default"]


NEAREST = "nearest"
ANY_MEMBER = ("leader", "cluster", NEAREST)
"""The targets that name no member."""


@dataclass(frozen=True, slots=True)
class Warmup:
    """Load before the measurement, in no figure: a number of requests, or a length of time; the other one is 0."""

    requests: int = 0
    length_ns: int = 0


NO_WARMUP = Warmup()


CONSISTENCY_NAMES: dict[Consistency, str] = {"l": "linearizable", "s": "serializable", "default": "default"}


ZIPF_EXPONENT = Decimal("0.99")
"""The benchmark server's default, which is that of YCSB."""


REQUEST_TIMEOUT_NS = 20 * 10**9
"""Deadline of each request unless a load has its own. A loaded member on a fifth of a core answers within a few
seconds; a dead one never does, and a run should report that within a minute."""


# Concurrency that a small member can handle.
LOAD_CLIENTS, LOAD_CONNS = 100, 10


KEY_SIZE = kinds.integer(1, contract.MOST["keySize"])
VAL_SIZE = kinds.integer(1, contract.MOST["valSize"])
KEY_COUNT = kinds.integer(1, contract.MOST["keySpace"])
KEY_TEXT_MAX = 200
# Part of the names of scenarios, where it must not be a glob, and of a column of the CSV.
_KEY_PATTERN = f"[0-9A-Za-z/._:-]{{1,{KEY_TEXT_MAX}}}"
_KEY_FORM = f"1 to {KEY_TEXT_MAX} of 0-9, A-Z, a-z, / . _ : and -"
KEY_TEXT = kinds.text("is not a key or the beginning of one", _KEY_FORM, _KEY_PATTERN)
_PREFIX = kinds.text(
    "does not keep the data set's keys apart from those that are written",
    f"{_KEY_FORM}, at least one of them / . _ : or -",
    f"(?=.*[/._:-]){_KEY_PATTERN}",  # a character that no generated key has: keys of writes never start with it
)


def keys_refused(key_size: int, keys: int, place: Location = ("keySize",)) -> Iterator[Refused]:
    """Nothing if so many keys of that size are all different."""
    # From 6 bytes on there are more keys than a file may request: no need for large powers.
    least = next(size for size in range(1, 7) if size > 5 or len(ALPHABET) ** size >= keys)
    if key_size < least:
        yield Refused(f"is too small for {keys} different keys", f"at least {least}", place, f"{key_size}")


@record
class Dataset(Record):
    """The data set that the reads read: sequential keys; sizes are without ``key_prefix``.

    With a ``key_prefix`` no write scenario creates or changes any of it.
    """

    key_size: int = keyed(KEY_SIZE, "bytes of a key", "keySize", default=8)
    val_size: int = keyed(VAL_SIZE, "bytes of a value", "valSize", default=256)
    keys: int = keyed(KEY_COUNT, "how many keys the data set has", default=10_000)
    key_prefix: str = keyed(
        _PREFIX, "what the keys of the data set begin with, and those of writes do not", "keyPrefix", default=""
    )

    @rule
    def _keys_fit(self) -> Iterator[Refused]:
        return keys_refused(self.key_size, self.keys)

    @property
    def all_keys(self) -> Keys:
        return Keys(self.key_size, self.keys, self.key_prefix)

    @property
    def load(self) -> Scenario:
        """The unmeasured write that creates the data set where no scenario did."""
        return Scenario(
            name="load-dataset",
            type="write",
            total=self.keys,
            clients=min(self.keys, LOAD_CLIENTS),
            conns=LOAD_CONNS,
            key_size=self.key_size,
            val_size=self.val_size,
            key_space=self.keys,
            key_prefix=self.key_prefix,
        )

    def present_after(self, scenario: Scenario, present: bool) -> bool:
        """Whether the store holds the data set after ``scenario``, given whether it did before it.

        A write that is certain to write at least as many keys of the same sizes creates it; one of other values under
        keys of the same size replaces part of it. Mixed loads and transactions write versions of its values.
        """
        if scenario.uses_dataset or scenario.key_size != self.key_size or self.key_prefix:
            return present
        if scenario.val_size != self.val_size:
            return False
        return present or scenario.first_keys_written >= self.keys


# The limits of the benchmark server: a load of a file is never refused there.
TOTAL_MAX = contract.MOST["total"]
LENGTH_MIN_NS = round(contract.LEAST["duration"] * 10**9)
# Half of the server's limit for a benchmark leaves the warm-up and the end their time.
LENGTH_MAX_NS = contract.MOST["runTimeout"] // 2 * 10**9
TIMEOUT_MAX_NS = contract.MOST["requestTimeout"] * 10**9
STALL_TIMEOUT_MAX_NS = contract.MOST["stallTimeout"] * 10**9
# Less than the server takes.
WARMUP_MAX_NS = 3_600 * 10**9
# The server's limit leaves room for the seeds of later repetitions.
SEED_MAX = 2**32 - 1
ALL_CLIENTS, EACH_CLIENT = "all", "each"
"""In place of the name of one of several clients: all of them together, and every one by itself."""
MAX_CLIENTS = 20
"""Hosts that make the load: each has a load generator, which takes a core of its own at high rates."""
MAX_SCENARIOS = 1000
"""A file that multiplies out to more than this is a mistake, not a run."""


def axis(item: Form) -> Listed:
    """A list of alternatives, or one of them alone."""
    return Listed(item, 1, MAX_SCENARIOS, alone=True)


WARMUP = kinds.count_or(
    kinds.integer(1, TOTAL_MAX),
    "requests",
    kinds.duration(LENGTH_MIN_NS, WARMUP_MAX_NS, such="2s", what="a number of requests or a duration"),
    lambda requests, length_ns: Warmup(requests or 0, length_ns or 0),
    lambda warmup: (warmup.requests, warmup.length_ns),
    "duration",
)


TOTAL = kinds.integer(1, TOTAL_MAX)
DURATION = kinds.duration(LENGTH_MIN_NS, LENGTH_MAX_NS)


@section
class Load(Record):
    """How many requests are sent, when, and by how many clients.

    Of ``total`` and ``duration_ns`` one is ``None``. Without ``rate`` (requests/s) each client sends its next request
    when its last one is answered; with it requests start by a schedule. A request without an answer within
    ``request_timeout_ns`` has failed. A run without a success for ``stall_timeout_ns`` is ended (0: never; ``None``:
    the benchmark server's default). With a ``search`` there is neither ``total``, ``duration_ns`` nor ``rate``: it is
    many loads, one for each of its probes (``probe``). ``seed`` is of the first repetition; those after it have the
    seeds that follow. The values of the data set do not depend on it.

    ``request`` in a field's metadata is its name in the benchmark server's requests (``containernet_env.runs.load``
    sends it, durations in seconds, and leaves ``None`` out).
    """

    total: int | None = keyed(TOTAL, "number of requests", default=None, request="total")
    duration_ns: int | None = keyed(
        DURATION,
        "as many requests as start within this time, in place of total",
        "duration",
        default=None,
        request="duration",
    )
    rate: Decimal | None = field(default=None, metadata={"request": "rate"})
    arrival: Arrival = keyed(
        kinds.choice("constant", "poisson"),
        "evenly spaced requests or Poisson arrivals, with a rate",
        default="constant",
    )
    clients: int = field(metadata={"request": "clients"})
    conns: int = keyed(
        kinds.integer(1, contract.MOST["conns"]), "TCP connections that the clients share", request="conns"
    )
    warmup: Warmup = keyed(WARMUP, "what runs ahead and is in no figure", default=NO_WARMUP)
    request_timeout_ns: int = keyed(
        kinds.duration(LENGTH_MIN_NS, TIMEOUT_MAX_NS),
        "deadline of each request",
        "timeout",
        default=REQUEST_TIMEOUT_NS,
        request="requestTimeout",
    )
    stall_timeout_ns: int | None = keyed(
        kinds.duration(0, STALL_TIMEOUT_MAX_NS),
        "how long without a success before the scenario is ended",
        "stallTimeout",
        default=None,
        request="stallTimeout",
    )
    seed: int = keyed(
        kinds.integer(0, SEED_MAX), "what schedule, order of keys and kinds of requests are drawn from", default=0
    )
    search: Search | None = keyed(
        Search, "the highest rate whose response times hold, in place of total or duration, and of rate", default=None
    )

    def probe(self, rate: Decimal, seed: int = 0) -> Self:
        """The open loop with which a search probes a rate."""
        assert self.search is not None
        warmup = self.warmup if self.warmup != NO_WARMUP else Warmup(length_ns=WARMUP_NS)
        length_ns = self.search.length_ns(rate, self.arrival == "poisson")
        return replace(self, search=None, rate=rate, duration_ns=length_ns, warmup=warmup, seed=seed)

    @property
    def is_open(self) -> bool:
        """Whether requests start by a schedule."""
        return self.rate is not None or self.search is not None

    def default_keys(self, order: KeyOrder) -> int | None:
        """How many different keys writes use by default: each request of the warm-up and the measurement writes a new
        one, those of a search ``KEY_SPACE``. ``None`` if a duration leaves that open.
        """
        if self.search is not None:
            return KEY_SPACE
        if self.total is None or (self.warmup.length_ns and order in ("sequential", "shuffled")):
            return None
        return self.total + self.warmup.requests

    @property
    def most_keys(self) -> int:
        """How many different keys writes use at most where that is left open: the server's own rule (DistinctKeys in
        spec/spec.go)."""
        return (self.total or 0) + self.warmup.requests + contract.KEY_SPACE_OF_DURATION

    @property
    def load_name(self) -> str:
        """Its part of a scenario's name, such as ``1000x1x1`` or ``r500-poisson-10s-100x10-warm2s``."""
        size = f"{self.clients}x{self.conns}"
        if self.duration_ns is not None:
            size = f"{format_duration(self.duration_ns)}-{size}"
        elif self.search is None:
            size = f"{self.total}x{size}"
        warmup, timeout_ns, stall_ns = self.warmup, self.request_timeout_ns, self.stall_timeout_ns
        parts = (
            "" if self.search is None else self.search.name,
            "" if self.rate is None else f"r{format_number(self.rate)}",
            "" if self.arrival == "constant" else self.arrival,
            size,
            "" if warmup == NO_WARMUP else f"warm{warmup.requests or format_duration(warmup.length_ns)}",
            "" if timeout_ns == REQUEST_TIMEOUT_NS else f"timeout{format_duration(timeout_ns)}",
            "" if stall_ns is None else f"stall{format_duration(stall_ns) if stall_ns else 'never'}",
            f"seed{self.seed}" if self.seed else "",
        )
        return "-".join(filter(None, parts))

    @property
    def requests(self) -> int | None:
        """How many requests are configured: by an open loop's schedule; for a Poisson one, their mean.

        ``None`` for a closed loop with a duration, and for a search.
        """
        if self.total is not None or self.duration_ns is None or self.rate is None:
            return self.total
        return ceil(self.rate * self.duration_ns / 10**9)

    @property
    def scheduled_s(self) -> float | None:
        """How long it takes by its duration or its rate; ``None`` if the cluster's speed decides."""
        if self.duration_ns is not None:
            return self.duration_ns / 1e9
        return self.total / float(self.rate) if self.rate is not None and self.total is not None else None

    @property
    def warmup_s(self) -> float | None:
        """How long the warm-up takes, 0 without one; ``None`` if the cluster's speed decides."""
        if self.warmup.requests and self.rate is None:
            return None
        return self.warmup.requests / float(self.rate or 1) + self.warmup.length_ns / 1e9


@record
class Sender(Record):
    """Of several clients one that sends a scenario, or all of a site, by the name ``who``.

    What is ``None`` is as the scenario's own; ``total`` and ``duration_ns`` replace each other.
    """

    who: str
    total: int | None = keyed(TOTAL, "number of requests of this client", default=None)
    duration_ns: int | None = keyed(DURATION, "as many requests as start within this time", "duration", default=None)
    rate: Decimal | None = keyed(kinds.decimal(RATE_MIN, RATE_MAX), "requests/s of this client", default=None)
    clients: int | None = keyed(
        kinds.integer(1, contract.MOST["clients"]), "how many requests it has at a time", default=None
    )
    conns: int | None = keyed(kinds.integer(1, contract.MOST["conns"]), "TCP connections of this client", default=None)

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of a load that it has for itself."""
        own = {item.name: getattr(self, item.name) for item in fields(Sender) if item.name != "who"}
        given = {name: value for name, value in own.items() if value is not None}
        return ({"total": None, "duration_ns": None} if {"total", "duration_ns"} & given.keys() else {}) | given

    @property
    def label(self) -> str:
        """Its part of a scenario's name."""
        parts = (
            self.who,
            "" if self.rate is None else f"r{format_number(self.rate)}",
            "" if self.duration_ns is None else format_duration(self.duration_ns),
            *(
                f"{value}{unit}"
                for value, unit in ((self.total, "n"), (self.clients, "x"), (self.conns, "c"))
                if value is not None
            ),
        )
        return "-".join(filter(None, parts))


CLIENT_SEEDS = 2**33
"""The seeds of clients are so far apart: more than those of all repetitions."""


@section
class Scenario(Load):
    """One measured load and its requests.

    A write puts keys of ``key_size`` bytes with values of ``val_size`` bytes, in the order of ``keys``, which come from
    ``key_space`` different ones: as many as requests by default, ``None`` if a duration leaves that open. A read, and a
    mixed load with a share of ``put_ratio`` writes, uses the ``key_space`` keys of the data set, whose sizes are then
    given, in the order of ``keys``; ``span`` selects the keys that each read requests, and ``verify`` checks that it
    finds what was written. A transaction (``"txn"``) writes a key of the data set again if it exists. ``history``
    records each operation and its answer. ``key_prefix`` is in front of every key. ``target`` is where requests go:
    only to the leader, to all members in turn (``"cluster"``), to the member that is ``nearest`` to the client, which
    the plan knows, or to the member of that name. ``consistency`` is ``None`` if nothing is read by itself. ``events``
    are disruptions of members and links while it runs.

    ``senders``: the clients that send it, if not all do or some have a load of their own. Where a topology has several
    clients, the plan makes ``parts`` of it, one for each that sends, which has its name as ``client``; all parts start
    at one moment, and numbers of requests, rates and connections are those of each.
    """

    name: str
    type: ScenarioType
    key_size: int
    val_size: int
    key_space: int | None
    target: str = "cluster"
    consistency: Consistency | None = None
    keys: KeyOrder = "sequential"
    zipf_exponent: Decimal = ZIPF_EXPONENT
    verify: bool = False
    put_ratio: Decimal | None = None
    key_prefix: str = ""
    span: Span = ONE_KEY
    history: bool = False
    events: tuple[Disruption, ...] = ()
    nearest: str | None = None
    senders: tuple[Sender, ...] = ()
    client: str | None = None
    parts: tuple[Scenario, ...] = ()

    def part(self, number: int, client: str, nearest: str, sender: Sender | None) -> Scenario:
        """What the client of that number, from 0, sends of it."""
        changes = {} if sender is None else sender.changes
        seed = self.seed + number * CLIENT_SEEDS
        return replace(self, client=client, nearest=nearest, senders=(), seed=seed, **changes)

    @property
    def together(self) -> Scenario:
        """The loads of all parts in one: their requests, rates, clients and connections added up."""
        if not self.parts:
            return self
        totals, rates = ([getattr(part, name) for part in self.parts] for name in ("total", "rate"))
        lengths = [part.duration_ns for part in self.parts if part.duration_ns is not None]
        return replace(
            self,
            parts=(),
            total=None if None in totals else sum(totals),
            duration_ns=max(lengths, default=None),
            rate=None if None in rates else sum(rates),
            clients=sum(part.clients for part in self.parts),
            conns=sum(part.conns for part in self.parts),
        )

    @property
    def reads(self) -> bool:
        return self.consistency is not None

    @property
    def keys_answered(self) -> int:
        """How many keys the answer to one of its reads holds at most."""
        return self.span.answered(Keys(self.key_size, self.key_space or 1, self.key_prefix))

    @property
    def median_keys_answered(self) -> int:
        """How many keys the median answer to one of its reads holds at least: range scans end with the data set.

        Where the keys at which they start are drawn, that is so but for chance.
        """
        there = self.key_space or 1
        # Half of all keys have half of them behind them, and no order prefers the last ones.
        left = ceil(there / 2)
        if self.keys == "sequential" and self.warmup != NO_WARMUP:
            # The first start may be any. At worst all starts are the last keys, or those of the last third come twice.
            left = min(ceil((self.total or there) / 2), ceil(there / 3))
        span = self.span if self.span.keys is None else replace(self.span, keys=min(self.span.keys, left))
        return replace(self, span=span).keys_answered

    @property
    def first_keys_written(self) -> int:
        """How many of the first keys certainly exist after this write: drawn keys may be any."""
        if self.parts:
            return max(part.first_keys_written for part in self.parts)
        if self.total is None or self.key_space is None or self.keys in ("uniform", "zipfian"):
            return 0
        if self.warmup != NO_WARMUP:
            return 0  # the first ones are those of the warm-up, which may fail
        if self.keys == "shuffled" and self.total < self.key_space:
            return 0
        return min(self.total, self.key_space)

    @property
    def uses_dataset(self) -> bool:
        return self.type != "write"

    @property
    def member(self) -> str | None:
        """The one member that requests go to; ``None`` for ``"leader"`` and ``"cluster"``."""
        if self.target == NEAREST:
            return self.nearest
        return None if self.target in ANY_MEMBER else self.target


@dataclass(frozen=True, slots=True)
class ScheduledScenario:
    """A scenario at its place in a run; ``repetition`` counts from 1, as does ``attempt``: how often it was measured.

    ``identity`` is the hash of the scenario and its data set: equal for equal configurations.
    """

    scenario: Scenario
    repetition: int
    identity: str | None = None
    attempt: int = 1

    @property
    def key(self) -> tuple[str, int, int]:
        return self.scenario.name, self.repetition, self.attempt

    @property
    def load_seed(self) -> int:
        """The seed of the benchmark server's schedule, order of keys and kinds of requests."""
        return self.scenario.seed + self.repetition - 1
