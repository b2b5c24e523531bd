"""Sweep files: which values of which axes are combined, and which combinations are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from containernet_env.base.errors import ConfigError
from containernet_env.config import hints
from containernet_env.config.positions import Location
from containernet_env.config.reader import (
    Document,
    Finding,
    document_of,
    json_text,
    parse_document,
    read_document,
    render,
)
from containernet_env.config.sweep_axes import AXES, RATIO_FORM, Axis, Ratio, axis_name, axis_of, comparable
from containernet_env.config.sweep_schema import AXIS_FORM, MAX_VALUES, SWEEP_FILE, RawQuick, RawSweep
from containernet_env.config.validation import validate
from containernet_env.model.names import closest

_AXIS_PLACE = re.compile(r'\$\.axes\[\d+\](?:\.|\["([^"]*)"\])')
VALUES_FORM = f"a list of 1 to {MAX_VALUES} values, or {RATIO_FORM}"


@dataclass(frozen=True, slots=True)
class Dimension:
    """Axes that vary together: each of ``points`` has a value for each of ``axes``; ``ratios`` follow from others.

    ``places`` is where each axis stands in the file.
    """

    axes: tuple[Axis, ...]
    points: tuple[Mapping[str, Any], ...]
    ratios: tuple[tuple[Axis, Ratio], ...]
    places: Mapping[str, Location]


@dataclass(frozen=True, slots=True)
class SweepFile:
    """A sweep as its file has it; paths are resolved against the file's own directory, and have not been opened.

    ``is_quick``: it is the file's quick form. ``axes_at`` and ``exclude_at`` are where these stand in the file.
    """

    document: Document
    topology: Path
    scenarios: Path | None
    only: tuple[str, ...]
    repeat: int | None
    seed: int | None
    dimensions: tuple[Dimension, ...]
    exclude: tuple[Mapping[str, Any], ...]
    is_quick: bool
    axes_at: Location
    exclude_at: Location

    def refuse(self, findings: Sequence[Finding]) -> None:
        """Raise ``ConfigError`` with these findings, if any; places in a text that nobody wrote have no lines."""
        _refuse(self.document, findings)


def is_sweep(document: Document) -> bool:
    """Whether a document is meant as a sweep, and not as a topology."""
    return isinstance(document.value, dict) and not {"nodes", "subnet", "endpoints"} & document.value.keys()


def load_sweep(path: Path | str, settings: Sequence[str] = (), quick: bool = False) -> SweepFile:
    """The sweep in a file, or over a topology file by ``settings`` alone: ``link_delay=1ms,3ms``, ``conns=clients/10``.

    A setting is an axis of its own; one that the file has takes its place there. ``quick``: the file's quick form,
    where it has one. Raises ``ConfigError`` with every problem, also of the form that is not taken.
    """
    document = read_document(Path(path))
    if not is_sweep(document):
        document = _written(document.path, {"topology": document.path.name})
    is_quick = quick and isinstance(document.value.get("quick"), dict)
    if settings and is_quick:
        _checked(document)
        document = _written(document.path, quick_form(document.value))
    if settings:
        document = _with_settings(document, settings)
    raw = _checked(document)
    own = document.value.get("quick", {}) if is_quick else {}
    if own:
        raw = SWEEP_FILE.validate_python(quick_form(document.value))
    assert raw.topology is not None
    folder = document.path.parent
    axes_at, exclude_at = ((*(("quick",) if name in own else ()), name) for name in ("axes", "exclude"))
    return SweepFile(
        document,
        folder / raw.topology,
        folder / raw.scenarios if raw.scenarios else None,
        tuple(raw.only),
        raw.repeat,
        raw.seed,
        tuple(_dimension((*axes_at, index), entry) for index, entry in enumerate(raw.axes)),
        tuple(raw.exclude),
        is_quick,
        axes_at,
        exclude_at,
    )


def _checked(document: Document) -> RawSweep:
    """A sweep, both of its forms checked."""
    validated = validate(SWEEP_FILE, document, lambda location: RawQuick if location[:1] == ("quick",) else RawSweep)
    findings = [*validated.findings, *_axes_findings(document.value), *_quick_findings(document.value)]
    _refuse(document, findings)
    assert validated.value is not None
    return validated.value


def quick_form(value: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep with the keys of its ``quick`` in their places; ``only`` and ``exclude`` go with what they are about."""
    quick = value["quick"]
    about = {"only": "scenarios", "exclude": "axes"}
    kept = {key: item for key, item in value.items() if key != "quick" and about.get(key) not in quick}
    return {**kept, **quick}


def _written(path: Path, value: Any) -> Document:
    """A document that no file holds, told of under a path."""
    return document_of(path, json_text(value))


