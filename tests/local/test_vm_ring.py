"""The vm ring where it cannot run, and where its machine ends early or hangs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import packages
from tests.vm import machine, prepare


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


def machine_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> machine.Outcome:
    """The outcome of a machine that is a Python program, which writes to the file ``console``."""
    qemu = tmp_path / "qemu"
    start = (
        "import json, sys, time\nconsole = open(next(a for a in sys.argv if 'file,id' in a).split('path=')[1], 'a')\n"
    )
    qemu.write_text(f"#!{sys.executable}\n{start}{program}")
    qemu.chmod(0o755)
    monkeypatch.setattr(machine, "QEMU", str(qemu))
    monkeypatch.setattr(machine, "LOOK_S", 0.01)
    monkeypatch.setattr(machine, "_pack", lambda path, steps: path.write_bytes(b""))
    monkeypatch.setattr("tests.vm.root_disk.get", lambda: tmp_path)
    monkeypatch.setattr("tests.vm.image_disk.get", lambda: tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    return machine.run([machine.Step("modules", "true", 1)], work, 60)


@pytest.mark.parametrize(
    "goes_on",
    [
        "time.sleep(600)",
        "while True:\n    print('[  180.956627] watchdog: BUG: lockup', file=console, flush=True); time.sleep(0.05)",
    ],
    ids=["silent", "only the kernel reports"],
)
def test_a_machine_whose_job_is_silent_has_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str) -> None:
    progress = "kernel: 10 s, tests/it.py::test_it"
    outcome = machine_that(tmp_path, monkeypatch, f"print('{progress}', file=console, flush=True)\n{goes_on}\n")
    assert outcome.hung and not outcome.finished
    assert outcome.last_progress() == progress
