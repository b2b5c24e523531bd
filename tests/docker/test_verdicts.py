"""A run whose scenarios are sabotaged, each in its way: every row that is affected says so, with the right reason.

Where the thresholds are is shown in ``tests/unit/test_findings.py``; stopped clients and members, and killed leaders,
are faults of ``tests/faults``; that a quota stops the emulator is read in ``tests/root/test_usage.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from containernet_env import measure
from containernet_env.base.errors import RunError
from containernet_env.config.plan import PlannedScenario
from containernet_env.hosts import engine
from containernet_env.hosts.limits import cgroups_of
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.results.run_directory import RunResult
from containernet_env.runs.progress import Silent
from tests.deadline import HANG_S, eventually
from tests.docker.runs import CONFIG, child, host_pid, requests_are_answered, skip_if_busy

pytestmark = pytest.mark.docker

MEMBERS = ("etcd1", "etcd2", "etcd3")
OF_THE_MACHINE = {
    "generator_late",
    "generator_paused",
    "generator_waited",
    "leader_changed",
    "link_lateness",
    "links_paused",
    "machine_full",
    "machine_shared",
    "machine_stolen",
    "member_silent",
    "member_waited",
    "network_unknown",
}
"""What may be found on a machine that others disturb, too."""


@dataclass(frozen=True)
class Sabotage:
    """What is done to a scenario, within a context; the findings that it has to have, and whether they spoil it."""

    begin: Callable[[], AbstractContextManager[None]]
    kinds: frozenset[str]
    spoils: bool = True


def stuttering(pid: int, times: int, stopped_s: float, running_s: float) -> None:
    """Stop a process so often, each time for so long; return when it runs again."""
    script = "for i in $(seq $2); do kill -STOP $1; sleep $3; kill -CONT $1; sleep $4; done"
    words = map(str, (pid, times, stopped_s, running_s))
    subprocess.run(["sh", "-c", script, "sh", *words], check=True, timeout=HANG_S)


@contextmanager
def emulator_stopped() -> Iterator[None]:
    """It stutters while the load runs."""

    def strike() -> None:
        eventually(requests_are_answered, "the first answer")
        stuttering(child(os.getpid(), "link-emulator", "serve") or 0, 20, 0.08, 0.02)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(strike)
        yield
    done.result()


@contextmanager
def others_busy() -> Iterator[None]:
    """Programs of others that take all that they get of each core."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def held(values: Iterable[tuple[Path, str, str]]) -> Iterator[None]:
    """Each of these files of cgroups has its first text within the context, and its second one afterwards."""
    with ExitStack() as undoing:
        for path, text, before in values:
            path.write_text(text)
            undoing.callback(path.write_text, before)
        yield


def slow_disks() -> AbstractContextManager[None]:
    """Twenty writes a second of each member to the disk that holds the engine's data."""
    device = os.stat(engine.client().info()["DockerRootDir"]).st_dev
    whole = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    if (whole / "partition").exists():
        whole = whole.parent
    number, places = (whole / "dev").read_text().strip(), []
    for name in MEMBERS:
        groups = cgroups_of(host_pid(name))
        if (v1 := groups.v1.get("blkio")) is not None:
            places.append((v1 / "blkio.throttle.write_iops_device", f"{number} 20", f"{number} 0"))
        else:
            places.append((groups.v2 / "io.max", f"{number} wiops=20", f"{number} wiops=max"))
    return held(places)


def a_tenth_of_a_core(name: str) -> tuple[Path, str, str]:
    """What bounds a member to 10 ms of CPU time in each 100 ms, as its own limit, and to all of them."""
    groups = cgroups_of(host_pid(name))
    group = groups.v1.get("cpu") or groups.v2
    if (group / "cpu.max").exists():
        return group / "cpu.max", "10000 100000", "100000 100000"
    return group / "cpu.cfs_quota_us", "10000", "100000"


