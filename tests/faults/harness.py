"""One run of the tool as a process of its own: started, followed to a moment by its events, ended, and what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from containernet_env.hosts import engine, owner
from containernet_env.hosts.counters import traffic
from tests.deadline import HANG_S, eventually, let_pass
from tests.docker.runs import PROJECT, child
from tests.faults.files import MEMBERS, Files
from tests.faults.own_engine import OwnEngine
from tests.faults.table import BEGINNINGS, BRING_UP, ENDS, PROOF, SCENARIOS
from tests.processes import below, is_stopped, program_of

# The command as it is installed, with the package of this clone.
COMMAND = (
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'containernet-env'; from containernet_env.__main__ import main; main()",
)
LOCK = Path("/run/containernet-env.lock")

_LOOK_S = 0.002
_CONNECTED_FRAMES = 200
"""Ten connections and their first requests send fewer frames."""


class Run:
    """A run as a process, on an engine of the tests' ``own`` where there is one; ``struck``: at which moment.

    ``stdout`` is a file descriptor in place of the file that the output goes to.
    """

    def __init__(self, folder: Path, own: OwnEngine | None = None, struck: str = "") -> None:
        self.files = Files(folder, struck)
        self.files.set_deadline("10s")  # on a busy machine a request may take more than the second of simulated runs
        self.own_engine = own
        self.environment = dict(os.environ) if own is None else own.environment
        self.wrapper: Sequence[str] = ()
        self.stdout: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False
        self._sent_before: dict[int, int] = {}  # of clients, when they were first seen

    def start(self) -> None:
        files = self.files
        with files.said.open("ab") as said:
            stdout = said.fileno() if self.stdout is None else self.stdout
            self._process = subprocess.Popen(
                [*self.wrapper, *COMMAND, *files.command],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stdout if os.isatty(stdout) else said,  # a terminal is there for both
                cwd=PROJECT,
                env=self.environment,
                start_new_session=True,
            )

    @property
    def driver(self) -> int:
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        assert self._process is not None
        return self._process.poll() is None

    def events(self) -> list[dict[str, Any]]:
        """All of the first run directory so far; a line that is being written is left out."""
        text = b""
        with suppress(OSError):  # where the fault removes it
            for path in sorted(self.files.runs.glob("*/events.jsonl"))[:1]:
                text = path.read_bytes()
        return [json.loads(line) for line in text.split(b"\n")[:-1]]

    def happened(self, kind: str, times: int) -> bool:
        return sum(event["kind"] == kind for event in self.events()) >= times

    def reach(self, moment: str) -> None:
        """Return within the moment. But for the bring-up, where a fault waits for its target, the driver is stopped.

        So the moment lasts until ``resume``. See ``check_within``.
        """

        def begun() -> bool:
            runs, found = self.alive(), self.happened(*BEGINNINGS[moment])
            assert runs or found, f"the run ended before its {moment}"
            return found

        try:
            eventually(begun, f"the run's {moment} begins", interval_s=_LOOK_S)
            if moment == BRING_UP:
                self.wait_for_target(lambda: self.host(MEMBERS[0]))
            elif moment == PROOF:
                self.wait_for_target(self.prober)
            elif moment in SCENARIOS:
                self.wait_for_target(self.client)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None
        if moment != BRING_UP:
            self.send([self.driver], signal.SIGSTOP)
            self._frozen = True
        self.check_within(moment)

    def check_within(self, moment: str) -> None:
        """Skip the test where the moment is over, as where this process was kept from running for seconds."""
        if self.happened(*ENDS[moment]):
            pytest.skip(f"disturbed: the {moment} was over before the fault could strike")

    def resume(self) -> None:
        """Let a driver go on that ``reach`` has stopped."""
        self._frozen = False
        if self.alive():
            os.kill(self.driver, signal.SIGCONT)

    def wait(self) -> tuple[int, str]:
        """Its exit status and what it printed, once it has ended."""
        assert self._process is not None
        try:
            return self._process.wait(2 * HANG_S), self.said()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run hangs: {self.events()[-2:]}\n{self.said()}") from None

    def said(self) -> str:
        return self.files.said.read_text(errors="replace") if self.files.said.exists() else ""

    def tool(self, *words: str) -> tuple[int, str]:
        return tool(*words, environment=self.environment)

    def stop(self) -> None:
        """End it in any case, and remove what it leaves; for a cell that has failed."""
        if self._process is not None and self.alive():
            self.resume()
            os.kill(self.driver, signal.SIGTERM)
            try:
                self._process.wait(HANG_S)
            except subprocess.TimeoutExpired:
                os.kill(self.driver, signal.SIGKILL)
                self._process.wait(HANG_S)
        self.tool("clean")

    # --- whom a fault can strike, and with what ---------------------------------------------------------------------

    def wait_for_target(self, find: Callable[[], int | None]) -> int:
        """The process that ``find`` finds, as soon as there is one; there is none to come while the driver is stopped.

        Skips the test where there is none any more.
        """

        found: list[int | None] = []

        def look() -> bool:
            found[:] = [find()]
            return found[0] is not None or self._frozen or not self.alive()

        eventually(look, "there is a process to strike", interval_s=_LOOK_S)
        if found[0] is None:
            pytest.skip("disturbed: the process to strike has ended already")
        return found[0]

    def emulator(self) -> int | None:
        return child(self.driver, "link-emulator", "serve")

    def prober(self) -> int | None:
        return child(self.driver, "link-emulator", "probe")

    def client(self) -> int | None:
        """The load generator, once its load is under way: a pause before that is in no figure."""
        server = self.host("benchmark")
        ours = ("benchmark-client", "benchmark-client-tls")
        found = next((pid for pid in below(server) if program_of(pid) in ours), None) if server else None
        if found is None or (sent := _sent_frames(found)) is None:
            return None
        return found if sent - self._sent_before.setdefault(found, sent) > _CONNECTED_FRAMES else None

    def host(self, name: str) -> int | None:
        """The first process of a host's container."""
        with nullcontext(engine.client()) if self.own_engine is None else closing(self.own_engine.client()) as client:
            for row in client.api.containers(filters={"label": [f"{engine.LABEL_HOST}={name}"]}):
                if row["Labels"].get(owner.LABEL, "").split("/")[1:2] == [str(self.driver)]:
                    return client.api.inspect_container(row["Id"])["State"]["Pid"] or None
        return None

    @property
    def leader(self) -> str:
        """The name of the member that led at the start; the first one before there is a leader."""
        for path in self.files.runs.glob("*/manifest.json"):
            store = json.loads(path.read_text()).get("store") or {}
            return str(store.get("leader_at_start") or MEMBERS[0])
        return MEMBERS[0]

    def get_signal(self, signum: int) -> None:
        os.kill(self.driver, signum)

    def send(self, pids: Sequence[int], signum: int) -> None:
        """Those that live still get a signal."""
        for pid in pids:
            if signum == signal.SIGSTOP:  # A pause by tests/noise.py would end it.
                eventually(lambda pid=pid: not is_stopped(pid), f"process {pid} runs")
            with suppress(ProcessLookupError):
                os.kill(pid, signum)

    def let_pass(self, seconds: float) -> None:
        let_pass(seconds)

    def move_clock(self, seconds: float) -> None:
        words = ["date", "--set", f"{seconds:+.0f} seconds"]
        subprocess.run(words, check=True, timeout=HANG_S, stdout=subprocess.DEVNULL)


def _sent_frames(pid: int) -> int | None:
    """The frames sent by the interfaces of a process's namespace; ``None`` where it has ended."""
    try:
        return traffic(Path(f"/proc/{pid}/net/dev").read_bytes())["sent_frames"]
    except OSError:
        return None


def tool(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Carry out another command of the tool; its exit status and output."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * HANG_S,
        check=False,
        cwd=PROJECT,
        env=environment,
    )
    return done.returncode, done.stdout + done.stderr
