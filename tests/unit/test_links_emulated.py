"""Links of the emulator: what is held back at their hosts, how they are taken back, and starts of the emulator.

The kernel is made of its answers to tc, the emulator of those to its requests.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import Interrupted, MissingRequirementError, RunError, UsageError
from containernet_env.containernet.links import wrap
from containernet_env.model.dilation import slowed
from containernet_env.model.disruption import Disruption, Targets
from containernet_env.model.link import (
    CoDel,
    DirectionSpec,
    FqCoDel,
    GilbertElliottLoss,
    IndependentLoss,
    Jitter,
    Link,
    LinkSpec,
    queue_frames,
)
from containernet_env.model.usage import SIDES
from containernet_env.network import factory as factory_module
from containernet_env.network.emulator import EmulatedLink, EmulatorFabric, direction_from_json
from containernet_env.network.factory import LinkFactory, Place
from containernet_env.network.interface import Interface, SwitchPort
from containernet_env.runs.disruptor import Faults
from tests.unit import fakes
from tests.unit.fakes import IDLE, FakeEmulator, FakeKernel

kernel = fakes.kernel
MBIT = 10**6
SYMMETRIC = LinkSpec.symmetric(3_000_000, 100 * MBIT)
PORT: dict[str, Any] = dict.fromkeys(
    ("received_frames", "received_bytes", "sent_frames", "sent_bytes", "tap_drops", "tap_drops_error"), 0
) | {"drops": {}}


class Emulator(FakeEmulator):
    """With ``requests`` that are kept; ``fail`` raises before or after a request is done."""

    pid, hello = 7, {"version": "x"}
    counted = IDLE | {"drops": {"queue": 5}, "offered": 20, "frames": 15}

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.fail: tuple[str, bool, BaseException] | None = None

    def request(self, op: str, **fields: Any) -> Any:
        self._strike(op, done=False)
        self.requests.append((op, fields))
        result = self.carry_out(op, **fields)
        if op == "stats":
            result["ports"] = {"d1": PORT}
        self._strike(op, done=True)
        return SimpleNamespace(at_ns=1, result=result)

    def _strike(self, op: str, done: bool) -> None:
        if self.fail is not None and self.fail[:2] == (op, done):
            raise self.fail[2]


def new_link(spec: LinkSpec = SYMMETRIC) -> tuple[EmulatedLink, Emulator]:
    emulator: Any = Emulator()
    return EmulatedLink(emulator, "d1-s1", (Interface(1, "e0", "02::1", "d1"), SwitchPort("e1", "s1")), spec), emulator


def link_of(spec: LinkSpec = SYMMETRIC) -> tuple[EmulatedLink, Emulator]:
    link, emulator = new_link(spec)
    link.make()
    link.apply(spec)
    return link, emulator


def test_an_mtu_is_that_of_the_hosts_port_too_and_stays(kernel: FakeKernel) -> None:
    """`ifconfig("mtu 9000")` was accepted, and frames above 1518 bytes vanished."""
    link, emulator = link_of()
    nodes = [SimpleNamespace(name=name, nameToIntf={}, addIntf=lambda *_, **__: None) for name in ("d1", "s1")]
    wrapped = wrap(link, nodes, (Place("d1", 1), Place("s1", 2, 1)), lambda *_: None)
    wrapped.intf1.ifconfig("mtu 9000")
    wrapped.intf2.ifconfig("mtu", 9000)  # what scripts do to the ports of switches
    assert (kernel.settings["mtu"], emulator.requests[-1]) == (9000, ("set_port", {"name": "d1", "mtu": 9000}))
    for size in ("9", "65522", "9k", "-1"):
        for intf in (wrapped.intf1, wrapped.intf2):
            with pytest.raises(UsageError, match=f"mtu '{size}'; allowed: 68 to 65521 bytes"):
                intf.ifconfig("mtu", size)
    link.clear()  # as where its host is started again
    link.make()
    assert emulator.requests[-1][1]["mtu"] == 9000


def test_what_a_host_sends_waits_at_the_host_and_a_change_reaches_it(kernel: FakeKernel) -> None:
    direction = DirectionSpec(3_000_000, 10**8, default_queue_frames=2000, overhead_bytes=24)
    link, _ = link_of(LinkSpec(direction, direction))
    htb, rate, queue = kernel.commands
    assert htb == "qdisc add dev e0 root handle 1: htb default 1"
    assert " rate 100000000bit ceil 100000000bit " in rate and rate.endswith(" overhead 24")
    assert queue == "qdisc add dev e0 parent 1:1 handle 20: pfifo limit 2000"
    # What the switch sends waits in the network in any case.
    assert [side.uplink for side in (link.read_back().a_to_b, link.read_back().b_to_a)] == ["host", None]
    kernel.commands.clear()
    link.change_directions({"a_to_b": {"delay_ns": 1_000_000}})
    assert kernel.commands == [], "only what changes"
    link.change_directions({"a_to_b": {"rate_bps": 10 * MBIT, "queue_frames": 70}})
    rate, queue = kernel.commands
    assert rate.startswith("class change dev e0 parent 1: classid 1:1 htb rate 10000000bit")
    assert queue == "qdisc change dev e0 parent 1:1 handle 20: pfifo limit 70"
    link_of(LinkSpec(DirectionSpec(0, MBIT, queue_bytes=9000)))
    assert kernel.commands[-1].endswith("bfifo limit 9000")


@pytest.mark.parametrize("dilation", [1, 4, 10])
def test_a_rate_where_none_was_planned_has_the_same_queue_at_every_dilation(kernel: FakeKernel, dilation: int) -> None:
    """It was 250 ms of the slowed rate."""
    planned = slowed(LinkSpec(DirectionSpec(100_000_000), DirectionSpec(0, 100 * MBIT, None)), dilation)
    planned = replace(planned, b_to_a=replace(planned.b_to_a, default_queue_frames=777))
    link, emulator = link_of(planned)
    faults = Faults(
        SimpleNamespace(links_kind="emulator", partition=None, heal=None, link_between=lambda a, b: link),
        {}, [Link("d1", "s1", planned)], Targets(("d1",)), lambda *_: 0, lambda _: None, dilation,
    )  # fmt: skip
    found = []
    for verb, value in (("rate", 50 * MBIT), ("rate", 200 * MBIT), ("delay", 0)):
        faults.shape("d1", slowed(Disruption(verb=verb, target="d1", at_ns=0, value=value), dilation))
        sides = emulator.links["d1-s1"]
        found.append([queue_frames(direction_from_json(sides[side])) for side in SIDES])
    assert found == [[1652, 777], [6606, 777], [2000, 777]]
    faults.unshape("d1", ["rate", "delay"])
    assert link.spec == planned


def test_with_a_queue_discipline_frames_wait_in_the_network(kernel: FakeKernel) -> None:
    link, _ = link_of(LinkSpec(DirectionSpec(0, MBIT, 50, aqm=CoDel())))
    assert kernel.commands == [] and link.read_back().a_to_b.uplink == "network"
    link.change_directions({"a_to_b": {"aqm": None}})
    assert kernel.commands[-1].endswith("pfifo limit 50") and link.read_back().a_to_b.uplink == "host"
    link.change_directions({"a_to_b": {"aqm": CoDel()}})
    assert link.read_back().a_to_b.uplink == "network"


def test_a_direction_is_read_back_as_the_emulator_holds_it(kernel: FakeKernel) -> None:
    bursts = DirectionSpec(10**6, jitter=Jitter("uniform", 1000), loss=GilbertElliottLoss(0.1, 0.2, 0.0, 0.9), seed=1)
    spiced = {"duplication_ratio": 0.1, "corruption_ratio": 0.2, "aqm": FqCoDel(1, 2, False, 3, 300)}
    queued = DirectionSpec(0, MBIT, None, 9000, loss=IndependentLoss(0.1), seed=2, overhead_bytes=24, **spiced)
    link, emulator = link_of(LinkSpec(bursts, queued))
    assert link.read_back() == LinkSpec(bursts, queued)
    made = emulator.requests[1][1]
    assert (made["a"], made["b"]) == ({"port": "d1"}, {"switch": "s1"})
    assert "default_queue_frames" not in made["a_to_b"]
    for spec, frames in ((DirectionSpec(0, MBIT, default_queue_frames=4000), 4000), (DirectionSpec(0, MBIT, 5), 5)):
        assert link_of(LinkSpec(spec))[1].requests[1][1]["a_to_b"]["queue_frames"] == frames
    # Draws begin again where a seed changes or is named, and nowhere else.
    for changes, seeds in (
        ({"a_to_b": {"seed": 1}}, [1, None]),
        ({"a_to_b": {"delay_ns": 5000}, "b_to_a": {"delay_ns": 5}}, [None, None]),
        ({"b_to_a": {"seed": None}}, [None, 0]),  # the network's takes its place
    ):
        emulator.requests.clear()
        link.change_directions(changes)
        (sent,) = [fields for op, fields in emulator.requests if op == "set_link"]
        assert [sent[side].get("seed") for side in ("a_to_b", "b_to_a")] == seeds, changes


def test_a_packet_of_several_segments_takes_a_tenth_of_a_millisecond_at_most(kernel: FakeKernel) -> None:
    """At 10 Mbit/s an echo waited 70 ms behind packets of 64 KiB.

    Where segments pass together, HTB would count an overhead once for all of them: it is taken off the rate. As one
    packet each, they kept 2 to 3.5 % below theory at 1000 Mbit/s.
    """
    at_once = {(1, 0): 1, (100, 0): 1, (500, 0): 4, (1000, 0): 8, (10_000, 0): 43, (100, 24): 1, (1000, 24): 8}
    for (mbps, overhead), segments in at_once.items():
        link_of(LinkSpec(DirectionSpec(0, mbps * MBIT, overhead_bytes=overhead)))
        together, line = overhead and segments > 1, kernel.commands[-2]
        assert kernel.settings["gso_max_segs"] == segments, (mbps, overhead)
        assert f" rate {mbps * MBIT * 1514 // 1538 if together else mbps * MBIT}bit " in line
        assert ("overhead 24" in line) == (overhead == 24 and not together), line
        kernel.qdiscs.clear()


def test_a_host_holds_nothing_back_where_nothing_waits_or_the_network_queues(kernel: FakeKernel) -> None:
    behind = DirectionSpec(0, MBIT, uplink="network")
    both = DirectionSpec(0, 10**8, queue_frames=5, queue_bytes=5000)
    for direction, uplink in ((DirectionSpec(3_000_000), None), (both, "network"), (behind, "network")):
        link, _ = link_of(LinkSpec(direction, behind))
        assert kernel.commands == [] and link.read_back().a_to_b.uplink == uplink, direction
    link.change_directions({"a_to_b": {"rate_bps": None}, "b_to_a": {"uplink": "host"}})
    assert kernel.commands == []


def test_frames_that_wait_are_released_and_not_lost(kernel: FakeKernel) -> None:
    for change in ({"rate_bps": None}, {"uplink": "network"}):
        link, _ = link_of()
        kernel.commands.clear()
        link.change_directions({"a_to_b": change})
        assert [line.split()[1] for line in kernel.commands] == ["change"] * len(kernel.commands)
        assert "rate 1000000000000bit ceil 1000000000000bit" in kernel.classes["e0"]
        assert link.read_back().a_to_b.uplink in (None, "network")
        link.change_directions({"a_to_b": {"rate_bps": 50 * MBIT, "uplink": None}})
        assert "rate 50000000bit ceil 50000000bit" in kernel.classes["e0"]


def test_what_the_host_refuses_leaves_the_link_as_it_was(kernel: FakeKernel) -> None:
    link, emulator = link_of()
    kernel.refused = {"htb rate 10000000bit": "tc refuses"}
    before = dict(emulator.links["d1-s1"]["a_to_b"])
    with pytest.raises(RunError, match="tc refuses"):
        link.change_directions({"a_to_b": {"rate_bps": 10 * MBIT, "delay_ns": 5}})
    assert [op for op, _ in emulator.requests if op != "read_link"] == ["add_port", "add_link", "set_link", "set_link"]
    assert emulator.links["d1-s1"]["a_to_b"] == before
    assert link.spec == SYMMETRIC and "rate 100000000bit ceil 100000000bit" in kernel.classes["e0"]
    kernel.refused.clear()
    link.change_directions({"a_to_b": {"rate_bps": 10 * MBIT}})
    assert "rate 10000000bit ceil 10000000bit" in kernel.classes["e0"]


def test_a_host_that_holds_something_else_is_an_error_but_not_one_that_has_ended(kernel: FakeKernel) -> None:
    link, emulator = link_of()
    kernel.deaf = True
    kernel.qdiscs.clear()
    with pytest.raises(RunError, match="link at d1, a to b: configured"):
        link_of()
    kernel.refused["htb"] = "'tc -batch -' failed with status 1: Error: Specified qdisc kind is unknown."
    with pytest.raises(MissingRequirementError, match=r'no HTB(.|\n)*"uplink": "network"'):
        link_of()
    kernel.gone.add(1)
    link.change_directions({"a_to_b": {"rate_bps": 10 * MBIT}})
    assert emulator.links["d1-s1"]["a_to_b"]["rate_bps"] == 10 * MBIT


def test_what_the_hosts_queue_drops_is_lost_by_the_links(kernel: FakeKernel) -> None:
    link, emulator = link_of()
    held: Any = emulator
    fabric = EmulatorFabric(lambda: held)
    kernel.dropped, kernel.waiting = 7, 3
    counted = fabric.statistics([link], reset=True, buckets=False)
    assert counted["ports"]["d1"]["host_queue"] == {"dropped": 7, "waiting": 3}
    there, back = (counted["links"]["d1-s1"][side] for side in ("a_to_b", "b_to_a"))
    assert (there["offered"], there["drops"]["queue"], there["frames"], back["offered"]) == (27, 12, 15, 20)
    kernel.dropped = 9
    assert link.statistics()["a_to_b"]["drops"]["queue"] == 7
    kernel.gone.add(1)
    assert fabric.statistics([link], reset=False, buckets=False)["ports"]["d1"]["host_queue"] is None


@pytest.mark.parametrize("error", [Interrupted(2), RunError("no answer after 5 s")])
def test_a_making_that_is_cut_short_leaves_nothing_and_raises_nothing_else(error: BaseException) -> None:
    """Ctrl-C in bring-up: `remove_port: port "benchmark-eth0" carries link "benchmark-s1"`, exit status 1."""
    for op, done in product(("add_port", "add_link"), (False, True)):
        link, emulator = new_link()
        emulator.fail = (op, done, error)
        with pytest.raises(type(error)):
            link.make()
            link.apply(link.spec)
        link.clear()
        assert (emulator.ports, emulator.links) == ({}, {}), (op, done)
    # What the emulator has and does not take back is reported.
    link, emulator = new_link()
    link.make()
    emulator.fail = ("remove_port", False, error)
    with pytest.raises(type(error)):
        link.clear()


def test_a_link_that_was_removed_or_failed_gives_its_name_and_addresses_back(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`addLink(addr1=...)` after `removeLink`: "the Ethernet address is in use already"; the name became d1-d2-2."""
    held: Any = Emulator()
    monkeypatch.setattr(factory_module, "LinkEmulator", lambda *_: held)
    monkeypatch.setattr(factory_module.netns, "is_own", lambda pid: pid == 3)
    factory = LinkFactory("emulator", "abc123", None, lambda kind, text: None)

    def make(port: int = 0, mac: str = "02:00:00:00:00:0a") -> Any:
        one = Place("d1", 1, port, mac, "10.0.0.1/24")
        return factory.make_link(one, Place("d2", 2, alias=f"d2-{port}"), LinkSpec())

    held.fail = ("add_link", False, RunError("no"))
    with pytest.raises(RunError):
        make()
    held.fail = None
    with pytest.raises(UsageError, match="d3 is in the machine's own network namespace"):
        factory.make_link(Place("d1", 1), Place("d3", 3), LinkSpec())
    first = make()
    with pytest.raises(UsageError, match="d1: the Ethernet address 02:00:00:00:00:0A is in use already"):
        make(1, mac="02:00:00:00:00:0A")
    second = make(1, mac="02:00:00:00:00:0b")
    assert [link.name for link in (first, second)] == ["d1-d2", "d1-d2-2"]
    derived = first.ends[1].mac
    assert second.ends[1].mac != derived
    first.clear()
    again = make()
    assert (again.name, [end.mac for end in again.ends]) == ("d1-d2", ["02:00:00:00:00:0a", derived])
    again.ends[0].set_mac("02:00:00:00:00:0c")
    assert make(2).name == "d1-d2-3"


