"""What may be asked of a link: the ranges are the link emulator's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from containernet_env.base.errors import RunError, UsageError
from containernet_env.containernet.keywords import link_spec
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.network.interface import Interface
from containernet_env.network.kernel.tc import VethLink
from containernet_env.network.link import check_held

MS = 10**6


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"delay_ns": -1}, "delay_ns must be 0 to"),
        ({"delay_ns": 3600 * 10**9 + 1}, "delay_ns must be 0 to"),
        ({"rate_bps": 999}, "rate_bps must be 1000 to"),
        ({"rate_bps": 10**12 + 1}, "rate_bps must be 1000 to"),
        ({"queue_frames": 0}, "queue_frames must be 1 to"),
        ({"queue_frames": 10**6 + 1}, "queue_frames must be 1 to"),
        ({"queue_bytes": 10**10 + 1}, "queue_bytes must be 1 to"),
        ({"seed": 2**53}, "seed must be 0 to"),
        ({"overhead_bytes": 1001}, "overhead_bytes must be 0 to 1000"),
        ({"uplink": "switch"}, "uplink must be host or network"),
        ({"delay_ns": MS, "jitter": Jitter("uniform", MS + 1)}, "negative; allowed: at most the delay, 1000000 ns"),
        ({"delay_ns": MS, "jitter": Jitter("normal", MS // 4 + 1)}, "allowed: at most 1/4 of the delay, 250000 ns"),
    ],
)
def test_what_the_emulator_refuses_is_refused_here(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DirectionSpec(**values)


@pytest.mark.parametrize("values", [{"delay_ns": 1.0}, {"seed": True}, {"jitter": 5}, {"loss": 0.1}])
def test_what_is_of_another_type_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        DirectionSpec(**values)


def test_the_ends_of_the_ranges_are_allowed() -> None:
    DirectionSpec(3600 * 10**9, 1000, 10**6, 10**10, Jitter("normal", 900 * 10**9), IndependentLoss(1), 2**53 - 1)
    DirectionSpec(MS, jitter=Jitter("uniform", MS), loss=GilbertElliottLoss(0, 0, 0, 0), seed=0)


def test_chance_that_is_none() -> None:
    for wrong in (
        {"distribution": "pareto", "ns": 5},
        {"distribution": "normal", "ns": 0},
        {"distribution": "normal", "ns": 10, "correlation_ns": 79},
    ):
        with pytest.raises(ValueError, match="must be"):
            Jitter(**wrong)  # type: ignore[arg-type]
    for ratio in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="0 to 1"):
            IndependentLoss(ratio)
        with pytest.raises(ValueError, match="bad_loss_ratio must be 0 to 1"):
            GilbertElliottLoss(0.1, 0.1, 0, ratio)


def test_the_share_that_is_lost_in_the_long_run() -> None:
    assert IndependentLoss(0.25).mean_ratio == 0.25
    assert GilbertElliottLoss(0.01, 0.24).mean_ratio == pytest.approx(0.04)
    assert GilbertElliottLoss(0, 0, 0.5).mean_ratio == 0.5
    assert GilbertElliottLoss(0.01, 0.24).correlation == pytest.approx(0.75)
    assert GilbertElliottLoss(1, 1).correlation == 0


def test_every_value_that_is_not_held_is_an_error() -> None:
    jitter = Jitter("uniform", 1000, correlation_ns=9000)
    held = DirectionSpec(MS, 10**6, None, 5000, jitter, IndependentLoss(0.1), 7, overhead_bytes=24, uplink="network")
    asked = LinkSpec(held, DirectionSpec())
    check_held("x", asked, LinkSpec(held, DirectionSpec(0, None, 1000, None, None, None, 5)))
    for values in (
        {"queue_bytes": 5001},
        {"seed": 8},
        {"overhead_bytes": 0},
        {"uplink": "host"},
        {"jitter": None},
        {"jitter": Jitter("uniform", 1001)},
        {"jitter": Jitter("uniform", 1000, reorder=True)},
        {"jitter": Jitter("uniform", 1000, correlation_ns=20_000)},
        {"loss": None},
        {"loss": IndependentLoss(0.11)},
        {"loss": GilbertElliottLoss(0.1, 0.1)},
    ):
        other = dataclasses.replace(held, **values)  # type: ignore[arg-type]
        with pytest.raises(RunError, match="x, a to b"):
            check_held("x", asked, LinkSpec(other, DirectionSpec()))
    with pytest.raises(RunError, match="b to a"):
        check_held("x", asked, LinkSpec(held, DirectionSpec(loss=IndependentLoss(0.5))))


def test_values_out_of_range_are_usage_errors_where_users_give_them() -> None:
    with pytest.raises(UsageError, match="rate_bps must be 1000"):
        link_spec({"bw": 0.0005}, {}, {}, "link d1-s1")
    link = VethLink("d1-s1", (Interface(1, "e0"), Interface(1, "e1")), LinkSpec.symmetric(MS))
    with pytest.raises(UsageError, match="link d1-s1: uniform jitter"):
        link.change(link.ends[0], jitter=Jitter("uniform", 2 * MS))
