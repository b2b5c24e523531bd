"""One cell of the table of faults on a simulated machine: the real driver is struck at a moment, by a seed.

The driver is a thread of the simulation that carries out the tool's command line. The test's own thread is whoever
strikes it: the kernel, the user, the machine. SIGKILL takes the driver's threads out of the simulation where each of
them is, for ever, and closes what they had open; the files stay as they are.
"""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import re
import resource
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import docker
import pytest

from containernet_env.base import clock, programs
from containernet_env.base import files as container_files
from containernet_env.cli import _status_of, output
from containernet_env.config.plan import PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.topologies import load_config
from containernet_env.containernet import network as containernet
from containernet_env.hosts import container, engine, netns, owner
from containernet_env.model.topology import Topology
from containernet_env.network import emulator, gate, rtt, switches
from containernet_env.results.run_directory import RunDirectory
from containernet_env.runs import lock, manifest, measure
from containernet_env.runs import machine as machine_module
from containernet_env.setup.images import Images
from tests import simulated_time
from tests.faults.files import Files, check_kept, check_next, topology
from tests.faults.machine import Machine, Popen, Process
from tests.faults.strikes import STRIKES, Fault, Strike, engine_struck, follower_of, once
from tests.faults.table import BEGINNINGS, BRING_UP, ENDS, FINISHED, PROOF, SCENARIOS, TEAR_DOWN, Cell
from tests.simulated_time import EPOCH_NS, World
from tests.unit.fakes import FakeEmulator
from tests.unit.manifests import MACHINE, PROGRAM

END_S = 400.0
"""Simulated seconds after which a run that was struck hangs."""
# How far into its moment a fault strikes, at most: all of it is shorter than the moment.
_INTO_S = {BRING_UP: 0.05, PROOF: 1.5, TEAR_DOWN: 0.05}
_INTO_SCENARIO_S = 0.7

FEW = 2
"""How many files a run may still open when the limit is lowered."""


class Simulation(World):
    """A world with one driver, which may get a signal, or be killed."""

    def __init__(self, seed: int, preempt: float = 0.0, config: str | None = None) -> None:
        super().__init__(seed, preempt)
        self.config = config or json.dumps(topology(bandwidth="unlimited"))
        self.machine = Machine(self, _topology(self.config))
        self.driver: Any = None  # its thread
        self._pending: Callable[[], None] | None = None

    def signal(self, handle: Callable[[], None]) -> None:
        """Have the driver's main thread call ``handle`` where it is, or goes on next."""
        self._pending = handle

    def abandon(self) -> None:
        """No thread but this one ever goes on."""
        self._tasks = [self._main]

    def _is_struck(self, task: Any) -> bool:
        return self._pending is not None and self.driver is not None and task is self.driver._task

    def _is_able(self, task: Any) -> bool:
        # Nearly half of what a cell costs: what is cheap to know is looked at first.
        if (task.until_ns is not None and task.until_ns <= self.now_ns) or self._is_struck(task):
            return True
        return bool(task.ready())

    def _handle(self) -> None:
        assert self._pending is not None
        call, self._pending = self._pending, None
        call()

    def _names(self) -> dict[str, Any]:
        names = super()._names()

        def wall_ns() -> int:
            return EPOCH_NS + self.machine.wall_offset_ns + int(names["monotonic_ns"]())

        return names | {"Thread": partial(Thread, self), "time_ns": wall_ns, "time": lambda: wall_ns() / 1e9}


class Thread(simulated_time.Thread):
    """One that may not start for want of processes."""

    def __init__(self, simulation: Simulation, *args: Any, **kwargs: Any) -> None:
        super().__init__(simulation, *args, **kwargs)
        self._machine = simulation.machine

    def start(self) -> None:
        if self._machine.no_threads:
            raise RuntimeError("can't start new thread")
        super().start()


@cache
def _topology(config: str) -> Topology:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        files.config.write_text(config)
        return build_plan(load_config(files.config), None, PlanOptions(machine_cores=2)).topology


