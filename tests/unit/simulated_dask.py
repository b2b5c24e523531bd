"""A Dask cluster in simulated time: a scheduler, and workers that are threads of the simulation and measure on fakes.

The product's own ``run_task`` runs on each worker as on a machine of its own. A benchmark takes ``CELL_S`` there.
"""

from __future__ import annotations

import os
import platform
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import assets, clock
from containernet_env.base.work import Stop
from containernet_env.results.files import check
from containernet_env.runs import measure as measure_module
from containernet_env.runs.load import Answer
from containernet_env.runs.observer import Observer
from containernet_env.runs.sweep import worker, workers
from containernet_env.runs.sweep.design import design
from containernet_env.runs.sweep.runner import Counts, Request, Sweep
from containernet_env.runs.sweep.worker import FACTS, Scheduler, TlsFiles
from containernet_env.runs.sweep.workers import Workers
from tests.simulated_time import World
from tests.unit.fakes import CONFIG, GOOD, FakeTestbed, on_fakes, rows
from tests.unit.sweep_fakes import Notes, measured

ADDRESS = "tls://127.0.0.1:8786"
FILES = TlsFiles(*[Path("unread.pem")] * 3)
CELL_S = 1.0
AXES = ("link_delay=1ms,3ms,5ms", "clients=5,10,20")
CELLS = 9


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
        self.hold = self.is_killed = self.is_leaving = False
        self.begun = 0
        self.todo: deque[Task] = deque()
        self.running: Task | None = None
        dask.machines[self.address] = self
        clock.Thread(target=self._work, name=name, daemon=True).start()

    def info(self) -> dict[str, Any]:
        """What the scheduler knows."""
        status = "closing" if self.is_leaving else "running"
        return {"name": f"{self.name}/1", FACTS: self.facts, "status": status}

    def kill(self) -> None:
        """Its process is gone, and the scheduler has noticed; what it had to do stays undone."""
        self.is_killed = True
        self.dask.machines.pop(self.address, None)

    def end(self) -> None:
        """A signal ends it, once the sweep has what it measured."""
        self.is_leaving = True
        if self.running is not None:
            worker.RUNNING.end([self.running.key])

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
            if self.is_leaving:
                self.kill()

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
    """The scheduler. ``clients`` are those of sweeps; ``hangs``: it answers nothing, and connections stand."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder, self.facts = world, folder, worker.facts()
        self.machines: dict[str, Machine] = {}
        self.by_thread: dict[int, Machine] = {}
        self.clients: list[Client] = []
        self.hangs = False

    @property
    def here(self) -> Machine:
        """The machine on whose thread this is asked."""
        return self.by_thread[threading.get_ident()]

    def lose(self) -> None:
        """The scheduler ends: all that it knows is gone."""
        for client in self.clients:
            client.status = "closed"
        for machine in self.machines.values():
            for task in (*machine.todo, *([] if machine.running is None else [machine.running])):
                task.cancel()

    async def identity(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {address: machine.info() for address, machine in self.machines.items()}}


class Client:
    """``distributed.Client``, as far as a sweep uses it."""

    def __init__(self, dask: Dask) -> None:
        self.scheduler, self.status, self.topics = dask, "running", dict[str, Any]()
        dask.clients.append(self)

    def sync(self, function: Callable[..., Coroutine[Any, Any, Any]], callback_timeout: float, **named: Any) -> Any:
        if self.scheduler.hangs:
            clock.sleep(callback_timeout)
            raise TimeoutError
        return drive(function(**named))

    def subscribe_topic(self, topic: str, call: Callable[[Any], object]) -> None:
        self.topics[topic] = call

    def submit(self, function: Any, argument: Any, key: str, workers: list[str], **_: Any) -> Task:
        task = Task(function, argument, key)
        if (machine := self.scheduler.machines.get(workers[0])) is not None:
            machine.todo.append(task)
        return task

    def run(self, function: Any, *of: Any, workers: list[str], **_: Any) -> None:
        if not self.scheduler.hangs:
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


def simulate(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> tuple[Dask, list[Machine]]:
    """A scheduler and workers of these names. Sweeps and their workers are of this process from here on."""
    dask = Dask(world, folder)
    on_fakes(monkeypatch)
    plain = FakeTestbed.__init__

    def made(self: FakeTestbed, *arguments: Any, **named: Any) -> None:
        plain(self, *arguments, **named)
        self.server.behave = dask.here.answer

    monkeypatch.setattr(FakeTestbed, "__init__", made)
    # What this machine does meanwhile is no part of these tests.
    monkeypatch.setattr(measure_module, "Observer", lambda bed, progress, tell, *_: Observer(bed, progress, tell))
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(platform, "node", lambda: dask.here.name)
    monkeypatch.setattr(assets, "make", lambda: dask.here.folder)
    monkeypatch.setattr(worker, "RunLock", lambda wait: nullcontext())
    monkeypatch.setattr(worker, "RUNNING", worker.Running())
    monkeypatch.setattr(worker, "get_worker", lambda: SimpleNamespace(log_event=dask.here.tell))
    monkeypatch.setattr(workers, "facts", lambda: dict(dask.facts))
    monkeypatch.setattr(workers, "Client", lambda *_, **__: Client(dask))
    monkeypatch.setattr(Scheduler, "reach", lambda self: None)
    return dask, [Machine(dask, name) for name in names]


class Cluster:
    """Sweeps into one file on a cluster of these workers; ``notes`` has what they told."""

    def __init__(self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        monkeypatch.undo()  # what the seed before has patched
        folder = tmp_path / f"seed{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        self.out, self.notes, self.world = folder / "out.csv", Notes(), world
        self.dask, self.machines = simulate(world, folder, monkeypatch, *names)

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
