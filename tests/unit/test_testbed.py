"""What a testbed makes of what it hears of its network; one that is turned to another plan while it stands."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.files import root_of
from containernet_env.base.programs import LastWords, last_words
from containernet_env.base.work import Stop
from containernet_env.config.plan import Plan
from containernet_env.hosts import container, engine, netns
from containernet_env.hosts.container import ExitState, SyncTimes
from containernet_env.hosts.engine import EngineGoneError, EngineWatch
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.model.usage import Leadership
from containernet_env.network import rtt as prober_module
from containernet_env.results.capacity import capacity_of
from containernet_env.results.run_files import Proof
from containernet_env.runs import testbed as testbed_module
from containernet_env.runs.progress import Silent
from containernet_env.runs.reuse import change_between
from containernet_env.runs.sweep.design import design
from containernet_env.runs.testbed import Standing
from containernet_env.stores.cluster import MemberPlace
from containernet_env.stores.etcd import EtcdCluster, EtcdMember
from tests.unit.fake_servers import FakeHost
from tests.unit.fakes import CONFIG, Patch, make_bed, raising, write
from tests.unit.test_network_proof import FakeGate

DIED = "the link emulator ended: killed by SIGKILL"


@pytest.fixture
def bed(monkeypatch: Patch) -> Any:
    """See ``make_bed``."""
    return make_bed(monkeypatch)


def test_the_death_of_the_emulator_is_the_failure_of_the_network_and_told_once(bed: Any) -> None:
    """Killed, it answers nothing either: its row came 10 s later, when its silence would have been given up."""
    bed._links._answers = lambda timeout_s: pytest.fail("nobody waits for its answer")
    bed.net.hear("sunshine", "etcd1-eth0: warm")
    assert bed.failure is None, "an unknown event changes nothing"
    bed.net.hear("emulator_died", DIED)
    bed.net.hear("emulator_died", "and again")
    assert bed.failure == bed.settled_failure() == DIED
    assert [event for event in bed.events if event[0] == "testbed_failed"] == [("testbed_failed", DIED)]


@pytest.mark.simulated(seeds=10)
def test_a_failure_that_is_told_a_moment_after_its_request_is_the_reason(monkeypatch: Patch) -> None:
    bed = make_bed(monkeypatch)
    bed._links.settle = lambda: None
    clock.Thread(target=lambda: (clock.sleep(0.1), bed.net.hear("emulator_died", DIED))).start()
    assert bed.settled_failure() == DIED


@pytest.mark.parametrize(("alive", "failure"), [(True, "the network lost a host that lives: "), (False, None)])
def test_a_port_that_goes_down_under_a_living_host_is_a_failure(bed: Any, alive: bool, failure: str | None) -> None:
    bed.hosts = {
        "etcd1": SimpleNamespace(alive=not alive, nameToIntf={"etcd1-eth0": None}),
        "etcd2": SimpleNamespace(alive=alive, nameToIntf={"etcd2-eth0": None}),
    }
    text = "etcd2-eth0: interface a1b2c3e1 has gone: file descriptor in bad state"
    bed.net.hear("port_down", text)
    assert bed.failure == (failure and failure + text)


def test_the_end_of_the_engine_is_the_first_reason_with_the_containers_it_leaves(bed: Any) -> None:
    bed.hosts = {name: SimpleNamespace(alive=name != "etcd2") for name in ("etcd1", "etcd2", "benchmark")}
    bed._on_engine_end("has ended")
    bed.net.hear("emulator_died", DIED)
    (told,) = (text for kind, text in bed.events if kind == "testbed_failed")
    assert told == bed.failure
    assert re.match("the Docker engine at .* has ended; its containers etcd1, benchmark may still run. Start ", told)
    bed.net.stop = raising(EngineGoneError("has ended", "the containers of etcd1 stay in it"))
    with pytest.raises(EngineGoneError, match=r"^the Docker engine at .* has ended; the containers of etcd1 stay in"):
        bed.down()


def test_a_container_that_is_killed_is_no_sign_of_an_engine_that_ends(monkeypatch: Patch) -> None:
    """`docker kill` of one host, SIGTERM to another: the engine has not stopped all."""
    told, signals = list[str](), {"a": "9", "b": "15"}
    watch: Any = EngineWatch("run", lambda: 2, told.append)
    monkeypatch.setattr(engine, "listens", lambda: True)

    def events() -> Iterator[Any]:
        yield from ({"Actor": {"ID": name, "Attributes": {"signal": signals[name]}}} for name in signals)
        watch._closing = True

    watch._events = events()
    watch._follow()
    assert told == []


def test_a_silent_engine_is_asked_for_one_log_only(bed: Any) -> None:
    asked: list[int] = []

    def logs(tail: int) -> str:
        asked.append(tail)
        raise EngineGoneError("does not answer (waited 30 s)")

    bed.hosts = {name: SimpleNamespace(name=name, logs=logs) for name in ("etcd1", "etcd2", "benchmark")}
    bed.net.link_backend_log = lambda: None
    found = dict(bed.logs())
    assert len(asked) == 1 and len(found) == 3 and all("does not answer" in text for text in found.values())


GOT = ("realtime", "kept_awake")
HELLO = {**dict.fromkeys(GOT, True), "stamps": "kernel", "self_test": {"passed": True, "reason": ""}}
HELLO |= {f"{name}_reason": "" for name in (*GOT, "stamps")}
UNSTAMPED = "the kernel does not stamp frames, so they count as come when they are read"


@pytest.mark.parametrize(
    ("missing", "value", "reason", "note"),
    [
        ("", None, "", ""),
        ("realtime", False, "operation not permitted", "the link emulator got no real-time priority"),
        ("kept_awake", False, "no such file", "processors may fall into deep sleep and wake late"),
        ("stamps", "read", "it needs CAP_BPF", UNSTAMPED),
    ],
)
def test_what_the_emulator_did_not_get_is_told(bed: Any, missing: str, value: Any, reason: str, note: str) -> None:
    bed._check_emulator()
    facts = bed.link_facts()
    assert (facts.network, facts.network_version, facts.network_commit) == ("containernet", "3.0", "c0ffee")
    assert facts.docker_sdk == docker.__version__
    assert facts.link_emulator is None and bed.progress.notes == [], "links of the kernel"
    bed.net.hello = HELLO | ({missing: value, f"{missing}_reason": reason} if missing else {})
    bed._check_emulator()
    assert bed.link_facts().link_emulator["realtime"] is (missing != "realtime")
    assert bed.progress.notes == [f"{note}: {reason}"] * bool(missing)


def test_an_emulator_whose_own_test_failed_proves_no_network(bed: Any) -> None:
    reason = "the median echo came after 4280006 ns, asked for 2000000"
    bed.net.hello = HELLO | {"self_test": {"passed": False, "reason": reason}}
    with pytest.raises(RunError, match=f"does not keep its times on this machine: {reason}"):
        bed._prove_network()
    assert bed.gate is None  # nothing was measured


class Host(FakeHost):
    """One whose first process counts as ended only from a look on."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 4194304)  # above the kernel's largest pid
        self.looked = self.ends_at_look = 0
        self.limited: list[tuple[int | None, int]] = []

    def ending(self, words: LastWords = last_words) -> str | None:
        self.looked += 1
        return None if self.looked < self.ends_at_look else super().ending(words)

    def limit_cpu(self, quota_us: int | None, period_us: int) -> None:
        self.limited.append((quota_us, period_us))


