"""Scenario files: compact blocks of settings whose lists multiply, expanded into what is run in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from fnmatch import fnmatchcase
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

from containernet_env.base.errors import UsageError
from containernet_env.base.units import format_duration, format_number
from containernet_env.config.reader import Document, Finding, Location, json_path, read_document, value_at
from containernet_env.config.scenario_rules import key_findings, key_too_small, keys_fit, span_findings, spans_of
from containernet_env.config.scenario_schema import (
    ANY_MEMBER,
    MAX_SCENARIOS,
    NO_WARMUP,
    SCENARIO_FILE,
    Arrival,
    Consistency,
    KeyOrder,
    RawAnyBlock,
    RawLoad,
    RawMixed,
    RawOnDataset,
    RawReading,
    RawWrite,
    ScenarioType,
    Warmup,
    model_at,
)
from containernet_env.config.validation import validate
from containernet_env.model.keys import ONE_KEY, Keys, Span

CONSISTENCY_NAMES: dict[Consistency, str] = {"l": "linearizable", "s": "serializable"}

ZIPF_EXPONENT = Decimal("0.99")
"""The benchmark server's default, which is that of YCSB."""

REQUEST_TIMEOUT_NS = 20 * 10**9
"""Deadline of each request unless a load has its own. A loaded member on a fifth of a core answers within a few
seconds; a dead one never does, and a run should say so within a minute."""

# The data set is loaded as fast as it goes without troubling a small member.
_LOAD_CLIENTS, _LOAD_CONNS = 100, 10

_SHIPPED = Path(__file__).resolve().parents[2] / "configs" / "scenarios"
DEFAULT_SCENARIOS = _SHIPPED / "default.json"
QUICK_SCENARIOS = _SHIPPED / "quick.json"


@dataclass(frozen=True, slots=True)
class Dataset:
    """What every read scenario reads: ``keys`` sequential keys; sizes are in bytes, ``key_prefix`` comes on top.

    With a ``key_prefix`` no write scenario makes or changes any of it.
    """

    key_size: int = 8
    val_size: int = 256
    keys: int = 10_000
    key_prefix: str = ""

    @property
    def all_keys(self) -> Keys:
        """The names of all its keys."""
        return Keys(self.key_size, self.keys, self.key_prefix)

    @property
    def load(self) -> Scenario:
        """The unmeasured write that makes the data set where no scenario did."""
        return Scenario(
            name="load-dataset",
            type="write",
            total=self.keys,
            clients=min(self.keys, _LOAD_CLIENTS),
            conns=_LOAD_CONNS,
            key_size=self.key_size,
            val_size=self.val_size,
            key_space=self.keys,
            key_prefix=self.key_prefix,
        )

    def present_after(self, scenario: Scenario, present: bool) -> bool:
        """Whether the store holds the data set after ``scenario``, given whether it did before it.

        A write that is sure to write at least as many keys with the same sizes makes it; one of other values under
        keys of the same size replaces part of it. What is written of the data set itself is what was there.
        """
        if scenario.uses_dataset or scenario.key_size != self.key_size or self.key_prefix:
            return present
        if scenario.val_size != self.val_size:
            return False
        return present or scenario.first_keys_written >= self.keys