class Run:
    """A run on the machine, as ``harness.Run`` is one of this machine."""

    def __init__(self, simulation: Simulation, folder: Path) -> None:
        self.simulation, self.machine, self.files = simulation, simulation.machine, Files(folder)
        self.files.config.write_text(simulation.config)
        self.happened: Counter[str] = Counter()
        self.handlers: dict[int, Any] = {}
        self.stdout: Any = None
        self.text = io.StringIO()
        self.status: int | None = None
        self._open_before: set[int] = set()
        self.driver = os.getpid()
        engine = self.machine.engine
        self.own_engine = SimpleNamespace(
            terminate=partial(engine.end, kill=False),
            kill=partial(engine.end, kill=True),
            pause=partial(setattr, engine, "state", "silent"),
            kill_containerd=engine.kill_containerd,
            start=self._start_engine,
            containers=lambda: {*self.machine.left()["containers"]},
        )

    @property
    def said(self) -> str:
        return self.text.getvalue()

    def start(self) -> None:
        """Start the driver."""
        self.machine.begin_driver()
        self._open_before = _descriptors()
        self.simulation.driver = clock.Thread(target=self._drive, name="driver")
        self.simulation.driver.start()

    def _drive(self) -> None:
        self.status = _status_of(self.files.command)

    def tool(self, *words: str) -> tuple[int, str]:
        """Carry out another command on this thread."""
        before = len(self.said)
        return _status_of(list(words)), self.said[before:]

    def alive(self) -> bool:
        return self.simulation.driver.is_alive()

    def reach(self, moment: str) -> None:
        """Return somewhere within the moment, as the seed decides."""
        kind, times = BEGINNINGS[moment]
        assert self.until(lambda: self.happened[kind] >= times), f"no {moment}\n{self.said}"
        most_s = _INTO_S.get(moment, _INTO_SCENARIO_S)
        self.simulation.wait(lambda: False, self.simulation.random.uniform(0.0, most_s))
        kind, times = ENDS[moment]
        assert self.happened[kind] < times, f"{moment} is over"

    def until(self, ready: Callable[[], Any]) -> Any:
        """Wait for something, or for the end of the driver; what ``ready`` then answers."""
        self.simulation.wait(lambda: ready() or self.simulation.driver._task.done, END_S)
        return ready()

    def end(self) -> int:
        """Wait for the end; the exit status."""
        ended = self.simulation.wait(lambda: self.simulation.driver._task.done, END_S)
        assert ended, f"the run hangs\n{self.simulation._stacks()}\n{self.said}"
        assert self.status is not None
        self.machine.dead_owners.add(self.machine.owner)
        return self.status

    def get_signal(self, signum: int) -> None:
        """The driver gets a signal."""
        if signum == signal.SIGKILL:
            self.simulation.abandon()
            self.machine.driver_killed()
            # Their threads are never again there to close them.
            for number in _descriptors() - self._open_before - self.machine.descriptors():
                os.close(number)
            self.status = -signum
        else:
            self.simulation.signal(lambda: self.handlers[signum](signum, None))

    # --- whom a fault can strike, and with what; see ``strikes`` ------------------------------------------------------

    def emulator(self) -> Process | None:
        return self.machine.emulator and self.machine.emulator.process

    def host(self, name: str) -> Process | None:
        return self.machine.host(name)

    def client(self) -> Process | None:
        return self.machine.load and self.machine.load.client

    def wait_for_target(self, find: Callable[[], Process | None]) -> Process:
        found: Process | None = self.until(find)
        if found is None:
            raise _NobodyThere
        return found

    def send(self, processes: Sequence[Process], signum: int) -> None:
        for process in processes:
            if signum == signal.SIGCONT:
                self.machine.cont(process)
            elif process.alive:
                process.signal(signum)

    def resume(self) -> None:
        """The driver is never stopped."""

    def let_pass(self, seconds: float) -> None:
        self.simulation.wait(lambda: False, seconds)

    def move_clock(self, seconds: float) -> None:
        self.machine.wall_offset_ns += round(seconds * 1e9)

    def _start_engine(self) -> None:
        engine = self.machine.engine
        engine.state = "runs"
        self.simulation.wait(lambda: self.machine.now_s >= engine.containerd_s, END_S)

    @property
    def leader(self) -> str:
        return self.machine.store.leader or "etcd1"


