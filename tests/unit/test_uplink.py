"""What holds frames back at a host's end of an emulated link, against a kernel that is made of its answers to tc."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.hosts.netns import ProcessGoneError
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.network.emulator.control import Answer
from containernet_env.network.emulator.link import EmulatedLink
from containernet_env.network.emulator.process import LinkEmulator
from containernet_env.network.fabric import EmulatorFabric
from containernet_env.network.interface import Interface, SwitchPort
from containernet_env.network.kernel import tc

MBIT = 10**6
SYMMETRIC = LinkSpec.symmetric(3_000_000, 100 * MBIT)


class Kernel:
    """HTB with a queue on one interface, as tc is told and tells it; ``refused``: words of a line that it refuses."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.rate: str | None = None
        self.queue: tuple[str, int] = ("pfifo", 0)
        self.dropped = self.waiting = self.segments = 0
        self.refused = "nothing"

    def run(self, pid: int, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        words = list(argv)[1:]
        if argv[0] == "ip":
            match = re.fullmatch(r"link set dev e0 gso_max_segs (\d+)\n", options["input"])
            assert match is not None
            self.segments = int(match[1])
            return self._answer("")
        if words == ["-batch", "-"]:
            for line in options["input"].splitlines():
                if self.refused in line:
                    raise RunError(f"tc refuses {line}")
                self.told.append(line)
                self._carry_out(line)
            return self._answer("")
        if words == ["qdisc", "delete", "dev", "e0", "root"]:
            self.rate = None
            return self._answer("")
        if "qdisc" in words and "show" in words:
            kind, limit = self.queue
            held = [{"kind": "pfifo_fast", "handle": "0:", "root": True, "options": {}, "drops": 0, "qlen": 0}]
            if self.rate is not None:
                held = [
                    {"kind": "htb", "handle": "1:", "root": True, "drops": self.dropped, "qlen": self.waiting},
                    {"kind": kind, "handle": "20:", "parent": "1:1", "options": {"limit": limit}},
                ]
            return self._answer(json.dumps(held))
        assert words[:2] == ["class", "show"], words
        return self._answer(
            f"class htb 1:1 root leaf 20: prio 0 {self.rate} burst 1b cburst 1b \n" if self.rate else ""
        )

    def _carry_out(self, line: str) -> None:
        if match := re.search(r"htb rate (\d+)bit ceil (\d+)bit.*?(?: overhead (\d+))?$", line):
            overhead = f"overhead {match[3]} " if match[3] else ""
            self.rate = f"rate {match[1]}bit {overhead}ceil {match[2]}bit"
        if match := re.search(r"(pfifo|bfifo) limit (\d+)", line):
            self.queue = (match[1], int(match[2]))

    def _answer(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, text, "")


class Emulator(LinkEmulator):
    """Holds what it was told last, in place of a process."""

    def __init__(self) -> None:
        super().__init__("/nonexistent", lambda kind, text: None)
        self.held: dict[str, Any] = {"up": True}
        self.sent: list[str] = []

    def ask(self, op: str, deadline_s: float = 5.0, **fields: Any) -> Answer:
        counters = {
            **dict.fromkeys(("frames", "bytes", "offered", "unmatched", "in_flight", "queue_high_water"), 0),
            **dict.fromkeys(("queue_high_water_bytes", "wire_delay", "lateness"), 0),
        }
        if op == "stats":
            port: dict[str, Any] = dict.fromkeys(
                ("received_frames", "received_bytes", "sent_frames", "sent_bytes", "tap_drops", "tap_drops_error"), 0
            ) | {"drops": {}}
            return Answer(
                {
                    "links": {"d1-s1": self.ask("read_link").result},
                    "ports": {"d1": port},
                    "switches": {},
                    "stamps": "kernel",
                    "unmatched": 0,
                    "lateness": {},
                    "partition": None,
                },
                1,
            )
        if op != "read_link":
            self.sent.append(op)
            for side in ("a_to_b", "b_to_a"):
                self.held[side] = self.held.get(side, {}) | fields[side]
                self.held[side] |= counters | {"drops": {"queue": 5}, "offered": 20, "frames": 15}
        return Answer({**self.held, **{side: {**self.held[side]} for side in ("a_to_b", "b_to_a")}}, 1)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(tc.netns, "run", kernel.run)
    return kernel


def link_of(spec: LinkSpec = SYMMETRIC) -> tuple[EmulatedLink, Emulator]:
    emulator = Emulator()
    link = EmulatedLink(emulator, "d1-s1", (Interface(1, "e0", None, "d1"), SwitchPort("e1", "s1")), spec)
    link.apply(spec)
    return link, emulator


def test_what_a_host_sends_waits_at_the_host(kernel: Kernel) -> None:
    direction = DirectionSpec(3_000_000, 10**8, default_queue_frames=2000, overhead_bytes=24)
    link, _ = link_of(LinkSpec(direction, direction))
    htb, rate, queue = kernel.told
    assert htb == "qdisc add dev e0 root handle 1: htb default 1"
    assert " rate 100000000bit ceil 100000000bit " in rate
    assert rate.endswith(" overhead 24")
    assert queue == "qdisc add dev e0 parent 1:1 handle 20: pfifo limit 2000"
    assert kernel.segments == 1
    # What the switch sends waits in the network in any case.
    assert [side.uplink for side in (link.read_back().a_to_b, link.read_back().b_to_a)] == ["host", None]


def test_where_segments_pass_together_an_overhead_is_taken_off_the_rate(kernel: Kernel) -> None:
    """HTB counts it once for a packet. As one packet each, they kept 2 to 3.5 % below theory at 1000 Mbit/s."""
    link_of(LinkSpec(DirectionSpec(0, 10**9, overhead_bytes=24)))
    rate = kernel.told[1]
    assert f" rate {10**9 * 1514 // 1538}bit " in rate and "overhead" not in rate
    assert kernel.segments == 8


@pytest.mark.parametrize(
    "direction",
    [
        DirectionSpec(3_000_000),
        DirectionSpec(0, 10**8, uplink="network"),
        DirectionSpec(0, 10**8, queue_frames=5, queue_bytes=5000),
    ],
    ids=str,
)
def test_a_host_holds_nothing_back(kernel: Kernel, direction: DirectionSpec) -> None:
    link, _ = link_of(LinkSpec(direction))
    assert kernel.told == []
    assert link.read_back().a_to_b.uplink == (None if direction.rate_bps is None else "network")


def test_an_uplink_says_nothing_where_no_host_sends_or_nothing_waits(kernel: Kernel) -> None:
    behind = DirectionSpec(0, MBIT, uplink="network")
    link, _ = link_of(LinkSpec(behind, behind))
    link.change_directions({"a_to_b": {"rate_bps": None}, "b_to_a": {"uplink": "host"}})
    assert kernel.told == []


@pytest.mark.parametrize(
    ("mbps", "overhead", "segments"),
    [(1, 0, 1), (100, 0, 1), (500, 0, 4), (1000, 0, 8), (100, 24, 1), (1000, 24, 8), (10_000, 0, 43)],
)
def test_a_packet_of_several_segments_takes_a_tenth_of_a_millisecond_at_most(
    kernel: Kernel, mbps: int, overhead: int, segments: int
) -> None:
    """At 10 Mbit/s an echo waited 70 ms behind packets of 64 KiB."""
    link_of(LinkSpec(DirectionSpec(0, mbps * MBIT, overhead_bytes=overhead)))
    assert kernel.segments == segments


def test_a_limit_in_bytes_is_the_hosts_too(kernel: Kernel) -> None:
    link_of(LinkSpec(DirectionSpec(0, MBIT, queue_bytes=9000)))
    assert kernel.told[-1].endswith("bfifo limit 9000")


def test_a_change_reaches_the_host_and_only_what_changes(kernel: Kernel) -> None:
    link, _ = link_of()
    kernel.told.clear()
    link.change_directions({"a_to_b": {"delay_ns": 1_000_000}})
    assert kernel.told == []
    link.change_directions({"a_to_b": {"rate_bps": 10 * MBIT, "queue_frames": 70}})
    rate, queue = kernel.told
    assert rate.startswith("class change dev e0 parent 1: classid 1:1 htb rate 10000000bit")
    assert queue == "qdisc change dev e0 parent 1:1 handle 20: pfifo limit 70"


@pytest.mark.parametrize("change", [{"rate_bps": None}, {"uplink": "network"}])
def test_frames_that_wait_are_released_and_not_lost(kernel: Kernel, change: dict[str, Any]) -> None:
    link, _ = link_of()
    kernel.told.clear()
    link.change_directions({"a_to_b": change})
    assert [line.split()[1] for line in kernel.told] == ["change"] * len(kernel.told)
    assert kernel.rate == "rate 1000000000000bit ceil 1000000000000bit"
    assert link.read_back().a_to_b.uplink in (None, "network")
    link.change_directions({"a_to_b": {"rate_bps": 50 * MBIT, "uplink": None}})
    assert kernel.rate == "rate 50000000bit ceil 50000000bit"


def test_what_the_host_refuses_leaves_the_link_as_it_was(kernel: Kernel) -> None:
    link, emulator = link_of()
    kernel.refused = "htb rate 10000000bit"
    before = dict(emulator.held["a_to_b"])
    with pytest.raises(RunError, match="tc refuses"):
        link.change_directions({"a_to_b": {"rate_bps": 10 * MBIT, "delay_ns": 5}})
    assert emulator.sent == ["add_link", "set_link", "set_link"]
    assert emulator.held["a_to_b"] == before
    assert (link.spec, kernel.rate) == (SYMMETRIC, "rate 100000000bit ceil 100000000bit")
    kernel.refused = "nothing"
    link.change_directions({"a_to_b": {"rate_bps": 10 * MBIT}})
    assert kernel.rate == "rate 10000000bit ceil 10000000bit"


def test_a_host_that_does_not_hold_what_it_was_told_is_an_error(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_carry_out", lambda line: None)
    with pytest.raises(RunError, match="link at d1, a to b: asked for"):
        link_of()


def test_a_link_whose_host_has_ended_changes_without_it(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    link, emulator = link_of()

    def gone(*words: Any, **options: Any) -> None:
        raise ProcessGoneError("process 1 is gone")

    monkeypatch.setattr(tc.netns, "run", gone)
    link.change_directions({"a_to_b": {"rate_bps": 10 * MBIT}})
    assert emulator.held["a_to_b"]["rate_bps"] == 10 * MBIT


def test_a_kernel_without_htb_is_told_with_a_remedy(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(line: str) -> None:
        raise RunError("'tc -batch -' failed with status 1: Error: Specified qdisc kind is unknown.")

    monkeypatch.setattr(kernel, "_carry_out", unknown)
    with pytest.raises(MissingRequirementError, match=r'no HTB(.|\n)*"uplink": "network"'):
        link_of()


def test_what_the_hosts_queue_drops_is_lost_by_the_links(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    link, emulator = link_of()
    fabric = EmulatorFabric(lambda: emulator)
    kernel.dropped, kernel.waiting = 7, 3
    counted = fabric.statistics([link], reset=True, buckets=False)
    assert counted["ports"]["d1"]["host_queue"] == {"dropped": 7, "waiting": 3}
    direction = counted["links"]["d1-s1"]["a_to_b"]
    assert (direction["offered"], direction["drops"]["queue"], direction["frames"]) == (27, 12, 15)
    assert counted["links"]["d1-s1"]["b_to_a"]["offered"] == 20
    kernel.dropped = 9
    assert link.statistics()["a_to_b"]["drops"]["queue"] == 7

    def gone(*words: Any, **options: Any) -> None:
        raise RunError("process 1 is gone")

    monkeypatch.setattr(tc.netns, "run", gone)
    assert fabric.statistics([link], reset=False, buckets=False)["ports"]["d1"]["host_queue"] is None
