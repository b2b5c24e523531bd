"""What links saw, in one form for every implementation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from containernet_env.model.link_statistics import LinkStatistics, emulator_counters, since, veth_counters

README = Path(__file__).resolve().parents[2] / "link_emulator" / "README.md"


def stats_example() -> dict[str, Any]:
    """The answer to ``stats`` that the emulator's own tests keep true."""
    (answer,) = re.findall(r'^< (\{.*"links":.*\})$', README.read_text().replace("\n  ", ""), re.MULTILINE)
    return json.loads(answer)["result"]


def test_the_emulators_statistics() -> None:
    counters = emulator_counters(stats_example(), 5)
    direction = counters["links"]["etcd1-s1"]["a_to_b"]
    assert set(direction) == {
        "frames",
        "bytes",
        "drops",
        "offered",
        "in_flight",
        "unmatched",
        "queue_high_water_frames",
        "queue_high_water_bytes",
        "wire_delay",
        "lateness",
    }
    assert set(direction["drops"]) >= {"queue", "loss", "buffers", "partition", "cut", "down"}
    assert counters["ports"]["etcd1"]["tap_drops"] == {"queue": 0, "receive": 0}
    assert {"count", "p50_ns", "p99_ns", "max_ns", "early_max_ns", "too_early"} <= set(counters["lateness"])
    assert counters["ports"]["etcd1"]["received_frames"] == 0
    with_buckets = stats_example()
    for held in (with_buckets, with_buckets["links"]["etcd1-s1"]["b_to_a"]):
        held["lateness"]["buckets"] = [[5, 1]]
    counted = emulator_counters(with_buckets, 5)
    assert counted["links"]["etcd1-s1"]["b_to_a"]["lateness"]["buckets"] == [[5, 1]]
    assert "buckets" not in counted["lateness"]  # their sum is in the directions'
    assert counters["switches"]["s1"]["invalid_source"] == 0
    assert (LinkStatistics(counters).stamps, LinkStatistics(counters).unmatched) == ("kernel", 0)
    assert counters["at_ns"] == 5


def test_every_loss_that_nobody_asked_for_is_told() -> None:
    counters = emulator_counters(stats_example(), 5)
    assert [text for _, _, text in LinkStatistics(counters).own_losses()] == []
    link, port = counters["links"]["etcd1-s1"], counters["ports"]["etcd1"]
    link["a_to_b"]["drops"] |= {"loss": 1, "queue": 1, "cut": 1, "down": 1, "partition": 1, "oversize": 1, "buffers": 3}
    link["b_to_a"]["drops"] |= {"device": 4, "error": 5}
    port["tap_drops"] = {"queue": 7, "receive": 8}
    assert [text for _, _, text in LinkStatistics(counters).own_losses()] == [
        "link etcd1-s1: 3 frames from its first node lost, since the emulator had no memory left",
        "link etcd1-s1: 4 frames to its first node lost, since the kernel had no room for them",
        "link etcd1-s1: 5 frames to its first node lost, since the kernel refused them",
        "etcd1: 7 frames lost before the link, since the emulator could not keep up",
        "etcd1: 8 frames lost after the link, since the host's network stack did not take them",
    ]
    port["tap_drops"] = None
    assert len([text for _, _, text in LinkStatistics(counters).own_losses()]) == 3


def test_the_kernels_counters_and_their_difference() -> None:
    link = {"stats64": {"tx": {"bytes": 1000, "packets": 10, "errors": 0, "dropped": 1}}}
    qdiscs = [
        {"kind": "htb", "root": True, "drops": 4},
        {"kind": "netem", "parent": "1:1", "drops": 4},  # its drops are counted by its parent too
    ]
    before = veth_counters(link, qdiscs)
    assert (before["frames"], before["bytes"]) == (10, 1000)
    assert before["drops"] == {"queue_or_loss": 4, "device": 1}
    assert before["queue_high_water_frames"] is None
    link["stats64"]["tx"] = {"bytes": 1500, "packets": 14, "errors": 0, "dropped": 1}
    now = since(before, veth_counters(link, [{"kind": "htb", "root": True, "drops": 6}]))
    assert (now["frames"], now["bytes"], now["drops"]) == (4, 500, {"queue_or_loss": 2, "device": 0})
    # The qdisc was replaced in between.
    assert since(before, veth_counters(link, [{"root": True, "drops": 3}]))["drops"]["queue_or_loss"] == 3
