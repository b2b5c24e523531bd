"""What the published figures of bench/ rest on: reports read or refused, a store that agrees, medians, formulas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from bench.compare import simulate
from bench.links import summary, tables, theory
from bench.links.paths import chain, random_graph
from bench.load import measure, over_http, plan, profile, table
from bench.load.measure import Sample, Used, run_once
from bench.load.reports import parse_etcd, parse_ours
from bench.sweep.measure import Timed
from containernet_env.base.errors import RunError
from containernet_env.model.link import LinkSpec

ETCD = """bench with serializable range
Summary:
  Total:\t0.25 secs.
  Requests/sec:\t2000.5
Response time histogram:
  0.0005 [399]	|\u220e\u220e\u220e
  0.004 [101]	|\u220e
Latency distribution:
  50% in 0.0012 secs.
  99% in 0.0039 secs.
  99.9% in 0.004 secs.
"""
ERRORS = "\nError distribution:\n  [3]\tetcdserver: request timed out\n"
WRK = """Running 1s test @ http://127.0.0.1:1/
  1 threads and 96 connections
  Latency Distribution
     50%    3.90ms
     99%  900.00us
  20000 requests in 1.05s, 3.00MB read
Requests/sec:  19047.62
"""
OURS = {"ok": 500, "failed": 0, "reason": None, "total_s": 0.25, "requests_per_s": 2000, "errors": {}}
OURS |= {"percentiles_s": {"50": 0.001, "99": 0.004}}


def test_reports_of_whole_runs_are_read() -> None:
    figures = (parse_etcd(ETCD, 500), parse_ours(json.dumps(OURS), 500), over_http.parse_wrk(WRK))
    assert [(one.ok, one.total_s, one.requests_per_s, one.p50_s, one.p99_s) for one in figures] == [
        (500, 0.25, 2000.5, 0.0012, 0.0039),
        (500, 0.25, 2000, 0.001, 0.004),
        (20000, 1.05, 19047.62, pytest.approx(0.0039), pytest.approx(0.0009)),
    ]
    assert parse_etcd(ETCD.replace("  99% in 0.0039 secs.\n", ""), 500).p99_s is None


def test_reports_of_runs_that_are_not_whole_are_refused() -> None:
    """etcd's tool ends with status 0 whatever failed."""
    changes: list[dict[str, Any]] = [{"ok": 499}, {"failed": 1}, {"reason": "cancelled"}, {"requests_per_s": None}]
    refused: list[tuple[Callable[[str], object], list[str]]] = [
        (lambda text: parse_etcd(text, 500), [ETCD + ERRORS, ERRORS, "", ETCD.replace("[101]", "[100]")]),
        (lambda text: parse_ours(text, 500), ["", *(json.dumps(OURS | change) for change in changes)]),
        (over_http.parse_wrk, ["", WRK + "  Non-2xx or 3xx responses: 3\n", WRK + "  Socket errors: read 1\n"]),
    ]
    for parse, texts in refused:
        for text in texts:
            with pytest.raises(RunError):
                parse(text)


def test_each_tool_spells_a_number_in_its_own_way() -> None:
    assert plan.outermost_keys(plan.OURS, 63) == (b"00000000", b"00000010")
    # As Go's binary.PutVarint does.
    names = {0: b"", 1: b"\x02", 63: b"\x7e", 64: b"\x80\x01", 8192: b"\x80\x80\x01"}
    assert {number: plan.key_name(plan.ETCD, number).rstrip(b"\0") for number in names} == names
    # In the order of bytes 191 comes last, not 199: it is 382 there, and the first byte of that is the largest.
    assert plan.outermost_keys(plan.ETCD, 200) == (bytes(8), b"\xfe\x02" + bytes(6))


def test_simulated_repetitions_are_compared_as_rows_are() -> None:
    """They lacked a column that decides which rows count."""
    a, half, twice = ([least + number for number in range(6)] for least in (1000.0, 500.0, 2000.0))
    assert [simulate.cell(a, b).verdict for b in (half, twice)] == ["slower", "faster"]


