"""Figures of whole runs with containers: their floors and medians, what they take, and how soon their faults show."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from containernet_env import measure, setup
from containernet_env.containernet.network import Containernet
from containernet_env.results.run_directory import RunResult
from containernet_env.runs.disruptor import at_once
from tests.docker.runs import CONFIG, END_S, Run, call, host_pid, topology
from tests.measure import figure

SIZE = {"keySize": 8, "valSize": 256}
HEAVY = {"type": "write", "load": {"duration": "8s", "clients": 50, "conns": 10}, "data": SIZE, "target": "leader"}
ALONE = {"total": 100, "clients": 1, "conns": 1}
FLOOR = [
    {"type": "write", "load": ALONE, "data": SIZE, "target": ["leader", "cluster"]},
    {"type": "read", "load": ALONE, "consistency": ["l", "s"]},
]
OPEN = {"type": "write", "load": {"rate": 100, "duration": "3s", "clients": 50, "conns": 5}, "data": SIZE}


def measured(config: Path, *blocks: Mapping[str, Any]) -> RunResult:
    """A run of these scenarios, whose files are removed."""
    with tempfile.TemporaryDirectory() as folder:
        scenarios = Path(folder) / "scenarios.json"
        scenarios.write_text(json.dumps({"dataset": {**SIZE, "keys": 100}, "scenarios": blocks}))
        return measure(config, scenarios, Path(folder) / "out.csv")


@figure("run, median above its floor", "ms")
def above_the_floor() -> Mapping[str, float]:
    result = measured(CONFIG, *FLOOR)
    return {row["Scenario"]: float(row["AboveFloor_50%_s"]) * 1e3 for row in result.rows}


@figure("run, rate of an open loop at 100 requests/s", "1/s")
def open_loop() -> float:
    (row,) = measured(CONFIG, {**OPEN, "target": "leader"}).rows
    return float(row["AchievedRate_per_s"])


@figure("run, heavy writes", "cores")
def heavy_writes() -> Mapping[str, float]:
    """What members, links, client and driver take, and which share of the machine's busy time is theirs."""
    (outcome,) = measured(CONFIG, HEAVY).outcomes
    usage = outcome.machine
    assert usage is not None and usage.used.machine is not None and usage.used.machine.cpu_ns
    members = [member.cpu_ns for member in usage.used.members.values()]
    others = [part.cpu_ns if part else 0 for part in (usage.used.client, usage.used.links, usage.used.driver)]
    parts = dict(zip(("members", "client", "links", "driver"), (sum(m or 0 for m in members), *others), strict=True))
    of_the_machine = sum(taken or 0 for taken in parts.values()) / usage.used.machine.cpu_ns
    return {name: (taken or 0) / usage.window_ns for name, taken in parts.items()} | {
        "of the machine's": of_the_machine
    }


@figure("run, members of a tenth of a core, share of the time that the limit stops the leader", "ratio")
def throttled_leader() -> float:
    with tempfile.TemporaryDirectory() as folder:
        config = topology(Path(folder) / "config.json", cpus=0.1)
        (outcome,) = measured(config, HEAVY).outcomes
    assert outcome.machine is not None and outcome.leader_at_start is not None
    return (outcome.machine.used.members[outcome.leader_at_start].throttled_ns or 0) / outcome.machine.window_ns


def seconds_to_the_end(until: Callable[[Run], None], strike: Callable[[Run], None]) -> float:
    """From a fault to the end of a run whose first scenario takes a minute, the tear-down with it."""
    with tempfile.TemporaryDirectory() as folder:
        scenarios = Path(folder) / "long.json"
        long = {"total": 5000, "clients": 1, "conns": 1}
        write = {"type": "write", "load": long, "data": SIZE, "target": ["leader", "cluster"]}
        scenarios.write_text(json.dumps({"scenarios": [write]}))
        with Run(scenarios, Path(folder) / "out.csv") as run:
            until(run)
            strike(run)
            began = time.monotonic()
            run.end()
            return time.monotonic() - began


def kill_emulator(run: Run) -> None:
    os.kill(run.reach_child("link-emulator", "serve"), signal.SIGKILL)


@figure("run, from the end of the link emulator to its own", "s")
def end_of_the_emulator() -> Mapping[str, float]:
    moments: dict[str, Callable[[Run], object]] = {
        "proof": lambda run: run.reach_child("link-emulator", "probe"),
        "cluster": lambda run: run.reach("network_proved"),
        "scenario": lambda run: run.reach_request(),
    }
    return {name: seconds_to_the_end(lambda run, m=moment: m(run), kill_emulator) for name, moment in moments.items()}


@figure("run, from the end of a member to its own", "s")
def end_of_a_member() -> float:
    return seconds_to_the_end(
        lambda run: run.reach("network_proved"), lambda _: os.kill(host_pid("etcd2"), signal.SIGKILL)
    )


@figure("set-up, a look whether anything is missing", "s")
def look_whether_anything_is_missing() -> float:
    seconds = []
    for _ in range(5):
        began = time.monotonic()
        setup.detect()
        seconds.append(time.monotonic() - began)
    return statistics.median(seconds)


@figure("shell, RTT of ping over two links of 3 ms", "ms")
def ping_in_the_shell() -> float:
    done = call("shell", CONFIG, "--port", 18080, "-c", "etcd1 ping -c 10 -i 0.2 etcd2", timeout_s=END_S)
    return statistics.median(float(found) for found in re.findall(r"time=([\d.]+) ms", done.stdout))


@figure("events of one moment", "ms")
def events_of_one_moment() -> Mapping[str, float]:
    """Medians of 15 rounds of four changes of links and one signal: their spread, and the latest after its time."""
    spreads, latenesses = [], []
    with Containernet(controller=None, links="emulator") as net, subprocess.Popen(["sleep", "600"]) as process:
        net.addSwitch("s1")
        for name in ("h1", "h2", "h3"):
            net.addHost(name)
            net.addLink(name, "s1", bw=100)
        net.start()
        try:
            for number in range(15):
                times: list[int] = []

                def kept(change: Callable[[], int], times: list[int] = times) -> Callable[[], None]:
                    return lambda: times.append(change())

                def stop() -> int:
                    os.kill(process.pid, signal.SIGSTOP)
                    return time.monotonic_ns()

                due_ns = time.monotonic_ns() + 50_000_000
                links = [
                    kept(lambda: net.link_down("h1", "s1")),
                    kept(lambda number=number: net.set_delay("h2", "s1", f"{10 + number}ms")),
                    kept(lambda number=number: net.set_rate("h3", "s1", 50 + number)),
                    kept(lambda: net.partition([["h1"], ["h2", "h3"]])),
                ]
                at_once(links, [kept(stop)], True, due_ns)
                spreads.append((max(times) - min(times)) / 1e6)
                latenesses.append((max(times) - due_ns) / 1e6)
                os.kill(process.pid, signal.SIGCONT)
                net.heal()
                net.link_up("h1", "s1")
        finally:
            process.kill()
    return {"spread": statistics.median(spreads), "latest": statistics.median(latenesses)}
