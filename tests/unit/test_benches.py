"""What the published figures of bench/ rest on: reports read or refused, a store that agrees, sums and formulas."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from bench.links import frames, summary, tables, theory
from bench.links import measure as links
from bench.links.durations import COMPLETE, FULL, QUICK
from bench.links.paths import Host, wirefilter_options
from bench.load import measure, over_http, plan, profile, table, zookeeper
from bench.load.measure import Sample, Used, run_once
from bench.load.reports import parse_etcd, parse_ours
from bench.load.services import Service
from bench.sweep.measure import Timed
from containernet_env.base.errors import RunError
from containernet_env.model.link import DirectionSpec, LinkSpec

# --- reports of the tools ---------------------------------------------------------------------------------------------

ETCD = """bench with serializable range

Summary:
  Total:\t0.25 secs.
  Slowest:\t0.004 secs.
  Fastest:\t1e-05 secs.
  Average:\t0.0012 secs.
  Stddev:\t0.0003 secs.
  Requests/sec:\t2000.5

Response time histogram:
  1e-05 [1]\t|
  0.0005 [398]\t|\u220e\u220e\u220e
  0.004 [101]\t|\u220e

Latency distribution:
  10% in 0.0001 secs.
  50% in 0.0012 secs.
  99% in 0.0039 secs.
  99.9% in 0.004 secs.
"""
ERRORS = "\nError distribution:\n  [3]\tetcdserver: request timed out\n"
WRK = """Running 1s test @ http://127.0.0.1:1/
  1 threads and 96 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     4.10ms    1.20ms  30.00ms   92.00%
    Req/Sec    20.00k     1.00k   22.00k    80.00%
  Latency Distribution
     50%    3.90ms
     75%    4.50ms
     90%    5.00ms
     99%  900.00us
  20000 requests in 1.05s, 3.00MB read
