"""Specs of links, Mininet's keywords included; the emulator's memory for links; their counters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.containernet.links import link_spec, shaping, split
from containernet_env.model.backends import FRAME_MEMORY_BYTES, frame_memory_note, most_held_bytes
from containernet_env.model.link import (
    DirectionSpec,
    GilbertElliottLoss,
    IndependentLoss,
    Jitter,
    LinkSpec,
    default_frames,
)
from containernet_env.model.usage import LinkStatistics, emulator_counters, since, veth_counters
from containernet_env.network.interface import Interface
from containernet_env.network.kernel import VethLink

GO = Path(__file__).resolve().parents[2] / "link_emulator"
README = (GO / "README.md").read_text().replace("\n  ", "")  # its long lines are folded
"""Its examples are kept true by the emulator's own tests."""
MS = 10**6

# --- specs: the ranges are the link emulator's ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"delay_ns": -1}, "delay_ns must be 0 to"),
        ({"delay_ns": 3600 * 10**9 + 1}, "delay_ns must be 0 to"),
        ({"rate_bps": 999}, "rate_bps must be 1000 to"),
        ({"rate_bps": 10**12 + 1}, "rate_bps must be 1000 to"),
        ({"queue_frames": 0}, "queue_frames must be 1 to"),
        ({"queue_frames": 10**6 + 1}, "queue_frames must be 1 to"),
        ({"queue_bytes": 10**10 + 1}, "queue_bytes must be 1 to"),
        ({"seed": 2**53}, "seed must be 0 to"),
        ({"overhead_bytes": 1001}, "overhead_bytes must be 0 to 1000"),
        ({"uplink": "switch"}, "uplink is unknown; allowed: host or network"),
        ({"delay_ns": MS, "jitter": Jitter("uniform", MS + 1)}, "negative at times; allowed: at most the delay, 1ms"),
        ({"delay_ns": MS, "jitter": Jitter("normal", MS // 4 + 1)}, "allowed: at most 1/4 of the delay, 250us"),
        ({"delay_ns": 1.0}, "delay_ns"),
        ({"seed": True}, "seed"),
        ({"jitter": 5}, "jitter"),
        ({"loss": 0.1}, "loss"),
    ],
)
def test_what_the_emulator_refuses_is_refused_here(values: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        DirectionSpec(**values)


def test_the_ends_of_the_ranges_are_allowed() -> None:
    DirectionSpec(3600 * 10**9, 1000, 10**6, 10**10, Jitter("normal", 900 * 10**9), IndependentLoss(1), 2**53 - 1)
    DirectionSpec(MS, jitter=Jitter("uniform", MS), loss=GilbertElliottLoss(0, 0, 0, 0), seed=0)


def test_chance_that_is_none() -> None:
    for wrong in (
        {"distribution": "pareto", "ns": 5},
        {"distribution": "normal", "ns": 0},
        {"distribution": "normal", "ns": 10, "correlation_ns": 79},
        {"distribution": "normal", "ns": 10, "correlation_ns": 80, "reorder": True},
    ):
        with pytest.raises(ValueError, match=r"must be|allowed: "):
            Jitter(**wrong)  # type: ignore[arg-type]
    for ratio in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="0 to 1"):
            IndependentLoss(ratio)
        with pytest.raises(ValueError, match="bad_loss_ratio must be 0 to 1"):
            GilbertElliottLoss(0.1, 0.1, 0, ratio)


def test_the_share_that_is_lost_in_the_long_run() -> None:
    assert IndependentLoss(0.25).mean_ratio == 0.25
    assert GilbertElliottLoss(0.01, 0.24).mean_ratio == pytest.approx(0.04)
    assert GilbertElliottLoss(0, 0, 0.5).mean_ratio == 0.5
    assert GilbertElliottLoss(0.01, 0.24).correlation == pytest.approx(0.75)
    assert GilbertElliottLoss(1, 1).correlation == 0


# --- keywords ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("both", "first", "second", "spec"),
    [
        ({"delay": "100ms", "bw": 1, "use_htb": True}, {}, {}, LinkSpec.symmetric(100 * MS, 10**6)),
        (
            {"delay": "3ms", "max_queue_size": 50},
            {"bw": 2500},
            {"delay": "1.5ms"},
            LinkSpec(DirectionSpec(3 * MS, 2_500_000_000, 50), DirectionSpec(1_500_000, None, 50)),
        ),
        (
            {"delay": "3ms", "jitter": "1ms"},
            {"loss": 1.5},
            {"jitter": "0ms"},
            LinkSpec(
                DirectionSpec(3 * MS, jitter=Jitter("uniform", MS, reorder=True), loss=IndependentLoss(0.015)),
                DirectionSpec(3 * MS),
            ),
        ),
    ],
    ids=["both directions", "what an end sends goes before", "jitter and loss as Mininet has them"],
)
def test_keywords_mean_what_they_mean_to_mininet(both: Any, first: Any, second: Any, spec: LinkSpec) -> None:
    assert link_spec(both, first, second, "link a-b") == spec


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dealy": "1ms"}, "did you mean delay"),
        ({"bandwidth": 3}, "unknown keyword bandwidth"),
        ({"delay": "5"}, "with its unit"),
        ({"delay": 5}, "with its unit"),
        ({"delay": "-1ms"}, "allowed"),
        ({"bw": 0}, "more than 0"),
        ({"bw": "fast"}, "Mbit/s"),
        ({"bw": float("nan")}, "Mbit/s"),
        ({"bw": 0.0005}, "rate_bps must be 1000"),
        ({"max_queue_size": 0}, "1 or more"),
        ({"max_queue_size": True}, "1 or more"),
        ({"loss": 101}, "0 to 100"),
        ({"loss": "1%"}, "0 to 100"),
        ({"jitter": "1"}, "with its unit"),
        ({"jitter": "1ms"}, "link a-b: jitter.value would make"),
        ({"use_tbf": True}, "not offered"),
        ({"enable_ecn": True}, "not offered"),
    ],
)
def test_what_cannot_be_meant_or_done_is_refused_with_the_links_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        link_spec(given, {}, {}, "link a-b")
    assert "link a-b" in str(caught.value)


