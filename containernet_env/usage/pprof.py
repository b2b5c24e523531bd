"""Profiles in the form of Go's runtime/pprof, as stacks of function names with values.

A profile is a gzipped protocol buffer (https://github.com/google/pprof/blob/main/proto/profile.proto); the few fields
that stacks need are read here, by the wire format (https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Stack = tuple[str, ...]
"""Function names, the outermost first."""
# Fields of the messages Profile, ValueType, Sample, Location, Line and Function.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
_TYPE, _UNIT = 1, 2
_SAMPLE_LOCATIONS, _SAMPLE_VALUES = 1, 2
_ID, _LOCATION_LINE, _LINE_FUNCTION, _FUNCTION_NAME = 1, 4, 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_INT64 = 1 << 63
# Of a profile, unpacked; those of a busy etcd member have some 100 kB.
_MOST_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Profile:
    """``units`` has the unit of each kind of value by its name ("cpu": "nanoseconds"); ``stacks`` have a value of each.

    Of recursive functions every call is in the stack.
    """

    units: Mapping[str, str]
    stacks: Mapping[Stack, tuple[int, ...]]

    def of(self, kind: str) -> dict[Stack, int]:
        """The stacks with that value. Raises ``ValueError`` where the profile has none of that name."""
        if kind not in self.units:
            raise ValueError(f"the profile has no {kind}; it has {', '.join(self.units)}")
        index = list(self.units).index(kind)
        return {stack: values[index] for stack, values in self.stacks.items()}


def parse(data: bytes) -> Profile:
    """Read a .pb.gz. Raises ``ValueError`` for what is no such profile."""
    try:
        unpacked = zlib.decompressobj(wbits=31).decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"no gzipped profile: {error}") from error
    try:
        return _profile(memoryview(unpacked))
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"no profile of pprof's form: {error!r}") from error


def grown(before: Mapping[Stack, int], after: Mapping[Stack, int]) -> dict[Stack, int]:
    """By how much each stack's value has grown, of those that have."""
    return {stack: more for stack, value in after.items() if (more := value - before.get(stack, 0)) > 0}


def _profile(data: memoryview) -> Profile:
    strings: list[str] = []
    types: list[tuple[int, int]] = []
    names: dict[int, int] = {}
    lines: dict[int, list[int]] = {}
    samples: list[tuple[list[int], list[int]]] = []
    for number, value in _fields(data):
        if number == _STRING:
            strings.append(bytes(value).decode())
        elif number == _SAMPLE_TYPE:
            single = dict(_fields(value))
            types.append((single.get(_TYPE, 0), single.get(_UNIT, 0)))
        elif number == _FUNCTION:
            single = dict(_fields(value))
            names[single[_ID]] = single.get(_FUNCTION_NAME, 0)
        elif number == _LOCATION:
            place, functions = 0, []
            for inner, part in _fields(value):
                if inner == _ID:
                    place = part
                elif inner == _LOCATION_LINE:
                    functions.append(dict(_fields(part)).get(_LINE_FUNCTION, 0))
            lines[place] = functions
        elif number == _SAMPLE:
            samples.append((_integers(value, _SAMPLE_LOCATIONS), _integers(value, _SAMPLE_VALUES)))
    # The innermost function comes first, also among those that were inlined at one location.
    called = {place: [strings[names[function]] for function in inner] for place, inner in lines.items()}
    stacks: dict[Stack, list[int]] = defaultdict(lambda: [0] * len(types))
    for places, values in samples:
        stack = tuple(name for place in places for name in called[place])[::-1]
        total = stacks[stack]
        for index, value in enumerate(values):
            total[index] += value
    units = {strings[kind]: strings[unit] for kind, unit in types}
    if not units:
        raise ValueError("a profile without values")
    return Profile(units, {stack: tuple(values) for stack, values in stacks.items()})


def _integers(message: memoryview, wanted: int) -> list[int]:
    """A repeated int64 or uint64, packed or not."""
    found: list[int] = []
    for number, value in _fields(message):
        if number != wanted:
            continue
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            integer, at = _varint(value, at)
            found.append(integer)
    return [value - 2 * _INT64 if value >= _INT64 else value for value in found]


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Each field's number and value: an integer, or the bytes of a message, a text or packed integers."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind == _BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise ValueError("a profile that was cut short")
            yield key >> 3, message[at : at + length]
            at += length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"a field of the unknown wire type {kind}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The integer that begins there, and where the next one does."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