def _refuse(document: Document, findings: Sequence[Finding]) -> None:
    try:
        document.refuse(findings)
    except ConfigError as error:
        if document.sha256:
            raise
        # Nobody wrote that text: an axis is known by its name alone.
        told = [
            replace(problem, path=_AXIS_PLACE.sub(r"\1", problem.path), line=None, column=None)
            for problem in error.problems
        ]
        raise ConfigError(error.file, told) from None


def _with_settings(document: Document, settings: Sequence[str]) -> Document:
    value = dict(document.value)
    listed = value.get("axes", [])
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        return document  # refused as it is
    entries = [dict(entry) for entry in listed]
    findings = []
    given: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, text = axis_name(name.strip()), text.strip()
        if not equals or not name or not text:
            findings.append(Finding((), "--set is not NAME=VALUES", render(setting), "such as link_delay=1ms,3ms,10ms"))
        elif name in given:
            findings.append(Finding((), f"--set names {name} twice", render(setting), "each axis once"))
        else:
            given[name] = _values(text)
    _refuse(replace(document, sha256=""), findings)
    for entry in entries:
        for name in [*entry]:
            if name in given:
                entry[name] = given.pop(name)
    added = [{name: values} for name, values in given.items()]
    return _written(document.path, {**value, "axes": [*entries, *added]})


def _values(text: str) -> Any:
    """A list of values as the command line has it, or a ratio."""
    try:
        if (ratio := Ratio.parse(text)) is not None:
            return text.replace(ratio.of, axis_name(ratio.of), 1)
    except ValueError:
        return text
    return [_value(part.strip()) for part in text.split(",")]


def _value(text: str) -> Any:
    try:
        value, findings = parse_document(text)
    except ValueError:
        return text
    return text if findings or isinstance(value, list | dict | str) or value is None else value


def _entries(value: Any) -> list[Any]:
    listed = value.get("axes") if isinstance(value, dict) else None
    return listed if isinstance(listed, list) else []


def _known_values(entries: Sequence[Any]) -> dict[str, list[Any]]:
    """The axes that have values, with them."""
    return {
        name: values
        for entry in entries
        if isinstance(entry, dict)
        for name, values in entry.items()
        if axis_of(name) is not None and isinstance(values, list) and 1 <= len(values) <= MAX_VALUES
    }


def _quick_findings(value: Any) -> Iterator[Finding]:
    """What is wrong with axes and exclusions of the quick form, of a raw document."""
    quick = value.get("quick") if isinstance(value, dict) else None
    if isinstance(quick, dict) and "axes" in quick:
        yield from _axes_findings(quick, ("quick",))
    elif isinstance(quick, dict):
        yield from _exclude_findings(quick, _known_values(_entries(value)), ("quick",))


def _axes_findings(value: Any, at: Location = ()) -> Iterator[Finding]:
    """What is wrong with axes and exclusions of a raw object that stands at ``at``."""
    entries = _entries(value)
    first: dict[str, Location] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            continue
        if not entry:
            yield Finding((*at, "axes", index), "is empty", "{}", AXIS_FORM)
        lists: dict[str, list[Any]] = {}
        for name, values in entry.items():
            place: Location = (*at, "axes", index, name)
            axis = axis_of(name)
            if axis is None:
                yield _unknown(place, name)
                continue
            if name in first:
                yield Finding(place, "is an axis already", render(values), "each axis once", at_key=True)
                continue
            first[name] = place
            if isinstance(values, list) and 1 <= len(values) <= MAX_VALUES:
                lists[name] = values
                for number, item in enumerate(values):
                    if item is None or isinstance(item, list):
                        yield Finding((*place, number), "is no value", render(item), "one value of this axis")
            elif (problem := _not_a_ratio(axis, values)) is not None:
                yield Finding(place, problem, render(values), VALUES_FORM)
        if len({*map(len, lists.values())}) > 1:
            other, wanted = next((name, len(values)) for name, values in lists.items())
            for name, values in lists.items():
                if len(values) != wanted:
                    allowed = f"{wanted}, as {other}: they vary together"
                    yield Finding((*at, "axes", index, name), "has another number of values", f"{len(values)}", allowed)
        else:
            yield from _repeated((*at, "axes", index), lists)
    known = _known_values(entries)
    yield from _ratio_findings(entries, known, at)
    yield from _exclude_findings(value, known, at)


def _unknown(place: Location, name: str) -> Finding:
    names = [item for item in AXES if "." not in item]
    called = axis_name(name)
    meant = f'"{called}"' if called != name else hints.closest_key(name, names) or closest(name, names)
    hint = f", did you mean {meant}?" if meant else ""
    allowed = f"{', '.join(names)}, or MEMBER.KEY such as etcd1.cpus, client.cpus"
    return Finding(place, f"is not an axis{hint}", allowed=allowed, at_key=True)


