"""The cells of a sweep: every combination as a topology and a scenario, their identities and their order."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config import sweeps
from containernet_env.config.plan import AUTO, Plan, cell_hash, config_hash, select
from containernet_env.config.reader import document_of, json_path, render
from containernet_env.config.scenarios import (
    DEFAULT_SCENARIOS,
    QUICK_SCENARIOS,
    ScenarioSet,
    load_scenarios,
    scenarios_of,
)
from containernet_env.config.sweeps import Axis, Level, NotThereError, Point, Ratio, SweepFile
from containernet_env.config.topologies import config_of, load_config
from containernet_env.config.writer import file_text, scenarios_text, scenarios_values, topology_values
from containernet_env.model.config import Config
from containernet_env.model.kinds import Location, Refused
from containernet_env.model.link import SEED_MAX
from containernet_env.model.scenario import MAX_SCENARIOS, Dataset, Scenario
from containernet_env.runs.prepare import prepare
from containernet_env.runs.reuse import standing_key

MAX_CELLS = 10_000
"""A larger sweep is a mistake: at 20 s a cell it takes two days for each repetition."""


@dataclass(frozen=True, slots=True)
class Combination:
    """The contents of one cell; ``coordinates`` has each axis that the cell has, with its value for people."""

    config: Config
    dataset: Dataset
    scenario: Scenario
    coordinates: tuple[tuple[str, str], ...]


def expand(
    sweep: SweepFile, base: Config, scenario_set: ScenarioSet, scenarios: Sequence[Scenario]
) -> list[Combination]:
    """Every combination that is not excluded, in the file's order: scenarios are the innermost loop.

    ``scenarios`` are those of ``scenario_set`` that are measured. An axis that a scenario does not have leaves it as it
    is, so combinations may be equal. Raises ``ConfigError`` with every value that is refused, and for too many.
    """
    count = len(scenarios) * math.prod(len(dimension.points) for dimension in sweep.dimensions)
    if count > MAX_CELLS:
        got = f"{count:,} with {len(scenarios)} scenarios"
        sweep.refuse([Refused("multiply to too many cells", f"at most {MAX_CELLS:,}", sweep.axes_at, got)])
    points = [*sweep.points()]
    if not points:
        sweep.refuse([Refused("leaves nothing to measure", None, sweep.exclude_at)])
    expander = _Expander(sweep, base, scenario_set, scenarios)
    found = [combination for point in points for combination in expander.combinations(point)]
    sweep.refuse(expander.refusals)
    return found


class _Expander:
    """Reads each different topology and scenario once; refusals are shown at the values of the sweep's file."""

    def __init__(
        self, sweep: SweepFile, base: Config, scenario_set: ScenarioSet, scenarios: Sequence[Scenario]
    ) -> None:
        self._sweep = sweep
        self._base = base
        self._set = scenario_set
        self._topology = topology_values(base)
        self._documents = [scenarios_values(scenario_set.dataset, [scenario]) for scenario in scenarios]
        self._axes: list[Axis] = [axis for dimension in sweep.dimensions for axis in dimension.axes]
        self._ratios = [ratio for dimension in sweep.dimensions for ratio in dimension.ratios]
        self._places = {name: place for item in sweep.dimensions for name, place in item.places.items()}
        self._unused = {axis.name for axis in (*self._axes, *(axis for axis, _ in self._ratios))}
        self._read: dict[str, Any] = {}
        self._found: dict[Any, Refused] = {}

    @property
    def refusals(self) -> list[Refused]:
        """The refusals, each once."""
        lost = [
            Refused("is about nothing that is measured", "a key of a scenario that is", self._places[name], at_key=True)
            for name in sorted(self._unused)
        ]
        return [*self._found.values(), *lost]

    def combinations(self, point: Point) -> Iterator[Combination]:
        """Those of one combination of values, one for each scenario."""
        topology, of_topology = self._with("topology", self._topology, point, None, self._config)
        document = self._topology if topology is None else topology[1]
        for base in self._documents:
            scenario, of_scenario = self._with("scenario", base, point, document, self._one)
            if topology is not None and scenario is not None:
                values = of_topology | of_scenario
                order = [*point, *(axis.name for axis, _ in self._ratios)]
                coordinates = tuple((name, sweeps.shown(values[name])) for name in order if name in values)
                dataset, chosen = scenario[0]
                yield Combination(topology[0], dataset, chosen, coordinates)

    def _with(
        self, level: Level, base: dict[str, Any], point: Point, topology: Any, read: Callable[[str], Any]
    ) -> tuple[tuple[Any, dict[str, Any]] | None, dict[str, Any]]:
        """A document with the values of a point, as it is read and as it is; and its values by axis.

        The document is ``None`` if it is refused. Ratios of a scenario's axes may be of its ``topology``.
        """
        document = sweeps.copy_of(base)
        plain = [(axis, point[axis.name].value) for axis in self._axes if axis.level == level]
        if level == "topology":
            # Added members are copies of the original last one, and get the common settings; the settings of a single
            # one come last.
            plain.sort(key=lambda item: (item[0].key not in (sweeps.MEMBERS, sweeps.STORE), item[0].host is not None))
        else:  # one without such a key is as it is
            plain = [item for item in plain if _has(document, item[0])]
        places = self._set_all(document, plain, point)
        ratios = []
        for axis, ratio in self._ratios:
            if axis.level == level and _has(document, axis):
                value = self._ratio_value(axis, ratio, point, document, topology)
                if value is not None:
                    ratios.append((axis, value))
        places |= self._set_all(document, ratios, point)
        key = repr(document)
        if key not in self._read:
            self._read[key] = None
            try:
                self._read[key] = read(file_text(document)), document
            except ConfigError as error:
                self._refuse_all(error, places, point)
        return self._read[key], {axis.name: value for axis, value in (*plain, *ratios)}

    def _config(self, text: str) -> Config:
        config = config_of(document_of(self._base.path, text))
        return replace(config, path=self._base.path, sha256=self._base.sha256, scenarios=self._base.scenarios)

    def _one(self, text: str) -> tuple[Dataset, Scenario]:
        made = scenarios_of(document_of(self._set.document.path, text))
        (scenario,) = made.scenarios
        # A read range is no difference between loads that only write.
        return (made.dataset if scenario.uses_dataset else self._set.dataset), scenario

    def _set_all(
        self, document: dict[str, Any], settings: Sequence[tuple[Axis, Any]], point: Point
    ) -> dict[str, list[Location]]:
        """Set the axes, in this order; returns the place of each in the document."""
        places: dict[str, list[Location]] = {}
        for axis, value in settings:
            self._unused.discard(axis.name)
            try:
                places[axis.name] = sweeps.set_value(document, axis, value)
            except NotThereError as error:
                is_ours = self._base.external is None
                allowed = "a member of the topology, or client" if is_ours else "axes of loads, such as clients"
                self._refuse(Refused(str(error), allowed, self._places[axis.name], at_key=True))
            except ValueError as error:
                self._refuse(Refused("is out of range", str(error), self._place(axis, point), render(value)))
        return places

    def _ratio_value(self, axis: Axis, ratio: Ratio, point: Point, document: dict[str, Any], topology: Any) -> Any:
        other = sweeps.axis_of(ratio.of)
        assert other is not None and other.quantity is not None and axis.quantity is not None
        try:
            if ratio.of in point:
                held = point[ratio.of].value
            else:
                held = sweeps.value_of(document if other.level == axis.level else topology, other)
            return sweeps.text_of_number(axis.quantity, sweeps.number_of(other.quantity, held) * ratio.times)
        except (ValueError, TypeError, ArithmeticError) as error:
            message, allowed = f"cannot follow from {ratio.of}: {error}", f"a ratio of a {other.quantity}"
            self._refuse(Refused(message, allowed, self._places[axis.name], sweeps.shown(None)))
            return None

    def _refuse_all(self, error: ConfigError, places: Mapping[str, Sequence[Location]], point: Point) -> None:
        """Each problem at the axis that caused it, or with the whole combination."""
        for problem in error.problems:
            causes = [
                name for name, set_there in places.items() if any(_is_in(problem.path, place) for place in set_there)
            ]
            if causes:
                axis = sweeps.axis_of(causes[-1])
                assert axis is not None
                self._refuse(Refused(problem.message, problem.allowed, self._place(axis, point), problem.got))
            else:
                values = ", ".join(f"{name}={sweeps.shown(value)}" for name, (value, _) in point.items())
                message = f"with {values}: {error.file}, {problem.path} {problem.message}"
                self._refuse(Refused(message, problem.allowed, self._sweep.axes_at, problem.got))

    def _place(self, axis: Axis, point: Point) -> Location:
        """Where the sweep has the value of an axis."""
        return point[axis.name].place if axis.name in point else self._places[axis.name]

    def _refuse(self, refused: Refused) -> None:
        self._found.setdefault((refused.place, refused.message, refused.allowed), refused)


