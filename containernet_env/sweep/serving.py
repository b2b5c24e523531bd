"""A worker: one thread that measures one testbed at a time for sweeps that reach it through a Dask scheduler."""

from __future__ import annotations

import asyncio
import os
import pickle
import platform
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker

from containernet_env.base import assets, clock
from containernet_env.base.errors import RunError
from containernet_env.base.work import Stop
from containernet_env.hosts import owner
from containernet_env.runs import clean
from containernet_env.runs.lock import RunLock
from containernet_env.runs.prepare import require_root
from containernet_env.sweep import at_worker
from containernet_env.sweep.at_worker import Returned, Task, Told
from containernet_env.sweep.cluster import Scheduler, identity_of, reach, settle_dask

FACTS = "containernet_env"
"""Under this name a worker tells the scheduler what has to be equal everywhere."""
TOPIC = "containernet-env"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FETCHED_S = 30.0
_POLL_S = 0.05


class _Running:
    """What this process measures: run -> how it is ended; may be used from any thread."""

    def __init__(self) -> None:
        self._stops: dict[str, Stop] = {}
        self._changed = clock.Condition()
        self.ending = False

    def begin(self, run: str) -> Stop:
        """A run begins; where the process ends already, it is to end at once."""
        stop = Stop()
        with self._changed:
            self._stops[run] = stop
            if self.ending:
                stop.request()
        return stop

    def end(self, run: str) -> None:
        """It has ended."""
        with self._changed:
            del self._stops[run]
            self._changed.notify_all()

    def stop(self, runs: Sequence[str] | None = None) -> None:
        """Have these runs end; without ``runs`` all of them, and those that begin later."""
        with self._changed:
            self.ending = self.ending or runs is None
            for run in self._stops if runs is None else runs:
                if run in self._stops:
                    self._stops[run].request()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return when nothing runs; False where that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._stops, timeout_s)


RUNNING = _Running()


def run_task(task: Task) -> Returned:
    """What a sweep submits."""
    worker = get_worker()

    def tell(told: Told) -> None:
        worker.log_event(f"{TOPIC}-{task.sweep}", {"run": task.run, "told": pickle.dumps(told)})

    stop = RUNNING.begin(task.run)
    try:
        tell(Told())
        return at_worker.measure(task, tell, stop)
    finally:
        RUNNING.end(task.run)


async def request_stop(runs: Sequence[str]) -> None:
    """What a sweep has carried out on a worker whose runs it wants to end; only a coroutine need not be waited for."""
    RUNNING.stop(runs)


class _Ends(WorkerPlugin):
    """Ends runs whose sweep is no longer there, and all of them where the worker ends."""

    name = "containernet-env"

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """The scheduler releases what still runs when its client has gone."""
        if start == "executing" and finish == "released":
            RUNNING.stop([str(key)])

    def teardown(self, worker: Worker) -> None:
        """The worker ends, for want of a scheduler for instance."""
        RUNNING.stop()


def serve(scheduler: Scheduler, note: Callable[[str], object]) -> int:
    """Measure for whoever uses the scheduler, until a signal ends that; its number. Needs root.

    ``note`` is told what it does. Raises ``MissingRequirementError`` where the machine cannot measure, ``RunError``
    where there is no scheduler, or no longer.
    """
    require_root()
    settle_dask()
    reach(scheduler)
    asyncio.run(_check(scheduler))
    with RunLock(wait=Stop()):
        for name in clean.remove_leftovers().removed:
            note(f"removed {name}, left behind by a killed run")
    try:
        with _scratch() as folder:
            return asyncio.run(_served(scheduler, str(folder), note))
    finally:
        RUNNING.stop()
        RUNNING.wait()


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for Dask's own files; those of workers that were killed are removed."""
    home = assets.make() / "workers"
    home.mkdir(mode=0o700, exist_ok=True)
    for path in home.iterdir():
        by = path.name.replace("_", "/")
        if owner.is_owner(by) and not owner.is_alive(by):
            shutil.rmtree(path, ignore_errors=True)
    folder = home / owner.current().replace("/", "_")
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _check(scheduler: Scheduler) -> None:
    await identity_of(scheduler)


async def _served(scheduler: Scheduler, folder: str, note: Callable[[str], object]) -> int:
    received: list[int] = []
    called = asyncio.Event()
    loop = asyncio.get_running_loop()

    def receive(signum: int) -> None:
        received.append(signum)
        RUNNING.stop()
        called.set()

    for signum in STOP_SIGNALS:
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
            loop.add_signal_handler(signum, receive, signum)
    own = at_worker.facts()
    name = f"{platform.node()}/{os.getpid()}"
    worker = Worker(
        scheduler.address,
        nthreads=1,
        name=name,
        security=scheduler.security(),
        memory_limit=0,
        local_directory=folder,
        dashboard=False,
        dashboard_address="127.0.0.1:0",
        startup_information={FACTS: lambda _: own},
        death_timeout=_FETCHED_S,
        plugins=(_Ends(),),
    )
    try:
        await worker
    except (OSError, TimeoutError, ValueError) as error:
        raise RunError(f"the scheduler at {scheduler.address} does not take this worker: {error}") from error
    note(f"{name} measures for {scheduler.address}")
    finished = asyncio.ensure_future(worker.finished())
    waiting = asyncio.ensure_future(called.wait())
    await asyncio.wait([finished, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if received:
        note("ending: a running testbed is taken down first")
        await _fetched(worker)
        await worker.close(reason="ended by a signal")
        return received[0]
    raise RunError(f"the scheduler at {scheduler.address} was lost")


async def _fetched(worker: Worker) -> None:
    """Return when nothing runs and the sweep has what did, or no longer wants it."""
    while not RUNNING.wait(0):
        await asyncio.sleep(_POLL_S)
    deadline = asyncio.get_running_loop().time() + _FETCHED_S
    while worker.state.tasks and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_POLL_S)
