"""Repeating a run from its run directory: what is the same again, and that every difference is refused and named."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from containernet_env.base import assets
from containernet_env.base.errors import ConfigError, ContainernetEnvError, UsageError
from containernet_env.cli import group
from containernet_env.config.plan import OPTIONS
from containernet_env.network.rtt import Tolerance
from containernet_env.results import capacity
from containernet_env.results.columns import COLUMNS
from containernet_env.results.files import CHECKSUMS
from containernet_env.results.run_directory import MANIFEST, SCENARIOS_INPUT, TOPOLOGY_INPUT, results_file_of
from containernet_env.results.run_files import Flags, LinkFacts, MachineFacts, Part, ProgramFacts, Virtualisation
from containernet_env.runs import machine as machine_module
from containernet_env.runs import manifest as manifest_module
from containernet_env.runs import rerun as rerun_module
from containernet_env.runs.measure import measure
from containernet_env.runs.rerun import FACTS, as_markdown, differences, prepare_rerun, rerun
from containernet_env.runs.sweep.runner import Counts
from containernet_env.setup.images import Images
from tests.unit import sweep_fakes
from tests.unit.blocks import LOAD, write, writes
from tests.unit.commands import check_block
from tests.unit.fakes import CONFIG, Beds, Patch, on_fakes, rows, run
from tests.unit.manifests import LINKS, MACHINE, PROGRAM, STORE, manifest
from tests.unit.sweep_fakes import Sweeping

sweep = sweep_fakes.sweep
HASHES = ("ConfigHash", "ScenarioHash", "LinkDelay_ms", "LinkSeed")
README = Path(__file__).resolve().parents[2] / "results" / "README.md"


@pytest.fixture
def made(monkeypatch: Patch) -> Beds:
    """Runs and what is compared have fakes; gives the testbeds that are made."""
    monkeypatch.setattr(rerun_module, "require_root", lambda: None)
    monkeypatch.setattr(rerun_module, "required_images", lambda *of: Images(member="e", benchmark="b"))
    monkeypatch.setattr(rerun_module.engines, "foreseen", lambda plan: LINKS)
    monkeypatch.setattr(assets, "etcd_version", lambda: "3.7.3")
    monkeypatch.setattr(rerun_module, "preflight", lambda plan, out: "")
    return on_fakes(monkeypatch)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a run of two rounds has left."""
    folder = tmp_path_factory.mktemp("left")
    with pytest.MonkeyPatch.context() as patch:
        on_fakes(patch)
        run(folder / "out.csv", repeat=2, congestion_control="reno", rtt_tolerance="1ms,15%")
    return folder


@pytest.fixture
def first(left: Path, tmp_path: Path) -> Path:
    """The directory of that run, to be changed."""
    shutil.copytree(left, tmp_path, dirs_exist_ok=True)
    (directory,) = (tmp_path / "out.runs").iterdir()
    return directory


def manifest_in(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / MANIFEST).read_text())
    return found


def edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = manifest_in(directory)
    change(value)
    (directory / MANIFEST).write_text(json.dumps(value))


def called(*words: str) -> Result:
    """What a command does; its errors are those that are reported as messages."""
    done = CliRunner().invoke(group, list(words))
    known = done.exception is None or isinstance(done.exception, SystemExit | ContainernetEnvError)
    assert known, repr(done.exception)
    return done


def elsewhere(patch: Patch, **update: Any) -> None:
    """This is another machine, or another program."""
    program = {name: value for name, value in update.items() if name in ProgramFacts.model_fields}
    machine = {name: value for name, value in update.items() if name not in program}
    patch.setattr(machine_module, "facts", lambda: MACHINE.model_copy(update=machine))
    patch.setattr(manifest_module, "program_facts", lambda: PROGRAM.model_copy(update=program))


# What the fakes' own processes used, and so what is judged by it.
USED = {*COLUMNS[COLUMNS.index("ClusterCpu_cores") : COLUMNS.index("OtherLabs")]} | {"Valid", "Reasons", "Advice"}

# --- what is the same again -------------------------------------------------------------------------------------------


