"""A simulated machine under the real driver: processes, namespaces, the engine, the link emulator, members, a client.

Nothing of it is real but files below a test's own folder. What the product asks the operating system for is answered
here (``simulated.on_machine`` lists each name), in the simulated time of a ``World``; the product's own code is whole,
from the command line to the requests of Docker's SDK, the control protocol of the emulator, and HTTP.
"""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests.exceptions
from docker.errors import APIError, NotFound

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.hosts import engine, netns
from containernet_env.hosts.limits import Limits
from containernet_env.model import load_contract as contract
from containernet_env.model.topology import Topology
from containernet_env.model.usage import Consumers, Consumption
from containernet_env.network.gate_plan import plan_gate
from containernet_env.stores.cluster import GATE
from tests.simulated_time import World
from tests.unit.answers import closed_loop, without_answers
from tests.unit.fakes import NO_TIMES, FakeEmulator

ELECTION_S = 1.0
"""After so long without its leader a cluster has another one, as with etcd's default timeouts."""
SCENARIO_S = 2.5
"""How long the load of a scenario takes where nothing disturbs it: a silence that begins in it is one of its own."""
_TICK_S = 0.1
_LATE_NS = 15_000
_CALL_S = 0.02
_CONTAINERD_S = 10.0
_PROBE_S = 2.0
_FIRST_PID = 1 << 23
"""Above the kernel's own limit (PID_MAX_LIMIT, 2^22), so that it is never the number of a real process."""


class Process:
    """A process of the machine. ``status`` is as of ``subprocess``: ``None`` while it lives."""

    def __init__(self, machine: Machine, name: str, parent: Process | None = None) -> None:
        self.machine, self.name, self.parent = machine, name, parent
        self.pid = next(machine.pids)
        self.status: int | None = None
        self.stopped_s: float | None = None
        self.pauses: list[tuple[float, float]] = []
        self.log = ""
        # Whoever holds a pidfd has a copy of the reading end, which becomes readable once the other one is closed.
        self.end, self._alive = os.pipe()
        self.at_end: list[Callable[[], None]] = []
        machine.processes[self.pid] = self
        if parent is not None and not parent.alive:  # it was killed while it started this one
            self.exit(-signal.SIGKILL)

    @property
    def alive(self) -> bool:
        return self.status is None

    @property
    def runs(self) -> bool:
        """Whether it lives and is not stopped."""
        return self.alive and self.stopped_s is None

    def signal(self, signum: int) -> None:
        if not self.alive:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        now_s = self.machine.now_s
        if signum == signal.SIGSTOP:
            self.stopped_s = now_s if self.stopped_s is None else self.stopped_s
        elif signum == signal.SIGCONT and self.stopped_s is not None:
            self.pauses.append((self.stopped_s, now_s))
            self.stopped_s = None
        elif signum in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            self.exit(-signum)

    def exit(self, status: int) -> None:
        if self.alive:
            self.status = status
            os.close(self._alive)
            for child in [other for other in self.machine.processes.values() if other.parent is self]:
                child.exit(-signal.SIGKILL)
            for call in self.at_end:
                call()

    def descriptors(self) -> list[int]:
        return [self.end, *([self._alive] if self.alive else [])]

    def paused_since(self, began_s: float) -> float:
        """The longest pause that ended after a moment, or goes on."""
        pauses = [*self.pauses, *([] if self.stopped_s is None else [(self.stopped_s, self.machine.now_s)])]
        return max((end_s - max(begin_s, began_s) for begin_s, end_s in pauses if end_s > began_s), default=0.0)


@dataclass
class Container:
    """What the engine knows of one."""

    id: str
    name: str
    labels: dict[str, str]
    image: str
    command: list[str]
    host_config: dict[str, Any]
    process: Process | None = None

    @property
    def host(self) -> str:
        return self.labels.get(engine.LABEL_HOST, "")


