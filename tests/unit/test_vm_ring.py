"""The vm ring where it cannot be run, and its cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import packages
from tests.vm import cache, machine, prepare


def test_without_qemu_it_says_so_and_makes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object) -> None:
        raise MissingRequirementError("no-such-package could not be installed", "Check the network.")

    monkeypatch.setattr(machine, "PROGRAMS", {"no-such-program": "no-such-package"})
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(packages, "install", refuse)
    monkeypatch.setattr("tests.vm.root_disk.get", lambda: pytest.fail("a disk was made"))
    assert prepare.main() == 0
    said = capsys.readouterr().out
    assert "no-such-package could not be installed" in said
    assert "no virtual machine can be run here: not installed: no-such-program" in said


def test_an_entry_is_made_once_and_the_oldest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "ROOT", tmp_path)
    made: list[str] = []

    def make(folder: Path) -> None:
        made.append(folder.name)
        (folder / "file").write_text("there")

    for digest in ("a", "b", "a", "c", "a"):
        assert (cache.entry("root", digest, make) / "file").read_text() == "there"
    assert len(made) == 3
    assert sorted(path.name for path in tmp_path.glob("root-*")) == ["root-a", "root-c"]


def test_what_an_interrupted_maker_left_is_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "ROOT", tmp_path)

    def fail(folder: Path) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        cache.entry("root", "a", fail)
    (tmp_path / ".root-killed").mkdir()
    cache.entry("root", "a", lambda folder: None)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["root-a"]


def test_a_machine_that_ended_before_its_job_has_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # QEMU ends with 0 when it is told to end, and the disk for the results is then an empty archive.
    program = tmp_path / "qemu"
    program.write_text("#!/bin/sh\necho terminating on signal 15\n")
    program.chmod(0o755)
    monkeypatch.setattr(machine, "QEMU", str(program))
    monkeypatch.setattr(machine, "_pack", lambda path, steps: path.write_bytes(b""))
    monkeypatch.setattr("tests.vm.root_disk.get", lambda: tmp_path)
    monkeypatch.setattr("tests.vm.image_disk.get", lambda: tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    outcome = machine.run([machine.Step("modules", "true", 1)], work, 10)
    assert not outcome.finished
    assert outcome.statuses == {}
    assert "terminating on signal 15" in outcome.console
