"""The queue of a host's network card, on real TAPs: what waits there, for how long, and what becomes of the rest."""

from __future__ import annotations

import errno
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from containernet_env.fidelity.rtt import MeasuredPair, ProbeHost, measure
from containernet_env.hosts import netns
from containernet_env.model.link import DirectionSpec, LinkSpec, Uplink
from containernet_env.model.topology import RttExpectation
from containernet_env.network.fabric import EmulatorFabric
from tests.root.network import ADDRESSES, COARSE, answers, emulated, needs_emulator, needs_root
from tests.root.pump import flowing, goodput_bps

pytestmark = [pytest.mark.root, needs_root, needs_emulator]

MBIT = 10**6
PAYLOAD_RATIO = 1448 / 1514


def both_ways(rate_bps: int, uplink: Uplink | None = None, **values: int) -> LinkSpec:
    direction = DirectionSpec(0, rate_bps, uplink=uplink, **values)
    return LinkSpec(direction, direction)


def beside_a_flow(pids: tuple[int, int], probes: int = 25) -> MeasuredPair:
    """Echoes from the host that sends one flow of TCP, once it has run for a second."""
    hosts = [ProbeHost(name, pid, ip) for name, pid, ip in zip("ab", pids, ADDRESSES, strict=True)]
    with flowing(*pids, ADDRESSES[1]) as receiver, ThreadPoolExecutor(1) as other:
        stop = threading.Event()
        reading = other.submit(read_until, receiver, stop)
        try:
            time.sleep(1)
            return measure(hosts, [RttExpectation("a", "b", 0, 0)], probes=probes).pairs[0]
        finally:
            stop.set()
            reading.result()


def read_until(receiver: socket.socket, stop: threading.Event) -> None:
    while not stop.is_set():
        receiver.recv(1 << 18)


@pytest.mark.parametrize("mbps", [10, 100])
def test_an_echo_does_not_wait_behind_a_whole_window_of_its_host(mbps: int) -> None:
    """A host's own flow filled the queue behind its network card: 189 ms and losses at 10 Mbit/s."""
    medians = {}
    for uplink in ("host", "network"):
        with emulated(both_ways(mbps * MBIT, uplink)) as (_, pids):  # type: ignore[arg-type]
            pair = beside_a_flow(pids)
        medians[uplink] = statistics.median(pair.samples_ns) / 1e6
    # A queue of 207 frames at 10 Mbit/s and one of 2000 at 100 hold about 250 ms.
    assert medians["network"] > 50, medians
    assert medians["host"] < 25, medians


def test_the_rate_is_still_the_links() -> None:
    mbps = 10 if COARSE else 100
    with emulated(both_ways(mbps * MBIT)) as (link, pids):
        medians = [goodput_bps(*pids, ADDRESSES[1], warmup_s=1) / MBIT for _ in range(3)]
        assert max(medians) >= 0.95 * mbps * PAYLOAD_RATIO, medians
        assert max(medians) <= 1.02 * mbps * PAYLOAD_RATIO, medians
        link.change_directions({side: {"overhead_bytes": 500} for side in ("a_to_b", "b_to_a")})
        medians = [goodput_bps(*pids, ADDRESSES[1], warmup_s=1) / MBIT for _ in range(3)]
        assert max(medians) <= 1.02 * mbps * 1448 / 2014, medians


@contextmanager
def sender_to(pids: tuple[int, int]) -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        netns.socket_in(pids[1], socket.AF_INET, socket.SOCK_DGRAM) as there,
        netns.socket_in(pids[0], socket.AF_INET, socket.SOCK_DGRAM) as here,
    ):
        there.bind((ADDRESSES[1], 0))
        here.connect(there.getsockname())
        here.setblocking(False)
        yield here, there


def test_a_sender_of_datagrams_is_told_to_wait_as_by_a_real_network_card() -> None:
    told = {}
    for uplink in ("host", "network"):
        with emulated(both_ways(MBIT, uplink)) as (_, pids), sender_to(pids) as (here, _):  # type: ignore[arg-type]
            assert answers(*pids, ADDRESSES[1])
            told[uplink] = 0
            for _ in range(500):
                try:
                    here.send(bytes(1400))
                except OSError as error:
                    assert error.errno in (errno.EAGAIN, errno.ENOBUFS)
                    told[uplink] += 1
    assert told["host"] > 100, told
    assert told["network"] == 0, told


def test_what_the_hosts_queue_loses_is_counted() -> None:
    with emulated(both_ways(MBIT, queue_frames=20)) as (link, pids), sender_to(pids) as (here, there):
        fabric = EmulatorFabric(lambda: link._emulator)
        assert answers(*pids, ADDRESSES[1])
        fabric.statistics([link], reset=True, buckets=False)
        sent = 0
        for _ in range(60):
            here.send(bytes(1400))
            sent += 1
        time.sleep(1.5)  # 20 frames of 12 ms, and what passes at once
        there.settimeout(0.05)
        received = 0
        try:
            while there.recv(2000):
                received += 1
        except TimeoutError:
            pass
        counted = fabric.statistics([link], reset=False, buckets=False)
    lost = counted["links"]["test"]["a_to_b"]["drops"]["queue"]
    assert 0 < received < sent
    assert lost >= sent - received, (sent, received, counted["links"]["test"]["a_to_b"])
    at_host = [port["host_queue"] for port in counted["ports"].values()]
    assert {"dropped": lost, "waiting": 0} in at_host


def test_a_change_reaches_frames_that_wait_at_the_host() -> None:
    with emulated(both_ways(MBIT // 10)) as (link, pids), sender_to(pids) as (here, there):
        assert answers(*pids, ADDRESSES[1])
        for _ in range(50):  # 6 s at 100 kbit/s
            here.send(bytes(1400))
        began = time.monotonic()
        link.change_directions({"a_to_b": {"rate_bps": None}})
        there.settimeout(3)
        for _ in range(50):
            there.recv(2000)
        assert time.monotonic() - began < 1.5
