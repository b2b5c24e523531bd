"""Scenario files: compact blocks of settings whose lists multiply, expanded into what is run in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from containernet_env.config.reader import Document, Finding, Location, json_path, read_document, value_at
from containernet_env.config.scenario_schema import (
    MAX_SCENARIOS,
    SCENARIO_FILE,
    Consistency,
    RawLoad,
    RawRead,
    RawWrite,
    ScenarioType,
    Target,
    model_at,
)
from containernet_env.config.validation import validate
from containernet_env.errors import UsageError

CONSISTENCY_NAMES: dict[Consistency, str] = {"l": "linearizable", "s": "serializable"}

KEY_ALPHABET = 62
"""Characters of a sequential key (0-9, A-Z, a-z): keys of n bytes are 62^n different ones."""

# The data set is loaded as fast as it goes without troubling a small member.
_LOAD_CLIENTS, _LOAD_CONNS = 100, 10

_SHIPPED = Path(__file__).resolve().parent.parent / "configs" / "scenarios"
DEFAULT_SCENARIOS = _SHIPPED / "default.json"
QUICK_SCENARIOS = _SHIPPED / "quick.json"


@dataclass(frozen=True, slots=True)
class Dataset:
    """What every read scenario reads: ``keys`` sequential keys; sizes are in bytes."""

    key_size: int = 8
    val_size: int = 256
    keys: int = 10_000

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
        )

    def present_after(self, scenario: Scenario, present: bool) -> bool:
        """Whether the store holds the data set after ``scenario``, given whether it did before it.

        A write of at least as many keys with the same sizes makes it; one of other values under keys of the
        same size replaces part of it.
        """
        if scenario.type == "read" or scenario.key_size != self.key_size:
            return present
        if scenario.val_size != self.val_size:
            return False
        return present or scenario.key_space >= self.keys


@dataclass(frozen=True, slots=True)
class Scenario:
    """One measured load, written or read in a closed loop.

    ``total`` requests by ``clients`` concurrent clients over ``conns`` connections. A write puts
    ``key_space`` (= ``total``) different sequential keys of ``key_size`` bytes with values of ``val_size``
    bytes; a read cycles over the ``key_space`` keys of the data set, whose sizes are then given. ``target``
    is who is asked: only the leader, or all members in turn (reads: always all). ``consistency`` is
    ``None`` for writes.
    """

    name: str
    type: ScenarioType
    total: int
    clients: int
    conns: int
    key_size: int
    val_size: int
    key_space: int
    target: Target = "cluster"
    consistency: Consistency | None = None


@dataclass(frozen=True, slots=True)
class ScheduledScenario:
    """A scenario at its place in a run; ``repetition`` counts from 1."""

    scenario: Scenario
    repetition: int


@dataclass(frozen=True, slots=True)
class ScenarioSet:
    """The scenarios of one file in their order, names unique; ``sha256`` is of the file's bytes."""

    path: Path
    sha256: str
    dataset: Dataset
    scenarios: tuple[Scenario, ...]


def load_scenarios(path: Path | str) -> ScenarioSet:
    """The scenarios of a file, blocks and lists in its order; ``ConfigError`` with every problem of it.

    In a block the lists multiply: for each load, for each data, for each target or consistency.
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
    dataset = Dataset(raw.dataset.key_size, raw.dataset.val_size, raw.dataset.keys)
    if not _keys_fit(dataset.key_size, dataset.keys):
        findings.append(_key_too_small(("dataset", "keySize"), dataset.key_size, dataset.keys))
    scenarios: list[Scenario] = []
    first_at: dict[str, Location] = {}
    for index, block in enumerate(raw.scenarios):
        location = ("scenarios", index)
        if isinstance(block, RawWrite):
            findings.extend(_key_findings(document, location, block))
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
    return ScenarioSet(path, document.sha256, dataset, tuple(scenarios))


def select(scenarios: Sequence[Scenario], only: Sequence[str] = (), repeat: int = 1) -> tuple[ScheduledScenario, ...]:
    """The scenarios that match any of ``only`` (empty: all), the whole selection ``repeat`` times.

    A pattern is a name, a glob over names such as ``*-1000x1x1*``, or a type (``write``, ``read``). Raises
    ``UsageError`` that lists the names when a pattern matches nothing.
    """
    if repeat < 1:
        raise UsageError(f"--repeat: got {repeat}; allowed: 1 or more")
    unmatched = [pattern for pattern in only if not any(_matches(item, pattern) for item in scenarios)]
    if unmatched:
        names = "\n".join(f"  {scenario.name}" for scenario in scenarios)
        allowed = f"write, read, a name or a glob of these:\n{names}"
        raise UsageError(f"no scenario matches {', '.join(unmatched)}; allowed: {allowed}")
    chosen = [item for item in scenarios if not only or any(_matches(item, pattern) for pattern in only)]
    # Whole rounds, so that a drift of the machine meets every scenario alike.
    return tuple(ScheduledScenario(item, number) for number in range(1, repeat + 1) for item in chosen)


def _matches(scenario: Scenario, pattern: str) -> bool:
    return pattern == scenario.type or fnmatchcase(scenario.name, pattern)


def _size(block: RawWrite | RawRead) -> int:
    if isinstance(block, RawWrite):
        return len(block.load) * len(block.data) * len(block.target)
    return len(block.load) * len(block.consistency)


def _expand(block: RawWrite | RawRead, dataset: Dataset) -> Iterator[Scenario]:
    if isinstance(block, RawWrite):
        for load, data, target in product(block.load, block.data, block.target):
            yield Scenario(
                name=f"write-{target}-{_load_name(load)}-{data.key_size}B-{data.val_size}B",
                type="write",
                total=load.total,
                clients=load.clients,
                conns=load.conns,
                key_size=data.key_size,
                val_size=data.val_size,
                key_space=load.total,
                target=target,
            )
        return
    for load, consistency in product(block.load, block.consistency):
        yield Scenario(
            name=f"read-{CONSISTENCY_NAMES[consistency]}-{_load_name(load)}",
            type="read",
            total=load.total,
            clients=load.clients,
            conns=load.conns,
            key_size=dataset.key_size,
            val_size=dataset.val_size,
            key_space=dataset.keys,
            consistency=consistency,
        )


def _load_name(load: RawLoad) -> str:
    return f"{load.total}x{load.clients}x{load.conns}"


def _keys_fit(key_size: int, keys: int) -> bool:
    # From 5 bytes on there are more keys than any total allowed here: no need for large powers.
    return key_size > 4 or KEY_ALPHABET**key_size >= keys


def _key_too_small(location: Location, key_size: int, keys: int) -> Finding:
    least = next(size for size in range(1, 6) if _keys_fit(size, keys))
    return Finding(location, f"is too small for {keys} different keys", f"{key_size}", f"at least {least}")


def _key_findings(document: Document, location: Location, block: RawWrite) -> Iterator[Finding]:
    most = max(load.total for load in block.load)
    listed = isinstance(value_at(document.value, (*location, "data")), list)
    for index, data in enumerate(block.data):
        if not _keys_fit(data.key_size, most):
            step = (index,) if listed else ()
            yield _key_too_small((*location, "data", *step, "keySize"), data.key_size, most)
