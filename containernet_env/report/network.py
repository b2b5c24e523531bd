"""Pictures of a network: its graph, and the matrix of its round trips, as shapes of SVG that templates write.

Positions are worked out without libraries and rounded to pixels, so the same network makes the same bytes everywhere.
"""

from __future__ import annotations

import cmath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from operator import itemgetter
from statistics import median
from typing import Any

from containernet_env.base.units import format_duration, format_ms
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.topology import Host, Topology

CHARACTER, LINE = 7.3, 16
"""Pixels of a character and of a line of the pictures' font: no monospaced one is wider at 12 px (page.css)."""
DARKEST = 0.45
"""The share of its colour that the cell of the longest round trip has: text stays legible on it in each theme."""
MOST_HOSTS, MOST_LABELS = 24, 30
"""Hosts that are named one by one where there is one switch, and links between switches that have a label."""
_PAD, _GAP_X, _GAP_Y = 8, 24, 20
"""Pixels within boxes, and between them where links have no labels."""
_LARGER = (1, 1.4, 2)
"""How much larger a graph may become for its labels, and so that no link leads through the box of another switch."""
_ROUNDS = 60
"""How often boxes are moved off such links."""
_SHADES = 6
THERE, BACK = "\u2192", "\u2190"
Size = tuple[float, float]
Ends = tuple[int, int]

NUMBERS = ("from", "to", "expected RTT, ms", "there, ms", "back, ms", "measured median, ms", "difference, ms")
"""The columns of the numbers behind a matrix."""

Measured = Mapping[frozenset[str], Sequence[float]]
"""By pair of hosts, the round trips that were measured between them, in ns."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An element of SVG; ``title`` is shown where a pointer rests on it."""

    tag: str
    attributes: Mapping[str, Any]
    text: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Shapes from back to front, in pixels from ``x`` and ``y``; ``label``: what it shows, for whom does not see it."""

    label: str
    x: int
    y: int
    width: int
    height: int
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its centre."""

    x: float
    y: float
    width: float
    height: float

    def overlap(self, other: Box, gap_x: float = 0, gap_y: float = 0) -> tuple[float, float]:
        """How far it reaches into another one with a gap around it, along both axes: they meet if both are above 0."""
        across = (self.width + other.width) / 2 + gap_x - abs(other.x - self.x)
        return across, (self.height + other.height) / 2 + gap_y - abs(other.y - self.y)

    def meets(self, other: Box) -> bool:
        return min(self.overlap(other)) > 0

    def is_crossed(self, a: Box, b: Box) -> bool:
        """Whether the line between the centres of two others leads through it."""
        low, high = 0.0, 1.0
        for start, end, centre, size in ((a.x, b.x, self.x, self.width), (a.y, b.y, self.y, self.height)):
            ends = [start - centre - size / 2, start - centre + size / 2]
            step = start - end
            if not step and ends[0] * ends[1] > 0:
                return False
            if step:
                low, high = max(low, min(end / step for end in ends)), min(high, max(end / step for end in ends))
        return low < high


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts on one switch whose links are equal, so that nothing distinguishes their round trips."""

    label: str
    switch: str
    link: LinkSpec
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A pair of groups: the expected round trip, its part from the first to the second, and the measured median."""

    expected_ns: int
    there_ns: int
    measured_ns: float | None

    @property
    def is_lopsided(self) -> bool:
        """Whether the way back takes another time, in the digits that are shown."""
        return _ms(self.there_ns) != _ms(self.expected_ns - self.there_ns)

    @property
    def lines(self) -> list[str]:
        """What the cell shows, in ms: expected, the median, how far it is off, and one way where the ways differ."""
        found = [_ms(self.expected_ns)]
        if self.measured_ns is not None:
            found += [_ms(self.measured_ns), self._off(2)]
        return [*found, f"{THERE}{_ms(self.there_ns)}"] if self.is_lopsided else found

    @property
    def numbers(self) -> tuple[str, ...]:
        """The same with all digits, and both ways apart."""
        ways = (self.expected_ns, self.there_ns, self.expected_ns - self.there_ns)
        if self.measured_ns is None:
            return (*map(format_ms, ways), "-", "-")
        return (*map(format_ms, ways), f"{self.measured_ns / 1e6:.3f}", self._off(3))

    def _off(self, digits: int) -> str:
        assert self.measured_ns is not None
        return f"{round((self.measured_ns - self.expected_ns) / 1e6, digits) + 0.0:+.{digits}f}"  # never -0.00


