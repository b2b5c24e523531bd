"""A worker: a process that measures one testbed at a time for sweeps that reach it through a Dask scheduler.

A task sent to a worker is executed as root. So every peer presents a certificate of one authority, also on a single
machine, whose other users can reach its loopback interface.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import platform
import re
import shlex
import shutil
import signal
import socket
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import dask
from distributed import Security, Worker, WorkerPlugin, get_worker
from distributed.core import rpc

from containernet_env.base import VERSION, assets, clock
from containernet_env.base.errors import ContainernetEnvError, Interrupted, RunError, UsageError, text_of
from containernet_env.base.work import STOP_SIGNALS, Stop
from containernet_env.config.plan import PlannedScenario
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.results.csv_file import rows_after
from containernet_env.results.files import CHECKSUMS, check, files_of, make_folders, replacing
from containernet_env.results.run_directory import runs_folder
from containernet_env.runs import clean, version
from containernet_env.runs.keeper import was_measured
from containernet_env.runs.lock import RunLock
from containernet_env.runs.measure import RunOrder, carry_out
from containernet_env.runs.prepare import on_this_machine, require_root
from containernet_env.runs.progress import Silent
from containernet_env.runs.testbed import Standing
from containernet_env.setup import builds

PORT = 8786
"""The default port of `dask scheduler`."""
CONNECT_S = 10.0
FACTS = "containernet_env"
"""The name under which the scheduler has a worker's `facts`."""
FOLDER = "worker"
"""The directory in the machine's cache for a worker's measurements until they have been sent back."""
GO = "Go"
UNKNOWN = "unknown"
_DIGITS = 12
_FETCHED_S = 30.0
_POLL_S = 0.05
# The worker's process is the run's driver: no profiler samples its threads a hundred times a second.
_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.comm.timeouts.connect": f"{CONNECT_S:g}s",
}


# --- how sweeps and workers reach a scheduler ---


