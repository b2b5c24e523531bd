"""The vm ring where it cannot be run, and its cache."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from containernet_env.base import assets
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


def job_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What goes into the machine of a small project."""
    project = tmp_path / "project"
    for name in ("containernet_env/results/form.py", "tests/test_it.py", "results/old.csv", ".git/HEAD"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("")
    monkeypatch.setattr(assets, "ROOT", project)
    monkeypatch.setattr(machine.sources, "modules", list)
    machine._pack(tmp_path / "job.tar", [])
    with tarfile.open(tmp_path / "job.tar") as archive:
        return {name for name in archive.getnames() if not name.endswith(".pyc")}


def test_the_job_has_the_package_with_its_results_and_not_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(machine.SOURCE, raising=False)
    held = job_of(tmp_path, monkeypatch)
    assert held >= {"./containernet_env/results/form.py", "./tests/test_it.py", "steps.json"}
    assert not {name for name in held if "old.csv" in name or ".git" in name or "mininet" in name}


def test_the_job_has_the_original_containernet_where_a_checkout_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    monkeypatch.setenv(machine.SOURCE, str(checkout))
    with pytest.raises(ValueError, match=f"{machine.SOURCE}=.*checkout: no checkout of the original Containernet"):
        machine.original()
    (checkout / "mininet").mkdir(parents=True)
    (checkout / "mininet" / "net.py").write_text('CONTAINERNET_VERSION = "3.0"\n')
    (checkout / ".git").mkdir()
    held = job_of(tmp_path, monkeypatch)
    assert "containernet/mininet/net.py" in held
    assert not {name for name in held if ".git" in name}


def machine_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> machine.Outcome:
    """What comes of a machine that is a Python program: ``console`` is its console's file."""
    qemu = tmp_path / "qemu"
    start = (
        "import json, sys, time\nconsole = open(next(a for a in sys.argv if 'file,id' in a).split('path=')[1], 'a')\n"
    )
    qemu.write_text(f"#!{sys.executable}\n{start}{program}")
    qemu.chmod(0o755)
    monkeypatch.setattr(machine, "QEMU", str(qemu))
    monkeypatch.setattr(machine, "LOOK_S", 0.1)
    monkeypatch.setattr(machine, "PANIC_S", 30.0)
    monkeypatch.setattr(machine, "_pack", lambda path, steps: path.write_bytes(b""))
    monkeypatch.setattr("tests.vm.root_disk.get", lambda: tmp_path)
    monkeypatch.setattr("tests.vm.image_disk.get", lambda: tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    return machine.run([machine.Step("modules", "true", 1)], work, 60)


def test_a_machine_that_says_nothing_is_asked_where_it_stands_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = machine_that(
        tmp_path,
        monkeypatch,
        """
print("modules ...", file=console)
print("modules: 10 s, tests/it.py::test_it", file=console, flush=True)
print(json.dumps({"QMP": {"version": 7}}))
for line in sys.stdin:
    question = json.loads(line)
    if question["execute"] == "human-monitor-command":
        print(json.dumps({"return": "CPU#0\\r\\nRAX=5\\r\\nRIP=ffffffffbc617a0b HLT=1\\r\\n"}), flush=True)
    elif question["execute"] == "inject-nmi":
        print("Kernel panic: in spin_lock", file=console)
        print("[ 12.1] NMI backtrace for cpu 0", file=console)
        print("[ 12.1]  ? not_this_one+0x1/0x2", file=console)
        print("[ 12.1] RIP: 0010:native_safe_halt+0xb/0x10", file=console)
        print("[ 12.1]  default_idle.cold+0x38/0xf0", file=console)
        print("[ 12.1] NMI backtrace for cpu 1 skipped: idling", file=console, flush=True)
        break
""",
    )
    assert outcome.hung and not outcome.finished
    before, _, after = outcome.console.partition("Kernel panic: in spin_lock")
    assert "modules ..." in before
    assert "RIP=ffffffffbc617a0b HLT=1" in after and "its job said nothing for" in after
    assert "RAX" not in after and "QMP" not in after
    assert outcome.stood() == (
        "modules: 10 s, tests/it.py::test_it; cpu 0 native_safe_halt default_idle.cold cpu 1 "
        "CPU#0 RIP=ffffffffbc617a0b HLT=1"
    )


def test_a_machine_whose_kernel_says_that_it_is_stuck_has_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = machine_that(
        tmp_path,
        monkeypatch,
        """
import threading
def stuck():
    while True:
        print("[  180.956627] watchdog: BUG: soft lockup - CPU#0 stuck for 48s! [exe:2933]", file=console, flush=True)
        time.sleep(0.05)
print("kernel: 10 s, tests/it.py::test_it", file=console, flush=True)
threading.Thread(target=stuck, daemon=True).start()
sys.stdin.readline()
""",
    )
    assert outcome.hung
    assert outcome.stood().startswith("kernel: 10 s, tests/it.py::test_it")


def test_a_machine_that_speaks_now_and_then_has_not_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = machine_that(
        tmp_path,
        monkeypatch,
        """
for second in range(10):
    time.sleep(0.5)
    print(f"kernel: {second} s", file=console, flush=True)
""",
    )
    assert not outcome.hung
    assert "kernel: 9 s" in outcome.console


def test_a_machine_that_hung_and_takes_no_question_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = machine_that(tmp_path, monkeypatch, "import os\nos.close(0)\ntime.sleep(60)\n")
    assert outcome.hung
    assert outcome.console.startswith("ended: it hung")