Requests/sec:  19047.62
Transfer/sec:      2.86MB
"""
OURS = {"ok": 500, "failed": 0, "reason": None, "total_s": 0.25, "requests_per_s": 2000, "errors": {}}
OURS |= {"percentiles_s": {"50": 0.001, "99": 0.004}}
PEER = {"ok": 500, "total_s": 1.0, "requests_per_s": 500.0, "p50_s": 0.1, "p99_s": 0.2}


def test_reports_of_whole_runs_are_read() -> None:
    figures = [
        parse_etcd(ETCD, 500),
        parse_ours(json.dumps(OURS), 500),
        over_http.parse_wrk(WRK),
        zookeeper.parse_peer(json.dumps(PEER), 500),
    ]
    assert [(one.ok, one.total_s, one.requests_per_s, one.p50_s, one.p99_s) for one in figures] == [
        (500, 0.25, 2000.5, 0.0012, 0.0039),
        (500, 0.25, 2000, 0.001, 0.004),
        (20000, 1.05, 19047.62, pytest.approx(0.0039), pytest.approx(0.0009)),
        (500, 1.0, 500.0, 0.1, 0.2),
    ]
    assert parse_etcd(ETCD.replace("  99% in 0.0039 secs.\n", ""), 500).p99_s is None


@pytest.mark.parametrize("text", [ETCD + ERRORS, ERRORS, "", ETCD.replace("[101]", "[100]")])
def test_etcds_tool_ends_with_status_0_whatever_failed(text: str) -> None:
    with pytest.raises(RunError):
        parse_etcd(text, 500)


@pytest.mark.parametrize(
    "changes", [{"ok": 499}, {"failed": 1}, {"reason": "cancelled"}, {"requests_per_s": None}, None], ids=str
)
def test_a_report_of_a_run_that_is_not_whole_is_refused(changes: dict[str, Any] | None) -> None:
    with pytest.raises(RunError):
        parse_ours("" if changes is None else json.dumps(OURS | changes), 500)
    for text in ("", "{}", json.dumps(PEER | {"ok": 499})):
        with pytest.raises(RunError):
            zookeeper.parse_peer(text, 500)
    for text in ("", WRK + "  Non-2xx or 3xx responses: 3\n", WRK + "  Socket errors: read 1\n"):
        with pytest.raises(RunError):
            over_http.parse_wrk(text)


# --- the same load by each tool, on a store that agrees ---------------------------------------------------------------


def test_each_tool_sends_the_same_load(tmp_path: Path) -> None:
    programs = {name: Path(name) for name in (plan.OURS, plan.ETCD, zookeeper.PEER, "net/http", "wrk")}
    for cell in plan.cells(3):
        ours, theirs = (set(plan.command(tool, cell, 70, "h:1,h:2", programs)[1:]) for tool in (plan.OURS, plan.ETCD))
        own = {"--output=json", "--precise", "--require-found", *(word for word in ours | theirs if "timeout" in word)}
        assert ours - own == theirs - own
        assert {"--total=70", "--endpoints=h:1,h:2", f"--conns={cell.conns}"} <= ours
    for tool in (plan.OURS, zookeeper.PEER):
        argv = zookeeper.command(tool, zookeeper.Cell(10, 100, "put", 50), 50, "r1-", "a:1", programs)
        assert {"--conns=10", "--clients=100", "--total=50", "--val-size=64", "--prefix=r1-"} <= set(argv)
    service = Service("replicas", Path("replicas"), 3, tmp_path)
    for http_cell in over_http.cells("replicas", 3, 1.0):
        ours_argv, theirs_argv = (
            over_http.command(tool, http_cell, 500, "p-", service, programs) for tool in ("ours", "net/http")
        )
        for option in ("--endpoints", "--total", "--clients", "--conns"):
            values = [[word for word in argv if word.startswith(option + "=")] for argv in (ours_argv, theirs_argv)]
            assert values[0] == values[1] and len(values[0]) == 1
        path = "/v0/entity?id={key}&ack=2&from=2"
        assert any(word.endswith("=" + path) for word in ours_argv)
        assert f"--path={path if http_cell.operation == 'put' else path.replace('{key}', 'bench-load')}" in theirs_argv


def test_each_tool_spells_a_number_in_its_own_way() -> None:
    assert [plan.key_name(plan.OURS, number) for number in (0, 9, 10, 61, 62)] == [
        *(b"00000000", b"00000009", b"0000000A", b"0000000z", b"00000010"),
    ]
    # As Go's binary.PutVarint does.
    assert [plan.key_name(plan.ETCD, number).rstrip(b"\0") for number in (0, 1, 63, 64, 8192)] == [
        *(b"", b"\x02", b"\x7e", b"\x80\x01", b"\x80\x80\x01"),
    ]
    assert plan.outermost_keys(plan.OURS, 63) == (b"00000000", b"00000010")
    # In the order of bytes 191 comes last, not 199: it is 382 there, and the first byte of that is the largest.
    assert plan.outermost_keys(plan.ETCD, 200) == (bytes(8), b"\xfe\x02" + bytes(6))


class FakeCluster:
    """A store that a run changes: ``rises`` and ``writes`` are by how much, ``outermost`` its first and last key."""

    endpoints, folder, client_flags = "h:1", Path("/nowhere"), ()

    def __init__(self) -> None:
        self.keys, self.revision, self.emptied, self.leaves = 500, 900, 0, 1
        self.rises = self.writes = 500
        self.outermost = plan.outermost_keys(plan.OURS, 500)

    def revision_and_keys(self) -> tuple[int, int]:
        return self.revision, self.keys

    def outermost_keys(self) -> tuple[bytes, bytes]:
        return self.outermost

    def empty(self) -> None:
        self.emptied += 1
        self.keys, self.revision = self.leaves, self.revision + 2

    def cpu_s(self) -> float:
        return 1.5

    def check(self) -> None:
        pass

    def run(self, argv: list[str], folder: Path) -> tuple[Used, str]:
        assert "--total=500" in argv and folder == self.folder
        self.keys, self.revision = self.keys + self.writes, self.revision + self.rises
        return Used(1.0, 0.25, 0.1, 7_000_000), json.dumps(OURS) if argv[0] == "/ours" else ETCD


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    monkeypatch.setattr(measure, "run_program", made.run)
    return made


def sample_of(cluster: Any, operation: str = "put", tool: str = plan.OURS) -> Sample:
    programs = {plan.OURS: Path("/ours"), plan.ETCD: Path("/etcd")}
    return run_once(tool, plan.Cell(1, 1, 1, operation, 500), 500, 3, cluster, programs)


@pytest.mark.parametrize("tool", [plan.OURS, plan.ETCD])
def test_a_run_that_the_store_agrees_with_is_a_sample(cluster: FakeCluster, tool: str) -> None:
    cluster.outermost = plan.outermost_keys(tool, 500)
    made = sample_of(cluster, tool=tool)
    assert (cluster.emptied, made.tool, made.cell, made.round, made.requests) == (1, tool, "put 1/1 on 1", 3, 500)
    assert (made.client_cpu_ms_per_1000, made.peak_rss_bytes) == (500.0, 7_000_000)
    cluster.keys, cluster.rises, cluster.writes = 500, 0, 0
    assert sample_of(cluster, "range-s").cell == "range-s 1/1 on 1" and cluster.emptied == 1


@pytest.mark.parametrize(
    ("operation", "changes", "message"),
    [
        ("put", {"rises": 499}, "revision rose by 499, not by 500"),
        ("put", {"rises": 501}, "revision rose by 501, not by 500"),
        ("put", {"writes": 1}, "holds 2 keys, not 501"),  # one key, 500 times
        ("put", {"writes": 499}, "holds 500 keys, not 501"),
        ("put", {"outermost": plan.outermost_keys(plan.ETCD, 500)}, "the first and the last key are"),
        ("put", {"outermost": (b"00000001", b"00000084")}, "the first and the last key are"),
        ("put", {"leaves": 2}, "holds 2 keys after it was emptied"),
        ("range-l", {"rises": 1, "writes": 0}, "revision rose by 1, not by 0"),
        ("range-s", {"rises": 0, "writes": 1}, "holds 501 keys, not 500"),
    ],
    ids=str,
)
def test_a_store_that_does_not_agree_ends_the_comparison(
    cluster: FakeCluster, operation: str, changes: dict[str, Any], message: str
) -> None:
    vars(cluster).update(changes)
    with pytest.raises(RunError, match=message):
        sample_of(cluster, operation)


# --- sums and tables --------------------------------------------------------------------------------------------------


def sample(tool: str = "ours", cell: str = "put 1/1 on 1", **changes: Any) -> Sample:
    fields: dict[str, Any] = {"round": 1, "requests": 100, "wall_s": 1.0, "total_s": 1.0, "requests_per_s": 100.0}
    fields |= {"client_kernel_ms_per_1000": 4.0, "client_cpu_ms_per_1000": 10.0, "members_cpu_ms_per_1000": 50.0}
    fields |= {"peak_rss_bytes": 15_000_000, "p50_s": 0.001, "p99_s": None}
    return Sample(tool=tool, cell=cell, **fields | changes)


def test_medians_ratios_and_the_ceiling() -> None:
    runs = [sample(requests_per_s=value, p99_s=p99) for value, p99 in ((100.0, 0.2), (300.0, None), (200.0, 0.4))]
    found = table.medians([*runs, sample(tool="etcd", client_cpu_ms_per_1000=40.0)])["put 1/1 on 1"]
    assert (found["ours"]["runs"], found["ours"]["requests_per_s"], found["ours"]["p99_s"]) == (
        3,
        200,
        pytest.approx(0.3),
    )
    assert "p99_s" not in found["etcd"]
    assert table.ratios(found, "ours") == {
        "requests_per_s": 2.0, "client_cpu_ms_per_1000": 0.25, "peak_rss_bytes": 1.0,
    }  # fmt: skip
    assert table.ratios({"ours": found["ours"]}, "ours") is None
    # 10 ms of the client and 50 of the members for each 1000 requests at 30,000/s: 1.8 cores.
    busy = [sample(cell="put 10/100 on 1", requests_per_s=30_000.0), sample("etcd", "put 10/100 on 1")]
    assert table.ceiling(table.medians(busy), 2)[2:] == ["| put 10/100 on 1 | 90% | 17% | 40% | 30,000 | 36,000 |"]
    assert Timed("load", "sweep", 4, 4, 94.1, 80.0).is_kept and not Timed("load", "sweep", 4, 4, 94.2, 80.0).is_kept


PERF = """
\tffffffff81 tcp_sendmsg_locked
\tffffffff82 __sys_sendto
\tffffffff83 entry_SYSCALL_64_after_hwframe
\t           4 containernet-env/benchmark_image/internal/transport.write

