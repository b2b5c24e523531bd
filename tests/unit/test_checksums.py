"""The checksums of a run directory: what they find, and that nothing in the file leads them astray."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.results.files import CHECKSUMS, Changed, Checked, check
from containernet_env.results.run_directory import RunDirectory
from tests.unit.fakes import FakeTestbed, on_fakes, run
from tests.unit.manifests import manifest


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    made = RunDirectory(tmp_path / "out.csv", "run-1")
    made.write("manifest.json", manifest())
    made.write("inputs/topology.json", "{}\n")
    made.add_event("run_began", "run run-1")
    made.write_log("etcd1", "ready\n")
    made.seal()
    return made.path


def test_a_run_directory_that_nobody_touched_is_as_the_run_left_it(sealed: Path) -> None:
    assert check(sealed) == Checked(4, ())
    names = [line.split("  ")[1] for line in (sealed / CHECKSUMS).read_text().splitlines()]
    assert names == ["events.jsonl", "inputs/topology.json", "logs/etcd1.log", "manifest.json"]


def test_each_file_that_differs_is_named_with_how(sealed: Path) -> None:
    with (sealed / "events.jsonl").open("a") as file:
        file.write(" ")
    (sealed / "logs" / "etcd1.log").unlink()
    (sealed / "notes.txt").write_text("mine")
    (sealed / "inputs" / "topology.json").unlink()  # a link or a pipe is missing, and not waited for
    (sealed / "inputs" / "topology.json").symlink_to("/dev/zero")
    (sealed / "manifest.json").unlink()
    os.mkfifo(sealed / "manifest.json")
    found = check(sealed)
    how = {"events.jsonl": "changed", "logs/etcd1.log": "missing", "inputs/topology.json": "missing"}
    how |= {"manifest.json": "missing", "notes.txt": "added"}
    assert found is not None and {item.name: item.how for item in found.changed} == how


def test_an_event_after_the_end_does_not_look_like_a_change(tmp_path: Path) -> None:
    """Another thread may be late with its news."""
    made = RunDirectory(tmp_path / "out.csv", "run-1")
    made.add_event("run_ended", "")
    made.seal()
    made.add_event("emulator_died", "late")
    assert check(made.path) == Checked(1, ())


WRONG_LINES = ["", "x", f"{'0' * 63}  a", f"{'0' * 64}  ../../etc/passwd", f"{'0' * 64}  /etc/passwd", f"{'g' * 64}  a"]


@pytest.mark.parametrize("line", [*WRONG_LINES, "\0" * 99])
def test_a_line_that_is_no_checksum_is_named(sealed: Path, line: str) -> None:
    with (sealed / CHECKSUMS).open("a") as file:
        file.write(f"{line}\n")
    found = check(sealed)
    assert found is not None and found.changed == (Changed("checksums.sha256, line 5", "not a checksum"),)


def test_a_run_that_ended_or_failed_has_checksums_of_all_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_fakes(monkeypatch)
    result = run(tmp_path / "out.csv")
    found = check(result.directory)
    assert found is not None and found.changed == () and found.files >= 6
    assert '"run_ended"' in (result.directory / "events.jsonl").read_text().splitlines()[-1]
    monkeypatch.setattr(FakeTestbed, "up", mock.Mock(side_effect=UsageError("no")))
    with pytest.raises(UsageError):
        run(tmp_path / "failed.csv")
    (directory,) = (tmp_path / "failed.runs").iterdir()
    found = check(directory)
    assert found is not None and found.changed == ()
