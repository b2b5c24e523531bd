"""The queue of a host's network card, on real TAPs: who has to wait, and what becomes of the rest."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress

import pytest

from containernet_env.model.link import DirectionSpec, LinkSpec, Uplink
from tests.deadline import eventually
from tests.root.network import ADDRESSES, answers, datagrams, emulated, needs_emulator, needs_root

pytestmark = [pytest.mark.root, needs_root, needs_emulator]

MBIT = 10**6


def both_ways(rate_bps: int, uplink: Uplink | None = None) -> LinkSpec:
    direction = DirectionSpec(0, rate_bps, uplink=uplink)
    return LinkSpec(direction, direction)


def test_a_sender_of_datagrams_has_to_wait_as_by_a_real_network_card() -> None:
    waits = {}
    for uplink in ("host", "network"):
        with emulated(both_ways(MBIT, uplink)) as (_, pids), datagrams(*pids, timeout_s=0) as (here, _):  # type: ignore[arg-type]
            eventually(lambda pids=pids: answers(*pids, ADDRESSES[1]), "an answer")  # type: ignore[misc]
            waits[uplink] = 0
            for _ in range(500):
                try:
                    here.send(bytes(1400))
                except OSError as error:
                    assert error.errno in (errno.EAGAIN, errno.ENOBUFS)
                    waits[uplink] += 1
    assert waits["host"] > 0, waits
    assert waits["network"] == 0, waits


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