class Popen:
    """``subprocess.Popen`` of the programs that the driver starts; any other one fails the test."""

    def __init__(self, machine: Machine, argv: list[str], **options: Any) -> None:
        if machine.no_threads:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        machine.takes(0.002)
        self.machine, self.argv, self._output = machine, argv, "[]" if "-j" in argv else ""
        self._until_s: float | None = None  # of the prober
        program, verb = os.path.basename(argv[0]), argv[1] if len(argv) > 1 else ""
        emulates = verb in ("serve", "probe")
        assert emulates or program in ("ip", "tc"), f"an exact test starts no process: {argv}"
        self.process = Process(machine, f"link-emulator {verb}" if emulates else program)
        self.pid = self.process.pid
        if verb == "serve":
            control = machine.connections.pop(int(argv[argv.index("--control-fd") + 1]))
            machine.emulator = Emulator(machine, self.process, control)
            self.stderr = self._prints_nothing()
        elif verb == "probe":
            machine.prober = self.process
            self._began_s, self._until_s = machine.now_s, machine.now_s + _PROBE_S
            self._wall_offset_ns = machine.wall_offset_ns
            self._request: dict[str, Any] = {}
        else:
            self.process.exit(0)

    def poll(self) -> int | None:
        return self.process.status

    returncode = property(poll)

    def wait(self, timeout: float | None = None) -> int:
        if not self.machine.world.wait(lambda: not self.process.alive, timeout):
            raise subprocess.TimeoutExpired(self.argv, timeout or 0)
        assert self.process.status is not None
        return self.process.status

    def kill(self) -> None:
        if self.process.alive:
            self.process.signal(signal.SIGKILL)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:  # noqa: A002
        if self._until_s is None:
            return self._output, ""
        if input is not None:
            self._request = json.loads(input)
        machine, left_s = self.machine, self._until_s - self.machine.now_s
        machine.world.wait(lambda: not self.process.alive, min(left_s, timeout or left_s))
        if self.process.alive:
            if machine.now_s < self._until_s:
                raise subprocess.TimeoutExpired(self.argv, timeout or 0)
            self.process.exit(0)
        return machine.probed(self._request, self._began_s, self._wall_offset_ns), ""

    def __enter__(self) -> Popen:
        return self

    def __exit__(self, *_: object) -> None:
        if self._until_s is not None:
            self.machine.world.wait(lambda: not self.process.alive)

    @contextmanager
    def _prints_nothing(self) -> Iterator[tuple[bytes, ...]]:
        """Standard error: it ends with the process."""
        self.machine.world.wait(lambda: not self.process.alive)
        yield ()


# --- the link emulator -------------------------------------------------------------------------------------------

_HELLO = {
    "version": "simulated", "realtime": True, "realtime_reason": "", "kept_awake": True, "kept_awake_reason": "",
    "stamps": "kernel", "stamps_reason": "", "core": None, "latencies": {"timer_ns": 21_000, "wake_ns": 0},
    "self_test": {"passed": True, "reason": ""},
}  # fmt: skip


