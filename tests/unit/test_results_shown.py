"""What `results` and `show` say, and which experiments count as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.analysis.repetitions import summarize
from containernet_env.base.errors import ContainernetEnvError, UsageError
from containernet_env.cli import group
from containernet_env.plan.identity import config_hash
from containernet_env.results.columns import SEED_COLUMNS
from containernet_env.results.csv_file import load
from containernet_env.results.run_directory import RunDirectory
from containernet_env.runs.prepare import prepare
from tests.unit import report_rows
from tests.unit.manifests import manifest
from tests.unit.test_repetitions import write
from tests.unit.test_run_directory import OUTCOME, PROOF
from tests.unit.test_run_directory import directory as run_directory

made_run = run_directory

QUICK = Path(__file__).resolve().parents[2] / "configs" / "scenarios" / "quick.json"


def shown(*words: str) -> str:
    done = CliRunner().invoke(group, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit | ContainernetEnvError), repr(done.exception)
    return done.output


EVIL = "w\x1b[2J\u202e[red]"


def test_names_of_a_file_move_no_cursor(tmp_path: Path) -> None:
    path = report_rows.write(tmp_path / "out.csv", [report_rows.row(Scenario=EVIL)])
    output = shown("results", str(path), "--by", "Scenario")
    assert "w\\x1b[2J\\u202e[red]" in output and not {"\x1b", "\u202e"} & set(output)


def test_names_of_a_run_move_no_cursor(made_run: RunDirectory) -> None:
    path = made_run.path / "scenarios.jsonl"
    lines = [
        json.loads(line) | {"scenario": EVIL, "leader": EVIL, "error": EVIL} for line in path.read_text().splitlines()
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    output = shown("show", str(made_run.path), "--events")
    assert output.count("w\\x1b[2J\\u202e[red]") > 2 and not {"\x1b", "\u202e"} & set(output)


# --- results ----------------------------------------------------------------------------------------------------------


def test_rows_of_the_seeds_form_with_other_request_counts_are_not_merged(tmp_path: Path) -> None:
    """In that form RequestCount is what was configured, and nothing else in the row tells the two apart."""
    path = tmp_path / "seed.csv"
    rest = ",1" * 16
    path.write_text(f"{','.join(SEED_COLUMNS)}\nwrite,3,100{rest},0.1\nwrite,3,100000{rest},0.9\n")
    assert summarize(load(path))["rows"].tolist() == [1, 1]


def test_a_torn_number_is_in_no_median(tmp_path: Path) -> None:
    """0.0345 that was cut to 0.0 makes the median 17.2 ms; the last line has no end, so its last value is unsure."""
    path = tmp_path / "seed.csv"
    line = f"write,3,100{',1' * 16}"
    path.write_text(f"{','.join(SEED_COLUMNS)}\n{line},0.0345\n{line},0.0")
    notes: list[str] = []
    summary = summarize(load(path, notes.append))
    assert (summary["95%"].tolist(), summary["rows"].tolist()) == ([0.0345], [1])
    assert len(notes) == 1 and "line 3 is left out: it does not end" in notes[0]


def test_a_torn_row_is_in_no_median_either(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write(path, {"50%": "0.018"}, {"50%": "0.018"})
    content = path.read_bytes()
    last = content.rindex(b"write")
    path.write_bytes(content[:last] + content[last : content.index(b"0.018", last) + 3] + b"\n")
    with pytest.warns(UserWarning, match=r"out\.csv, line 3 is left out: it has 17 values for \d+ columns"):
        frame = load(path)
    assert summarize(frame, ["TestType"])["50%"].tolist() == [0.018]
    assert "line 3 is left out" in shown("results", str(path), "--csv")


def test_a_row_that_failed_half_way_is_in_no_median(tmp_path: Path) -> None:
    """A member that was killed leaves figures of the part before it, which are not those of a whole scenario."""
    frame = write(
        tmp_path / "out.csv", {"Requests/sec": "100"}, {"Requests/sec": "900", "Error": "etcd2 was OOM-killed"}
    )
    summary = summarize(frame)
    assert summary["Requests/sec"].tolist() == [100.0]
    assert (summary["rows"].tolist(), summary["failed"].tolist()) == ([2], [1])


@pytest.mark.parametrize("column", ["CpuModel", "Cores", "Kernel", "Realtime", "LinkStamps", "Commit"])
def test_rows_of_other_machines_and_programs_are_not_merged(tmp_path: Path, column: str) -> None:
    """They are in the row because they are varied; what is merged by default hides them."""
    one, other = ("2", "4") if column == "Cores" else ("one", "other")
    rows = {column: one, "50%": "0.01", "RunId": "a"}, {column: other, "50%": "0.03", "RunId": "b"}
    assert summarize(write(tmp_path / "out.csv", *rows))["rows"].tolist() == [1, 1]


def test_a_row_that_failed_before_its_frames_were_stamped_is_counted_with_its_like(tmp_path: Path) -> None:
    failed = {"Error": "not run: etcd2 died", "RunId": "a"}
    summary = summarize(write(tmp_path / "out.csv", {"LinkStamps": "kernel", "RunId": "a"}, failed))
    assert (summary["rows"].tolist(), summary["failed"].tolist()) == ([2], [1])


def test_a_results_file_without_rows_is_shown(tmp_path: Path) -> None:
    """What a run leaves that failed in its bring-up."""
    write(tmp_path / "out.csv")
    assert "no rows yet" in shown("results", str(tmp_path / "out.csv"))


def test_a_results_file_without_rows_has_its_header_as_csv(tmp_path: Path) -> None:
    write(tmp_path / "out.csv")
    assert "rows" in shown("results", str(tmp_path / "out.csv"), "--csv")


def test_lines_of_different_experiments_can_be_told_apart(tmp_path: Path) -> None:
    """Three experiments of one name."""
    write(
        tmp_path / "out.csv",
        {"ClientCount": "10", "ScenarioHash": "s1", "ConfigHash": "a"},
        {"ClientCount": "1000", "ScenarioHash": "s2", "ConfigHash": "a"},
        {"ClientCount": "1000", "ScenarioHash": "s2", "ConfigHash": "b"},
    )
    lines = [line for line in shown("results", str(tmp_path / "out.csv")).splitlines() if line.startswith("w ")]
    assert len(set(lines)) == 3, lines


def test_large_numbers_are_shown_whole(tmp_path: Path) -> None:
    rows = [{"ReadLimit": "1234567", "ScenarioHash": "a"}, {"ReadLimit": "1234568", "ScenarioHash": "b"}, {}]
    write(tmp_path / "out.csv", *rows)
    assert "1234567" in shown("results", str(tmp_path / "out.csv"), "--by", "ReadLimit")


def test_text_in_brackets_is_shown_as_it_is_by_results(tmp_path: Path) -> None:
    write(tmp_path / "out.csv", {"Config": "wan[old].json"}, {"Config": "lan[/x].json"})
    output = shown("results", str(tmp_path / "out.csv"), "--by", "Config")
    assert "wan[old].json" in output and "lan[/x].json" in output


# --- identity ---------------------------------------------------------------------------------------------------------


def topology(tmp_path: Path, text: str, **options: Any) -> str:
    path = tmp_path / "config.json"
    path.write_text(text)
    return config_hash(prepare(path, QUICK, **options))


def nodes(more: dict[str, Any] | None = None) -> str:
    node = {"mem": "512m", "cpus": 1, "bandwidth": 100, "link_delay": "3ms"}
    return json.dumps({"nodes": [{"ip": f"10.0.0.{number}", **node} for number in (1, 2, 3)], **(more or {})})


def test_a_number_means_the_same_however_it_is_written(tmp_path: Path) -> None:
    text = nodes()
    assert topology(tmp_path, text) == topology(tmp_path, text.replace('"cpus": 1,', '"cpus": 1.0,'))


def test_the_links_that_were_chosen_count_and_not_whether_they_were_named(tmp_path: Path) -> None:
    """Where `auto` comes to the emulator, `--links emulator` is the same experiment: Links says 'emulator' for both."""
    assert topology(tmp_path, nodes()) == topology(tmp_path, nodes(), links="emulator")


def test_a_timing_that_is_written_out_is_the_one_that_follows(tmp_path: Path) -> None:
    """Where a value came from (heartbeat_from, election_from) is no part of the experiment."""
    more = {"etcd": {"heartbeat_interval": "100ms", "election_timeout": "1s"}}
    assert topology(tmp_path, nodes()) == topology(tmp_path, nodes(more))


@pytest.mark.parametrize(("one", "other"), [("100", "100.0"), ("0.5", "0.50")])
def test_a_scenario_is_the_same_however_its_numbers_are_written(tmp_path: Path, one: str, other: str) -> None:
    text = (
        '{"scenarios": [{"type": "mixed", "consistency": "l", "ratio": 0.5, '
        '"load": {"rate": 100, "duration": "1s", "clients": 1, "conns": 1}}]}'
    )
    hashes = set()
    for written in (text, text.replace(f": {one},", f": {other},")):
        path = tmp_path / "scenarios.json"
        path.write_text(written)
        hashes |= {item.scheduled.identity for item in prepare(QUICK.parents[1] / "3node-3ms.json", path).scenarios}
    assert len(hashes) == 1


# --- show -------------------------------------------------------------------------------------------------------------


def directory(results: Path) -> RunDirectory:
    made = RunDirectory(results, "20260101T000000Z-aaa")
    made.write_manifest(manifest())
    made.add_proof(PROOF)
    made.add_scenario(OUTCOME)
    return made


def test_the_seed_of_the_links_is_shown(tmp_path: Path) -> None:
    made = directory(tmp_path / "out.csv")
    links = manifest().links
    assert links is not None and links.links == "emulator" and links.network == "builtin"
    made.write_manifest(manifest())
    assert "links by emulator (seed 0), hosts by builtin" in shown("show", str(made.path))
    made.write_manifest(manifest().model_copy(update={"links": links.model_copy(update={"links": "netem"})}))
    assert "links by netem, hosts by builtin" in shown("show", str(made.path))


def test_text_in_brackets_is_shown_as_it_is_by_show(tmp_path: Path) -> None:
    """To rich it would be markup, and a MarkupError."""
    made = directory(tmp_path / "out.csv")
    made.add_event("testbed_failed", "the emulator ended: open [/dev/net/tun]: [bold]refused")
    assert "open [/dev/net/tun]: [bold]refused" in shown("show", str(made.path), "--events")


def test_a_folder_of_somebody_else_is_not_the_newest_run(tmp_path: Path) -> None:
    made = directory(tmp_path / "out.csv")
    (made.path.parent / "zz-notes").mkdir()
    assert "run 20260101T000000Z-aaa" in shown("show", str(tmp_path / "out.csv"))


@pytest.mark.parametrize("name", ["out.txt", "out"])
def test_the_run_of_a_results_file_is_found_whatever_its_suffix(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    directory(tmp_path / name)
    assert "run 20260101T000000Z-aaa" in shown("show", str(tmp_path / name))


def test_two_results_files_do_not_share_their_runs(tmp_path: Path) -> None:
    """Or `show` of one would show the other's newest run."""
    names = ("a.csv", "a.txt", "a", "a.txt.csv", "a.CSV")
    assert len({RunDirectory(tmp_path / name, "r").path.parent for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", {"schema": 1}),
        ("network.json", {"schema": 1, "proofs": 5}),
        ("scenarios.jsonl", {"schema": 1}),
        ("events.jsonl", {"schema": 1}),
    ],
)
def test_a_file_that_is_not_of_its_form_is_refused_without_a_traceback(
    tmp_path: Path, name: str, content: dict[str, Any]
) -> None:
    made = directory(tmp_path / "out.csv")
    (made.path / name).write_text(json.dumps(content) + "\n")
    with pytest.raises(UsageError, match=rf"{name}.* is not of its form: .*; got .*\n  It was changed"):
        CliRunner().invoke(group, ["show", str(made.path), "--events"], catch_exceptions=False)


def test_lines_that_cannot_be_read_are_refused_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of root, shown by a user who may not read it."""
    made = directory(tmp_path / "out.csv")
    real = Path.read_text

    def read_text(self: Path, *arguments: Any, **named: Any) -> str:
        if self.name == "scenarios.jsonl":
            raise PermissionError(13, "Permission denied")
        return real(self, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", read_text)
    from containernet_env.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["show", str(made.path)])
    assert ended.value.code == 2


def test_a_device_is_no_results_file() -> None:
    """/dev/zero was read until the memory was full."""
    done = CliRunner().invoke(group, ["results", "/dev/null"])
    assert isinstance(done.exception, UsageError) and "it is a device" in str(done.exception)
