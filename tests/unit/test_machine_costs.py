"""The file of what requests cost on a machine: what is kept, bounded, ignored, and that no run fails for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from containernet_env.model.disruption import Disruptions
from containernet_env.plan.plan import ProfileChoice
from containernet_env.results import machine_costs
from containernet_env.runs import costs
from containernet_env.runs import measure as measure_module
from tests.unit.cost_samples import KEY, MS, known, outcome, own_place, plan_of, sample
from tests.unit.manifests import MACHINE
from tests.unit.run_fakes import on_fakes, rows, run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this machine's file is for a test; whoever made it keeps new files to himself."""
    umask = os.umask(0o077)
    yield own_place(tmp_path, monkeypatch)
    os.umask(umask)


def test_the_file_keeps_the_last_of_each_group_of_each_machine(place: Path) -> None:
    other = KEY.model_copy(update={"cores": 4})
    assert machine_costs.add(other, [sample(links_ns=7)], []) is None
    for number in range(20):
        added = [sample(links_ns=number), sample(kind="txn", links_ns=number)]
        assert machine_costs.add(KEY, added, known(sync_ms=number).syncs) is None
    held, note = machine_costs.read(KEY)
    assert note is None
    for kind in ("write", "txn"):
        assert [one.links_ns for one in held.requests if one.kind == kind] == list(range(11, 20))
    assert [one.median_ns for one in held.syncs] == [number * MS for number in range(11, 20)]
    assert [one.links_ns for one in machine_costs.read(other)[0].requests] == [7]
    assert machine_costs.read(KEY.model_copy(update={"kernel": "7.0"}))[0].requests == []
    assert (place.stat().st_mode & 0o777, os.listdir(place.parent)) == (0o644, [machine_costs.NAME])
    for cores in range(5, 15):
        machine_costs.add(KEY.model_copy(update={"cores": cores}), [sample()], [])
    assert len(json.loads(place.read_text())["machines"]) == machine_costs.KEPT_MACHINES


def test_all_samples_together_are_bounded(place: Path) -> None:
    many = [sample(members=number) for number in range(1, machine_costs.KEPT_SAMPLES + 50)]
    machine_costs.add(KEY, many, [])
    assert [one.members for one in machine_costs.read(KEY)[0].requests] == [one.members for one in many[49:]]
    assert place.stat().st_size < 1 << 20


def test_a_full_disk_leaves_the_file_as_it_was(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_costs.add(KEY, [sample()], [])

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    note = machine_costs.add(KEY, [sample(), sample()], [])
    assert note == "what requests cost on this machine is not kept: No space left on device"
    assert (machine_costs.read(KEY), os.listdir(place.parent)) == ((known(sample()), None), [machine_costs.NAME])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        b'{"schema": 2, "machines": []}',
        b'{"schema": 1, "machines": [], "more": 1}',
        b'{"schema": 1, "machines": [{"machine": {"cores": -1}}]}',
        b" " * (5 << 20),
    ],
)
def test_a_file_that_is_not_ours_is_ignored_with_a_note_and_replaced(place: Path, content: bytes) -> None:
    place.parent.mkdir()
    place.write_bytes(content)
    held, note = machine_costs.read(KEY)
    assert held == known()
    assert note == f"{place} is not what a run has left there: it is ignored, and the next run replaces it"
    assert machine_costs.add(KEY, [sample()], []) is None
    assert machine_costs.read(KEY) == (known(sample()), None)


def test_what_is_no_file_at_all_is_ignored_with_a_note(place: Path) -> None:
    place.parent.mkdir()
    os.mkfifo(place)
    assert "is ignored" in str(machine_costs.read(KEY)[1])
    place.unlink()
    place.mkdir()
    assert "is ignored" in str(machine_costs.read(KEY)[1])
    assert "is not kept: Is a directory" in str(machine_costs.add(KEY, [sample()], []))
    assert os.listdir(place.parent) == [machine_costs.NAME]


def test_a_run_keeps_what_it_has_measured(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_fakes(monkeypatch)
    monkeypatch.setattr(measure_module, "keep_costs", costs.keep_costs)
    run(tmp_path / "out.csv")
    assert [(one.data, one.median_ns) for one in machine_costs.read(KEY)[0].syncs] == [("disk", 500_000)]
    profiled = plan_of(tmp_path, profile=ProfileChoice(("cpu",)))
    for plan in (plan_of(tmp_path), profiled):
        struck = replace(outcome(), disruptions=Disruptions("1"))
        assert costs.keep_costs(plan, MACHINE, [], [outcome(), outcome("machine_shared"), struck]) is None
    assert len(machine_costs.read(KEY)[0].requests) == 1
    assert place.exists()


def test_a_run_ends_well_where_nothing_can_be_kept(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_fakes(monkeypatch)
    monkeypatch.setattr(measure_module, "keep_costs", costs.keep_costs)
    place.parent.write_text("no folder")
    assert run(tmp_path / "out.csv").failed == 0
    monkeypatch.setattr(machine_costs, "add", lambda *_: 1 / 0)
    assert run(tmp_path / "out.csv").failed == 0
    assert [row["Error"] for row in rows(tmp_path / "out.csv")] == ["-", "-"]
    assert costs.keep_costs(plan_of(tmp_path), MACHINE, [], []) == (
        "what requests cost on this machine is not kept: ZeroDivisionError: division by zero"
    )
