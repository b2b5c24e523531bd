"""Specs of links, Mininet's keywords included; the emulator's memory for links; their counters."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.containernet.links import link_spec, shaping, split
from containernet_env.model.backends import FRAME_MEMORY_BYTES, frame_memory_note, most_held_bytes
from containernet_env.model.link import (
    CoDel,
    DirectionSpec,
    FqCoDel,
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


OUT_OF_RANGE: dict[str, tuple[Any, ...]] = {
    "delay_ns must be 0 to": (-1, 3600 * 10**9 + 1),
    "rate_bps must be 1000 to": (999, 10**12 + 1),
    "queue_frames must be 1 to": (0, 10**6 + 1),
    "queue_bytes must be 1 to": (10**10 + 1,),
    "seed must be 0 to": (2**53,),
    "overhead_bytes must be 0 to 1000": (1001,),
    "uplink is unknown; allowed: host or network": ("switch",),
    "jitter.value .* negative at times; allowed: at most the delay, 1ms": (Jitter("uniform", MS + 1),),
    "jitter.value .* allowed: at most 1/4 of the delay, 250us": (Jitter("normal", MS // 4 + 1),),
    "delay_ns": (1.0,),
    "seed": (True,),
    "jitter": (5,),
    "loss": (0.1,),
}


def test_what_the_emulator_refuses_is_refused_here_and_the_ends_of_the_ranges_are_allowed() -> None:
    for words, values in OUT_OF_RANGE.items():
        for value in values:
            with pytest.raises((TypeError, ValueError), match=words):
                DirectionSpec(**{"delay_ns": MS, words.split()[0].partition(".")[0]: value})
    DirectionSpec(3600 * 10**9, 1000, 10**6, 10**10, Jitter("normal", 900 * 10**9), IndependentLoss(1), 2**53 - 1)
    DirectionSpec(MS, jitter=Jitter("uniform", MS), loss=GilbertElliottLoss(0, 0, 0, 0), seed=0)
    for jitter in (("pareto", 5), ("normal", 0), ("normal", 10, False, 79), ("normal", 10, True, 80)):
        with pytest.raises(ValueError, match=r"must be|allowed: "):
            Jitter(*jitter)
    for ratio in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="0 to 1"):
            IndependentLoss(ratio)
        with pytest.raises(ValueError, match="bad_loss_ratio must be 0 to 1"):
            GilbertElliottLoss(0.1, 0.1, 0, ratio)


def test_the_share_that_is_lost_in_the_long_run() -> None:
    losses = (IndependentLoss(0.25), GilbertElliottLoss(0.01, 0.24), GilbertElliottLoss(0, 0, 0.5))
    assert [loss.mean_ratio for loss in losses] == pytest.approx([0.25, 0.04, 0.5])
    bursts = (GilbertElliottLoss(0.01, 0.24), GilbertElliottLoss(1, 1))
    assert [loss.correlation for loss in bursts] == pytest.approx([0.75, 0])


def test_keywords_mean_what_they_mean_to_mininet() -> None:
    of_first = DirectionSpec(3 * MS, jitter=Jitter("uniform", MS, reorder=True), loss=IndependentLoss(0.015))
    ends = LinkSpec(DirectionSpec(3 * MS, 2_500_000_000, 50), DirectionSpec(1_500_000, None, 50))
    lossy = LinkSpec(of_first, DirectionSpec(3 * MS))
    spiced = LinkSpec(
        DirectionSpec(duplication_ratio=0.01, corruption_ratio=0.5, aqm=CoDel(), overhead_bytes=24, seed=7),
        DirectionSpec(duplication_ratio=0.01, aqm=FqCoDel(flows=8)),
    )
    cases: list[tuple[Any, Any, Any, LinkSpec]] = [
        ({"delay": "100ms", "bw": 1, "use_htb": True}, {}, {}, LinkSpec.symmetric(100 * MS, 10**6)),
        # What an end sends goes before.
        ({"delay": "3ms", "max_queue_size": 50}, {"bw": 2500}, {"delay": "1.5ms"}, ends),
        ({"delay": "3ms", "jitter": "1ms"}, {"loss": 1.5}, {"jitter": "0ms"}, lossy),
        (
            {"duplication": 0.01, "aqm": "codel"},
            {"corruption": 0.5, "overhead": 24, "seed": 7},
            {"aqm": {"kind": "fq_codel", "flows": 8}},
            spiced,
        ),
    ]
    for both, first, second, spec in cases:
        assert link_spec(both, first, second, "link a-b") == spec


REFUSED: dict[str, list[dict[str, Any]]] = {
    "did you mean delay": [{"dealy": "1ms"}],
    "is not one of the choices": [{"aqm": "red"}, {"aqm": {"kind": "red"}}],
    "aqm.flows is not a known key": [{"aqm": {"kind": "codel", "flows": 8}}],
    "from 0 to 1": [{"duplication": 1.5}, {"corruption": "1%"}],
    "unknown keyword bandwidth": [{"bandwidth": 3}],
    "with its unit": [{"delay": "5"}, {"delay": 5}, {"jitter": "1"}],
    "allowed": [{"delay": "-1ms"}],
    "more than 0": [{"bw": 0}],
    "Mbit/s": [{"bw": "fast"}, {"bw": float("nan")}],
    "rate_bps must be 1000": [{"bw": 0.0005}],
    "1 or more": [{"max_queue_size": 0}, {"max_queue_size": True}],
    "0 to 100": [{"loss": 101}, {"loss": "1%"}],
    "link a-b: jitter.value would make": [{"jitter": "1ms"}],
    "not offered": [{"use_tbf": True}, {"enable_ecn": True}],
}


def test_what_cannot_be_meant_or_done_is_refused_with_the_links_name() -> None:
    for words, refused in REFUSED.items():
        for given in refused:
            with pytest.raises(UsageError, match=f"(?s)(?=.*link a-b).*{words}"):
                link_spec(given, {}, {}, "link a-b")


def test_asking_for_nothing_is_fine_and_addresses_are_no_shaping() -> None:
    nothing = {"bw": None, "delay": None, "loss": None, "jitter": None, "max_queue_size": None, "use_hfsc": False}
    assert shaping(nothing, "link a-b") == {}
    assert shaping({"loss": 0, "jitter": 0}, "x") == {"loss": None, "jitter": None}
    addresses = {"ip": "10.0.0.1/8", "mac": "02:00:00:00:00:01"}
    assert split(addresses | {"bw": 3}) == (addresses, {"bw": 3})
    assert split(None) == ({}, {})
    link = VethLink("d1-s1", (Interface(1, "e0"), Interface(1, "e1")), LinkSpec.symmetric(MS))
    with pytest.raises(UsageError, match=r"link d1-s1: jitter\.value would make"):
        link.change(link.ends[0], jitter=Jitter("uniform", 2 * MS))


def test_the_emulators_own_numbers() -> None:
    pool, emulator = (GO / "framepool/framepool.go").read_text(), (GO / "emulator/emulator.go").read_text()
    (shares,), (sizes,) = re.findall(r"shares = (\d+)", pool), re.findall(r"chunkShift int \}\{(.*)\}\n", pool)
    (limit,), kinds = re.findall(r"DefaultBufferBytes = int64\((\d+) << 20\)", emulator), sizes.count("{")
    assert "{2048, " in sizes
    assert int(limit) * 2**20 * (int(shares) - kinds + 1) // int(shares) == FRAME_MEMORY_BYTES
    for delay_ms, frames in ((50, 16513), (3, 2000)):
        example = f'"delay_ns":{delay_ms * MS},"rate_bps":1000000000,"overhead_bytes":0,"queue_frames":{frames}'
        assert example in README and default_frames(4 * delay_ms * MS, 10**9) == frames


def test_what_waits_and_what_travels_and_a_warning_only_where_it_cannot_fit() -> None:
    wide = DirectionSpec(0, 10**9)
    far = replace(wide, delay_ns=1_211_200, queue_frames=1)  # a hundred frames on the wire
    for direction, frames in (
        (DirectionSpec(100 * MS), 0),
        (wide, 2001),
        (replace(wide, queue_frames=50), 51),
        (replace(wide, queue_frames=50, queue_bytes=15140), 11),
        (far, 102),
        (replace(far, jitter=Jitter("uniform", 1_211_200)), 202),
        (replace(wide, default_queue_frames=4500), 4501),
        (replace(wide, queue_frames=7, default_queue_frames=4000), 8),
    ):
        assert most_held_bytes(direction) == frames * 2048, direction
    assert frame_memory_note([DirectionSpec(3 * MS, 10**9)] * 94) is None  # 47 hosts
    assert frame_memory_note([DirectionSpec(3 * MS, 10**9)] * 96) is not None
    note = frame_memory_note([DirectionSpec(100 * MS, 10**9)] * 100)
    assert note is not None and "8063 MiB" in note and "416 MiB" in note


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
    frames |= {"duplicated", "corrupted", "marked"}
    assert set(direction) == frames | {"queue_high_water_frames", "queue_high_water_bytes"}
    assert set(direction["drops"]) >= {"queue", "loss", "buffers", "partition", "cut", "down"}
    assert (port["tap_drops"], port["received_frames"]) == ({"queue": 0, "receive": 0}, 0)
    times = {"count", "p50_ns", "p99_ns", "max_ns", "early_max_ns", "too_early"}
    assert times <= set(counters["lateness"]) and "buckets" not in counters["lateness"], "their sum is in directions"
    assert counters["links"]["etcd1-s1"]["b_to_a"]["lateness"]["buckets"] == [[5, 1]]
    assert (counters["switches"]["s1"]["invalid_source"], counters["at_ns"]) == (0, 5)
    assert (LinkStatistics(counters).stamps, LinkStatistics(counters).unmatched) == ("kernel", 0)


def test_every_loss_that_was_not_configured_is_reported() -> None:
    counters = emulator_counters(stats_example(), 5)
    assert list(LinkStatistics(counters).own_losses()) == []
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
    def link(sent_bytes: int, packets: int) -> dict[str, Any]:
        return {"stats64": {"tx": {"bytes": sent_bytes, "packets": packets, "errors": 0, "dropped": 1}}}

    netem = {"kind": "netem", "parent": "1:1", "drops": 4}  # which its parent counts too
    before = veth_counters(link(1000, 10), [{"kind": "htb", "root": True, "drops": 4}, netem])
    assert (before["frames"], before["bytes"], before["queue_high_water_frames"]) == (10, 1000, None)
    assert before["drops"] == {"queue_or_loss": 4, "device": 1}
    now = since(before, veth_counters(link(1500, 14), [{"kind": "htb", "root": True, "drops": 6}]))
    assert (now["frames"], now["bytes"], now["drops"]) == (4, 500, {"queue_or_loss": 2, "device": 0})
    # The qdisc was replaced in between.
    replaced = veth_counters(link(1500, 14), [{"root": True, "drops": 3}])
    assert since(before, replaced)["drops"]["queue_or_loss"] == 3