def test_everything_configured_is_the_same_again_also_with_an_edited_log(
    made: Beds, first: Path, tmp_path: Path
) -> None:
    (first / "logs" / "etcd1.log").write_text("")
    result = rerun(first)
    assert result.failed == 0
    before, after = (manifest_in(directory) for directory in (first, result.directory))
    for name in ("flags", "inputs", "config_hash", "images", "program"):
        assert before[name] == after[name], name
    assert before["run_id"] != after["run_id"] and before["plan"]["run_id"] != after["plan"]["run_id"]
    assert after["repeats"] == {"run_id": before["run_id"], "differences": []}
    for name in (TOPOLOGY_INPUT, SCENARIOS_INPUT):
        assert (first / name).read_bytes() == (result.directory / name).read_bytes()
    old, new = rows(tmp_path / "out.csv")[:2], rows(tmp_path / "out.csv")[2:]
    varying = {"RunId", "Timestamp", "WallTime_s", *USED}
    assert [{k: v for k, v in row.items() if k not in varying} for row in old] == [
        {k: v for k, v in row.items() if k not in varying} for row in new
    ]
    assert {row["Config"] for row in new} == {CONFIG.name}
    assert f"repeats {first.name}, on equal terms" in called("show", str(result.directory)).output
    assert manifest_in(rerun(result.directory).directory)["repeats"]["run_id"] == result.directory.name


def test_a_run_on_a_testbed_that_another_one_had_left_is_repeated_on_its_own(made: Beds, sweep: Sweeping) -> None:
    assert sweep.run("link_delay=1ms,3ms") == Counts(2, 0, 0)
    came = {row["Reused"]: row for row in rows(sweep.out)}
    assert set(came) == {"nothing", "cluster;new-links"}
    for reused, before in came.items():
        directory, again = sweep.out.with_suffix(".runs") / before["RunId"], sweep.out.with_name(f"{reused}.csv")
        differences = prepare_rerun(directory, again)[1].differences
        told = [(reused in item.was, item.now, item.matters) for item in differences if item.name == "testbed"]
        assert told == [(True, "brought up anew", False)] * (reused != "nothing")
        rerun(directory, again)
        (row,) = rows(again)
        assert row["Reused"] == "nothing" and [row[key] for key in HASHES] == [before[key] for key in HASHES]


def test_the_newest_run_of_a_file_is_repeated_and_its_rows_go_there(made: Beds, first: Path, tmp_path: Path) -> None:
    assert prepare_rerun(tmp_path / "out.csv")[1].run_id == first.name
    assert prepare_rerun(first.parent)[0].out == tmp_path / "out.csv"
    moved = tmp_path / "elsewhere" / "run"
    shutil.copytree(first, moved)
    with pytest.raises(UsageError, match=r"lies beside no results file.*\n  Name OUT"):
        prepare_rerun(moved)
    assert prepare_rerun(moved, tmp_path / "new.csv")[0].out == tmp_path / "new.csv"
    for folder, out in (("out.runs", "out.csv"), ("out.txt-runs", "out.txt"), ("runs", None), ("-runs", None)):
        run = tmp_path / folder / "run-1"
        assert results_file_of(run, run) == (out and tmp_path / out)


# --- what differs -----------------------------------------------------------------------------------------------------


def changed(value: object) -> object:
    """Another value of the same type."""
    if isinstance(value, Part):
        return value.model_copy(update={name: changed(getattr(value, name)) for name in type(value).model_fields})
    if isinstance(value, dict):
        return {key: changed(item) for key, item in value.items()}
    if isinstance(value, bool) or value is None:
        return "other" if value is None else not value
    return value * 2 if isinstance(value, int) else [9.0, 9.0, 9.0] if isinstance(value, list) else f"other {value}"


def with_changed(value: Any, place: list[str]) -> Any:
    """``value`` with another value at ``place`` in it."""
    if not place:
        return changed(value)
    if isinstance(value, dict):
        return value | {place[0]: with_changed(value[place[0]], place[1:])}
    return value.model_copy(update={place[0]: with_changed(getattr(value, place[0]), place[1:])})


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.place)
def test_each_fact_that_differs_is_named_with_what_was_and_what_is(fact: Any) -> None:
    was = manifest()
    now = with_changed(was, fact.place.split("."))
    found = differences(was, now)
    assert found and all(item.name.startswith(fact.name) for item in found)
    assert all((item.was != item.now, item.matters, item.why) == (True, fact.matters, fact.why) for item in found)
    assert not differences(was, was)


def test_every_part_of_program_machine_and_links_is_compared_or_told() -> None:
    kinds = {"program": ProgramFacts, "machine": MachineFacts, "links": LinkFacts}
    parts = {f"{room}.{name}" for room, kind in kinds.items() for name in kind.model_fields}
    # The former is an option, which is taken from the run itself; the latter is known only when it has started.
    assert parts - {fact.place for fact in FACTS} == {"links.network", "links.link_emulator"}


