"""What a scenario file must keep to beyond the values of its keys: which keys of the store there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from containernet_env.config.load_schema import RawLoad
from containernet_env.config.positions import Location
from containernet_env.config.reader import Document, Finding, json_path, render, value_at
from containernet_env.config.scenario_schema import (
    RawAnyBlock,
    RawMixed,
    RawOnDataset,
    RawRead,
    RawReading,
    RawWrite,
)
from containernet_env.model import load_contract as contract
from containernet_env.model.scenario import (
    ALPHABET,
    NO_WARMUP,
    ONE_KEY,
    Answer,
    Dataset,
    KeyOrder,
    Keys,
    Span,
    after_prefix,
    new_keys,
)
from containernet_env.model.search import KEY_SPACE


def spans_of(block: RawOnDataset) -> list[Span]:
    """What the reads of a block ask for, one for each number of keys at once."""
    if not isinstance(block, RawReading):
        return [ONE_KEY]
    numbers: list[int | None] = [*block.span_keys] or [None]
    if not isinstance(block, RawRead):
        return [Span(keys=number) for number in numbers]
    answer: Answer = "keys" if block.keys_only else "count" if block.count_only else "values"
    start, end = (block.span.start, block.span.end) if block.span is not None else (None, None)
    return [Span(block.prefix, start, end, number, block.limit, answer) for number in numbers]


def keys_fit(key_size: int, keys: int) -> bool:
    """Whether so many keys of that size are all different."""
    # From 6 bytes on there are more keys than may be asked for: no need for large powers.
    return key_size > 5 or len(ALPHABET) ** key_size >= keys


def key_too_small(location: Location, key_size: int, keys: int) -> Finding:
    """That they are not."""
    least = next(size for size in range(1, 7) if keys_fit(size, keys))
    return Finding(location, f"is too small for {keys} different keys", f"{key_size}", f"at least {least}")


def key_findings(document: Document, location: Location, block: RawWrite) -> Iterator[Finding]:
    """Sizes of a block at which its keys are not all different."""
    most = _most_keys(block)
    listed = isinstance(value_at(document.value, (*location, "data")), list)
    for index, data in enumerate(block.data):
        if not keys_fit(data.key_size, most):
            step = (index,) if listed else ()
            yield key_too_small((*location, "data", *step, "keySize"), data.key_size, most)


def span_findings(
    document: Document, location: Location, block: RawReading, dataset: Keys, blocks: Mapping[int, RawAnyBlock]
) -> Iterator[Finding]:
    """What is wrong with asking for several keys at once, given what the file writes.

    ``blocks`` are the good ones, by their place in the file.
    """
    span = spans_of(block)[0]
    if span == ONE_KEY or (span.keys is None and not span.named):
        return
    key = "prefix" if span.prefix is not None else "span" if span.start is not None else "spanKeys"
    place = (*location, key)
    got = render(value_at(document.value, place))
    if max(block.span_keys, default=0) > dataset.count:
        # The row would claim spans that never were.
        yield Finding(place, "is more than the data set has", got, f"at most dataset.keys, {dataset.count}")
        return
    start, end = span.bounds(dataset)
    if not dataset.within(start, end):
        between = f"{dataset.name(0)} to {dataset.name(dataset.count - 1)}"
        yield Finding(place, "holds no key of the data set", got, f"some of its keys, {between}")
        return
    if not block.verify:
        return
    prefix = dataset.prefix
    if prefix and not (start.startswith(prefix) and end <= after_prefix(prefix)):
        allowed = f"keys that all start with dataset.keyPrefix, {prefix}, or verify false"
        yield Finding(place, "reaches beyond the data set, where it is not known what is there", got, allowed)
        return
    written = next((index for index, other in blocks.items() if isinstance(other, RawWrite)), None)
    if not prefix and written is not None:
        where = json_path(("scenarios", written))
        allowed = "a dataset.keyPrefix, which keeps the data set apart from what is written, or verify false"
        yield Finding(place, f"may hold keys beside the data set, which {where} writes", got, allowed)


def unique_findings(location: Location, block: RawAnyBlock, dataset: Dataset) -> Iterator[Finding]:
    """Values without room for the name of their writer, where that is needed, and reads that a history cannot have."""
    if not block.history and not (isinstance(block, RawMixed) and block.verify):
        return
    key = "history" if block.history else "verify"
    if block.history and any(load.search is not None for load in block.load):
        yield Finding((*location, key), "is given for a search, of which no single load is judged", "true", "false")
        return
    if isinstance(block, RawReading) and block.history:
        if spans_of(block)[0] != ONE_KEY:
            yield Finding((*location, key), "is given for more than single keys and their values", "true", "false")
            return
        if not block.verify:
            yield Finding(
                (*location, key), "is given without verify, which tells what reads have found", "true", "false"
            )
            return
    if isinstance(block, RawRead):
        return
    least = contract.UNIQUE_VAL_SIZE_MIN_BYTES
    sizes = [data.val_size for data in block.data] if isinstance(block, RawWrite) else [dataset.val_size]
    if min(sizes) < least:
        problem = f"needs unique values, and {min(sizes)} bytes have no room for the name of their writer"
        what = "a valSize" if isinstance(block, RawWrite) else "a dataset.valSize"
        yield Finding((*location, key), problem, "true", f"{what} of at least {least}, or {key} false")


def _most_keys(block: RawWrite) -> int:
    """How many different keys a block may write, by the server's defaults: a duration leaves their number open."""
    if block.key_space is not None:
        return block.key_space
    return min(max(_new_keys(load, order) for load in block.load for order in block.keys), contract.KEY_SPACE_MAX)


def _new_keys(load: RawLoad, order: KeyOrder) -> int:
    warmup = load.warmup or NO_WARMUP
    made = new_keys(load.total, warmup, order) or (load.total or 0) + contract.KEY_SPACE_OF_DURATION + warmup.requests
    return KEY_SPACE if load.search is not None else made
