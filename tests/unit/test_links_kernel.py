"""Links of the kernel, HTB and netem: the commands for a spec, the spec in what tc prints, and changes in place.

What Linux 6.1 prints of each kind of spec is in tests/recorded; the changes of it here have the form of tc/q_netem.c.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from containernet_env.base.errors import RunError, UsageError
from containernet_env.model.link import DirectionSpec, GilbertElliottLoss, IndependentLoss, Jitter, LinkSpec
from containernet_env.network import kernel
from containernet_env.network.link import check_held
from tests.recorded import specs

MS = 10**6
FREE = DirectionSpec()
UNIFORM = Jitter("uniform", 500_000, reorder=True)
RECORDED: dict[str, Any] = json.loads(specs.FILE.read_text())
HTB, HTB_CLASS = RECORDED["rate"]["qdiscs"], RECORDED["rate"]["classes"]


def commands(spec: DirectionSpec) -> list[str]:
    return kernel.tc_commands("rec0", spec)


@pytest.mark.parametrize("name", specs.SPECS)
def test_what_a_kernel_with_netem_holds_is_what_was_configured(name: str) -> None:
    configured, recorded = specs.SPECS[name], RECORDED[name]
    assert commands(configured) == recorded["commands"]
    held = kernel.direction_from_tc(recorded["qdiscs"], recorded["classes"], configured)
    tolerances = (kernel.delay_tolerance_ns(configured.delay_ns), kernel.RATE_TOLERANCE_RATIO)
    check_held(name, LinkSpec(configured), LinkSpec(held), *tolerances)
    late = replace(configured, delay_ns=configured.delay_ns + 10_000 + configured.delay_ns // 1000)
    for changed in (late, replace(configured, rate_bps=77_000)):
        with pytest.raises(RunError):
            check_held(name, LinkSpec(changed), LinkSpec(held), *tolerances)


def test_nothing_configured_is_nothing_done() -> None:
    assert commands(FREE) == commands(DirectionSpec(loss=IndependentLoss(0))) == []
    noqueue = {"kind": "noqueue", "handle": "0:", "root": True, "options": {}}
    assert kernel.direction_from_tc([noqueue, {"kind": "clsact"}], "") == FREE


def test_a_queue_is_as_deep_with_a_delay_as_without() -> None:
    """netem once held both waits: 1454 ms of queue, where the emulator had 242."""
    for configured in (DirectionSpec(0, 10**8), DirectionSpec(0, 10**8, 77), DirectionSpec(0, 10**8, None, 30_000)):
        alone, delayed = (kernel.tc_commands("x0", replace(configured, delay_ns=ns))[-1] for ns in (0, 50 * MS))
        assert alone.split()[-3:] == delayed.split()[-3:]
        assert " parent 10:1 " in delayed
    assert alone.endswith("bfifo limit 30000")
    assert commands(DirectionSpec(rate_bps=2_500 * 10**6))[-1].endswith("handle 20: pfifo limit 2000")


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
        ({"delay_ns": MS, "queue_frames": 5}, "no frame ever waits"),
        ({"rate_bps": 10**6, "queue_bytes": 5000, "queue_frames": 5}, "both frames and bytes"),
        ({"queue_bytes": 5000}, "no frame ever waits"),
    ],
)
def test_what_cannot_be_done_faithfully_is_refused_with_the_reason(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        commands(DirectionSpec(**values))


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("6400bit", 6400), ("123456Kbit", 123_456_000), ("1Gbit", 10**9), ("100Mbit", 10**8), ("40Gbit", 4 * 10**10)],
)
def test_rates_as_tc_prints_them(text: str, rate_bps: int) -> None:
    assert kernel.direction_from_tc(HTB, HTB_CLASS.replace("2500Mbit", text)).rate_bps == rate_bps


@pytest.mark.parametrize("rate_bps", [10**5, 10**6, 10**9, 4 * 10**10])
def test_a_burst_holds_a_frame_and_no_more_than_a_quarter_of_a_millisecond(rate_bps: int) -> None:
    burst: Any = kernel.burst_bytes(rate_bps)
    assert burst >= 1514
    assert burst == 1600 or burst * 8 <= rate_bps * 0.00025 + 8


def netem_with(limit: int = 10**6, **options: Any) -> list[dict[str, Any]]:
    return [{"kind": "netem", "handle": "10:", "root": True, "options": {"limit": limit, **options}}]


def late_by(jitter: float, correlation: float = 0) -> dict[str, float]:
    return {"delay": 0.003, "jitter": jitter, "correlation": correlation}


@pytest.mark.parametrize(
    ("qdiscs", "classes", "words"),
    [
        (HTB, "", "not as it was made"),
        (HTB, HTB_CLASS.replace("ceil 2500", "ceil 9000"), "not as it was made"),
        (HTB, HTB_CLASS.replace("1:1", "1:2"), "not as it was made"),
        ([{"kind": "tbf", "handle": "1:", "root": True, "options": {}}], "", "in the way: tbf"),
        (netem_with(1000), "", "a limit of 1000 frames"),
        (netem_with(delay=late_by(0.001)), "", "more than configured"),
        (netem_with(delay=late_by(0, 0.25)), "", "more than configured"),
        (netem_with(duplicate={"duplicate": 0.01, "correlation": 0}), "", "more than configured"),
        (netem_with(reorder={"reorder": 0.25, "correlation": 0}), "", "more than configured"),
        (netem_with(**{"loss-random": {"loss": 0.01, "correlation": 0.5}}), "", "more than configured"),
    ],
)
def test_what_was_not_configured_is_an_error(qdiscs: list[Any], classes: str, words: str) -> None:
    with pytest.raises(RunError, match=words):
        kernel.direction_from_tc(qdiscs, classes)


RATE, BOTH = DirectionSpec(0, 10**6), DirectionSpec(3 * MS, 10**9)
NORMAL = DirectionSpec(MS, jitter=Jitter("normal", 9000, reorder=True))


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        pytest.param(BOTH, BOTH, [], id="nothing"),
        pytest.param(
            BOTH,
            replace(BOTH, delay_ns=5 * MS),
            ["qdisc change dev rec0 parent 1:1 handle 10: netem limit 1000000 delay 5000.000us"],
            id="a delay",
        ),
        pytest.param(
            BOTH,
            replace(BOTH, rate_bps=10**8, queue_frames=2000),
            [
                "class change dev rec0 parent 1: classid 1:1 htb rate 100000000bit ceil 100000000bit"
                " burst 3125 cburst 3125 quantum 60000",
            ],
            id="a rate",
        ),
        pytest.param(
            BOTH,
            replace(BOTH, queue_frames=50),
            ["qdisc change dev rec0 parent 10:1 handle 21: pfifo limit 50"],
            id="a limit",
        ),
        pytest.param(
            BOTH,
            replace(BOTH, queue_bytes=5000),
            ["qdisc replace dev rec0 parent 10:1 handle 31: bfifo limit 5000"],
            id="a limit in bytes",
        ),
        pytest.param(
            RATE,
            replace(RATE, delay_ns=MS),
            [
                "qdisc replace dev rec0 parent 1:1 handle 10: netem limit 1000000 delay 1000.000us",
                "qdisc add dev rec0 parent 10:1 handle 21: pfifo limit 200",
            ],
            id="a delay that comes",
        ),
        pytest.param(
            replace(RATE, delay_ns=MS),
            RATE,
            ["qdisc replace dev rec0 parent 1:1 handle 20: pfifo limit 200"],
            id="a delay that goes",
        ),
        pytest.param(FREE, DirectionSpec(MS), None, id="the first qdisc"),
        pytest.param(DirectionSpec(MS), FREE, None, id="the last qdisc"),
        pytest.param(DirectionSpec(MS), DirectionSpec(MS, 10**6), None, id="another root"),
        # The kernel keeps a table once it is loaded.
        pytest.param(NORMAL, replace(NORMAL, jitter=Jitter("uniform", 9000, True)), None, id="a table"),
    ],
)
def test_a_change_leaves_the_qdiscs_and_their_frames_where_it_can(
    old: DirectionSpec, new: DirectionSpec, changes: list[str] | None
) -> None:
    found = kernel.in_place(kernel.tc_commands("rec0", old), kernel.tc_commands("rec0", new))
    assert found == changes


def test_every_value_that_is_not_held_is_an_error_that_names_link_and_direction() -> None:
    jitter = Jitter("uniform", 1000, correlation_ns=20_000)
    held = DirectionSpec(MS, 10**6, None, 5000, jitter, IndependentLoss(0.1), 7, overhead_bytes=24, uplink="network")
    check_held("x", LinkSpec(held), LinkSpec(held, DirectionSpec(0, None, 1000, None, None, None, 5)))
    check_held("x", LinkSpec(held), LinkSpec(replace(held, delay_ns=MS + 500, rate_bps=999_500)), 1_000, 0.001)
    values: list[dict[str, Any]] = [
        {"delay_ns": MS + 1001},
        {"rate_bps": None},
        {"rate_bps": 9 * 10**5},
        {"queue_bytes": 5001},
        {"seed": 8},
        {"overhead_bytes": 0},
        {"uplink": "host"},
        {"jitter": None},
        {"jitter": replace(jitter, ns=2001)},
        {"jitter": replace(jitter, reorder=True, correlation_ns=None)},
        {"jitter": replace(jitter, correlation_ns=30_000)},
        {"loss": None},
        {"loss": IndependentLoss(0.11)},
        {"loss": GilbertElliottLoss(0.1, 0.1)},
    ]
    for other in values:
        with pytest.raises(RunError, match="link x, a to b"):
            check_held("x", LinkSpec(held), LinkSpec(replace(held, **other)), 1_000, 0.001)
    for other in ({"loss": IndependentLoss(0.5)}, {"rate_bps": 5000}):
        with pytest.raises(RunError, match="link x, b to a"):
            check_held("x", LinkSpec(held), LinkSpec(held, DirectionSpec(**other)))
    with pytest.raises(RunError, match="b to a"):
        check_held("x", LinkSpec(FREE, DirectionSpec(0, 10**6, 5)), LinkSpec(FREE, DirectionSpec(0, 10**6, 6)))
