"""The network drawn: `check --figure`, and the pictures of a report."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from ipaddress import IPv4Address
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.config.topologies import load_config
from containernet_env.model.link import DirectionSpec, IndependentLoss, Link, LinkSpec
from containernet_env.model.topology import Host, Topology, network_of
from containernet_env.report import page as pages
from containernet_env.report.document import Document
from containernet_env.report.network import (
    CHARACTER,
    DARKEST,
    LINE,
    MOST_LABELS,
    Box,
    Picture,
    Shape,
    crossings,
    graph,
    matrix,
    matrix_of,
    places_of,
    shade,
)
from containernet_env.report.page import figure_file, report_page
from containernet_env.results.run_directory import RunDirectory
from containernet_env.results.run_files import Proof
from containernet_env.runs.manifest import inputs_of
from tests.simulated_time import chosen
from tests.unit.commands import check_file
from tests.unit.manifests import manifest, plan_of
from tests.unit.report_rows import document, row, shown, write

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MS, MBIT = 10**6, 10**6
HOST = {"mem": "64m", "cpus": 1}
WAYS = {"eu-us": "80ms", "eu-asia": "200ms", "us>asia": "70ms", "asia>us": {"delay": "80ms", "loss": 0.001}}


def three(folder: Path, **more: Any) -> Path:
    """Three sites, of which two have other delays there and back."""
    nodes = [HOST | {"site": "eu", "count": 2}, HOST | {"site": "us"}, HOST | {"site": "asia", "bandwidth": 100}]
    path = folder / "three.json"
    path.write_text(json.dumps({"sites": {"eu": {"rtt": "1ms"}}, "rtt": WAYS, "nodes": nodes} | more))
    return path


def read(path: Path) -> Topology:
    return network_of(load_config(path))


def of_nodes(folder: Path, *nodes: dict[str, Any], **more: Any) -> Topology:
    path = folder / "nodes.json"
    path.write_text(json.dumps({"nodes": [HOST | node for node in nodes]} | more))
    return read(path)


def of_class(picture: Picture, kind: str) -> list[Shape]:
    return [shape for shape in picture.shapes if shape.attributes.get("class") == kind]


def words(picture: Picture) -> list[str]:
    return [shape.text for shape in picture.shapes if shape.tag == "text"]


def boxes(picture: Picture, kind: str) -> list[Box]:
    found = []
    for shape in of_class(picture, kind):
        x, y, width, height = (shape.attributes[name] for name in ("x", "y", "width", "height"))
        found.append(Box(x + width / 2, y + height / 2, width, height))
    return found


def text_boxes(picture: Picture) -> Iterator[Box]:
    """Where texts that are not turned may reach."""
    for shape in picture.shapes:
        if shape.tag == "text" and "transform" not in shape.attributes:
            width = len(shape.text) * CHARACTER
            left = {None: 0.0, "start": 0.0, "middle": 0.5, "end": 1.0}[shape.attributes.get("text-anchor")]
            yield Box(shape.attributes["x"] + (0.5 - left) * width, shape.attributes["y"] - 4, width - 1, LINE - 1)


# --- the graph --------------------------------------------------------------------------------------------------------


def test_a_graph_has_every_switch_host_and_link_with_what_is_configured_of_them(tmp_path: Path) -> None:
    picture = graph(read(three(tmp_path)))
    assert words(picture) == [
        *("eu", "etcd1", "250us", "etcd2", "250us", "benchmark", "250us"),
        *("us", "etcd3", "0ms", "asia", "etcd4", "0ms, 100 Mbit/s"),
        *("39.75ms", "99.75ms", "\u2192 70ms", "\u2190 80ms, loss 0.1%"),
        "filled: member; hollow: client; beside it its link, one way",
        "between switches: the link, one way",
    ]
    assert [len(of_class(picture, kind)) for kind in ("switch", "member", "benchmark", "link")] == [3, 4, 1, 6]
    assert picture.label == "Graph of the network: 3 switches, 5 hosts, 3 links between switches"
    titles = [shape.title for shape in picture.shapes if shape.tag == "line"]
    assert titles[2] == "us to asia: delay 70ms\nasia to us: delay 80ms, loss 0.1%"
    assert of_class(picture, "member")[3].title == (
        "etcd4\netcd4 to asia: bandwidth 100 Mbit/s, queue 2000 frames\n"
        "asia to etcd4: bandwidth 100 Mbit/s, queue 2000 frames"
    )


def test_a_link_that_differs_in_its_directions_has_both_in_lines_of_their_own(tmp_path: Path) -> None:
    link = {
        "to_switch": {"delay": "30ms", "bandwidth": 10},
        "from_switch": {"delay": "1234567ns", "bandwidth": "unlimited"},
    }
    found = words(graph(of_nodes(tmp_path, {"link": link}, {"link_delay": "0ms", "bandwidth": "unlimited"})))
    assert found[:6] == ["s1", "etcd1", "\u2192 30ms, 10 Mbit/s", "\u2190 1.23ms", "etcd2", "0ms"]
    assert found[-1] == "\u2192 from the host, \u2190 to it"


def test_many_equal_hosts_are_one_line_and_too_many_links_have_no_labels(tmp_path: Path) -> None:
    many = of_nodes(tmp_path, {"count": 100, "bandwidth": 10, "link_delay": "3ms"})
    picture = graph(many)
    assert words(picture)[:5] == ["s1", "etcd1 and 99 more", "3ms, 10 Mbit/s", "benchmark", "0ms"]
    assert of_class(picture, "member")[0].title.count("etcd") == 102, "each is named where the pointer rests"
    assert words(matrix(matrix_of(many)))[:4] == ["etcd1 and 99 more", "etcd1 and 99 more", *["benchmark"] * 2]
    lines = (CONFIGS / "rtt" / "aws-2025.csv").read_text().splitlines()
    regions = next(line for line in lines if not line.startswith("#")).split(",")[1:33]
    picture = graph(of_nodes(tmp_path, *({"site": name} for name in regions), rtt="aws-2025"))
    assert len(of_class(picture, "link faint")) == 496 and not of_class(picture, "back")
    assert words(picture)[-1] == "496 links between switches, too many for labels: see the matrix"
    assert not [pair for pair in combinations(boxes(picture, "switch"), 2) if pair[0].meets(pair[1])]


def drawn_topology(random: Random) -> Topology:
    """Up to 12 switches, each of which a link connects with an earlier one, more links, and hosts anywhere."""
    names = [f"s{'x' * random.randrange(12)}{place}" for place in range(random.randint(1, 12))]

    def side() -> DirectionSpec:
        rate_bps = random.choice([None, None, 10 * MBIT, 1000 * MBIT])
        loss = IndependentLoss(0.01) if random.random() < 0.1 else None
        return DirectionSpec(random.choice([0, MS, 12_345_678, random.randrange(300 * MS)]), rate_bps, loss=loss)

    def spec() -> LinkSpec:
        one = side()
        return LinkSpec(one, one if random.random() < 0.7 else side())

    pairs = {(random.randrange(place), place) for place in range(1, len(names))}
    pairs |= {pair for pair in combinations(range(len(names)), 2) if random.random() < random.choice([0, 0.1, 0.4])}
    links = [Link(names[a], names[b], spec()) for a, b in sorted(pairs)]
    hosts = []
    for place in range(random.randint(1, 40)):
        role = "benchmark" if random.random() < 0.2 else "member"
        hosts.append(Host(f"h{'y' * random.randrange(9)}{place}", role, IPv4Address(place), 8))
        links.append(Link(hosts[-1].name, random.choice(names), spec()))
    return Topology(hosts, names, links, is_direct=random.random() < 0.5)


@pytest.mark.parametrize("seed", chosen(5, many=100))
def test_no_boxes_and_texts_of_random_networks_meet_or_are_cut_off(seed: int) -> None:
    topology = drawn_topology(Random(seed))
    picture = graph(topology)
    placed = [*boxes(picture, "switch"), *boxes(picture, "back")]
    assert len(boxes(picture, "switch")) == len(topology.switches)
    # All links between switches have labels; or, with a note, none: where there are many, or no room is found.
    links, labels = len(topology.links) - len(topology.hosts), len(boxes(picture, "back"))
    assert labels in (0, links) and (labels == 0 or links <= MOST_LABELS)
    assert any("too many for labels" in text for text in words(picture)) is (labels < links)
    for one, other in combinations(placed, 2):
        # Places are rounded to pixels.
        assert min(one.overlap(other)) <= 1, (one, other)
    pictures = [picture, matrix(matrix_of(topology))]
    for one in pictures:
        texts = list(text_boxes(one))
        whole = Box(one.x + one.width / 2, one.y + one.height / 2, one.width, one.height)
        for box in (*texts, *(placed if one is picture else ())):
            across, down = box.overlap(whole)
            assert across >= box.width and down >= box.height, "it is within the picture"
        for box, other in combinations(texts, 2):
            assert min(box.overlap(other)) <= 1, (box, other)
    again = [graph(topology), matrix(matrix_of(topology))]
    made = figure_file("x", pictures)
    assert made == figure_file("x", again)
    assert len(ET.fromstring(made).findall("{*}svg")) == 2


def test_a_link_leads_through_no_other_switch_where_there_is_room(tmp_path: Path) -> None:
    for topology in (read(CONFIGS / "5regions.json"), read(three(tmp_path))):
        picture, names = graph(topology), topology.switches
        ends = [(names.index(link.a), names.index(link.b)) for link in topology.between]
        assert len(ends) in (3, 10) and crossings(boxes(picture, "switch"), ends) == []
    assert crossings([Box(0, 0, 10, 10), Box(50, 3, 10, 10), Box(100, 0, 10, 10)], [(0, 2)]) == [(1, (0, 2))]
    assert crossings([Box(0, 0, 10, 10), Box(50, 30, 10, 10), Box(100, 0, 10, 10)], [(0, 2)]) == []


def switches(*links: tuple[str, str, float]) -> Topology:
    names = dict.fromkeys(name for a, b, _ in links for name in (a, b))
    specs = [Link(a, b, LinkSpec.symmetric(round(ms * MS))) for a, b, ms in links]
    return Topology((), names, specs)


def test_switches_are_as_far_apart_as_their_delays_say() -> None:
    a, b, c = places_of(switches(("a", "b", 10), ("b", "c", 20)))
    assert (abs(b - a), abs(c - b), abs(c - a)) == pytest.approx((1 / 3, 2 / 3, 1), abs=0.001)
    assert a.real < b.real < c.real and {round(point.imag, 2) for point in (a, b, c)} == {0}, "a chain is a line"
    corners = places_of(switches(("a", "b", 7), ("b", "c", 7), ("a", "c", 7)))
    assert {round(abs(one - other), 4) for one, other in combinations(corners, 2)} == {1}
    assert places_of(switches(("a", "b", 0), ("b", "c", 0)))[2].real > 0, "without delays links count"
    random = Random(5)
    points = [complex(random.uniform(0, 100), random.uniform(0, 60)) for _ in range(9)]
    pairs = list(combinations(range(9), 2))
    found = places_of(switches(*((f"n{i}", f"n{j}", abs(points[i] - points[j])) for i, j in pairs)))
    longest = max(abs(points[i] - points[j]) for i, j in pairs)
    for i, j in pairs:
        assert abs(found[i] - found[j]) * longest == pytest.approx(abs(points[i] - points[j]), abs=0.05)


# --- the matrix -------------------------------------------------------------------------------------------------------


def test_a_matrix_has_round_trips_by_colour_and_shows_where_the_ways_differ(tmp_path: Path) -> None:
    made = matrix_of(read(three(tmp_path)))
    assert [group.label for group in made.groups] == ["eu", "us", "asia"]
    assert {at: cell.lines for at, cell in made.cells.items()} == {
        (0, 0): ["1.00"], (0, 1): ["80.0"], (0, 2): ["200"], (1, 0): ["80.0"], (1, 2): ["150", "\u219270.0"],
        (2, 0): ["200"], (2, 1): ["150", "\u219280.0"],
    }  # fmt: skip
    picture = matrix(made)
    opacities = [float(shape.attributes["fill-opacity"]) for shape in of_class(picture, "cell")]
    ratios = [cell.expected_ns / made.longest_ns for cell in made.cells.values()]
    assert opacities[:7] == [round(shade(ratio), 3) for ratio in ratios] and ratios[2] == 1
    assert opacities[7:] == [round(shade(step / 5), 3) for step in range(6)], "the scale"
    assert (shade(1), len(of_class(picture, "none"))) == (DARKEST, 2), "us and asia have one host each"
    title = "us to asia\nexpected RTT, ms: 150.016\nthere, ms: 70.008\nback, ms: 80.008"
    assert of_class(picture, "cell")[4].title.startswith(title)
    assert words(picture)[-2:] == [
        "expected round trips in ms, darker the longer",
        "\u2192 of it from row to column, where the ways differ",
    ]
    assert made.numbers()[3] == ("us", "asia", "150.016", "70.008", "80.008", "-", "-")


def test_without_sites_a_matrix_is_of_hosts_and_hosts_of_a_site_with_other_links_are_apart(tmp_path: Path) -> None:
    topology = read(CONFIGS / "3node-3ms.json")
    made = matrix_of(topology)
    assert [group.label for group in made.groups] == ["etcd1", "etcd2", "etcd3", "benchmark"]
    assert (made.cells[0, 1].expected_ns, made.cells[0, 3].lines) == (
        topology.expected_rtt_ns("etcd1", "etcd2"),
        ["6.00"],
    )
    nodes = ({"site": "eu", "count": 2}, {"site": "eu", "link_delay": "5ms"}, {"site": "us"})
    made = matrix_of(of_nodes(tmp_path, *nodes, rtt={"eu-us": "80ms"}))
    assert [group.label for group in made.groups] == ["etcd1 and 2 more", "etcd3", "us"]


def test_measured_medians_stand_below_with_their_difference(tmp_path: Path) -> None:
    topology = read(three(tmp_path))
    values = {("etcd1", "etcd2"): 1_000_000, ("etcd1", "etcd3"): 80_100_000, ("etcd2", "etcd3"): 80_030_000}
    made = matrix_of(topology, {frozenset(pair): [float(value)] for pair, value in values.items()})
    assert made.cells[0, 0].lines == ["1.00", "1.00", "+0.00"]
    assert made.cells[1, 0].lines == ["80.0", "80.1", "+0.07"], "the median of 80.1 and 80.03"
    assert made.cells[2, 0].lines == ["200"]
    assert made.numbers()[1][2:] == ("80.000", "40.000", "40.000", "80.065", "+0.065")
    assert "below: measured median, and its difference" in words(matrix(made))


def _luminance(colour: tuple[float, ...]) -> float:
    """WCAG 2.2, relative luminance."""
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_figures_in_cells_are_legible_in_every_theme_and_printed() -> None:
    css = (Path(pages.__file__).parent / "templates" / "page.css").read_text()
    themes = [dict(re.findall(r"--(\w+): #(\w+);", block)) for block in css.split(":root")[1:]]
    assert len([theme for theme in themes if theme]) >= 4
    for theme in filter(None, themes):
        text, back, cell = (
            tuple(int(part, 16) for part in re.findall("..", (c * 2 if len(c) == 6 else re.sub("(.)", r"\1\1", c))[:6]))
            for c in (theme["text"], theme["back"], theme["link"])
        )
        before = None
        for share in (0, 0.5, 1):
            mixed = tuple(shade(share) * c + (1 - shade(share)) * b for c, b in zip(cell, back, strict=True))
            low, high = sorted((_luminance(mixed), _luminance(text)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (theme, share)
            distance = abs(_luminance(mixed) - _luminance(back))
            assert before is None or distance > before, "brighter or darker, not only of another hue"
            before = distance


def test_check_draws_the_picture_in_the_documents_and_replaces_its_own(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """One that needs nothing else: no style of a page, no script and no other file."""
    figure = tmp_path / "net.SVG"
    for _ in range(2):
        done = shown("check", CONFIGS / "5regions.json", "--figure", figure)
        assert done.exit_code == 0, done.exception
        assert done.output.endswith(f"{figure}: the network and its round trips\n")
    check_file(CONFIGS.parent / "docs" / "images" / "5regions.svg", text := figure.read_text(), snapshot)
    assert not re.search(r"var\(|script|https?:(?!//www.w3.org/2000/svg)", text)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.SVG"]


@pytest.mark.parametrize(
    ("config", "figure", "message"),
    [
        ("good.json", "net.png", "--figure FOLDER/net.png: allowed are names that end in .svg"),
        ("bad.json", "net.pdf", "--figure FOLDER/net.pdf: allowed are names that end in .svg"),
        ("bad.json", "none/net.svg", "cannot write FOLDER/none/net.svg: its folder takes no file"),
        ("bad.json", "other.svg", "FOLDER/other.svg is not replaced: this command did not write it"),
        ("good.json", "loop.svg", "FOLDER/loop.svg is an input of this command"),
        ("bad.json", "net.svg", "FOLDER/bad.json is refused"),
        ("ends.json", "net.svg", "--figure: FOLDER/ends.json: external cluster: its network is not known"),
    ],
)
def test_figures_that_cannot_be_drawn_are_refused_before_anything_is_done(
    tmp_path: Path, config: str, figure: str, message: str
) -> None:
    (tmp_path / "good.json").write_text(json.dumps({"nodes": [HOST]}))
    (tmp_path / "bad.json").write_text("[1]")
    (tmp_path / "ends.json").write_text(json.dumps({"endpoints": ["http://127.0.0.1:1"]}))
    (tmp_path / "other.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"></svg>')
    (tmp_path / "loop.svg").symlink_to("good.json")
    before = sorted(path.name for path in tmp_path.iterdir())
    done = shown("check", tmp_path / config, "--figure", tmp_path / figure)
    said = f"{done.exception}{done.output}".replace(str(tmp_path), "FOLDER")
    assert done.exit_code != 0 and message in said and "Hosts" not in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def run_on(
    folder: Path, config: Path, run_id: str = "run-1", *, measured: bool = False, slower: int = 1
) -> RunDirectory:
    """The directory of a run on a network, beside out.csv; what was measured is 0.1 ms longer, in emulated time."""
    plan = plan_of(config)
    made = RunDirectory(folder / "out.csv", run_id)
    made.write("manifest.json", manifest(plan))
    for name, text in inputs_of(plan).items():
        made.write(name, text)
    if measured:
        found = [(pair.a, pair.b, slower * pair.expected_ns) for pair in plan.rtt]
        pairs = [{"a": a, "b": b, "expected_ns": ns, "measured_ns": ns + slower * MS // 10} for a, b, ns in found]
        pairs[0]["measured_ns"] = None
        proof: dict[str, Any] = {"at": "t", "passed": True, "problems": [], "unproved": []}
        made.add_proof(Proof(at_ns=1, pairs=pairs, **proof))
        made.add_proof(Proof(at_ns=9, moment="after", pairs=[pair | {"measured_ns": 1} for pair in pairs], **proof))
    return made


def report(folder: Path, *run_ids: str) -> Document:
    rows = [row(RunId=run_id, LinkDelay_ms=str(place)) for place, run_id in enumerate(run_ids or ["run-1"])]
    return document(write(folder / "out.csv", rows))


@pytest.mark.parametrize("slower", [1, 4])
def test_a_report_has_the_network_of_its_runs_with_what_the_first_proof_measured(tmp_path: Path, slower: int) -> None:
    run_on(tmp_path, three(tmp_path), measured=True, slower=slower)
    found = report(tmp_path)
    (network,) = found.networks
    assert (network.title, network.runs) == ("5 hosts on 3 switches", "Of the run run-1.")
    assert network.graph == graph(read(three(tmp_path)))
    assert network.numbers[1] == ("eu", "us", "80.000", "40.000", "40.000", "80.100", "+0.100")
    assert network.numbers[0][5:] == ("1.100", "+0.100"), "etcd1 to benchmark: the pair without a median is left out"
    page = report_page(found)
    assert page.count('<svg class="picture"') == 2 and '<section id="network"' in page
    assert "<td>80.100<td>+0.100" in page and " style=" not in page.partition("<script>")[0]
    assert ET.fromstring(page[page.index('<svg class="picture"') : page.index("</svg>") + 6]).tag == "svg"


def test_a_report_has_switches_in_any_graph(tmp_path: Path) -> None:
    run_on(tmp_path, CONFIGS / "ring.json", measured=True)
    (network,) = report(tmp_path).networks
    assert network.graph == graph(read(CONFIGS / "ring.json")) and len(of_class(network.graph, "back")) == 4
    assert {off for *_, median, off in network.numbers if median != "-"} == {"+0.100"}


def test_equal_networks_are_one_and_of_many_the_first_are_drawn(tmp_path: Path) -> None:
    for place in range(7):
        run_on(tmp_path, three(tmp_path, rtt=WAYS | {"eu-us": f"{80 + place // 2}ms"}), f"run-{place}", measured=True)
    found = report(tmp_path, *(f"run-{place}" for place in range(7)))
    assert [network.runs for network in found.networks] == [
        "Of the runs run-0, run-1.", "Of the runs run-2, run-3.", "Of the runs run-4, run-5.", "Of the run run-6."
    ]  # fmt: skip
    run_on(tmp_path, CONFIGS / "3node-3ms.json", "run-7")
    assert "4 of 5 networks are drawn" in report(tmp_path, *(f"run-{place}" for place in range(8))).notes


def test_a_topology_that_is_not_a_runs_own_is_left_out_and_no_other_file_is_read(tmp_path: Path) -> None:
    made = run_on(tmp_path, three(tmp_path))
    file = made.path / "inputs" / "topology.json"
    values = json.loads(file.read_text())
    other = tmp_path / "table.csv"
    other.write_text(",eu,us,asia\neu,0,80,200\nus,80,0,150\nasia,200,150,0\n")
    file.write_text(json.dumps(values | {"rtt": str(other)}))
    left = report(tmp_path)
    assert not left.networks and any("topology.json: $.rtt: is not by pair" in note for note in left.notes)
    file.write_text(json.dumps(values | {"nodes": []}))
    assert any("a network is left out: " in note and "$.nodes" in note for note in report(tmp_path).notes)
    file.write_text(json.dumps(values | {"store": {"kind": "http", "binary": "/nowhere"}, "http": {"data": "tmpfs"}}))
    assert len(report(tmp_path).networks) == 1, "what it says of the store is not read"
    file.unlink()
    assert "No run directory has a topology of its own: there are no figures of a network." in report(tmp_path).lacks