\tffffffff81 do_epoll_wait
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


def accuracy_row(kind: str, loaded: bool = False) -> dict[str, Any]:
    row = {"table": "accuracy", "kind": kind, "delay_ns": 100_000, "loaded": loaded, "lost": 1, "sent": 60}
    return row | {"asked_ns": 400_000, "min_ns": 398_500, "median_ns": 431_000, "p99_ns": 470_000, "early_ns": 1500}


def bandwidth_row(rate_bps: int | None, theory_bps: float | None, *goodputs: float) -> dict[str, Any]:
    runs = [{"goodput_bps": goodput, "retransmissions": number} for number, goodput in enumerate(goodputs)]
    row = {"table": "bandwidth", "kind": "emulator", "protocol": "tcp", "rate_bps": rate_bps}
    return row | {"theory_bps": theory_bps, "runs": runs}


BESIDE = {"table": "beside", "rate_bps": 10_000_000, "uplink": "host", "mean_ns": 440_000, "max_ns": 500_000}
BESIDE |= {"theory_bps": 9_564_000.0, "goodput_bps": 9_468_360.0}
COST = {"table": "cost", "kind": "wirefilter", "pattern": "even", "offered_per_s": 20_000.0, "core_ratio": 0.4567}
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
        bandwidth_row(100_000_000, 95_640_000.0, 95_640_000.0, 94_683_600.0, 90_000_000.0),
        bandwidth_row(None, None, 3.5e9),
        accuracy_row("emulator") | BESIDE,
        {"table": "frames", "kind": "emulator", "offered_per_s": 300_000.4, "delivered_per_s": 250_000.0},
        {"table": "frames", "kind": "wirefilter", "offered_per_s": 300_000.4, "delivered_per_s": 100_000.0},
        COST | {"delivered_per_s": 19_999.0},
    ],
}


