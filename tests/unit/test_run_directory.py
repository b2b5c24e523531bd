"""The run directory: what it keeps, reading it back, and what `show` says of a run, also of an edited one.

The answers are in the snapshot: pytest tests/unit/test_run_directory.py --snapshot-update.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import UsageError
from containernet_env.model.disruption import Disruptions, ExecutedEvent
from containernet_env.model.findings import Finding
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import Check
from containernet_env.model.scenario import Scenario, ScheduledScenario
from containernet_env.model.search import Probe
from containernet_env.model.usage import Consumers, Consumption, Durations, MemberActivity, StoreActivity, Usage
from containernet_env.results.files import CHECKSUMS, Changed, Checked, check
from containernet_env.results.run_directory import LOG_MAX_BYTES, RunDirectory, find_run, read_run
from containernet_env.results.run_files import FILES, Proof, json_schema
from tests.unit import fakes
from tests.unit.answers import DOCS, closed_loop
from tests.unit.commands import answer, check_file
from tests.unit.disk import file_limit
from tests.unit.manifests import manifest

WRITE = Scenario(name="w", type="write", total=1000, clients=10, conns=2, key_size=8, val_size=256, key_space=1000)
OUTCOME = ScenarioOutcome(
    ScheduledScenario(WRITE, 1, "0123456789ab"),
    "2026-01-01T00:00:00.000Z",
    5,
    leader="etcd1",
    seconds=75.25,
    load=LoadResult.from_json(closed_loop()),
    findings=(Finding("link_lateness", "invalid", "frames were late", 2e6, 1e6),),
)
UNPROVED = Check("etcd1>s1", "loss", "unproved", "0.1 %", why="500 frames cannot distinguish it from none")
PROVED = replace(UNPROVED, verdict="proved")
WRONG = Check("etcd1>s1", "rate", "wrong", "20 Mbit/s", "997 Mbit/s", "1.8% either way")
PROOF = Proof(
    at="t",
    at_ns=1,
    passed=True,
    problems=[],
    unproved=[UNPROVED.line],
    checks=[check.to_json() for check in (PROVED, UNPROVED, PROVED)],
    pairs=[
        {"a": "etcd1", "b": "etcd2", "expected_ns": 12_003_000, "measured_ns": 12_023_000, "samples_ns": [1, 2]},
        {"a": "etcd1", "b": "etcd3", "expected_ns": 12_003_000, "measured_ns": None, "samples_ns": []},
    ],
)


def written(folder: Path) -> RunDirectory:
    """A run directory as a run leaves it, but for its end."""
    made = RunDirectory(folder / "out.csv", "run-1")
    made.write("manifest.json", manifest())
    made.add_proof(PROOF)
    wrong: dict[str, Any] = {"problems": [WRONG.line], "checks": [WRONG.to_json()], "unproved": [], "pairs": []}
    made.add_proof(Proof(at="t", at_ns=9, moment="after", passed=False, **wrong))
    made.add_event("run_began", "run run-1")
    made.add_scenario(OUTCOME)
    made.add_scenario(replace(OUTCOME, load=None, error="not run: x"))
    made.write_log("etcd1", "ready\n")
    return made


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return written(tmp_path)


MEMBER = Consumption(cpu_ns=5, memory_bytes=6)
USED = Consumers({"etcd1": MEMBER}, client=MEMBER, driver=MEMBER, machine=Consumption(steal_ns=7))
COUNTED = MemberActivity(log_syncs=Durations(3, 0.5, 0.001, ((0.001, 3),)), warnings={"slow fdatasync": 1})
OBSERVED = replace(OUTCOME, machine=Usage(10**9, USED), store=StoreActivity({"etcd1": COUNTED}))


def test_what_was_written_is_read_back_and_every_file_keeps_to_its_schema(directory: RunDirectory) -> None:
    left = read_run(directory.path)
    assert [line.error for line in left.scenarios] == [None, "not run: x"]
    assert left.scenarios[0].load == closed_loop() and left.events[0].at_ns > 0
    assert ([path.name for path in left.logs], left.torn) == (["etcd1.log"], 0)
    directory.add_usage(5, None, USED)
    directory.add_usage(6, "begin", Consumers())
    kill = ExecutedEvent(1, 1, "event", "kill", "leader", None, ("etcd1",), 5, 70, 6, "etcd1")
    never = ExecutedEvent(2, 1, "event", "restart", "killed", None, (), 9, None, None, problem="the load had ended")
    done = Disruptions("7/w/1.1", (kill, never))
    directory.add_scenario(replace(OBSERVED, disruptions=done))
    searched = Probe(3, "repeat", Decimal("99.5"), 5.5, 77, "missed", "p99 60ms", (0.06, None))
    directory.add_probe(searched, OUTCOME)
    directory.add_probe(replace(searched, number=4), OUTCOME)
    texts = {name: (directory.path / form.file).read_text() for name, form in FILES.items()}
    lines = {name: [text] if name in ("manifest", "network") else text.splitlines() for name, text in texts.items()}
    held = {name: [json.loads(line) for line in of_file] for name, of_file in lines.items()}
    assert held["network"][0]["proofs"][0]["pairs"][0]["samples_ns"] == [1, 2]
    assert held["usage"][0]["members"] == {"etcd1": {"cpu_ns": 5, "memory_bytes": 6}}, "what is not known is not there"
    last = held["scenario"][-1]
    assert last["machine"]["used"]["machine"]["steal_ns"] == 7
    assert last["store"]["members"]["etcd1"]["log_syncs"]["buckets"] == [[0.001, 3]]
    assert [line["probe"]["number"] for line in held["probe"]] == [3, 4]
    assert held["probe"][0]["probe"] == searched.values()
    assert held["probe"][0]["scenario"] == OUTCOME.scheduled.scenario.name
    assert [(line["verb"], line["members"], line["began_ns"]) for line in held["disruption"]] == [
        ("kill", ["etcd1"], closed_loop()["began_ns"]),
        ("restart", [], closed_loop()["began_ns"]),
    ]
    for name, values in held.items():
        for value in values:
            problems = [error.message for error in Draft202012Validator(json_schema(name)).iter_errors(value)]
            assert not problems, (name, problems)


@pytest.mark.parametrize("name", FILES)
def test_the_committed_schemas_are_those_of_the_program(name: str, snapshot: SnapshotAssertion) -> None:
    assert "schema" in json_schema(name)["required"], "the version, without which a file is refused"
    check_file(DOCS / f"run-{name}.schema.json", json.dumps(json_schema(name), indent=2) + "\n", snapshot)


def test_a_line_that_was_cut_short_costs_no_other_line(directory: RunDirectory) -> None:
    """Nor one that is nested too deeply; a line is on disk when its call returns, and those before it stay."""
    with (directory.path / "events.jsonl").open("a") as events:
        events.write("[" * 100_000 + "\n")
    path = directory.path / "scenarios.jsonl"
    with path.open("a") as file:
        file.write('{"schema":1,"scenario":"w3"')
    before, run = path.read_bytes(), read_run(directory.path)
    assert (len(run.scenarios), len(run.events), run.torn) == (2, 1, 2)
    directory.add_scenario(OUTCOME)
    run = read_run(directory.path)
    assert (len(run.scenarios), run.torn) == (3, 2) and path.read_bytes().startswith(before)


def test_a_line_that_finds_no_room_is_not_there_in_part_and_comes_with_the_next_one(directory: RunDirectory) -> None:
    path = directory.path / "scenarios.jsonl"
    before = path.read_bytes()
    third = replace(OUTCOME, error="third")
    with file_limit(len(before) + 100), pytest.raises(OSError, match="File too large"):
        directory.add_scenario(third)
    assert path.read_bytes() == before
    assert directory.missing == (third,)
    directory.add_scenario(replace(OUTCOME, error="fourth"))
    assert [line.error for line in read_run(directory.path).scenarios] == [None, "not run: x", "third", "fourth"]
    assert directory.missing == ()
    # A whole file that finds no room leaves the one before.
    with file_limit(10), pytest.raises(OSError, match="File too large"):
        directory.write("manifest.json", manifest(run_id="run-2"))
    run = read_run(directory.path)
    assert run.manifest is not None and run.manifest.run_id == "run-1"
    assert not list(directory.path.glob("*.part"))


def test_a_run_directory_that_is_removed_is_there_again_with_all_that_was_in_it(directory: RunDirectory) -> None:
    """OUT's folder removed during the run: the data of finished scenarios went with it."""
    before = read_run(directory.path)
    shutil.rmtree(directory.path.parent)
    directory.restore()
    after = read_run(directory.path)
    assert (after.manifest, after.network) == (before.manifest, before.network)
    assert (after.scenarios, after.events) == (before.scenarios, before.events)


