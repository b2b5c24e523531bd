"""Sabotaged runs: every row that is affected says so, with the right reason; a member's own limits leave it valid."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from containernet_env import measure
from containernet_env.hosts import engine
from containernet_env.hosts.engine import LABEL_HOST
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.verdict import Verdict
from containernet_env.plan.plan import PlannedScenario
from containernet_env.runs.progress import Silent
from tests.docker.conftest import PROJECT
from tests.docker.test_network_failures import wait_for
from tests.faults.harness import below, children, program_of, words_of

pytestmark = pytest.mark.docker

CONFIG = PROJECT / "configs" / "3node-3ms.json"
SECONDS = 3.0
_STRIKE_S = 0.5
"""How far into the scenario something is done to it."""

Strike = Callable[[], Any]


def scenarios(folder: Path, clients: int = 1, seconds: float = SECONDS) -> Path:
    """One write of so many clients."""
    path = folder / "load.json"
    load = {"duration": f"{seconds:g}s", "clients": clients, "conns": clients}
    block = {"type": "write", "load": load, "data": {"keySize": 8, "valSize": 64}, "target": "leader"}
    path.write_text(json.dumps({"dataset": {"keySize": 8, "valSize": 64, "keys": 100}, "scenarios": [block]}))
    return path


def config(folder: Path, **changes: Any) -> Path:
    """Three members with ``changes``."""
    path = folder / "config.json"
    node = {"mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"} | changes
    path.write_text(json.dumps([{"ip": f"10.0.0.{251 + number}", **node} for number in range(3)]))
    return path


class Saboteur(Silent):
    """Does something to the run once its scenario has begun."""

    def __init__(self, strike: Strike) -> None:
        self._strike = strike
        self._thread: threading.Thread | None = None
        self.failed: list[BaseException] = []

    def scenario_started(self, planned: PlannedScenario) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        time.sleep(_STRIKE_S)
        try:
            self._strike()
        except Exception as error:  # noqa: BLE001 - told by the test
            self.failed.append(error)

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(30)


def measured(folder: Path, strike: Strike, clients: int = 1, **changes: Any) -> ScenarioOutcome:
    """The outcome of a run that something is done to."""
    saboteur = Saboteur(strike)
    result = measure(config(folder, **changes), scenarios(folder, clients), folder / "out.csv", progress=saboteur)
    saboteur.join()
    assert not saboteur.failed, saboteur.failed
    (outcome,) = result.outcomes
    assert outcome.verdict is not None, outcome.error
    print(outcome.verdict, [finding.text for finding in outcome.findings])
    return outcome


def of_three(folder: Path, strike: Strike, **changes: Any) -> ScenarioOutcome:
    """The first outcome of three runs of whose machine a hypervisor took nothing; the last, if it did of all."""
    for _ in range(3):
        outcome = measured(folder, strike, **changes)
        if outcome.verdict is None or "machine_stolen" not in outcome.verdict.reasons:
            break
    return outcome


def emulator() -> int:
    return next(pid for pid in children(os.getpid()) if "link-emulator serve" in words_of(pid))


def host(name: str) -> int:
    """The first process of one of our hosts."""
    done = subprocess.run(
        ["docker", "ps", "--quiet", "--filter", f"label={LABEL_HOST}={name}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    (container,) = done.stdout.split()
    command = ["docker", "inspect", "--format", "{{.State.Pid}}", container]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout)


def client() -> int | None:
    """The running benchmark's client."""
    return next((pid for pid in below(host("benchmark")) if program_of(pid) == "benchmark-client"), None)


