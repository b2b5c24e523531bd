"""Results as Markdown tables: the same text on the terminal and in the documentation. Pure."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from bench.links.summary import off_ratio

BEGIN, END = "<!-- RESULTS -->", "<!-- END OF RESULTS -->"
LINE_WIDTH = 120

Row = Mapping[str, Any]
_PATTERNS = {"bursts": "20 every 1 ms", "even": "1 every 50 us"}


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """A Markdown table, aligned as plain text too; columns after the first ``text_columns`` hold numbers."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if column < text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if column < text_columns else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join([line(header), line(rule), *(line(row) for row in rows)])


def accuracy(rows: Sequence[Row], loaded: bool) -> str:
    """RTTs in ms; empty where none was measured."""
    cells = [
        [
            f"{row['delay_ns'] / 1e6:g} ms",
            row["kind"],
            _ms(row["asked_ns"]),
            _ms(row["min_ns"]),
            _ms(row["median_ns"]),
            _ms(row["p99_ns"]),
            f"{row['early_ns'] / 1000:.1f}",
            f"{row['lost']}/{row['sent']}",
        ]
        for row in rows
        if row["table"] == "accuracy" and row["loaded"] == loaded
    ]
    header = ["links", "by", "configured", "min", "median", "99 %", "worst early, us", "lost"]
    return table(header, cells, 2) if cells else ""


def bandwidth(rows: Sequence[Row]) -> str:
    """Goodput in Mbit/s, and CPU time where a process carries the frames, the medians of the runs; retransmissions of
    all runs."""
    cells = []
    for row in rows:
        if row["table"] != "bandwidth":
            continue
        goodput = statistics.median(run["goodput_bps"] for run in row["runs"])
        expected = row["theory_bps"]
        tcp = row["protocol"] != "udp"
        cores = [run["core_ratio"] for run in row["runs"] if run.get("core_ratio") is not None]
        cells.append(
            [
                row["protocol"].upper() if not tcp else row["protocol"].replace("tcp", "TCP"),
                _rate(row),
                row["kind"],
                "-" if expected is None else f"{expected / 1e6:.3f}",
                f"{goodput / 1e6:.3f}",
                "-" if expected is None else f"{100 * off_ratio(goodput, expected):+.2f}",
                str(sum(run["retransmissions"] for run in row["runs"])) if tcp else "-",
                f"{100 * statistics.median(cores):.0f}" if cores else "-",
                str(len(row["runs"])),
            ]
        )
    header = ["", "Mbit/s", "by", "theory", "goodput", "off, %", "retransmissions", "% of a core", "runs"]
    return table(header, cells, 3) if cells else ""


def _rate(row: Row) -> str:
    if row["rate_bps"] is None:
        return "unlimited"
    overhead = row.get("overhead_bytes")
    return f"{row['rate_bps'] / 1e6:g}{f', overhead {overhead}' if overhead else ''}"


def beside(rows: Sequence[Row]) -> str:
    """RTTs in ms beside one flow of the same host, and its goodput."""
    cells = [
        [
            _rate(row),
            row["uplink"],
            *(_ms(row[f"{name}_ns"]) for name in ("asked", "median", "mean", "p99", "max")),
            f"{row['lost']}/{row['sent']}",
            f"{row['goodput_bps'] / 1e6:.3f}",
            f"{100 * off_ratio(row['goodput_bps'], row['theory_bps']):+.2f}",
        ]
        for row in rows
        if row["table"] == "beside"
    ]
    header = ["Mbit/s", "uplink", "configured", "median", "mean", "99 %", "max", "lost", "goodput", "off, %"]
    return table(header, cells, 2) if cells else ""


def ratios(rows: Sequence[Row]) -> str:
    """The emulator's throughput as a multiple of wirefilter's; empty where either was not measured."""
    lines = []
    for what, found in (("bits/s of one TCP flow, unlimited", _unlimited(rows)), ("frames of 64 bytes", _small(rows))):
        if found.get("wirefilter") and "emulator" in found:
            lines.append(f"- {what}: {found['emulator'] / found['wirefilter']:.1f} times wirefilter's")
    return "\n".join(lines)


def _unlimited(rows: Sequence[Row]) -> dict[str, float]:
    """Goodput of one flow by kind, in bit/s."""
    found = [row for row in rows if row["table"] == "bandwidth" and row["protocol"] == "tcp" and not row["rate_bps"]]
    return {row["kind"]: statistics.median(run["goodput_bps"] for run in row["runs"]) for row in found}


def _small(rows: Sequence[Row]) -> dict[str, float]:
    """Frames of 64 bytes per second by kind."""
    return {row["kind"]: row["delivered_per_s"] for row in rows if row["table"] == "frames"}


def frames(rows: Sequence[Row]) -> str:
    """Frames of 64 bytes per second."""
    cells = [
        [row["kind"], f"{row['offered_per_s']:,.0f}", f"{row['delivered_per_s']:,.0f}"]
        for row in rows
        if row["table"] == "frames"
    ]
    return table(["by", "offered frames/s", "delivered frames/s"], cells) if cells else ""


