"""The benchmark of links: formulas, summaries, tables and the plan; nothing is measured."""

from __future__ import annotations

import json
import random

import pytest

from bench.links import cli, flows, frames, measure, summary, tables, theory
from bench.links.durations import COMPLETE, FULL, QUICK
from bench.links.paths import KINDS, Host, wirefilter_options
from containernet_env.model.link import DirectionSpec, LinkSpec


def test_theory_counts_every_header() -> None:
    assert theory.FRAME_BYTES == 1514
    assert theory.SEGMENT_BYTES == 1448
    assert theory.ACK_BYTES == 66
    assert theory.tcp_goodput_bps(1_000_000_000) == pytest.approx(956_406_869, abs=1)
    assert theory.udp_goodput_bps(100_000_000) == pytest.approx(97_225_892, abs=1)
    assert theory.rtt_ns(3_000_000) == 12_000_000
    assert theory.offered_pps(121_120_000, 0.0) == 10_000


def test_both_ways_the_link_is_exactly_full() -> None:
    rate = 100_000_000
    segments_per_s = theory.tcp_goodput_bps(rate, both_ways=True) / 8 / theory.SEGMENT_BYTES
    on_the_wire = segments_per_s * theory.FRAME_BYTES + segments_per_s / 2 * theory.ACK_BYTES
    assert on_the_wire * 8 == pytest.approx(rate)


def test_nearest_rank_against_counting() -> None:
    samples = random.Random(1).sample(range(10_000), 333)
    for ratio in (0.01, 0.5, 0.99, 1.0):
        got = summary.nearest_rank(samples, ratio)
        assert sum(sample <= got for sample in samples) >= ratio * len(samples)
        assert sum(sample < got for sample in samples) < ratio * len(samples)
    with pytest.raises(ValueError, match="0 samples"):
        summary.nearest_rank([], 0.5)


@pytest.mark.parametrize(("shortest", "early"), [(395_000, 5_000), (400_000, 0), (401_000, 0)])
def test_early_is_never_negative(shortest: int, early: int) -> None:
    got = summary.summarize_rtt(400_000, [410_000, shortest, 420_000])
    assert got is not None
    assert (got.min_ns, got.median_ns, got.p99_ns, got.early_ns) == (shortest, 410_000, 420_000, early)


def test_nothing_answered_has_no_summary() -> None:
    assert summary.summarize_rtt(1, []) is None


def test_the_first_datagram_opens_the_window() -> None:
    stamps = [1_000_000 * number for number in range(11)]
    assert summary.datagram_rate_bps(stamps, 1000) == pytest.approx(8_000_000)
    assert summary.datagram_rate_bps(stamps[:1], 1000) is None


def test_frames_are_as_long_as_asked_and_addressed_to_the_other_host() -> None:
    one = Host("h1", 1, "bench1", "10.9.0.1", "02:00:00:00:09:01")
    two = Host("h2", 2, "bench2", "10.9.0.2", "02:00:00:00:09:02")
    made = frames.frame(one, two, 64)
    assert len(made) == 64
    assert made[:14].hex() == "02000000090202000000090188b5"


def test_tcp_info_reaches_to_the_retransmissions() -> None:
    # tcpi_total_retrans is the 24th word after the eight single bytes of struct tcp_info.
    assert flows._TOTAL_RETRANS_AT + 4 <= flows._TCP_INFO_BYTES


def test_wirefilter_is_told_bytes_per_second_and_milliseconds() -> None:
    assert wirefilter_options(LinkSpec.symmetric(100_000)) == ["-d", "0.1"]
    limited = wirefilter_options(LinkSpec.symmetric(3_000_000, 100_000_000))
    assert limited[:4] == ["-d", "3", "-b", "12500000"]
    assert limited[4:] == ["-c", "3028000"]
    assert wirefilter_options(LinkSpec.symmetric(0, 1_000_000, 100))[-1] == "151400"
    with pytest.raises(ValueError, match="alike"):
        wirefilter_options(LinkSpec(DirectionSpec(1), DirectionSpec(2)))


def test_every_mode_fits_its_time_where_all_three_are_there() -> None:
    for durations, bound_s in ((QUICK, 90), (FULL, 1500), (COMPLETE, 3000)):
        assert durations.limit_s <= bound_s
        plan = measure.points(["emulator", "wirefilter"], durations)
        assert sum(point.needs_s for point in plan) <= durations.limit_s
        assert len({point.label() for point in plan}) == len(plan)
    assert sum(point.needs_s for point in measure.points(list(KINDS), FULL)) <= FULL.limit_s


def test_an_overhead_takes_its_share_of_a_link() -> None:
    assert theory.tcp_goodput_bps(10**9, overhead_bytes=24) == pytest.approx(941.48e6, rel=1e-5)
    (point,) = [point for point in measure.points(["emulator"], FULL) if point.overhead_bytes]
    assert (point.spec().a_to_b.overhead_bytes, point.spec().b_to_a.overhead_bytes) == (24, 24)


def test_echoes_beside_a_flow_are_measured_with_and_without_the_hosts_own_queue() -> None:
    found = [point for point in measure.points(["emulator", "wirefilter"], FULL) if point.table == "beside"]
    assert {point.rate_bps for point in found} == set(measure.BESIDE_RATES_BPS)
    assert {point.spec().a_to_b.uplink for point in found} == {"host", "network"}
    assert {point.kind for point in found} == {"emulator"}


