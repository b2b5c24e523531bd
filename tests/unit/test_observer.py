"""What is observed of a scenario: in which order, and that nothing of it costs a row. Cores that are kept."""

from __future__ import annotations

import gzip
import json
import os
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import Interrupted, UsageError
from containernet_env.config.plan import config_hash
from containernet_env.hosts.counters import AllUse
from containernet_env.hosts.sampler import Sampler
from containernet_env.model.usage import Consumers, Consumption, MemberActivity, StoreActivity, Usage
from containernet_env.runs import measure, testbed
from containernet_env.runs.load import Answer
from containernet_env.runs.observer import Observer
from containernet_env.runs.prepare import kept_off, other_cores, prepare
from containernet_env.stores.profiling import Profile
from tests.unit.fakes import CONFIG, Bench, observing, on_fakes, result_of, run, write
from tests.unit.manifests import bare_plan
from tests.unit.test_flame import APART, PACKED, made

USED = Usage(10**9, Consumers(machine=Consumption(cpu_ns=5)))
COUNTED = StoreActivity({"etcd1": MemberActivity(leader_changes=1)})


pytestmark = pytest.mark.simulated(seeds=3)


class Watched(Bench):
    """A matrix whose observer's calls, and those of the benchmark, are in ``life``; profiles are kept in ``files``."""

    def __init__(self, *scenarios: Any, profiles: list[Profile] | None = None, member: str | None = None) -> None:
        self.used: Usage | None = USED
        super().__init__(*scenarios, profile=() if profiles is None else ("cpu", "allocs"), profile_member=member)
        self.life: list[str] = []
        self.files: dict[str, bytes] = {}
        self.told: list[tuple[str, str]] = []
        note = self.life.append
        observation = SimpleNamespace(end=lambda: (note("counted"), COUNTED)[1])
        self.cluster.observe = lambda: (note("observe"), observation)[1]
        self.cluster.profile = lambda name, kinds: self.profiled(name, kinds)
        self.profiles = profiles
        sampler: Any = SimpleNamespace(
            start=lambda: note("start"),
            begin=lambda: note("begin"),
            end=lambda: (note("end"), self.used)[1],
            close=lambda: None if self.life[-1] == "close" else note("close"),  # idempotent
        )
        self.server.behave = lambda path, body: (note("load"), Answer(result_of(), None))[1]
        self.target.on_event = lambda kind, text, subject=None: self.told.append((kind, text))
        self.matrix._observer = observing(
            self.target, sampler, lambda folder, name, content: self.files.update({f"{folder}/{name}": content})
        )

    def profiled(self, name: str, kinds: Any) -> Any:
        if name not in self.cluster.endpoints:
            return None
        note = self.life.append
        note(f"profile {name} {','.join(kinds)}")
        return SimpleNamespace(
            begin=lambda: note("profile begins"),
            end=lambda: note("profile ends"),
            profiles=lambda: self.profiles,
            close=lambda: note("profile closed"),
        )


def test_members_are_asked_before_and_after_and_never_while_the_load_runs_nor_where_the_target_has_failed() -> None:
    bench = Watched(write("w"), write("w2"))
    bench.matrix.run()
    assert bench.life == ["start", *(["observe", "begin", "load", "end", "counted"] * 2), "close"]
    assert [(outcome.machine, outcome.store) for outcome in bench.outcomes] == [(USED, COUNTED)] * 2
    bench = Watched(write("w"), write("w2"))
    bench.server.behave = lambda path, body: Answer(None, bench.fail("the link emulator ended"))
    bench.matrix.run()
    # What never ran used nothing.
    assert [(outcome.machine, outcome.store) for outcome in bench.outcomes] == [(USED, None), (None, None)]
    assert "counted" not in bench.life
    unknown = Watched(write("w"))
    unknown.used = None
    unknown.matrix.run()
    assert [(row["Valid"], row["Reasons"]) for row in unknown.rows()] == [("unknown", "usage")]


