"""From a scenario and its outcome to the CSV's row: pure, the only place that says what each column holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from containernet_env.model.chance import IndependentLoss
from containernet_env.model.config import Config
from containernet_env.model.link import DirectionSpec
from containernet_env.model.link_statistics import p99_ns
from containernet_env.model.scenario import Scenario, ScheduledScenario
from containernet_env.model.topology import RttExpectation
from containernet_env.results.csv_file import NOT_APPLICABLE, OUR_PERCENTILES, SEED_PERCENTILES, SERVICE_PERCENTILES


@dataclass(frozen=True)
class RunFacts:
    """What all rows of a run share. `rtt_measured_ns` belongs to the pair `rtt`; both None for a single member.

    `realtime` is whether what carries the links got the real-time priority it asked for; None where it asks for none.
    """

    config: Config
    rtt: RttExpectation | None
    rtt_measured_ns: int | None
    hosts: str
    links: str
    etcd_version: str
    run_id: str
    realtime: bool | None = None


def _number(value: Decimal) -> str:
    """Plain decimal text without trailing zeros: "3", "0.5", "1000"."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _each_or_one(values: list[str]) -> str:
    """One value where all nodes agree, else all of them in config order, separated by semicolons."""
    return values[0] if len(set(values)) == 1 else ";".join(values)


def _both_ways(to_switch: str, from_switch: str) -> str:
    """One value where both directions agree, else that to the switch, a slash, and that from it."""
    return to_switch if to_switch == from_switch else f"{to_switch}/{from_switch}"


def _delay_ms(direction: DirectionSpec) -> str:
    return _number(Decimal(direction.delay_ns) / 1_000_000)


def _rate_mbps(direction: DirectionSpec) -> str:
    return "unlimited" if direction.rate_bps is None else _number(Decimal(direction.rate_bps) / 1_000_000)


def link_delays_ms(config: Config) -> str:
    """The LinkDelay_ms column: one-way delay of the members' links."""
    links = [node.link for node in config.nodes]
    return _each_or_one([_both_ways(_delay_ms(link.a_to_b), _delay_ms(link.b_to_a)) for link in links])


def bandwidths_mbps(config: Config) -> str:
    """The Bandwidth_mbps column: rate of the members' links; "unlimited" where there is no limit."""
    links = [node.link for node in config.nodes]
    return _each_or_one([_both_ways(_rate_mbps(link.a_to_b), _rate_mbps(link.b_to_a)) for link in links])


def _jitter_ms(direction: DirectionSpec) -> str:
    jitter = direction.jitter
    if jitter is None:
        return "0"
    value = f"{jitter.distribution} {_number(Decimal(jitter.ns) / 1_000_000)}"
    return f"{value} reordering" if jitter.reorder else value


def _loss_ratio(direction: DirectionSpec) -> str:
    loss = direction.loss
    if loss is None:
        return "0"
    ratio = _number(Decimal(f"{loss.mean_ratio:.6g}"))
    return ratio if isinstance(loss, IndependentLoss) else f"{ratio} in bursts"


def link_jitters_ms(config: Config) -> str:
    """The LinkJitter_ms column: of the members' links, "0" where there is none, else distribution and value."""
    links = [node.link for node in config.nodes]
    return _each_or_one([_both_ways(_jitter_ms(link.a_to_b), _jitter_ms(link.b_to_a)) for link in links])


def link_losses_ratio(config: Config) -> str:
    """The LinkLoss_ratio column: share of frames that the members' links are to lose."""
    links = [node.link for node in config.nodes]
    return _each_or_one([_both_ways(_loss_ratio(link.a_to_b), _loss_ratio(link.b_to_a)) for link in links])


def _yes_or_no(value: bool | None) -> str:
    return NOT_APPLICABLE if value is None else "yes" if value else "no"


def _microseconds(value_ns: int | None) -> str:
    return NOT_APPLICABLE if value_ns is None else f"{value_ns / 1e3:.1f}"


def _seconds(value: float | None) -> str:
    return NOT_APPLICABLE if value is None else f"{value:.6f}"


def _rate(per_s: float | Decimal | None) -> str:
    return NOT_APPLICABLE if per_s is None else f"{per_s:.4f}"


def _milliseconds(value_ns: int | None) -> str:
    return NOT_APPLICABLE if value_ns is None else f"{value_ns / 1e6:.3f}"