def test_of_a_long_log_the_end_is_kept(directory: RunDirectory) -> None:
    directory.write_log("etcd2", "x" * LOG_MAX_BYTES + "last words")
    kept = (directory.path / "logs" / "etcd2.log").read_bytes()
    assert len(kept) == LOG_MAX_BYTES and kept.endswith(b"last words")


@pytest.mark.parametrize("link", ["symbolic", "hard"])
@pytest.mark.parametrize("ending", ["", ".part"])
def test_links_that_lie_where_files_are_to_be_are_not_followed(tmp_path: Path, link: str, ending: str) -> None:
    """Another user may write to OUT's folder."""
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    made = RunDirectory(tmp_path / "out.csv", "run-1")
    acts: dict[str, Callable[[], None]] = {
        "manifest.json": lambda: made.write("manifest.json", manifest()),
        "inputs/topology.json": lambda: made.write("inputs/topology.json", "{}"),
        "profiles/01-a/etcd1-cpu.pb.gz": lambda: made.write_profile("01-a", "etcd1-cpu.pb.gz", b"profile"),
        "history/01-a.jsonl.gz": lambda: made.write_history("01-a.jsonl.gz", [b"history"]),
        "logs/etcd1.log": lambda: made.write_log("etcd1", "log"),
        "checksums.sha256": made.seal,
    }
    for name, act in acts.items():
        place = made.path / f"{name}{ending}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(theirs) if link == "symbolic" else place.hardlink_to(theirs)
        act()
        assert (made.path / name).stat().st_nlink == 1 and not (made.path / name).is_symlink()
        assert not os.path.lexists(made.path / f"{name}.part")
    (made.path / "events.jsonl").symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic link"):
        made.add_event("run_began", "x")
    assert theirs.read_text() == "theirs"