def cost(rows: Sequence[Row]) -> str:
    """CPU time at 20,000 frames per second."""
    cells = [
        [
            _PATTERNS[row["pattern"]],
            row["kind"],
            f"{row['offered_per_s']:,.0f}",
            f"{row['delivered_per_s']:,.0f}",
            f"{100 * row['core_ratio']:.1f}",
        ]
        for row in rows
        if row["table"] == "cost"
    ]
    return table(["frames", "by", "offered/s", "delivered/s", "% of a core"], cells, 2) if cells else ""


def hops(rows: Sequence[Row]) -> str:
    """CPU time of a frame by the number of switches on its way, and what each more adds to that of one."""
    found = [row for row in rows if row["table"] == "hops"]
    of_one = {row["pattern"]: _frame_us(row) for row in found if row["switches"] == 1}
    cells = []
    for row in found:
        one_us, more = of_one.get(row["pattern"]), row["switches"] - 1
        each = f"{100 * (_frame_us(row) / one_us - 1) / more:+.1f}" if one_us and more else "-"
        delivered = f"{row['delivered_per_s']:,.0f}"
        cells.append([_PATTERNS[row["pattern"]], str(row["switches"]), delivered, f"{_frame_us(row):.2f}", each])
    header = ["frames", "switches", "delivered/s", "us of CPU time each", "more per switch, %"]
    return table(header, cells) if cells else ""


def _frame_us(row: Row) -> float:
    return 1e6 * float(row["core_ratio"]) / max(1.0, float(row["delivered_per_s"]))


def regions(rows: Sequence[Row]) -> str:
    """How far the median RTT of each pair is from configured, by the number of links between them, one way."""
    pairs = [pair for row in rows if row["table"] == "regions" for pair in row["pairs"]]
    cells = []
    for links in [None, *sorted({pair["links"] for pair in pairs})] if pairs else ():
        of_these = [pair for pair in pairs if links in (None, pair["links"])]
        off_us = sorted(pair["off_ns"] / 1000 for pair in of_these)
        early_us, lost = max(pair["early_ns"] for pair in of_these) / 1000, sum(pair["lost"] for pair in of_these)
        figures = [off_us[0], statistics.median(off_us), off_us[-1], early_us]
        sent = sum(pair["sent"] for pair in of_these)
        label = "any" if links is None else str(links)
        cells.append([label, str(len(of_these)), *(f"{value:.1f}" for value in figures), f"{lost}/{sent}"])
    header = ["links", "pairs", "least off, us", "median off, us", "most off, us", "worst early, us", "lost"]
    return table(header, cells) if cells else ""


def report(results: Mapping[str, Any]) -> str:
    """Everything, as a section of a Markdown document without a heading of its own."""
    rows = results["points"]
    machine = results["machine"]
    load = machine["load_average"]
    parts = [
        f"Measured on {results['began'][:10]}, mode `{results['mode']}`, {results['took_s']:.0f} s; "
        f"load average before {load[0]:.2f}, after {load[1]:.2f}.\n"
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, {machine['system']}."
    ]
    notes = [f"- Shortened: {line}." for line in results["shortened"]]
    notes += [f"- Left out: {kind}: {reason}." for kind, reason in results["skipped_kinds"].items()]
    notes += [f"- Left out for lack of time: {label}." for label in results["skipped_points"]]
    notes += [f"- FAILED: {failure['point']}: {failure['error']}." for failure in results["failures"]]
    parts.append("\n".join(_wrapped(note) for note in notes))
    for title, text in (
        ("Round trips, idle, in ms", accuracy(rows, loaded=False)),
        ("Round trips under load (5,000 full frames/s, five every millisecond), in ms", accuracy(rows, loaded=True)),
        ("Goodput over links of 3 ms, in Mbit/s", bandwidth(rows)),
        ("Round trips beside one TCP flow of the same host, in ms, and its goodput in Mbit/s", beside(rows)),
        ("Frames of 64 bytes, at the maximum rate", frames(rows)),
        ("The emulator", ratios(rows)),
        ("CPU time for 20,000 full frames/s", cost(rows)),
        ("CPU time of the emulator for a full frame, at 20,000/s over a chain of switches", hops(rows)),
        ("Median RTT less configured, of every pair of five regions in random graphs of switches", regions(rows)),
    ):
        if text:
            parts.append(f"{title}:\n\n{text}")
    return "\n\n".join(part for part in parts if part)


def fill(document: str, text: str) -> str:
    """The document with ``text`` between its two markers. Raises ``ValueError`` unless each is there once, in order."""
    if document.count(BEGIN) != 1 or document.count(END) != 1 or document.index(BEGIN) > document.index(END):
        raise ValueError(f"the document needs one '{BEGIN}' and, after it, one '{END}'")
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}"


def _wrapped(item: str) -> str:
    """A list item on lines of at most ``LINE_WIDTH`` columns."""
    return textwrap.fill(item, LINE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _ms(value_ns: int) -> str:
    return f"{value_ns / 1e6:.3f}"