def _has(document: dict[str, Any], axis: Axis) -> bool:
    try:
        sweeps.value_of(document, axis)
    except NotThereError:
        return False
    return True


def _is_in(path: str, place: Location) -> bool:
    at = json_path(place)
    return path == at or path.startswith((f"{at}.", f"{at}["))


_SHOWN_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell to measure: a scenario on a topology.

    ``identity`` is the hash of its configuration, resolved; ``coordinates`` are its values of the axes that it has.
    ``config_hash`` and ``scenario_hash`` are those of its rows. ``estimated_s`` is rough.
    """

    identity: str
    scenario: Scenario
    coordinates: tuple[tuple[str, str], ...]
    config_hash: str
    scenario_hash: str
    estimated_s: float

    @property
    def values(self) -> dict[str, Any]:
        """What identifies it, for programs."""
        return {"cell": self.identity, "scenario": self.scenario.name, "coordinates": dict(self.coordinates)}

    @property
    def text(self) -> str:
        """One line for people."""
        values = ", ".join(f"{name}={value}" for name, value in self.coordinates)
        return f"{self.scenario.name} ({values})" if values else self.scenario.name


@dataclass(frozen=True, slots=True)
class Bed:
    """A testbed and the cells that are measured on it: they differ only in their loads. ``plan`` has all of them.

    Testbeds with the same ``standing`` can follow each other without a tear-down; see ``runs.reuse``.
    """

    plan: Plan
    cells: tuple[Cell, ...]
    standing: str

    @property
    def key(self) -> str:
        """The same for the same testbed and data set, whatever the cells are."""
        return f"{self.cells[0].config_hash}/{self.plan.dataset}"

    def plan_of(self, cells: Sequence[Cell], repetition: int, seed: int, choices: Mapping[str, Any]) -> Plan:
        """The plan of a run that measures these cells in this order; ``seed`` is that of the sweep."""
        assert self.plan.scenario_set is not None
        scenarios = replace(self.plan.scenario_set, scenarios=tuple(cell.scenario for cell in cells))
        of_links = (seed + repetition - 1) % (SEED_MAX + 1)  # other losses and jitter in each repetition
        return prepare(self.plan.config, scenarios, **choices, first_repetition=repetition, seed=of_links)


@dataclass(frozen=True, slots=True)
class Design:
    """Everything that a sweep measures once for each repetition.

    ``merged`` combinations are equal to others and are measured with them. ``repeat`` and ``seed`` are ``None`` if
    neither the file nor the caller has them. ``choices`` are options of all its runs.
    """

    beds: tuple[Bed, ...]
    merged: int
    repeat: int | None
    seed: int | None
    choices: Mapping[str, Any]

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
        """The approximate duration of one repetition (s)."""
        return sum(bed.plan.estimated_s for bed in self.beds)

    def order(self, block: int, seed: int, wanted: Collection[str]) -> Iterator[tuple[Bed, list[Cell]]]:
        """The testbeds of a block in random order, each with its ``wanted`` cells in random order.

        Those that can follow each other without a tear-down are adjacent, at the place of the first of them. The order
        follows from ``seed`` and ``block`` for all cells together: omitted cells do not change the places of the
        others.
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