# --- checksums --------------------------------------------------------------------------------------------------------


def test_each_file_that_differs_from_what_the_run_left_is_named_with_how(directory: RunDirectory) -> None:
    directory.write("inputs/topology.json", "{}\n")
    directory.seal()
    sealed = directory.path
    assert check(sealed) == Checked(6, ())
    names = [line.split("  ")[1] for line in (sealed / CHECKSUMS).read_text().splitlines()]
    files = ["events.jsonl", "inputs/topology.json", "logs/etcd1.log", "manifest.json", "network.json"]
    assert names == [*files, "scenarios.jsonl"]
    directory.add_event("emulator_died", "late")  # another thread may be late with its news
    assert check(sealed) == Checked(6, ())
    with (sealed / "scenarios.jsonl").open("a") as file:
        file.write(" ")
    (sealed / "logs" / "etcd1.log").unlink()
    (sealed / "notes.txt").write_text("mine")
    (sealed / "inputs" / "topology.json").unlink()  # a link or a pipe is missing, and not waited for
    (sealed / "inputs" / "topology.json").symlink_to("/dev/zero")
    (sealed / "manifest.json").unlink()
    os.mkfifo(sealed / "manifest.json")
    found = check(sealed)
    how = {"scenarios.jsonl": "changed", "logs/etcd1.log": "missing", "inputs/topology.json": "missing"}
    how |= {"manifest.json": "missing", "notes.txt": "added"}
    assert found is not None and {item.name: item.how for item in found.changed} == how


def test_a_line_that_is_no_checksum_is_named(directory: RunDirectory) -> None:
    digits = "0" * 64
    paths = (f"{digits}  ../../etc/passwd", f"{digits}  /etc/passwd")
    for line in ("", "x", f"{digits[1:]}  a", *paths, f"{'g' * 64}  a", "\0" * 99):
        directory.seal()
        with (directory.path / CHECKSUMS).open("a") as file:
            file.write(f"{line}\n")
        found = check(directory.path)
        assert found is not None and found.changed == (Changed("checksums.sha256, line 6", "not a checksum"),), line


def test_a_run_that_ended_or_failed_has_checksums_of_all_it_left(tmp_path: Path, monkeypatch: fakes.Patch) -> None:
    fakes.on_fakes(monkeypatch)
    result = fakes.run(tmp_path / "out.csv")
    found = check(result.directory)
    assert found is not None and found.changed == () and found.files >= 6
    assert '"run_ended"' in (result.directory / "events.jsonl").read_text().splitlines()[-1]
    monkeypatch.setattr(fakes.FakeTestbed, "up", mock.Mock(side_effect=UsageError("no")))
    with pytest.raises(UsageError):
        fakes.run(tmp_path / "failed.csv")
    (failed,) = (tmp_path / "failed.runs").iterdir()
    found = check(failed)
    assert found is not None and found.changed == ()


# --- what is shown ----------------------------------------------------------------------------------------------------

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
        told = told.replace(event.at, "AT")
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


def test_what_is_nested_too_deeply_or_cannot_be_read_is_refused(directory: RunDirectory) -> None:
    """RecursionError, with a traceback; a FIFO was waited for."""
    path = directory.path / "disruptions.jsonl"
    path.mkdir()
    assert f"Error: {path} cannot be read: Is a directory" in answer("show", directory.path)
    path.rmdir()
    for name in ("network.json", CHECKSUMS):
        (directory.path / name).unlink(missing_ok=True)
        os.mkfifo(directory.path / name)
        with pytest.raises(UsageError, match=rf"{name} cannot be read: it is no regular file"):
            read_run(directory.path)
        (directory.path / name).unlink()
    for text in ("[" * 100_000, '{"schema":1,"run_id":' + "[" * 900 + "]" * 900 + "}"):
        (directory.path / "manifest.json").write_text(text)
        assert "manifest.json is" in answer("show", directory.path)


def test_names_of_a_run_move_no_cursor_and_are_no_markup(directory: RunDirectory) -> None:
    for key in ("scenario", "leader", "error"):
        edit(directory, "scenarios.jsonl", (key,), EVIL)
    directory.add_event("testbed_failed", "the emulator ended: open [/dev/net/tun]: [bold]refused")
    output = shown(directory, "--events")
    assert output.count("w\\x1b[2J\\u202e[red]") > 1 and not {"\x1b", "\u202e"} & set(output)
    assert "open [/dev/net/tun]: [bold]refused" in output


def test_links_of_the_kernel_have_no_seed_and_changed_files_are_shown(directory: RunDirectory) -> None:
    edit(directory, "manifest.json", ("links", "links"), "netem")
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
    (newer.path.parent / "zz-notes").mkdir()  # a folder of another program
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