def settings_of(facts: RunFacts, scheduled: ScheduledScenario) -> dict[str, str]:
    """The columns that are known before the scenario runs."""
    scenario = scheduled.scenario
    writes = scenario.type != "read"
    return {
        "TestType": scenario.type,
        "ClusterSize": str(len(facts.config.nodes)),
        "RequestCount": NOT_APPLICABLE if scenario.requests is None else str(scenario.requests),
        "ClientCount": str(scenario.clients),
        "ConnectionCount": str(scenario.conns),
        "KeySize": str(scenario.key_size) if writes else NOT_APPLICABLE,
        "ValueSize": str(scenario.val_size) if writes else NOT_APPLICABLE,
        "Consistency": scenario.consistency or NOT_APPLICABLE,
        "Scenario": scenario.name,
        "Repetition": str(scheduled.repetition),
        "Target": scenario.target,
        "LinkDelay_ms": link_delays_ms(facts.config),
        "Bandwidth_mbps": bandwidths_mbps(facts.config),
        "RttExpected_ms": _milliseconds(facts.rtt.expected_ns if facts.rtt else None),
        "RttMeasured_ms": _milliseconds(facts.rtt_measured_ns),
        "Hosts": facts.hosts,
        "Links": facts.links,
        "EtcdVersion": facts.etcd_version,
        "Config": facts.config.path.name,
        "RunId": facts.run_id,
        "Rate_offered": _rate(scenario.rate),
        "LinkJitter_ms": link_jitters_ms(facts.config),
        "LinkLoss_ratio": link_losses_ratio(facts.config),
        "Realtime": _yes_or_no(facts.realtime),
        **(_asked_of_reads(scenario) if scenario.reads else {}),
    }


def _asked_of_reads(scenario: Scenario) -> dict[str, str]:
    span = scenario.span
    limit = NOT_APPLICABLE if span.limit is None else str(span.limit)
    return {"ReadSpan": span.shown, "ReadLimit": limit, "ReadAnswer": span.answer}


def figures_of(result: Mapping[str, Any]) -> dict[str, str]:
    """The columns that hold what the benchmark measured; `result` is the server's answer (docs/http-api.md)."""
    seeds = result["percentiles_s"] if result["percentiles_s"] is not None else {}
    known = percentiles_of(result, "response_time")
    rate = result["requests_per_s"]
    return {
        "RequestCount": str(result["requests"]),
        "Total": _seconds(result["total_s"]),
        "Slowest": _seconds(result["slowest_s"]),
        "Fastest": _seconds(result["fastest_s"]),
        "Average": _seconds(result["average_s"]),
        "Stddev": _seconds(result["stddev_s"]),
        "Requests/sec": _rate(rate if result["ok"] else None),
        **{f"{p}%": _seconds(seeds.get(p)) for p in SEED_PERCENTILES},
        **{f"{p}%": _seconds(known.get(p)) for p in OUR_PERCENTILES},
        "Errors": str(result["failed"]),
        "Unknown": str(result["outcomes"]["unknown"]),
        "Left_out": str(left_out_of(result)),
        **_open_loop_figures_of(result),
    }


def left_out_of(result: Mapping[str, Any]) -> int:
    """How many requests have no latency, and are in no percentile: those without a good answer, and those not sent."""
    outcomes = result["outcomes"]
    return int(outcomes["failed"] + outcomes["unknown"] + outcomes["unsent"])


def percentiles_of(result: Mapping[str, Any], times: str) -> Mapping[str, float | None]:
    """The percentiles, in seconds, of "response_time" or "service_time"; empty where no request succeeded.

    None stands for one that cannot be told from the maximum: there are too few requests for it.
    """
    distribution: Mapping[str, Any] | None = result[times]
    return {} if distribution is None else distribution["percentiles_s"]


def _open_loop_figures_of(result: Mapping[str, Any]) -> dict[str, str]:
    schedule = result["schedule"]
    if schedule is None:
        # In a closed loop a request starts when it is meant to: there the service time is the response time.
        return {}
    service = percentiles_of(result, "service_time")
    return {
        "Rate_achieved": _rate(result["rate_achieved_per_s"]),
        "Unsent": str(schedule["unsent"]),
        "Behind": "yes" if schedule["behind"] else "no",
        "Late_own": str(schedule["late_own"]),
        **{f"Service_{p}%": _seconds(service.get(p)) for p in SERVICE_PERCENTILES},
    }


def row_of(
    facts: RunFacts,
    scheduled: ScheduledScenario,
    *,
    timestamp: str,
    result: Mapping[str, Any] | None,
    error: str | None,
    leader: str | None,
    network: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """The whole row. `timestamp` is when the scenario began (UTC, ISO 8601); `leader` is who led, None if unknown.

    `network` is what the links saw meanwhile (`link_statistics`), None where nobody can tell.
    """
    row = settings_of(facts, scheduled)
    if result is not None:
        row |= figures_of(result)
    row |= {"Error": error or NOT_APPLICABLE, "Leader": leader or NOT_APPLICABLE, "Timestamp": timestamp}
    row["LinkLateness_99%_us"] = _microseconds(p99_ns(network, "lateness"))
    row["LinkReadGap_99%_us"] = _microseconds(p99_ns(network, "read_gap"))
    return row
