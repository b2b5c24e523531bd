"""Jitter and loss as they reach a receiver, by every implementation; bounds of five standard deviations on counts."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.fidelity.rtt import ProbeHost, measure
from containernet_env.hosts import netns
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter, Loss
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.topology import RttExpectation
from containernet_env.network.kernel.tc import DELAY_TOLERANCE_NS
from containernet_env.network.link import ShapedLink, check_held
from tests.root.network import (
    ADDRESSES,
    COARSE,
    INTERFACES,
    MACS,
    RTT_TOLERANCE,
    answers,
    emulated,
    has_netem,
    needs_emulator,
    needs_root,
    veth,
)
from tests.root.pump import goodput_bps

pytestmark = [pytest.mark.root, needs_root]

Made = AbstractContextManager[tuple[ShapedLink, tuple[int, int]]]
Maker = Callable[[LinkSpec], Made]

EMULATOR = pytest.param(emulated, id="emulator", marks=needs_emulator)
NETEM = pytest.param(veth, id="netem", marks=pytest.mark.skipif(not has_netem(), reason="this kernel has no netem"))

MS = 1_000_000
DATAGRAMS = 2000
SO_RCVBUFFORCE = 33  # asm-generic/socket.h; Python has no name for it


def received(pids: tuple[int, int]) -> list[int]:
    """The numbers of the datagrams that arrive of ``DATAGRAMS``, sent from the first to the second, in their order."""
    with (
        netns.socket_in(pids[1], socket.AF_INET, socket.SOCK_DGRAM) as there,
        netns.socket_in(pids[0], socket.AF_INET, socket.SOCK_DGRAM) as here,
    ):
        # FORCE: most machines allow 208 KiB, which holds 555 of these.
        there.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        there.bind((ADDRESSES[1], 0))
        here.connect(there.getsockname())
        numbers: list[int] = []
        for number in range(DATAGRAMS):
            here.send(number.to_bytes(4, "big"))
            if number % 50 == 49:  # slower than any queue on the way
                time.sleep(0.001)
        there.settimeout(0.5)
        while True:
            try:
                numbers.append(int.from_bytes(there.recv(10), "big"))
            except TimeoutError:
                return numbers


@pytest.mark.parametrize("make", [EMULATOR, NETEM])
@pytest.mark.parametrize("loss", [IndependentLoss(0.1), GilbertElliottLoss(0.05, 0.45)], ids=["independent", "bursts"])
def test_as_many_frames_are_lost_as_was_asked(make: Maker, loss: Loss) -> None:
    spec = LinkSpec(DirectionSpec(), DirectionSpec())
    with make(spec) as (link, pids):
        assert answers(*pids, ADDRESSES[1])  # addresses are known before frames are counted
        link.apply(LinkSpec(DirectionSpec(loss=loss), DirectionSpec()))
        lost = DATAGRAMS - len(received(pids))
        ratio, spread = loss.mean_ratio, (1 + loss.correlation) / (1 - loss.correlation)
        deviation = math.sqrt(DATAGRAMS * ratio * (1 - ratio) * spread)
        assert abs(lost - DATAGRAMS * ratio) <= 5 * deviation, (lost, ratio, deviation)
        drops = link.statistics()["a_to_b"]["drops"]
        counted = drops["loss"] if "loss" in drops else drops["queue_or_loss"]
        assert counted >= lost


@needs_emulator
def test_a_seed_repeats_the_same_losses() -> None:
    with emulated(LinkSpec()) as (link, pids):
        # Frames of nobody's asking (neighbours, routers) would draw as well.
        for pid, interface, other, mac in zip(pids, INTERFACES, reversed(ADDRESSES), reversed(MACS), strict=True):
            netns.write_sysctl(pid, "net.ipv6.conf.all.disable_ipv6", "1")
            netns.ip_batch(pid, [f"neighbor replace {other} lladdr {mac} dev {interface} nud permanent"])
        assert answers(*pids, ADDRESSES[1])
        runs = []
        for seed in (7, None, 7):
            link.apply(LinkSpec(DirectionSpec(loss=IndependentLoss(0.1), seed=seed), DirectionSpec()))
            runs.append(received(pids))
        link.change_directions({"a_to_b": {"seed": 7}})  # the seed that it has: restarts all the same
        runs.append(received(pids))
    assert runs[0] == runs[2] == runs[3]
    assert runs[0] != runs[1]


@pytest.mark.parametrize("make", [EMULATOR, NETEM])
@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_jitter_is_read_back_and_passes_the_proof_of_a_network(make: Maker, distribution: str) -> None:
    jitter = Jitter("uniform", 3 * MS, True) if distribution == "uniform" else Jitter("normal", 2 * MS, True)
    direction = DirectionSpec(10 * MS, jitter=jitter)
    spec = LinkSpec(direction, direction)
    with make(spec) as (link, pids):
        check_held("test", spec, link.read_back(), DELAY_TOLERANCE_NS)
        hosts = [ProbeHost(name, pid, ip) for name, pid, ip in zip("ab", pids, ADDRESSES, strict=True)]
        expected = RttExpectation("a", "b", 20 * MS, 20 * MS, round_trip=(direction, direction))
        table = measure(hosts, [expected])
    assert table.problems(RTT_TOLERANCE) == [], table.render(RTT_TOLERANCE)
    samples = table.pairs[0].samples_ns
    # The chance that 25 round trips of this spread stay within 1 ms of each other is nil.
    assert max(samples) - min(samples) > MS
    assert all(sample >= 20 * MS - 2 * jitter.reach_ns - 2 * MS for sample in samples), samples
    late = [sample for sample in samples if sample > 20 * MS + 2 * jitter.reach_ns + 2 * MS]
    assert len(late) <= (len(samples) // 2 if COARSE else 0), samples


@needs_emulator
def test_order_is_kept_unless_reordering_is_asked_for() -> None:
    for reorder in (False, True):
        direction = DirectionSpec(5 * MS, jitter=Jitter("uniform", 5 * MS, reorder))
        with emulated(LinkSpec(direction, DirectionSpec())) as (_, pids):
            assert answers(*pids, ADDRESSES[1])
            numbers = received(pids)
        assert len(numbers) == DATAGRAMS
        assert (numbers == sorted(numbers)) is not reorder


@needs_emulator
def test_jitter_that_keeps_order_is_as_asked_on_a_busy_link() -> None:
    """10 ms +- 1 ms was 13.7 +- 0.2 where frames followed each other closely."""
    busy = DirectionSpec(10 * MS, 50_000_000, jitter=Jitter("uniform", MS))
    with emulated(LinkSpec(busy, DirectionSpec(10 * MS, 50_000_000))) as (link, pids):
        goodput_bps(*pids, ADDRESSES[1], windows=10)
        drawn, other = (link.statistics()[side]["wire_delay"] for side in ("a_to_b", "b_to_a"))
    assert drawn["count"] > 1000
    # 3 s are worth 185 independent draws of a correlation time of 10 ms.
    assert abs(drawn["mean_ns"] - 10 * MS) < 5 * MS / math.sqrt(3 * 185), drawn
    assert abs(drawn["deviation_ns"] - MS / math.sqrt(3)) < 5 * MS / math.sqrt(3 * 185), drawn
    assert (other["mean_ns"], other["deviation_ns"]) == (10 * MS, 0)


def test_what_the_kernel_cannot_do_faithfully_leaves_the_link_as_it_was() -> None:
    spec = LinkSpec.symmetric(0, 100_000_000)
    with veth(spec) as (link, _):
        refused = DirectionSpec(0, 100_000_000, loss=IndependentLoss(0.1))
        with pytest.raises(UsageError, match="loss with a bandwidth"):
            link.apply(LinkSpec(DirectionSpec(0, 50_000_000), refused))
        check_held("test", spec, link.read_back())
        assert link.spec == spec


def test_a_change_of_the_rate_is_made_in_place() -> None:
    with veth(LinkSpec.symmetric(0, 100_000_000)) as (link, pids):
        before = time.monotonic_ns()
        at_ns = link.apply(LinkSpec.symmetric(0, 50_000_000, 77))
        assert before < at_ns < time.monotonic_ns()
        check_held("test", LinkSpec.symmetric(0, 50_000_000, 77), link.read_back())
        assert answers(*pids, ADDRESSES[1])
        link.apply(LinkSpec(DirectionSpec(0, 50_000_000, None, 30_000), DirectionSpec()))
        assert link.read_back().a_to_b.queue_bytes == 30_000


@needs_emulator
@pytest.mark.parametrize(("loss", "proved"), [(IndependentLoss(0.7), True), (IndependentLoss(1), False)], ids=str)
def test_a_path_that_loses_most_probes_sends_more_of_them(loss: Loss, proved: bool) -> None:
    direction = DirectionSpec(MS, loss=loss)
    with emulated(LinkSpec(direction, direction)) as (_, pids):
        # Requests for addresses would be lost as well.
        for pid, interface, other, mac in zip(pids, INTERFACES, reversed(ADDRESSES), reversed(MACS), strict=True):
            netns.ip_batch(pid, [f"neighbor replace {other} lladdr {mac} dev {interface} nud permanent"])
        hosts = [ProbeHost(name, pid, ip) for name, pid, ip in zip("ab", pids, ADDRESSES, strict=True)]
        expected = RttExpectation("a", "b", 2 * MS, 2 * MS, round_trip=(direction, direction))
        table = measure(hosts, [expected], timeout_ms=2000)
    (pair,) = table.pairs
    assert table.problems() == [], table.render()
    assert bool(table.unproven()) is not proved
    assert not proved or len(pair.samples_ns) >= 2, pair