def design(
    path: Path | str,
    settings: Sequence[str] = (),
    *,
    scenarios: Path | str | None = None,
    quick: bool = False,
    only: Sequence[str] = (),
    repeat: int | None = None,
    seed: int | None = None,
    **choices: Any,
) -> Design:
    """The cells of a sweep file, or of a topology file with ``settings`` such as ``link_delay=1ms,3ms,10ms``.

    Arguments override the file's values; ``choices`` are options of `run`. ``quick``: the quick form in the file,
    otherwise the quick scenarios. Raises ``ConfigError`` and ``UsageError`` with all problems; nothing is created.
    """
    if quick and scenarios is not None:
        raise UsageError("quick and scenarios both name the scenarios: give one of them")
    if choices.get("dilation") in (AUTO, "auto"):
        raise UsageError("dilation=auto: the testbeds of a sweep run equally slow; allowed: a number")
    sweep = sweeps.load_sweep(path, settings, quick)
    base = load_config(sweep.raw.topology)
    own = sweep.raw.scenarios or base.scenarios or DEFAULT_SCENARIOS
    given = scenarios or (QUICK_SCENARIOS if quick and not sweep.is_quick else own)
    scenario_set = load_scenarios(given)
    chosen = [item.scenario for item in select(scenario_set.scenarios, tuple(only) or sweep.raw.only)]
    combinations = expand(sweep, base, scenario_set, chosen)
    beds, merged = _beds(combinations, scenario_set, choices)
    return Design(
        tuple(beds),
        merged,
        sweep.raw.repeat if repeat is None else repeat,
        sweep.raw.seed if seed is None else seed,
        choices,
    )


