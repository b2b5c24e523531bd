"""What was asked of the links whose ``tc`` output stands in tc.json, and how it is recorded.

tc.json was recorded on the kernel of the vm ring, which records it again in each run and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from containernet_env.hosts import netns
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.model.link import DirectionSpec, GilbertElliottLoss, IndependentLoss, Jitter, LinkSpec
from containernet_env.network import kernel
from containernet_env.network.interface import Interface
from containernet_env.network.kernel import VethLink

FILE = Path(__file__).with_name("tc.json")
MS, MBIT = 10**6, 10**6

SPECS = {
    "nothing": DirectionSpec(),
    "rate": DirectionSpec(0, 2500 * MBIT, default_queue_frames=1000),
    "rate and queue": DirectionSpec(0, 10 * MBIT, 33),
    "rate that tc rounds": DirectionSpec(0, 123_456_784, default_queue_frames=1000),
    "rate and queue in bytes": DirectionSpec(0, 10 * MBIT, None, 30_000),
    "rate and overhead": DirectionSpec(0, 10 * MBIT, 33, overhead_bytes=24),
    "delay": DirectionSpec(3 * MS),
    "long delay": DirectionSpec(2_500 * MS),
    "delay of microseconds": DirectionSpec(2_500),
    "delay between ticks": DirectionSpec(1_500_000),
    "delay and rate between ticks": DirectionSpec(1_999_999, 2_345_678_912, default_queue_frames=1000),
    "delay and rate": DirectionSpec(3 * MS, 1000 * MBIT, default_queue_frames=1000),
    "delay, rate and queue in bytes": DirectionSpec(3 * MS, 10 * MBIT, None, 30_000),
    "long delay and low rate": DirectionSpec(100 * MS, 1 * MBIT, 1000),
    "uniform jitter": DirectionSpec(3 * MS, jitter=Jitter("uniform", 500_000, reorder=True)),
    "normal jitter": DirectionSpec(10 * MS, jitter=Jitter("normal", 2 * MS, reorder=True)),
    "loss": DirectionSpec(loss=IndependentLoss(0.015)),
    "rare loss and delay": DirectionSpec(MS, loss=IndependentLoss(0.0001)),
    "loss in bursts": DirectionSpec(MS, loss=GilbertElliottLoss(0.01, 0.25, 0.001, 0.9)),
    "loss in bursts, all of them": DirectionSpec(loss=GilbertElliottLoss(0.05, 0.45)),
}


def render(recorded: dict[str, Any]) -> str:
    """The text of tc.json: a line for each entry."""
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in recorded.items())
    return f"{{\n{lines}\n}}\n"


def record() -> dict[str, dict[str, Any]]:
    """By name of a spec: what ``tc -j qdisc show`` (``qdiscs``) and ``tc class show`` (``classes``) print of it."""
    recorded = {}
    with ThrowawayNamespace() as one, ThrowawayNamespace() as two:
        for name, spec in SPECS.items():
            ends = (Interface(one.pid, "rec0", "02:00:00:00:09:01"), Interface(two.pid, "rec1", "02:00:00:00:09:02"))
            link = VethLink("recorded", ends, LinkSpec())
            link.make()
            link.apply(LinkSpec(spec, DirectionSpec()))
            qdiscs = netns.run(one.pid, ["tc", "-j", "qdisc", "show", "dev", "rec0"]).stdout
            classes = netns.run(one.pid, ["tc", "class", "show", "dev", "rec0"]).stdout
            commands = kernel.tc_commands("rec0", spec)
            shown = json.loads(qdiscs or "[]")
            for qdisc in shown:
                qdisc.pop("refcnt", None)  # follows the number of processors
            recorded[name] = {"commands": commands, "qdiscs": shown, "classes": classes}
            link.clear()
    return recorded