def test_what_network_and_rows_are_judged_by_is_written_down(first: Path) -> None:
    found = manifest_in(first)["tolerances"]
    assert found["gate"]["emulator"]["late_ns"] == 100_000 and found["gate"]["kernel"]["late_ns"] == 500_000
    assert (found["gate"]["alarm"], found["gate"]["miss"]) == (0.001, 0.01)
    told = manifest(tolerances=found | {"verdict": found["verdict"] | {"machine_stolen": "50 %"}})
    (difference,) = differences(manifest(), told)
    words = "tolerance verdict.machine_stolen: was 1 %, and the 10 ms of the kernel's clock, is 50 %"
    assert str(difference) == words and difference.matters
    # The facts of the fakes are those of a run, or the tests here compare nothing.
    whole = manifest_in(first)
    assert whole["store"]["version"] == STORE.version and isinstance(MACHINE.virtualisation, Virtualisation)
    assert whole["machine"]["virtualisation"] == MACHINE.virtualisation.model_dump()


def test_every_option_is_written_down_and_given_to_the_next_run(made: Beds, first: Path, monkeypatch: Patch) -> None:
    """An option that is forgotten would be that of `run`'s default when the run is repeated."""
    assert set(Flags.model_fields) == OPTIONS.keys() - {"only"} | {"rtt_tolerance"}  # which is in inputs/scenarios.json
    values: dict[str, Any] = {"links": "emulator", "switches": "auto", "engine": "builtin", "repeat": 2}
    values |= {"port": 8080}  # of earlier manifests
    values |= {"congestion_control": "vegas", "rtt_tolerance": {"absolute_ns": 7, "ratio": 0.25}}
    edit(first, lambda value: value["flags"].update(values))
    found, _ = prepare_rerun(first, anyway=True)
    options = found.plan.options
    assert (options.links, options.congestion_control, options.repeat) == ("emulator", "vegas", 2)
    assert found.tolerance == Tolerance(7, 0.25)


def test_the_readme_has_the_table_of_what_is_compared(snapshot: SnapshotAssertion) -> None:
    check_block(README, "compared", "containernet_env/runs/rerun.py", as_markdown(), snapshot)


def refusal(directory: Path) -> str:
    """The message of a run that cannot be repeated as it was; what is another one each time has its kind's name."""
    with pytest.raises(UsageError) as refused:
        rerun(directory)
    told = str(refused.value).replace(str(directory), "RUN")
    assert "--anyway" in told
    return re.sub(r"[0-9a-f]{12,}", "HASH", told)


OTHER: dict[str, Any] = {"cpu_model": "Other CPU", "cores": 4, "memory_bytes": 12 << 30, "kernel": "6.19.0"}
OTHER |= {"clock_source": "hpet", "commit": "f" * 40, "version": "0.2.0", "sources": "b" * 64}


def test_another_machine_or_program_is_refused_and_nothing_is_created(
    made: Beds, first: Path, tmp_path: Path, monkeypatch: Patch, snapshot: SnapshotAssertion
) -> None:
    before = sorted(tmp_path.rglob("*"))
    told = {}
    with monkeypatch.context() as patch:
        elsewhere(patch, **OTHER)
        told["machine and program"] = refusal(first)
    with monkeypatch.context() as patch:
        patch.setattr(manifest_module.images, "digest", lambda tag: None)
        others = LINKS.model_copy(update={"links": "netem", "switches": "ovs"})
        patch.setattr(rerun_module.engines, "foreseen", lambda plan: others)
        patch.setattr(assets, "etcd_version", lambda: "3.8.0")
        told["images, links and versions"] = refusal(first)
    assert told == snapshot
    assert sorted(tmp_path.rglob("*")) == before and not made


