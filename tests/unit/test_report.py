"""`report`: what is read, what counts, which axes there are, and the page: one file that nothing breaks out of."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from containernet_env.cli import group
from containernet_env.report import document as documents
from containernet_env.report.axes import Table
from containernet_env.report.cells import cells_of
from containernet_env.report.document import Document, document_of
from containernet_env.report.html import element, joined, json_block, trusted
from containernet_env.report.page import page
from containernet_env.report.rows import read_rows
from containernet_env.report.runs import read_runs
from containernet_env.results.run_directory import DISRUPTIONS, SCENARIOS, RunDirectory
from tests.unit.answers import closed_loop
from tests.unit.commands import answer
from tests.unit.report_rows import EVIL, EVIL_NAMES, row, sweep, write
from tests.unit.test_histogram import encoded
from tests.unit.test_run_directory import directory as run_directory

ROOM = Path(documents.__file__).parent
made_run = run_directory


def document(*files: Path) -> Document:
    rows = read_rows(files)
    return document_of(rows, read_runs(rows))


def table(path: Path) -> tuple[Table, Any]:
    rows = read_rows([path])
    return Table(rows.varied, cells_of(rows)), rows


# --- rows -------------------------------------------------------------------------------------------------------------


def test_rows_that_failed_or_are_not_certainly_valid_are_in_no_median_and_said(tmp_path: Path) -> None:
    rows = [
        row(**{"50%": "0.010"}),
        row(**{"50%": "0.030"}, Repetition="2"),
        row(**{"50%": "0.900"}, Valid="no", Reasons="links_paused;few_answers"),
        row(**{"50%": "0.800"}, Valid="unknown"),
        row(**dict.fromkeys(("Requests/sec", "50%", "95%", "99%", "99.9%"), "-"), Valid="-", Error="no leader"),
    ]
    found = document(write(tmp_path / "out.csv", rows))
    cells = found.data["cells"]
    assert (cells["n"], cells["median"][1], cells["low"][1], cells["high"][1]) == ([2], [20.0], [10.0], [30.0])
    assert [why for *_, why, _ in found.bad] == [
        "not valid: links_paused, few_answers",
        "not known to be valid",
        "failed: no leader",
    ]
    assert [values[1] for _, values, _ in found.data["bad"]] == [900.0, 800.0]  # what failed measured nothing
    assert found.counts == {"rows": 5, "count": 2, "failed": 1, "not valid": 2, "configurations": 1}


def test_bars_are_the_interval_of_the_median_from_6_repetitions_on(tmp_path: Path) -> None:
    """Of 9 values the second and the second largest: ranks 2 and 8 (Conover 1999, table A3)."""
    for n, low, high in ((5, 1.0, 5.0), (6, 1.0, 6.0), (9, 2.0, 8.0)):
        rows = [row(**{"50%": f"0.00{place}"}, Repetition=str(place)) for place in range(1, n + 1)]
        cells = document(write(tmp_path / f"{n}.csv", rows)).data["cells"]
        assert (cells["low"][1], cells["high"][1]) == ([low], [high])


def test_repetitions_with_seeds_of_their_own_are_one_cell_and_machines_are_kept_apart(tmp_path: Path) -> None:
    rows = [row(LoadSeed="0"), row(LoadSeed="1", Repetition="2"), row(LoadSeed="0", CpuModel="another")]
    assert document(write(tmp_path / "out.csv", rows)).data["cells"]["n"] == [2, 1]


def test_what_no_column_tells_apart_is_told_apart_by_its_name(tmp_path: Path) -> None:
    rows = [row(), row(Scenario="w-zipf", ScenarioHash="t"), row(Config="b.json", ConfigHash="d")]
    found = document(write(tmp_path / "out.csv", rows))
    assert len(found.data["cells"]["n"]) == 3
    labels = found.data["cells"]["label"]
    assert any("w-zipf" in label for label in labels) and any("b.json (d)" in label for label in labels)


def test_a_file_that_is_named_twice_and_rows_that_two_files_have_count_once(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.csv", [row()]), write(tmp_path / "b.csv", [row(), row(Repetition="2")])
    rows = read_rows([first, second, tmp_path / "." / "a.csv"])
    assert len(rows) == 2
    assert rows.notes == (
        f"{tmp_path / 'a.csv'} is named twice, and read once",
        "rows that are in several files word for word count once: 1",
    )
    assert len(read_rows([write(tmp_path / "c.csv", [row(), row()])])) == 2  # within a file nobody can tell


def test_the_table_says_what_a_row_found_on_its_cluster(tmp_path: Path) -> None:
    rows = [row(Reused="nothing"), row(Reused="cluster", Repetition="2")]
    shown = document(write(tmp_path / "out.csv", rows)).data["rows"]
    titles = [column["title"] for column in shown["columns"]]
    assert shown["values"][titles.index("Reused")] == ["nothing", "cluster"]


def test_files_of_both_forms_go_together(tmp_path: Path) -> None:
    seed = write(tmp_path / "seed.csv", [row(), row(RequestCount="7")], seed=True)
    found = document(write(tmp_path / "out.csv", [row(), row(RequestCount="999", Repetition="2")]), seed)
    assert sorted(found.data["cells"]["n"]) == [1, 1, 2]  # ours are repetitions whatever their number of requests


def test_the_seeds_columns_alone_make_a_report_that_says_what_it_lacks(tmp_path: Path) -> None:
    path = write(tmp_path / "seed.csv", [row(ClientCount=str(n)) for n in (1, 10, 100)], seed=True)
    found = document(path)
    assert found.counts["count"] == 3 and "seed's 20 columns alone" in found.lacks[0]
    (lines,) = found.data["lines"]
    assert lines["axis"]["numbers"] == (1.0, 10.0, 100.0) and lines["axis"]["log"]
    assert found.data["curves"][0]["ms"][2:6] == [10.0, None, None, 12.0]


# --- axes -------------------------------------------------------------------------------------------------------------


def test_lines_vary_in_their_axis_alone(tmp_path: Path) -> None:
    cells, _ = table(write(tmp_path / "out.csv", sweep()))
    delay, bandwidth = cells.lines()
    assert (delay.axis.title, delay.axis.ticks) == ("link delay, one way (ms)", ("1", "2", "3"))
    assert [line.label for line in delay.lines][:2] == ["linearizable, 1 Mbit/s", "serializable, 1 Mbit/s"]
    assert {len(line.points) for line in delay.lines} == {3} and len(bandwidth.lines) == 6
    for lines in (delay, bandwidth):
        for line in lines.lines:
            keys = [dict(cells.cells[cell].values) for _, cell in line.points]
            for key in keys:
                del key[lines.axis.columns[0]]
            assert all(key == keys[0] for key in keys)


def test_what_is_configured_together_with_an_axis_is_named(tmp_path: Path) -> None:
    rows = [row(ClientCount=str(n), ConnectionCount=str(n // 10)) for n in (10, 100, 1000)]
    cells, _ = table(write(tmp_path / "out.csv", rows))
    (lines,) = cells.lines()
    assert (lines.axis.columns, lines.together) == (("ClientCount",), ("ConnectionCount",))


def test_where_the_axis_alone_does_not_tell_points_apart_its_ticks_do(tmp_path: Path) -> None:
    pairs = [("write", "1", "1"), ("write", "100", "10"), ("write", "1000", "100")]
    pairs += [("read", "1", "1"), ("read", "100", "10"), ("read", "100", "100")]
    rows = [row(TestType=kind, ClientCount=clients, ConnectionCount=conns) for kind, clients, conns in pairs]
    cells, _ = table(write(tmp_path / "out.csv", rows))
    clients = cells.lines()[0]
    assert clients.axis.ticks == ("1 (1)", "100 (10)", "100 (100)", "1000 (100)") and clients.axis.numbers is None


def test_grids_have_each_cell_in_its_place_and_holes(tmp_path: Path) -> None:
    rows = [line for line in sweep() if (line["LinkDelay_ms"], line["Bandwidth_mbps"]) != ("2", "10")]
    cells, _ = table(write(tmp_path / "out.csv", rows))
    (grid,) = cells.grids()
    assert [panel.label for panel in grid.panels] == ["linearizable", "serializable"]
    for panel in grid.panels:
        for y, line in zip(grid.y.values, panel.cells, strict=True):
            for x, cell in zip(grid.x.values, line, strict=True):
                hole = (x, y) == (("2",), ("10",))
                assert (cell == -1) == hole
                if not hole:
                    values = cells.cells[cell].values
                    assert ((values["LinkDelay_ms"],), (values["Bandwidth_mbps"],)) == (x, y)


def test_pairs_are_equal_but_for_consistency(tmp_path: Path) -> None:
    cells, _ = table(write(tmp_path / "out.csv", sweep(delays=2, bandwidths=2)))
    assert len(cells.pairs()) == 4
    for pair in cells.pairs():
        one, other = (dict(cells.cells[index].values) for index in (pair.linearizable, pair.serializable))
        assert (one.pop("Consistency"), other.pop("Consistency")) == ("l", "s")
        assert one == other


def test_default_reads_are_a_consistency_of_their_own(tmp_path: Path) -> None:
    rows = [row(Consistency=name, ScenarioHash=f"s{name}") for name in ("l", "stale", "default")]
    cells, _ = table(write(tmp_path / "out.csv", rows))
    assert [cell.label for cell in cells.cells] == ["linearizable", "stale", "default consistency"]
    assert not cells.pairs()


def test_unlimited_is_the_last_tick_of_an_axis_without_numbers(tmp_path: Path) -> None:
    rows = [row(Bandwidth_mbps=value) for value in ("unlimited", "1000", "10")]
    cells, _ = table(write(tmp_path / "out.csv", rows))
    assert (cells.lines()[0].axis.ticks, cells.lines()[0].axis.numbers) == (("10", "1000", "unlimited"), None)


# --- run directories --------------------------------------------------------------------------------------------------


def add_load(run: Path, **more: Any) -> None:
    """Give the scenario of `test_run_directory` a timeline, and something that was done to it."""
    lines = [json.loads(line) for line in (run / SCENARIOS).read_text().splitlines()][:1]
    step = {"failed": 1, "unknown": 2, "p50_s": 0.01, "p99_s": None}
    lines[0]["load"] |= {
        "timeline_interval_s": 0.1,
        "timeline": [{"second": 0, "ok": 5, **step}, {"second": 0.1, "ok": 6, **step}],
        **more,
    }
    (run / SCENARIOS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = {
        "schema": 1, "scenario": "w", "repetition": 1, "attempt": 1, "began_ns": 1, "seed": "", "number": 1,
        "occurrence": 1, "cause": "event", "verb": "kill", "target": "leader", "value": None, "members": [EVIL],
        "leader": None, "asked_ns": 1, "since_start_ns": 150_000_000, "at_ns": 2, "answered_ns": None,
        "first_success_s": None, "problem": None,
    }  # fmt: skip
    (run / DISRUPTIONS).write_text(json.dumps(done) + "\n")


def test_a_run_directory_adds_machine_proof_findings_curve_and_timeline(made_run: RunDirectory) -> None:
    add_load(made_run.path)
    found = document(write(made_run.path.parent.with_suffix(".csv"), [row(Valid="no", Reasons="link_lateness")]))
    (run,) = found.runs
    assert run.run_id == "run-1" and run.proof.startswith("before: passed, 2 of 3 properties proved, RTTs within 20 us")
    assert "after: FAILED: rate of etcd1>s1" in run.proof
    assert found.bad[0][-1] == "frames were late"
    (timeline,) = found.data["timelines"]
    assert (timeline["ok"], timeline["bad"], timeline["p50"], timeline["p99"]) == ((5, 6), (3, 3), [10.0, 10.0], [])
    assert timeline["events"] == [[0.15, f"kill {EVIL}", "struck"]] and timeline["why"].startswith("not valid")
    assert found.data["curves"][0]["source"] == (
        "histograms" if "histogram" in json.dumps(closed_loop()) else "columns"
    )


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (SCENARIOS, '{"schema":2}\n', "is left out"),
        (SCENARIOS, '{"schema":1,"scen', "1 lines were cut short"),
        ("network.json", "no JSON", "is left out"),
        (DISRUPTIONS, '{"schema":1}\n', "is left out"),
    ],
)
def test_a_run_directory_that_cannot_be_read_is_left_out_and_told(
    made_run: RunDirectory, name: str, content: str, words: str
) -> None:
    (made_run.path / name).write_text(content)
    found = document(write(made_run.path.parent.with_suffix(".csv"), [row()]))
    assert found.counts["count"] == 1 and any(words in note for note in found.notes)


@pytest.mark.parametrize("histogram", ["HISTFAAAAA", encoded(b""), encoded(bytes([0xFF, 0x88, 0x7A, 2]))])
def test_a_histogram_that_is_none_costs_its_curve_alone(made_run: RunDirectory, histogram: str) -> None:
    add_load(made_run.path, response_time={"percentiles_s": {}, "histogram": histogram})
    found = document(write(made_run.path.parent.with_suffix(".csv"), [row()]))
    assert any("the histogram of w is left out" in note for note in found.notes)
    assert found.data["curves"][0]["source"] == "columns" and found.data["timelines"]


def test_a_timeline_of_no_time_is_a_page_all_the_same(made_run: RunDirectory) -> None:
    step = {"second": 0, "ok": 5, "failed": 0, "unknown": 0, "p50_s": 1e306, "p99_s": 1.7e308}
    add_load(made_run.path, timeline=[step])
    found = document(write(made_run.path.parent.with_suffix(".csv"), [row()]))
    assert found.data["timelines"][0]["p50"] == [None] and '"timelines"' in page(found)


@pytest.mark.parametrize("run_id", ["../out.runs/run-1", "/etc", "..", ".", "a/b", "run-1/"])
def test_a_run_id_leads_nowhere_else(made_run: RunDirectory, run_id: str) -> None:
    found = document(write(made_run.path.parent.with_suffix(".csv"), [row(RunId=run_id)]))
    assert found.runs == ()


# --- bad input --------------------------------------------------------------------------------------------------------


def shown(*words: object) -> Any:
    return CliRunner().invoke(group, [str(word) for word in words])


def test_torn_and_foreign_lines_are_left_out_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "out.csv", [row(), row(Repetition="2")])
    with path.open("a") as file:
        file.write("a,line,of something else\n" + '"never closed\n' + "write,3,10")
    found = document(path)
    assert found.counts["rows"] == 2 and sum("is left out" in note for note in found.notes) == 3


def test_what_is_no_results_file_is_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path, page_file = tmp_path / "out.csv", tmp_path / "page.html"
    other = write(tmp_path / "other.csv", [row()]).read_text().replace("Attempt,", "Try,", 1)
    told = {}
    for name, content in {"empty": "", "foreign": "a,b\n1,2\n", "binary": "\0\0\0", "another version": other}.items():
        path.write_text(content)
        told[name] = answer("report", path, "-o", page_file, folder=tmp_path)
    told["missing"] = answer("report", tmp_path / "gone.csv", "-o", page_file, folder=tmp_path)
    assert told == snapshot and not page_file.exists()


@pytest.mark.parametrize("seed", [False, True])
def test_no_rows_make_a_page_that_says_so(tmp_path: Path, seed: bool) -> None:
    found = document(write(tmp_path / "out.csv", [], seed=seed))
    assert found.lacks == ("There are no rows yet.",) and "There are no rows yet." in page(found)


def test_numbers_that_are_none_are_missing(tmp_path: Path) -> None:
    rows = [row(**{"50%": "inf", "99%": "many", "Requests/sec": "nan"}), row(**{"50%": "0.020"}, Repetition="2")]
    assert document(write(tmp_path / "out.csv", rows)).data["cells"]["median"][1] == [20.0]


@pytest.mark.parametrize("value", ["1e306", "1e308", "1.7e308", "-1.7e308"])
def test_numbers_that_no_measurement_has_are_missing(tmp_path: Path, value: str) -> None:
    """As ms they were infinite, and so were their sums: no JSON has that."""
    names = ("Requests/sec", "50%", "95%", "Floor_50%_s")
    huge = [row(Repetition=str(number), **dict.fromkeys(names, value)) for number in range(1, 9)]
    found = document(write(tmp_path / "out.csv", [*huge, row(Repetition="9", **{"50%": "0.020"})]))
    assert found.data["cells"]["median"][1] == [20.0] and found.data["floors"] == [[0, 9.0]]
    assert '"cells"' in page(found)


def test_the_page_does_not_overwrite_what_it_reads(tmp_path: Path) -> None:
    path = write(tmp_path / "out.csv", [row()])
    before = path.read_bytes()
    done = shown("report", path, "-o", path)
    assert "is what is read here" in str(done.exception) and path.read_bytes() == before


# --- the page ---------------------------------------------------------------------------------------------------------


class Parsed(HTMLParser):
    """What a browser makes of a page: its elements with their attributes, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[tuple[str, dict[str, str | None], str]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inline.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is not None:
            tag, attributes, before = self.inline[-1]
            self.inline[-1] = (tag, attributes, before + data)
        else:
            self.texts.append(data)


def evil_page(tmp_path: Path) -> tuple[str, Parsed]:
    rows = []
    for number, name in enumerate(EVIL_NAMES):
        evil = {"Scenario": name, "ScenarioHash": name, "Error": name, "Leader": name, "CpuModel": name}
        evil |= {"Target": name, "Config": name, "Events": name, "Kernel": name, "StoreVersion": name, "Commit": name}
        rows += [row(**evil, LinkDelay_ms=str(number)), row(**{**evil, "Error": "-"}, LinkDelay_ms=name)]
    text = page(document(write(tmp_path / "<img src=x>.csv", rows)))
    return text, Parsed(text)


def test_nothing_from_a_file_becomes_html_or_ends_the_data(tmp_path: Path) -> None:
    text, parsed = evil_page(tmp_path)
    assert {tag for tag, _ in parsed.elements} & {"img", "b", "iframe", "svg"} == set()
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]
    (data,) = [content for _, attributes, content in parsed.inline if attributes.get("id") == "data"]
    loaded = json.loads(data)
    names = [column["title"] for column in loaded["rows"]["columns"]]
    assert EVIL in loaded["rows"]["values"][names.index("scenario")]
    assert not set("<>&\u2028") & set(data)
    assert EVIL in " ".join(parsed.texts)  # the table of rows that do not count shows it, as text
    assert text.count("<script") - len(re.findall(r'"[^"\n]*<script', text)) <= len(parsed.inline) + 1