def _descriptors() -> set[int]:
    """The open ones of this process; the listing's own has been closed since."""
    return {number for number in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{number}")}


# --- the faults ------------------------------------------------------------------------------------------------------


def _out_refused(number: int) -> Strike:
    """The disk, or the file, takes no more of OUT: what the kernel then answers to a write, or to making a new file."""

    def fault(run: Run) -> Fault:
        yield
        real_write, real_open, place = os.write, os.open, str(run.files.out)
        room = 100 if number == errno.ENOSPC else 0  # what is left of the last page

        def write(fd: int, data: Any) -> int:
            nonlocal room
            if os.readlink(f"/proc/self/fd/{fd}") != place:
                return real_write(fd, data)
            if room == 0:
                raise OSError(number, os.strerror(number))
            room = 0
            return real_write(fd, bytes(data)[:100])

        def opened(path: Any, flags: int, *args: Any, **more: Any) -> int:
            if str(path).startswith(place) and flags & os.O_CREAT:
                raise OSError(number, os.strerror(number), str(path))
            return real_open(path, flags, *args, **more)

        with mock.patch.object(os, "write", write), mock.patch.object(os, "open", opened):
            yield

    return fault


def _stdout_ends(number: int, at_once: bool = False) -> Strike:
    """Standard output fails from the start, or from the moment on, as ``cli.output.Output`` meets it."""

    def fault(run: Run) -> Fault:
        real_write, ended = os.write, at_once
        reader, fd = os.pipe()

        def write(to: int, data: Any) -> int:
            if to == fd and ended:
                raise OSError(number, os.strerror(number))
            return len(data) if to == fd else real_write(to, data)

        run.stdout = io.TextIOWrapper(output.Output(fd, output.STDOUT), write_through=True)
        with mock.patch.object(os, "write", write):
            yield
            ended = True
            yield
        os.close(reader)
        os.close(fd)

    return fault


def _few_descriptors(run: Run) -> Fault:
    yield
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = _descriptors()
    free = (number for number in itertools.count() if number not in held)
    *_, following = itertools.islice(free, FEW + 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (following, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _few_processes(run: Run) -> Fault:
    yield
    run.machine.no_threads = True
    yield
    run.machine.no_threads = False


def _names_like_ours(run: Run) -> Fault:
    """A container with the labels of a dead run and another name, and one with such a name and no labels."""
    machine, dead = run.machine, f"{'0' * 8}-0000-0000-0000-{'0' * 12}/99/1"
    machine.dead_owners.add(dead)
    labels = engine.labels("000000", "etcd1") | {owner.LABEL: dead}
    for name, held in (("cnenv-000000-etcd1", {}), ("users-database", labels)):
        options = {"name": name, "labels": held, "image": "i", "entrypoint": ["sh"], "host_config": {}}
        machine.users.append(machine.engine.create_container(**options)["Id"])
    yield
    run.get_signal(signal.SIGKILL)
    yield
    assert set(machine.users) <= set(machine.engine.held), "what was the user's has been removed"


FAULTS: dict[str, Strike] = {
    **STRIKES,
    "engine-stop": engine_struck("pause"),
    "out-full": _out_refused(errno.ENOSPC),
    "out-immutable": _out_refused(errno.EPERM),
    "etcd-full": once(lambda run: setattr(run.machine.store.members[follower_of(run)], "disk_full", True)),
    "stdout-closed": _stdout_ends(errno.EBADF, at_once=True),
    "stdout-full": _stdout_ends(errno.ENOSPC, at_once=True),
    "stdout-pipe-closed": _stdout_ends(errno.EPIPE),
    "terminal-lost": _stdout_ends(errno.EIO),
    "few-descriptors": _few_descriptors,
    "few-processes": _few_processes,
    "names-like-ours": _names_like_ours,
}


# --- a cell ----------------------------------------------------------------------------------------------------------


def carry_out(cell: Cell, folder: Path, seed: int) -> None:
    """Strike a run at the moment of the cell, and see that it ends as promised. Raises AssertionError."""
    simulation = Simulation(seed)
    programs.descriptor()  # this process's, which stays
    before = _descriptors()
    simulation.run(lambda: _struck(cell, simulation, folder))
    simulation.machine.close()
    # An engine that is gone keeps its containers, so the driver keeps what holds their processes.
    if cell.fault not in ("driver-kill", "names-like-ours", "engine-kill", "engine-term", "engine-stop"):
        still = [os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors() - before]
        assert still == [], f"descriptors stay open: {still}"


def _struck(cell: Cell, simulation: Simulation, folder: Path) -> None:
    promise = cell.promise
    assert promise is not None
    run = Run(simulation, folder)
    machine = simulation.machine
    with closing(FAULTS[cell.fault](run)) as fault, on_machine(run):
        next(fault)
        if run.stdout is not None:
            sys.stdout = run.stdout
        run.start()
        run.reach(cell.moment)
        next(fault)
        status = run.status if run.status is not None and run.status < 0 else run.end()
        check_kept(run.files, promise, cell.moment, status, run.said)
        if status == -signal.SIGKILL:
            _next_run_cleans_up(run)
        next(fault, None)
        status, text = run.tool("clean")
        assert status == 0 and ("nothing was left behind" in text or run.stdout), f"{text}\n{run.said}"
        left = machine.left()
        assert not any(left.values()), f"{left}\n{run.said}"
        assert (folder / "lock").read_bytes() == b"", "the lock is still held"


def _next_run_cleans_up(run: Run) -> None:
    earlier = run.files.rows()
    left = run.machine.left()
    assert [name for name in left["processes"] if "link-emulator" in name] == [], "runs on without its driver"
    run.files.only(1)
    said = len(run.said)
    run.happened.clear()
    run.status = None
    run.start()
    assert run.end() == 0, run.said
    assert bool(left["containers"]) == ("left behind" in run.said[said:]), run.said
    check_next(earlier, run.files.rows())


@contextmanager
def on_machine(run: Run) -> Iterator[None]:
    """The product on the simulated machine: what it asks the system for is the machine's."""
    machine = run.machine
    client = SimpleNamespace(api=machine.engine, info=dict, close=lambda: None)
    add_event = RunDirectory.add_event

    def event(directory: RunDirectory, kind: str, text: str, subject: str | None = None) -> None:
        add_event(directory, kind, text, subject)
        run.happened[kind] += 1

    places: list[tuple[Any, dict[str, Any]]] = [
        # The system.
        (os, {"pidfd_open": machine.pidfd_open, "geteuid": lambda: 0}),
        (container_files, {"open_file": machine.open_file}),
        (os, {"fsync": lambda fd: None, "fdatasync": lambda fd: None}),
        (signal, {"pidfd_send_signal": machine.pidfd_send_signal, "signal": run.handlers.__setitem__}),
        (signal, {"getsignal": lambda signum: signal.SIG_DFL}),
        (emulator.subprocess, {"Popen": partial(Popen, machine)}),
        (emulator, {"socket": SimpleNamespace(**vars(socket) | {"socketpair": machine.socketpair})}),
        (emulator, {"default_binary": lambda: "/bin/sh"}),
        (rtt, {"default_binary": lambda: "/bin/sh", "json": SimpleNamespace(dumps=json.dumps, loads=machine.loads)}),
        (netns, {"_enter": machine.living, "socket_in": machine.socket_in, "is_own": machine.is_own}),
        (netns, {"read_sysctl": lambda pid, name: "cubic" if "congestion" in name else "0"}),
        (netns, {"congestion_control_towards": lambda pid, address: "cubic"}),
        (
            container,
            {"cgroups_of": machine.cgroups_of, "read_limits": lambda held: held, "limit_swap": lambda *_: None},
        ),
        (switches, {"list_ours": list}),
        (owner, {"current": lambda: machine.owner, "is_alive": lambda text: text not in machine.dead_owners}),
        (lock, {"PATH": run.files.folder / "lock"}),
        (sys, {"stdout": run.text, "stderr": run.text}),
        # The engine.
        (docker.APIClient, {"send": machine.engine.reach}),
        (engine, {"client": lambda: client, "connect": lambda timeout_s=0: client}),
        (engine, {"listens": lambda: machine.engine.state != "ended"}),
        # What this machine is, and what it costs.
        (measure, {"ready_images": lambda *_: Images("etcd", "benchmark"), "keep_costs": lambda *_: None}),
        (measure, {"AllUse": lambda *_: machine.use}),
        (measure.version, {"commit_text": lambda: "0123456789ab"}),
        (manifest, {"program_facts": lambda: PROGRAM}),
        (machine_module, {"facts": lambda: MACHINE}),
        (manifest.images, {"digest": lambda tag: f"sha256:{tag}"}),
        # What is worked out from the samples of a gate is the same each time.
        (gate, {"verdicts": _verdicts}),
        (RunDirectory, {"add_event": event}),
        (containernet.atexit, {"register": lambda call: call, "unregister": lambda call: None}),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for place, names in places:
            for name, value in names.items():
                patch.setattr(place, name, value)
        yield


_known: dict[Any, Any] = {}
_real_verdicts = gate.verdicts


def _verdicts(plan: Any, times: Any, allowed: Any) -> Any:
    key = tuple(plan.hosts), sum(of.received for of in times)
    if key not in _known:
        _known[key] = tuple(_real_verdicts(plan, times, allowed))
    return _known[key]


_PLACE = {"mem": "256m", "cpus": 1}
SITES = {
    "rtt": {"eu-us": "2ms", "us-asia": "3ms", "eu-asia": "4ms"},
    "nodes": [_PLACE | {"site": site} for site in ("eu", "us", "asia")],
    "client": {"site": "asia"},
}
EVENTS = [
    {"at": "300ms", "partition": [["eu"], ["us", "asia"]], "for": "1200ms"},
    {"at": "1800ms", "delay": "20ms", "of": "eu>us", "for": "300ms"},
    {"at": "1900ms", "link": "down", "of": "us-eu", "for": "300ms"},
]


def events_of_sites(folder: Path, seed: int) -> tuple[str, list[dict[str, str]], list[dict[str, Any]], list[str]]:
    """A run on three sites with events: its output, its rows, its disruptions, and the emulator's requests meanwhile.

    A request has its operation, name and values; of links the delays in ms.
    """
    simulation = Simulation(seed, config=json.dumps(SITES))
    run, requests = Run(simulation, folder), list[str]()
    held = json.loads(run.files.scenarios.read_text())
    block = held["scenarios"][0] | {"target": "cluster", "events": EVENTS}
    run.files.scenarios.write_text(json.dumps({**held, "scenarios": [block]}))
    carry_out_request = FakeEmulator.carry_out

    def watched(emulator: FakeEmulator, op: str, name: str = "", **fields: Any) -> Any:
        if run.happened["scenario_began"] and not run.happened["scenario_ended"] and op not in ("stats", "read_link"):
            given = [value for value in fields.values() if value is not None]
            values = [value["delay_ns"] // 10**6 if op == "set_link" else value for value in given]
            requests.append(" ".join([op, name, *map(str, values)]).replace("'", ""))
        return carry_out_request(emulator, op, name, **fields)

    def followed() -> None:
        with on_machine(run), mock.patch.object(FakeEmulator, "carry_out", watched):
            run.start()
            run.end()
            assert not any(run.machine.left().values())

    simulation.run(followed)
    simulation.machine.close()
    (path,) = run.files.runs.glob("*/disruptions.jsonl")
    return run.said, run.files.rows(), [json.loads(line) for line in path.read_text().splitlines()], requests


class _NobodyThere(Exception):
    """What a fault strikes has ended, with the run for instance."""


def strike_anywhere(fault: str, folder: Path, seed: int, preempt: float) -> None:
    """Strike at any step of a run: where its threads wait, or between any two lines, as often as ``preempt``."""
    simulation = Simulation(seed, preempt)
    with mock.patch.object(simulated_time, "STEPS_MAX", 1_000_000 if preempt else simulated_time.STEPS_MAX):
        simulation.run(lambda: _struck_anywhere(fault, Run(simulation, folder)))
    simulation.machine.close()


def _struck_anywhere(fault: str, run: Run) -> None:
    simulation = run.simulation
    by_signal = {f"driver-{name}": getattr(signal, f"SIG{name.upper()}") for name in ("int", "term", "hup", "quit")}
    with closing(FAULTS[fault](run)) as striking, on_machine(run):
        next(striking)
        sys.stdout = run.stdout or sys.stdout
        run.start()
        run.until(lambda: run.happened["run_began"])
        at = simulation.random.randrange(simulation.steps, simulation.steps + _STEPS[simulation._preempt > 0])
        run.until(lambda: simulation.steps >= at)
        struck = run.alive()
        if struck:
            with suppress(_NobodyThere):
                next(striking)
        killed = run.status == -signal.SIGKILL
        status = -signal.SIGKILL if killed else run.end()
        assert "Traceback" not in run.said and "Exception ignored" not in run.said, run.said
        errors = [row["Error"] for row in run.files.rows()]
        if killed:
            assert errors == [FINISHED] * len(errors), errors
            _next_run_cleans_up(run)
        else:
            assert status in (0, 128 + by_signal[fault]) if fault in by_signal else status in (0, 1, 3), run.said
            assert len(errors) == len(SCENARIOS) if run.happened["matrix_began"] else not errors, errors
            assert (errors == [FINISHED] * len(errors)) or status != 0, errors
        if fault in by_signal:
            finished = next((place for place, error in enumerate(errors) if error != FINISHED), len(errors))
            rest = errors[finished:]
            assert all(re.search("^interrupted|^not run: .*interrupted", error) for error in rest), errors
        if struck:
            next(striking, None)
        assert run.tool("clean")[0] == 0
        left = run.machine.left()
        assert not any(left.values()), left


_STEPS = {False: 2_500, True: 100_000}
"""About as many as a run has, with and without those between lines."""