CPU = Profile("cpu", "cpu", made(PACKED))
ALLOCS = Profile("allocs", "cpu", made(PACKED, PACKED, APART), made(PACKED))


def test_profiles_are_taken_of_the_leader_and_kept_with_their_flame_graphs() -> None:
    bench = Watched(write("w"), profiles=[CPU, ALLOCS])
    asked = bench.cluster.leadership
    bench.cluster.leadership = lambda: (bench.life.append("leader"), asked())[1]
    bench.matrix.run()
    assert bench.life[1:] == [
        "leader",
        "observe", "profile etcd1 cpu,allocs", "profile begins", "begin", "load", "end", "profile ends", "counted",
        "profile closed", "leader", "close",
    ]  # fmt: skip
    folder = "01-w/etcd1"
    wanted = ["cpu.pb.gz", "cpu.svg", "allocs.pb.gz", "allocs-before.pb.gz", "allocs.svg"]
    assert list(bench.files) == [f"{folder}-{name}" for name in wanted]
    assert bench.files[f"{folder}-cpu.pb.gz"] == CPU.data
    assert bench.files[f"{folder}-allocs-before.pb.gz"] == ALLOCS.before
    assert b"cpu of etcd1, w" in bench.files[f"{folder}-cpu.svg"]
    assert ("profiled", "profiles of etcd1 are in profiles/01-w") in bench.told


def test_a_member_can_be_named_and_a_profile_that_cannot_be_taken_costs_nothing() -> None:
    bench = Watched(
        write("w"), profiles=[Profile("cpu", "cpu", problem="it hung"), Profile("allocs", "cpu", gzip.compress(b"x"))]
    )
    bench.matrix.run()
    assert [note.partition(":")[2].partition(":")[0] for note in bench.progress.notes] == [
        " no cpu profile of etcd1",
        " no flame graph of the allocs profile",
    ]
    assert list(bench.files) == ["01-w/etcd1-allocs.pb.gz"]
    named = Watched(write("w"), profiles=[CPU], member="etcd3")
    named.matrix.run()
    assert list(named.files) == ["01-w/etcd3-cpu.pb.gz", "01-w/etcd3-cpu.svg"]
    dead = Watched(write("w"), profiles=[CPU], member="etcd2")
    dead.cluster.dead = {"etcd2": "etcd2 ended: killed"}
    dead.matrix.run()
    assert dead.progress.notes == ["w: no profile: etcd2 does not run"] and not dead.files
    assert dead.errors() == ["etcd2 ended: killed (earlier)"]


def test_a_run_that_is_interrupted_lets_go_of_its_profile() -> None:
    """A connection to a member that stays open keeps its network namespace."""
    bench = Watched(write("w"), profiles=[CPU])

    def interrupt(path: str, body: dict[str, Any]) -> Answer:
        bench.life.append("load")
        bench.stop.request(15)
        bench.server.cancelled.wait()
        return Answer(None, "cancelled")

    bench.server.behave = interrupt
    with pytest.raises(Interrupted):
        bench.matrix.run()
    assert bench.life[-2:] == ["profile closed", "close"]


# --- cores and choices ------------------------------------------------------------------------------------------------


def test_a_core_is_kept_if_it_is_one_and_another_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testbed.os, "sched_getaffinity", lambda pid: {0, 2, 5})
    assert other_cores(2) == (0, 5)
    with pytest.raises(UsageError, match=r"links_cpu=1 is no core that this process may use; allowed: 0, 2, 5"):
        other_cores(1)
    monkeypatch.setattr(testbed.os, "sched_getaffinity", lambda pid: {3})
    with pytest.raises(UsageError, match=r"links_cpu=3 would leave no core for members, client and driver"):
        other_cores(3)


def test_the_driver_and_its_threads_use_the_other_cores_and_get_all_back() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("needs two cores")
    seen: list[set[int]] = []
    with kept_off(min(before), before - {min(before)}):
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
    assert seen == [before - {min(before)}]
    assert os.sched_getaffinity(0) == before
    with kept_off(None, ()):
        assert os.sched_getaffinity(0) == before


