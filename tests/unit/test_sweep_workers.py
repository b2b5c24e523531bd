"""Sweeps on the workers of a simulated Dask cluster: who measures what, and what is kept where something is lost; to
which schedulers sweeps and workers go, since who reaches one has workers do anything as root.

``tests/local/test_sweep_workers.py`` has what ends workers, a sweep or the scheduler with real processes.
"""

from __future__ import annotations

import os
import platform
import signal
import stat
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from bench.scale.cli import simulate as simulate_scale
from bench.scale.simulate import Failures
from containernet_env.base import assets, clock
from containernet_env.base.errors import Interrupted, MissingRequirementError, RunError, UsageError
from containernet_env.base.work import Stop
from containernet_env.cli.sweep import certs_command, sweep_command, worker_command
from containernet_env.results.files import check
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.runs.load import Answer
from containernet_env.runs.measure import require_root
from containernet_env.runs.sweep import worker, workers
from containernet_env.runs.sweep.design import Bed, design
from containernet_env.runs.sweep.jobs import Course, Job, Roster
from containernet_env.runs.sweep.ledger import Journal
from containernet_env.runs.sweep.runner import Counts, Request, Sweep
from containernet_env.runs.sweep.worker import FACTS, Scheduler, TlsFiles, scheduler_at
from containernet_env.runs.sweep.workers import Workers
from containernet_env.setup import builds
from tests.simulated_time import World, simulated
from tests.unit.fakes import CONFIG, GOOD, FakeTestbed, on_fakes, raising, rows
from tests.unit.report_rows import without
from tests.unit.sweep_fakes import Notes, certificates, full_disk, lines, measured

# --- a Dask cluster: a scheduler, and workers that are threads of the simulation and measure on fakes -----------------
#
# The product's own ``run_task`` runs on each worker as on a machine of its own. A benchmark takes ``CELL_S`` there.

ADDRESS = "tls://127.0.0.1:8786"
FILES = TlsFiles(*[Path("unread.pem")] * 3)
CELL_S = 1.0
AXES = ("link_delay=1ms,3ms,5ms", "clients=5,10,20")
CELLS = 9
ALL = Counts(CELLS, 0, 0)


class _Killed(BaseException):
    """What runs on a machine that is no more."""


class Task(Future[Any]):
    """A future of Dask's, and its side at the worker."""

    def __init__(self, function: Callable[[Any], Any], argument: Any, key: str) -> None:
        super().__init__()
        self.call, self.key = lambda: function(argument), key


class Machine:
    """A worker on a machine of its own; ``hold``: benchmarks after the first one do not end before they have to."""

    def __init__(self, dask: Dask, name: str) -> None:
        self.dask, self.name, self.folder = dask, name, dask.folder / name
        self.folder.mkdir()
        self.address = f"tcp://{name}:1"
        self.facts: Any = dict(dask.facts)
        self.hold = self.is_killed = False
        self.begun = 0
        self.todo: deque[Task] = deque()
        self.running: Task | None = None
        dask.machines[self.address] = self
        clock.Thread(target=self._work, name=name, daemon=True).start()

    def info(self) -> dict[str, Any]:
        """What the scheduler knows."""
        return {"name": f"{self.name}/1", FACTS: self.facts, "status": "running"}

    def kill(self) -> None:
        """Its process is gone, and the scheduler has noticed; what it had to do stays undone."""
        self.is_killed = True
        self.dask.machines.pop(self.address, None)

    def _work(self) -> None:
        self.dask.by_thread[threading.get_ident()] = self
        while not self.is_killed:
            self.dask.world.wait(lambda: bool(self.todo) or self.is_killed)
            if self.is_killed:
                return
            self.running = task = self.todo.popleft()
            if not task.done():
                try:
                    finish = partial(task.set_result, task.call())
                except _Killed:
                    return
                except Exception as error:  # noqa: BLE001 - as Dask hands them on
                    finish = partial(task.set_exception, error)
                with suppress(InvalidStateError):  # it was cancelled meanwhile
                    finish()
            self.running = None

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        """A benchmark."""
        self.begun += 1
        end_s = clock.monotonic() + CELL_S
        while clock.monotonic() < end_s or (self.hold and self.begun > 1):
            if self.is_killed:
                raise _Killed
            if self.running is not None:
                worker.RUNNING.stops[self.running.key].check()
            clock.sleep(0.5)
        return GOOD

    def tell(self, topic: str, message: Any) -> None:
        """``Worker.log_event``."""
        if self.is_killed:
            raise _Killed
        for client in self.dask.clients:
            if client.status == "running" and topic in client.topics:
                client.topics[topic]((0.0, message))