class FakeCluster(SimpleNamespace):
    """A store that a run changes: ``rises`` and ``writes`` are by how much, ``outermost`` its first and last key."""

    def __init__(self, **changes: Any) -> None:
        values = {"keys": 500, "revision": 900, "emptied": 0, "leaves": 1, "rises": 500, "writes": 500}
        values |= {"endpoints": "h:1", "folder": Path("/nowhere"), "client_flags": (), "check": lambda: None}
        values |= {"outermost": plan.outermost_keys(plan.OURS, 500), "cpu_s": lambda: 1.5}
        super().__init__(**values | changes)
        self.revision_and_keys = lambda: (self.revision, self.keys)
        self.outermost_keys = lambda: self.outermost

    def empty(self) -> None:
        self.emptied += 1
        self.keys, self.revision = self.leaves, self.revision + 2

    def run(self, argv: list[str], folder: Path) -> tuple[Used, str]:
        assert "--total=500" in argv and folder == self.folder
        self.keys, self.revision = self.keys + self.writes, self.revision + self.rises
        return Used(1.0, 0.25, 0.1, 7_000_000), json.dumps(OURS) if argv[0] == "/ours" else ETCD

    def sample(self, operation: str = "put", tool: str = plan.OURS) -> Sample:
        programs = {plan.OURS: Path("/ours"), plan.ETCD: Path("/etcd")}
        with mock.patch.object(measure, "run_program", self.run):
            return run_once(tool, plan.Cell(1, 1, 1, operation, 500), 500, 3, cast(Any, self), programs)


def test_a_run_is_a_sample_where_the_store_agrees_with_it_and_ends_the_comparison_where_not() -> None:
    for tool in (plan.OURS, plan.ETCD):
        cluster = FakeCluster(outermost=plan.outermost_keys(tool, 500))
        made = cluster.sample(tool=tool)
        assert (cluster.emptied, made.tool, made.cell, made.round, made.requests) == (1, tool, "put 1/1 on 1", 3, 500)
        assert (made.client_cpu_ms_per_1000, made.peak_rss_bytes) == (500.0, 7_000_000)
    cluster = FakeCluster(rises=0, writes=0)
    assert cluster.sample("range-s").cell == "range-s 1/1 on 1" and cluster.emptied == 0
    changes: dict[str, Any]
    for operation, changes, message in (
        ("put", {"rises": 499}, "revision rose by 499, not by 500"),
        ("put", {"rises": 501}, "revision rose by 501, not by 500"),
        ("put", {"writes": 1}, "holds 2 keys, not 501"),  # one key, 500 times
        ("put", {"outermost": plan.outermost_keys(plan.ETCD, 500)}, "the first and the last key are"),
        ("put", {"leaves": 2}, "holds 2 keys after it was emptied"),
        ("range-l", {"rises": 1, "writes": 0}, "revision rose by 1, not by 0"),
        ("range-s", {"rises": 0, "writes": 1}, "holds 501 keys, not 500"),
    ):
        with pytest.raises(RunError, match=message):
            FakeCluster(**changes).sample(operation)


def sample(tool: str = "ours", cell: str = "put 1/1 on 1", **changes: Any) -> Sample:
    fields: dict[str, Any] = {"round": 1, "requests": 100, "wall_s": 1.0, "total_s": 1.0, "requests_per_s": 100.0}
    fields |= {"client_kernel_ms_per_1000": 4.0, "client_cpu_ms_per_1000": 10.0, "members_cpu_ms_per_1000": 50.0}
    fields |= {"peak_rss_bytes": 15_000_000, "p50_s": 0.001, "p99_s": None}
    return Sample(tool=tool, cell=cell, **fields | changes)


def test_medians_ratios_and_the_ceiling() -> None:
    runs = [sample(requests_per_s=value, p99_s=p99) for value, p99 in ((100.0, 0.2), (300.0, None), (200.0, 0.4))]
    found = table.medians([*runs, sample(tool="etcd", client_cpu_ms_per_1000=40.0)])["put 1/1 on 1"]
    medians = {name: found["ours"][name] for name in ("runs", "requests_per_s", "p99_s")}
    assert medians == {"runs": 3, "requests_per_s": 200, "p99_s": pytest.approx(0.3)} and "p99_s" not in found["etcd"]
    ratios = {"requests_per_s": 2.0, "client_cpu_ms_per_1000": 0.25, "peak_rss_bytes": 1.0}
    assert table.ratios(found, "ours") == ratios
    assert table.ratios({"ours": found["ours"]}, "ours") is None
    # 10 ms of the client and 50 of the members for each 1000 requests at 30,000/s: 1.8 cores.
    busy = [sample(cell="put 10/100 on 1", requests_per_s=30_000.0), sample("etcd", "put 10/100 on 1")]
    assert table.ceiling(table.medians(busy), 2)[2:] == ["| put 10/100 on 1 | 90% | 17% | 40% | 30,000 | 36,000 |"]
    assert Timed("load", "sweep", 4, 4, 94.1, 80.0).is_kept and not Timed("load", "sweep", 4, 4, 94.2, 80.0).is_kept