DISK = '2026-11-22T02:18:19.63Z\tfatal\tbackend/batch_tx.go:282\tfailed to commit tx\t{"error": "no space left"}\n'


def with_hosts(bed: Any) -> dict[str, Host]:
    """Have the steps of a bring-up do nothing on hosts that live."""
    bed.hosts |= {plan.name: Host(plan.name) for plan in bed.plan.hosts}
    bed._start_hosts = bed._connect = bed._measure_sync = lambda: None
    return dict(bed.hosts)


NO_NAMESPACE = RunError("cannot enter the network namespace of process 7: No such file or directory")
BUILT, STARTED = "ended while the network was built", "ended while the cluster started"
PANIC = "panic: listen\n\ngoroutine 1 [running]:\nmain.main()\n"
KILLED, OOM = "killed by SIGKILL", "OOM-killed (memory limit 64 MiB)"


@pytest.mark.simulated()
@pytest.mark.parametrize(
    ("step", "error", "dies", "ended", "words"),
    [
        ("_start_hosts", RunError("no image"), False, {}, "no image"),
        ("_start_hosts", RunError("none of 25 probes was answered"), True, {}, DIED),
        ("_bring_up", None, True, {}, DIED),  # while all else came up
        # `ulimit -n 40`: of a pidfd, or the emulator's socket pair.
        ("_start_hosts", OSError(errno.EMFILE, "no"), False, {}, r"[^\n]*no more open files\n  Raise .*ulimit -n.*"),
        ("_connect", NO_NAMESPACE, False, {"etcd2": (OOM, "", 0)}, f"etcd2 {BUILT}: {re.escape(OOM)}"),
        # Its namespace goes before its process.
        ("_connect", NO_NAMESPACE, False, {"etcd2": (KILLED, "", 2)}, f"etcd2 {BUILT}: {KILLED}"),
        ("_connect", RunError("no answer"), True, {"etcd2": (KILLED, "", 0)}, DIED),
        (
            *("_start_cluster", None, False, {"etcd1": ("exit status 1", DISK, 0), "etcd3": (KILLED, "a line\n", 0)}),
            f"etcd1 {STARTED}: exit status 1: failed to commit tx: no space left; etcd3 {STARTED}: {KILLED}",
        ),
        # After the cluster is up.
        ("_done", None, False, {"benchmark": ("exit status 2", PANIC, 0)},
            "the benchmark host ended before the first scenario: exit status 2: panic: listen"),
        ("causes", None, False, {"etcd2": (KILLED, "", 0)}, f"etcd2 ended before the first scenario: {KILLED}"),
    ],
)  # fmt: skip
def test_a_bring_up_that_fails_says_what_has_ended_where_that_is_why(
    monkeypatch: Patch, step: str, error: Exception | None, dies: bool, ended: Any, words: str
) -> None:
    bed = make_bed(monkeypatch)
    hosts = with_hosts(bed)
    bed._prove_network, bed.cluster = lambda: "proved", SimpleNamespace(size=3)
    bed._start_cluster = lambda: Leadership("etcd1", 2)

    def fail(stage: Any = None, kind: str = "cluster_up", text: str = "") -> None:
        if kind != "cluster_up":
            return
        if dies:
            bed.net.hear("emulator_died", DIED)
        for name, how in ended.items():
            hosts[name].ended, hosts[name].log, hosts[name].ends_at_look = how
        if error is not None:
            raise error
        if step == "_start_cluster":
            raise RunError(bed._broken())

    with pytest.raises(RunError, match=f"(?s)^{words}$"):
        if step == "causes":
            fail()
            bed._during = "before the first scenario"
            with bed.causes_named():
                raise RunError("no member answers")
        setattr(bed, step, fail)
        bed.up()


