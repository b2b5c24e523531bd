"""Profiles as stacks, and flame graphs of them."""

from __future__ import annotations

import gzip
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from containernet_env.hosts import profiles
from containernet_env.hosts.profiles import Stack
from containernet_env.runs.observer import flame_graph
from containernet_env.stores.profiling import Profile

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "pprof"
SVG = "{http://www.w3.org/2000/svg}"


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


STRINGS = [b"", b"cpu", b"nanoseconds", b"main.main", b"main.work", b"runtime.mallocgc"]


def made(*samples: bytes) -> bytes:
    """A profile with the functions main (1), work (2) and mallocgc (3); at location 2 mallocgc is inlined in work."""
    parts = [field(6, text) for text in STRINGS]
    parts.append(field(1, field(1, 1) + field(2, 2)))
    parts += [field(5, field(1, number) + field(2, 2 + number)) for number in (1, 2, 3)]
    parts.append(field(4, field(1, 1) + field(4, field(1, 1) + field(2, 77))))
    parts.append(field(4, field(1, 2) + field(4, field(1, 3)) + field(4, field(1, 2))))
    parts.append(field(9, 12345) + varint(12 << 3 | 1) + b"12345678" + varint(15 << 3 | 5) + b"1234")
    return gzip.compress(b"".join([*parts, *(field(2, sample) for sample in samples)]), mtime=0)


PACKED = field(1, varint(2) + varint(1)) + field(2, varint(30))
APART = field(1, 1) + field(2, 5)
NEGATIVE = field(1, varint(1)) + field(2, varint(-3))


def test_stacks_begin_with_the_outermost_function() -> None:
    parsed = profiles.parse(made(PACKED, APART, PACKED))
    assert parsed.units == {"cpu": "nanoseconds"}
    assert parsed.of("cpu") == {("main.main", "main.work", "runtime.mallocgc"): 60, ("main.main",): 5}
    assert profiles.parse(made(NEGATIVE)).of("cpu") == {("main.main",): -3}
    with pytest.raises(ValueError, match="has no delay; it has cpu"):
        parsed.of("delay")
    before: Mapping[Stack, int] = {("a",): 5, ("b",): 7, ("c",): 9}
    assert profiles.grown(before, {("a",): 8, ("b",): 7, ("c",): 2, ("d",): 1}) == {("a",): 3, ("d",): 1}


def test_what_is_no_profile_is_refused() -> None:
    cut_short, nowhere = gzip.decompress(made(PACKED))[:-3], made(field(1, varint(9)) + field(2, varint(1)))
    contents = (b"", b"\xff\xff\xff", b"nonsense", cut_short)
    for data in (b"", b"no gzip", made(PACKED)[:40], nowhere, *(gzip.compress(content) for content in contents)):
        with pytest.raises(ValueError):
            pytest.fail(f"{data!r} is {profiles.parse(data)}")


STACKS: Mapping[Stack, int] = {("main", "b"): 10**9, ("main", "a", "x"): 3 * 10**9, ("main",): 2 * 10**9}


def drawn(text: str) -> dict[str, tuple[float, float, float]]:
    """By hover text: x, y and width of each box; the text has to be XML."""
    found = {}
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text
        x, y, width = (float(rect.attrib[name]) for name in ("x", "y", "width"))
        found[title.text] = (x, y, width)
    return found


def test_a_box_is_as_wide_as_its_share_and_stands_on_its_caller() -> None:
    boxes = drawn(profiles.svg("cpu of etcd1", STACKS, "nanoseconds"))
    whole = profiles.WIDTH - 20
    root, main = boxes["all: 6.00 s, 100.00%"], boxes["main: 6.00 s, 100.00%"]
    a, b, x = boxes["a: 3.00 s, 50.00%"], boxes["b: 1.00 s, 16.67%"], boxes["x: 3.00 s, 50.00%"]
    assert root[2] == main[2] == whole
    assert (a[2], b[2]) == (pytest.approx(whole / 2, abs=0.01), pytest.approx(whole / 6, abs=0.01))
    assert (a[0], b[0]) == (root[0], pytest.approx(root[0] + a[2], abs=0.01)), "alphabetical, side by side"
    assert root[1] > main[1] > a[1] == b[1] > x[1], "callers are below"
    assert len(boxes) == 5


