"""Gates over the link emulator in simulated time: ``link-emulator simulate``, the only program that exact tests start.

It has no clock and no network. It is given a gate's plan, and links, which a ``Fault`` makes others than the plan says;
its answer is a function of that alone.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from ipaddress import IPv4Address
from typing import Any

from containernet_env.model.dilation import slowed
from containernet_env.model.link import DirectionSpec, Link, LinkSpec
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.model.topology import Host, Topology
from containernet_env.network.emulator import default_binary, direction_to_json
from containernet_env.network.gate import allowed_for, plan_for, probe_to_json, times_from_json
from containernet_env.network.gate_plan import GatePlan
from containernet_env.network.gate_trains import Times
from containernet_env.network.gate_verdict import verdicts

Fault = Callable[[str, DirectionSpec], DirectionSpec]
"""What a direction of a name does instead of what was configured."""

Stall = tuple[int, int]
"""From when to when the emulator does not run, ns."""

Noise = Mapping[str, Any]
"""What the machine does to the emulator, where it differs from ``ORDINARY``: see link_emulator/simulate."""

ORDINARY: Noise = {"wake_ns": 10_000, "late_wake": {"ratio": 0.001, "ns": 300_000}}
"""A machine with other work: one wake-up in a thousand is late by up to 0.3 ms."""


def as_configured(name: str, spec: DirectionSpec) -> DirectionSpec:
    """No fault."""
    return spec


def changed(names: Sequence[str] | None = None, **values: object) -> Fault:
    """A fault: these fields of these directions (default: all) are others."""

    def fault(name: str, spec: DirectionSpec) -> DirectionSpec:
        return replace(spec, **values) if names is None or name in names else spec

    return fault


def star_of(*links: LinkSpec) -> Topology:
    """Hosts h1, h2, ... on links of these kinds to the switch s1."""
    hosts = [Host(f"h{n}", "member", IPv4Address(f"10.0.0.{n}"), 24) for n in range(1, len(links) + 1)]
    made = [Link(host.name, "s1", link) for host, link in zip(hosts, links, strict=True)]
    return Topology(hosts, ["s1"], made).with_queues()


def carry(
    plan: GatePlan,
    seed: int = 1,
    fault: Fault = as_configured,
    *,
    dilation: int = 1,
    noise: Noise = ORDINARY,
    stalls: Sequence[Stall] = (),
    delayed: Sequence[tuple[str, float, int]] = (),
) -> tuple[Times, ...]:
    """Carry out the streams of a plan, slowed by a dilation.

    ``delayed``: of the frames that a host sends, which share enters its interface how much later, ns.
    """
    hosts = [{"name": name, "pid": 1, "ip": str(IPv4Address("10.0.0.1") + n)} for n, name in enumerate(plan.hosts)]
    request = {
        "hosts": hosts,
        **probe_to_json(plan, dilation),
        "switches": sorted({hop.sender for hop in plan.hops} - set(plan.hosts)),
        "links": _links(plan, seed, fault, dilation),
        "routes": _routes(plan),
        "noise": {**noise, "stalls": [{"from_ns": begin, "to_ns": end} for begin, end in sorted(stalls)]},
        "delayed": [{"host": host, "ratio": ratio, "ns": ns} for host, ratio, ns in delayed],
        "seed": seed,
    }
    return times_from_json(_simulate(json.dumps(request)), dilation)


def _links(plan: GatePlan, seed: int, fault: Fault, dilation: int) -> list[dict[str, Any]]:
    """Each link of the plan once, from its host, with what its directions do."""
    specs = defaultdict(lambda: direction_to_json(DirectionSpec()))  # of a direction that no path takes
    specs |= {hop.name: direction_to_json(slowed(fault(hop.name, hop.spec), dilation), seed) for hop in plan.hops}
    links: dict[str, dict[str, Any]] = {}
    for hop in plan.hops:
        a, b = sorted((hop.sender, hop.receiver), key=lambda name: (name not in plan.hosts, name))
        sides = {"a_to_b": specs[f"{a}>{b}"], "b_to_a": specs[f"{b}>{a}"]}
        ends = {"a": {"port" if a in plan.hosts else "switch": a}, "b": {"switch": b}}
        links[f"{a}-{b}"] = {"name": f"{a}-{b}", **ends, **sides}
    return list(links.values())


def _routes(plan: GatePlan) -> dict[str, dict[str, str]]:
    """Those of the switches on the paths."""
    routes: dict[str, dict[str, str]] = {}
    for path in plan.paths.values():
        for hop in path[1:-1]:
            one, two = sorted((hop.sender, hop.receiver))
            routes.setdefault(hop.sender, {})[path[-1].sender] = f"{one}-{two}"
    return routes


_binary = cache(default_binary)  # its sources are read to find it


@lru_cache(maxsize=32)
def _simulate(request: str) -> Any:
    done = subprocess.run([_binary(), "simulate"], input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def gate(
    topology: Topology, seed: int = 1, fault: Fault = as_configured, dilation: int = 1, **carried: Any
) -> NetworkProof:
    """A whole gate over a simulated network; ``carried``: see ``carry``."""
    plan = plan_for(topology, "emulator", dilation=dilation)
    times = carry(plan, seed, fault, dilation=dilation, **carried)
    return NetworkProof("before", verdicts(plan, times, allowed_for("emulator", None, plan.speedup)))


def wrong(proof: NetworkProof) -> set[tuple[str, str]]:
    """What of which direction is wrong."""
    return {(check.subject, check.kind) for check in proof.of("wrong")}


def check_of(proof: NetworkProof, subject: str, kind: str) -> Check:
    """The check of one property of one direction."""
    (found,) = [check for check in proof.checks if (check.subject, check.kind) == (subject, kind)]
    return found