class Dask:
    """The scheduler. ``clients`` are those of sweeps."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder, self.facts = world, folder, worker.facts()
        self.machines: dict[str, Machine] = {}
        self.by_thread: dict[int, Machine] = {}
        self.clients: list[Client] = []

    @property
    def here(self) -> Machine:
        """The machine of the calling thread."""
        return self.by_thread[threading.get_ident()]

    async def identity(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {address: machine.info() for address, machine in self.machines.items()}}


class Client:
    """``distributed.Client``, as far as a sweep uses it."""

    def __init__(self, dask: Dask) -> None:
        self.scheduler, self.status, self.topics = dask, "running", dict[str, Any]()
        dask.clients.append(self)

    def sync(self, function: Callable[..., Coroutine[Any, Any, Any]], callback_timeout: float, **named: Any) -> Any:
        return drive(function(**named))

    def subscribe_topic(self, topic: str, call: Callable[[Any], object]) -> None:
        self.topics[topic] = call

    def submit(self, function: Any, argument: Any, key: str, workers: list[str], **_: Any) -> Task:
        task = Task(function, argument, key)
        if (machine := self.scheduler.machines.get(workers[0])) is not None:
            machine.todo.append(task)
        return task

    def run(self, function: Any, *of: Any, workers: list[str], **_: Any) -> None:
        drive(function(*of))

    def close(self, timeout: float) -> None:
        self.status = "closed"


def when(world: World, condition: Callable[[], bool], act: Callable[[], object]) -> None:
    """Have something happen as soon as it can, once ``condition`` holds."""

    def wait() -> None:
        world.wait(condition)
        act()

    clock.Thread(target=wait, name="when", daemon=True).start()


def drive(call: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    with pytest.raises(StopIteration) as end:
        call.send(None)
    return end.value.value


class Cluster:
    """Sweeps into one file on workers of these names, all of this process; ``notes`` has what they told."""

    def __init__(self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        monkeypatch.undo()  # what the seed before has patched
        folder = tmp_path / f"seed{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        self.out, self.notes, self.world = folder / "out.csv", Notes(), world
        self.dask = dask = Dask(world, folder)
        on_fakes(monkeypatch)
        plain = FakeTestbed.__init__

        def made(self: FakeTestbed, *arguments: Any, **named: Any) -> None:
            plain(self, *arguments, **named)
            self.server.behave = dask.here.answer

        monkeypatch.setattr(FakeTestbed, "__init__", made)
        monkeypatch.setattr(os, "fsync", lambda fd: None)
        monkeypatch.setattr(platform, "node", lambda: dask.here.name)
        monkeypatch.setattr(assets, "make", lambda: dask.here.folder)
        monkeypatch.setattr(worker, "RunLock", lambda wait: nullcontext())
        monkeypatch.setattr(worker, "RUNNING", worker.Running())
        monkeypatch.setattr(worker, "get_worker", lambda: SimpleNamespace(log_event=dask.here.tell))
        monkeypatch.setattr(workers, "facts", lambda: dict(dask.facts))
        monkeypatch.setattr(workers, "Client", lambda *_, **__: Client(dask))
        monkeypatch.setattr(Scheduler, "reach", lambda self: None)
        self.machines = [Machine(dask, name) for name in names]

    def hold(self, lose: Callable[[], object]) -> Machine:
        """The first machine begins a second benchmark that does not end, and then something happens to it."""
        first = self.machines[0]
        first.hold = True
        when(self.world, lambda: first.begun == 2, lose)
        return first

    def run(self, *axes: str, out: Path | None = None, stop: Stop | None = None, **request: Any) -> Counts:
        made = design(CONFIG, axes or AXES, quick=True, only=["write-leader-50x*-4B-64B"], seed=5)
        at = Workers(Scheduler(ADDRESS, FILES), made, self.notes.note)
        return Sweep(made, out or self.out, Request(**request), at).carry_out(self.notes, stop or Stop())

    def by_machine(self) -> dict[str, int]:
        """How many rows each machine has measured."""
        return dict(Counter(row["Machine"] for row in rows(self.out)))

    def assert_each_once(self, cells: int = CELLS) -> None:
        assert len(measured(self.out)) == cells and set(measured(self.out).values()) == {1}
        for path in self.out.with_suffix(".runs").glob("*"):
            checked = check(path)
            assert checked is not None and not checked.changed


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    """Makes the ``Cluster`` of the running simulation."""
    return lambda *names: Cluster(World.current, tmp_path, monkeypatch, *names)


New = Callable[..., Cluster]
Patch = pytest.MonkeyPatch


# --- who measures what ------------------------------------------------------------------------------------------------


@simulated()
def test_each_machine_measures_whole_blocks_and_no_path_of_its_own_comes_back(cluster: New) -> None:
    """A machine that is slower than another one is then slower in all cells alike."""
    on = cluster("node1", "node2")
    assert on.run(repeat=2) == Counts(2 * CELLS, 0, 0)
    blocks = {(row["Machine"], row["Repetition"]) for row in rows(on.out)[: CELLS + 3]}
    assert blocks == {("node1", "1"), ("node2", "2")}
    on.assert_each_once(2 * CELLS)
    left = [on.out, *(path for path in on.out.with_suffix(".runs").rglob("*") if path.is_file())]
    assert [path for path in left for machine in on.machines if os.fsencode(machine.folder) in path.read_bytes()] == []


@simulated()
def test_a_worker_that_comes_later_measures_too(cluster: New) -> None:
    on, later = cluster("node1"), list[Machine]()
    a = on.hold(lambda: later.append(Machine(on.dask, "node2")))
    when(on.world, lambda: bool(later) and later[0].begun == 6, lambda: setattr(a, "hold", False))
    assert on.run() == ALL
    assert on.by_machine() == {"node1": 3, "node2": 6}
    assert any(note.startswith("node2/") and note.endswith("measures, too") for note in on.notes.notes)
    on.assert_each_once()


# --- what is lost -----------------------------------------------------------------------------------------------------


@simulated(seeds=3)
def test_rows_that_came_before_their_worker_was_lost_are_kept(cluster: New, monkeypatch: Patch) -> None:
    """They were waiting in the sweep's queue when it found the worker gone; its run directory never comes."""
    on, there = cluster("node1"), workers.Workers._there
    a = on.machines[0]
    a.hold = True

    def look(self: workers.Workers) -> Any:
        if vars(self)["_measuring"] and a.address in on.dask.machines:
            on.world.wait(lambda: a.begun == 2)
            Machine(on.dask, "node2")
            a.kill()
        return there(self)

    monkeypatch.setattr(workers.Workers, "_there", look)
    for _ in range(2):
        assert on.run() == ALL
    assert on.by_machine() == {"node1": 1, "node2": CELLS - 1}
    on.assert_each_once()
    begun = lines(on.out, "run")
    assert sorted(on.notes.ended) == sorted({(cell, run["repetition"]) for run in begun for cell in run["cells"]})
    of_b = {row["RunId"] for row in rows(on.out) if row["Machine"] == "node2"}
    assert {path.name for path in on.out.with_suffix(".runs").iterdir()} == of_b and len(begun) == len(of_b) + 1