PERF = """
\tffffffff82 __sys_sendto
\t           4 containernet-env/benchmark_image/internal/transport.write

\tffffffff83 __x64_sys_epoll_pwait

\t         100 runtime.memmove
\t         101 containernet-env/benchmark_image/internal/h2.(*Conn).Feed
\t         102 containernet-env/benchmark_image/internal/transport.(*loop).feed

\t         100 runtime.mallocgc
"""


def test_samples_of_a_profile_belong_to_what_is_innermost() -> None:
    found = {name.split(",")[0]: share for name, share in profile.shares(PERF).items() if share}
    parts = ("kernel: write", "kernel: epoll", "HTTP/2 and its header compression", "Go's runtime and libraries")
    assert found == dict.fromkeys(parts, 0.25)


def test_theory_counts_every_header_and_both_ways_the_link_is_exactly_full() -> None:
    assert theory.tcp_goodput_bps(1_000_000_000) == pytest.approx(956_406_869, abs=1)
    assert theory.tcp_goodput_bps(10**9, overhead_bytes=24) == pytest.approx(941.48e6, rel=1e-5)
    assert theory.udp_goodput_bps(100_000_000) == pytest.approx(97_225_892, abs=1)
    assert (theory.rtt_ns(3_000_000), theory.offered_pps(121_120_000, 0.0)) == (12_000_000, 10_000)
    # Segments of 1448 bytes in frames of 1514, and an ACK of 66 bytes for every other one.
    segments_per_s = theory.tcp_goodput_bps(10**8, both_ways=True) / 8 / 1448
    assert segments_per_s * (1514 + 66 / 2) * 8 == pytest.approx(10**8)


def test_summaries_of_round_trips_and_datagrams() -> None:
    assert [summary.nearest_rank([*range(200, 0, -1)], ratio) for ratio in (0.004, 0.5, 0.991, 1.0)] == [
        *(1, 100, 199, 200)
    ]
    for shortest, early in ((395_000, 5_000), (400_000, 0), (401_000, 0)):
        found = summary.summarize_rtt(400_000, [410_000, shortest, 420_000])
        assert found is not None
        assert (found.min_ns, found.median_ns, found.p99_ns, found.early_ns) == (shortest, 410_000, 420_000, early)
    assert summary.summarize_rtt(1, []) is None
    # The first datagram opens the window.
    stamps = [1_000_000 * number for number in range(11)]
    assert summary.datagram_rate_bps(stamps, 1000) == pytest.approx(8_000_000)
    assert summary.datagram_rate_bps(stamps[:1], 1000) is None


def test_graphs_of_regions_follow_from_the_seed_and_hops_are_compared_with_one_switch() -> None:
    graphs = [random_graph(seed) for seed in range(20)]
    assert all(len(graph.hosts) == 5 and len({link.b for link in graph.links[:5]}) == 5 for graph in graphs)
    assert sum(graph.has_loop for graph in graphs) > 10
    assert [graph.rtt_pairs() for graph in graphs] == [random_graph(seed).rtt_pairs() for seed in range(20)]
    assert len(chain(6, LinkSpec.symmetric(1000)).hops("h1", "h2")) == 7
    row = {"table": "hops", "pattern": "bursts", "delivered_per_s": 20_000.0, "core_ratio": 0.06, "switches": 1}
    lines = tables.hops([row, row | {"switches": 6, "core_ratio": 0.12}]).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["-", "+20.0"]
    pair = {"links": 3, "off_ns": 20_000, "early_ns": 0, "lost": 1, "sent": 9}
    found = tables.regions([{"table": "regions", "pairs": [pair, pair | {"off_ns": 40_000}]}]).splitlines()
    assert [cell.strip() for cell in found[2].split("|")[1:-1]] == ["any", "2", "20.0", "30.0", "40.0", "0.0", "2/18"]
