"""A testbed that is turned to another plan while it stands: which plans that can be, and what is done and proved."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.analysis.capacity import capacity_of
from containernet_env.base.errors import RunError
from containernet_env.base.stop import Stop
from containernet_env.hosts.data_sync import SyncTimes
from containernet_env.model.leadership import Leadership
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.plan.plan import Plan
from containernet_env.results.run_files import Proof
from containernet_env.runs import network_prover
from containernet_env.runs import standing as standing_module
from containernet_env.runs import testbed as testbed_module
from containernet_env.runs.change import change_between
from containernet_env.runs.network_prover import NetworkProver
from containernet_env.runs.progress import Silent
from containernet_env.runs.standing import Standing, StandingTestbed
from containernet_env.setup.images import Images
from containernet_env.sweep.design import design
from tests.unit.matrix_fakes import CONFIG
from tests.unit.run_fakes import raising
from tests.unit.test_network_proof import FakeGate
from tests.unit.testbed_fakes import FakeNet

SMALL = "write-leader-50x*-4B-64B"


def plans(*axes: str, seeds: tuple[int, int] = (1, 1), **choices: Any) -> list[Plan]:
    """Those of the two testbeds of a sweep, as its runs have them."""
    found = design(CONFIG, axes, quick=True, only=[SMALL], **choices)
    assert len(found.beds) == 2
    return [bed.plan_of(bed.cells, 1, seed, found.choices) for bed, seed in zip(found.beds, seeds, strict=True)]


BBR = {"congestion_control": "bbr"}  # takes the least RTT of the last 10 s for the path's
LIMITS, LINKS = "cluster;new-limits", "cluster;new-links"


@pytest.mark.parametrize(
    ("axes", "more", "reused"),
    [
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
    ],
)
def test_what_is_changed_while_a_testbed_stands(axes: list[str], more: dict[str, Any], reused: str | None) -> None:
    found = change_between(*plans(*axes, **more))
    assert (found and found.reused) == reused
    if found is not None:
        assert bool(found.limits) == (reused == LIMITS) and len(found.links) == 4 * (reused == LINKS)


class Host(SimpleNamespace):
    """A host of the network that stands; ``ended`` is how."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, pid=4194304, limited=[], ended=None)

    @property
    def alive(self) -> bool:
        return self.ended is None

    def ending(self, words: Any) -> str | None:
        return str(self.ended) if self.ended else None

    def limit_cpu(self, quota_us: int | None, period_us: int) -> None:
        self.limited.append((quota_us, period_us))


