"""The columns of what the network takes there and back, and of what was measured of it."""

from __future__ import annotations

from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.run_facts import RunFacts
from containernet_env.results.column import Column, Value


def _measured_ms(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
    if outcome.client_rtts:
        return max(rtt.median_ns for rtt in outcome.client_rtts.values()) / 1e6
    return None if facts.rtt_measured_ns is None else facts.rtt_measured_ns / 1e6


def _proof(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
    if outcome.client_rtts:
        medians = ";".join(f"{rtt.median_ns / 1e6:.3f}" for rtt in outcome.client_rtts.values())
        samples = min(rtt.samples for rtt in outcome.client_rtts.values())
        return f"RTT {medians} ms: medians of {samples} each"
    return facts.network.text if facts.network is not None else None


RTT_COLUMNS = (
    Column(
        "RttExpected_ms",
        "ms",
        "derived",
        "of the member pair with the largest expected RTT: what the links make of it",
        lambda facts, outcome: facts.rtt.expected_ns / 1e6 if facts.rtt else None,
        3,
    ),
    Column(
        "RttMeasured_ms",
        "ms",
        "measured",
        "of the same pair: the medians of both ways, measured before the cluster started, together; of a cluster that "
        "somebody else runs the largest median RTT from the client to an endpoint, around the scenario",
        _measured_ms,
        3,
    ),
    Column(
        "NetworkProof",
        "",
        "run",
        "what was measured of the network before the scenario ([how](../docs/fidelity.md)): `proved`, all as "
        "configured; `unproved: loss of etcd1>s1 (0.1 %)`, the rest is: the samples cannot tell what is named; of a "
        "cluster that somebody else runs `RTT 0.201;0.312 ms: medians of 20 each`: how long TCP connections to each "
        "endpoint took to open, right before and after the scenario",
        _proof,
        number=False,
    ),
)
