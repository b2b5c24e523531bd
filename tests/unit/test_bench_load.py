"""bench/load: what it reads from both tools, and the table it makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.load import measure, over_http, plan, profile, table
from bench.load.cli import file_system, main, options
from bench.load.cluster import Cluster
from bench.load.measure import Sample, Used, run_once, run_program
from bench.load.reports import parse_etcd, parse_ours
from bench.load.services import Service
from containernet_env.base.errors import RunError, UsageError

ETCD_TEXT = """bench with serializable range

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


def ours(**changes):
    fields = {"ok": 500, "failed": 0, "reason": None, "total_s": 0.25, "requests_per_s": 2000, "errors": {}}
    return json.dumps({**fields, "percentiles_s": {"50": 0.001, "99": 0.004}, **changes})


def sample(tool="ours", cell="put 1/1 on 1", **changes):
    fields = {"round": 1, "requests": 100, "wall_s": 1.0, "total_s": 1.0, "requests_per_s": 100.0}
    fields |= {
        "client_kernel_ms_per_1000": 4.0,
        "client_cpu_ms_per_1000": 10.0,
        "members_cpu_ms_per_1000": 50.0,
        "peak_rss_bytes": 15_000_000,
    }
    return Sample(tool=tool, cell=cell, **{**fields, "p50_s": 0.001, "p99_s": None, **changes})


def test_etcds_report_is_read():
    report = parse_etcd(ETCD_TEXT, 500)
    assert (report.ok, report.total_s, report.requests_per_s) == (500, 0.25, 2000.5)
    assert (report.p50_s, report.p99_s) == (0.0012, 0.0039)


def test_a_report_without_some_percentiles_is_read():
    assert parse_etcd(ETCD_TEXT.replace("  99% in 0.0039 secs.\n", ""), 500).p99_s is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ETCD_TEXT + ERRORS, "request timed out"),
        (ERRORS, "request timed out"),
        ("", "no report"),
        (ETCD_TEXT.replace("[101]", "[100]"), "499 of 500"),
    ],
)
def test_etcds_tool_ends_with_status_0_but_its_report_tells(text, message):
    with pytest.raises(RunError, match=message):
        parse_etcd(text, 500)


def test_our_report_is_read():
    report = parse_ours(ours(), 500)
    assert (report.ok, report.requests_per_s, report.p99_s) == (500, 2000, 0.004)


@pytest.mark.parametrize(
    "text", [ours(ok=499), ours(failed=1), ours(reason="cancelled"), "", "[]", "{}", ours(requests_per_s=None)]
)
def test_our_report_of_a_run_that_is_not_whole_is_refused(text):
    with pytest.raises(RunError):
        parse_ours(text, 500)


def test_both_tools_are_asked_for_the_same():
    programs = {plan.OURS: Path("/ours"), plan.ETCD: Path("/etcd")}
    for cell in plan.cells(3):
        asked = [
            {word for word in plan.command(tool, cell, 70, "h:1,h:2", programs)[1:] if "timeout" not in word}
            for tool in (plan.OURS, plan.ETCD)
        ]
        own = {"--output=json", "--precise", "--require-found"}
        assert asked[0] - own == asked[1] - own
        assert {"--total=70", "--endpoints=h:1,h:2", f"--conns={cell.conns}"} <= asked[0]


def test_every_load_meets_every_operation_on_both_clusters():
    names = {cell.name for members, tls in plan.CLUSTERS for cell in plan.cells(members, tls=tls)}
    everywhere = [load for load in plan.LOADS if load.members == plan.MEMBERS]
    assert len(everywhere) == 3 and len(names) == len(plan.MEMBERS) * 3 * 3 + 2 + 4
    assert {"put 100/3000 on 1", "put 3000/3000 on 1", "range-s 1/1 on 1 with TLS"} < names
    assert all(cell.total >= max(50, cell.clients) for cell in plan.cells(3, plan.QUICK_SHARE))


