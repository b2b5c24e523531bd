"""The contract of links, tested on every implementation; and on HTB alone where the kernel has no netem."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts import netns
from containernet_env.model.link import DirectionSpec, LinkSpec, Uplink
from containernet_env.network import kernel
from containernet_env.network.link import check_held
from tests.deadline import eventually
from tests.root.network import (
    ADDRESSES,
    COARSE,
    EMULATOR,
    HTB,
    INTERFACES,
    NETEM,
    Maker,
    answers,
    check_not_early,
    datagrams,
    emulated,
    has_netem,
    interfaces_of,
    machine_interfaces,
    needs_emulator,
    needs_root,
    silent,
    veth,
)

pytestmark = [pytest.mark.root, needs_root]

MBIT = 1_000_000
MS = 1_000_000


SPECS = [
    LinkSpec(),
    LinkSpec.symmetric(0, 100 * MBIT),
    LinkSpec.symmetric(0, 2500 * MBIT),
    LinkSpec(DirectionSpec(0, 10 * MBIT, 33), DirectionSpec()),
    LinkSpec.symmetric(0, 123_456_784),
    LinkSpec(),
    LinkSpec.symmetric(0, 5 * MBIT, 9),
    LinkSpec(DirectionSpec(0, 50 * MBIT, None, 30_000), DirectionSpec()),
]


@pytest.mark.parametrize("make", [EMULATOR, HTB])
def test_what_is_applied_replaces_everything_and_is_read_back(make: Maker) -> None:
    with make(LinkSpec.symmetric(0, 10 * MBIT)) as (link, _):
        check_held("test", LinkSpec.symmetric(0, 10 * MBIT), link.read_back(), 0, kernel.RATE_TOLERANCE_RATIO)
        for spec in SPECS:
            link.apply(spec)
            check_held("test", spec, link.read_back(), 0, kernel.RATE_TOLERANCE_RATIO)


@pytest.mark.parametrize("make", [EMULATOR, HTB])
def test_a_default_for_the_queue_limit_is_held_and_stays(make: Maker) -> None:
    with make(LinkSpec(DirectionSpec(0, 100 * MBIT, default_queue_frames=2345), DirectionSpec(0, 10 * MBIT))) as made:
        link, _ = made
        assert link.read_back().a_to_b.queue_frames == 2345
        assert link.read_back().b_to_a.queue_frames == 207
        link.change(link.ends[0], rate_bps=50 * MBIT)
        assert link.read_back().a_to_b.queue_frames == 2345
        link.change(link.ends[0], queue_frames=77)
        assert link.read_back().a_to_b.queue_frames == 77


@pytest.mark.parametrize(
    ("make", "delay_ns", "uplink"),
    [
        pytest.param(emulated, 20 * MS, "host", id="emulator", marks=needs_emulator),
        pytest.param(emulated, 20 * MS, "network", id="emulator-network", marks=needs_emulator),
        pytest.param(veth, 0, None, id="tc"),
        pytest.param(veth, 20 * MS, None, id="netem", marks=NETEM.marks),
    ],
)
def test_a_queue_is_as_deep_as_configured(make: Maker, delay_ns: int, uplink: Uplink | None) -> None:
    """netem's queue had room for the smallest frames of its delay besides: 1454 ms could wait, by the emulator 242."""
    sent, limit = 60, 20
    with (
        make(LinkSpec(DirectionSpec(delay_ns, MBIT, limit, uplink=uplink))) as (link, pids),
        datagrams(*pids) as (here, there),
    ):
        assert answers(*pids, ADDRESSES[1])
        for _ in range(sent):
            here.send(bytes(1400))  # 12 ms each
        there.settimeout(0.5)
        received = 0
        with suppress(TimeoutError):
            while there.recv(2000):
                received += 1
        drops = link.statistics()["a_to_b"]["drops"]
    # Besides those that wait: one that is sent, one of HTB's burst, and what leaves while the others come.
    assert limit <= received <= limit + (10 if COARSE else 4), (received, drops)
    # A frame of the kernel's own, such as a router solicitation, may be among them.
    assert 0 <= drops.get("queue", drops.get("queue_or_loss")) - (sent - received) <= 2, (received, drops)


@pytest.mark.parametrize("make", [EMULATOR, NETEM])
def test_a_change_of_one_value_keeps_the_others(make: Maker) -> None:
    with make(LinkSpec.symmetric(3 * MS, 100 * MBIT)) as (link, _):
        link.change(link.ends[0], delay_ns=20 * MS)
        asked = LinkSpec(DirectionSpec(20 * MS, 100 * MBIT), DirectionSpec(3 * MS, 100 * MBIT))
        assert link.spec == asked
        check_held("test", asked, link.read_back(), kernel.DELAY_TOLERANCE_NS)