def test_a_queue_of_the_kernel_is_there_for_two_flows_only() -> None:
    plan = [point for point in measure.points(["emulator", "htb"], FULL) if point.kind == "htb"]
    assert [(point.protocol, point.delay_ns) for point in plan] == [("tcp both ways", 0)]


def test_what_is_shortened_is_said() -> None:
    assert COMPLETE.shortened() == []
    assert FULL.shortened()
    assert "instead of 3 x (3 s of warm-up + 60 s)" in QUICK.shortened()[0]
    assert "instead of 3 x (3 s of warm-up + 20 s)" in FULL.shortened()[1]


def accuracy_row(kind: str, loaded: bool = False) -> dict[str, object]:
    row: dict[str, object] = {"table": "accuracy", "kind": kind, "delay_ns": 100_000, "loaded": loaded}
    figures = {"asked_ns": 400_000, "min_ns": 398_500, "median_ns": 431_000, "p99_ns": 470_000, "early_ns": 1500}
    return {**row, **figures, "lost": 1, "sent": 60}


RESULTS = {
    "began": "2026-01-02T03:04:05Z",
    "mode": "quick",
    "took_s": 61.2,
    "machine": {"cpu": "A CPU", "cores": 2, "kernel": "6.1", "system": "Debian", "load_average": [0.1, 0.5]},
    "shortened": ["TCP: less"],
    "skipped_kinds": {"netem": "this kernel has no netem"},
    "skipped_points": [],
    "failures": [{"point": "cost, emulator", "error": "it has ended"}],
    "points": [
        accuracy_row("emulator"),
        accuracy_row("wirefilter", loaded=True),
        {
            "table": "bandwidth",
            "kind": "emulator",
            "protocol": "tcp",
            "rate_bps": 100_000_000,
            "theory_bps": 95_640_000.0,
            "runs": [
                {"goodput_bps": 95_640_000.0, "retransmissions": 2},
                {"goodput_bps": 94_683_600.0, "retransmissions": 1},
                {"goodput_bps": 90_000_000.0, "retransmissions": 0},
            ],
        },
        {
            "table": "bandwidth",
            "kind": "emulator",
            "protocol": "tcp",
            "rate_bps": None,
            "theory_bps": None,
            "runs": [{"goodput_bps": 3.5e9, "retransmissions": 0}],
        },
        {
            **accuracy_row("emulator"),
            "table": "beside",
            "rate_bps": 10_000_000,
            "uplink": "host",
            "mean_ns": 440_000,
            "max_ns": 500_000,
            "theory_bps": 9_564_000.0,
            "goodput_bps": 9_468_360.0,
        },
        {"table": "frames", "kind": "emulator", "offered_per_s": 300_000.4, "delivered_per_s": 250_000.0},
        {"table": "frames", "kind": "wirefilter", "offered_per_s": 300_000.4, "delivered_per_s": 100_000.0},
        {
            "table": "cost",
            "kind": "wirefilter",
            "pattern": "even",
            "offered_per_s": 20_000.0,
            "delivered_per_s": 19_999.0,
            "core_ratio": 0.4567,
        },
    ],
}


def cells(text: str, start: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_report_has_every_table_with_its_units() -> None:
    text = tables.report(RESULTS)
    assert cells(text, "| 0.1 ms | emulator") == [
        *("0.1 ms", "emulator", "0.400", "0.399", "0.431", "0.470", "1.5", "1/60"),
    ]
    assert cells(text, "| TCP | 100") == ["TCP", "100", "emulator", "95.640", "94.684", "-1.00", "3", "3"]
    assert cells(text, "| 10     | host") == [
        *("10", "host", "0.400", "0.431", "0.440", "0.470", "0.500", "1/60", "9.468", "-1.00"),
    ]
    assert cells(text, "| TCP | unlimited")[3:6] == ["-", "3500.000", "-"]
    assert cells(text, "| emulator   | ")[1:] == ["300,000", "250,000"]
    assert cells(text, "| 1 every 50 us")[-1] == "45.7"
    assert "- frames of 64 bytes: 2.5 times wirefilter's" in text
    assert "of one TCP flow" not in text
    for note in ("Shortened: TCP: less", "Left out: netem", "FAILED: cost, emulator: it has ended"):
        assert note in text
    json.dumps(RESULTS)


def test_all_lines_of_a_table_are_equally_long() -> None:
    made = tables.table(["a", "bb"], [["long text", "1"], ["b", "1000"]])
    assert len({len(line) for line in made.splitlines()}) == 1


def test_a_document_is_filled_again_and_again() -> None:
    document = f"before\n{tables.BEGIN}\n{tables.END}\nafter\n"
    once = tables.fill(document, "first")
    twice = tables.fill(once, "second")
    assert "first" not in twice
    assert twice == f"before\n{tables.BEGIN}\n\nsecond\n\n{tables.END}\nafter\n"


@pytest.mark.parametrize("document", ["", tables.BEGIN, tables.END + tables.BEGIN, (tables.BEGIN + tables.END) * 2])
def test_a_document_without_its_marks_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="RESULTS"):
        tables.fill(document, "text")


def test_modes_exclude_each_other() -> None:
    assert cli.parse([]).durations is FULL
    assert cli.parse(["--quick"]).durations is QUICK
    with pytest.raises(SystemExit):
        cli.parse(["--quick", "--complete"])
