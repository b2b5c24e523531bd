"""Jitter and loss as they reach a receiver, by every implementation; counts that chance does not explain."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.hosts import netns
from containernet_env.model.link import DirectionSpec, GilbertElliottLoss, IndependentLoss, Jitter, LinkSpec, Loss
from containernet_env.network.chance import CountTest
from containernet_env.network.kernel import DELAY_TOLERANCE_NS
from containernet_env.network.link import check_held
from tests.deadline import eventually
from tests.root.network import (
    ADDRESSES,
    EMULATOR,
    INTERFACES,
    MACS,
    NETEM,
    Maker,
    answers,
    datagrams,
    echoes,
    emulated,
    needs_emulator,
    needs_root,
    veth,
)

pytestmark = [pytest.mark.root, needs_root]

MS = 1_000_000
DATAGRAMS = 2000
SO_RCVBUFFORCE = 33  # asm-generic/socket.h; Python has no name for it


def received(pids: tuple[int, int], *, lossless: bool = False) -> list[int]:
    """The numbers of the datagrams that arrive of ``DATAGRAMS``, sent from the first to the second, in their order.

    ``lossless``: all do, in any order; else those that come before one that was sent after them.
    """
    with datagrams(*pids) as (here, there):
        # FORCE: most machines allow 208 KiB, which holds 555 of these.
        there.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        there.setblocking(False)
        numbers: list[int] = []
        for number in range(DATAGRAMS):
            here.send(number.to_bytes(4, "big"))

        def ended() -> bool:
            if not lossless:
                here.send(DATAGRAMS.to_bytes(4, "big"))
            try:
                while True:
                    number = int.from_bytes(there.recv(10), "big")
                    if number == DATAGRAMS:
                        return True
                    numbers.append(number)
            except BlockingIOError:
                return lossless and len(numbers) == DATAGRAMS

        eventually(ended, "the last datagram")
        return numbers


@pytest.mark.parametrize("make", [EMULATOR, NETEM])
@pytest.mark.parametrize("loss", [IndependentLoss(0.1), GilbertElliottLoss(0.05, 0.45)], ids=["independent", "bursts"])
def test_as_many_frames_are_lost_as_configured(make: Maker, loss: Loss) -> None:
    spec = LinkSpec(DirectionSpec(), DirectionSpec())
    with make(spec) as (link, pids):
        eventually(lambda: answers(*pids, ADDRESSES[1]), "an answer")  # addresses are known before frames are counted
        link.apply(LinkSpec(DirectionSpec(loss=loss), DirectionSpec()))
        lost = DATAGRAMS - len(received(pids))
        ratio, spread = loss.mean_ratio, (1 + loss.correlation) / (1 - loss.correlation)
        # As many independent trials as these are worth: a count outside comes by chance less than once in 1e6 times.
        test = CountTest.of(round(DATAGRAMS / spread), ratio, 1e-6 / 2)
        assert test.low <= round(lost / spread) <= test.high, (lost, ratio, test)
        drops = link.statistics()["a_to_b"]["drops"]
        counted = drops["loss"] if "loss" in drops else drops["queue_or_loss"]
        assert counted >= lost


def know_each_other(pids: tuple[int, int]) -> None:
    """Enter their addresses for good, so that no request for one is lost, or draws a loss."""
    for pid, interface, other, mac in zip(pids, INTERFACES, reversed(ADDRESSES), reversed(MACS), strict=True):
        netns.call_in(pid, partial(Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text, "1"))
        netns.ip_batch(pid, [f"neighbor replace {other} lladdr {mac} dev {interface} nud permanent"])


@needs_emulator
def test_a_seed_repeats_the_same_losses() -> None:
    with emulated(LinkSpec()) as (link, pids):
        know_each_other(pids)
        eventually(lambda: answers(*pids, ADDRESSES[1]), "an answer")
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
def test_jitter_is_read_back_and_makes_no_frame_too_early(make: Maker, distribution: str) -> None:
    jitter = Jitter("uniform", 3 * MS, True) if distribution == "uniform" else Jitter("normal", 2 * MS, True)
    direction = DirectionSpec(10 * MS, jitter=jitter)
    spec = LinkSpec(direction, direction)
    with make(spec) as (link, pids):
        check_held("test", spec, link.read_back(), DELAY_TOLERANCE_NS)
        samples = echoes(pids[0], ADDRESSES[1])
    # The chance that 25 round trips of this spread stay within 1 ms of each other is nil.
    assert max(samples) - min(samples) > MS
    assert all(sample >= 20 * MS - 2 * jitter.reach_ns - DELAY_TOLERANCE_NS for sample in samples), samples


@needs_emulator
def test_order_is_kept_unless_reordering_is_configured() -> None:
    for reorder in (False, True):
        direction = DirectionSpec(5 * MS, jitter=Jitter("uniform", 5 * MS, reorder))
        with emulated(LinkSpec(direction, DirectionSpec())) as (_, pids):
            eventually(lambda pids=pids: answers(*pids, ADDRESSES[1]), "an answer")
            numbers = received(pids, lossless=True)
        assert len(numbers) == DATAGRAMS
        assert (numbers == sorted(numbers)) is not reorder


def test_what_the_kernel_cannot_do_faithfully_leaves_the_link_as_it_was() -> None:
    spec = LinkSpec.symmetric(0, 100_000_000)
    with veth(spec) as (link, _):
        refused = DirectionSpec(0, 100_000_000, loss=IndependentLoss(0.1))
        with pytest.raises(UsageError, match="loss with a bandwidth"):
            link.apply(LinkSpec(DirectionSpec(0, 50_000_000), refused))
        check_held("test", spec, link.read_back())
        assert link.spec == spec