SABOTAGES = {
    "nothing": Sabotage(nullcontext, frozenset(), spoils=False),
    "emulator-stopped": Sabotage(emulator_stopped, frozenset({"link_lateness"})),
    "others-busy": Sabotage(others_busy, frozenset({"machine_shared"})),
    "slow-disks": Sabotage(slow_disks, frozenset({"slow_disk"}), spoils=False),
    # It is true of them; that is what a configuration with such a limit says.
    "members-throttled": Sabotage(
        lambda: held(map(a_tenth_of_a_core, MEMBERS)), frozenset({"member_throttled"}), spoils=False
    ),
}
NAMES = tuple(SABOTAGES)


class Saboteur(Silent):
    """Sabotages the scenarios of a run in the order of ``SABOTAGES``."""

    def __init__(self) -> None:
        self.left = list(SABOTAGES.values())
        self.within = ExitStack()
        self.failures: list[BaseException] = []

    def scenario_started(self, planned: PlannedScenario) -> None:
        try:
            self.within.enter_context(self.left.pop(0).begin())
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failures.append(error)

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        try:
            self.within.close()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failures.append(error)


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("sabotaged")
    scenarios, out = folder / "scenarios.json", folder / "out.csv"
    # Loads that differ in the size of their values, so that each is a scenario of its own. For a quota to stop them,
    # members need work; slow disks need clients that share a write of the log, or few are answered.
    clients = {"members-throttled": 50, "slow-disks": 16}
    blocks = [
        {
            "type": "write",
            "load": {"duration": "3s", "clients": clients.get(name, 2), "conns": 2},
            "data": {"keySize": 8, "valSize": 64 + number},
            "target": "leader",
        }
        for number, name in enumerate(NAMES)
    ]
    scenarios.write_text(json.dumps({"scenarios": blocks}))
    saboteur = Saboteur()
    try:
        result = measure(CONFIG, scenarios, out, progress=saboteur)
    except RunError as error:
        skip_if_busy(str(error))
        raise
    assert not saboteur.failures and not saboteur.left, saboteur.failures
    return result


@pytest.mark.parametrize("name", NAMES)
def test_a_sabotaged_row_says_so(sabotaged: RunResult, name: str) -> None:
    number, sabotage = NAMES.index(name), SABOTAGES[name]
    outcome, row = sabotaged.outcomes[number], sabotaged.rows[number]
    assert outcome.verdict is not None, outcome.error
    assert sabotage.kinds <= {finding.kind for finding in outcome.findings}, outcome.findings
    if sabotage.spoils:
        assert row["Valid"] == "no" and sabotage.kinds <= set(row["Reasons"].split(";")), row
    elif outcome.verdict.valid != "yes":
        assert set(outcome.verdict.reasons) <= OF_THE_MACHINE, outcome.findings
        pytest.skip(f"disturbed: {row['Reasons']}")


def test_slow_disks_are_those_of_the_members(sabotaged: RunResult) -> None:
    findings = sabotaged.outcomes[NAMES.index("slow-disks")].findings
    assert {finding.subject for finding in findings if finding.kind == "slow_disk"} == set(MEMBERS), findings


def test_members_that_their_own_limit_stops_show_it(sabotaged: RunResult) -> None:
    outcome = sabotaged.outcomes[NAMES.index("members-throttled")]
    usage = outcome.machine
    # The leader has the most to do; a follower that waits for it may need less than its limit.
    assert usage.used.members[outcome.leader_at_start].throttled_ns, usage.used.members
    for name, member in usage.used.members.items():
        # What each core has taken of a quota in advance comes on top (Documentation/scheduler/sched-bwc.rst).
        assert member.cpu_ns is not None and member.cpu_ns < 0.15 * usage.window_ns, (name, member)
    assert usage.client_throttled_ns == 0
    stopped = [finding for finding in outcome.findings if finding.kind == "member_throttled"]
    assert {finding.effect for finding in stopped} == {"info"}