def test_tables(snapshot: SnapshotAssertion) -> None:
    """Also how far the aims are met: of two cells one."""
    http = over_http.Comparison.__new__(over_http.Comparison)
    http.samples = [
        sample(tool, cell, client_cpu_ms_per_1000=cpu, p99_s=0.1)
        for tool, cell, cpu in (
            ("ours", "a", 4.0),
            ("net/http", "a", 10.0),
            ("ours", "b", 6.0),
            ("net/http", "b", 10.0),
        )
    ]
    by_peer = [
        sample(tool, cell, client_cpu_ms_per_1000=cpu, p99_s=0.2)
        for cell, ours in (("put 1/1", 4.0), ("range-s 1/1", 6.0))
        for tool, cpu in ((plan.OURS, ours), (zookeeper.PEER, 10.0))
    ]
    cell = "range-s 10/100 on 3"
    with_etcd = [sample("etcd", cell, client_cpu_ms_per_1000=30.0), sample("ours", cell)]
    assert {
        "etcd": table.markdown(with_etcd, ["context"], 2),
        "http": http.markdown("where"),
        "zookeeper": zookeeper.markdown(by_peer, "here"),
        "profile": profile.markdown({"cell": profile.shares(PERF)}),
        "links": tables.report(RESULTS),
    } == snapshot


def test_a_document_is_filled_again_and_again(tmp_path: Path) -> None:
    document = f"before\n{tables.BEGIN}\n{tables.END}\nafter\n"
    twice = tables.fill(tables.fill(document, "first"), "second")
    assert twice == f"before\n{tables.BEGIN}\n\nsecond\n\n{tables.END}\nafter\n"
    for wrong in ("", tables.BEGIN, tables.END + tables.BEGIN, (tables.BEGIN + tables.END) * 2):
        with pytest.raises(ValueError, match="RESULTS"):
            tables.fill(wrong, "text")
    path = tmp_path / "load.md"
    path.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.update(path, "new")
    table.update(path, "newer\n")
    assert path.read_text() == f"before\n{table.BEGIN}\n\nnewer\n\n{table.END}\nafter\n"
    for marks in ((table.BEGIN, table.END), table.PROFILE_MARKS):
        table.around(Path(__file__).parents[2] / "docs" / "load.md", marks)


