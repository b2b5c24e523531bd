"""Sweeps with a real Dask scheduler and real worker processes on loopback; testbeds are fakes.

What is decided where something is lost, ``tests/unit/test_sweep_workers.py`` has in simulated time.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from distributed import LocalCluster, Security

from containernet_env.base.errors import RunError
from containernet_env.base.work import Stop
from containernet_env.cli import sweep as certs_command
from containernet_env.results.files import check
from containernet_env.runs.sweep import worker, workers
from containernet_env.runs.sweep.design import design
from containernet_env.runs.sweep.runner import Counts, Request, Sweep
from containernet_env.runs.sweep.worker import Scheduler, TlsFiles, scheduler_at
from containernet_env.runs.sweep.workers import Workers
from tests.deadline import HANG_S, eventually
from tests.local import fake_worker
from tests.unit.fakes import CONFIG, rows
from tests.unit.sweep_fakes import Notes, certificates, lines, measured

ROOT = Path(__file__).resolve().parents[2]
AXES = ("link_delay=1ms,3ms,5ms", "clients=5,10,20")
CELLS = 9

# Workers are forked by a server that has imported everything: that takes a program a second.
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(
    ["pytest", "distributed", "containernet_env.runs.sweep.worker", "tests.local.fake_worker"]
)


class Machine:
    """A worker process with a folder of its own, which has what a machine has once."""

    def __init__(self, folder: Path, at: Scheduler, *more: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        (folder / "log").touch()
        self.process = _FORKED.Process(
            target=fake_worker.main, args=(at.address, folder, *(more or flags(at.tls, at.tls)))
        )
        self.process.start()

    def status(self) -> int | None:
        """How it ended; negative by a signal."""
        self.process.join(HANG_S)
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


@contextmanager
def machines(*made: Machine, held: Machine | None = None) -> Iterator[None]:
    """They are there; benchmarks of ``held`` do not end before they have to, but the first one."""
    try:
        for machine in made:
            eventually(machine.is_ready, "the scheduler has the worker")
        if held is not None:
            (held.folder / "hold").touch()
        yield
    finally:
        for machine in made:
            machine.process.kill()
            machine.process.join()


QUIET: dict[str, Any] = {"n_workers": 0, "processes": False, "dashboard_address": "127.0.0.1:0"}


def flags(ca: TlsFiles, shown: TlsFiles) -> tuple[str, ...]:
    return ("--tls-ca-file", str(ca.ca_file), "--tls-cert", str(shown.cert), "--tls-key", str(shown.key))


@contextmanager
def serving_by(files: TlsFiles) -> Iterator[Scheduler]:
    """A scheduler that shows this certificate."""
    shown = {f"tls_{who}_{what}": str(path) for who in ("scheduler", "client")
             for what, path in (("cert", files.cert), ("key", files.key))}  # fmt: skip
    security = Security(require_encryption=True, tls_ca_file=str(files.ca_file), **shown)
    with LocalCluster(host="tls://127.0.0.1", protocol="tls", security=security, **QUIET) as local:
        yield scheduler_at(local.scheduler_address, *files)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """What the command makes."""
    folder = tmp_path_factory.mktemp("certificates") / "dask"
    CliRunner().invoke(certs_command.certs_command, [str(folder)], standalone_mode=False)
    return TlsFiles(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")


@pytest.fixture
def scheduler(ours: TlsFiles) -> Iterator[Scheduler]:
    with serving_by(ours) as found:
        yield found


def sweep_on(out: Path, at: Scheduler, notes: Notes, *axes: str, **request: Any) -> Sweep:
    made = design(CONFIG, axes or AXES, quick=True, only=["write-leader-50x*-4B-64B"], seed=5)
    return Sweep(made, out, Request(**request), Workers(at, made, notes.note))


@contextmanager
def struck(machine: Machine, strike: Callable[[], object]) -> Iterator[None]:
    """``strike`` when the second benchmark of a machine has begun."""

    def wait() -> None:
        eventually(lambda: machine.begun(2), "the second benchmark begins")
        strike()

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize(
    ("signum", "status", "words"), [(signal.SIGKILL, -9, "was lost"), (signal.SIGTERM, 143, "was ended")]
)
def test_one_of_two_workers_ends_and_each_cell_is_measured_once(
    signum: int, status: int, words: str, scheduler: Scheduler, tmp_path: Path
) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    a, b = (Machine(tmp_path / name, scheduler) for name in ("node1", "node2"))

    def end() -> None:
        # What comes later, a kill may lose.
        eventually(lambda: out.exists() and any(row["Machine"] == "node1" for row in rows(out)), "its first row comes")
        os.kill(a.process.ident or 0, signum)

    with machines(a, b, held=a), struck(a, end):
        counts = sweep_on(out, scheduler, notes, repeat=2).carry_out(notes, Stop())
        assert a.status() == status, a.said()
    assert counts == Counts(2 * CELLS, 0, 0)
    assert len(measured(out)) == 2 * CELLS and set(measured(out).values()) == {1}
    assert Counter(row["Machine"] for row in rows(out)) == {"node1": 1, "node2": 2 * CELLS - 1}
    assert any(note.startswith("node1/") and words in note for note in notes.notes), notes.notes
    assert "Traceback" not in a.said() and ("taken down first" in a.said()) is (signum == signal.SIGTERM)
    assert len(lines(out, "run")) == 7
    for path in out.with_suffix(".runs").iterdir():
        checked = check(path)
        assert checked is not None and checked.files > 3 and not checked.changed


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_ended_sweep_leaves_no_cell_running(signum: int, status: int, scheduler: Scheduler, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    words = [str(CONFIG), str(out), "--quick", "--only", "write-leader-50x*-4B-64B", "--seed", "5"]
    words += ["--dask", scheduler.address, *flags(scheduler.tls, scheduler.tls)]
    sets = [word for axis in AXES for word in ("--set", axis)]
    argv = [sys.executable, "-m", "containernet_env", "sweep", *words, *sets]
    a = Machine(tmp_path / "node1", scheduler)
    with machines(a, held=a):
        # A shell has what runs in its background ignore SIGINT.
        heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "preexec_fn": heard}
        with subprocess.Popen(argv, cwd=ROOT, **pipes) as ended, ExitStack() as stack:
            stack.callback(ended.kill)
            eventually(lambda: a.begun(2), "the second benchmark begins")
            events = next((a.folder / worker.FOLDER / "out.runs").glob("*/events.jsonl"))
            # What comes later, a kill may lose.
            eventually(lambda: out.exists() and len(rows(out)) == 1, "the first row comes")
            ended.send_signal(signum)
            eventually(lambda: "run_ended" in events.read_text(), "the run ends while the benchmark is held up")
            assert "run_interrupted" in events.read_text()
            (a.folder / "hold").unlink()
            assert ended.stdout is not None
            told = ended.stdout.read().decode()
        assert ended.returncode == status and "Traceback" not in told, told
        assert len(rows(out)) == 1
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and f"{CELLS} measurements: {CELLS} valid; rows in" in done.stdout
    assert len(measured(out)) == CELLS and set(measured(out).values()) == {1}


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_scheduler_ends_the_sweep_with_what_to_do(
    signum: signal.Signals, tmp_path: Path, ours: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is stopped answers nothing, but the connections stand."""
    out, notes, file = tmp_path / "out.csv", Notes(), tmp_path / "scheduler.json"
    argv = [sys.executable, "-m", "dask", "scheduler", "--protocol", "tls", "--host", "127.0.0.1", "--port", "0"]
    more = ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file), *flags(ours, ours)]
    with subprocess.Popen([*argv, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            said = eventually(lambda: file.exists() and file.read_text(), "the scheduler listens")
            at = scheduler_at(json.loads(str(said))["address"], *ours)
            a = Machine(tmp_path / "node1", at)
            rescue = threading.Timer(HANG_S, process.kill)

            def strike() -> None:
                # What comes later may be lost.
                eventually(lambda: out.exists() and len(rows(out)) == 1, "the first row comes")
                monkeypatch.setattr(workers, "_ANSWER_S", 1.0)  # from here on no answer has to come
                process.send_signal(signum)

            with machines(a, held=a), struck(a, strike):
                rescue.start()
                with pytest.raises(RunError, match=r"scheduler at tls://127.* was lost during the sweep.*\n.*goes on"):
                    sweep_on(out, at, notes).carry_out(notes, Stop())
                assert rescue.is_alive(), "it waited until the scheduler was killed"
                rescue.cancel()
                if signum == signal.SIGKILL:
                    assert a.status() == 1
                    assert "Error: the scheduler at tls://127" in a.said() and "Traceback" not in a.said()
        finally:
            process.kill()
    assert len(rows(out)) == 1


def test_by_tls_everyone_shows_a_certificate(tmp_path: Path) -> None:
    """Every user of the machine reaches the scheduler and the worker; none of another authority is answered."""
    ours = certificates(tmp_path / "ours", ("scheduler", "worker", "sweep"))
    theirs = certificates(tmp_path / "theirs", ("sweep", "worker"))
    out, notes = tmp_path / "out.csv", Notes()
    mine, other = ours["worker"], theirs["worker"]
    with serving_by(ours["scheduler"]) as at:
        with machines(Machine(tmp_path / "node1", at, *flags(mine, mine))):
            refused = sweep_on(out, replace(at, tls=theirs["sweep"]), notes, "clients=5")
            with pytest.raises(RunError, match="no scheduler answers"):
                refused.carry_out(notes, Stop())
            nowhere = sweep_on(out, replace(at, address="tls://127.0.0.1:1"), notes, "clients=5")
            with pytest.raises(RunError, match=r"no scheduler answers at tls://127\.0\.0\.1:1: .*\n  Start one"):
                nowhere.carry_out(notes, Stop())
            allowed = sweep_on(out, replace(at, tls=ours["sweep"]), notes, "clients=5")
            assert allowed.carry_out(notes, Stop()) == Counts(1, 0, 0)
        for number, pair in enumerate(((other, other), (mine, other), (other, mine))):
            wrong = Machine(tmp_path / f"wrong{number}", at, *flags(*pair))
            assert wrong.status() == 1
            told = wrong.said()
            assert told.startswith(f"Error: no scheduler answers at {at.address}: ") and "Traceback" not in told, told
            assert "certificates of the same authority" in told
