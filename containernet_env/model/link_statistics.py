"""Statistics of links: one form for every implementation, JSON values as the run's record keeps them.

A direction has ``frames`` and ``bytes`` that arrived, ``drops`` (frames that did not, by cause), ``offered`` (frames
that came to it) and ``in_flight`` (those still under way): offered = frames + all drops + in_flight; the most that
waited to be sent (``queue_high_water_frames``, ``queue_high_water_bytes``), ``wire_delay`` (what frames were given from
the last bit sent to the arrival, jitter included: ``count``, ``mean_ns``, ``deviation_ns``) and ``lateness`` (how long
after its time a frame reached its host: ``count``, ``p50_ns``, ``p99_ns``, ``max_ns``, and ``buckets`` where requested,
pairs of a bucket's longest time in ns and its count; those of all links together are the sum of the directions', so
they are left out; ``early_max_ns`` is the most by which one was early, ``too_early`` how many were more than 20 us
early); ``None`` is what the implementation does not know.

``stamps`` is when a frame came from its host: ``kernel``, as the kernel stamped it, so that lateness contains
everything; or ``read``, when the link emulator read it. ``unmatched`` counts the frames without a stamp, which count as
read (a direction that begins at a port has its own count).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_COUNTERS = ("frames", "bytes")
LATE_NS = 1_000_000
"""What the 99th percentile of lateness is to stay below, also under a load that fills the machine."""
_PORT_COUNTERS = ("received_frames", "received_bytes", "sent_frames", "sent_bytes")
# Drops in a direction that are not configured, and that no rule for frames of that kind explains.
_OWN_DROPS = {
    "buffers": "the emulator had no memory left",
    "device": "the kernel had no room for them",
    "error": "the kernel refused them",
}
_TAP_DROPS = {
    "queue": "frames lost before the link, since the emulator could not keep up",
    "receive": "frames lost after the link, since the host's network stack did not take them",
}


def direction_counters(held: Mapping[str, Any]) -> dict[str, Any]:
    """One direction of the link emulator's answer, without its parameters."""
    return {
        "frames": held["frames"],
        "bytes": held["bytes"],
        "drops": dict(held["drops"]),
        "offered": held["offered"],
        "in_flight": held["in_flight"],
        "unmatched": held["unmatched"],
        "queue_high_water_frames": held["queue_high_water"],
        "queue_high_water_bytes": held["queue_high_water_bytes"],
        "wire_delay": held["wire_delay"],
        "lateness": held.get("lateness"),
    }


def link_counters(held: Mapping[str, Any]) -> dict[str, Any]:
    """Both directions of a link of the emulator's answer, and whether it is ``up``."""
    return {"up": held["up"], **{side: direction_counters(held[side]) for side in ("a_to_b", "b_to_a")}}


def emulator_counters(stats: Mapping[str, Any], at_ns: int) -> dict[str, Any]:
    """The link emulator's ``stats``: ``links``, ``ports``, ``switches`` by name, and what is of all of them together.

    Every frame that a port received from its host is counted in its link's ``offered`` or in the port's ``drops``; what
    a switch counts as ``invalid_source`` or ``filtered`` is discarded.
    """
    ports = {
        name: {
            **{counter: port[counter] for counter in _PORT_COUNTERS},
            "drops": dict(port["drops"]),
            # The kernel's counters: frames that the emulator took too late, frames that the host's stack did not take.
            "tap_drops": port["tap_drops"],
            "tap_drops_error": port["tap_drops_error"],
        }
        for name, port in stats["ports"].items()
    }
    return {
        "at_ns": at_ns,
        "links": {name: link_counters(held) for name, held in stats["links"].items()},
        "ports": ports,
        "switches": {name: dict(counters) for name, counters in stats["switches"].items()},
        "stamps": stats["stamps"],
        "unmatched": stats["unmatched"],
        "lateness": {key: value for key, value in stats["lateness"].items() if key != "buckets"},
        "latencies": stats.get("latencies"),
        "partition": stats["partition"],
    }