def test_with_tls_both_tools_have_certificates_of_files_that_only_the_owner_reads(tmp_path):
    cluster = Cluster(Path("/etcd"), 1, tmp_path, tls=True)
    programs = {plan.OURS: Path("/ours"), plan.OURS_TLS: Path("/ours-tls"), plan.ETCD: Path("/etcd")}
    (cell, *_) = plan.cells(1, tls=True)
    for tool, program in ((plan.OURS, "/ours-tls"), (plan.ETCD, "/etcd")):
        asked = plan.command(tool, cell, 70, "h:1", programs, cluster.client_flags)
        assert asked[0] == program
        named = {word.partition("=")[0]: Path(word.partition("=")[2]) for word in asked if ".pem" in word}
        assert set(named) == {"--cacert", "--cert", "--key"}
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in named.values())
    assert Cluster(Path("/etcd"), 1, tmp_path).client_flags == ()


def test_each_tool_spells_a_number_in_its_own_way():
    assert [plan.key_name(plan.OURS, number) for number in (0, 9, 10, 61, 62)] == [
        b"00000000",
        b"00000009",
        b"0000000A",
        b"0000000z",
        b"00000010",
    ]
    # As Go's binary.PutVarint does.
    assert [plan.key_name(plan.ETCD, number) for number in (0, 1, 63, 64, 8192)] == [
        bytes(8),
        b"\x02" + bytes(7),
        b"\x7e" + bytes(7),
        b"\x80\x01" + bytes(6),
        b"\x80\x80\x01" + bytes(5),
    ]
    assert plan.outermost_keys(plan.OURS, 63) == (b"00000000", b"00000010")
    # In the order of bytes 191 comes last, not 199: it is 382 there, and the first byte of that is the largest.
    assert plan.outermost_keys(plan.ETCD, 200) == (bytes(8), b"\xfe\x02" + bytes(6))


class FakeCluster:
    """A store that a run changes: ``rises`` and ``writes`` say by how much, ``outermost`` what stands at its ends."""

    endpoints, folder, client_flags = "h:1", Path("/nowhere"), ()

    def __init__(self, keys: int = 500) -> None:
        self.keys, self.revision, self.emptied, self.leaves = keys, 900, 0, 1
        self.rises, self.writes = 0, 0
        self.outermost = (b"", b"")

    def revision_and_keys(self):
        return self.revision, self.keys

    def outermost_keys(self):
        return self.outermost

    def empty(self):
        self.emptied += 1
        self.keys, self.revision = self.leaves, self.revision + 2

    def cpu_s(self):
        return 1.5

    def check(self):
        pass

    def run(self, argv, folder):
        assert "--total=500" in argv and folder == self.folder
        self.keys, self.revision = self.keys + self.writes, self.revision + self.rises
        return Used(1.0, 0.25, 0.1, 7_000_000), ours() if argv[0] == "/ours" else ETCD_TEXT


@pytest.fixture
def cluster(monkeypatch):
    made = FakeCluster()
    monkeypatch.setattr(measure, "run_program", made.run)
    return made


def run_of(cluster, operation="put", tool=plan.OURS):
    programs = {plan.OURS: Path("/ours"), plan.ETCD: Path("/etcd")}
    return run_once(tool, plan.Cell(1, 1, 1, operation, 500), 500, 3, cluster, programs)


@pytest.mark.parametrize("tool", [plan.OURS, plan.ETCD])
def test_a_run_that_the_store_agrees_with_is_a_sample(cluster, tool):
    cluster.rises = cluster.writes = 500
    cluster.outermost = plan.outermost_keys(tool, 500)
    made = run_of(cluster, tool=tool)
    assert cluster.emptied == 1
    assert (made.tool, made.cell, made.round, made.requests) == (tool, "put 1/1 on 1", 3, 500)
    assert (made.client_cpu_ms_per_1000, made.peak_rss_bytes) == (500.0, 7_000_000)