def stop_for(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Programs of somebody else that take all that they get of so many cores."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_a_run_that_nothing_is_done_to_is_valid(tmp_path: Path) -> None:
    outcome = of_three(tmp_path, lambda: None)
    assert outcome.verdict == Verdict("yes"), outcome.findings


def test_a_client_that_is_stopped_ten_times_for_150_ms(tmp_path: Path) -> None:
    def strike() -> None:
        # Looked for once: to ask the engine each time took longer than the load on a slow machine.
        pid = wait_for(client, deadline_s=10)
        for _ in range(10):
            stop_for(pid, 0.15)
            time.sleep(0.05)

    outcome = measured(tmp_path, strike)
    assert outcome.verdict is not None and outcome.verdict.valid == "no"
    assert "generator_paused" in outcome.verdict.reasons


def test_an_emulator_that_gets_a_fifth_of_a_core(tmp_path: Path) -> None:
    def strike() -> None:
        for _ in range(20):
            stop_for(emulator(), 0.08)
            time.sleep(0.02)

    outcome = measured(tmp_path, strike)
    assert outcome.verdict is not None and outcome.verdict.valid == "no"
    assert "link_lateness" in outcome.verdict.reasons


@pytest.fixture
def tenth_of_a_core() -> Iterator[Callable[[int], None]]:
    """Holds a process to a tenth of a core by a cgroup's quota; the cgroup is removed afterwards."""
    v1 = Path("/sys/fs/cgroup/cpu")
    group = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / f"cnenv-test-{os.getpid()}"
    group.mkdir()

    def hold(pid: int) -> None:
        if v1.is_dir():
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("10000")
        else:
            (group / "cpu.max").write_text("10000 100000")
        for thread in os.listdir(f"/proc/{pid}/task"):
            # No quota holds a thread that has a real-time priority.
            os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
        (group / "cgroup.procs").write_text(str(pid))

    yield hold
    group.rmdir()


def test_an_emulator_that_a_quota_holds_to_a_tenth_of_a_core(
    tmp_path: Path, tenth_of_a_core: Callable[[int], None]
) -> None:
    outcome = measured(tmp_path, lambda: tenth_of_a_core(emulator()), clients=100)
    assert outcome.verdict is not None and outcome.verdict.valid == "no"
    assert {"link_lateness", "links_throttled"} <= set(outcome.verdict.reasons), outcome.findings


def test_a_follower_that_is_frozen(tmp_path: Path) -> None:
    def strike() -> None:
        followers = [name for name in ("etcd1", "etcd2", "etcd3") if name != leader_of(tmp_path)]
        stop_for(host(followers[0]), 1.8)

    outcome = of_three(tmp_path, strike)
    assert outcome.verdict == Verdict("no", ("member_silent",)), outcome.findings


def leader_of(folder: Path) -> str:
    """Who led at the start of the newest run."""
    run = max((folder / "out.runs").iterdir())
    leader: str = json.loads((run / "manifest.json").read_text())["store"]["leader_at_start"]
    return leader


def test_a_leader_that_is_killed(tmp_path: Path) -> None:
    outcome = measured(tmp_path, lambda: os.kill(host(leader_of(tmp_path)), signal.SIGKILL), clients=2)
    assert outcome.verdict is not None and outcome.verdict.valid == "no"
    assert {"member_died", "leader_changed"} <= set(outcome.verdict.reasons)


def test_a_machine_that_somebody_else_uses(tmp_path: Path) -> None:
    with busy(os.cpu_count() or 1):
        outcome = measured(tmp_path, lambda: None)
    assert outcome.verdict is not None and outcome.verdict.valid == "no"
    assert "machine_shared" in outcome.verdict.reasons


def test_members_whose_disk_is_slow_say_so_and_stay_valid(tmp_path: Path) -> None:
    """It is true of them; that is not what the configuration says, nor against it."""

    def strike() -> None:
        for name in ("etcd1", "etcd2", "etcd3"):
            slow_down(host(name), 20)

    outcome = of_three(tmp_path, strike, clients=4)
    slow = {finding.subject for finding in outcome.findings if finding.kind == "slow_disk"}
    assert slow == {"etcd1", "etcd2", "etcd3"}, outcome.store
    assert outcome.verdict == Verdict("yes"), outcome.findings


def slow_down(pid: int, writes_per_s: int) -> None:
    """Limit the writes of a host's cgroup to the disk that holds the engine's data."""
    device = os.stat(engine.client().info()["DockerRootDir"]).st_dev
    whole = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    if (whole / "partition").exists():
        whole = whole.parent
    number = (whole / "dev").read_text().strip()
    groups = dict(line.split(":", 2)[1:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    if "blkio" in groups:
        place = Path("/sys/fs/cgroup/blkio") / groups["blkio"].lstrip("/") / "blkio.throttle.write_iops_device"
        place.write_text(f"{number} {writes_per_s}")
    else:
        place = Path("/sys/fs/cgroup") / groups[""].lstrip("/") / "io.max"
        place.write_text(f"{number} wiops={writes_per_s}")


def test_members_that_their_own_cpus_throttle_are_valid(tmp_path: Path) -> None:
    outcome = of_three(tmp_path, lambda: None, clients=10, cpus=0.1)
    kinds = {finding.kind for finding in outcome.findings}
    assert "member_throttled" in kinds
    assert outcome.verdict == Verdict("yes"), outcome.findings
