"""Runs of the command as processes: their files, how they are started, followed and ended, and whom a test strikes."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from docker.errors import NotFound

from containernet_env.base import assets, programs
from containernet_env.base.errors import RunError, UsageError
from containernet_env.hosts import engine
from containernet_env.hosts.http import UnixConnection
from containernet_env.results.run_directory import find_run
from containernet_env.runs.load import SERVER_SOCKET
from tests.deadline import HANG_S, T, eventually
from tests.processes import children, words_of

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = PROJECT / ".venv" / "bin" / "containernet-env"
CONFIG = PROJECT / "configs" / "3node-3ms.json"
END_S = 3 * HANG_S
"""A whole run that takes longer hangs."""
# The two calls of the document, literally.
SEED_READ = (
    '{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, '
    '"key": "foo", "endRange": "foo3", "consistency": "l"}'
)
SEED_WRITE = (
    '{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, '
    '"keySize": 4, "valSize": 64, "targetLeader": true, "sequentialKeys": true}'
)


def why_not() -> str | None:
    """Why runs are not possible on this machine; ``None`` if they are."""
    if os.geteuid() != 0:
        return "not root"
    if not COMMAND.exists() or programs.find(assets.modules()[-1]) is None:
        return "./build.sh has not been run"
    return None if engine.is_reachable() else "no Docker engine is running"


def call(
    *words: object, timeout_s: float = END_S, command: Path = COMMAND, **process: Any
) -> subprocess.CompletedProcess[str]:
    """Carry out a command of the tool to its end; the test is skipped where the machine was too busy for its proof."""
    options: Any = {"capture_output": True, "text": True, "timeout": timeout_s, "check": False}
    done = subprocess.run([command, *map(str, words)], **options, **process)
    if done.returncode:
        skip_if_busy(str(done.stderr))
    return done


def skip_if_busy(problem: str) -> None:
    """Skip the test if a run ended since something else kept its network from being proved."""
    if "something else keeps this machine busy" in problem:
        pytest.skip(f"disturbed: {problem.strip()}")


def skip_if_starved(found: Sequence[Mapping[str, str]]) -> None:
    """Skip the test if a row has failed by an election, of members that got no core."""
    for row in found:
        reasons = set(row["Reasons"].split(";"))
        if "leader changed" in row["Error"] and "machine_full" in reasons:
            pytest.skip(f"disturbed: {row['Scenario']}: {row['Error']}: {row['Reasons']}")


def run(config: Path, out: Path, *options: object) -> subprocess.CompletedProcess[str]:
    """A run to its end."""
    return call("run", config, out, *options)


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(out.read_text().splitlines())) if out.exists() else []


def topology(path: Path, members: int = 3, store: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Members like those of ``CONFIG``, with ``changes`` to every node, as a file; ``store`` adds keys beside them."""
    node = {"mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"} | changes
    nodes = [{"ip": f"10.0.0.{251 + i}", **node} for i in range(members)]
    path.write_text(json.dumps({**store, "nodes": nodes} if store else nodes))
    return path


def near_and_far(path: Path, **etcd: Any) -> Path:
    """Two members 1 ms from the switch and one 10 ms from it, as a file."""
    near = {"mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "1ms"}
    kinds = {"near1": near, "near2": near, "far1": near | {"link_delay": "10ms"}}
    nodes = [{"name": name, "ip": f"10.0.0.{i}", **kind} for i, (name, kind) in enumerate(kinds.items(), start=1)]
    path.write_text(json.dumps({"nodes": nodes, "etcd": etcd}))
    return path


def host_pid(name: str) -> int:
    """The first process of a host of the run that is on."""
    (host,) = [container for container in engine.list_ours() if container.host == name]
    return int(engine.client().api.inspect_container(host.id)["State"]["Pid"])


def child(parent: int, *words: str) -> int | None:
    """The process that ``parent`` has started with these words in its command line, while it runs."""
    return next((pid for pid in children(parent) if all(word in words_of(pid) for word in words)), None)


def requests_are_answered() -> bool:
    """Whether the benchmark server of the run that is on is in the middle of a scenario."""
    try:
        server = UnixConnection("benchmark", SERVER_SOCKET, host_pid("benchmark"))
        progress = server.request_json(0, "GET", "/progress", timeout_s=HANG_S)
    except (ValueError, RunError, NotFound):  # there is no host or no server yet, or no more
        return False
    return bool(progress["running"]) and progress["done"] > 0


class Run:
    """A run in a process group of its own, as a shell starts it; the ``with`` block ends it, whatever becomes of it."""

    def __init__(self, scenarios: Path, out: Path, command: Sequence[str] = (str(COMMAND),)) -> None:
        self.out = out
        words = ["run", str(CONFIG), str(out), "--scenarios", str(scenarios)]
        output: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen([*command, *words], start_new_session=True, **output)
        self.pid = self.process.pid

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.end()

    def _has(self, kind: str) -> bool:
        try:
            lines = (find_run(self.out) / "events.jsonl").read_text().splitlines(keepends=True)
        except (UsageError, OSError):  # it has no directory yet, or no events
            return False
        return kind in [json.loads(line)["kind"] for line in lines if line.endswith("\n")]

    def _reach(self, what: str, find: Callable[[], T]) -> T:
        """What ``find`` answers once that is true. AssertionError where the run ends before."""

        def found() -> T:
            if self.process.poll() is not None:
                said = self.process.communicate()[0]
                skip_if_busy(said)
                raise AssertionError(said)
            return find()

        return eventually(found, f"the run's {what}", END_S)

    def reach(self, kind: str) -> None:
        """Return once it has had an event of a kind."""
        self._reach(kind, lambda: self._has(kind))

    def reach_child(self, *words: str) -> int:
        """The process of it with these words in its command line, once there is one."""
        return self._reach(" ".join(words), lambda: child(self.pid, *words)) or 0

    def reach_request(self) -> None:
        """Return once a scenario's first request has been answered."""
        self._reach("first answer", requests_are_answered)

    def end(self) -> str:
        """Wait for it, which should be ending; its output."""
        try:
            return self.process.communicate(timeout=END_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            raise

    @property
    def status(self) -> int:
        assert self.process.returncode is not None, "it has not ended"
        return self.process.returncode

    def errors(self) -> list[str]:
        """The Error of each of its rows."""
        return [row["Error"] for row in rows(self.out)]