@simulated()
def test_a_sweep_that_has_lost_all_workers_waits_a_minute_for_another_one(cluster: New) -> None:
    on, lost_s = cluster("node1"), list[float]()
    on.hold(lambda: (on.machines[0].kill(), lost_s.append(clock.monotonic())))
    with pytest.raises(RunError, match=r"no worker is left at tls://.*the same command goes on"):
        on.run()
    assert 60 <= clock.monotonic() - lost_s[0] <= 64
    Machine(on.dask, "node2")
    assert on.run() == ALL
    on.assert_each_once()


@simulated()
def test_a_worker_that_ends_gets_no_more_cells_while_the_scheduler_still_lists_it(cluster: New) -> None:
    on = cluster("node1")
    on.hold(lambda: worker.RUNNING.end())
    with pytest.raises(RunError, match="no worker is left"):
        on.run()
    assert len(lines(on.out, "run")) == 1


@simulated()
def test_a_task_that_fails_by_a_lost_connection_does_not_end_the_course(cluster: New, monkeypatch: Patch) -> None:
    """An OSError of the worker's own was taken for one on the way to it, and waited for ever."""
    on = cluster("node1")
    monkeypatch.setattr(workers, "run_task", raising(ConnectionResetError("connection reset")))
    assert on.run("clients=5", tries=2) == Counts(0, 0, 1)
    assert any("connection reset" in note for note in on.notes.notes), on.notes.notes