@pytest.mark.parametrize("moment", ["before", "meanwhile", "just before its end"])
def test_a_member_that_ends_during_the_proof_is_in_the_error_and_the_proof(
    bed: Any, monkeypatch: Patch, moment: str
) -> None:
    hosts = with_hosts(bed)

    def measure_gate(topology: Any, pids: Any, *, broken: Any, **other: Any) -> Any:
        if moment == "before":  # the prober found no such process
            hosts["etcd2"].ended = KILLED
            raise RunError("the network's measurement failed: exit status 1: etcd2: no such process")
        assert broken() is None
        hosts["etcd2"].ended = KILLED
        if moment == "meanwhile":
            raise RunError(broken())
        return SimpleNamespace(proof=NetworkProof("before", ()), to_json=lambda: {"pairs": []}, spoiled=None)

    monkeypatch.setattr(testbed_module, "measure_gate", measure_gate)
    why = "etcd2 ended during the network's proof: killed by SIGKILL"
    with pytest.raises(RunError, match=f"^{why}$"):
        bed.up()
    assert [(proof.passed, proof.problems) for proof in bed.proofs] == [(False, [why])]


@pytest.mark.simulated()
def test_nobody_waits_for_a_leader_on_a_dead_network(monkeypatch: Patch) -> None:
    host: Any = SimpleNamespace(name="etcd1", ending=lambda words: None)
    cluster = EtcdCluster([EtcdMember(MemberPlace(host, "10.0.0.1", SimpleNamespace()))])
    monkeypatch.setattr(EtcdMember, "start", lambda self, deadline: None)
    monkeypatch.setattr(EtcdCluster, "statuses", lambda self, starting=False: {})
    news = iter([None, None, DIED])
    with pytest.raises(RunError, match=DIED):
        cluster.start(lambda: next(news))
    assert clock.monotonic() < 1001
    cluster.close()


