"""One run of the tool as a process of its own: started, followed to a moment, ended, and what it left."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker

from containernet_env.hosts import engine, owner
from containernet_env.results.columns import COLUMNS
from tests.faults.moments import Course, Missed
from tests.faults.own_engine import OwnEngine
from tests.faults.table import BRING_UP, HEAVY, PROOF, READ, SCENARIOS, TEAR_DOWN, WRITE

PROJECT = Path(__file__).resolve().parents[2]
# The command as it is installed, with the package of this clone.
COMMAND = (
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'containernet-env'; from containernet_env.__main__ import main; main()",
)
LOCK = Path("/run/containernet-env.lock")

MOMENT_DEADLINE_S = 60.0
# Longer than any promised end but those of the slow cells, where a stopped process keeps a bring-up for its 60 s.
RUN_DEADLINE_S, SLOW_RUN_DEADLINE_S = 45.0, 100.0
_TARGET_DEADLINE_S = 10.0
# Of a driver that is stopped: nothing appears any more.
_FROZEN_TARGET_DEADLINE_S = 0.2
# How far into a scenario a fault strikes: its requests are under way, and enough are still to come.
_INTO_SCENARIO_S = 0.15

_MEMBER = {"mem": "256m", "cpus": 1, "bandwidth": 1000, "link_delay": "500us"}
MEMBERS = ("etcd1", "etcd2", "etcd3")


def topology(**changes: Any) -> list[dict[str, Any]]:
    """Three members; an RTT of 2 ms, so that two hundred requests one after the other take a second."""
    return [{"ip": f"10.0.0.{251 + number}", **_MEMBER, **changes} for number in range(3)]


def scenarios(timeout: str, factor: int = 1) -> dict[str, Any]:
    """The three scenarios of ``table.SCENARIOS``, two thirds of a second each, whose requests have this deadline.

    ``factor`` times as many requests of the heavy write, whose time is the machine's and not the network's.
    """
    size = {"keySize": 8, "valSize": 64}
    one, many = {"clients": 1, "conns": 1, "timeout": timeout}, {"clients": 100, "conns": 10, "timeout": timeout}
    by_moment = {
        WRITE: {"type": "write", "load": {"total": 120, **one}, "data": size, "target": "leader"},
        HEAVY: {"type": "write", "load": {"total": 3000 * factor, **many}, "data": size, "target": "cluster"},
        READ: {"type": "read", "load": {"total": 120, **one}, "consistency": "l"},
    }
    return {"dataset": {**size, "keys": 100}, "scenarios": [by_moment[moment] for moment in SCENARIOS]}


@dataclass
class Files:
    """What a run reads and writes. ``out`` may be moved before the run starts. ``factor``: see ``scenarios``."""

    folder: Path
    factor: int = 1
    out: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config, self.scenarios = self.folder / "config.json", self.folder / "scenarios.json"
        self.said, self.out = self.folder / "said.txt", self.folder / "results" / "out.csv"
        self.out.parent.mkdir(exist_ok=True)
        self.config.write_text(json.dumps(topology()))
        self.set_deadline("1s")

    def set_deadline(self, timeout: str) -> None:
        """Write the scenarios anew, with another deadline of their requests."""
        self.scenarios.write_text(json.dumps(scenarios(timeout, self.factor)))

    def only(self, count: int) -> None:
        """Leave out all scenarios but the first ones."""
        held = json.loads(self.scenarios.read_text())
        self.scenarios.write_text(json.dumps({**held, "scenarios": held["scenarios"][:count]}))

    @property
    def runs(self) -> Path:
        """Where its run directories are."""
        return self.out.with_suffix(".runs")


class Run:
    """A run as a process, on an engine of the tests' ``own`` where there is one.

    ``stdout`` is a file descriptor in place of the file that the output goes to.
    """

    def __init__(self, folder: Path, own: OwnEngine | None = None, factor: int = 1) -> None:
        self.files = Files(folder, factor)
        self.own_engine = own
        self.environment = dict(os.environ) if own is None else own.environment
        self.wrapper: Sequence[str] = ()
        self.stdout: int | None = None
        self.course = Course(self.files.runs)
        self._process: subprocess.Popen[bytes] | None = None
        self._client: docker.DockerClient | None = None
        self._frozen = False

    # --- its life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it in a session of its own."""
        self.course = Course(self.files.runs)
        files = self.files
        command = [*self.wrapper, *COMMAND, "run", str(files.config), str(files.out)]
        with files.said.open("ab") as said:
            stdout = said.fileno() if self.stdout is None else self.stdout
            self._process = subprocess.Popen(
                [*command, "--scenarios", str(files.scenarios), "--port", "18080"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stdout if os.isatty(stdout) else said,  # a terminal is there for both
                cwd=PROJECT,
                env=self.environment,
                start_new_session=True,
            )

    @property
    def driver(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        """Whether the driver runs."""
        assert self._process is not None
        return self._process.poll() is None

    def reach(self, moment: str) -> None:
        """Return within the moment. The driver is stopped at the tear-down, which is shorter than any look at it."""
        try:
            self.course.wait_for(moment, MOMENT_DEADLINE_S, self.alive)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None
        if moment == BRING_UP:
            self.wait_for_target(lambda: self.host(MEMBERS[0]))
        elif moment == TEAR_DOWN:
            os.kill(self.driver, signal.SIGSTOP)
            self._frozen = True
        elif moment == PROOF:
            self.wait_for_target(self.prober)
        elif moment in SCENARIOS:
            time.sleep(_INTO_SCENARIO_S)
        if self.course.is_over(moment):
            self.resume()
            raise Missed(moment)

    def resume(self) -> None:
        """Let a driver go on that ``reach`` has stopped."""
        self._frozen = False
        if self.alive():
            os.kill(self.driver, signal.SIGCONT)

    def wait(self, deadline_s: float = RUN_DEADLINE_S) -> tuple[int, str]:
        """Its exit status and what it printed. Raises AssertionError where it takes longer."""
        assert self._process is not None
        try:
            status = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run did not end within {deadline_s:g} s: {self.course.events()[-2:]}") from None
        return status, self.said()

    def said(self) -> str:
        """What it has printed so far."""
        return self.files.said.read_text(errors="replace") if self.files.said.exists() else ""

    def close(self) -> None:
        """The run has ended, and left nothing."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def stop(self) -> None:
        """End it in any case, and remove what it leaves; for a cell that has failed, or missed its moment."""
        self.close()
        if self._process is not None and self.alive():
            self.resume()
            os.kill(self.driver, signal.SIGTERM)
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                os.kill(self.driver, signal.SIGKILL)
                self._process.wait(10)
        tool("clean", environment=self.environment)

    # --- whom a fault can strike -------------------------------------------------------------------------------

    def wait_for_target(self, find: Any) -> int:
        """The process that ``find`` finds, as soon as there is one. Raises ``Missed`` where none appears."""
        deadline = time.monotonic() + (_FROZEN_TARGET_DEADLINE_S if self._frozen else _TARGET_DEADLINE_S)
        while time.monotonic() < deadline and self.alive():
            if (pid := find()) is not None:
                return int(pid)
            time.sleep(0.002)
        raise Missed(f"no {getattr(find, '__name__', find)}")

    def emulator(self) -> int | None:
        """The link emulator."""
        return self._child("link-emulator", "serve")

    def prober(self) -> int | None:
        """The network's prober."""
        return self._child("link-emulator", "probe")

    def server(self) -> int | None:
        """The benchmark server."""
        return self.host("benchmark")

    def client(self) -> int | None:
        """The running benchmark's client."""
        server = self.server()
        ours = ("benchmark-client", "benchmark-client-tls")
        return next((pid for pid in below(server) if program_of(pid) in ours), None) if server else None

    def host(self, name: str) -> int | None:
        """The first process of a host's container."""
        if self._client is None:
            address = self.environment.get("DOCKER_HOST") or engine.address()
            self._client = docker.DockerClient(base_url=address, version="auto", timeout=20)
        api = self._client.api
        for row in api.containers(filters={"label": [f"{engine.LABEL_HOST}={name}"]}):
            if row["Labels"].get(owner.LABEL, "").split("/")[1:2] == [str(self.driver)]:
                return api.inspect_container(row["Id"])["State"]["Pid"] or None
        return None

    def leader(self) -> str:
        """The name of the member that led at the start; the first one before there is a leader."""
        for path in self.files.runs.glob("*/manifest.json"):
            store = json.loads(path.read_text()).get("store") or {}
            return str(store.get("leader_at_start") or MEMBERS[0])
        return MEMBERS[0]

    def followers(self) -> list[str]:
        """The names of the other members."""
        return [name for name in MEMBERS if name != self.leader()]

    def _child(self, *words: str) -> int | None:
        return next((pid for pid in children(self.driver) if all(word in words_of(pid) for word in words)), None)

    # --- what it left ------------------------------------------------------------------------------------------

    def rows(self, path: Path | None = None) -> list[dict[str, str]]:
        """The rows of OUT (or of ``path``), read strictly: our header, whole lines, a value for each column."""
        path = path or self.files.out
        if not path.exists():
            return []
        text = path.read_text(encoding="utf-8")
        assert text.endswith("\n"), f"{path.name} ends within a line: {text[-80:]!r}"
        header, *lines = csv.reader(text.splitlines(), strict=True)
        assert tuple(header) == COLUMNS, header
        assert all(len(line) == len(COLUMNS) for line in lines), [len(line) for line in lines]
        return [dict(zip(COLUMNS, line, strict=True)) for line in lines]

    def record(self) -> list[dict[str, Any]]:
        """The lines of scenarios.jsonl of all run directories."""
        lines = []
        for path in sorted(self.files.runs.glob("*/scenarios.jsonl")):
            lines += [json.loads(line) for line in path.read_text().splitlines()]
        return lines


def tool(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Carry out another command of the tool; its exit status and output."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=PROJECT,
        env=environment,
    )
    return done.returncode, done.stdout + done.stderr


def words_of(pid: int) -> str:
    """The command line of a process; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def program_of(pid: int) -> str:
    """The name of a process's program; empty where there is none."""
    return os.path.basename(words_of(pid).split(" ")[0])


def children(pid: int) -> list[int]:
    """The processes that a process has started, from any of its threads."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def below(pid: int) -> list[int]:
    """Children of a process, and theirs."""
    return [found for child in children(pid) for found in (child, *below(child))]
