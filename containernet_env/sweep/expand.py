"""From a sweep file to its cells: every combination as a topology and a scenario that the schemas accept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from typing import Any

from containernet_env.base.errors import ConfigError, Problem
from containernet_env.config.positions import Location
from containernet_env.config.reader import Finding, document_of, json_path, render
from containernet_env.config.scenarios import scenarios_of
from containernet_env.config.sweep_axes import (
    MEMBERS,
    STORE,
    Axis,
    Level,
    NotThereError,
    Ratio,
    axis_of,
    comparable,
    copy_of,
    number_of,
    set_value,
    text_of_number,
    value_of,
)
from containernet_env.config.sweeps import SweepFile, is_excluded, shown
from containernet_env.config.topologies import config_of
from containernet_env.config.writer import file_text, scenarios_values, topology_values
from containernet_env.model.config import Config
from containernet_env.model.scenario import Dataset, Scenario, ScenarioSet

MAX_CELLS = 10_000
"""A sweep of more is a mistake: at 20 s a cell it takes two days for each repetition."""
_SHOWN_FINDINGS = 200


@dataclass(frozen=True, slots=True)
class Combination:
    """What one cell is made of; ``coordinates`` has each axis that the cell has, with its value for people."""

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
    _check_count(sweep, len(scenarios))
    points = [point for point in _points(sweep) if not is_excluded(sweep, point)]
    if not points:
        raise ConfigError(str(sweep.document.path), [Problem(json_path(sweep.exclude_at), "leaves nothing to measure")])
    expander = _Expander(sweep, base, scenario_set, scenarios)
    found = [combination for point in points for combination in expander.combinations(point)]
    sweep.refuse(expander.findings)
    return found


def _check_count(sweep: SweepFile, scenarios: int) -> None:
    count = scenarios * math.prod(len(dimension.points) for dimension in sweep.dimensions)
    if count > MAX_CELLS:
        message = "multiply to too many cells"
        sweep.refuse(
            [Finding(sweep.axes_at, message, f"{count:,} with {scenarios} scenarios", f"at most {MAX_CELLS:,}")]
        )


def _points(sweep: SweepFile) -> Iterator[dict[str, Any]]:
    for parts in product(*(dimension.points for dimension in sweep.dimensions)):
        yield {name: value for part in parts for name, value in part.items()}


class _Expander:
    """Reads each different topology and scenario once; what is refused becomes findings at the values of the file."""

    def __init__(
        self, sweep: SweepFile, base: Config, scenario_set: ScenarioSet, scenarios: Sequence[Scenario]
    ) -> None:
        self._sweep = sweep
        self._base = base
        self._set = scenario_set
        self._scenarios = scenarios
        self._topology = topology_values(base)
        self._documents = [scenarios_values(scenario_set.dataset, [scenario]) for scenario in scenarios]
        self._axes: list[Axis] = [axis for dimension in sweep.dimensions for axis in dimension.axes]
        self._ratios = [ratio for dimension in sweep.dimensions for ratio in dimension.ratios]
        self._places = {name: place for item in sweep.dimensions for name, place in item.places.items()}
        self._topologies: dict[Any, tuple[Config, dict[str, Any]] | None] = {}
        self._made: dict[Any, tuple[Dataset, Scenario] | None] = {}
        self._unused = {axis.name for axis in (*self._axes, *(axis for axis, _ in self._ratios))}
        self._found: dict[Any, Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        """What is refused, each once."""
        lost = [
            Finding(self._places[name], "is about nothing that is measured", None, "a key of a scenario that is", True)
            for name in sorted(self._unused)
        ]
        return [*self._found.values(), *lost][:_SHOWN_FINDINGS]

    def combinations(self, point: Mapping[str, Any]) -> Iterator[Combination]:
        """Those of one combination of values, one for each scenario."""
        settings = self._settings("topology", point)
        made = self._cached(self._topologies, settings, lambda: self._make_topology(settings, point))
        for index in range(len(self._scenarios)):
            document = made[1] if made is not None else self._topology
            settings_here = self._settings("scenario", point, index, document)
            key = (index, settings_here)
            # It is called at once, with this key.
            scenario = self._cached(self._made, key, lambda: self._make_scenario(*key, point))  # noqa: B023
            if made is not None and scenario is not None:
                config, dataset = made[0], scenario[0]
                yield Combination(config, dataset, scenario[1], self._coordinates(point, settings, settings_here))

    @staticmethod
    def _cached(cache: dict[Any, Any], key: Any, make: Any) -> Any:
        plain = repr(key)
        if plain not in cache:
            cache[plain] = make()
        return cache[plain]

    def _settings(
        self, level: Level, point: Mapping[str, Any], index: int | None = None, topology: Any = None
    ) -> tuple[tuple[Axis, Any], ...]:
        """The axes of a level in the order in which they are set, with their values; ratios as values."""
        plain = [(axis, point[axis.name]) for axis in self._axes if axis.level == level]
        document = self._topology if level == "topology" else copy_of(self._documents[index or 0])
        if level == "topology":
            # Members that are added are like the last one as it was, and get what all get; one alone comes last.
            plain.sort(key=lambda item: (item[0].key not in (MEMBERS, STORE), item[0].host is not None))
            document = copy_of(document)
        if level == "scenario":  # one without such a key is as it is
            plain = [item for item in plain if self._has(document, item[0])]
        for axis, value in plain:
            self._try_set(document, axis, value)
        ratios = []
        for axis, ratio in self._ratios:
            if axis.level == level and self._has(document, axis):
                value = self._ratio_value(axis, ratio, point, document, topology)
                if value is not None:
                    ratios.append((axis, value))
        return (*plain, *ratios)

    @staticmethod
    def _try_set(document: dict[str, Any], axis: Axis, value: Any) -> None:
        try:
            set_value(document, axis, value)
        except (ValueError, TypeError, KeyError, AttributeError):
            return  # told when it is made

    @staticmethod
    def _has(document: dict[str, Any], axis: Axis) -> bool:
        try:
            value_of(document, axis)
        except NotThereError:
            return False
        return True

    def _ratio_value(
        self, axis: Axis, ratio: Ratio, point: Mapping[str, Any], document: dict[str, Any], topology: Any
    ) -> Any:
        other = axis_of(ratio.of)
        assert other is not None and other.quantity is not None and axis.quantity is not None
        try:
            held = (
                point[ratio.of]
                if ratio.of in point
                else value_of(topology if other.level != axis.level else document, other)
            )
            return text_of_number(axis.quantity, number_of(other.quantity, held) * ratio.times)
        except (ValueError, TypeError, ArithmeticError) as error:
            allowed = f"a ratio of a {other.quantity}"
            self._tell(axis, f"cannot follow from {ratio.of}: {error}", shown(None), allowed, point)
            return None

    def _make_topology(self, settings: Any, point: Mapping[str, Any]) -> tuple[Config, dict[str, Any]] | None:
        value = copy_of(self._topology)
        places, whole = self._apply(value, settings, point)
        try:
            config = config_of(document_of(self._base.path, file_text(value)))
        except ConfigError as error:
            self._tell_all(error, places, point)
            return None
        if not whole:
            return None
        kept = replace(config, path=self._base.path, sha256=self._base.sha256, scenarios=self._base.scenarios)
        return kept, value

    def _make_scenario(self, index: int, settings: Any, point: Mapping[str, Any]) -> tuple[Dataset, Scenario] | None:
        value = copy_of(self._documents[index])
        places, _ = self._apply(value, settings, point)
        try:
            made = scenarios_of(document_of(self._set.path, file_text(value)))
        except ConfigError as error:
            self._tell_all(error, places, point)
            return None
        (scenario,) = made.scenarios
        # What writes alone would read is nothing that they differ in.
        return (made.dataset if scenario.uses_dataset else self._set.dataset), scenario

    def _apply(
        self, value: dict[str, Any], settings: Any, point: Mapping[str, Any]
    ) -> tuple[dict[str, list[Location]], bool]:
        """Set everything; where each axis is then, and whether all that has to be set is."""
        places: dict[str, list[Location]] = {}
        whole = True
        for axis, item in settings:
            try:
                places[axis.name] = set_value(value, axis, item)
                self._unused.discard(axis.name)
            except NotThereError as error:
                self._unused.discard(axis.name)
                allowed = "a member of the topology, or client"
                if self._base.external is not None:
                    allowed = "axes of loads, such as clients"
                self._tell(axis, str(error), None, allowed, point, at_axis=True)
                whole = False
            except ValueError as error:
                self._unused.discard(axis.name)
                self._tell(axis, "is out of range", render(item), str(error), point)
                whole = False
        return places, whole

    def _tell_all(self, error: ConfigError, places: Mapping[str, Sequence[Location]], point: Mapping[str, Any]) -> None:
        """Each problem at the axis that caused it, or with all that was combined."""
        named = {name: [json_path(place) for place in set_there] for name, set_there in places.items()}
        for problem in error.problems:
            causes = [name for name, paths in named.items() if any(_is_below(problem.path, path) for path in paths)]
            axis = axis_of(causes[-1]) if causes else None
            where = f"{error.file}, {problem.path}"
            if axis is None:
                values = ", ".join(f"{name}={shown(value)}" for name, value in point.items())
                finding = Finding(
                    self._sweep.axes_at, f"with {values}: {where} {problem.message}", problem.got, problem.allowed
                )
                self._found.setdefault((values, problem.message), finding)
                continue
            self._tell(axis, problem.message, problem.got, problem.allowed, point)

    def _tell(
        self,
        axis: Axis,
        message: str,
        got: str | None,
        allowed: str | None,
        point: Mapping[str, Any],
        at_axis: bool = False,
    ) -> None:
        place = self._places[axis.name]
        if axis.name in point and not at_axis:
            index = next(
                number
                for dimension in self._sweep.dimensions
                if axis.name in dimension.places
                for number, item in enumerate(dimension.points)
                if comparable(axis.quantity, item[axis.name]) == comparable(axis.quantity, point[axis.name])
            )
            place = (*place, index)
        self._found.setdefault((place, message, allowed), Finding(place, message, got, allowed, at_axis))

    def _coordinates(self, point: Mapping[str, Any], *settings: Any) -> tuple[tuple[str, str], ...]:
        values = {axis.name: value for each in settings for axis, value in each}
        order = [*point, *(axis.name for axis, _ in self._ratios)]
        return tuple((name, _text(values[name])) for name in order if name in values)


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))


def _text(value: Any) -> str:
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return str(value)
    return shown(value)