def _repeated(place: Location, lists: Mapping[str, Sequence[Any]]) -> Iterator[Finding]:
    """Of an entry: combinations of its values that it has already."""
    seen: list[Any] = []
    quantities = [axis.quantity for name in lists if (axis := axis_of(name)) is not None]
    for number, values in enumerate(zip(*lists.values(), strict=True)):
        plain = [comparable(quantity, value) for quantity, value in zip(quantities, values, strict=True)]
        if plain in seen:
            words = "repeats a value" if len(lists) == 1 else f"repeats values, with {', '.join([*lists][1:])}"
            allowed = "each value once; repeat repeats all"
            yield Finding((*place, next(iter(lists)), number), words, ", ".join(map(render, values)), allowed)
        seen.append(plain)


def _not_a_ratio(axis: Axis, values: Any) -> str | None:
    if isinstance(values, list):
        return "has no values" if not values else f"has {len(values)} values"
    if not isinstance(values, str):
        return "is not a list of values"
    try:
        ratio = Ratio.parse(values)
    except ValueError as error:
        return str(error)
    if ratio is None:
        return "is not a list of values"
    return None if axis.quantity is not None else "has values that are no numbers"


def _ratio_findings(entries: Sequence[Any], known: Mapping[str, Any], at: Location) -> Iterator[Finding]:
    for index, entry in enumerate(entries):
        for name, values in entry.items() if isinstance(entry, dict) else ():
            axis = axis_of(name)
            if axis is None or not isinstance(values, str) or _not_a_ratio(axis, values) is not None:
                continue
            ratio = Ratio.parse(values)
            assert ratio is not None
            other = axis_of(ratio.of)
            place: Location = (*at, "axes", index, name)
            if other is None:
                yield replace(
                    _unknown(place, ratio.of), message=f"is a ratio of {ratio.of}, which is no axis", at_key=False
                )
            elif any(isinstance(entry, dict) and isinstance(entry.get(ratio.of), str) for entry in entries):
                yield Finding(place, f"is a ratio of {ratio.of}, which is one itself", render(values), "one of values")
            elif _kind(other) is None or _kind(other) != _kind(axis):
                allowed = "of numbers a number, of durations a duration, of sizes a size"
                yield Finding(place, f"cannot follow from {ratio.of}", render(values), allowed)
            elif axis.level == "topology" and other.level == "scenario" and ratio.of not in known:
                allowed = f"{ratio.of} as an axis: each scenario has its own"
                yield Finding(place, f"cannot follow from {ratio.of}", render(values), allowed)


def _kind(axis: Axis) -> str | None:
    kinds = {"count": "number", "milliseconds": "duration"}
    return None if axis.quantity is None else kinds.get(axis.quantity, axis.quantity)


def _exclude_findings(value: Any, known: Mapping[str, Sequence[Any]], at: Location) -> Iterator[Finding]:
    listed = value.get("exclude") if isinstance(value, dict) else None
    for index, entry in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(entry, dict):
            continue
        if not entry:
            yield Finding(
                (*at, "exclude", index), "is empty: it would exclude everything", "{}", "an axis and its value"
            )
        for name, item in entry.items():
            place: Location = (*at, "exclude", index, name)
            if name not in known:
                allowed = f"an axis of this sweep with values: {', '.join(known) or 'it has none'}"
                yield Finding(place, "is no axis of this sweep", allowed=allowed, at_key=True)
                continue
            axis = AXES.get(name) or axis_of(name)
            quantity = axis.quantity if axis is not None else None
            if comparable(quantity, item) not in [comparable(quantity, other) for other in known[name]]:
                allowed = f"one of {', '.join(map(render, known[name][:20]))}"
                yield Finding(place, "is none of the axis's values", render(item), allowed)


def _dimension(place: Location, entry: Mapping[str, Any]) -> Dimension:
    """An entry that is good."""
    axes = {name: axis for name in entry if (axis := axis_of(name)) is not None}
    lists = {name: values for name, values in entry.items() if isinstance(values, list)}
    count = max(map(len, lists.values()), default=1)
    ratios = [
        (axes[name], ratio) for name, text in entry.items() if isinstance(text, str) and (ratio := Ratio.parse(text))
    ]
    return Dimension(
        tuple(axes[name] for name in lists),
        tuple({name: values[number] for name, values in lists.items()} for number in range(count)),
        tuple(ratios),
        {name: (*place, name) for name in entry},
    )


def is_excluded(sweep: SweepFile, point: Mapping[str, Any]) -> bool:
    """Whether a combination of values is left out."""

    def same(name: str, value: Any) -> bool:
        axis = axis_of(name)
        quantity = axis.quantity if axis is not None else None
        return bool(comparable(quantity, point[name]) == comparable(quantity, value))

    return any(all(same(name, value) for name, value in entry.items()) for entry in sweep.exclude)


def shown(value: Any) -> str:
    """A value of an axis for people, as the file has it."""
    return value if isinstance(value, str) else str(value) if isinstance(value, Decimal) else render(value)