def test_reads_leave_the_store_as_it_is(cluster):
    assert run_of(cluster, "range-s").cell == "range-s 1/1 on 1"
    assert cluster.emptied == 0
    cluster.rises = 1
    with pytest.raises(RunError, match="revision rose by 1, not by 0"):
        run_of(cluster, "range-l")
    cluster.rises, cluster.writes = 0, 1
    with pytest.raises(RunError, match="holds 501 keys, not 500"):
        run_of(cluster, "range-s")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rises": 499}, "revision rose by 499, not by 500"),
        ({"rises": 501}, "revision rose by 501, not by 500"),
        # One key, 500 times.
        ({"writes": 1}, "holds 2 keys, not 501"),
        ({"writes": 499}, "holds 500 keys, not 501"),
        ({"outermost": plan.outermost_keys(plan.ETCD, 500)}, "the first and the last key are"),
        ({"outermost": (b"00000001", b"00000084")}, "the first and the last key are"),
        ({"leaves": 2}, "holds 2 keys after it was emptied"),
    ],
)
def test_a_store_that_does_not_agree_ends_the_comparison(cluster, changes, message):
    cluster.rises = cluster.writes = 500
    cluster.outermost = plan.outermost_keys(plan.OURS, 500)
    for name, value in changes.items():
        setattr(cluster, name, value)
    with pytest.raises(RunError, match=message):
        run_of(cluster)


def test_medians_and_ratios():
    runs = [sample(requests_per_s=value, p99_s=p99) for value, p99 in ((100.0, 0.2), (300.0, None), (200.0, 0.4))]
    found = table.medians([*runs, sample(tool="etcd", client_cpu_ms_per_1000=40.0)])["put 1/1 on 1"]
    assert found["ours"]["runs"] == 3
    assert found["ours"]["requests_per_s"] == 200
    assert found["ours"]["p99_s"] == pytest.approx(0.3)
    assert "p99_s" not in found["etcd"]
    assert table.ratios(found, "ours") == {
        "requests_per_s": 2.0,
        "client_cpu_ms_per_1000": 0.25,
        "peak_rss_bytes": 1.0,
    }
    assert table.ratios({"ours": found["ours"]}, "ours") is None


def test_the_table_has_a_row_for_each_tool_etcds_last_and_tells_the_aims():
    cell = "range-s 10/100 on 3"
    text = table.markdown([sample("etcd", cell, client_cpu_ms_per_1000=30.0), sample("ours", cell)], ["context"], 2)
    rows = [line.split("|")[3].strip() for line in text.split("\n\n")[1].splitlines() if line.startswith("| range-s")]
    assert text.startswith("context\n\n| load")
    assert rows == ["ours", "etcd"]
    assert "| client CPU at most 1/4 (many clients) | 0 of 1 | 0.33: range-s 10/100 on 3 |" in text
    assert "one client" not in text


def test_the_ceiling_is_what_the_members_would_do_with_the_clients_time_as_well():
    runs = [sample(cell="put 10/100 on 1", requests_per_s=30_000.0), sample("etcd", "put 10/100 on 1")]
    lines = table.ceiling(table.medians([*runs, sample("etcd", "put 1/1 on 1")]), 2)
    # 10 ms of the client and 50 of the members for each 1000 requests: 1.8 processors.
    assert lines[2:] == ["| put 10/100 on 1 | 90% | 17% | 40% | 30,000 | 36,000 |"]


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


def test_samples_of_a_profile_belong_to_what_is_innermost():
    found = profile.shares(PERF)
    assert sum(found.values()) == 1
    assert {name.split(",")[0] for name, share in found.items() if share == 0.25} == {
        "kernel: write",
        "kernel: epoll",
        "HTTP/2 and its header compression",
        "Go's runtime and libraries",
    }
    assert "| kernel: epoll | 25% |" in profile.markdown({"cell": found})
    with pytest.raises(RunError, match="no samples"):
        profile.shares("")


def test_the_table_goes_between_the_marks(tmp_path):
    document = tmp_path / "load.md"
    document.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.update(document, "new")
    table.update(document, "newer\n")
    assert document.read_text() == f"before\n{table.BEGIN}\n\nnewer\n\n{table.END}\nafter\n"
    long = "word " * 50
    table.update(document, f"{long}\n\n| {long} |")
    lines = document.read_text().splitlines()
    assert f"| {long} |" in lines
    assert [len(line) for line in lines if line.startswith("word")] == [119, 119, 9]
    document.write_text("no marks")
    with pytest.raises(UsageError):
        table.update(document, "new")


def test_the_document_of_this_project_has_the_marks():
    for marks in ((table.BEGIN, table.END), table.PROFILE_MARKS):
        table.around(Path(__file__).parents[2] / "docs" / "load.md", marks)