# --- links ------------------------------------------------------------------------------------------------------------


def test_theory_counts_every_header() -> None:
    assert (theory.FRAME_BYTES, theory.SEGMENT_BYTES, theory.ACK_BYTES) == (1514, 1448, 66)
    assert theory.tcp_goodput_bps(1_000_000_000) == pytest.approx(956_406_869, abs=1)
    assert theory.tcp_goodput_bps(10**9, overhead_bytes=24) == pytest.approx(941.48e6, rel=1e-5)
    assert theory.udp_goodput_bps(100_000_000) == pytest.approx(97_225_892, abs=1)
    assert theory.rtt_ns(3_000_000) == 12_000_000
    assert theory.offered_pps(121_120_000, 0.0) == 10_000
    # Both ways the link is exactly full: segments, and an ACK for every other one.
    segments_per_s = theory.tcp_goodput_bps(10**8, both_ways=True) / 8 / theory.SEGMENT_BYTES
    on_the_wire = segments_per_s * theory.FRAME_BYTES + segments_per_s / 2 * theory.ACK_BYTES
    assert on_the_wire * 8 == pytest.approx(10**8)


def test_summaries_of_round_trips_and_datagrams() -> None:
    samples = random.Random(1).sample(range(10_000), 333)
    for ratio in (0.01, 0.5, 0.99, 1.0):
        got = summary.nearest_rank(samples, ratio)
        assert sum(one <= got for one in samples) >= ratio * len(samples) > sum(one < got for one in samples)
    for shortest, early in ((395_000, 5_000), (400_000, 0), (401_000, 0)):
        found = summary.summarize_rtt(400_000, [410_000, shortest, 420_000])
        assert found is not None
        assert (found.min_ns, found.median_ns, found.p99_ns, found.early_ns) == (shortest, 410_000, 420_000, early)
    assert summary.summarize_rtt(1, []) is None
    # The first datagram opens the window.
    stamps = [1_000_000 * number for number in range(11)]
    assert summary.datagram_rate_bps(stamps, 1000) == pytest.approx(8_000_000)
    assert summary.datagram_rate_bps(stamps[:1], 1000) is None


def test_frames_and_links_are_as_configured() -> None:
    one = Host("h1", 1, "bench1", "10.9.0.1", "02:00:00:00:09:01")
    two = Host("h2", 2, "bench2", "10.9.0.2", "02:00:00:00:09:02")
    made = frames.frame(one, two, 64)
    assert (len(made), made[:14].hex()) == (64, "02000000090202000000090188b5")
    # Bytes per second and milliseconds.
    assert wirefilter_options(LinkSpec.symmetric(100_000)) == ["-d", "0.1"]
    limited = wirefilter_options(LinkSpec.symmetric(3_000_000, 100_000_000))
    assert limited == ["-d", "3", "-b", "12500000", "-c", "3028000"]
    assert wirefilter_options(LinkSpec.symmetric(0, 1_000_000, 100))[-1] == "151400"
    with pytest.raises(ValueError, match="alike"):
        wirefilter_options(LinkSpec(DirectionSpec(1), DirectionSpec(2)))


def test_every_mode_fits_its_time() -> None:
    for durations, bound_s in ((QUICK, 90), (FULL, 1500), (COMPLETE, 3000)):
        points = links.points(["emulator", "wirefilter"], durations)
        assert sum(point.needs_s for point in points) <= durations.limit_s <= bound_s
        assert len({point.label() for point in points}) == len(points)
    (overhead,) = [point for point in links.points(["emulator"], FULL) if point.overhead_bytes]
    assert (overhead.spec().a_to_b.overhead_bytes, overhead.spec().b_to_a.overhead_bytes) == (24, 24)