def _beds(
    combinations: Sequence[Combination], scenario_set: ScenarioSet, choices: Mapping[str, Any]
) -> tuple[list[Bed], int]:
    groups: dict[tuple[Config, Dataset], dict[str, Combination]] = {}
    for item in combinations:
        groups.setdefault((item.config, item.dataset), {}).setdefault(item.scenario.name, item)
    beds: list[Bed] = []
    problems: list[str] = []
    seen: set[str] = set()
    for (_, dataset), group in groups.items():
        ordered = [*group.values()]
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
        each = [*dict.fromkeys(problems)]
        more = [f"and {len(each) - _SHOWN_PROBLEMS} more"] if len(each) > _SHOWN_PROBLEMS else []
        raise UsageError("\n  ".join(("the sweep is refused:", *each[:_SHOWN_PROBLEMS], *more)))
    return beds, len(combinations) - len(seen)


def _bed(
    items: Sequence[Combination],
    dataset: Dataset,
    scenario_set: ScenarioSet,
    choices: Mapping[str, Any],
    seen: Collection[str],
) -> Bed:
    """The testbed of combinations that differ only in their scenarios; cells that another one has are left to it."""
    text = scenarios_text(dataset, [item.scenario for item in items])
    file = scenario_set.document
    own = scenarios_of(document_of(file.path, text, file.sha256))
    plan = prepare(items[0].config, own, **choices)
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
    return Bed(plan, own_cells, standing_key(plan))


def _named(items: Sequence[Combination]) -> str:
    """The topology by its values; those of loads are in the names of scenarios."""
    values = ", ".join(f"{name}={value}" for name, value in items[0].coordinates)
    return values or str(items[0].config.path)