def test_the_policy_allows_what_is_in_the_page_and_nothing_else(tmp_path: Path) -> None:
    _, parsed = evil_page(tmp_path)
    (policy,) = [
        attributes["content"] for tag, attributes in parsed.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]  # fmt: skip
    assert policy is not None and "unsafe" not in policy and "default-src 'none'" in policy
    used = set()
    for tag, attributes, content in parsed.inline:
        if attributes.get("type") == "application/json":
            continue
        assert "src" not in attributes
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        directive = next(part for part in policy.split("; ") if part.startswith(f"{tag}-src"))
        assert f"'sha256-{digest}'" in directive
        used.add(digest)
    assert len(re.findall("sha256-", policy)) == len(used)  # an empty style is one of them
    refers = [attributes.get("href") for tag, attributes in parsed.elements if tag in ("a", "link")]
    assert all(str(where).startswith("#") for where in refers)


def test_no_html_is_made_past_the_escape() -> None:
    """`Html` and `trusted` could: only html.py makes the one, only page.py uses the other, on our own files."""
    for path in sorted(ROOM.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert path.name == "html.py" or not re.search(r"\bHtml\(", text), path
        assert path.name in ("html.py", "page.py") or "trusted" not in text, path
    found = re.findall(r"\btrusted\((\w+)\)", (ROOM / "page.py").read_text(encoding="utf-8"))
    assert sorted(found) == ["script", "style"]
    for path in (ROOM / "templates").glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", path.read_text()), path


def test_elements_escape_texts_and_attributes() -> None:
    assert str(element("p", EVIL, title='"<&', hidden=True, id=None)) == (
        '<p title="&quot;&lt;&amp;" hidden>&lt;script&gt;alert(1)&lt;/script&gt;</p>'
    )
    assert str(joined(["a<b", trusted("<br>"), None, 3])) == "a&lt;b<br>3"
    assert str(element("p", "a\x00\x1b\ud800b\n")) == "<p>a\ufffd\ufffd\ufffdb\n</p>"
    block = str(json_block("x", {"a": "</script><!--\u2028"}))
    assert block.startswith('<script type="application/json" id="x">') and block.count("<") == 2
    with pytest.raises(ValueError, match="JSON"):
        json_block("x", float("nan"))


def test_a_thousand_rows_with_timelines_are_under_6_megabytes(tmp_path: Path) -> None:
    """Each with a cell of its own in two grids, and a minute of timeline."""
    path = write(tmp_path / "out.csv", sweep(delays=10, bandwidths=10, repeat=5))
    rows = read_rows([path])
    runs = read_runs(rows)
    from containernet_env.report.runs import PERCENTS, Details, Timeline

    steps = tuple(range(1000, 1060))
    floats = tuple(10 + 0.0017 * step for step in steps)
    timeline = Timeline(1.0, steps, steps, floats, floats, ())
    details = {number: Details(("a finding",), floats[: len(PERCENTS)], timeline) for number in range(len(rows))}
    found = document_of(rows, type(runs)(details, runs.told, 0, ()))
    assert len(rows) == 1000 and len(page(found).encode()) < 6_000_000
    assert any("timelines are in the page" in note for note in found.notes)


def test_far_too_many_rows_make_a_page_of_all_of_them_that_says_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MOST_ROWS", 20)
    monkeypatch.setattr(documents, "MOST_CELLS", 10)
    monkeypatch.setattr(documents, "MOST_BAD", 3)
    rows = [*sweep(repeat=3), *(row(Valid="no", Repetition=str(number), ClientCount="7") for number in range(30))]
    found = document(write(tmp_path / "out.csv", rows))
    assert found.counts["rows"] == 84 and len(found.data["rows"]["values"][0]) == 20 and len(found.bad) == 3
    assert found.data["cells"]["n"] == [3] * 10  # their medians are over all rows
    for words in ("first 10 of 19 configurations", "first 20 of 84 rows", "3 of 31 rows that do not count"):
        assert any(words in note for note in found.notes), words


def test_the_command_writes_the_page_and_says_what_it_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "out.csv", sweep(delays=1, bandwidths=1))
    done = shown("report", path, "-o", tmp_path / "page.html", "--title", EVIL)
    assert done.exit_code == 0, done.output
    assert re.search(r"page\.html: 4 rows, 3 count, 4\.\d MB\n", done.output)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>&lt;script&gt;alert(1)&lt;/script&gt; - containernet-env report</title>" in text
    assert "Permission is hereby granted, free of charge" in text
    assert shown("report", path, "-o", tmp_path / "no" / "page.html").exception is not None