def test_what_the_system_refuses_is_told_with_its_own_remedy(monkeypatch: Patch) -> None:
    """Of a prober without descriptors the remedy was to run ./build.sh."""
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
    with pytest.raises(RunError, match=r"no more processes or threads\n  Raise .*pids.max"):
        netns.call_in(os.getpid(), lambda: None)
    monkeypatch.setattr(prober_module.subprocess, "Popen", raising(OSError(errno.EMFILE, "Too many open files")))
    with pytest.raises(OSError, match="Too many open files"):
        prober_module.probe({}, 1.0, binary=Path("prober"))


def test_an_end_whose_moment_is_not_known_is_judged_by_the_engines_flag(monkeypatch: Patch) -> None:
    """ValueError of fromisoformat, where nothing may be raised."""
    api = SimpleNamespace(events=lambda **_: iter([{"timeNano": 1}]))
    monkeypatch.setattr(container.engine, "client", lambda: SimpleNamespace(api=api))
    assert container.ended_by_oom("c0ffee", ExitState(137, True))


def test_the_floor_counts_the_sync_measured_where_each_member_keeps_its_data(bed: Any, monkeypatch: Patch) -> None:
    measured: list[tuple[Path, str]] = []
    no_sync = "no fdatasync could be measured in /var/lib/etcd: Read-only file system"

    def measure(root: Path, directory: str, budget_s: float) -> SyncTimes:
        measured.append((root, directory))
        if root == root_of(3):
            raise RunError(no_sync)
        return SyncTimes(9, 2_000_000, 3_000_000)

    monkeypatch.setattr(testbed_module, "measure_sync", measure)
    names = [host.name for host in bed.plan.topology.members]
    bed.hosts = {name: SimpleNamespace(pid=pid, ending=lambda words: None) for pid, name in enumerate(names, 1)}
    scenario = write("w")
    assert bed.least_median_s(scenario, "etcd1", names) is None
    bed._measure_sync()
    assert measured == [(root_of(pid), "/var/lib/etcd") for pid in (1, 2, 3)]
    assert bed.progress.notes == [f"etcd3: {no_sync}; writes have no floor"]
    assert bed.least_median_s(scenario, "etcd1", names) is None
    assert bed.least_median_s(scenario, "etcd1", names[:2]) == pytest.approx(0.018 + 0.002, abs=0.0001)


