"""Builds the benchmark server's request for a scenario (docs/http-api.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Any

from containernet_env.model import load_contract as contract
from containernet_env.model.keys import Span
from containernet_env.model.scenario import Load, Scenario
from containernet_env.stores.protocol import NEAR, LoadTerms, Waits

# The server's default of dialTimeout, which no scenario changes.
_DIAL_TIMEOUT_S = 10.0
TIMELINE_STEP_S = 0.1
"""The step of the timeline of a scenario with events: they show in it."""


def dial_timeout_s(waits: Waits) -> float:
    """How long a load may take until all of its connections are open."""
    return min(_DIAL_TIMEOUT_S + waits.request_s, float(contract.DIAL_TIMEOUT_MAX_S))


def request_of(
    scenario: Scenario,
    endpoints: Mapping[str, str],
    run_timeout_s: float,
    load_seed: int = 0,
    terms: LoadTerms | None = None,
    prefix: str = "",
    leader: str | None = None,
    waits: Waits = NEAR,
) -> tuple[str, dict[str, Any]]:
    """The path and JSON body of the request for `scenario`; what it does not configure is left out.

    `endpoints` has "ip:port" of each living member by its name; the one that the scenario targets is among them.
    `load_seed`: what everything but values is drawn from; 0 is the server's default. `terms`: those of the store, if it
    is not the server's default one. `prefix`: what every key starts with, before a prefix of the scenario's own.
    `leader`: who leads, for loads that no member tells; the first of `endpoints` where it is none of these. `waits`:
    those of the network that the load crosses.
    """
    terms = terms or LoadTerms()
    body: dict[str, Any] = {
        "endpoints": ",".join(endpoints.values()),
        "runTimeout": run_timeout_s,
        **_load_fields(scenario),
        **terms.always,
    }
    if not scenario.reads or scenario.put_ratio is not None:
        body |= terms.puts
    if scenario.reads:
        body |= terms.gets
    if waits.request_s:
        body["dialTimeout"] = dial_timeout_s(waits)
    if load_seed:
        body["loadSeed"] = load_seed
    if scenario.events:
        body["timelineInterval"] = TIMELINE_STEP_S
    if scenario.verify or not scenario.span.named:
        body |= _key_fields(scenario, prefix)
    if scenario.history:
        body["history"] = True
    if scenario.member is not None:
        body["targetMember"] = endpoints[scenario.member]
    elif terms.leaderless:
        if scenario.target == "leader":
            body["targetMember"] = endpoints.get(leader or "") or next(iter(endpoints.values()))
    elif scenario.type == "write" or scenario.target == "leader":
        body["targetLeader"] = scenario.target == "leader"
    # Sequential is the server's default for reads; writes set it with sequentialKeys.
    if scenario.keys != "sequential" or scenario.type in ("mixed", "txn"):
        body["keyOrder"] = scenario.keys
    if scenario.keys == "zipfian":
        body["zipfExponent"] = float(scenario.zipf_exponent)
    if scenario.type == "write":
        order = {"sequentialKeys": True} if scenario.keys == "sequential" else {}
        return contract.WRITE_PATH, body | order | {"valSize": scenario.val_size}
    if scenario.type == "txn":
        return contract.TXN_PATH, body | {"valSize": scenario.val_size}
    body |= {"consistency": scenario.consistency, "requireFound": True, **_span_fields(scenario.span, prefix)}
    if scenario.verify:
        body["verify"] = True
    # What a read must find follows from the size of the values and from the seed, which is the server's default, as it
    # was when the keys were written.
    if scenario.verify or scenario.type == "mixed":
        body["valSize"] = scenario.val_size
    if scenario.put_ratio is None:
        return contract.READ_PATH, body
    return contract.MIXED_PATH, body | {"ratio": float(scenario.put_ratio)}


def _key_fields(scenario: Scenario, prefix: str) -> dict[str, Any]:
    """The fields that define the generated keys."""
    keys: dict[str, Any] = {"keySize": scenario.key_size}
    if scenario.key_space is not None:
        keys["keySpace"] = scenario.key_space
    if prefix or scenario.key_prefix:
        keys["keyPrefix"] = prefix + scenario.key_prefix
    return keys


def _span_fields(span: Span, prefix: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if span.prefix is not None:
        fields |= {"key": prefix + span.prefix, "prefix": True}
    if span.start is not None:
        fields |= {"key": prefix + span.start, "endRange": f"{prefix}{span.end}"}
    if span.keys is not None:
        fields["spanKeys"] = span.keys
    if span.limit is not None:
        fields["limit"] = span.limit
    if span.answer != "values":
        fields[f"{span.answer}Only"] = True
    return fields


def _load_fields(load: Load) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for item in fields(Load):
        name, value = item.metadata.get("request"), getattr(load, item.name)
        if name is not None and value is not None:
            body[name] = value / 1e9 if item.name.endswith("_ns") else _plain(value)
    if load.rate is not None:
        body["arrival"] = load.arrival
    if load.warmup.requests:
        body["warmupRequests"] = load.warmup.requests
    if load.warmup.length_ns:
        body["warmupDuration"] = load.warmup.length_ns / 1e9
    return body


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