plan_with = partial(bare_plan, machine_cores=4)
CORE: dict[str, Any] = {"links_cpu": 1, "other_cores": (0, 2, 3)}


def test_hosts_are_kept_off_the_core_and_the_emulator_carries_the_links() -> None:
    plan = plan_with(**CORE)
    assert {host.cpuset for host in plan.hosts} == {(0, 2, 3)}
    assert {host.cpuset for host in plan_with().hosts} == {()}
    assert plan.notes[0] == "core 1 is kept for the link emulator; members, client and driver use 0, 2, 3"
    for choice in ({"links": "netem"}, {"engine": "containernet"}):
        with pytest.raises(UsageError, match="links_cpu keeps a core for the link emulator"):
            plan_with(**CORE, **choice)
        with pytest.raises(UsageError, match="offload is an option of the link emulator"):
            plan_with(offload=True, **choice)


def test_members_that_are_profiled_are_started_for_it_and_are_another_experiment() -> None:
    plain, profiled = plan_with(), plan_with(profile=("cpu",))
    assert all("--enable-pprof" in host.command for host in profiled.hosts if host.role == "member")
    assert not any("--enable-pprof" in host.command for host in (*plain.hosts, profiled.hosts[-1]))
    plans = (plain, profiled, plan_with(profile=("cpu",), profile_member="etcd1"), plan_with(**CORE))
    hashes = {config_hash(plan) for plan in plans}
    assert profiled.notes[0].startswith("profiles (cpu) of the leader are taken")
    assert len(hashes) == 3 and config_hash(plain) == config_hash(plan_with(**CORE))


def test_choices_that_cannot_be() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"profile": "cpu"}, "profile='cpu'; allowed: a list of cpu, allocs, mutex"),
        ({"profile": ["cpu", "heap"]}, "allowed: a list of cpu, allocs, mutex"),
        ({"profile_member": "etcd1"}, "profile_member='etcd1' without profile"),
        ({"profile": ["cpu"], "profile_member": "etcd9"}, "profile_member='etcd9' is no member of .* etcd1, etcd2"),
        ({"links_cpu": 4096}, "links_cpu=4096 is no core"),
    ]
    for choices, words in refused:
        with pytest.raises(UsageError, match=words):
            prepare(CONFIG, None, quick=True, **choices)
    plan = prepare(CONFIG, None, quick=True, profile=["mutex", "cpu", "mutex"])
    assert plan.options.profile == ("cpu", "mutex")


def test_a_run_leaves_a_line_for_each_edge_of_a_scenario(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_fakes(monkeypatch)
    monkeypatch.setattr(measure, "AllUse", AllUse)
    monkeypatch.setattr(measure, "Sampler", Sampler)
    result = run(tmp_path / "out.csv")
    lines = [json.loads(line) for line in (result.directory / "usage.jsonl").read_text().splitlines()]
    assert [line["edge"] for line in lines if line["edge"]] == ["begin", "end"]
    assert all(line["schema"] == 1 and line["machine"]["cpu_ns"] > 0 for line in lines)
    assert lines[0]["links"] is None and "throttled_ns" not in lines[0]["machine"]
    (outcome,) = result.outcomes
    begin, end = (line for line in lines if line["edge"])
    assert outcome.machine is not None and outcome.machine.window_ns == end["at_ns"] - begin["at_ns"]
    driver = outcome.machine.used.driver
    assert driver is not None and driver.cpu_ns == end["driver"]["cpu_ns"] - begin["driver"]["cpu_ns"]


def test_the_observers_of_a_run_number_its_scenarios_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a further attempt, on a cluster of its own, replaces the history of the one before."""
    on_fakes(monkeypatch)
    made: list[Any] = []
    monkeypatch.setattr(measure, "Observer", lambda *words: made.append(words[-1]) or Observer(*words))
    run(tmp_path / "out.csv", fresh=True, repeat=2)
    first, second = made
    assert first is second and next(first) == 3