@dataclass(frozen=True)
class Matrix:
    """The round trips between groups of hosts; no cell of a group that is one host alone."""

    groups: tuple[Group, ...]
    cells: Mapping[tuple[int, int], Cell]

    @property
    def longest_ns(self) -> int:
        """The longest round trip, at least 1."""
        return max((cell.expected_ns for cell in self.cells.values()), default=0) or 1

    def numbers(self) -> list[tuple[str, ...]]:
        """A row of a table for each pair: both names, and in ms the columns of `NUMBERS`."""
        return [
            (self.groups[a].label, self.groups[b].label, *cell.numbers) for (a, b), cell in self.cells.items() if a <= b
        ]


# --- what is drawn ----------------------------------------------------------------------------------------------------


def groups_of(topology: Topology, *, by_role: bool = False) -> list[Group]:
    """The hosts, those with equal links on a switch together if there are several switches or many hosts.

    ``by_role``: as a graph shows them, clients apart, and together only if there are many hosts.
    """
    by_switch = len(topology.switches) > 1 and not by_role
    together = by_switch or len(topology.hosts) > MOST_HOSTS
    links = {link.a: link for link in topology.links}
    found: dict[Any, list[Host]] = {}
    for host in topology.hosts:
        link = links[host.name]
        key = (link.b, link.spec, host.role if by_role else "")
        found.setdefault(key if together else (*key, host.name), []).append(host)
    on = [switch for switch, *_ in found]
    return [
        Group(switch if by_switch and on.count(switch) == 1 else _names(hosts), switch, spec, tuple(hosts))
        for (switch, spec, *_), hosts in found.items()
    ]


def _names(hosts: Sequence[Host]) -> str:
    return hosts[0].name if len(hosts) == 1 else f"{hosts[0].name} and {len(hosts) - 1} more"


def matrix_of(topology: Topology, measured: Measured | None = None) -> Matrix:
    """Expected and measured round trips; several switches come in the order in which the graph has them, from left."""
    at = dict(zip(topology.switches, places_of(topology), strict=True))
    groups = tuple(sorted(groups_of(topology), key=lambda group: at[group.switch].real))
    cells = {}
    for a, one in enumerate(groups):
        for b, other in enumerate(groups):
            pairs = [(x.name, y.name) for x in one.hosts for y in other.hosts if x is not y]
            if pairs:
                expected_ns = topology.expected_rtt_ns(*pairs[0])
                values = [value for pair in pairs for value in (measured or {}).get(frozenset(pair), ())]
                there_ns = topology.expected_way_ns(*pairs[0])
                cells[a, b] = Cell(expected_ns, there_ns, median(values) if values else None)
    return Matrix(groups, cells)


def _ms(value_ns: float) -> str:
    value = value_ns / 1e6
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def _words(direction: DirectionSpec) -> list[str]:
    """A direction as a picture shows it: its delay, and its bandwidth, jitter and loss where it has them."""
    delay = format_duration(direction.delay_ns)
    found = [delay if len(delay) < 8 else f"{_ms(direction.delay_ns)}ms"]
    words = direction.words
    found += [words["bandwidth"]] if "bandwidth" in words else []
    found += [f"jitter {format_duration(direction.jitter.ns)}"] if direction.jitter is not None else []
    return found + ([f"loss {words['loss']}"] if "loss" in words else [])