class Bed:
    """A testbed that a run has left standing, and what is told of it."""

    def __init__(self, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
        self.net, self.events, self.proofs = FakeNet(), list[str](), list[Proof]()
        self.gates: list[Any] = []
        self.forgotten: list[int] = []
        self.changed: dict[str, Any] = {}
        self.net.link_between = lambda a, b: SimpleNamespace(  # type: ignore[attr-defined]
            change_directions=lambda changes: self.changed.update({f"{a}-{b}": changes})
        )
        monkeypatch.setattr(testbed_module, "ReservedFiles", lambda: SimpleNamespace(release=lambda: None))
        monkeypatch.setattr(testbed_module.select, "create", lambda plan: self.net)
        monkeypatch.setattr(testbed_module, "_NEWS_S", 0.01)
        monkeypatch.setattr(standing_module.tcp, "forget_paths", self.forgotten.append)
        monkeypatch.setattr(network_prover, "_QUIET_LOOK_S", 0.0)
        monkeypatch.setattr(NetworkProver, "_wait_until_quiet", lambda prover: None)
        monkeypatch.setattr(NetworkProver, "_own_fault", lambda prover: None)
        monkeypatch.setattr(network_prover, "measure_gate", self.measure)
        self.wrong = False
        self.bed: Any = StandingTestbed(
            plan, Images("e", "b"), Silent(), port=0, on_event=self.event, on_proof=self.proofs.append
        )
        self.bed.hosts = self.hosts = {host.name: Host(host.name) for host in plan.hosts}
        self.bed._prover = self.bed._make_prover()
        self.cluster = SimpleNamespace(leadership=lambda: Leadership("etcd2", 3), deaths=dict)
        self.bed._cluster = self.cluster
        self.bed._prove_network()
        self.bed.prove_again("after")

    def event(self, kind: str, text: str, subject: str | None = None) -> None:
        self.events.append(kind)

    def measure(self, topology: Any, pids: Any, *, moment: Any, **other: Any) -> Any:
        self.gates.append((moment, topology))
        check = Check("etcd1>s1", "delay", "wrong" if self.wrong else "proved", "3 ms")
        return FakeGate(NetworkProof(moment, (check,)), None, of=len(self.gates))


def left(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> tuple[Bed, Standing]:
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


def test_changed_limits_are_held_and_the_last_proof_is_that_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert (bed.gate.of, bed.reused, bed.loaded, bed.leader_at_start) == (2, "cluster;new-limits", True, "etcd2")
    assert bed.plan is second and bed.capacity == capacity_of(second) != capacity_of(first)


def test_a_limit_that_was_lifted_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = plans("cpus=0.5,1")
    free = replace(second, hosts=tuple(replace(host, cpus=None, cpu_quota_us=None) for host in second.hosts))
    made, _ = left(first, monkeypatch)
    turned(made, free)
    assert made.hosts["etcd1"].limited == [(None, 100_000)]


def test_changed_links_are_as_planned_and_proved_as_the_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = plans("link_delay=1ms,4ms", seeds=(7, 7))
    made, _ = left(first, monkeypatch)
    made.bed.sync = {name: SyncTimes(1, 0, 0) for name in ("etcd1", "etcd2", "etcd3")}
    proofs = turned(made, second)
    assert made.changed == {link.name: asdict(link.spec) for link in second.links}
    assert made.changed["etcd1-s1"]["a_to_b"]["delay_ns"] == 4_000_000
    assert "seed" in made.changed["etcd1-s1"]["a_to_b"], "so draws begin with the seed again"
    assert made.gates[-1] == ("change", second.topology) and [proof.moment for proof in proofs] == ["change"]
    assert made.bed.gate is not None and made.events[-2:] == ["links_changed", "network_proved"]
    scenario = second.scenarios[0].scheduled.scenario
    floor_s = made.bed.least_median_s(scenario, "etcd1", ["etcd1", "etcd2", "etcd3"])
    assert floor_s is not None and floor_s > 0.024, "to the leader and back, and from there to a follower"
    assert made.bed.reused == "cluster;new-links"
    assert made.forgotten == [host.pid for host in made.hosts.values()], "what TCP has learnt of the old paths"


@pytest.mark.parametrize(
    ("busy", "words"),
    [
        (None, "the network is not the one that was configured: delay of etcd1>s1"),
        ("the hosts still filled 3% of etcd1-s1", "cannot be proved: the hosts still filled 3% of etcd1-s1"),
    ],
)
def test_a_changed_network_that_is_wrong_or_too_busy_to_be_proved_is_no_testbed(
    busy: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = plans("link_delay=1ms,4ms")
    made, _ = left(first, monkeypatch)
    monkeypatch.setattr(NetworkProver, "_wait_until_quiet", lambda prover: busy)
    made.wrong = True
    with pytest.raises(RunError, match=words):
        turned(made, second)


@pytest.mark.parametrize("ending", ["member", "emulator", "leader"])
def test_what_has_ended_meanwhile_is_why_it_cannot_be_turned(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = plans("cpus=0.5,1")
    made, standing = left(first, monkeypatch)
    told, why = len(made.events), ""
    if ending == "member":
        made.hosts["etcd2"].ended = "OOM-killed"
        why = "etcd2 ended while it stood between two runs: OOM-killed"
    elif ending == "emulator":
        made.net.hear("emulator_died", why := "the link emulator ended: killed by SIGKILL")
    else:
        made.cluster.leadership, why = lambda: None, "have no leader"
    assert len(made.events) == told, "the run before is told nothing any more: its files are sealed"
    assert standing.take() is made.bed and standing.take() is None
    with pytest.raises(RunError, match=why):
        turned(made, second)


def test_a_testbed_says_why_nothing_else_should_be_measured_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Bed(plans("cpus=0.5,1")[0], monkeypatch)
    assert made.bed.why_unfit is None
    made.wrong = True
    made.bed.prove_again("after")
    assert made.bed.why_unfit == "its network was not proved after the last scenario"
    made.wrong = False
    made.bed.prove_again("after")
    made.cluster.deaths = lambda: {"etcd1": "etcd1 ended: exit status 2"}
    assert made.bed.why_unfit == "etcd1 ended: exit status 2"
    monkeypatch.setattr(network_prover, "measure_gate", raising(RunError("no answer")))
    made.cluster.deaths = dict
    with pytest.raises(RunError, match="no answer"):
        made.bed.prove_again("after")
    assert made.bed.why_unfit is not None, "the proof of before is none of now"


def test_what_stands_is_taken_down_once_and_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
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