def test_boxes_of_odd_stacks() -> None:
    markup = profiles.svg("<title> & more", {("f[go.shape.*<x>&]", '"'): 5}, "bytes")
    assert "f[go.shape.*<x>&]: 0.0 KiB, 100.00%" in drawn(markup) and "script" not in markup
    nothing = profiles.svg("mutex of etcd1", {}, "nanoseconds")
    assert "nothing was measured" in nothing and list(drawn(nothing)) == ["all: 0.0 ms, 0 %"]
    narrow = profiles.svg("t", {("main", *(f"f{n}" for n in range(2000))): 1, ("main",): 10**6}, "count")
    assert len(drawn(narrow)) == 2 and "2000 more levels are too narrow to be seen" in narrow
    assert len(drawn(profiles.svg("t", {tuple(f"f{n}" for n in range(5000)): 1}, "count"))) == 5001


def test_labels_fit_their_boxes() -> None:
    name = "go.etcd.io/etcd/server/v3/etcdserver.(*EtcdServer).applyEntryNormal"
    shortened = {1000: name, 350: name.rpartition("/")[2], 260: "(*EtcdServer).applyEntryNormal"}
    shortened |= {150: "applyEntryNormal", 100: "applyEntryNo..", 20: ""}
    assert {width: profiles._label(name, width) for width in shortened} == shortened
    generic = "sync/atomic.(*Pointer[go.shape.struct { internal/sync.x }]).Load"
    assert profiles._label(generic, 6 + len(generic) * profiles._LETTER - 1) == generic.removeprefix("sync/")
    assert profiles._colour(generic) == profiles._colour("sync/atomic.Load") != profiles._colour("sync.Load")
    for width in range(0, 1000, 7):
        assert len(profiles._label(name, width)) * profiles._LETTER <= max(width, 0)


def test_amounts() -> None:
    amounts = {(1_180_000_000, "nanoseconds"): "1.18 s", (14_463_433, "nanoseconds"): "14.5 ms"}
    amounts |= {(4_623_055, "bytes"): "4.4 MiB", (2048, "bytes"): "2.0 KiB", (12345, "count"): "12,345 count"}
    assert {key: profiles.amount(*key) for key in amounts} == amounts


def test_a_graph_of_a_cumulative_profile_shows_what_it_grew_by() -> None:
    before, after = made(PACKED), made(PACKED, PACKED, APART)
    boxes = drawn(flame_graph("t", Profile("allocs", "cpu", after, before)))
    assert boxes.keys() == drawn(flame_graph("t", Profile("cpu", "cpu", made(PACKED, APART)))).keys()
    with pytest.raises(ValueError):
        flame_graph("t", Profile("allocs", "alloc_space", after, before))


_UNITS = {"ms": 1e6, "s": 1e9, "us": 1e3, "ns": 1, "MB": 1 << 20, "kB": 1 << 10, "B": 1}


def value_of(text: str) -> tuple[float, float]:
    """A value as pprof prints it, and half of its last digit."""
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?([a-zA-Z]+)?", text)
    unit = _UNITS[match[3]] if match[3] else 1
    return float(f"{match[1]}.{match[2] or 0}") * unit, 0.51 * 10 ** -len(match[2] or "") * unit


@pytest.mark.parametrize(("kind", "measured"), [("cpu", "cpu"), ("allocs", "alloc_space"), ("mutex", "delay")])
def test_recorded_profiles_of_etcd_are_read_as_pprof_reads_them(kind: str, measured: str) -> None:
    """The texts beside the profiles are what `go tool pprof -top` made of them (-base allocs-before for allocs)."""
    stacks = profiles.parse((RECORDED / f"{kind}.pb.gz").read_bytes()).of(measured)
    if kind == "allocs":
        before = profiles.parse((RECORDED / "allocs-before.pb.gz").read_bytes()).of(measured)
        stacks = profiles.grown(before, stacks)
    flat: Counter[str] = Counter()
    cumulated: Counter[str] = Counter()
    for stack, count in stacks.items():
        flat[stack[-1]] += count
        cumulated.update(dict.fromkeys(stack, count))
    lines = (RECORDED / f"{kind}.top.txt").read_text().splitlines()[1:]
    assert len(lines) == 8
    for line in lines:
        own, _, _, whole, _, *name = line.removesuffix(" (inline)").split(maxsplit=5)
        for told, ours in ((own, flat[name[0]]), (whole, cumulated[name[0]])):
            value, half = value_of(told)
            assert abs(ours - value) <= half, (line, ours)
    graph = drawn(profiles.svg(kind, stacks, profiles.parse((RECORDED / f"{kind}.pb.gz").read_bytes()).units[measured]))
    assert len(graph) > 50