@dataclass(frozen=True, slots=True)
class Scenario:
    """One measured load.

    ``total`` requests, or as many as start within ``duration_ns`` (the other one is ``None``), by ``clients``
    concurrent clients over ``conns`` connections. Without ``rate`` (requests/s) each client sends its next request
    when its last one is answered; with it requests start by a schedule, at equal distances or as a Poisson process
    (``arrival``). ``warmup`` runs ahead of it and is in no figure.

    A write puts keys of ``key_size`` bytes with values of ``val_size`` bytes, in the order of ``keys``, which come from
    ``key_space`` different ones: as many as requests unless the file says otherwise, ``None`` where a duration leaves
    that open. A read, and a mixed load with a share of ``put_ratio`` writes, uses the ``key_space`` keys of the data
    set, whose sizes are then given, in the order of ``keys``; ``span`` is what each read asks for, and ``verify``
    checks that it finds exactly what was written. A transaction (``"txn"``) writes a key of the data set anew if it has
    its value. ``key_prefix`` is in front of every key. ``target`` is who is asked: only the leader, all members in turn
    (``"cluster"``), or the one member of that name. ``consistency`` is ``None`` where nothing is read by itself. A
    request without an answer within ``request_timeout_ns`` has failed.
    """

    name: str
    type: ScenarioType
    total: int | None
    clients: int
    conns: int
    key_size: int
    val_size: int
    key_space: int | None
    target: str = "cluster"
    consistency: Consistency | None = None
    duration_ns: int | None = None
    rate: Decimal | None = None
    arrival: Arrival = "constant"
    warmup: Warmup = NO_WARMUP
    keys: KeyOrder = "sequential"
    zipf_exponent: Decimal = ZIPF_EXPONENT
    verify: bool = False
    put_ratio: Decimal | None = None
    request_timeout_ns: int = REQUEST_TIMEOUT_NS
    key_prefix: str = ""
    span: Span = ONE_KEY

    @property
    def reads(self) -> bool:
        """Whether some of its requests only read."""
        return self.consistency is not None

    @property
    def keys_answered(self) -> int:
        """How many keys the answer to one of its reads holds at most."""
        return self.span.answered(Keys(self.key_size, self.key_space or 1, self.key_prefix))

    @property
    def first_keys_written(self) -> int:
        """So many of the first keys are there after this write for sure: drawn keys may be any."""
        if self.total is None or self.key_space is None or self.keys in ("uniform", "zipfian"):
            return 0
        if self.keys == "shuffled" and self.total < self.key_space:
            return 0
        return min(self.total, self.key_space)

    @property
    def uses_dataset(self) -> bool:
        """Whether the data set has to be there."""
        return self.type != "write"

    @property
    def member(self) -> str | None:
        """The one member that is asked, if it is one; ``"leader"`` and ``"cluster"`` are no names here."""
        return None if self.target in ANY_MEMBER else self.target

    @property
    def requests(self) -> int | None:
        """How many requests were asked for: by an open loop's schedule, whose Poisson form has so many on average.

        ``None`` for a closed loop with a duration.
        """
        if self.total is not None or self.duration_ns is None or self.rate is None:
            return self.total
        return ceil(self.rate * self.duration_ns / 10**9)

    @property
    def scheduled_s(self) -> float | None:
        """How long it takes by its duration or its rate; ``None`` where the cluster's speed decides."""
        if self.duration_ns is not None:
            return self.duration_ns / 1e9
        return self.total / float(self.rate) if self.rate is not None and self.total is not None else None

    @property
    def warmup_s(self) -> float | None:
        """How long the warm-up takes, 0 without one; ``None`` where the cluster's speed decides."""
        if self.warmup.requests and self.rate is None:
            return None
        return self.warmup.requests / float(self.rate or 1) + self.warmup.length_ns / 1e9


@dataclass(frozen=True, slots=True)
class ScheduledScenario:
    """A scenario at its place in a run; ``repetition`` counts from 1."""

    scenario: Scenario
    repetition: int


@dataclass(frozen=True, slots=True)
class MemberTarget:
    """Where a scenario file names a member, as a JSON path."""

    where: str
    member: str


@dataclass(frozen=True, slots=True)
class ScenarioSet:
    """The scenarios of one file in their order, names unique; ``sha256`` is of the file's bytes.

    Whether there are the members that ``member_targets`` names, only a topology tells.
    """

    path: Path
    sha256: str
    dataset: Dataset
    scenarios: tuple[Scenario, ...]
    member_targets: tuple[MemberTarget, ...] = ()