def test_what_is_only_told_refuses_nothing_and_is_written_down(
    made: Beds, first: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    busy = {"engine": "25.0", "load_average": [9.0, 9.0, 9.0], "memory_bytes": MACHINE.memory_bytes - 4096}
    elsewhere(monkeypatch, **busy)
    before = sorted(tmp_path.rglob("*"))
    done = called("rerun", str(first), "--dry-run")
    assert done.exit_code == 0 and "Docker engine: was 20.10.24, is 25.0, which does not matter" in done.output
    assert f"{first.name} would be repeated" in done.output
    assert sorted(tmp_path.rglob("*")) == before and not made
    written = manifest_in(rerun(first).directory)["repeats"]["differences"]
    assert {(item["name"], item["matters"]) for item in written} == {("Docker engine", False), ("load average", False)}


def test_anyway_runs_and_writes_down_what_differs(made: Beds, first: Path, monkeypatch: Patch) -> None:
    elsewhere(monkeypatch, cores=64)
    done = called("rerun", str(first), "--anyway")
    assert done.exit_code == 0, done.output
    assert "unlike then, cores: was 2, is 64" in done.output
    (newest,) = set(first.parent.iterdir()) - {first}
    (difference,) = manifest_in(newest)["repeats"]["differences"]
    assert (difference["name"], difference["was"], difference["now"]) == ("cores", "2", "64")
    shown = " ".join(called("show", str(newest)).output.split())
    assert f"repeats {first.name}, with other cores" in shown


# --- a run directory that is not as it was ----------------------------------------------------------------------------


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    """The first ``old`` of an input file, once."""
    return lambda run: (run / name).write_text((run / name).read_text().replace(old, new, 1))


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    return lambda run: edit(run, change)


SPOILT: dict[str, list[Callable[[Path], object]]] = {
    "plan": [edited(lambda held: held["plan"]["links"][0]["a_to_b"].update(delay_ns=5_000_000))],
    "machine": [edited(lambda held: held["machine"].update(cores=8))],
    "tolerance": [edited(lambda held: held["flags"]["rtt_tolerance"].update(absolute_ns=1))],
    "deep plan": [edited(lambda held: held["plan"].update(switches=reduce(lambda inner, _: [inner], range(150), 1)))],
    "topology": [replaced(TOPOLOGY_INPUT, '"3ms"', '"4ms"')],
    "no checksums": [lambda run: (run / CHECKSUMS).unlink(), replaced(SCENARIOS_INPUT, "{", " {")],
    "killed in its bring-up": [
        lambda run: (run / CHECKSUMS).unlink(),
        edited(lambda held: held.update(links=None, store=None, hosts={})),
    ],
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_run_directory_that_was_edited_is_refused_with_what_differs(
    made: Beds, first: Path, snapshot: SnapshotAssertion, how: str
) -> None:
    """Or that a killed run left: with --anyway it is repeated all the same."""
    for change in SPOILT[how]:
        change(first)
    assert refusal(first) == snapshot
    assert rerun(first, anyway=True).failed == 0


def test_a_run_directory_without_a_file_is_a_message(made: Beds, first: Path) -> None:
    for name, words in (
        (TOPOLOGY_INPUT, r"inputs/topology\.json is refused:\n  file: cannot be read"),
        (MANIFEST, r"cannot be repeated: it has no manifest\.json"),
        (".", "is no run"),
    ):
        shutil.rmtree(first) if name == "." else (first / name).unlink()
        with pytest.raises((ConfigError, UsageError), match=words):
            rerun(first, anyway=True)


def test_a_manifest_that_cannot_be_meant_is_a_message_also_with_anyway(made: Beds, first: Path) -> None:
    whole = (first / MANIFEST).read_text()
    for place, value, words in (
        ("flags.repeat", 10**9, "contradicts itself: flags.repeat is 1000000000"),
        ("flags.repeat", "2", "flags.repeat"),
        ("flags.links", "warp", "flags.links"),
        ("flags.rtt_tolerance.ratio", -1, "flags.rtt_tolerance.ratio"),
        ("plan.scenarios", {}, "plan.scenarios"),
        ("plan.scenarios", [], "contradicts itself"),
        ("plan.config", [], "plan.config"),
        ("machine", None, "machine"),
        ("machine.cores", 10**40, "machine.cores"),
        ("images.etcd", "x", "images.etcd"),
        ("repeats", 5, "repeats"),
        ("schema", 2, "is of version 2; version 1 is read here"),
    ):
        *rooms, name = place.split(".")
        held = json.loads(whole)
        reduce(dict.__getitem__, rooms, held)[name] = value
        (first / MANIFEST).write_text(json.dumps(held))
        done = called("rerun", str(first), "--anyway")
        assert isinstance(done.exception, UsageError) and words in str(done.exception), (place, done.exception)


def test_a_run_that_found_out_its_dilations_is_repeated_with_these_in_its_order(
    made: Beds, tmp_path: Path, monkeypatch: Patch
) -> None:
    loads = write(tmp_path, {"scenarios": [writes(load=LOAD | {"total": 9 + n}) for n in range(3)]})
    found: dict[int, int] = {9: 4, 10: 1, 11: 4}
    monkeypatch.setattr(
        capacity,
        "dilations",
        lambda plan, known: {item.name: found[item.total or 0] for item in plan.scenario_set.scenarios},
    )
    result = measure(CONFIG, loads, tmp_path / "out.csv", dilation="auto")
    found |= {11: 1}  # by what else was measured since
    (order, repeats) = prepare_rerun(result.directory)
    planned = [(item.scheduled.scenario.total, item.dilation) for item in order.plan.scenarios]
    assert planned == [(10, 1), (9, 4), (11, 4)] and not repeats.differences
    edit(result.directory, lambda held: held["plan"]["scenarios"][0].update(dilation=10**9))
    with pytest.raises(UsageError, match="dilation"):
        prepare_rerun(result.directory)
