"""What links saw, in one form for every implementation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from containernet_env.links.statistics import emulator_counters, since, veth_counters

README = Path(__file__).resolve().parents[2] / "link_emulator" / "README.md"


def stats_example() -> dict[str, Any]:
    """The answer to ``stats`` that the emulator's own tests keep true."""
    answers = re.findall(r"^< (\{.*\})$", README.read_text(), re.MULTILINE)
    results = [json.loads(answer).get("result", {}) for answer in answers]
    return next(result for result in results if "links" in result)


def test_the_emulators_statistics() -> None:
    counters = emulator_counters(stats_example(), 5)
    direction = counters["links"]["etcd1-s1"]["a_to_b"]
    assert set(direction) == {
        "frames",
        "bytes",
        "drops",
        "queue_high_water_frames",
        "queue_high_water_bytes",
        "lateness",
    }
    assert set(direction["drops"]) >= {"queue", "loss", "buffers", "partition", "cut", "down"}
    assert counters["ports"]["etcd1"]["tap_drops"] == {"queue": 0, "receive": 0}
    assert {"count", "p50_ns", "p99_ns", "max_ns"} <= set(counters["lateness"])
    assert counters["at_ns"] == 5


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
    # The qdisc was made anew in between.
    assert since(before, veth_counters(link, [{"root": True, "drops": 3}]))["drops"]["queue_or_loss"] == 3
