"""Sweeps on the workers of a Dask cluster: a real scheduler, real worker processes, testbeds of fakes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster, Security

from containernet_env.base import cache
from containernet_env.base.errors import Interrupted, MissingRequirementError, RunError, UsageError
from containernet_env.base.stop import Stop
from containernet_env.results.checksums import check
from containernet_env.setup import binaries
from containernet_env.sweep import at_worker, serving, workers
from containernet_env.sweep.cluster import Scheduler, scheduler_at
from containernet_env.sweep.design import design
from containernet_env.sweep.journal import Journal
from containernet_env.sweep.runner import Counts, Request, Sweep, Until
from containernet_env.sweep.serving import FACTS
from containernet_env.sweep.workers import Workers
from tests.unit import fake_worker
from tests.unit.run_fakes import CONFIG, rows
from tests.unit.sweep_fakes import Notes, lines, measured
from tests.unit.tls_files import certificates

ROOT = Path(__file__).resolve().parents[2]
AXES = ("link_delay=1ms,3ms,5ms", "clients=5,10,20")
CELLS = 9
DEADLINE_S = 60.0


def wait_for(what: Callable[[], Any]) -> Any:
    """Poll until something is there."""
    until = time.monotonic() + DEADLINE_S
    while not (found := what()):
        assert time.monotonic() < until, "nothing came of it"
        time.sleep(0.02)
    return found


# Workers are forked by a server that has imported everything: that takes a program a second.
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["pytest", "distributed", "containernet_env.sweep.at_worker", "tests.unit.fake_worker"])


class Machine:
    """A worker process with a folder of its own, which has what a machine has once."""

    def __init__(self, folder: Path, address: str, *more: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        (folder / "log").touch()
        self.process = _FORKED.Process(target=fake_worker.main, args=(address, folder, *more))
        self.process.start()

    def status(self) -> int | None:
        """How it ended, within the deadline; negative by a signal."""
        self.process.join(DEADLINE_S)
        return self.process.exitcode

    def is_ready(self) -> bool:
        """Whether the scheduler has it."""
        assert self.process.is_alive(), self.said()
        return "measures for" in self.said()

    def said(self) -> str:
        """What it printed."""
        return (self.folder / "log").read_text()

    def begun(self, number: int) -> bool:
        """Whether its benchmark of that number has begun."""
        return any(self.folder.glob(f"begun-{self.process.pid}-{number}"))


@pytest.fixture
def scheduler(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    security = getattr(request, "param", None)
    kind = "tcp" if security is None else "tls"
    with LocalCluster(
        n_workers=0,
        processes=False,
        host="127.0.0.1",
        protocol=kind,
        dashboard_address="127.0.0.1:0",
        security=security,
    ) as cluster:
        yield cluster


@contextmanager
def machines(*made: Machine) -> Iterator[None]:
    try:
        for machine in made:
            wait_for(machine.is_ready)
        yield
    finally:
        for machine in made:
            machine.process.kill()
            machine.process.join()


def sweep_on(out: Path, at: Scheduler, notes: Notes, *axes: str, **request: Any) -> Sweep:
    made = design(CONFIG, axes or AXES, quick=True, only=["write-leader-50x*-4B-64B"], seed=5)
    return Sweep(made, out, Request(**request), Workers(at, made, notes.note))


def at(cluster: LocalCluster) -> Scheduler:
    return scheduler_at(cluster.scheduler_address, None)


def directories(out: Path) -> dict[str, Path]:
    return {path.name: path for path in out.with_suffix(".runs").iterdir()}


def test_one_of_two_workers_is_killed_and_each_cell_is_measured_once(scheduler: LocalCluster, tmp_path: Path) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    address = scheduler.scheduler_address
    a, b = (Machine(tmp_path / name, address) for name in ("node1", "node2"))
    with machines(a, b):
        (a.folder / "hold").touch()

        def kill() -> None:
            wait_for(lambda: a.begun(2))
            a.process.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        counts = sweep_on(out, at(scheduler), notes, repeat=2).carry_out(notes, Stop())
        killer.join()
        (b.folder / "hold").touch()  # nothing is left that it would be held up in
        assert sweep_on(out, at(scheduler), notes, repeat=2).carry_out(notes, Stop()) == counts
    assert counts == Counts(2 * CELLS, 0, 0)
    assert len(measured(out)) == 2 * CELLS and set(measured(out).values()) == {1}
    found = Counter(row["Machine"] for row in rows(out))
    assert found == {"node1": 1, "node2": 2 * CELLS - 1}
    assert {row["Valid"] for row in rows(out)} == {"yes"} and not any("torn" in note for note in notes.notes)
    assert any(note.startswith("node1/") and "was lost" in note for note in notes.notes), notes.notes
    begun = lines(out, "run")
    assert len({run["run"] for run in begun}) == len(begun) == 7
    assert sorted(notes.ended) == sorted({(cell, run["repetition"]) for run in begun for cell in run["cells"]})
    kept = directories(out)
    of_b = {row["RunId"] for row in rows(out) if row["Machine"] == "node2"}
    assert kept.keys() == of_b and len(of_b) == 6
    for path in kept.values():
        checked = check(path)
        assert checked is not None and checked.files > 3 and not checked.changed


def test_each_machine_measures_whole_blocks(scheduler: LocalCluster, tmp_path: Path) -> None:
    """A machine that is slower than another one is then slower in all cells alike."""
    out, notes = tmp_path / "out.csv", Notes()
    with machines(*(Machine(tmp_path / name, scheduler.scheduler_address) for name in ("node1", "node2"))):
        assert sweep_on(out, at(scheduler), notes, repeat=2).carry_out(notes, Stop()) == Counts(2 * CELLS, 0, 0)
    found = {(row["Machine"], row["Repetition"]) for row in rows(out)[:6]}
    assert found == {("node1", "1"), ("node2", "2")} or found == {("node1", "2"), ("node2", "1")}


def test_ctrl_c_ends_what_runs_on_workers_and_the_same_command_goes_on(
    scheduler: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes, stop = tmp_path / "out.csv", Notes(), Stop()
    a = Machine(tmp_path / "node1", scheduler.scheduler_address)
    with machines(a):
        (a.folder / "hold").touch()

        def interrupt() -> None:
            wait_for(lambda: a.begun(2))
            stop.request(signal.SIGINT)

        asking = threading.Thread(target=interrupt)
        asking.start()
        with pytest.raises(Interrupted):
            sweep_on(out, at(scheduler), notes).carry_out(notes, stop)
        asking.join()
        (a.folder / "hold").unlink()
        assert len(rows(out)) == 1
        (directory,) = directories(out).values()
        assert check(directory) is not None
        assert sweep_on(out, at(scheduler), notes).carry_out(notes, Stop()) == Counts(CELLS, 0, 0)
    assert set(measured(out).values()) == {1} and len(measured(out)) == CELLS


def test_a_worker_that_is_ended_gives_back_what_it_has(scheduler: LocalCluster, tmp_path: Path) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    a, b = (Machine(tmp_path / name, scheduler.scheduler_address) for name in ("node1", "node2"))
    with machines(a, b):
        (a.folder / "hold").touch()

        def end() -> None:
            wait_for(lambda: a.begun(2))
            a.process.terminate()

        asking = threading.Thread(target=end)
        asking.start()
        assert sweep_on(out, at(scheduler), notes).carry_out(notes, Stop()) == Counts(CELLS, 0, 0)
        asking.join()
        assert a.status() == 128 + signal.SIGTERM, a.said()
    assert "Traceback" not in a.said() and "taken down first" in a.said()
    assert set(measured(out).values()) == {1} and len(measured(out)) == CELLS
    for path in directories(out).values():
        checked = check(path)
        assert checked is not None and not checked.changed


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_sweep_that_is_ended_or_killed_leaves_no_cell_running(
    signum: int, status: int, scheduler: LocalCluster, tmp_path: Path
) -> None:
    out, address = tmp_path / "out.csv", scheduler.scheduler_address
    words = [str(CONFIG), str(out), "--quick", "--only", "write-leader-50x*-4B-64B", "--dask", address, "--seed", "5"]
    sets = [word for axis in AXES for word in ("--set", axis)]
    argv = [sys.executable, "-m", "containernet_env", "sweep", *words, *sets]
    a = Machine(tmp_path / "node1", address)
    with machines(a):
        (a.folder / "hold").touch()
        with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as ended:
            wait_for(lambda: a.begun(2))
            events = next((a.folder / at_worker.FOLDER / "out.runs").glob("*/events.jsonl"))
            wait_for(lambda: out.exists() and len(rows(out)) == 1)  # what comes later, a kill may lose
            ended.send_signal(signum)
            wait_for(lambda: "run_ended" in events.read_text())  # while the benchmark is held up
            assert "run_interrupted" in events.read_text()
            (a.folder / "hold").unlink()
            assert ended.stdout is not None
            told = ended.stdout.read().decode()
        assert ended.returncode == status and "Traceback" not in told, told
        assert len(rows(out)) == 1
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and f"{CELLS} measurements; rows in" in done.stdout
    assert len(measured(out)) == CELLS and set(measured(out).values()) == {1}


def test_a_journal_belongs_to_one_sweep_at_a_time(tmp_path: Path) -> None:
    """No lock of a machine keeps two sweeps apart that measure elsewhere."""
    first = Journal(tmp_path / "out.sweep.jsonl")
    with pytest.raises(UsageError, match=r"out\.sweep\.jsonl is that of a sweep that is on"):
        Journal(tmp_path / "out.sweep.jsonl")
    first.close()
    Journal(tmp_path / "out.sweep.jsonl").close()


def test_a_worker_that_comes_later_measures_too(scheduler: LocalCluster, tmp_path: Path) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    a = Machine(tmp_path / "node1", scheduler.scheduler_address)
    with machines(a):
        (a.folder / "hold").touch()
        later: list[Machine] = []

        def come() -> None:
            wait_for(lambda: a.begun(2))
            later.append(Machine(tmp_path / "node2", scheduler.scheduler_address))
            wait_for(lambda: later[0].begun(6))
            (a.folder / "hold").unlink()

        coming = threading.Thread(target=come)
        coming.start()
        try:
            counts = sweep_on(out, at(scheduler), notes).carry_out(notes, Stop())
        finally:
            coming.join()
            with machines(*later):
                pass
    assert counts == Counts(CELLS, 0, 0) and set(measured(out).values()) == {1}
    assert Counter(row["Machine"] for row in rows(out)) == {"node1": 3, "node2": 6}
    assert any(note.startswith("node2/") and note.endswith("measures, too") for note in notes.notes)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((("manifest.json", b"{}"), ("checksums.sha256", b"0" * 64 + b"  manifest.json\n")), "manifest.json (changed)"),
        ((("manifest.json", b"{}"),), "has no checksums"),
        ((("../../out.csv", b"other"),), "was left out"),
    ],
)
def test_a_run_directory_that_is_not_what_was_sent_is_told(
    files: tuple[tuple[str, bytes], ...], words: str, tmp_path: Path
) -> None:
    found = at_worker.Directory("20261122T000000Z-abcdef", files).write(tmp_path / "a" / "out.csv", "abcdef")
    assert found is not None and words in found
    assert not list(tmp_path.glob("**/out.csv"))


@pytest.mark.parametrize("name", ["..", ".", "", "a/..", "20261122T000000Z-other0", "20261122T000000Z-abcdef\0"])
def test_a_run_directory_goes_nowhere_else(name: str, tmp_path: Path) -> None:
    out = tmp_path / "a" / "out.csv"
    out.parent.mkdir()
    out.write_text("rows")
    found = at_worker.Directory(name, (("out.csv", b"other"),)).write(out, "abcdef")
    assert found is not None and "was left out" in found
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [out] and out.read_text() == "rows"


def test_a_lost_scheduler_ends_the_sweep_with_what_to_do(tmp_path: Path) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    argv = [
        sys.executable,
        "-m",
        "dask",
        "scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--dashboard-address",
        "127.0.0.1:0",
    ]
    file = tmp_path / "scheduler.json"
    with subprocess.Popen(
        [*argv, "--scheduler-file", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            address = json.loads(wait_for(lambda: file.exists() and file.read_text()))["address"]
            a = Machine(tmp_path / "node1", address)
            with machines(a):
                (a.folder / "hold").touch()

                def kill() -> None:
                    wait_for(lambda: a.begun(2))
                    process.kill()

                killer = threading.Thread(target=kill)
                killer.start()
                with pytest.raises(RunError, match=r"scheduler at tcp://127.* was lost during the sweep.*\n.*goes on"):
                    sweep_on(out, scheduler_at(address, None), notes).carry_out(notes, Stop())
                killer.join()
                assert a.status() == 1
        finally:
            process.kill()
    assert len(rows(out)) >= 1 and set(measured(out).values()) == {1}
    assert "Error: the scheduler at tcp://127" in a.said() and "Traceback" not in a.said()


def test_versions_are_compared_before_the_first_cell(
    scheduler: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes, own = tmp_path / "out.csv", Notes(), at_worker.facts()
    monkeypatch.setattr(workers, "facts", lambda: own | {"commit": "0123456789ab", "etcd": "3.8.0"})
    words = f"node1/.* has commit {own['commit']}, here 0123456789ab, "
    with (
        machines(Machine(tmp_path / "node1", scheduler.scheduler_address)),
        pytest.raises(MissingRequirementError, match=words),
    ):
        sweep_on(out, at(scheduler), notes).carry_out(notes, Stop())
    assert not out.exists()


def compared(own: str, *theirs: str) -> None:
    """Compare workers that differ in their Go from this machine and from each other."""
    made = Workers(scheduler_at("127.0.0.1:1", None), design(CONFIG, AXES, quick=True), lambda text: None)
    vars(made)["_own"] |= {"Go": own}
    found = {str(n): {"name": f"node{n}", FACTS: at_worker.facts() | {"Go": go}} for n, go in enumerate(theirs, 1)}
    vars(made)["_there"] = lambda: found
    made._compare()


def test_workers_that_build_with_another_go_are_refused() -> None:
    assert at_worker.facts()["Go"] == (binaries.go_version() or "unknown")
    compared("go1.26.8", "go1.26.8", "go1.26.8")
    with pytest.raises(MissingRequirementError, match=r"node2 has Go go1\.26\.6, here go1\.26\.8"):
        compared("go1.26.8", "go1.26.8", "go1.26.6")


def test_a_machine_without_go_sends_work_to_workers_with_the_same_one() -> None:
    compared("unknown", "go1.26.8", "go1.26.8")
    with pytest.raises(MissingRequirementError, match=r"node2 has Go go1\.26\.6, here go1\.26\.8"):
        compared("unknown", "go1.26.8", "go1.26.6")


def test_a_worker_of_something_else_is_refused_by_name(scheduler: LocalCluster, tmp_path: Path) -> None:
    scheduler.scale(1)
    scheduler.wait_for_workers(1)
    with pytest.raises(MissingRequirementError, match="is none that `containernet-env worker` started"):
        sweep_on(tmp_path / "out.csv", at(scheduler), Notes()).carry_out(Notes(), Stop())


def test_without_workers_it_says_how_to_start_one(scheduler: LocalCluster, tmp_path: Path) -> None:
    with pytest.raises(MissingRequirementError, match=r"no worker is at .*\n.*containernet-env worker tcp://127"):
        sweep_on(tmp_path / "out.csv", at(scheduler), Notes()).carry_out(Notes(), Stop())
    assert list(tmp_path.iterdir()) == []


def test_where_no_scheduler_is_neither_sweep_nor_worker_has_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match=r"no scheduler answers at tcp://127\.0\.0\.1:1: .*\n  Start one"):
        sweep_on(tmp_path / "out.csv", scheduler_at("127.0.0.1:1", None), Notes()).carry_out(Notes(), Stop())
    machine = Machine(tmp_path / "node1", "127.0.0.1:1")
    assert machine.status() == 1
    assert machine.said().startswith("Error: no scheduler answers at tcp://127.0.0.1:1") and os.listdir(tmp_path)


def test_by_tls_everyone_shows_a_certificate(tmp_path: Path) -> None:
    ours = certificates(tmp_path / "ours", ("scheduler", "worker", "sweep"))
    theirs = certificates(tmp_path / "theirs", ("sweep", "worker"))
    security = Security(
        require_encryption=True,
        tls_ca_file=str(ours["scheduler"].ca_file),
        tls_scheduler_cert=str(ours["scheduler"].cert),
        tls_scheduler_key=str(ours["scheduler"].key),
        tls_client_cert=str(ours["scheduler"].cert),
        tls_client_key=str(ours["scheduler"].key),
    )
    out, notes = tmp_path / "out.csv", Notes()
    with LocalCluster(
        n_workers=0,
        processes=False,
        host="tls://127.0.0.1",
        protocol="tls",
        dashboard_address="127.0.0.1:0",
        security=security,
    ) as cluster:
        address, mine = cluster.scheduler_address, ours["worker"]
        flags = ("--tls-ca-file", str(mine.ca_file), "--tls-cert", str(mine.cert), "--tls-key", str(mine.key))
        with machines(Machine(tmp_path / "node1", address, *flags)):
            refused = sweep_on(out, scheduler_at(address, theirs["sweep"]), notes, "clients=5")
            with pytest.raises(RunError, match="no scheduler answers"):
                refused.carry_out(notes, Stop())
            allowed = sweep_on(out, scheduler_at(address, ours["sweep"]), notes, "clients=5")
            assert allowed.carry_out(notes, Stop()) == Counts(1, 0, 0)
        other = theirs["worker"]
        for number, (ca, shown) in enumerate(((other, other), (mine, other), (other, mine))):
            flags = ("--tls-ca-file", str(ca.ca_file), "--tls-cert", str(shown.cert), "--tls-key", str(shown.key))
            wrong = Machine(tmp_path / f"wrong{number}", address, *flags)
            assert wrong.status() == 1
            told = wrong.said()
            assert told.startswith(f"Error: no scheduler answers at {address}: ") and "Traceback" not in told, told
            assert "certificates of the same authority" in told


def test_cells_are_repeated_on_several_machines_until_their_median_is_known(
    scheduler: LocalCluster, tmp_path: Path
) -> None:
    out, notes, until = tmp_path / "out.csv", Notes(), Until(0.05)
    with machines(*(Machine(tmp_path / name, scheduler.scheduler_address) for name in ("node1", "node2"))):
        for _ in range(2):  # and no more, once it is
            found = sweep_on(out, at(scheduler), notes, "clients=5,10", until=until).carry_out(notes, Stop())
            assert found == Counts(6 * 2, 0, 0, 0)
    assert set(measured(out).values()) == {1} and len(measured(out)) == 6 * 2
    assert {row["Machine"] for row in rows(out)} == {"node1", "node2"}


def test_files_of_killed_workers_go_with_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "own", lambda: tmp_path / "cache")
    home = tmp_path / "cache" / "workers"
    dead = home / f"{uuid.UUID(int=1)}_1_1"
    (dead / "dask-scratch-space").mkdir(parents=True)
    (home / "somebody's").mkdir()
    with serving._scratch() as folder:
        assert sorted(home.iterdir()) == sorted([folder, home / "somebody's"])
        (folder / "file").touch()
    assert list(home.iterdir()) == [home / "somebody's"]