class Connection:
    """The driver's end of the control connection; ``incoming`` are lines of the emulator that were not read yet."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._fd = os.open(os.devnull, os.O_RDWR)
        self.incoming: deque[bytes] = deque()
        self.emulator: Emulator | None = None
        self.is_over = False

    def fileno(self) -> int:
        return self._fd

    def send(self, data: bytes, flags: int = 0) -> int:
        if self.is_over:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        assert self.emulator is not None
        self.emulator.take(bytes(data))
        return len(data)

    def makefile(self, mode: str) -> AbstractContextManager[Connection]:
        return nullcontext(self)

    def readline(self, limit: int) -> bytes:
        self._machine.world.wait(lambda: bool(self.incoming) or self.is_over)
        return self.incoming.popleft() if self.incoming else b""

    def shutdown(self, how: int) -> None:
        self.is_over = True
        if self.emulator is not None and self.emulator.process.runs:  # without its driver it ends
            self.emulator.process.exit(0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.shutdown(socket.SHUT_RDWR)


class Emulator(FakeEmulator):
    """The link emulator: its TAPs and links are there as long as its process."""

    def __init__(self, machine: Machine, process: Process, connection: Connection) -> None:
        super().__init__()
        self.machine, self.process, self.connection = machine, process, connection
        connection.emulator = self
        self._counted_s = machine.now_s
        self._waiting: deque[bytes] = deque()
        process.at_end.append(self._ended)

    def _ended(self) -> None:
        self.connection.is_over = True
        self.ports.clear()
        self.links.clear()

    def take(self, data: bytes) -> None:
        self._waiting.append(data)
        self.go_on()

    def go_on(self) -> None:
        """Answer what waits; also called when a stopped emulator is let go."""
        if self.process.runs and self.connection.is_over:
            self.process.exit(0)
        while self.process.runs and self._waiting:
            request = json.loads(self._waiting.popleft())
            try:
                result, problem = self._carry_out(**request), None
            except RunError as error:
                result, problem = None, str(error)
            at_ns = self.machine.world.now_ns
            reply = {"id": request["id"], "ok": problem is None, "at_ns": at_ns, "result": result, "error": problem}
            self.connection.incoming.append(json.dumps(reply).encode())

    def host_ended(self, process: Process) -> None:
        for name in [name for name, held in self.ports.items() if held["pid"] == process.pid]:
            del self.ports[name]
            if self.process.alive:
                event = {"event": "port_down", "port": name, "reason": "", "at_ns": self.machine.world.now_ns}
                self.connection.incoming.append(json.dumps(event).encode())

    def _carry_out(self, id: int, op: str, **fields: Any) -> Any:  # noqa: A002
        if op == "hello":
            return _HELLO | {"pid": self.process.pid}
        if op == "add_port" and not self.machine.processes[fields["pid"]].alive:
            raise RunError("there is no such process")
        result = self.carry_out(op, **fields)
        if op == "stats":
            pause_ns = round(self.process.paused_since(self._counted_s) * 1e9)
            if fields.get("reset"):
                self._counted_s = self.machine.now_s
            times = {"count": 1000, "p50_ns": 5_000, "p99_ns": 20_000, "max_ns": max(90_000, pause_ns)}
            result |= {"lateness": NO_TIMES | times, "latencies": _HELLO["latencies"]}
        return result


# --- members and the load ----------------------------------------------------------------------------------------


class Member:
    """An etcd behind its gate. ``serving_s``: from when on it answers."""

    def __init__(self, host: Process) -> None:
        self.host, self.serving_s, self.disk_full = host, float("inf"), False

    @property
    def runs(self) -> bool:
        return self.host.runs and self.host.machine.now_s >= self.serving_s


class Store:
    """The cluster: who leads follows from which members run, and from when on."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.members: dict[str, Member] = {}
        self.leader: str | None = None
        self.term = 1
        self._lost_s: float | None = None

    def started(self, name: str) -> None:
        member = self.members[name]
        if member.disk_full:
            self.fail_of_disk(member)
        member.serving_s = self._machine.now_s + 0.05

    def fail_of_disk(self, member: Member) -> None:
        member.host.log += "panic: write /var/lib/etcd/member/wal: no space left on device\n"
        member.host.exit(2)

    def look(self) -> None:
        """Have who should lead by now lead."""
        running = [name for name, member in self.members.items() if member.runs and self._has_majority(name)]
        if self.leader in running:
            self._lost_s = None
            return
        if self._lost_s is None:
            self._lost_s = self._machine.now_s
        wait_s = 0.1 if self.leader is None else ELECTION_S
        if running and self._machine.now_s - self._lost_s >= wait_s:
            self.leader, self.term = self._machine.world.random.choice(running), self.term + 1
            self._lost_s = None

    def _has_majority(self, name: str) -> bool:
        near = [one for one, member in self.members.items() if member.runs and not self._machine.apart(name, one)]
        return len(near) * 2 > len(self.members)

    @property
    def works(self) -> bool:
        """Whether a quorum runs under a leader that runs."""
        self.look()
        return self._lost_s is None and self.leader is not None

    def answer(self, name: str, port: int, method: str, path: str, body: Any) -> tuple[int, Any] | None:
        """``None``: not yet."""
        if path == "/v3/maintenance/status":
            self.look()
            names = list(self.members)
            led = self.leader is not None and self._lost_s is None
            leader, mine = (str(names.index(self.leader) + 1) if led and self.leader else "0"), names.index(name) + 1
            header = {"member_id": str(mine)}
            return 200, {"header": header, "leader": leader, "raftTerm": self.term, "version": "3.7.3"}
        if path == "/v3/kv/range":
            return (200, {}) if self.works else None
        return 200, {}


