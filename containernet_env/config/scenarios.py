"""Scenario files: compact blocks of settings whose lists multiply, expanded into what is run in a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

from containernet_env.base import assets
from containernet_env.base.units import format_number
from containernet_env.config.event_rules import event_findings, event_places
from containernet_env.config.load_schema import MAX_SCENARIOS, RawLoad
from containernet_env.config.positions import Location
from containernet_env.config.reader import Document, Finding, json_path, read_document, render, value_at
from containernet_env.config.scenario_rules import (
    key_findings,
    key_too_small,
    keys_fit,
    span_findings,
    spans_of,
    unique_findings,
)
from containernet_env.config.scenario_schema import (
    BLOCK,
    DATASET,
    SCENARIO_FILE,
    RawAnyBlock,
    RawDataset,
    RawMixed,
    RawOnDataset,
    RawReading,
    RawWrite,
    model_at,
)
from containernet_env.config.validation import as_far_as_good, validate
from containernet_env.model.disruption import name_of
from containernet_env.model.scenario import (
    ANY_MEMBER,
    CONSISTENCY_NAMES,
    ZIPF_EXPONENT,
    BlockPlace,
    Consistency,
    Dataset,
    KeyOrder,
    Load,
    MemberTarget,
    Scenario,
    ScenarioSet,
    SearchPlace,
)

# What a block's requests do: not every store can.
_DOING = ("type", "consistency", "spanKeys", "prefix", "span", "limit", "keysOnly", "countOnly", "history", "data")
_SHIPPED = assets.ROOT / "configs" / "scenarios"
DEFAULT_SCENARIOS = _SHIPPED / "default.json"
QUICK_SCENARIOS = _SHIPPED / "quick.json"


def load_scenarios(path: Path | str) -> ScenarioSet:
    """The scenarios of a file, blocks and lists in its order; ``ConfigError`` with every problem of it.

    In a block the lists multiply, the loads being the outer loop and a load's rates and clients the next ones.
    """
    return scenarios_of(read_document(Path(path)))


def scenarios_of(document: Document) -> ScenarioSet:
    """The scenarios in a document; see `load_scenarios`."""
    validated = validate(SCENARIO_FILE, document, lambda location: model_at(location, document.value))
    raw, findings = validated.value, validated.findings
    if raw is not None:
        raw_dataset: RawDataset | None = raw.dataset
        blocks = dict(enumerate(raw.scenarios))
    else:
        raw_dataset, blocks = _as_far_as_good(document.value)
    count = sum(_size(block) for block in blocks.values())
    if count > MAX_SCENARIOS:
        findings.append(Finding(("scenarios",), "multiply to too many", f"{count}", f"at most {MAX_SCENARIOS}"))
    dataset = Dataset()
    if raw_dataset is not None:
        given = raw_dataset
        dataset = Dataset(given.key_size, given.val_size, given.keys, given.key_prefix or "")
        if not keys_fit(dataset.key_size, dataset.keys):
            findings.append(key_too_small(("dataset", "keySize"), dataset.key_size, dataset.keys))
    scenarios: list[Scenario] = []
    first_at: dict[str, Location] = {}
    search_places: list[SearchPlace] = []
    for index, block in blocks.items():
        location = ("scenarios", index)
        if isinstance(block, RawWrite):
            findings.extend(key_findings(document, location, block))
        elif isinstance(block, RawReading) and raw_dataset is not None:
            findings.extend(span_findings(document, location, block, dataset.all_keys, blocks))
        findings.extend(event_findings(document, location, block))
        if raw_dataset is not None:
            findings.extend(unique_findings(location, block, dataset))
        for scenario in _expand(block, dataset) if count <= MAX_SCENARIOS else ():
            if scenario.name in first_at:
                where = json_path(first_at[scenario.name])
                allowed = "each scenario once; --repeat repeats all"
                findings.append(Finding(location, f"repeats a scenario of {where}", scenario.name, allowed))
            else:
                first_at[scenario.name] = location
                scenarios.append(scenario)
                if scenario.search is not None:
                    search_places.append(_search_place(document, location, block, scenario))
    document.refuse(findings)
    return ScenarioSet(
        document.path,
        document.sha256,
        dataset,
        tuple(scenarios),
        tuple(_member_targets(document, blocks.values())),
        tuple(search_places),
        tuple(
            place for index, block in blocks.items() for place in event_places(document, ("scenarios", index), block)
        ),
        tuple(_block_places(document, scenarios, first_at)),
    )


def _block_places(
    document: Document, scenarios: Iterable[Scenario], first_at: Mapping[str, Location]
) -> Iterator[BlockPlace]:
    names: dict[Location, list[str]] = {}
    for scenario in scenarios:
        names.setdefault(first_at[scenario.name], []).append(scenario.name)
    for location, of_block in names.items():
        given = value_at(document.value, location)
        keys = {
            key: (render(value), *document.line_and_column((*location, key)))
            for key, value in given.items()
            if key in _DOING
        }
        yield BlockPlace(json_path(location), *document.line_and_column(location), tuple(of_block), keys)


def _as_far_as_good(value: Any) -> tuple[RawDataset | None, dict[int, RawAnyBlock]]:
    """The data set and the blocks of a file that is refused, those that are good."""
    top = value if isinstance(value, dict) else {}
    listed = top.get("scenarios")
    blocks = [as_far_as_good(BLOCK, block) for block in listed[:MAX_SCENARIOS]] if isinstance(listed, list) else []
    good = {index: block for index, block in enumerate(blocks) if block is not None}
    return as_far_as_good(DATASET, top.get("dataset", {})), good


def _size(block: RawAnyBlock) -> int:
    loads = sum(max(1, len(load.rate)) * len(load.clients) for load in block.load)
    if isinstance(block, RawWrite):
        return loads * len(block.data) * len(block.target) * len(block.keys)
    size = loads * len(block.target) * len(block.keys)
    if isinstance(block, RawReading):
        size *= len(block.consistency) * max(1, len(block.span_keys))
    return size * len(block.ratio) if isinstance(block, RawMixed) else size


def _loads(raw: RawLoad) -> Iterator[Load]:
    """The loads of one in a file, its rates and clients taken apart; what the file leaves out has its default."""
    given = {item.name: value for item in fields(Load) if (value := getattr(raw, item.name, None)) not in (None, [])}
    if raw.search is not None:
        given["search"] = raw.search.value
    rates: list[Decimal | None] = [*raw.rate] or [None]
    for rate, clients in product(rates, raw.clients):
        yield Load(**{**given, "rate": rate, "clients": clients})


def _load_settings(load: Load) -> dict[str, Any]:
    return {item.name: getattr(load, item.name) for item in fields(Load)}


def _expand(block: RawAnyBlock, dataset: Dataset) -> Iterator[Scenario]:
    events = tuple(event.disruption for event in block.events)
    loads = [load for raw in block.load for load in _loads(raw)]
    if isinstance(block, RawWrite):
        for load, data, target, order in product(loads, block.data, block.target, block.keys):
            exponent = _exponent(block, order)
            default = load.default_keys(order)
            space = f"of{block.key_space}" if block.key_space not in (None, default) else ""
            parts = [
                "write",
                target,
                load.load_name,
                f"{data.key_size}B-{data.val_size}B",
                space,
                *_order(order, exponent),
                "history" if block.history else "",
                name_of(events),
            ]
            yield Scenario(
                name="-".join(filter(None, parts)),
                type="write",
                key_size=data.key_size,
                val_size=data.val_size,
                key_space=default if block.key_space is None else block.key_space,
                target=target,
                keys=order,
                zipf_exponent=exponent,
                history=block.history,
                events=events,
                **_load_settings(load),
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
            load.load_name,
            span.label,
            *_order(order, exponent),
            "" if verify or not isinstance(block, RawReading) else "unverified",
            "history" if block.history else "",
            name_of(events),
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
            history=block.history,
            events=events,
            **_load_settings(load),
        )


def _exponent(block: RawWrite | RawOnDataset, order: KeyOrder) -> Decimal:
    return ZIPF_EXPONENT if block.zipf_exponent is None or order != "zipfian" else block.zipf_exponent


def _order(order: KeyOrder, exponent: Decimal) -> tuple[str, str]:
    """What a name says of the order of keys."""
    return order if order != "sequential" else "", f"e{format_number(exponent)}" if exponent != ZIPF_EXPONENT else ""


def _search_place(document: Document, block_at: Location, block: RawAnyBlock, scenario: Scenario) -> SearchPlace:
    location = (*block_at, "load")
    index = next(i for i, load in enumerate(block.load) if load.search and load.search.value == scenario.search)
    step = (index,) if isinstance(value_at(document.value, location), list) else ()
    place = (*location, *step, "search")
    return SearchPlace(json_path(place), scenario.name, *document.line_and_column(place))


def _member_targets(document: Document, blocks: Iterable[RawAnyBlock]) -> Iterator[MemberTarget]:
    for number, block in enumerate(blocks):
        for index, target in enumerate(block.target):
            if target not in ANY_MEMBER:
                location: Location = ("scenarios", number, "target")
                step = (index,) if isinstance(value_at(document.value, location), list) else ()
                place = (*location, *step)
                yield MemberTarget(json_path(place), target, *document.line_and_column(place))