class TlsFiles(NamedTuple):
    """An authority's certificate, and the own one with its key: files in PEM form."""

    ca_file: Path
    cert: Path
    key: Path

    def check(self) -> None:
        """Raise ``UsageError`` if the files are missing or invalid."""
        for option, path in zip(("--tls-ca-file", "--tls-cert", "--tls-key"), self, strict=True):
            try:
                path.open("rb").close()
            except OSError as error:
                raise UsageError(f"{option}: {path} cannot be read: {error.strerror}") from error
        if (mode := stat.S_IMODE(self.key.stat().st_mode)) & 0o007:
            raise UsageError(
                f"--tls-key: {self.key} has mode {mode:04o}: every user of this machine could use it\n"
                f"  Use another one, or if no other user has read it: chmod 600 {shlex.quote(str(self.key))}"
            )
        try:
            ssl.create_default_context(cafile=str(self.ca_file)).load_cert_chain(self.cert, self.key)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UsageError(
                f"{self.ca_file}, {self.cert} and {self.key} are no certificate of an authority, an own one and its "
                f"key: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The address of a scheduler, as ``tls://10.0.0.1:8786``, and the certificate to present to it."""

    address: str
    tls: TlsFiles

    def security(self) -> Security:
        """The certificates for Dask; both ends of each connection present one."""
        files = {"cert": str(self.tls.cert), "key": str(self.tls.key)}
        own = {f"tls_{who}_{what}": path for who in ("client", "worker") for what, path in files.items()}
        return Security(require_encryption=True, tls_ca_file=str(self.tls.ca_file), **own)

    def reach(self) -> None:
        """Raise ``RunError`` if no scheduler answers, or rejects this certificate; Dask itself would retry for long."""
        dask.config.set(_SETTINGS)
        for name in ("distributed", "tornado.application", "tornado.general", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        parts = urlsplit(self.address)
        try:
            socket.create_connection((parts.hostname, parts.port or PORT), CONNECT_S).close()
            asyncio.run(self._identity())
        except (OSError, TimeoutError, ValueError) as error:
            raise self.no_answer(error) from error

    async def _identity(self) -> None:
        async with rpc(self.address, connection_args=self.security().get_connection_args("client")) as scheduler:
            await asyncio.wait_for(scheduler.identity(n_workers=0), CONNECT_S)

    def no_answer(self, error: BaseException) -> RunError:
        why = next((str(item) for item in (error.__cause__, error) if item is not None and str(item)), "no answer")
        return RunError(
            f"no scheduler answers at {self.address}: {why.splitlines()[0]}\n"
            "  Start one: dask scheduler --protocol tls --host HOST, with certificates of the same authority as all "
            "others."
        )


def scheduler_at(text: str, ca_file: Path | None, cert: Path | None, key: Path | None) -> Scheduler:
    """The scheduler at ``HOST:PORT``, with or without ``tls://`` before it, and the files of the options.

    Raises ``UsageError`` for an invalid address, and for one that would be reached without a certificate.
    """
    scheme, separator, rest = text.rpartition("://")
    try:
        parts = urlsplit(f"tls://{rest}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, PORT
    if (separator and scheme not in ("tcp", "tls")) or not host or parts.path or parts.query:
        raise UsageError(f"got {text!r} as the address of a scheduler; allowed: HOST:PORT, tls://HOST:PORT")
    address = f"tls://{f'[{host}]' if ':' in host else host}:{port}"
    if scheme == "tcp" or not (ca_file or cert or key):
        raise UsageError(
            f"{text} is refused: every client that reaches it has workers do anything as root, and without TLS every "
            "user of its machine does, also on 127.0.0.1\n"
            f"  Use {address} with --tls-ca-file, --tls-cert and --tls-key: "
            "`containernet-env certs FOLDER` makes these files."
        )
    if ca_file is None or cert is None or key is None:
        raise UsageError("--tls-ca-file, --tls-cert and --tls-key belong together: give all three of them")
    tls = TlsFiles(ca_file, cert, key)
    tls.check()
    return Scheduler(address, tls)


# --- a testbed on this machine ---


def facts() -> dict[str, str]:
    """The versions that have to be equal on all machines of a sweep, by name.

    ``GO`` builds the programs, etcd among them: `UNKNOWN` on a machine without one, which builds none.
    """
    dirty = version.dirty()
    return {
        "program": VERSION,
        "commit": (version.commit() or UNKNOWN)[:_DIGITS],
        "changed files": UNKNOWN if dirty is None else "yes" if dirty else "no",
        "sources": version.source_hash()[:_DIGITS],
        "etcd": assets.etcd_version(),
        GO: builds.go_version() or UNKNOWN,
        "Python": platform.python_version(),
        "architecture": platform.machine(),
    }


@dataclass(frozen=True, slots=True)
class Task:
    """A run for a worker, which makes the plan of it for its machine. Its progress goes to the Dask ``topic``."""

    topic: str
    order: RunOrder

    @property
    def run(self) -> str:
        return self.order.plan.run_id


@dataclass(frozen=True, slots=True)
class Directory:
    """A run directory: its name, and its files with their contents, the checksums last."""

    name: str
    files: tuple[tuple[str, bytes], ...]

    @classmethod
    def beside(cls, out: Path) -> Directory | None:
        """The only run directory beside ``out``."""
        folder = next(runs_folder(out).glob("*"), None)
        if folder is None:
            return None
        names = [*files_of(folder), *([CHECKSUMS] if (folder / CHECKSUMS).is_file() else [])]
        return cls(folder.name, tuple((name, (folder / name).read_bytes()) for name in names))

    def write(self, out: Path, run: str) -> str | None:
        """Write it beside ``out``; returns a line if it is not that of ``run``, or differs from its checksums. Raises
        OSError.

        No other path is written, whatever names were sent.
        """
        if not re.fullmatch(rf"[0-9TZ]+-{re.escape(run)}", self.name):
            return f"a run directory of the name {self.name!r} was left out: it is none of run {run}"
        folder = runs_folder(out) / self.name
        for name, content in self.files:
            path = folder / name
            if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute() or "\0" in name:
                return f"{folder}: a file of the name {name!r} was left out"
            make_folders(path.parent)
            with replacing(path, sync=True) as file:
                file.write(content)
        checked = check(folder)
        if checked is None:
            return f"{folder} has no checksums"
        changed = ", ".join(f"{item.name} ({item.how})" for item in checked.changed)
        return f"{folder} is not what was sent: {changed}" if changed else None


@dataclass(slots=True)
class Returned:
    """The result of a task: all of its rows as they are at its end, all of its outcomes, its run directory.

    ``error`` ended it. ``interrupted``: it was stopped, by the sweep or because its worker ends.
    """

    rows: list[dict[str, str]] = field(default_factory=list)
    outcomes: list[ScenarioOutcome] = field(default_factory=list)
    directory: Directory | None = None
    error: str | None = None
    interrupted: bool = False


Send = Callable[[str, Any, Mapping[str, str] | None], object]
"""Sends a call of a ``RunProgress`` to the sweep: the method's name, its argument, and the row of an ended scenario."""


@dataclass(eq=False)
class _Forwarded(Silent):
    """A ``RunProgress`` whose calls the sweep repeats on its own; remembers outcomes."""

    _out: Path
    _send: Send
    _outcomes: list[ScenarioOutcome]
    _rows: int = 0

    def note(self, text: str) -> None:
        self._send("note", text, None)

    def scenario_started(self, planned: PlannedScenario) -> None:
        self._send("scenario_started", planned, None)

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        """By now its row is on this machine's disk."""
        self._outcomes.append(outcome)
        row = None
        if was_measured(outcome) and len(rows := rows_after(self._out)) > self._rows:
            row, self._rows = rows[self._rows], len(rows)
        self._send("scenario_ended", outcome, row)


def measure(task: Task, send: Send, stop: Stop) -> Returned:
    """Measure a task on this machine as soon as no other run measures there. Needs root.

    ``stop`` ends it early; the measurements so far are returned. Raises none of the errors of a run.
    """
    returned = Returned()
    try:
        with RunLock(wait=stop):
            # The files of a killed worker are removed; the holder of the lock is the only worker here.
            folder = assets.make() / FOLDER
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            out = folder / "out.csv"
            try:
                # Of a sweep, so no lock is taken; no testbed is kept here.
                order = replace(task.order, plan=on_this_machine(task.order.plan), out=out, standing=Standing())
                carry_out(order, _Forwarded(out, send, returned.outcomes), stop)
            finally:
                returned.rows, returned.directory = rows_after(out), Directory.beside(out)
    except Interrupted:
        returned.interrupted = True
    except (ContainernetEnvError, OSError) as raised:
        returned.error = text_of(raised)
    return returned


# --- the process ---


class Running:
    """The runs that this process measures, and how to end each; thread-safe."""

    def __init__(self) -> None:
        self.stops: dict[str, Stop] = {}
        self._lock = clock.Lock()
        self._is_ending = False

    @contextmanager
    def measuring(self, run: str) -> Iterator[Stop]:
        """A run; if the process is already ending, it is stopped at once."""
        stop = Stop()
        with self._lock:
            self.stops[run] = stop
            if self._is_ending:
                stop.request()
        try:
            yield stop
        finally:
            del self.stops[run]

    def end(self, runs: Sequence[str] | None = None) -> None:
        """Stop these runs; without ``runs`` all of them, and those that begin later."""
        with self._lock:
            self._is_ending = self._is_ending or runs is None
            for run, stop in list(self.stops.items()):
                if runs is None or run in runs:
                    stop.request()


RUNNING = Running()


def run_task(task: Task) -> Returned:
    """The function that a sweep submits."""
    worker = get_worker()

    def send(name: str, argument: Any = None, row: Mapping[str, str] | None = None) -> None:
        worker.log_event(task.topic, {"run": task.run, "call": pickle.dumps((name, argument, row))})

    with RUNNING.measuring(task.run) as stop:
        send("")  # it has begun
        return measure(task, send, stop)


async def request_stop(runs: Sequence[str]) -> None:
    """Called by a sweep on a worker whose runs it ends; only a coroutine need not be waited for."""
    RUNNING.end(runs)


class _Ends(WorkerPlugin):
    """Ends runs whose sweep is gone, and all of them if the worker ends."""

    name = "containernet-env"

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """The scheduler releases what still runs when its client has gone."""
        if start == "executing" and finish == "released":
            RUNNING.end([str(key)])

    def teardown(self, worker: Worker) -> None:
        """The worker ends, for example because there is no scheduler."""
        RUNNING.end()


def serve(scheduler: Scheduler, note: Callable[[str], object]) -> int:
    """Measure for all sweeps that use the scheduler, until a signal arrives; returns its number. Needs root.

    Raises ``MissingRequirementError`` if the machine cannot measure, ``RunError`` if there is no scheduler, or no
    longer.
    """
    require_root()
    scheduler.reach()
    with RunLock(wait=Stop()):
        for name in clean.remove_leftovers().removed:
            note(f"removed {name}, left behind by a killed run")
    try:
        # For Dask's own files; it removes those of workers that were killed.
        folder = assets.make() / "workers"
        folder.mkdir(mode=0o700, exist_ok=True)
        return asyncio.run(_served(scheduler, str(folder), note))
    finally:
        RUNNING.end()
        while RUNNING.stops:
            clock.sleep(_POLL_S)


async def _served(scheduler: Scheduler, folder: str, note: Callable[[str], object]) -> int:
    loop = asyncio.get_running_loop()
    received: asyncio.Future[int] = loop.create_future()

    def receive(signum: int) -> None:
        RUNNING.end()
        if not received.done():
            received.set_result(signum)

    for signum in STOP_SIGNALS:
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
            loop.add_signal_handler(signum, receive, signum)
    own, name = facts(), f"{platform.node()}/{os.getpid()}"
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
    await asyncio.wait([asyncio.ensure_future(worker.finished()), received], return_when=asyncio.FIRST_COMPLETED)
    if not received.done():
        raise RunError(f"the scheduler at {scheduler.address} was lost")
    note("ending: a running testbed is taken down first")
    while RUNNING.stops:
        await asyncio.sleep(_POLL_S)
    # The sweep gets the result, unless it has cancelled it.
    deadline = loop.time() + _FETCHED_S
    while worker.state.tasks and loop.time() < deadline:
        await asyncio.sleep(_POLL_S)
    await worker.close(reason="ended by a signal")
    return received.result()