def load_scenarios(path: Path | str) -> ScenarioSet:
    """The scenarios of a file, blocks and lists in its order; ``ConfigError`` with every problem of it.

    In a block the lists multiply, the loads being the outer loop and a load's rates and clients the next ones.
    """
    path = Path(path)
    document = read_document(path)
    validated = validate(SCENARIO_FILE, document, lambda location: model_at(location, document.value))
    raw, findings = validated.value, validated.findings
    if raw is None:
        document.refuse(findings)
        raise AssertionError("a document without a value has findings")
    count = sum(_size(block) for block in raw.scenarios)
    if count > MAX_SCENARIOS:
        findings.append(Finding(("scenarios",), "multiply to too many", f"{count}", f"at most {MAX_SCENARIOS}"))
        document.refuse(findings)
    dataset = Dataset(raw.dataset.key_size, raw.dataset.val_size, raw.dataset.keys, raw.dataset.key_prefix or "")
    if not keys_fit(dataset.key_size, dataset.keys):
        findings.append(key_too_small(("dataset", "keySize"), dataset.key_size, dataset.keys))
    scenarios: list[Scenario] = []
    first_at: dict[str, Location] = {}
    for index, block in enumerate(raw.scenarios):
        location = ("scenarios", index)
        if isinstance(block, RawWrite):
            findings.extend(key_findings(document, location, block))
        elif isinstance(block, RawReading):
            findings.extend(span_findings(document, location, block, dataset.all_keys, raw.scenarios))
        for scenario in _expand(block, dataset):
            if scenario.name in first_at:
                where = json_path(first_at[scenario.name])
                findings.append(
                    Finding(
                        location,
                        f"repeats a scenario of {where}",
                        scenario.name,
                        "each scenario once; --repeat repeats all",
                    )
                )
            else:
                first_at[scenario.name] = location
                scenarios.append(scenario)
    document.refuse(findings)
    return ScenarioSet(
        path, document.sha256, dataset, tuple(scenarios), tuple(_member_targets(document, raw.scenarios))
    )


def select(scenarios: Sequence[Scenario], only: Sequence[str] = (), repeat: int = 1) -> tuple[ScheduledScenario, ...]:
    """The scenarios that match any of ``only`` (empty: all), the whole selection ``repeat`` times.

    A pattern is a name, a glob over names such as ``*-1000x1x1*``, or a type (``write``, ``read``, ``mixed``,
    ``txn``). Raises ``UsageError`` that lists the names when a pattern matches nothing.
    """
    if repeat < 1:
        raise UsageError(f"--repeat: got {repeat}; allowed: 1 or more")
    unmatched = [pattern for pattern in only if not any(_matches(item, pattern) for item in scenarios)]
    if unmatched:
        names = "\n".join(f"  {scenario.name}" for scenario in scenarios)
        allowed = f"write, read, mixed, txn, a name or a glob of these:\n{names}"
        raise UsageError(f"no scenario matches {', '.join(unmatched)}; allowed: {allowed}")
    chosen = [item for item in scenarios if not only or any(_matches(item, pattern) for pattern in only)]
    # Whole rounds, so that a drift of the machine meets every scenario alike.
    return tuple(ScheduledScenario(item, number) for number in range(1, repeat + 1) for item in chosen)


def _matches(scenario: Scenario, pattern: str) -> bool:
    return pattern == scenario.type or fnmatchcase(scenario.name, pattern)


def _size(block: RawAnyBlock) -> int:
    loads = sum(max(1, len(load.rate)) * len(load.clients) for load in block.load)
    if isinstance(block, RawWrite):
        return loads * len(block.data) * len(block.target) * len(block.keys)
    size = loads * len(block.target) * len(block.keys)
    if isinstance(block, RawReading):
        size *= len(block.consistency) * max(1, len(block.span_keys))
    return size * len(block.ratio) if isinstance(block, RawMixed) else size