@pytest.mark.parametrize(
    ("median_ns", "took"), [(4_999_000, "4.999"), (5_000_000, None), (5_500_000, None), (5_501_000, "5.501")]
)
def test_a_configured_fsync_is_there_before_the_store_and_counts_in_the_floor(
    bed: Any, monkeypatch: Patch, median_ns: int, took: str | None
) -> None:
    done: list[Any] = []
    hosts = [replace(host, fsync_ns=5_000_000 if host.name == "etcd2" else None) for host in bed.plan.hosts]
    bed.plan = bed.emulated = replace(bed.plan, hosts=tuple(hosts))
    bed.hosts = {host.name: SimpleNamespace(pid=pid, ending=lambda words: None) for pid, host in enumerate(hosts, 1)}
    bed._disks = SimpleNamespace(cover=lambda *words: done.append(words), close=lambda: done.append("close"))

    def measure(root: Path, directory: str, budget_s: float) -> SyncTimes:
        return SyncTimes(9, median_ns if root == root_of(2) else 100_000, 9_000_000)

    monkeypatch.setattr(testbed_module, "measure_sync", measure)
    bed._start_hosts = bed._connect = bed._reach_server = lambda: None
    bed._prove_network = lambda: "proved"
    bed._start_cluster = lambda: done.append("cluster") or Leadership("etcd1", 2)
    bed.cluster = SimpleNamespace(size=3, endpoints={})
    if took is not None:
        with pytest.raises(
            RunError, match=f"^etcd2: an fsync takes {took} ms, and 5 ms are configured: the disk is slow"
        ):
            bed._bring_up()
        assert done == [("etcd2", 2, ("/var/lib/etcd",), 5_000_000, 100_000_000)]
        return
    bed._bring_up()
    assert done == [("etcd2", 2, ("/var/lib/etcd",), 5_000_000, 100_000_000), "cluster"]
    assert bed.least_median_s(write("w"), "etcd1", ["etcd1", "etcd2"]) == pytest.approx(0.018 + 0.005, abs=0.0001)
    for why in (None, "the disk emulator of etcd2 ended: killed by SIGKILL"):
        bed._disks.failure = lambda why=why: why
        assert bed.settled_failure() == bed.failure == why
    bed.net = SimpleNamespace(stop=lambda: None)
    bed.down()
    assert done[-1] == "close"


# --- a testbed that is turned to another plan -------------------------------------------------------------------------

SMALL = "write-leader-50x*-4B-64B"


def plans(*axes: str, seeds: tuple[int, int] = (1, 1), **choices: Any) -> list[Plan]:
    """Those of the two testbeds of a sweep, as its runs have them."""
    found = design(CONFIG, axes, quick=True, only=[SMALL], **choices)
    assert len(found.beds) == 2
    return [bed.plan_of(bed.cells, 1, seed, found.choices) for bed, seed in zip(found.beds, seeds, strict=True)]


BBR = {"congestion_control": "bbr"}  # takes the least RTT of the last 10 s for the path's
LIMITS, LINKS = "cluster;new-limits", "cluster;new-links"


CHANGES: list[tuple[list[str], dict[str, Any], str | None]] = [
    (["cpus=0.5,1"], {}, LIMITS),
    (["etcd2.cpus=0.5,1"], {}, LIMITS),
    (["client.cpus=0.5,1"], {}, LIMITS),
    (["cpus=0.5,1"], BBR, LIMITS),  # whatever TCP remembers
    (["link_delay=1ms,3ms"], {}, LINKS),
    (["bandwidth=10,100"], {}, LINKS),
    (["loss=0.1,1"], {}, LINKS),
    (["jitter=0ms,1ms"], {}, LINKS),
    (["queue=50,100"], {}, LINKS),
    (["overhead=0,24", "bandwidth=10"], {}, LINKS),
    (["leader=etcd1,etcd2"], {}, "cluster"),
    # What takes a testbed of its own.
    (["mem=256m,512m"], {}, None),  # by GOMEMLIMIT
    (["client.mem=256m,512m"], {}, None),
    (["heartbeat_interval=100ms,200ms", "election_timeout=2s"], {}, None),
    (["link_delay=3ms,200ms"], {}, None),  # the heartbeat follows from the RTT
    (["members=1,3"], {}, None),
    (["tls=false,true"], {}, None),
    (["data=disk,tmpfs"], {}, None),
    (["uplink=host,network"], {}, None),
    (["bandwidth=100,1000"], {}, None),  # sockets keep how much they hand over at once
    (["cpus=0.5,1"], {"seeds": (1, 2)}, None),
    (["link_delay=1ms,3ms"], BBR, None),
    (["cpus=0.5,1"], {"engine": "containernet"}, None),
]


def test_what_is_changed_while_a_testbed_stands() -> None:
    for axes, more, reused in CHANGES:
        found = change_between(*plans(*axes, **more))
        assert (found and found.reused) == reused, (axes, more)
        if found is not None:
            assert bool(found.limits) == (reused == LIMITS) and len(found.links) == 4 * (reused == LINKS), axes


