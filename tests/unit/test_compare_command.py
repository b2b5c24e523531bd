"""The command compare: what it prints and writes, its exit status, and the files that it refuses."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.cli import main
from containernet_env.results.columns import COLUMNS
from containernet_env.setup import extras
from tests.unit.compare_rows import EVEN, rows, run, seed_file, write


def test_the_command_prints_a_table_that_fits_a_terminal(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", rows(EVEN, "1", 18, LinkDelay_ms="3"))
    b = write(tmp_path / "b.csv", rows([0.9 * value for value in EVEN], "2", 18, LinkDelay_ms="4"))
    c = write(tmp_path / "c.csv", rows([*EVEN[:4], 1.3], "2", 18, LinkDelay_ms="3", Scenario="x" * 60))
    shown = run(a, b)
    assert shown.exit_code == 0 and "LinkDelay_ms: 3 in A, 4 in B" in shown.output
    assert shown.output.count("B 8.2 to 12 % slower") == 18
    d = write(tmp_path / "d.csv", rows([*EVEN[:4], 1.3], "3", 18, LinkDelay_ms="3", Scenario="x" * 60))
    for text in (shown.output, run(c, d, "--figure", "p50", "--figure", "Requests/s").output):
        assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 120
    few = " ".join(run(c, d).output.split())
    assert "cannot tell: 5 against 5 repetitions with equal values can at best reach p = " in few


def test_json_and_csv_have_every_cell(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", rows(EVEN[:3], "1", 2))
    b = write(tmp_path / "b.csv", rows(EVEN[:3], "2", 2))
    shown = run(a, b, "--json", "--csv", tmp_path / "cells.csv", "--figure", "p50")
    document = json.loads(shown.stdout)
    assert document["version"] == 1 and [cell["figure"] for cell in document["cells"]] == ["50%", "50%"]
    with (tmp_path / "cells.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["cell"] for row in written] == ["w0", "w1"] == [cell["cell"] for cell in document["cells"]]
    assert (written[0]["ratio_low"], written[0]["verdict"]) == ("-", "cannot tell")
    assert document["cells"][0]["ratio_low"] is None
    assert run(a, b, "--csv", tmp_path / "cells.csv").exit_code == 0
    before = a.read_bytes()
    for path, words in (
        (tmp_path / "no" / "cells.csv", "cannot write"),
        (a, "is not replaced"),
        (Path("/dev/null"), "is not replaced"),
        (a / "x", "cannot write"),
    ):
        assert words in str(run(a, b, "--csv", path).exception)
    assert a.read_bytes() == before and not Path("/dev/null").is_file()
    assert sorted(path.name for path in tmp_path.glob("*.csv*")) == ["a.csv", "b.csv", "cells.csv"]


def test_no_field_of_the_csv_is_a_formula(tmp_path: Path) -> None:
    sides = [[row | {"Scenario": "=1+1"} for row in rows(EVEN[:3], side, 1)] for side in "12"]
    a, b = (write(tmp_path / f"{name}.csv", side) for name, side in zip("ab", sides, strict=True))
    assert run(a, b, "--csv", tmp_path / "cells.csv").exit_code == 0
    assert (tmp_path / "cells.csv").read_text().splitlines()[1].startswith("'=1+1,")


@pytest.mark.parametrize(
    ("factor", "repetitions", "status"),
    [(1.0, 6, 0), (0.9, 6, 1), (0.96, 6, 0), (1.2, 6, 0), (0.5, 3, 2), (1.0, 3, 2)],
)
def test_the_exit_status_for_ci(tmp_path: Path, factor: float, repetitions: int, status: int) -> None:
    a = write(tmp_path / "a.csv", rows(EVEN[:repetitions], "1"))
    b = write(tmp_path / "b.csv", rows([factor * value for value in EVEN[:repetitions]], "2"))
    for figure in ("Requests/sec", "p50"):
        assert run(a, b, "--figure", figure).exit_code == 0
        with pytest.raises(SystemExit) as ended:
            main(["compare", str(a), str(b), "--fail-if-slower", "5%", "--figure", figure])
        assert ended.value.code == status


def test_a_scenario_that_b_lacks_does_not_pass_for_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path / "a.csv", rows(EVEN, "1", 3))
    b = write(tmp_path / "b.csv", rows(EVEN, "2", 3)[:-1] + rows(EVEN, "2", 2, Valid="yes"))
    only = write(tmp_path / "c.csv", [row for row in rows(EVEN, "3", 3) if row["Scenario"] != "w1"])
    for file, status in ((b, 0), (only, 2)):
        with pytest.raises(SystemExit) as ended:
            main(["compare", str(a), str(file), "--fail-if-slower", "5 %"])
        assert ended.value.code == status
    assert "1 scenarios of A have no valid row in B" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["5", "five", "100%", "-1%", "%", "1e1%", "\u0665%"])
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: str) -> None:
    path = write(tmp_path / "a.csv", rows(EVEN, "1"))
    shown = run(path, path, "--fail-if-slower", share)
    assert shown.exit_code == 2 and "such as 5%" in shown.output


def test_several_files_make_one_side(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.csv", rows(EVEN[:3], name)) for name in "1234"]
    shown = run(files[0], files[1], "--also-a", files[2], "--also-b", files[3], "--json")
    assert json.loads(shown.stdout)["cells"][0]["repetitions_a"] == 6
    mixed = run(files[0], files[1], "--also-a", seed_file(tmp_path / "seed.csv", 1))
    assert "have different columns" in str(mixed.exception)


def test_bad_files_are_refused_with_a_remedy(tmp_path: Path) -> None:
    good = write(tmp_path / "good.csv", rows(EVEN, "1"))
    foreign, old = tmp_path / "foreign.csv", tmp_path / "old.csv"
    foreign.write_text("a,b\n1,2\n")
    old.write_text(",".join((*COLUMNS[:30], "Older", *COLUMNS[31:])) + "\n")
    for other, words in (
        (foreign, "is not a results file"),
        (old, rf"of another version of this program: it lacks {re.escape(COLUMNS[30])}; it has Older\n  Read it with"),
        (tmp_path / "none.csv", "cannot read"),
    ):
        for pair in ((good, other), (other, good)):
            with pytest.raises(UsageError, match=words):
                raise run(*pair).exception or AssertionError
    with pytest.raises(UsageError, match=r"no figure colour; allowed: Total|no figure colour; allowed: "):
        raise run(good, good, "--figure", "colour").exception or AssertionError


def test_what_is_wrong_is_said_before_anything_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def require(module: str, note: object) -> None:
        raise MissingRequirementError(f"this needs {module}", "Install it.")

    monkeypatch.setattr(extras, "require", require)
    for name in ("scipy", "scipy.special", "scipy.stats"):
        monkeypatch.setitem(sys.modules, name, None)
    a, b = (write(tmp_path / f"{name}.csv", rows(EVEN, name)) for name in "ab")
    other = write(tmp_path / "other.csv", rows(EVEN, "3", Scenario="r"))
    for words in (
        (a, tmp_path / "none.csv"),
        (a, a),
        (a, other),
        (a, b, "--figure", "colour"),
        (a, b, "--csv", a),
        (a, b, "--csv", tmp_path / "no" / "cells.csv"),
    ):
        assert isinstance(run(*words).exception, UsageError), words
    assert isinstance(run(a, b, "--csv", tmp_path / "cells.csv").exception, MissingRequirementError)
    assert not (tmp_path / "cells.csv").exists()


def test_a_torn_row_is_left_out_and_told(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", rows(EVEN, "1"))
    a.write_bytes(a.read_bytes()[:-5])
    shown = run(a, write(tmp_path / "b.csv", rows(EVEN, "2")), "--json")
    assert json.loads(shown.stdout)["cells"][0]["repetitions_a"] == 5
    assert "line 7 is left out" in shown.stderr


def test_a_file_beside_the_csv_is_left_alone(tmp_path: Path) -> None:
    a, b = (write(tmp_path / f"{name}.csv", rows(EVEN, name)) for name in "ab")
    beside = tmp_path / "cells.csv.partial"
    beside.write_text("mine")
    assert run(a, b, "--csv", tmp_path / "cells.csv").exit_code == 0
    assert beside.read_text() == "mine" and sorted(path.suffix for path in tmp_path.iterdir()) == [".csv"] * 3 + [
        ".partial"
    ]


def test_names_of_a_file_move_no_cursor(tmp_path: Path) -> None:
    a, b = (write(tmp_path / f"{name}.csv", rows(EVEN, name, Scenario="<script>\x1b[31m\u202e[red]")) for name in "ab")
    output = run(a, b).output
    assert "<script>\\x1b[31m\\u202e[red]" in output and "\x1b" not in output