class Load:
    """The running benchmark: a client below the server that sends requests as long as it can."""

    def __init__(self, machine: Machine, server: Process, path: str, body: dict[str, Any]) -> None:
        self.machine, self.body, self.writes = machine, body, path != contract.PATHS["read"]
        self.client, self._host = Process(machine, "benchmark-client", server), machine.name_of(server)
        self.total = int(body["total"])
        self.start_s = float(body.get("startNs", 0)) / 1e9
        self.began_s = self.heard_s = max(machine.now_s, self.start_s)
        self.done = self.errors = 0
        self.cancelled_s: float | None = None
        self._stuck_s = 0.0

    def run(self) -> tuple[int, Any] | None:
        """The answer, once it has ended; ``None`` where the server ended before."""
        world, server = self.machine.world, self.client.parent
        assert server is not None
        while True:
            world.wait(lambda: not server.alive, _TICK_S)
            if not server.alive:
                return None
            if not server.runs:
                continue
            if not self.client.alive:
                return 500, {"error": "benchmark-client ended without a report (signal: killed)"}
            if self.client.runs:
                self.heard_s = self.machine.now_s
                if self.heard_s >= self.began_s:
                    self._send()
                if self.done >= self.total or self.cancelled_s is not None:
                    return self._report()
            elif self.cancelled_s is not None and self.machine.now_s - self.cancelled_s >= 5.0:
                self.client.exit(-signal.SIGKILL)

    def _send(self) -> None:
        """What a tick of the client's time does."""
        machine = self.machine
        names = self.body["endpoints"].split(",")
        wanted = [machine.store.members[machine.host_of_endpoint(end)] for end in names]
        if self.body.get("targetLeader") and machine.store.leader is not None:
            wanted = [machine.store.members[machine.store.leader]]
        full = next((member for member in machine.store.members.values() if member.disk_full), None)
        if self.writes and full is not None and full.host.alive:
            machine.store.fail_of_disk(full)
        refused = [member for member in wanted if not member.host.alive]
        links = machine.emulator is not None and machine.emulator.process.runs
        leader = machine.store.leader
        served = all(
            member.runs and not machine.apart(self._host, name, False) and not machine.apart(name, leader or name)
            for name, member in machine.store.members.items()
            if member in wanted
        )
        if not links or not machine.store.works or not served:
            self._stuck_s += _TICK_S
            if refused and links:
                self._fail()
            elif self._stuck_s >= float(self.body["requestTimeout"]):
                self._stuck_s = 0.0
                self._fail()
            return
        self._stuck_s = 0.0
        self.done = min(self.total, self.done + max(1, round(self.total * _TICK_S / SCENARIO_S)))

    def _fail(self) -> None:
        """Each client's request."""
        failed = min(self.total - self.done, int(self.body.get("clients", 1)))
        self.done += failed
        self.errors += failed

    def _report(self) -> tuple[int, Any]:
        ok, pause_s = self.done - self.errors, self.client.paused_since(self.began_s)
        made = _report() | {
            "ok": ok, "failed": self.errors, "done": self.done, "total_s": self.machine.now_s - self.began_s,
            "outcomes": {"ok": ok, "failed": self.errors, "unknown": 0, "unsent": self.total - self.done},
            "began_ns": round(self.began_s * 1e9),
            "pause_s": pause_s, "paused_s": pause_s, "pauses": int(pause_s > 0),
        }  # fmt: skip
        self.client.exit(0)
        if self.errors or self.cancelled_s is not None:
            return 500, {"error": f"{self.errors} of {self.done} requests failed: Unavailable", "result": made}
        return 200, made

    def progress(self) -> dict[str, Any]:
        return _NO_PROGRESS | {
            "running": True, "job": "1", "operation": "write", "done": self.done, "total": self.total,
            "errors": self.errors,
            "began_ns": round(self.began_s * 1e9) if self.machine.now_s >= self.began_s else None,
            "client_silent_s": self.machine.now_s - self.heard_s,
        }  # fmt: skip


_report = cache(closed_loop)
_NO_PROGRESS = {
    "running": False, "job": None, "operation": None, "done": 0, "total": 0, "errors": 0, "warmup_done": 0,
    "began_ns": None, "elapsed_s": 0, "client_silent_s": 0,
}  # fmt: skip