@pytest.mark.parametrize(
    ("results", "life", "passed"),
    [
        ([True], ["start"], True),
        ([False, True], ["start", "stop", "start"], True),  # a busy moment
        ([False, False, False, True], ["start", "stop", "start", "stop", "start"], False),
    ],
)
def test_an_emulator_whose_own_test_fails_is_started_again(
    monkeypatch: pytest.MonkeyPatch, results: list[bool], life: list[str], passed: bool
) -> None:
    """``results``: how its own test ends, one start after the other."""
    lived, test = list[str](), {"passed": passed, "reason": "" if passed else "too late"}

    class Started(Emulator):
        def __init__(self, *_: Any) -> None:
            super().__init__()
            self.hello: Any = {}

        def start(self) -> None:
            if not self.hello:
                lived.append("start")
                result = results.pop(0)
                self.hello = {"self_test": {"passed": result, "reason": "" if result else "too late"}}

        def stop(self) -> None:
            lived.append("stop")

    monkeypatch.setattr(factory_module, "LinkEmulator", Started)
    factory = LinkFactory("emulator", "abc123", None, lambda kind, text: None, 4711)
    one, two = factory.make_switch("s1"), factory.make_switch("s2")
    assert (lived, factory.emulator.hello["self_test"]) == (life, test)
    # Links without a seed of their own have the network's.
    link = factory.make_link(Place("s1", one), Place("s2", two), LinkSpec(DirectionSpec(), DirectionSpec(seed=5)))
    assert (link.read_back().a_to_b.seed, link.read_back().b_to_a.seed) == (4711, 5)