@simulated(seeds=3)
def test_ctrl_c_does_not_wait_for_the_testbed_of_another_sweep(cluster: New) -> None:
    """A task that its worker had not begun was not asked to end, and then measured after all."""
    on, stop = cluster("node1"), Stop()
    (a,), second = on.machines, on.out.with_name("second.csv")
    a.hold = True
    measuring = clock.Thread(target=on.run)
    measuring.start()
    on.world.wait(lambda: a.begun == 2)
    when(on.world, lambda: bool(a.todo), lambda: stop.request(signal.SIGINT))
    with pytest.raises(Interrupted):
        on.run(out=second, stop=stop)
    a.hold = False
    measuring.join()
    on.assert_each_once()
    assert not second.exists() or not rows(second)


@simulated(seeds=2)
def test_rows_that_a_full_disk_refuses_are_printed_and_measured_again(cluster: New, monkeypatch: Patch) -> None:
    """Those that come while the sweep ends its workers, too."""
    on = cluster("node1", "node2")
    # The workers' own files are on other disks.
    full = full_disk(monkeypatch, lambda fd: os.path.samestat(os.fstat(fd), on.out.stat()) and len(rows(on.out)) >= 3)
    with full, pytest.raises(RowsNotWrittenError, match=r"No space left on device\n  Make room") as refused:
        on.run(repeat=2)
    assert len(rows(on.out)) == 3
    lost, printed = refused.value.rows, str(refused.value).splitlines()[-len(refused.value.rows) :]
    assert lost and [line.split(",")[0] for line in printed] == [row["TestType"] for row in lost]
    kept = measured(on.out) + Counter((row["ConfigHash"], row["ScenarioHash"], row["Repetition"]) for row in lost)
    assert set(kept.values()) == {1}
    assert on.run(repeat=2) == Counts(2 * CELLS, 0, 0)
    on.assert_each_once(2 * CELLS)


# --- who may measure --------------------------------------------------------------------------------------------------


GO, OTHER_GO = {"Go": "go1.26.8"}, {"Go": "go1.26.6"}
COMPARED: list[tuple[dict[str, str], list[dict[str, str] | None], str | None]] = [
    ({}, [{}], None),
    ({"commit": "0123456789ab"}, [{"commit": "x"}], r"node1/1 has commit x, here 0123456789ab"),
    (GO, [GO, GO], None),
    (GO, [GO, OTHER_GO], r"node2/1 has Go go1\.26\.6, here go1\.26\.8"),
    # A machine without Go builds nothing: its workers are to agree with each other.
    ({"Go": "unknown"}, [GO, GO], None),
    ({"Go": "unknown"}, [GO, OTHER_GO], r"node2/1 has Go go1\.26\.6, here go1\.26\.8"),
    ({}, [None], "is none that `containernet-env worker` started"),
    ({}, [], r"no worker is at .*\n.*containernet-env worker tls://127"),
]


@simulated()
def test_versions_are_compared_first(cluster: New) -> None:
    for own, theirs, refused in COMPARED:
        on = cluster(*(f"node{n}" for n in range(1, len(theirs) + 1)))
        assert on.dask.facts["Go"] == (builds.go_version() or "unknown")
        on.dask.facts |= own
        for machine, differing in zip(on.machines, theirs, strict=True):
            machine.facts = None if differing is None else machine.facts | differing
        with nullcontext() if refused is None else pytest.raises(MissingRequirementError, match=refused):
            assert on.run("clients=5") == Counts(1, 0, 0)
        assert on.out.exists() is (refused is None), refused


# --- the roster: who measures which testbed next ----------------------------------------------------------------------


def jobs(blocks: int, beds: int = 3) -> list[Job]:
    made = [cast(Bed, SimpleNamespace(key=f"bed{number}")) for number in range(beds)]
    return [Job(bed, (), block) for block in range(1, blocks + 1) for bed in made]


def filled(blocks: int, beds: int = 3) -> Roster:
    roster = Roster(beds, "abc")
    roster.fill(jobs(blocks, beds))
    return roster


def taken(roster: Roster, places: str, there: str = "abc") -> list[tuple[int, int] | None]:
    """The block and the number of the testbed that each of these places takes, one after the other."""
    roster.places = there
    found = [roster.take(place) for place in places]
    return [None if job is None else (job.repetition, int(job.bed.key.removeprefix("bed"))) for job in found]