def test_a_change_out_of_range_is_refused_with_the_links_name() -> None:
    link = VethLink("d1-s1", (Interface(1, "e0"), Interface(1, "e1")), LinkSpec.symmetric(MS))
    with pytest.raises(UsageError, match=r"link d1-s1: jitter\.value would make"):
        link.change(link.ends[0], jitter=Jitter("uniform", 2 * MS))


def test_asking_for_nothing_is_fine_and_addresses_are_no_shaping() -> None:
    nothing = {"bw": None, "delay": None, "loss": None, "jitter": None, "max_queue_size": None, "use_hfsc": False}
    assert shaping(nothing, "link a-b") == {}
    assert shaping({"loss": 0, "jitter": 0}, "x") == {"loss": None, "jitter": None}
    addresses = {"ip": "10.0.0.1/8", "mac": "02:00:00:00:00:01"}
    assert split(addresses | {"bw": 3}) == (addresses, {"bw": 3})
    assert split(None) == ({}, {})


# --- the emulator's memory --------------------------------------------------------------------------------------------


def test_the_emulators_own_numbers() -> None:
    pool = (GO / "framepool" / "framepool.go").read_text()
    emulator = (GO / "emulator" / "emulator.go").read_text()
    shares, (sizes,) = re.search(r"shares = (\d+)", pool), re.findall(r"chunkShift int \}\{(.*)\}$", pool, re.MULTILINE)
    limit = re.search(r"DefaultBufferBytes = int64\((\d+) << 20\)", emulator)
    assert shares is not None and limit is not None and "{2048, " in sizes
    kinds = sizes.count("{")
    assert int(limit[1]) * 2**20 * (int(shares[1]) - kinds + 1) // int(shares[1]) == FRAME_MEMORY_BYTES
    for delay_ms, frames in ((50, 16513), (3, 2000)):
        example = f'"delay_ns":{delay_ms * MS},"rate_bps":1000000000,"overhead_bytes":0,"queue_frames":{frames}'
        assert example in README and default_frames(4 * delay_ms * MS, 10**9) == frames


@pytest.mark.parametrize(
    ("direction", "frames"),
    [
        (DirectionSpec(100 * MS), 0),
        (DirectionSpec(0, 10**9), 2001),
        (DirectionSpec(0, 10**9, 50), 51),
        (DirectionSpec(0, 10**9, 50, 15140), 11),
        (DirectionSpec(1_211_200, 10**9, 1), 102),  # a hundred frames on the wire
        (DirectionSpec(1_211_200, 10**9, 1, jitter=Jitter("uniform", 1_211_200)), 202),
        (DirectionSpec(0, 10**9, default_queue_frames=4500), 4501),
        (DirectionSpec(0, 10**9, 7, default_queue_frames=4000), 8),
    ],
)
def test_what_waits_and_what_travels(direction: DirectionSpec, frames: int) -> None:
    assert most_held_bytes(direction) == frames * 2048