@pytest.mark.parametrize("make", [EMULATOR, NETEM])
def test_a_delay_comes_and_goes_and_the_bandwidth_stays(make: Maker) -> None:
    rate, both = LinkSpec.symmetric(0, 100 * MBIT), LinkSpec.symmetric(3 * MS, 100 * MBIT)
    with make(rate) as (link, pids):
        for spec in (both, rate, LinkSpec.symmetric(3 * MS), both, LinkSpec()):
            link.apply(spec)
            check_held("test", spec, link.read_back(), kernel.DELAY_TOLERANCE_NS, kernel.RATE_TOLERANCE_RATIO)
            assert answers(*pids, ADDRESSES[1])


@pytest.mark.skipif(has_netem(), reason="a delay cannot fail where the kernel has netem")
def test_a_delay_without_netem_is_an_error_that_leaves_the_link_as_it_was() -> None:
    spec = LinkSpec.symmetric(0, 10 * MBIT)
    with veth(spec) as (link, _):
        for change in (LinkSpec.symmetric(3 * MS), LinkSpec(spec.a_to_b, DirectionSpec(3 * MS, 20 * MBIT))):
            with pytest.raises(RunError, match="netem"):
                link.apply(change)
            assert link.spec == spec
            check_held("test", spec, link.read_back(), 0, kernel.RATE_TOLERANCE_RATIO)


@pytest.mark.parametrize("make", [EMULATOR, HTB])
def test_clearing_leaves_nothing_and_may_be_repeated(make: Maker) -> None:
    before = machine_interfaces()
    with make(LinkSpec.symmetric(0, 10 * MBIT)) as (link, pids):
        assert all(interface in interfaces_of(pid) for interface, pid in zip(INTERFACES, pids, strict=True))
        # Neither end was ever the machine's.
        assert machine_interfaces() == before
        link.clear()
        link.clear()
        assert [interfaces_of(pid) for pid in pids] == [{"lo"}, {"lo"}]
    assert machine_interfaces() == before


@pytest.mark.parametrize("make", [EMULATOR, HTB])
def test_a_pulled_cable_loses_frames_and_keeps_the_first_ends_address(make: Maker) -> None:
    with make(LinkSpec()) as (link, pids):
        assert answers(*pids, ADDRESSES[1])
        link.set_up(False)
        assert silent(*pids, ADDRESSES[1])
        assert ADDRESSES[0] in netns.run(pids[0], ["ip", "-br", "address"]).stdout
        link.set_up(True)
        assert answers(*pids, ADDRESSES[1])


@pytest.mark.parametrize("make", [EMULATOR, NETEM])
def test_the_rtt_is_no_shorter_than_configured(make: Maker) -> None:
    spec = LinkSpec(DirectionSpec(3 * MS, 100 * MBIT), DirectionSpec(5 * MS, 10 * MBIT))
    with make(spec) as (_, pids):
        check_not_early(pids[0], ADDRESSES[1], 8 * MS)


def test_a_tc_error_is_fatal_and_says_what_tc_said() -> None:
    with veth(LinkSpec()) as (link, pids):
        netns.ip_batch(pids[0], [f"link delete dev {INTERFACES[0]}"])
        with pytest.raises(RunError, match="Cannot find device"):
            link.apply(LinkSpec.symmetric(0, 10 * MBIT))


def both_ways(rate_bps: int, uplink: Uplink | None = None) -> LinkSpec:
    direction = DirectionSpec(0, rate_bps, uplink=uplink)
    return LinkSpec(direction, direction)


@needs_emulator
def test_a_sender_of_datagrams_has_to_wait_as_by_a_real_network_card() -> None:
    waits = {}
    for uplink in ("host", "network"):
        with emulated(both_ways(MBIT, uplink)) as (_, pids), datagrams(*pids, timeout_s=0) as (here, _):
            eventually(lambda pids=pids: answers(*pids, ADDRESSES[1]), "an answer")
            waits[uplink] = 0
            for _ in range(500):
                try:
                    here.send(bytes(1400))
                except OSError as error:
                    assert error.errno in (errno.EAGAIN, errno.ENOBUFS)
                    waits[uplink] += 1
    assert waits["host"] > 0, waits
    assert waits["network"] == 0, waits


@needs_emulator
def test_a_change_reaches_frames_that_wait_at_the_host() -> None:
    with emulated(both_ways(MBIT)) as (link, pids), datagrams(*pids, timeout_s=0) as (here, there):
        eventually(lambda: answers(*pids, ADDRESSES[1]), "an answer")
        link.change_directions({"a_to_b": {"rate_bps": 1000}})
        here.send(b"first")  # keeps the rate that it began with: a third of a second
        for _ in range(50):  # 9 minutes at 1000 bit/s, much more than anything here is waited for
            here.send(bytes(1400))
        link.change_directions({"a_to_b": {"rate_bps": None}})
        came = 0

        def all_came() -> bool:
            nonlocal came
            with suppress(BlockingIOError):
                while there.recv(2000, socket.MSG_DONTWAIT):
                    came += 1
            return came == 51

        eventually(all_came, "what waited at the host")
