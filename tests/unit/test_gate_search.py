"""A search over machines and faults: no noise makes a healthy network wrong, and no gate proves what is not there.

``CONTAINERNET_ENV_SEED`` is the first seed, ``CONTAINERNET_ENV_SEEDS`` how many are tried (``long``: very many). A
failure names its seed, which these repeat alone.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import pytest

from containernet_env.analysis.gate_plan import MS, US
from containernet_env.model.chance import IndependentLoss, Jitter
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.proof import Property
from tests.unit.simulated import Fault, Noise, changed, check_of, gate, star_of, wrong

MBIT = 10**6
FREE = LinkSpec()
UP = DirectionSpec(3 * MS, 20 * MBIT, jitter=Jitter("uniform", MS), loss=IndependentLoss(0.02))
DOWN = DirectionSpec(500 * US, 10 * MBIT)
NETWORKS = {
    "plain": star_of(*[LinkSpec.symmetric(3 * MS, 100 * MBIT)] * 3, FREE),
    "fast": star_of(*[LinkSpec.symmetric(3 * MS, 1000 * MBIT)] * 3, FREE),
    "equal": star_of(*[LinkSpec.symmetric(MS, 10 * MBIT)] * 4),
    "impaired": star_of(*[LinkSpec(UP, DOWN)] * 2, FREE),
}
FAULTS: dict[str, tuple[Property, Fault]] = {
    "no rate": ("rate", changed(["h1>s1"], rate_bps=None)),
    "a tenth faster": ("rate", lambda name, spec: _rate(name, spec, 1.1)),
    "half the rate": ("rate", lambda name, spec: _rate(name, spec, 0.5)),
    "twice the delay": ("delay", lambda name, spec: _delay(name, spec, 2)),
    "half the delay": ("delay", lambda name, spec: _delay(name, replace(spec, jitter=None), 0.5)),
    "loss": ("loss", changed(["h1>s1"], loss=IndependentLoss(0.1))),
    "no limit": ("queue", changed(["h1>s1"], default_queue_frames=10**6, queue_frames=None)),
    "half the queue": ("queue", lambda name, spec: _half_queue(name, spec)),
}
_MANY = {"": 15, "long": 1000}


def _rate(name: str, spec: DirectionSpec, share: float) -> DirectionSpec:
    return replace(spec, rate_bps=round(spec.rate_bps * share)) if name == "h1>s1" and spec.rate_bps else spec


def _delay(name: str, spec: DirectionSpec, share: float) -> DirectionSpec:
    return replace(spec, delay_ns=round(spec.delay_ns * share)) if name == "h1>s1" else spec


def _half_queue(name: str, spec: DirectionSpec) -> DirectionSpec:
    held = spec.queue_frames or spec.default_queue_frames
    return replace(spec, queue_frames=held // 2) if name == "h1>s1" and held else spec


def seeds() -> range:
    """Those that are tried."""
    first, many = int(os.environ.get("CONTAINERNET_ENV_SEED", "0")), os.environ.get("CONTAINERNET_ENV_SEEDS", "")
    return range(first, first + (_MANY[many] if many in _MANY else int(many)))


def drawn(seed: int) -> tuple[str, Noise, dict[str, Any]]:
    """A network, and what a machine that the emulator has to itself, more or less, does to it."""
    source = random.Random(seed)
    noise = {
        "read_ns": source.randint(500, 2_500),
        "write_ns": source.randint(500, 2_500),
        "wake_ns": source.randint(2_000, 40_000),
        "late_wake": {"ratio": source.uniform(0, 0.01), "ns": source.randint(0, 300_000)},
        "overtaken": {"ratio": source.uniform(0, 0.002), "ns": source.randint(0, 200_000)},
    }
    begin = source.randint(0, 1_500 * MS)
    stalls = [(begin, begin + source.randint(0, 5 * MS))] if source.random() < 0.5 else []
    return source.choice(sorted(NETWORKS)), noise, {"stalls": stalls}


@pytest.mark.parametrize("seed", seeds())
def test_a_healthy_network_is_never_wrong_whatever_the_machine_does(seed: int) -> None:
    name, noise, more = drawn(seed)
    proof = gate(NETWORKS[name], seed, noise=noise, **more)
    assert proof.passed, (name, noise, more, proof.render())


@pytest.mark.parametrize("seed", seeds())
def test_a_fault_is_wrong_or_unproved_whatever_the_machine_does(seed: int) -> None:
    name, noise, more = drawn(seed)
    fault = random.Random(seed).choice(sorted(FAULTS))
    kind, change = FAULTS[fault]
    proof = gate(NETWORKS[name], seed, change, noise=noise, **more)
    assert check_of(proof, "h1>s1", kind).verdict != "proved" or wrong(proof), (fault, name, noise, proof.render())