class Bed:
    """A testbed that a run has left standing, and what is told of it."""

    def __init__(self, plan: Plan, monkeypatch: Patch) -> None:
        self.bed = make_bed(monkeypatch, plan)
        self.net, self.events, self.proofs = self.bed.net, self.bed.events, self.bed.proofs
        self.gates: list[Any] = []
        self.forgotten: list[int] = []
        self.changed: dict[str, Any] = {}
        self.net.link_between = lambda a, b: SimpleNamespace(
            change_directions=lambda changes: self.changed.update({f"{a}-{b}": changes})
        )
        monkeypatch.setattr(testbed_module, "_NEWS_S", 0.01)
        monkeypatch.setattr(testbed_module.netns, "forget_paths", self.forgotten.append)
        monkeypatch.setattr(testbed_module, "_QUIET_LOOK_S", 0.0)
        monkeypatch.setattr(testbed_module.Testbed, "_wait_until_quiet", lambda bed: None)
        monkeypatch.setattr(testbed_module.Testbed, "_own_fault", lambda bed, wrong: None)
        monkeypatch.setattr(testbed_module, "measure_gate", self.measure)
        self.wrong = False
        self.bed.hosts = self.hosts = {host.name: Host(host.name) for host in plan.hosts}
        self.cluster = SimpleNamespace(leadership=lambda: Leadership("etcd2", 3), deaths=dict)
        self.bed.cluster = self.cluster
        self.bed._prove_network()
        self.bed.prove_again()

    def event(self, kind: str, text: str, subject: str | None = None) -> None:
        self.events.append((kind, text))

    def measure(self, topology: Any, pids: Any, *, moment: Any, **other: Any) -> Any:
        self.gates.append((moment, topology))
        check = Check("etcd1>s1", "delay", "wrong" if self.wrong else "proved", "3 ms")
        return FakeGate(NetworkProof(moment, (check,)), None, of=len(self.gates))


def left(plan: Plan, monkeypatch: Patch) -> tuple[Bed, Standing]:
    made, standing = Bed(plan, monkeypatch), Standing()
    assert made.bed.why_unfit is None
    standing.leave(made.bed, True)
    return made, standing


def turned(made: Bed, plan: Plan) -> list[Proof]:
    """Turn it; the proofs that the next run is told of."""
    proofs: list[Proof] = []
    wanted = change_between(made.bed.plan, plan)
    assert wanted is not None
    made.bed.turn_to(plan, wanted, Silent(), made.event, proofs.append)
    return proofs


def test_changed_limits_are_held_or_lifted_and_the_last_proof_stays(monkeypatch: Patch) -> None:
    """Nobody has touched the network since it was proved after the last scenario."""
    first, second = plans("cpus=0.5,1", "client.cpus=1")
    made, _ = left(first, monkeypatch)
    proofs = turned(made, second)
    one = [(100_000, 100_000)]
    limited = {name: host.limited for name, host in made.hosts.items()}
    assert limited == {"etcd1": one, "etcd2": one, "etcd3": one, "benchmark": []}
    assert [moment for moment, _ in made.gates] == ["before", "after"] and made.changed == {}
    assert [(proof.moment, proof.at_ns) for proof in proofs] == [("before", made.proofs[-1].at_ns)]
    bed = made.bed
    assert (bed.gate.of, bed.reused, bed.loaded, bed.led_at_start.leader) == (2, "cluster;new-limits", True, "etcd2")
    assert bed.plan is second and bed.capacity == capacity_of(second) != capacity_of(first)
    bed.prove_again()
    turned(made, replace(second, hosts=tuple(replace(host, cpus=None, cpu_quota_us=None) for host in second.hosts)))
    assert made.hosts["etcd1"].limited == [*one, (None, 100_000)]


