"""Mininet's link keywords, read strictly."""

from __future__ import annotations

from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.containernet.keywords import link_spec, shaping, split
from containernet_env.model.chance import IndependentLoss, Jitter
from containernet_env.model.link import DirectionSpec, LinkSpec


def test_one_spec_for_both_directions() -> None:
    spec = link_spec({"delay": "100ms", "bw": 1, "use_htb": True}, {}, {}, "link a-b")
    assert spec == LinkSpec.symmetric(100_000_000, 1_000_000)


def test_what_an_end_sends_goes_before_what_both_do() -> None:
    spec = link_spec({"delay": "3ms", "max_queue_size": 50}, {"bw": 2500}, {"delay": "1.5ms"}, "link a-b")
    assert spec.a_to_b == DirectionSpec(3_000_000, 2_500_000_000, 50)
    assert spec.b_to_a == DirectionSpec(1_500_000, None, 50)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dealy": "1ms"}, "did you mean delay"),
        ({"bandwidth": 3}, "unknown keyword bandwidth"),
        ({"delay": "5"}, "with its unit"),
        ({"delay": 5}, "with its unit"),
        ({"delay": "-1ms"}, "allowed"),
        ({"bw": 0}, "more than 0"),
        ({"bw": "fast"}, "Mbit/s"),
        ({"bw": float("nan")}, "Mbit/s"),
        ({"max_queue_size": 0}, "1 or more"),
        ({"max_queue_size": True}, "1 or more"),
        ({"loss": 101}, "0 to 100"),
        ({"loss": "1%"}, "0 to 100"),
        ({"jitter": "1"}, "with its unit"),
        ({"use_tbf": True}, "not offered"),
        ({"enable_ecn": True}, "not offered"),
    ],
)
def test_what_cannot_be_meant_or_done_is_refused_with_the_links_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        shaping(given, "link a-b")
    assert "link a-b" in str(caught.value)


def test_asking_for_nothing_is_fine() -> None:
    nothing = {"bw": None, "delay": None, "loss": None, "jitter": None, "max_queue_size": None, "use_hfsc": False}
    assert shaping(nothing, "link a-b") == {}


def test_jitter_and_loss_mean_what_they_mean_to_mininet() -> None:
    spec = link_spec({"delay": "3ms", "jitter": "1ms"}, {"loss": 1.5}, {"jitter": "0ms"}, "link a-b")
    jitter = Jitter("uniform", 1_000_000, reorder=True)
    assert spec.a_to_b == DirectionSpec(3_000_000, jitter=jitter, loss=IndependentLoss(0.015))
    assert spec.b_to_a == DirectionSpec(3_000_000)
    assert shaping({"loss": 0, "jitter": 0}, "x") == {"loss": None, "jitter": None}
    with pytest.raises(UsageError, match="link a-b: uniform jitter"):
        link_spec({"jitter": "1ms"}, {}, {}, "link a-b")


def test_addresses_are_told_from_shaping() -> None:
    assert split({"ip": "10.0.0.1/8", "mac": "02:00:00:00:00:01", "bw": 3}) == (
        {"ip": "10.0.0.1/8", "mac": "02:00:00:00:00:01"},
        {"bw": 3},
    )
    assert split(None) == ({}, {})