def veth_counters(link: Mapping[str, Any], qdiscs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What an interface sent, from ``ip -s -j link show`` (one entry) and ``tc -s -j qdisc show``.

    The kernel counts the drops of a queueing discipline together, whether its limit or its loss was the cause.
    """
    sent = link["stats64"]["tx"]
    dropped = sum(int(qdisc.get("drops", 0)) for qdisc in qdiscs if qdisc.get("root"))
    return {
        "frames": int(sent["packets"]),
        "bytes": int(sent["bytes"]),
        "drops": {"queue_or_loss": dropped, "device": int(sent["dropped"])},
        "offered": None,
        "in_flight": None,
        "unmatched": None,
        "queue_high_water_frames": None,
        "queue_high_water_bytes": None,
        "wire_delay": None,
        "lateness": None,
    }


def since(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The counters of ``now`` less those of ``before``, both as ``veth_counters`` has them.

    A counter that went back was reset in between (its qdisc was replaced): it counts from there.
    """
    return {
        **now,
        **{key: _less(now[key], before[key]) for key in _COUNTERS},
        "drops": {cause: _less(count, before["drops"].get(cause, 0)) for cause, count in now["drops"].items()},
    }


def _less(now: int, before: int) -> int:
    return now - before if now >= before else now


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """What every link saw during a scenario, as ``link_statistics`` of a network returned it (``values``)."""

    values: Mapping[str, Any]

    @property
    def stamps(self) -> str | None:
        """When a frame came from its host: by ``kernel`` or ``read``; ``None`` if the kernel carries links."""
        held: str | None = self.values.get("stamps")
        return held

    @property
    def unmatched(self) -> int:
        """Frames without a stamp, so that their lateness lacks the time before they were read."""
        return int(self.values.get("unmatched") or 0)

    @property
    def lateness_p50_ns(self) -> int | None:
        """Median, over all frames and links, of how late a frame reached its host; ``None`` if unknown."""
        return self._of("lateness", "p50_ns")

    @property
    def early_max_ns(self) -> int:
        """The most by which any frame reached its host before its time; 0 if none did, or if that is unknown."""
        sides = [link[side] for link in self.values.get("links", {}).values() for side in ("a_to_b", "b_to_a")]
        return max((int((side.get("lateness") or {}).get("early_max_ns") or 0) for side in sides), default=0)

    @property
    def lateness_p99_ns(self) -> int | None:
        """99th percentile, over all frames and links, of how late a frame reached its host; ``None`` if unknown."""
        return self._of("lateness", "p99_ns")

    @property
    def lateness_max_ns(self) -> int | None:
        """The latest that any frame on any link reached its host; ``None`` if unknown."""
        return self._of("lateness", "max_ns")

    def busiest_since(self, before: LinkStatistics, rates_bps: Mapping[str, tuple[int, int]]) -> tuple[float, str]:
        """The largest share of its rate that a direction has carried since, and the name of its link; 0 if unknown.

        ``rates_bps``: by link, of ``a_to_b`` and ``b_to_a``.
        """
        busiest = (0.0, "no link")
        for name, rates in rates_bps.items():
            if name in self.values.get("links", {}) and name in before.values.get("links", {}):
                seconds = max(1, self.values["at_ns"] - before.values["at_ns"]) / 1e9
                for side, rate in zip(("a_to_b", "b_to_a"), rates, strict=True):
                    carried = self.values["links"][name][side]["bytes"] - before.values["links"][name][side]["bytes"]
                    busiest = max(busiest, (carried * 8 / seconds / rate, name))
        return busiest

    def _of(self, durations: str, figure: str) -> int | None:
        held = self.values.get(durations)
        return int(held[figure]) if held and held["count"] and figure in held else None

    def own_losses(self) -> Iterator[tuple[str, int, str]]:
        """Losses that are not configured: link or port, number of frames, one line of text."""
        for name, link in self.values["links"].items():
            for side, words in (("a_to_b", "from"), ("b_to_a", "to")):
                for cause, reason in _OWN_DROPS.items():
                    if lost := link[side]["drops"].get(cause, 0):
                        yield name, lost, f"link {name}: {lost} frames {words} its first node lost, since {reason}"
        for name, port in self.values.get("ports", {}).items():
            for counter, words in _TAP_DROPS.items():
                if lost := (port["tap_drops"] or {}).get(counter, 0):
                    yield name, lost, f"{name}: {lost} {words}"