def test_changed_links_are_as_planned_and_proved_as_the_new_ones(monkeypatch: Patch) -> None:
    first, second = plans("link_delay=1ms,4ms", seeds=(7, 7))
    made, _ = left(first, monkeypatch)
    made.bed.sync = {name: SyncTimes(1, 0, 0) for name in ("etcd1", "etcd2", "etcd3")}
    proofs = turned(made, second)
    assert made.changed == {link.name: asdict(link.spec) for link in second.links}
    assert made.changed["etcd1-s1"]["a_to_b"]["delay_ns"] == 4_000_000
    assert "seed" in made.changed["etcd1-s1"]["a_to_b"], "so draws begin with the seed again"
    assert made.gates[-1] == ("change", second.topology) and [proof.moment for proof in proofs] == ["change"]
    assert made.bed.gate is not None and [kind for kind, _ in made.events[-2:]] == ["links_changed", "network_proved"]
    scenario = second.scenarios[0].scheduled.scenario
    floor_s = made.bed.least_median_s(scenario, "etcd1", ["etcd1", "etcd2", "etcd3"])
    assert floor_s is not None and floor_s > 0.024, "to the leader and back, and from there to a follower"
    assert made.bed.reused == "cluster;new-links"
    assert made.forgotten == [host.pid for host in made.hosts.values()], "what TCP has learnt of the old paths"


def test_a_changed_network_that_is_wrong_or_too_busy_is_no_testbed(monkeypatch: Patch) -> None:
    busy = "the hosts still filled 3% of etcd1-s1"
    wrong = "the network is not the one that was configured: delay of etcd1>s1"
    for found, words in ((None, wrong), (busy, f"cannot be proved: {busy}")):
        first, second = plans("link_delay=1ms,4ms")
        made, _ = left(first, monkeypatch)
        monkeypatch.setattr(testbed_module.Testbed, "_wait_until_quiet", lambda bed, found=found: found)
        made.wrong = True
        with pytest.raises(RunError, match=words):
            turned(made, second)


MEANWHILE: list[tuple[Callable[[Bed], object], str]] = [
    (
        lambda made: setattr(made.hosts["etcd2"], "ended", "OOM-killed"),
        "etcd2 ended while it stood between two runs: OOM-killed",
    ),
    (lambda made: made.net.hear("emulator_died", DIED), DIED),
    (lambda made: setattr(made.cluster, "leadership", lambda: None), "have no leader"),
]


def test_what_has_ended_meanwhile_is_why_it_cannot_be_turned(monkeypatch: Patch) -> None:
    for strike, why in MEANWHILE:
        first, second = plans("cpus=0.5,1")
        made, standing = left(first, monkeypatch)
        told = len(made.events)
        strike(made)
        assert len(made.events) == told, "the run before gets no more events: its files are sealed"
        assert standing.take() is made.bed and standing.take() is None
        with pytest.raises(RunError, match=why):
            turned(made, second)


def test_a_testbed_says_why_nothing_else_should_be_measured_on_it(monkeypatch: Patch) -> None:
    made = Bed(plans("cpus=0.5,1")[0], monkeypatch)
    assert made.bed.why_unfit is None
    made.wrong = True
    made.bed.prove_again()
    assert made.bed.why_unfit == "its network was not proved after the last scenario"
    made.wrong = False
    made.bed.prove_again()
    made.cluster.deaths = lambda: {"etcd1": "etcd1 ended: exit status 2"}
    assert made.bed.why_unfit == "etcd1 ended: exit status 2"
    monkeypatch.setattr(testbed_module, "measure_gate", raising(RunError("no answer")))
    made.cluster.deaths = dict
    with pytest.raises(RunError, match="no answer"):
        made.bed.prove_again()
    assert made.bed.why_unfit is not None, "the proof of before is none of now"


def test_what_stands_is_taken_down_once_and_not_interrupted(monkeypatch: Patch) -> None:
    made, standing = left(plans("cpus=0.5,1")[0], monkeypatch)
    stop, downs = Stop(), list[bool]()

    def down() -> None:
        stop.check()
        downs.append(True)

    monkeypatch.setattr(made.bed, "down", down)
    stop.request(2)
    standing.close(Silent(), stop)
    standing.close(Silent(), stop)
    assert downs == [True]