class Socket:
    """A socket in the namespace of a process: HTTP requests one at a time, or pings that a selector waits for."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self._machine, self._process = machine, process
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._timeout_s: float | None = None
        self._port, self._sent = 0, b""

    def settimeout(self, seconds: float | None) -> None:
        self._timeout_s = seconds

    def setblocking(self, flag: bool) -> None:
        pass

    def fileno(self) -> int:
        return self._ours.fileno()

    def connect(self, address: tuple[str, int] | str) -> None:
        self._machine.takes(0.0005)
        self._port = 0 if isinstance(address, str) else address[1]
        if not self._machine.listens(self._process, address):
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    def sendall(self, data: bytes) -> None:
        self._sent += data

    def send(self, data: bytes) -> int:
        """A ping."""
        if not self._process.alive:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if self._process.runs:
            _answer(self._theirs)
        else:
            self._machine.unanswered.append((self._process, self._theirs))
        return len(data)

    def recv(self, size: int) -> bytes:
        return self._ours.recv(size)

    def makefile(self, mode: str, *_: Any, **__: Any) -> io.BytesIO:
        head, _, payload = self._sent.partition(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
        body = json.loads(payload) if payload else None
        status, value = self._machine.request(self._process, self._port, method, path, body, self._timeout_s)
        text = json.dumps(value).encode()
        return io.BytesIO(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


# --- the engine --------------------------------------------------------------------------------------------------


class Engine(engine._Api):
    """Docker's SDK as far as the product calls it, on an engine that ``runs``, is ``silent`` or has ``ended``.

    ``containerd_s``: until when it has no containerd. What goes wrong on the way to it is the product's own to tell.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._found, self._silent = True, False
        self.state, self.containerd_s = "runs", 0.0
        self.held: dict[str, Container] = {}
        self.listeners: list[Events] = []
        self._ids = itertools.count(1)

    def reach(self, request: Any, timeout: float) -> None:
        """``requests.Session.send``: whether the engine answers."""
        if not self._machine.world.wait(lambda: self.state != "silent", timeout):
            raise requests.exceptions.ReadTimeout("timed out")
        if self.state == "ended":
            raise requests.exceptions.ConnectionError("no such file or directory")

    def _ask(self, container: str = "", takes_s: float = _CALL_S, by_containerd: bool = False) -> Any:
        """Reach the engine; the container that is named, where one is."""
        self._machine.takes(takes_s)
        self.send(None, timeout=engine._CALL_TIMEOUT_S)
        if by_containerd and self._machine.now_s < self.containerd_s:
            answer = SimpleNamespace(status_code=500, reason="Internal Server Error", url="")
            raise APIError("500", response=answer, explanation="containerd: connection refused")
        if container and container not in self.held:
            raise NotFound("404", explanation=f"No such container: {container}")
        return self.held.get(container)

    def containers(self, filters: Any = None, **options: Any) -> list[dict[str, Any]]:
        self._ask()
        wanted = [label.partition("=") for label in (filters or {}).get("label", ())]
        return [
            {"Id": held.id, "Names": [f"/{held.name}"], "Labels": held.labels, "State": "running", "Image": held.image}
            for held in self.held.values()
            if all(name in held.labels and (not sign or held.labels[name] == value) for name, sign, value in wanted)
        ]

    def inspect_container(self, container: str) -> dict[str, Any]:
        held = self._ask(container)
        process, status = held.process, held.process.status if held.process is not None else None
        code = 0 if status is None else status if status >= 0 else 128 - status
        running = process is not None and process.alive
        pid = process.pid if running else 0
        state = {"Running": running, "ExitCode": code, "OOMKilled": False, "FinishedAt": "", "Pid": pid}
        return {"Id": container, "State": state, "Config": {"Hostname": held.host}}

    def inspect_image(self, image: str) -> Any:
        self._ask()
        return {"Id": f"sha256:{image}", "Config": {}}

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, **options: Any) -> Any:
        self._ask(takes_s=0.05)
        made = Container(
            f"{next(self._ids):064x}",
            *(options[name] for name in ("name", "labels", "image", "entrypoint", "host_config")),
        )
        self.held[made.id] = made
        return {"Id": made.id, "Warnings": []}

    def start(self, container: str) -> Any:
        held = self._ask(container, 0.1, by_containerd=True)
        held.process = process = Process(self._machine, held.command[0])
        process.at_end.append(partial(self._machine.host_ended, process))
        if held.command[0] == "wait-at-gate":
            self._machine.store.members[held.host] = Member(process)

    def remove_container(self, container: str, **options: Any) -> Any:
        held = self._ask(container, 0.1, by_containerd=True)
        if held.process is not None:
            held.process.exit(-signal.SIGKILL)
        del self.held[container]

    def logs(self, container: str, **options: Any) -> bytes:
        held = self._ask(container)
        return b"" if held.process is None else held.process.log.encode()

    def events(self, since: Any = None, **options: Any) -> Any:
        self._ask()
        if since is not None:
            return iter(())
        self.listeners.append(Events())
        return self.listeners[-1]

    def kill_containerd(self) -> None:
        self.containerd_s = self._machine.now_s + _CONTAINERD_S

    def end(self, kill: bool) -> None:
        """By SIGKILL its containers run on; by SIGTERM it stops listening, ends them, and its connections last."""
        self.state = "ended"
        if not kill:
            for held in self.held.values():
                for events in self.listeners:
                    events.waiting.put({"Actor": {"ID": held.id, "Attributes": {"signal": "15"}}})
            self._machine.takes(0.05)
            for held in self.held.values():
                if held.process is not None:
                    held.process.exit(-signal.SIGTERM)
        for events in self.listeners:
            events.close()


