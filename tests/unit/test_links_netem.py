"""netem: the options for jitter and loss, what tc prints of them, what is refused and what can change in place.

The output here has the form that tc/q_netem.c of iproute2 gives it; tests/recorded has what a kernel said.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from containernet_env.base.errors import RunError, UsageError
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.network.kernel import netem, tc
from containernet_env.network.link import check_held

MS = 10**6
UNIFORM = Jitter("uniform", 500_000, reorder=True)


def words(**values: Any) -> list[str]:
    return [" ".join(command) for command in tc.tc_commands("x0", DirectionSpec(**values))]


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ({"delay_ns": 3 * MS, "jitter": UNIFORM}, "limit 1000000 delay 3000.000us 500.000us"),
        (
            {"delay_ns": 3 * MS, "jitter": Jitter("normal", 500_000, reorder=True)},
            "limit 1000000 delay 3000.000us 500.000us distribution normal",
        ),
        ({"loss": IndependentLoss(0.015)}, "limit 1000000 loss random 1.5%"),
        (
            {"delay_ns": MS, "loss": GilbertElliottLoss(0.01, 0.25, 0.001, 0.9)},
            "limit 1000000 delay 1000.000us loss gemodel 1% 25% 90% 0.1%",
        ),
    ],
)
def test_what_netem_is_told(values: dict[str, Any], options: str) -> None:
    assert words(**values) == [f"qdisc add dev x0 root handle 10: netem {options}"]


def test_a_limit_in_bytes() -> None:
    assert words(rate_bps=10**6, queue_bytes=15_000)[-1] == "qdisc add dev x0 parent 1:1 handle 30: bfifo limit 15000"
    shown = '[{"kind":"bfifo","handle":"30:","root":true,"options":{"limit":15000}}]'
    assert tc.direction_from_tc(json.loads(shown), "").queue_bytes == 15_000


def test_no_loss_at_all_needs_no_netem() -> None:
    assert words(loss=IndependentLoss(0)) == []


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"delay_ns": MS, "jitter": Jitter("uniform", 5000)}, "keeps the order"),
        ({"delay_ns": 1999}, "below 2 us"),
        ({"delay_ns": MS, "jitter": Jitter("uniform", 5, reorder=True)}, "below 2 us"),
        ({"delay_ns": MS, "rate_bps": 10**6, "jitter": UNIFORM}, "jitter with a bandwidth"),
        ({"rate_bps": 10**6, "loss": IndependentLoss(0.1)}, "loss with a bandwidth"),
        ({"seed": 1}, "seed"),
        ({"delay_ns": MS, "rate_bps": 10**6, "uplink": "host"}, "takes the frames from their host"),
        ({"rate_bps": 10**6, "uplink": "network"}, "HTB holds the frames"),
        ({"delay_ns": MS, "queue_frames": 5}, "nothing ever waits"),
        ({"rate_bps": 10**6, "queue_bytes": 5000, "queue_frames": 5}, "both frames and bytes"),
        ({"queue_bytes": 5000}, "nothing ever waits"),
    ],
)
def test_what_cannot_be_done_faithfully_is_refused_with_the_reason(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        words(**values)


def shown(options: str) -> list[Any]:
    return list(json.loads(f'[{{"kind":"netem","handle":"10:","root":true,"options":{{{options}}}}}]'))


def test_what_tc_prints_is_read_back() -> None:
    delay = '"limit":1000000,"delay":{"delay":0.003,"jitter":0.0005,"correlation":0}'
    held = tc.direction_from_tc(shown(delay), "", asked=DirectionSpec(3 * MS, jitter=UNIFORM))
    assert held == DirectionSpec(3 * MS, jitter=UNIFORM)
    held = tc.direction_from_tc(shown('"limit":1000000,"loss-random":{"loss":0.0150001,"correlation":0}'), "")
    asked = DirectionSpec(loss=IndependentLoss(0.015))
    check_held("x", LinkSpec(asked, DirectionSpec()), LinkSpec(held, DirectionSpec()))
    held = tc.direction_from_tc(shown('"limit":1000000,"loss-gemodel":{"p":0.01,"r":0.25,"1-h":0.9,"1-k":0.001}'), "")
    assert held.loss == GilbertElliottLoss(0.01, 0.25, 0.001, 0.9)


@pytest.mark.parametrize(
    "options",
    [
        '"limit":1000000,"loss-random":{"loss":0.01,"correlation":0.5}',
        '"limit":1000000,"reorder":{"reorder":0.25,"correlation":0}',
        '"limit":1000000,"delay":{"delay":0.003,"jitter":0.001,"correlation":0.25}',
        '"limit":1000000,"delay":{"delay":0.003,"jitter":0.001,"correlation":0}',
    ],
)
def test_what_nobody_asked_for_is_an_error(options: str) -> None:
    with pytest.raises(RunError, match="more than was asked"):
        tc.direction_from_tc(shown(options), "")


def changes(old: DirectionSpec, new: DirectionSpec) -> list[str] | None:
    commands = netem.in_place(tc.tc_commands("x0", old), tc.tc_commands("x0", new))
    return commands if commands is None else [" ".join(command) for command in commands]


def test_a_change_of_a_value_leaves_the_qdiscs_and_their_frames() -> None:
    old = DirectionSpec(3 * MS, 10**9)
    assert changes(old, DirectionSpec(5 * MS, 10**9)) == [
        "qdisc change dev x0 parent 1:1 handle 10: netem limit 1000000 delay 5000.000us"
    ]
    (rate,) = changes(old, DirectionSpec(3 * MS, 10**8)) or []
    assert rate.startswith("class change dev x0 parent 1: classid 1:1 htb rate 100000000bit")
    assert changes(old, old) == []
    assert changes(old, DirectionSpec(3 * MS, 10**9, 50)) == [
        "qdisc change dev x0 parent 10:1 handle 21: pfifo limit 50"
    ]
    assert changes(old, DirectionSpec(3 * MS, 10**9, None, 5000)) == [
        "qdisc replace dev x0 parent 10:1 handle 31: bfifo limit 5000"
    ]


def test_a_delay_that_comes_or_goes_leaves_the_bandwidth_in_place() -> None:
    without, with_delay = DirectionSpec(0, 10**6), DirectionSpec(MS, 10**6)
    assert changes(without, with_delay) == [
        "qdisc replace dev x0 parent 1:1 handle 10: netem limit 1000000 delay 1000.000us",
        "qdisc add dev x0 parent 10:1 handle 21: pfifo limit 200",
    ]
    assert changes(with_delay, without) == ["qdisc replace dev x0 parent 1:1 handle 20: pfifo limit 200"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (DirectionSpec(), DirectionSpec(MS)),
        (DirectionSpec(MS), DirectionSpec()),
        (DirectionSpec(MS), DirectionSpec(MS, 10**6)),
        # The kernel keeps a table once it is loaded.
        (
            DirectionSpec(MS, jitter=Jitter("normal", 9000, reorder=True)),
            DirectionSpec(MS, jitter=Jitter("uniform", 9000, True)),
        ),
    ],
)
def test_what_needs_other_qdiscs_is_made_anew(old: DirectionSpec, new: DirectionSpec) -> None:
    assert changes(old, new) is None
