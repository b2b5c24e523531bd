"""Faults that strike together, or where nobody had looked."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.results import place
from containernet_env.results.csv_file import ResultsFile, RowNotWrittenError
from containernet_env.results.place import check_place


def names(file: Path) -> list[str]:
    return [line.partition(",")[0] for line in file.read_text().splitlines()[1:]]


def first_column(text: str) -> dict[str, str]:
    from containernet_env.results.columns import COLUMNS

    return {COLUMNS[0]: text}


def test_a_row_that_found_no_place_is_written_once_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUT is removed and nothing can be made beside it; later it can: the row is in OUT.rescued twice."""
    results = ResultsFile(tmp_path / "out.csv")
    results.open()
    results.append(first_column("a"))
    results.path.unlink()

    def refuse() -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(results, "_open_beside", refuse)
        with pytest.raises(RowNotWrittenError):
            results.append(first_column("b"))
    results.append(first_column("b"))
    results.close()
    assert names(results.file) == ["a", "b"]


def test_a_row_during_which_a_notebook_is_interrupted_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`measure` in a notebook, which has no signal handlers of ours: Ctrl-C after the row was written, before that was
    noted, has it written again by the second call for the same outcome."""
    results = ResultsFile(tmp_path / "out.csv")
    results.open()

    def strike() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(results, "follow", strike)
        with pytest.raises(KeyboardInterrupt):
            results.append(first_column("a"))
    results.append(first_column("a"))
    results.close()
    assert names(results.file) == ["a"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda out: out.symlink_to(out.parent / "missing" / "out.csv"), "symbolic link"),
        (lambda out: out.symlink_to(out), "symbolic link"),
    ],
)
def test_a_link_that_leads_nowhere_is_not_blamed_on_the_disk(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    """OUT as a symbolic link into a missing folder, or to itself: the remedy was `dmesg`."""
    out = tmp_path / "out.csv"
    make(out)
    with pytest.raises(UsageError) as refused:
        ResultsFile(out).open()
    assert words in str(refused.value) and "dmesg" not in str(refused.value)


def test_too_few_descriptors_are_not_blamed_on_the_disk(tmp_path: Path) -> None:
    """`ulimit -n`: the remedy was `dmesg`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(UsageError, match="ulimit -n"):
            ResultsFile(tmp_path / "out.csv").open()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_room_is_looked_for_where_a_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OUT as a symbolic link to a file on another file system, which is full: found out by the first row."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "out.csv").touch()
    out = tmp_path / "out.csv"
    out.symlink_to(there / "out.csv")
    looked: list[Path] = []
    monkeypatch.setattr(place, "_check_folder", lambda folder, out, needed: looked.append(folder))
    check_place(out, 1)
    assert there in looked