@dataclass(frozen=True, slots=True)
class _Load:
    """One load of a file's, its rates and clients taken apart."""

    total: int | None
    duration_ns: int | None
    rate: Decimal | None
    arrival: Arrival
    clients: int
    conns: int
    warmup: Warmup
    request_timeout_ns: int

    @property
    def name(self) -> str:
        """Such as ``1000x1x1`` or ``r500-poisson-10s-100x10-warm2s``."""
        parts = []
        if self.rate is not None:
            parts.append(f"r{format_number(self.rate)}")
        if self.arrival != "constant":
            parts.append(self.arrival)
        if self.duration_ns is not None:
            parts += [format_duration(self.duration_ns), f"{self.clients}x{self.conns}"]
        else:
            parts.append(f"{self.total}x{self.clients}x{self.conns}")
        if self.warmup.requests:
            parts.append(f"warm{self.warmup.requests}")
        if self.warmup.length_ns:
            parts.append(f"warm{format_duration(self.warmup.length_ns)}")
        if self.request_timeout_ns != REQUEST_TIMEOUT_NS:
            parts.append(f"timeout{format_duration(self.request_timeout_ns)}")
        return "-".join(parts)

    @property
    def settings(self) -> dict[str, Any]:
        """The fields of a `Scenario` that are the load's."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _loads(raw: RawLoad) -> Iterator[_Load]:
    arrival, warmup = raw.arrival or "constant", raw.warmup or NO_WARMUP
    rates: list[Decimal | None] = [*raw.rate] or [None]
    for rate, clients in product(rates, raw.clients):
        timeout_ns = raw.timeout_ns or REQUEST_TIMEOUT_NS
        yield _Load(raw.total, raw.duration_ns, rate, arrival, clients, raw.conns, warmup, timeout_ns)


def _expand(block: RawAnyBlock, dataset: Dataset) -> Iterator[Scenario]:
    loads = [load for raw in block.load for load in _loads(raw)]
    if isinstance(block, RawWrite):
        for load, data, target, order in product(loads, block.data, block.target, block.keys):
            exponent = _exponent(block, order)
            space = f"of{block.key_space}" if block.key_space is not None else ""
            parts = ["write", target, load.name, f"{data.key_size}B-{data.val_size}B", space, *_order(order, exponent)]
            yield Scenario(
                name="-".join(filter(None, parts)),
                type="write",
                key_size=data.key_size,
                val_size=data.val_size,
                key_space=load.total if block.key_space is None else block.key_space,
                target=target,
                keys=order,
                zipf_exponent=exponent,
                **load.settings,
            )
        return
    ratios: list[Decimal | None] = [*block.ratio] if isinstance(block, RawMixed) else [None]
    consistencies: list[Consistency | None] = [*block.consistency] if isinstance(block, RawReading) else [None]
    verify = isinstance(block, RawReading) and block.verify
    axes = product(loads, ratios, block.target, spans_of(block), block.keys, consistencies)
    for load, ratio, target, span, order, consistency in axes:
        exponent = _exponent(block, order)
        # What a file leaves out is left out of the name.
        parts = [
            block.type,
            f"w{format_number(ratio)}" if ratio is not None else "",
            target if target != "cluster" else "",
            CONSISTENCY_NAMES[consistency] if consistency is not None else "",
            load.name,
            span.label,
            *_order(order, exponent),
            "" if verify or not isinstance(block, RawReading) else "unverified",
        ]
        yield Scenario(
            name="-".join(filter(None, parts)),
            type=block.type,
            key_size=dataset.key_size,
            val_size=dataset.val_size,
            key_space=dataset.keys,
            target=target,
            consistency=consistency,
            keys=order,
            zipf_exponent=exponent,
            verify=verify,
            put_ratio=ratio,
            key_prefix=dataset.key_prefix,
            span=span,
            **load.settings,
        )


def _exponent(block: RawWrite | RawOnDataset, order: KeyOrder) -> Decimal:
    return ZIPF_EXPONENT if block.zipf_exponent is None or order != "zipfian" else block.zipf_exponent


def _order(order: KeyOrder, exponent: Decimal) -> tuple[str, str]:
    """What a name says of the order of keys."""
    return order if order != "sequential" else "", f"e{format_number(exponent)}" if exponent != ZIPF_EXPONENT else ""


def _member_targets(document: Document, blocks: Sequence[RawAnyBlock]) -> Iterator[MemberTarget]:
    for number, block in enumerate(blocks):
        for index, target in enumerate(block.target):
            if target not in ANY_MEMBER:
                location: Location = ("scenarios", number, "target")
                step = (index,) if isinstance(value_at(document.value, location), list) else ()
                yield MemberTarget(json_path((*location, *step)), target)