def test_a_warning_only_where_it_cannot_fit() -> None:
    assert frame_memory_note([DirectionSpec(3 * MS, 10**9)] * 94) is None  # 47 hosts
    assert frame_memory_note([DirectionSpec(3 * MS, 10**9)] * 96) is not None
    note = frame_memory_note([DirectionSpec(100 * MS, 10**9)] * 100)
    assert note is not None and "8063 MiB" in note and "416 MiB" in note


# --- statistics, in one form for every kind of links ------------------------------------------------------------------


def stats_example() -> dict[str, Any]:
    (answer,) = re.findall(r'^< (\{.*"links":.*\})$', README, re.MULTILINE)
    return json.loads(answer)["result"]


def test_the_emulators_statistics() -> None:
    shown = stats_example()
    for held in (shown, shown["links"]["etcd1-s1"]["b_to_a"]):
        held["lateness"]["buckets"] = [[5, 1]]
    counters = emulator_counters(shown, 5)
    direction, port = counters["links"]["etcd1-s1"]["a_to_b"], counters["ports"]["etcd1"]
    frames = {"frames", "bytes", "drops", "offered", "in_flight", "unmatched", "wire_delay", "lateness"}
    assert set(direction) == frames | {"queue_high_water_frames", "queue_high_water_bytes"}
    assert set(direction["drops"]) >= {"queue", "loss", "buffers", "partition", "cut", "down"}
    assert (port["tap_drops"], port["received_frames"]) == ({"queue": 0, "receive": 0}, 0)
    assert {"count", "p50_ns", "p99_ns", "max_ns", "early_max_ns", "too_early"} <= set(counters["lateness"])
    assert "buckets" not in counters["lateness"], "their sum is in the directions'"
    assert counters["links"]["etcd1-s1"]["b_to_a"]["lateness"]["buckets"] == [[5, 1]]
    assert (counters["switches"]["s1"]["invalid_source"], counters["at_ns"]) == (0, 5)
    assert (LinkStatistics(counters).stamps, LinkStatistics(counters).unmatched) == ("kernel", 0)


def test_every_loss_that_was_not_configured_is_reported() -> None:
    counters = emulator_counters(stats_example(), 5)
    assert [text for _, _, text in LinkStatistics(counters).own_losses()] == []
    link, port = counters["links"]["etcd1-s1"], counters["ports"]["etcd1"]
    link["a_to_b"]["drops"] |= {"loss": 1, "queue": 1, "cut": 1, "down": 1, "partition": 1, "oversize": 1, "buffers": 3}
    link["b_to_a"]["drops"] |= {"device": 4, "error": 5}
    port["tap_drops"] = {"queue": 7, "receive": 8}
    losses = [
        "link etcd1-s1: 3 frames from its first node lost, since the emulator had no memory left",
        "link etcd1-s1: 4 frames to its first node lost, since the kernel had no room for them",
        "link etcd1-s1: 5 frames to its first node lost, since the kernel refused them",
        "etcd1: 7 frames lost before the link, since the emulator could not keep up",
        "etcd1: 8 frames lost after the link, since the host's network stack did not take them",
    ]
    assert [text for _, _, text in LinkStatistics(counters).own_losses()] == losses
    port["tap_drops"] = None
    assert [text for _, _, text in LinkStatistics(counters).own_losses()] == losses[:3]


def test_the_kernels_counters_and_their_difference() -> None:
    link = {"stats64": {"tx": {"bytes": 1000, "packets": 10, "errors": 0, "dropped": 1}}}
    qdiscs = [
        {"kind": "htb", "root": True, "drops": 4},
        {"kind": "netem", "parent": "1:1", "drops": 4},  # its drops are counted by its parent too
    ]
    before = veth_counters(link, qdiscs)
    assert (before["frames"], before["bytes"], before["queue_high_water_frames"]) == (10, 1000, None)
    assert before["drops"] == {"queue_or_loss": 4, "device": 1}
    link["stats64"]["tx"] = {"bytes": 1500, "packets": 14, "errors": 0, "dropped": 1}
    now = since(before, veth_counters(link, [{"kind": "htb", "root": True, "drops": 6}]))
    assert (now["frames"], now["bytes"], now["drops"]) == (4, 500, {"queue_or_loss": 2, "device": 0})
    # The qdisc was replaced in between.
    assert since(before, veth_counters(link, [{"root": True, "drops": 3}]))["drops"]["queue_or_loss"] == 3