def test_a_machine_measures_a_whole_block_and_then_the_next_that_nobody_has() -> None:
    roster = filled(3)
    assert taken(roster, "abaaa") == [(1, 0), (2, 0), (1, 1), (1, 2), (3, 0)]
    assert roster.waiting == 4
    # Who has no block helps with the one that has most left.
    assert taken(filled(2, beds=4), "aabccc") == [(1, 0), (1, 1), (2, 0), (2, 1), (1, 2), (2, 2)]
    # The block of a machine that is gone is taken over.
    roster = filled(2)
    assert taken(roster, "ab") == [(1, 0), (2, 0)]
    assert taken(roster, "c", there="bc") == [(1, 1)] and taken(roster, "c") == [(1, 2)]


def end(roster: Roster, place: str, *beds: int, measured: bool = False, why: str = "why") -> list[bool]:
    """Testbeds of these numbers end there by an error; whether the machine gets no others then."""
    made = [SimpleNamespace(place=place, job=job, error=RunError(why)) for job in jobs(1, 1 + max(beds))]
    return [roster.ended(cast(Course, made[number]), measured, why) for number in beds]


def test_a_testbed_that_failed_on_a_machine_goes_to_another_one() -> None:
    roster = filled(1, beds=2)
    end(roster, "a", 0)
    assert taken(roster, "aab") == [(1, 1), None, (1, 0)]
    for place in "bc":
        end(roster, place, 0)
    roster.fill(jobs(1, beds=1))
    assert taken(roster, "a") == [(1, 0)]  # all have tried it


def test_a_machine_on_which_nothing_comes_up_gets_nothing_more_while_others_measure() -> None:
    roster = filled(1, beds=100)
    roster.places = "ab"
    assert end(roster, "a", 0, 1, 2) == [False, False, True]
    assert roster.usable == {"b"}
    roster.places = "a"
    assert roster.usable == {"a"}, "the only machines that are left are used whatever came before"
    end(roster, "a", 3, measured=True)  # what it had begun before
    roster.places = "ab"
    assert roster.usable == {"a", "b"}
    # Where nothing comes up anywhere the sweep ends, and not where most testbeds can be.
    for place in "ab":
        end(roster, place, 4, 5, 6)
    assert roster.usable == {"a", "b"}
    roster = filled(1, beds=8)
    roster.places = "ab"
    end(roster, "a", 0, 1, 2, 3)
    end(roster, "b", 4, 4)
    with pytest.raises(RunError, match=r"3 testbeds in a row could not be used on any machine, so .* ends: no engine"):
        end(roster, "b", 4, why="no engine")


