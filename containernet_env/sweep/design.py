"""The cells of a sweep with their identities, the testbeds that they need, and the order in which they are measured."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack, cast

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.load_schema import MAX_SCENARIOS
from containernet_env.config.reader import document_of
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios, scenarios_of
from containernet_env.config.sweeps import load_sweep
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import scenarios_text, topology_text
from containernet_env.model.choices import EngineChoice, LinksChoice, SwitchesChoice
from containernet_env.model.config import Config
from containernet_env.model.link import SEED_MAX
from containernet_env.model.scenario import Dataset, Scenario, ScenarioSet
from containernet_env.plan.identity import cell_hash, config_hash
from containernet_env.plan.plan import Plan
from containernet_env.plan.selection import select
from containernet_env.runs.change import standing_key
from containernet_env.runs.prepare import RunChoices, prepare
from containernet_env.sweep.expand import Combination, expand

_SHOWN_PROBLEMS = 50


class SweepChoices(TypedDict, total=False):
    """What makes hosts and links, by the names of `run`'s options."""

    links: LinksChoice
    switches: SwitchesChoice
    engine: EngineChoice
    congestion_control: str
    links_cpu: int | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing that is measured: a scenario on a topology.

    ``identity`` is the hash of what is configured, resolved; ``coordinates`` are its values of the axes that it has.
    ``config_hash`` and ``scenario_hash`` are those of its rows. ``estimated_s`` is rough.
    """

    identity: str
    scenario: Scenario
    coordinates: tuple[tuple[str, str], ...]
    config_hash: str
    scenario_hash: str
    estimated_s: float

    @property
    def text(self) -> str:
        """One line for people."""
        values = ", ".join(f"{name}={value}" for name, value in self.coordinates)
        return f"{self.scenario.name} ({values})" if values else self.scenario.name


@dataclass(frozen=True, slots=True)
class Bed:
    """A testbed and the cells that are measured on it: they differ in their loads alone. ``plan`` has all of them.

    Testbeds with the same ``standing`` can follow each other without a tear-down; see ``runs.change``.
    """

    config: Config
    scenario_set: ScenarioSet
    plan: Plan
    cells: tuple[Cell, ...]
    standing: str

    @property
    def key(self) -> str:
        """The same for the same testbed and data set, whatever the cells are."""
        return f"{self.cells[0].config_hash}/{self.scenario_set.dataset}"

    @property
    def around_s(self) -> float:
        """What bringing it up and taking it down takes, about."""
        return self.plan.estimated_s - sum(planned.estimated_s for planned in self.plan.scenarios)

    def plan_of(self, cells: Sequence[Cell], repetition: int, seed: int, choices: SweepChoices) -> Plan:
        """The plan of a run that measures these cells in this order."""
        chosen = self.scenarios_of(cells)
        return _prepare(self.config, chosen, {**choices, "first_repetition": repetition, "seed": seed})

    def scenarios_of(self, cells: Sequence[Cell]) -> ScenarioSet:
        """The scenarios of these cells in this order, with their data set."""
        return replace(self.scenario_set, scenarios=tuple(cell.scenario for cell in cells))


@dataclass(frozen=True, slots=True)
class Design:
    """Everything that a sweep measures once for each repetition.

    ``merged`` combinations are equal to others and are measured with them. ``repeat`` and ``seed`` are ``None`` where
    nobody gave them.
    """

    path: Path
    beds: tuple[Bed, ...]
    merged: int
    repeat: int | None
    seed: int | None
    choices: SweepChoices

    @property
    def cells(self) -> tuple[Cell, ...]:
        """By testbeds."""
        return tuple(cell for bed in self.beds for cell in bed.cells)

    @property
    def largest(self) -> Plan:
        """The plan with the most hosts."""
        return max((bed.plan for bed in self.beds), key=lambda plan: len(plan.hosts))

    @property
    def estimated_s(self) -> float:
        """What one repetition takes, about."""
        return sum(bed.plan.estimated_s for bed in self.beds)

    def order(self, block: int, seed: int, wanted: Collection[str]) -> Iterator[tuple[Bed, list[Cell]]]:
        """The testbeds of a block in random order, each with its ``wanted`` cells in random order.

        Those that can follow each other without a tear-down do, where the first of them comes.
        It follows from ``seed`` and ``block`` for all cells together: those that are left out leave the others where
        they are.
        """
        beds = sorted(self.beds, key=lambda bed: bed.key)
        random.Random(f"{seed}/{block}").shuffle(beds)
        places = {bed.standing: number for number, bed in reversed(list(enumerate(beds)))}
        beds.sort(key=lambda bed: places[bed.standing])
        for bed in beds:
            cells = sorted(bed.cells, key=lambda cell: cell.identity)
            random.Random(f"{seed}/{block}/{bed.key}").shuffle(cells)
            chosen = [cell for cell in cells if cell.identity in wanted]
            if chosen:
                yield bed, chosen


def link_seed(seed: int, repetition: int) -> int:
    """What losses and jitter of a repetition are drawn from: another one for each."""
    return (seed + repetition - 1) % (SEED_MAX + 1)


def design(
    path: Path | str,
    settings: Sequence[str] = (),
    *,
    scenarios: Path | str | None = None,
    quick: bool = False,
    only: Sequence[str] = (),
    repeat: int | None = None,
    seed: int | None = None,
    **choices: Unpack[SweepChoices],
) -> Design:
    """The cells of a sweep file, or of a topology file with ``settings`` such as ``link_delay=1ms,3ms,10ms``.

    What is given here goes before what the file says. ``quick``: the quick form that the file has, else the quick
    scenarios. Raises ``ConfigError`` and ``UsageError`` with everything that is wrong; nothing is created.
    """
    if quick and scenarios is not None:
        raise UsageError("quick and scenarios both name the scenarios: give one of them")
    sweep = load_sweep(path, settings, quick)
    base = load_config(sweep.topology)
    own = sweep.scenarios or base.scenarios or DEFAULT_SCENARIOS
    given = scenarios or (QUICK_SCENARIOS if quick and not sweep.is_quick else own)
    scenario_set = load_scenarios(given)
    chosen = [item.scenario for item in select(scenario_set.scenarios, tuple(only) or sweep.only)]
    combinations = expand(sweep, base, scenario_set, chosen)
    beds, merged = _beds(combinations, scenario_set, choices)
    return Design(
        Path(path),
        tuple(beds),
        merged,
        sweep.repeat if repeat is None else repeat,
        sweep.seed if seed is None else seed,
        choices,
    )


def _beds(
    combinations: Sequence[Combination], scenario_set: ScenarioSet, choices: SweepChoices
) -> tuple[list[Bed], int]:
    groups: dict[tuple[str, Dataset], list[Combination]] = {}
    texts: dict[int, str] = {}
    for item in combinations:
        if id(item.config) not in texts:
            texts[id(item.config)] = topology_text(item.config)
        groups.setdefault((texts[id(item.config)], item.dataset), []).append(item)
    beds: list[Bed] = []
    problems: list[str] = []
    seen: set[str] = set()
    for (_, dataset), group in groups.items():
        first = {item.scenario.name: item for item in reversed(group)}
        ordered = [first[name] for name in dict.fromkeys(item.scenario.name for item in group)]
        for at in range(0, len(ordered), MAX_SCENARIOS):
            items = ordered[at : at + MAX_SCENARIOS]
            try:
                bed = _bed(items, dataset, scenario_set, choices, seen)
            except ConfigError as error:
                problems += [f"{_named(items)}: {replace(item, line=None, column=None)}" for item in error.problems]
            except UsageError as error:
                problems.append(f"{_named(items)}: {error}")
            else:
                seen |= {cell.identity for cell in bed.cells}
                beds += [bed] if bed.cells else []
    if problems:
        told = [*dict.fromkeys(problems)]
        more = [f"and {len(told) - _SHOWN_PROBLEMS} more"] if len(told) > _SHOWN_PROBLEMS else []
        raise UsageError("\n  ".join(("the sweep is refused:", *told[:_SHOWN_PROBLEMS], *more)))
    return beds, len(combinations) - len(seen)


def _bed(
    items: Sequence[Combination],
    dataset: Dataset,
    scenario_set: ScenarioSet,
    choices: SweepChoices,
    seen: Collection[str],
) -> Bed:
    """The testbed of combinations that differ in their scenarios alone; cells that another one has are left to it."""
    text = scenarios_text(dataset, [item.scenario for item in items])
    own = replace(scenarios_of(document_of(scenario_set.path, text)), sha256=scenario_set.sha256)
    plan = _prepare(items[0].config, own, dict(choices))
    configured = config_hash(plan)
    cells = [
        Cell(
            cell_hash(plan, planned.scheduled),
            planned.scheduled.scenario,
            item.coordinates,
            configured,
            planned.scheduled.identity or "",
            planned.estimated_s,
        )
        for planned, item in zip(plan.scenarios, items, strict=True)
    ]
    own_cells = tuple(cell for cell in cells if cell.identity not in seen)
    return Bed(items[0].config, own, plan, own_cells, standing_key(plan))


def _prepare(config: Config, scenario_set: ScenarioSet, choices: dict[str, object]) -> Plan:
    return prepare(config, scenario_set, **cast(RunChoices, choices))


def _named(items: Sequence[Combination]) -> str:
    """The topology by its values; those of loads are in the names of scenarios."""
    values = ", ".join(f"{name}={value}" for name, value in items[0].coordinates)
    return values or str(items[0].config.path)
