"""Profiles of a member in the form of Go's runtime/pprof, and flame graphs of them as pages of SVG."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape, quoteattr

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
    """Read a .pb.gz. Raises ``ValueError`` for anything else."""
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


WIDTH = 1200
_ROW, _MARGIN, _HEAD = 17, 10, 46
_FONT = 11
# Of a sans-serif font, on average; a box that has no room for three letters stays empty.
_LETTER = 6.4
_LEAST_LETTERS = 3
# Narrower ones cannot be seen: what they are is in the box below them.
_LEAST_WIDTH = 0.3
_ROOT = "all"
_STYLE = (
    f"text{{font:{_FONT}px sans-serif;fill:#222;pointer-events:none}} .head{{font-size:15px}} .note{{fill:#666}} "
    "rect{stroke:#fff;stroke-width:.5} g:hover>rect{stroke:#000;stroke-width:1.5}"
)
# Go's own runtime is grey, so that the program's functions stand out.
_RUNTIME = ("runtime.", "runtime/", "internal/runtime/")


@dataclass(slots=True)
class Frame:
    """A function as called by those below it; ``value`` is that of all stacks that go through it."""

    name: str
    value: int = 0
    callees: dict[str, Frame] = field(default_factory=dict)


def tree(stacks: Mapping[Stack, int]) -> Frame:
    root = Frame(_ROOT)
    for stack, value in stacks.items():
        frame = root
        frame.value += value
        for name in stack:
            frame = frame.callees.setdefault(name, Frame(name))
            frame.value += value
    return root


def boxes(root: Frame) -> Iterator[tuple[Frame, float, float, int]]:
    """Every box that is wide enough to be seen: its x and width in pixels, and its level, 0 for the root."""
    scale = (WIDTH - 2 * _MARGIN) / root.value if root.value else 0.0
    todo = [(root, float(_MARGIN), root.value * scale, 0)]
    while todo:
        frame, x, width, level = todo.pop()
        yield frame, x, width, level
        for callee in sorted(frame.callees.values(), key=lambda frame: frame.name):
            width = callee.value * scale
            if width >= _LEAST_WIDTH:
                todo.append((callee, x, width, level + 1))
            x += width


def svg(title: str, stacks: Mapping[Stack, int], unit: str) -> str:
    """The whole page; ``unit`` is that of the values as pprof calls it."""
    root = tree(stacks)
    shown = list(boxes(root))
    levels = max(level for *_, level in shown) + 1
    height = _HEAD + levels * _ROW + _MARGIN
    note = f"{amount(root.value, unit)} in {len(stacks):,} stacks" if root.value else "nothing was measured"
    if hidden := max(map(len, stacks), default=0) + 1 - levels:
        note += f"; {hidden} more levels are too narrow to be seen"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text class="head" x="{_MARGIN}" y="20">{escape(title)}</text>',
        f'<text class="note" x="{_MARGIN}" y="37">{escape(note)}</text>',
    ]
    for frame, x, width, level in shown:
        y = height - _MARGIN - (level + 1) * _ROW
        share = f"{frame.value / root.value:.2%}" if root.value else "0 %"
        hover = escape(f"{frame.name}: {amount(frame.value, unit)}, {share}")
        place = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}"'
        label = _label(frame.name, width)
        text = f'<text x="{x + 3:.2f}" y="{y + 12}">{escape(label)}</text>' if label else ""
        lines.append(f"<g><title>{hover}</title><rect {place} fill={quoteattr(_colour(frame.name))}/>{text}</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def amount(value: int, unit: str) -> str:
    """A value for people."""
    if unit == "nanoseconds":
        return f"{value / 1e9:,.2f} s" if value >= 10**9 else f"{value / 1e6:,.1f} ms"
    if unit == "bytes":
        return f"{value / (1 << 20):,.1f} MiB" if value >= 1 << 20 else f"{value / 1024:,.1f} KiB"
    return f"{value:,} {unit}"


def _label(name: str, width: float) -> str:
    """As much of a name as there is room for: the path of its package goes first, then that, then its type."""
    room = int((width - 6) / _LETTER)
    short = _short(name)
    bare = short.partition(".")[2] or short
    # A type parameter may have points of its own.
    last = bare if "[" in bare else bare.rpartition(".")[2]
    for text in (name, short, bare, last):
        if len(text) <= room:
            return text
    return f"{last[: room - 2]}.." if room >= _LEAST_LETTERS + 2 else ""


def _short(name: str) -> str:
    """Without the path of its package; a type parameter in brackets may have one of its own."""
    head, bracket, parameters = name.partition("[")
    return f"{head.rpartition('/')[2]}{bracket}{parameters}"


def _colour(name: str) -> str:
    """The same one for all functions of a package; warm ones but for Go's runtime."""
    if name == _ROOT or name.startswith(_RUNTIME):
        return "#d5d5d5"
    short = _short(name)
    package = name.removesuffix(short) + short.partition(".")[0]
    number = sum(ord(letter) * (place + 7) for place, letter in enumerate(package))
    return f"hsl({number * 37 % 56},{70 + number % 20}%,{66 + number % 12}%)"
