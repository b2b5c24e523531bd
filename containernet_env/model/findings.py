"""Findings: what a reader of a scenario's figures has to know, each with its value and the threshold it crossed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from containernet_env.model.link_statistics import LATE_NS, LinkStatistics
from containernet_env.model.load_result import LoadResult

Severity = Literal["note", "warning"]
Kind = Literal["fell_behind", "generator_late", "link_lateness", "ingress_poll_delay", "frames_lost", "counters"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    ``value`` and ``threshold`` are in the unit that ``kind`` is about (requests, ns, frames); ``None`` where there is
    no number. ``text`` is one line for people. ``subject`` names the link or port that it is about.
    """

    kind: Kind
    severity: Severity
    text: str
    value: float | None = None
    threshold: float | None = None
    subject: str | None = None

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def load_findings(load: LoadResult | None) -> Iterator[Finding]:
    """Findings of the generator: an open loop that fell behind its schedule, and why."""
    schedule = load.schedule if load is not None else None
    if schedule is None or not schedule.fell_behind:
        return
    parts = [f"behind its schedule: {schedule.late:,} requests started late, by up to {schedule.worst_lag_s:.3f} s"]
    if schedule.unsent:
        parts.append(f"{schedule.unsent:,} were never sent")
    if schedule.clients_short:
        parts.append("all clients were busy")
    yield Finding("fell_behind", "note", "; ".join(parts), schedule.late + schedule.unsent, 0)
    if schedule.generator_late:
        late = schedule.generator_late
        text = f"the generator itself was too slow for {late:,} requests: their figures are not the store's"
        yield Finding("generator_late", "warning", text, late, 0)


def network_findings(network: LinkStatistics | None) -> Iterator[Finding]:
    """Findings of the links that the configuration does not explain: frames late, or lost by the emulator itself."""
    if network is None:
        return
    late_ns, delay_ns = network.lateness_p99_ns, network.ingress_poll_delay_p99_ns
    if late_ns is not None and late_ns > LATE_NS:
        text = f"the latest 1 % of the frames reached their hosts {late_ns / 1e6:.1f} ms after their time, or later"
        yield Finding("link_lateness", "warning", text, late_ns, LATE_NS)
    if delay_ns is not None and delay_ns > LATE_NS:
        text = f"in 1 % of the emulator's polls, frames may have waited unread for {delay_ns / 1e6:.1f} ms or longer"
        yield Finding("ingress_poll_delay", "warning", text, delay_ns, LATE_NS)
    for subject, frames, text in network.own_losses():
        yield Finding("frames_lost", "warning", text, frames, 0, subject)
