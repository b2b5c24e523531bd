"""`show`: what it says of a run, of one that was edited by hand, and of what is no run.

The answers are in the snapshot: pytest tests/unit/test_show.py --snapshot-update.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import UsageError
from containernet_env.results.files import CHECKSUMS
from containernet_env.results.run_directory import RunDirectory, find_run, read_run
from tests.unit.commands import answer
from tests.unit.manifests import manifest
from tests.unit.test_run_directory import directory as run_directory

directory = run_directory
EVIL = "w\x1b[2J\u202e[red]"
GONE = object()


def edit(directory: RunDirectory, name: str, place: tuple[str | int, ...], value: Any) -> None:
    """Give a value of a file, or of the first line of one of lines, another value, or take it away."""
    path = directory.path / name
    first, *rest = path.read_text().splitlines() if name.endswith("l") else [path.read_text()]
    held = items = json.loads(first)
    for step in place[:-1]:
        items = items[step]
    if value is GONE:
        del items[place[-1]]
    else:
        items[place[-1]] = value
    path.write_text("\n".join([json.dumps(held), *rest, ""]))


def shown(directory: RunDirectory, *options: str) -> str:
    """The answer without the moments at which the fixture's events were added."""
    told = answer("show", directory.path, *options, run=directory.path)
    for event in read_run(directory.path).events:
        told = told.replace(event["at"], "AT")
    return told


def test_a_run_is_shown_with_its_machine_proof_findings_and_events(
    directory: RunDirectory, snapshot: SnapshotAssertion
) -> None:
    assert shown(directory, "--events") == snapshot


def test_what_may_be_absent_is_shown_as_unknown(directory: RunDirectory, snapshot: SnapshotAssertion) -> None:
    for name in ("repeats", "links", "store"):
        edit(directory, "manifest.json", (name,), GONE)
    edit(directory, "manifest.json", ("flags", "port"), 8080)  # of earlier manifests
    edit(directory, "scenarios.jsonl", ("attempt",), GONE)
    edit(directory, "scenarios.jsonl", ("load", "requests_per_s"), GONE)
    assert shown(directory) == snapshot


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("manifest.json", ("plan", "hosts"), GONE),
        ("manifest.json", ("plan", "hosts", 0, "role"), GONE),
        ("manifest.json", ("plan", "config", "path"), GONE),
        ("manifest.json", ("schema",), 9),
        ("network.json", ("proofs", 0, "pairs", 0, "expected_ns"), GONE),
        ("network.json", ("proofs",), 5),
        ("scenarios.jsonl", ("findings", 0, "text"), GONE),
        ("scenarios.jsonl", ("seconds",), "1.5"),
        ("scenarios.jsonl", ("seconds",), float("inf")),
        ("events.jsonl", ("kind",), GONE),
        ("events.jsonl", ("at_ns",), "1"),
    ],
    ids=lambda value: "gone" if value is GONE else str(value).replace(" ", ""),
)
def test_an_edited_file_is_refused_with_its_place(
    directory: RunDirectory, snapshot: SnapshotAssertion, name: str, place: tuple[str | int, ...], value: Any
) -> None:
    edit(directory, name, place, value)
    told = answer("show", directory.path, "--events", run=directory.path)
    assert re.sub("got .*", "got ...", told) == snapshot


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema":1,"run_id":' + "[" * 900 + "]" * 900 + "}"], ids=len)
def test_a_manifest_that_is_nested_too_deeply_is_refused(directory: RunDirectory, text: str) -> None:
    """RecursionError, with a traceback."""
    (directory.path / "manifest.json").write_text(text)
    assert "manifest.json is" in answer("show", directory.path)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(directory: RunDirectory) -> None:
    for name in ("network.json", CHECKSUMS):
        (directory.path / name).unlink(missing_ok=True)
        os.mkfifo(directory.path / name)
        with pytest.raises(UsageError, match=rf"{name} cannot be read: it is no regular file"):
            read_run(directory.path)
        (directory.path / name).unlink()


def test_a_file_that_may_not_be_read_is_a_message(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of root, shown by a user who may not read it."""
    real = Path.read_text

    def read_text(self: Path, *arguments: Any, **named: Any) -> str:
        if self.name == "scenarios.jsonl":
            raise PermissionError(13, "Permission denied")
        return real(self, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert answer("show", directory.path).startswith("exit status 2\nError: ")


def test_names_of_a_run_move_no_cursor_and_are_no_markup(directory: RunDirectory) -> None:
    for key in ("scenario", "leader", "error"):
        edit(directory, "scenarios.jsonl", (key,), EVIL)
    directory.add_event("testbed_failed", "the emulator ended: open [/dev/net/tun]: [bold]refused")
    output = shown(directory, "--events")
    assert output.count("w\\x1b[2J\\u202e[red]") > 1 and not {"\x1b", "\u202e"} & set(output)
    assert "open [/dev/net/tun]: [bold]refused" in output


def test_the_seed_of_emulated_links_and_whether_the_files_are_as_the_run_left_them_are_shown(
    directory: RunDirectory,
) -> None:
    links = manifest().links
    told = shown(directory)
    assert links is not None and "links by emulator (seed 0), hosts by builtin" in told
    assert "no checksums: the run goes on, or was killed" in told
    directory.write(
        "manifest.json", manifest().model_copy(update={"links": links.model_copy(update={"links": "netem"})})
    )
    directory.seal()
    told = " ".join(shown(directory).split())
    assert "links by netem, hosts by builtin" in told and "files: 5, all as the run left them" in told
    (directory.path / "logs" / "etcd1.log").write_text("reddy\n")
    assert "files: NOT as the run left them: logs/etcd1.log (changed)" in " ".join(shown(directory).split())


# --- which run is shown -----------------------------------------------------------------------------------------------


def test_the_run_of_a_csv_is_its_newest(tmp_path: Path, directory: RunDirectory) -> None:
    assert find_run(tmp_path / "out.csv") == find_run(directory.path) == directory.path
    newer = RunDirectory(tmp_path / "out.csv", "run-2")
    newer.add_event("run_began", "run run-2")  # one that failed at once has no manifest
    assert "manifest.json is missing" in answer("show", tmp_path / "out.csv")
    (newer.path.parent / "zz-notes").mkdir()  # somebody else's folder
    assert find_run(tmp_path / "out.csv") == find_run(tmp_path / "out.runs") == newer.path
    with pytest.raises(UsageError, match=r"nothing.csv is no run"):
        find_run(tmp_path / "nothing.csv")


def test_two_results_files_do_not_share_their_runs_whatever_their_suffix(tmp_path: Path) -> None:
    """Or `show` of one would show the other's newest run."""
    names = ("a.csv", "a.txt", "a", "a.txt.csv", "a.CSV")
    made = [RunDirectory(tmp_path / name, "r") for name in names]
    assert len({run.path.parent for run in made}) == len(names)
    for name, run in zip(names, made, strict=True):
        (tmp_path / name).write_text("")
        run.write("manifest.json", manifest())
        assert find_run(tmp_path / name) == run.path