@pytest.mark.parametrize(
    "argv", [["--rounds", "0"], ["--quick", "--update-docs", "docs/load.md"], ["--update-docs", "/no"], ["--only", "x"]]
)
def test_what_cannot_be_meant_is_refused(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        options(argv)
    assert ended.value.code == 2
    assert argv[-2 if len(argv) == 2 else -1 - 1] in capsys.readouterr().err


def test_rounds_are_five_unless_quick():
    assert (options([]).rounds, options(["--quick"]).rounds) == (5, 1)


def test_a_run_that_failed_gives_status_1(monkeypatch, capsys):
    def fail(_):
        raise RunError("etcd member m0 ended")

    monkeypatch.setattr("bench.load.cli.Bench.run", fail)
    assert main([]) == 1
    assert "etcd member m0 ended" in capsys.readouterr().err


def test_what_a_program_used_is_told(tmp_path):
    used, text = run_program(["/bin/sh", "-c", "echo hello"], tmp_path, 10.0)
    assert text == "hello\n"
    assert 0 <= used.cpu_s < 10
    assert used.peak_rss_bytes > 0


def test_a_program_that_fails_or_does_not_end_is_told(tmp_path):
    with pytest.raises(RunError, match=r"ended with 3: oh"):
        run_program(["/bin/sh", "-c", "echo oh >&2; exit 3"], tmp_path, 10.0)
    with pytest.raises(RunError, match="was killed after 0 s"):
        run_program(["/bin/sh", "-c", "exec sleep 30"], tmp_path, 0.2)
    with pytest.raises(RunError, match="ended with 127: /no/such/program: No such file"):
        run_program(["/no/such/program", ""], tmp_path, 10.0)


def test_the_file_system_is_that_of_the_nearest_mount():
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /home tmpfs rw 0 0\n/dev/b /homes xfs rw 0 0\n"
    assert file_system(Path("/home/me"), mounts) == "tmpfs"
    assert file_system(Path("/srv"), mounts) == "ext4"
    assert file_system(Path("/srv"), "") == "unknown"


WRK_TEXT = """Running 1s test @ http://127.0.0.1:1/
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


def test_wrks_report_is_read():
    report = over_http.parse_wrk(WRK_TEXT)
    assert (report.ok, report.total_s, report.requests_per_s) == (20000, 1.05, 19047.62)
    assert report.p50_s == pytest.approx(0.0039) and report.p99_s == pytest.approx(0.0009)


@pytest.mark.parametrize(
    "text", ["", WRK_TEXT + "  Non-2xx or 3xx responses: 3\n", WRK_TEXT + "  Socket errors: read 1\n"]
)
def test_wrks_report_of_failed_requests_is_refused(text):
    with pytest.raises(RunError, match="wrk"):
        over_http.parse_wrk(text)


def test_both_http_clients_are_asked_for_the_same(tmp_path):
    programs = {name: Path(name) for name in ("ours", "net/http", "wrk")}
    service = Service("replicas", Path("replicas"), 3, tmp_path)
    for cell in over_http.cells("replicas", 3, 1.0):
        ours_argv, theirs = (
            over_http.command(tool, cell, 500, "p-", service, programs) for tool in ("ours", "net/http")
        )
        for option in ("--endpoints", "--total", "--clients", "--conns"):
            values = [[a for a in argv if a.startswith(option + "=")] for argv in (ours_argv, theirs)]
            assert values[0] == values[1] and len(values[0]) == 1
        path = "/v0/entity?id={key}&ack=2&from=2"
        assert any(a.endswith("=" + path) for a in ours_argv)
        assert f"--path={path if cell.operation == 'put' else path.replace('{key}', 'bench-load')}" in theirs


def test_the_http_table_tells_the_aim(tmp_path):
    comparison = over_http.Comparison.__new__(over_http.Comparison)
    comparison.samples = [
        sample("ours", "a", client_cpu_ms_per_1000=4.0, p99_s=0.1),
        sample("net/http", "a", client_cpu_ms_per_1000=10.0, p99_s=0.1),
        sample("ours", "b", client_cpu_ms_per_1000=6.0, p99_s=0.1),
        sample("net/http", "b", client_cpu_ms_per_1000=10.0, p99_s=0.1),
    ]
    text = comparison.markdown("where")
    assert "| a | ours | 100 | 4.0 | 0.40 |" in text
    assert "met in 1 of 2 cells; furthest from it 0.60, b." in text