class Events:
    """A connection to the engine's events."""

    def __init__(self) -> None:
        self.waiting: clock.SimpleQueue[dict[str, Any] | None] = clock.SimpleQueue()

    def __iter__(self) -> Iterator[dict[str, Any] | None]:
        return iter(self.waiting.get, None)

    def close(self) -> None:
        self.waiting.put(None)


# --- all of it ---------------------------------------------------------------------------------------------------


class Machine:
    """See the module. ``owner`` is what the running driver labels its containers with, as ``hosts.owner`` has it."""

    def __init__(self, world: World, topology: Topology) -> None:
        self.world, self._topology = world, topology
        self.pids = itertools.count(_FIRST_PID)
        self.processes: dict[int, Process] = {}
        self.engine, self.store = Engine(self), Store(self)
        self.emulator: Emulator | None = None
        self.prober: Process | None = None
        self.loads_of: dict[int, Load] = {}  # by the pid of the server below which it runs
        self.benchmarks: list[tuple[str, dict[str, Any]]] = []
        """All requests for a benchmark: the name of the client's host, and the body."""
        self.late: dict[str, str] = {}
        """By the name of a client whose loads are ready too late, the reason that it reports."""
        self.connections: dict[int, Connection] = {}
        self.wall_offset_ns = 0
        self.no_threads = False
        self.dead_owners: set[str] = set()
        self._drivers = itertools.count(1)
        self.owner = ""
        self.unanswered: list[tuple[Process, socket.socket]] = []
        self.users: list[str] = []
        self.use = SimpleNamespace(read=lambda: _NOTHING_USED, close=lambda: None)
        self.begin_driver()

    @property
    def now_s(self) -> float:
        return self.world.now_ns / 1e9

    @property
    def load(self) -> Load | None:
        """The running one, of several clients the first one's."""
        return next(iter(self.loads_of.values()), None)

    def takes(self, seconds: float) -> None:
        """A call of the system takes about so long."""
        self.world.wait(lambda: False, seconds * self.world.random.uniform(0.5, 2.0))

    # --- drivers -------------------------------------------------------------------------------------------------

    def begin_driver(self) -> None:
        self.owner = f"{'0' * 8}-0000-0000-0000-{'0' * 12}/{next(self._drivers)}/1"

    def driver_killed(self) -> None:
        """The kernel closes what the driver had open; what watches that ends."""
        self.dead_owners.add(self.owner)
        if self.emulator is not None:
            self.emulator.connection.shutdown(socket.SHUT_RDWR)
        if self.prober is not None and self.prober.alive:
            self.prober.exit(1)
        for events in self.engine.listeners:
            events.close()

    def host(self, name: str) -> Process | None:
        """The first process of a living host of the running driver."""
        processes = (held.process for held in self.engine.held.values() if held.host == name)
        return next((process for process in processes if process is not None and process.alive), None)

    def host_of_endpoint(self, endpoint: str) -> str:
        ip = endpoint.rpartition(":")[0]
        return next(host.name for host in self._topology.members if str(host.ip) == ip)

    def apart(self, one: str, two: str, by_partition: bool = True) -> bool:
        """Whether frames between two hosts are lost: by a partition, or where a link on their way is down."""
        if self.emulator is None or one == two:
            return False
        links = self.emulator.links
        for hop in self._topology.hops(one, two):
            names = (f"{hop.sender}-{hop.receiver}", f"{hop.receiver}-{hop.sender}")
            if not all(links[name]["up"] for name in names if name in links):
                return True
        sets = [{port.partition("-")[0] for port in ports} for ports in self.emulator.sets]
        of_both = [next((at for at, names in enumerate(sets) if name in names), None) for name in (one, two)]
        return by_partition and None not in of_both and of_both[0] != of_both[1]

    def name_of(self, process: Process) -> str:
        return next(held.host for held in self.engine.held.values() if held.process is process)

    def cont(self, process: Process) -> None:
        """Let a stopped process go on, and whatever waits for it."""
        if process.alive:
            process.signal(signal.SIGCONT)
        if self.emulator is not None and process is self.emulator.process:
            self.emulator.go_on()
        for held, theirs in self.unanswered:
            if held is process:
                _answer(theirs)
        self.unanswered = [entry for entry in self.unanswered if entry[0] is not process]

    # --- HTTP ----------------------------------------------------------------------------------------------------

    def listens(self, process: Process, address: tuple[str, int] | str) -> bool:
        """A member does on its ports, the benchmark server on the abstract socket that it is started with."""
        if not process.alive:
            return False
        name = self.name_of(process)
        if name not in self.store.members:
            held = next(held for held in self.engine.held.values() if held.process is process)
            return isinstance(address, str) and f"--listen=unix:@{address[1:]}" in held.command
        return self.now_s >= self.store.members[name].serving_s

    def request(
        self, process: Process, port: int, method: str, path: str, body: Any, timeout_s: float | None
    ) -> tuple[int, Any]:
        """One request to a host. Raises as a socket does."""
        name, until_s = self.name_of(process), self.now_s + (timeout_s or 1e9)
        answer: Callable[[], tuple[int, Any] | None]
        if name in self.store.members:
            answer = partial(self.store.answer, name, port, method, path, body)
        else:
            answer = partial(self._serve, process, method, path, body)
        while True:
            self.world.wait(lambda: process.runs or not process.alive, until_s - self.now_s)
            if not process.alive:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            if process.runs:
                self.takes(0.001)
                found = answer()
                if not process.alive:
                    raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
                if found is not None and process.runs:
                    return found
                self.world.wait(lambda: not process.alive, 0.05)
            if self.now_s >= until_s:
                raise TimeoutError("timed out")

    def _serve(self, server: Process, method: str, path: str, body: Any) -> tuple[int, Any] | None:
        if path == "/healthz":
            return 200, {"ok": True}
        load = self.loads_of.get(server.pid)
        if path == "/progress":
            return 200, _NO_PROGRESS if load is None else load.progress()
        if path == "/benchmark/cancel":
            if load is not None and load.cancelled_s is None:
                load.cancelled_s = self.now_s
            return 200, {}
        if path.startswith(contract.PATHS["result"]):
            return 404, {"error": "no such benchmark"}
        self.benchmarks.append((self.name_of(server), dict(body)))
        if (late := self.late.get(self.name_of(server))) is not None:
            never = without_answers(_report(), 0) | {"began_ns": None, "total_s": 0.0, "reason": late, "requests": 120}
            return 500, {"error": late, "result": never}
        load = self.loads_of[server.pid] = Load(self, server, path, body)
        try:
            return load.run()
        finally:
            del self.loads_of[server.pid]

    def probed(self, request: dict[str, Any], began_s: float, wall_offset_ns: int) -> str:
        """The key of what the prober found; see ``loads``."""
        names = tuple(host["name"] for host in request.get("hosts", ()))
        emulator = None if self.emulator is None else self.emulator.process
        paused = emulator is None or not emulator.runs or emulator.paused_since(began_s) > 0
        return json.dumps([names, paused, self.wall_offset_ns - wall_offset_ns])

    def loads(self, text: str) -> Any:
        names, paused, step_ns = json.loads(text)
        streams = _streams(self._topology, tuple(names), paused)
        hosts = [{"name": name, "warm": True, "ring_lost": 0, "refused": 0} for name in names]
        return {"streams": streams, "hosts": hosts, "warmup_ns": 12_000_000, "clock_step_ns": step_ns}

    def host_ended(self, process: Process) -> None:
        if self.emulator is not None:
            self.emulator.host_ended(process)
        self.unanswered = [entry for entry in self.unanswered if entry[0] is not process]

    # --- what is left --------------------------------------------------------------------------------------------

    def descriptors(self) -> set[int]:
        """Those of this process that stand for something of the machine, and not of the driver."""
        return {fd for process in self.processes.values() for fd in process.descriptors()}

    def close(self) -> None:
        """Let go of all descriptors; nothing of it is used any more."""
        for process in self.processes.values():
            for fd in process.descriptors():
                os.close(fd)
        self.processes.clear()

    def left(self) -> dict[str, Any]:
        """What a run has left on the machine; empty values where nothing is."""
        return {
            "containers": sorted(held.name for held in self.engine.held.values() if held.id not in self.users),
            "processes": sorted(process.name for process in self.processes.values() if process.alive),
            "links": sorted(self.emulator.links) if self.emulator is not None else [],
        }

    # --- what of the product it takes the place of ---------------------------------------------------------------

    def pidfd_open(self, pid: int, flags: int = 0) -> int:
        process = self.processes.get(pid)
        if process is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        return os.dup(process.end)

    def pidfd_send_signal(self, pidfd: int, signum: int) -> None:
        held = os.fstat(pidfd).st_ino
        next(process for process in self.processes.values() if os.fstat(process.end).st_ino == held).signal(signum)

    def living(self, pid: int) -> Process:
        process = self.processes.get(pid)
        if process is None or not process.alive:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return process

    def cgroups_of(self, pid: int) -> Limits:
        try:
            process = self.living(pid)
        except OSError as error:
            raise RunError(f"cannot find the cgroups of process {pid}: {error.strerror}") from error
        config = next(held for held in self.engine.held.values() if held.process is process).host_config
        period = config.get("cpu_period", 100_000)
        memory, swap = config.get("mem_limit"), config.get("memswap_limit")
        return Limits(config.get("cpu_quota"), period, memory, swap, config.get("cpuset_cpus"))

    def open_file(self, root: Path, path: str, *_: Any) -> int:
        """``container_files.open_file``, which opens the gate of a member."""
        process = self.living(int(root.parts[2]))
        if path != GATE:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self.store.started(self.name_of(process))
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def socketpair(self) -> tuple[Connection, Any]:
        ours, theirs = Connection(self), Connection(self)
        self.connections[theirs.fileno()] = ours
        return ours, theirs

    def socket_in(self, pid: int, *_: Any) -> Socket:
        try:
            return Socket(self, self.living(pid))
        except OSError as error:
            raise netns.ProcessGoneError(f"cannot enter the network namespace of process {pid}") from error

    def is_own(self, pid: int) -> bool:
        try:
            self.living(pid)
        except OSError as error:
            raise RunError(f"process {pid} has no network namespace: {error.strerror}") from error
        return False


_NOTHING_USED = Consumers(members={}, client=None, links=None, driver=Consumption(), machine=Consumption())


def _answer(theirs: socket.socket) -> None:
    if theirs.fileno() >= 0:
        theirs.send(b"pong")


@cache
def _streams(topology: Topology, names: tuple[str, ...], paused: bool) -> list[dict[str, Any]]:
    """What the prober finds between these hosts: no link has a rate or loses frames, so each has the delay of its path.

    Where the emulator was ``paused``, nothing has arrived.
    """
    plan, found = plan_gate(topology, list(names)), []
    for of in plan.streams:
        apart_ns = max(of.interval_ns, 2_000)
        sent_ns = [of.start_ns + number * apart_ns for number in range(of.count)]
        sent_ns = [at_ns for at_ns in sent_ns if at_ns <= of.until_ns]
        delay_ns = sum(hop.spec.delay_ns for hop in plan.paths[of.sender, of.receiver]) + _LATE_NS
        answer: dict[str, Any] = {"sent": len(sent_ns), "received": 0 if paused else len(sent_ns)}
        if not of.count_only:
            answer |= {"sent_ns": sent_ns, "delay_ns": [-1 if paused else delay_ns] * len(sent_ns)}
        found.append(answer)
    return found
