"""What `report` and `plot` write over: what they wrote themselves, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import UsageError
from containernet_env.cli import group
from tests.unit.report_rows import row, sweep, write


def shown(*words: object) -> Any:
    return CliRunner().invoke(group, [str(word) for word in words])


def drawn(path: Path, figure: Path) -> Any:
    return shown("plot", path, "--x", "clients", "--y", "p50", "-o", figure)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return write(tmp_path / "out.csv", [row()])


@pytest.mark.parametrize("content", [b"<!DOCTYPE html>\n<html><p>my own page</p></html>", b"a,b\n", b"\0"])
def test_a_page_replaces_no_file_of_something_else(out: Path, content: bytes) -> None:
    other = out.with_name("other")
    other.write_bytes(content)
    done = shown("report", out, "-o", other)
    assert isinstance(done.exception, UsageError) and "other is not replaced" in str(done.exception)
    assert other.read_bytes() == content


def test_a_page_replaces_no_other_results_file(out: Path) -> None:
    other = write(out.with_name("other.csv"), [row(), row(Repetition="2")])
    before = other.read_bytes()
    assert isinstance(shown("report", out, "-o", other).exception, UsageError) and other.read_bytes() == before


def test_a_page_and_a_figure_replace_earlier_ones_and_empty_files(out: Path) -> None:
    page, figure = out.with_name("page.html"), out.with_name("fig.svg")
    page.touch()
    (out.parent / "fig.svg.csv").touch()
    for _ in range(2):
        assert shown("report", out, "-o", page, "--title", "t" * 3000).exit_code == 0
        assert drawn(out, figure).exit_code == 0
    assert sorted(path.name for path in out.parent.iterdir()) == ["fig.svg", "fig.svg.csv", "out.csv", "page.html"]


@pytest.mark.parametrize("form", ["pdf", "png", "svg"])
def test_a_figure_replaces_figures_of_its_form_alone(out: Path, form: str) -> None:
    figure = out.with_name(f"fig.{form}")
    assert drawn(out, figure).exit_code == 0 and drawn(out, figure).exit_code == 0
    figure.write_bytes(b"something else")
    assert "is not replaced" in str(drawn(out, figure).exception) and figure.read_bytes() == b"something else"


def test_nothing_is_written_where_the_numbers_would_replace_results(tmp_path: Path) -> None:
    """`plot -o fig.pdf` replaced any fig.pdf.csv before it drew fig.pdf."""
    path, other = write(tmp_path / "a.csv", sweep()), write(tmp_path / "fig.pdf.csv", [row()])
    before = other.read_bytes()
    assert "fig.pdf.csv is not replaced" in str(drawn(path, tmp_path / "fig.pdf").exception)
    assert other.read_bytes() == before and not (tmp_path / "fig.pdf").exists()


def test_the_file_that_is_written_meanwhile_is_nobody_elses(out: Path) -> None:
    """NAME.partial was written whatever it was, also through a link."""
    victim, page = out.with_name("victim"), out.with_name("page.html")
    victim.write_text("mine")
    out.with_name("page.html.partial").symlink_to(victim)
    assert shown("report", out, "-o", page).exit_code == 0
    assert victim.read_text() == "mine" and out.with_name("page.html.partial").is_symlink()