def _all_words(a: str, b: str, spec: LinkSpec) -> str:
    """All that is configured of both directions of a link."""
    ways = ((a, b, spec.a_to_b), (b, a, spec.b_to_a))
    lines = [
        f"{one} to {other}: {', '.join(f'{name} {value}' for name, value in side.words.items()) or 'nothing'}"
        for one, other, side in ways
    ]
    return "\n".join(lines)


def _ways(spec: LinkSpec, there: str = THERE, back: str = BACK) -> list[str]:
    """The directions of a link in lines, with these arrows where they differ."""
    one, other = map(_words, spec.sides)
    return [", ".join(one)] if one == other else [f"{there} {', '.join(one)}", f"{back} {', '.join(other)}"]


# --- where it is drawn ------------------------------------------------------------------------------------------------


def places_of(topology: Topology) -> list[complex]:
    """The switches as points whose distances are like the delays between them, the longest extent from left to right.

    Metric multidimensional scaling by majorization (de Leeuw, "Convergence of the majorization method for
    multidimensional scaling", 1988) from a circle; the distances are delays there and back, or links where nothing
    takes time.
    """
    names = topology.switches
    distances = [[topology.rtt(a, b).propagation_ns for b in names] for a in names]
    if not any(map(any, distances)):
        distances = [[len(topology.path(a, b)) for b in names] for a in names]
    longest = max(map(max, distances)) or 1
    of = len(names)
    at = [cmath.rect(0.5, -2 * cmath.pi * place / of) for place in range(of)]
    for _ in range(20_000 // of):
        at = [
            sum(
                distances[i][j] / longest * (at[i] - at[j]) / abs(at[i] - at[j])
                for j in range(of)
                if i != j and at[i] != at[j]
            )
            / of
            for i in range(of)
        ]
    # The axis about which the points spread the most becomes the horizontal one.
    turn = cmath.rect(1, -cmath.phase(sum(point**2 for point in at) or 1) / 2)
    at = [complex(round((point * turn).real, 6), round((point * turn).imag, 6)) for point in at]
    # The first switch is on the left, and above.
    return [complex(p.real * (-1 if at[0].real > 0 else 1), p.imag * (-1 if at[0].imag > 0 else 1)) for p in at]


def apart(boxes: Sequence[Box], gap_x: float, gap_y: float, links: Sequence[Ends] = ()) -> list[Box]:
    """The boxes with at least these gaps between them, each near where it was; off links of others if possible."""
    made = list(boxes)
    number = 0
    while True:
        number, moved = number + 1, False
        for box, (a, b) in crossings(made, links) if number < _ROUNDS else ():
            along = complex(made[b].x - made[a].x, made[b].y - made[a].y)
            if not along:
                continue
            off = (complex(made[box].x - made[a].x, made[box].y - made[a].y) / along).imag * abs(along)
            away = along / abs(along) * (1j if off >= 0 else -1j)
            reach = (abs(away.real) * made[box].width + abs(away.imag) * made[box].height) / 2 + _PAD
            made[box] = _moved(made[box], max(1, reach - abs(off)) * away)
            moved = True
        for i, j in combinations(range(len(made)), 2):
            one, other = made[i], made[j]
            across, down = one.overlap(other, gap_x, gap_y)
            if across <= 0.01 or down <= 0.01:
                continue
            moved = True
            right, below = other.x >= one.x, other.y >= one.y
            step = complex(across if right else -across) if across < down else complex(0, down if below else -down)
            made[i], made[j] = _moved(one, -step / 2), _moved(other, step / 2)
        if not moved:
            return made
        if number % 50 == 0:  # they push each other in a circle
            made = [Box(box.x * 1.1, box.y * 1.1, box.width, box.height) for box in made]


def crossings(boxes: Sequence[Box], links: Sequence[Ends]) -> list[tuple[int, Ends]]:
    """The boxes that a link of two others leads through, or close by, each with its link."""
    wide = [Box(box.x, box.y, box.width + _PAD, box.height + _PAD) for box in boxes]
    return [
        (number, (a, b))
        for (a, b), number in product(links, range(len(boxes)))
        if number not in (a, b) and wide[number].is_crossed(boxes[a], boxes[b])
    ]


def _moved(box: Box, by: complex) -> Box:
    return Box(box.x + by.real, box.y + by.imag, box.width, box.height)


def labels_of(links: Sequence[Ends], sizes: Sequence[Size], boxes: Sequence[Box]) -> list[Box] | None:
    """A place on each link for its label, off all boxes and labels and, if possible, other links; ``None``: no room."""
    placed: list[Box] = []
    for (a, b), (width, height) in zip(links, sizes, strict=True):
        ends = boxes[a], boxes[b]
        free = []
        for share in sorted((step / 24 for step in range(2, 23)), key=lambda share: abs(share - 0.5)):
            x, y = (start + share * (end - start) for start, end in ((ends[0].x, ends[1].x), (ends[0].y, ends[1].y)))
            box = Box(x, y, width, height)
            if not any(map(box.meets, (*boxes, *placed))):
                free.append(box)
        if not free:
            return None
        others = [(boxes[c], boxes[d]) for c, d in links if (c, d) != (a, b)]
        placed.append(min(free, key=lambda box: sum(box.is_crossed(*ends) for ends in others)))
    return placed


# --- the graph --------------------------------------------------------------------------------------------------------


def graph(topology: Topology) -> Picture:
    """Switches as boxes with their hosts in them, and the links between them."""
    names = topology.switches
    groups = groups_of(topology, by_role=True)
    of_switch = [[group for group in groups if group.switch == name] for name in names]
    sizes = [_size(name, own) for name, own in zip(names, of_switch, strict=True)]
    between = topology.between
    ends = [(names.index(link.a), names.index(link.b)) for link in between]
    boxes, texts, labels = _placed([link.spec for link in between], ends, places_of(topology), sizes)
    titles = [_all_words(link.a, link.b, link.spec) for link in between]
    shapes = [_line(boxes[a], boxes[b], title, not labels) for (a, b), title in zip(ends, titles, strict=True)]
    for name, own, box in zip(names, of_switch, boxes, strict=True):
        shapes += _switch(name, own, box)
    for box, lines, title in zip(labels, texts, titles, strict=False):
        shapes += [_rectangle(box, "back", title), *_centred(box, lines)]
    notes = ["filled: member; hollow: client; beside it its link, one way"]
    if any(len(_ways(group.link)) > 1 for group in groups):
        notes += [f"{THERE} from the host, {BACK} to it"]
    if labels:
        notes += ["between switches: the link, one way"]
    elif links := len(between):
        notes += [f"{links} links between switches, too many for labels: see the matrix"]
    counts = [_count(len(names), "switch", "es"), _count(len(topology.hosts), "host")]
    label = f"Graph of the network: {', '.join(counts)}, {_count(len(between), 'link')} between switches"
    return _picture(label, shapes, [*boxes, *labels], notes)


def _placed(
    links: Sequence[LinkSpec], ends: Sequence[Ends], places: Sequence[complex], sizes: Sequence[Size]
) -> tuple[list[Box], list[list[str]], list[Box]]:
    """The boxes of switches, and the texts and places of the labels of links; none of these if they have no room."""

    def near(larger: float) -> list[Box]:
        scale = larger * _scale(places, sizes)
        return [Box(place.real * scale, place.imag * scale, *size) for place, size in zip(places, sizes, strict=True)]

    found = []
    for larger in _LARGER if 0 < len(links) <= MOST_LABELS else ():
        boxes = apart(near(larger), 4 * _GAP_X * larger, 3 * _GAP_Y * larger, ends)
        texts = [_ways(link, *_arrows(boxes[a], boxes[b])) for link, (a, b) in zip(links, ends, strict=True)]
        if (labels := labels_of(ends, list(map(_size_of, texts)), boxes)) is not None:
            found.append((len(crossings(boxes, ends)), boxes, texts, labels))
            if not found[-1][0]:
                break
    if found:
        return min(found, key=itemgetter(0))[1:]
    return apart(near(1), _GAP_X, _GAP_Y), [], []


def _scale(places: Sequence[complex], sizes: Sequence[Size]) -> float:
    """Pixels of a unit of the places: the boxes cover about a third of the picture, or stand in a row."""
    width, height = (max(axis) - min(axis) for axis in ([p.real for p in places], [p.imag for p in places]))
    area = 3 * sum((w + _GAP_X) * (h + _GAP_Y) for w, h in sizes)
    row = sum(w + _GAP_X for w, _ in sizes) / (width or 1)
    return min((area / (width * height)) ** 0.5, row) if width * height else row


def _size(name: str, groups: Sequence[Group]) -> Size:
    links = [words for group in groups for words in _ways(group.link)]
    columns = _links_at(groups) + max(map(len, links), default=0) * CHARACTER
    return max(columns, len(name) * CHARACTER) + 2 * _PAD, (1 + len(links)) * LINE + 2 * _PAD


def _links_at(groups: Sequence[Group]) -> float:
    """Where the links of its hosts stand, beside their names."""
    return LINE + max((len(group.label) + 2 for group in groups), default=0) * CHARACTER


def _switch(name: str, groups: Sequence[Group], box: Box) -> Iterator[Shape]:
    """A switch: its name, and below it a line to each of its hosts."""
    left, y = box.x - box.width / 2 + _PAD, box.y - box.height / 2 + _PAD + LINE / 2
    yield _rectangle(box, "switch")
    yield _text(left, y, name, "strong")
    rows = [len(_ways(group.link)) for group in groups]
    if groups:
        last = y + LINE * (1 + sum(rows[:-1]))
        yield Shape("path", {"class": "link", "d": f"M{round(left + 5)} {round(y + LINE / 2)}V{round(last)}"})
    for group in groups:
        title = f"{', '.join(host.name for host in group.hosts)}\n{_all_words(group.hosts[0].name, name, group.link)}"
        at = {"cx": round(left + 5), "cy": round(y + LINE), "r": 4}
        yield Shape("circle", {"class": group.hosts[0].role, **at}, title=title)
        yield _text(left + LINE, y + LINE, group.label)
        for words in _ways(group.link):
            y += LINE
            yield _text(left + _links_at(groups), y, words, "muted")


def _arrows(a: Box, b: Box) -> tuple[str, str]:
    """Towards b, and back."""
    if abs(b.x - a.x) >= abs(b.y - a.y):
        return (THERE, BACK) if b.x >= a.x else (BACK, THERE)
    return ("\u2193", "\u2191") if b.y >= a.y else ("\u2191", "\u2193")


# --- the matrix -------------------------------------------------------------------------------------------------------


def matrix(made: Matrix) -> Picture:
    """The round trips as a square of cells, darker where they are longer, with the figures in each."""
    labels, of = [group.label for group in made.groups], len(made.groups)
    lines = [cell.lines for cell in made.cells.values()] or [[""]]
    height = max(map(len, lines)) * LINE + 4
    width = max(height, max(len(line) for of_cell in lines for line in of_cell) * CHARACTER + 4)
    longest = max(map(len, labels)) * CHARACTER + _PAD
    turned = longest > width
    above = longest if turned else LINE + _PAD
    shapes: list[Shape] = []
    for place, label in enumerate(labels):
        x, y = (place + 0.5) * width, (place + 0.5) * height
        shapes.append(_text(-_PAD, y, label, anchor="end"))
        turn = {"transform": f"rotate(-90 {round(x)} {-_PAD})"} if turned else {}
        shapes.append(_text(x, -_PAD, label, anchor="start" if turned else "middle", **turn))
    for a, b in product(range(of), repeat=2):
        box, cell = Box((b + 0.5) * width, (a + 0.5) * height, width - 2, height - 2), made.cells.get((a, b))
        if cell is None:
            shapes.append(_rectangle(box, "none"))
            continue
        numbers = zip(NUMBERS[2:], cell.numbers, strict=True)
        title = "\n".join([f"{labels[a]} to {labels[b]}", *(f"{name}: {number}" for name, number in numbers)])
        shapes += [_cell(box, cell.expected_ns / made.longest_ns, title), *_centred(box, cell.lines, "strong")]
    boxes = [Box((of * width - longest) / 2, (of * height - above) / 2, of * width + longest, of * height + above)]
    x = 0.0
    for share in (step / (_SHADES - 1) for step in range(_SHADES)):
        words = [_ms(share * made.longest_ns)]
        box = Box(x + _size_of(words)[0] / 2, of * height + _PAD + LINE / 2, *_size_of(words))
        x += box.width
        shapes += [_cell(box, share), *_centred(box, words)]
        boxes.append(box)
    notes = ["expected round trips in ms, darker the longer"]
    if any(cell.measured_ns is not None for cell in made.cells.values()):
        notes += ["below: measured median, and its difference"]
    if any(cell.is_lopsided for cell in made.cells.values()):
        notes += [f"{THERE} of it from row to column, where the ways differ"]
    return _picture(f"Matrix of the round trips between {_count(of, 'place')}", shapes, boxes, notes)


def shade(share: float) -> float:
    """The opacity of a cell whose round trip is this share, 0 to 1, of the longest one."""
    return 0.04 + (DARKEST - 0.04) * share


# --- shapes -----------------------------------------------------------------------------------------------------------


def _picture(label: str, shapes: Sequence[Shape], boxes: Sequence[Box], notes: Sequence[str]) -> Picture:
    """The shapes within these boxes, with notes below them."""
    left, top = min(box.x - box.width / 2 for box in boxes), min(box.y - box.height / 2 for box in boxes)
    right, bottom = max(box.x + box.width / 2 for box in boxes), max(box.y + box.height / 2 for box in boxes)
    below = [_text(left, bottom + _PAD + LINE * (number + 0.5), words, "muted") for number, words in enumerate(notes)]
    right = max(right, *(left + len(words) * CHARACTER for words in notes))
    bottom += _PAD + len(notes) * LINE
    x, y = round(left) - _PAD, round(top) - _PAD
    return Picture(label, x, y, round(right) + _PAD - x, round(bottom) + _PAD - y, (*shapes, *below))


def _rectangle(box: Box, kind: str, title: str = "", **more: Any) -> Shape:
    x, y = round(box.x - box.width / 2), round(box.y - box.height / 2)
    size = {"width": round(box.x + box.width / 2) - x, "height": round(box.y + box.height / 2) - y}
    return Shape("rect", {"class": kind, "x": x, "y": y, **size, "rx": 3, **more}, title=title)


def _cell(box: Box, share: float, title: str = "") -> Shape:
    return _rectangle(box, "cell", title, **{"fill-opacity": f"{shade(share):.3f}"})


def _line(a: Box, b: Box, title: str, faint: bool) -> Shape:
    ends = {"x1": round(a.x), "y1": round(a.y), "x2": round(b.x), "y2": round(b.y)}
    return Shape("line", {"class": "link faint" if faint else "link", **ends}, title=title)


def _text(x: float, y: float, words: str, kind: str | None = None, anchor: str | None = None, **more: Any) -> Shape:
    """A line of text whose middle is at ``y``: a third of its size above its base line."""
    return Shape("text", {"class": kind, "x": round(x), "y": round(y) + 4, "text-anchor": anchor, **more}, words)


def _centred(box: Box, lines: Sequence[str], first: str | None = None) -> list[Shape]:
    top = box.y - LINE * (len(lines) - 1) / 2
    return [
        _text(box.x, top + LINE * number, words, None if number else first, "middle")
        for number, words in enumerate(lines)
    ]


def _size_of(lines: Sequence[str]) -> Size:
    return max(map(len, lines), default=0) * CHARACTER + _PAD, len(lines) * LINE


def _count(number: int, noun: str, ending: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else ending}"