@pytest.mark.parametrize("seed", [1, 2])
def test_machines_that_fail_at_random_measure_each_cell_once(seed: int, tmp_path: Path, monkeypatch: Patch) -> None:
    """Machines are lost in the middle, testbeds do not come up, rows are spoiled, two machines are broken."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    often = Failures(lost_after_s=1000.0, back_s=100.0, unusable_ratio=0.05, spoiled_ratio=0.05, broken=2)
    found = simulate_scale(tmp_path / "out.csv", 100, 7, failures=often, seed=seed)
    assert found.each_once and found.counts.measured == 100, found
    assert found.machines_lost > 0 and found.testbeds > 10, found


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_journal_belongs_to_one_sweep_at_a_time(tmp_path: Path) -> None:
    """No lock of a machine keeps two sweeps apart that measure elsewhere."""
    first = Journal(tmp_path / "out.sweep.jsonl")
    with pytest.raises(UsageError, match=r"out\.sweep\.jsonl is that of a sweep that is on"):
        Journal(tmp_path / "out.sweep.jsonl")
    first.close()
    Journal(tmp_path / "out.sweep.jsonl").close()


RUN = "20261122T000000Z-abcdef"


def test_a_run_directory_that_is_not_what_was_sent_is_told_and_goes_nowhere_else(tmp_path: Path) -> None:
    sums = b"0" * 64 + b"  manifest.json\n"
    sent: list[tuple[str, dict[str, bytes], str]] = [
        (RUN, {"manifest.json": b"{}", "checksums.sha256": sums}, "json (changed)"),
        (RUN, {"manifest.json": b"{}"}, "has no checksums"),
        (RUN, {"../../out.csv": b"other"}, "was left out"),
    ]
    names = ("..", ".", "", "a/..", "20261122T000000Z-other0", f"{RUN}\0")
    sent += [(name, {"out.csv": b"other"}, "was left out") for name in names]
    for number, (name, files, words) in enumerate(sent):
        folder = tmp_path / str(number)
        out = folder / "a" / "out.csv"
        out.parent.mkdir(parents=True)
        out.write_text("rows")
        found = worker.Directory(name, tuple(files.items())).write(out, "abcdef")
        assert found is not None and words in found and out.read_text() == "rows", name
        written = [path for path in folder.rglob("*") if path.is_file() and path != out]
        assert all(path.parent == out.with_suffix(".runs") / RUN and path.name in files for path in written), name


# --- which schedulers sweeps and workers go to ------------------------------------------------------------------------

SWEEP = ("--set", "clients=5", "--quick", "--only", "write-leader-50x*-4B*")


ROOT = r"is refused: every client that reaches it has workers do anything as root.*also on 127.0.0.1\n.*--tls-ca-file"
NONE = "as the address of a scheduler; allowed: HOST:PORT"


def test_a_scheduler_is_reached_by_tls_alone(tmp_path: Path) -> None:
    """Also on the loopback interface, which every user of the machine reaches."""
    files, none = certificates(tmp_path / "of-one", ("a",))["a"], (None, None, None)
    good = {text: f"tls://{text}" for text in ("127.0.0.1:8786", "[::1]:4711")}
    good |= {"10.0.0.1": "tls://10.0.0.1:8786", "tls://localhost:99": "tls://localhost:99"}
    assert {text: scheduler_at(text, *files).address for text in good} == good
    plain = ("tcp://127.0.0.1:8786", "tcp://[::1]:8786", "tcp://192.0.2.7")
    wrong = ("", "tcp://", ":8786", "ucx://127.0.0.1:1", "127.0.0.1:99999", "127.0.0.1:1/x")
    for words, texts, given in (
        *((ROOT, good, none), (ROOT, plain, none), (ROOT, plain, files)),
        *((NONE, wrong, none), (NONE, wrong, files)),
    ):
        for text in texts:
            with pytest.raises(UsageError, match=words):
                scheduler_at(text, *given)


def test_tls_needs_three_files_that_can_be_read_and_belong_together(tmp_path: Path) -> None:
    made = certificates(tmp_path / "of-one", ("a", "b"))
    (ca_file, cert, key), other = made["a"], made["b"].key
    for files, words in (
        ((ca_file, None, key), "belong together: give all three"),
        ((ca_file, tmp_path / "none.pem", key), r"--tls-cert: .*none.pem cannot be read: No such file"),
        ((ca_file, cert, other), "are no certificate of an authority, an own one and its key"),
        ((ca_file, cert, key), r"--tls-key: .*a.key has mode 0644: every user .*\n.*chmod 600"),
    ):
        key.chmod(0o644 if "0644" in words else 0o600)
        with pytest.raises(UsageError, match=words):
            scheduler_at("tls://10.0.0.1", *files)


def test_certificates_are_made_for_their_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "dask"
    made = CliRunner().invoke(certs_command, [str(folder)], standalone_mode=False)
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert files == dict.fromkeys(("ca.pem", "cert.pem", "key.pem"), 0o600)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    words = made.output.split()
    assert words[::2] == ["--tls-ca-file", "--tls-cert", "--tls-key"]
    scheduler_at("127.0.0.1", *map(Path, words[1::2])).security()
    again = CliRunner().invoke(certs_command, [str(folder)], standalone_mode=False).exception
    assert isinstance(again, UsageError) and "File exists" in str(again)


def test_both_commands_refuse_before_anything_is_connected_or_created(tmp_path: Path, monkeypatch: Patch) -> None:
    def refused(command: Any, *words: str) -> BaseException | None:
        error = CliRunner().invoke(command, [*words], standalone_mode=False).exception
        assert type(error).__name__ in ("UsageError", "MissingRequirementError")  # ours, or click's
        return error

    sweep = (str(CONFIG), str(tmp_path / "out.csv"), *SWEEP)
    both = ((worker_command, ("127.0.0.1:1",)), (sweep_command, (*sweep, "--dask", "127.0.0.1:1")))
    assert all("anything as root" in str(refused(command, *words)) for command, words in both)
    assert "go with --dask" in str(refused(sweep_command, *sweep, "--tls-key", "x"))
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patch:
        without(patch)
        assert all("this needs distributed" in str(refused(command, *words)) for command, words in both)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    made = certificates(tmp_path / "of-one", ("a",))["a"]
    words = ("--tls-ca-file", str(made.ca_file), "--tls-cert", str(made.cert), "--tls-key", str(made.key))
    assert "need root" in str(refused(worker_command, "127.0.0.1:1", *words))
    with pytest.raises(MissingRequirementError, match="need root"):
        require_root()
