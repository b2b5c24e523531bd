"""Links of the kernel, HTB and netem: the commands for a spec, the spec in what tc prints, changes and partitions.

What Linux 6.1 prints of each kind of spec is in tests/recorded; the changes of it here have the form of tc/q_netem.c.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from containernet_env.base.errors import RunError, UsageError
from containernet_env.hosts import netns
from containernet_env.model.link import CoDel, DirectionSpec, GilbertElliottLoss, IndependentLoss, Jitter, LinkSpec
from containernet_env.network import kernel
from containernet_env.network.interface import Interface
from containernet_env.network.link import check_held
from tests.recorded import specs
from tests.unit.fakes import FakeKernel

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


def test_a_queue_is_as_deep_with_a_delay_as_without_and_nothing_configured_is_nothing_done() -> None:
    """netem once held both waits: 1454 ms of queue, where the emulator had 242."""
    for configured in (DirectionSpec(0, 10**8), DirectionSpec(0, 10**8, 77), DirectionSpec(0, 10**8, None, 30_000)):
        alone, delayed = (kernel.tc_commands("x0", replace(configured, delay_ns=ns))[-1] for ns in (0, 50 * MS))
        assert alone.split()[-3:] == delayed.split()[-3:]
        assert " parent 10:1 " in delayed
    assert alone.endswith("bfifo limit 30000")
    assert commands(DirectionSpec(rate_bps=2_500 * 10**6))[-1].endswith("handle 20: pfifo limit 2000")
    assert commands(FREE) == commands(DirectionSpec(loss=IndependentLoss(0))) == []
    noqueue = {"kind": "noqueue", "handle": "0:", "root": True, "options": {}}
    assert kernel.direction_from_tc([noqueue, {"kind": "clsact"}], "") == FREE


RATED: dict[str, Any] = {"rate_bps": 10**6}
UNFAITHFUL: dict[str, list[dict[str, Any]]] = {
    "keeps the order": [{"delay_ns": MS, "jitter": Jitter("uniform", 5000)}],
    "below 2 us": [{"delay_ns": 1999}, {"delay_ns": MS, "jitter": Jitter("uniform", 5, reorder=True)}],
    "jitter with a bandwidth": [RATED | {"delay_ns": MS, "jitter": UNIFORM}],
    "loss with a bandwidth": [RATED | {"loss": IndependentLoss(0.1)}],
    "seed": [{"seed": 1}],
    "duplication": [{"duplication_ratio": 0.1}],
    "corruption": [{"corruption_ratio": 0.1}],
    "queue discipline": [RATED | {"aqm": CoDel()}],
    "takes the frames from their host": [RATED | {"delay_ns": MS, "uplink": "host"}],
    "HTB holds the frames": [RATED | {"uplink": "network"}],
    "no frame ever waits": [{"delay_ns": MS, "queue_frames": 5}, {"queue_bytes": 5000}],
    "both frames and bytes": [RATED | {"queue_bytes": 5000, "queue_frames": 5}],
}


@pytest.mark.parametrize("reason", UNFAITHFUL)
def test_what_cannot_be_done_faithfully_is_refused_with_the_reason(reason: str) -> None:
    for values in UNFAITHFUL[reason]:
        with pytest.raises(UsageError, match=reason):
            commands(DirectionSpec(**values))


def test_rates_are_as_tc_prints_them_with_a_burst_of_a_quarter_of_a_millisecond_at_most() -> None:
    printed = {"6400bit": 6400, "123456Kbit": 123_456_000, "1Gbit": 10**9, "100Mbit": 10**8, "40Gbit": 4 * 10**10}
    for text, rate_bps in printed.items():
        assert kernel.direction_from_tc(HTB, HTB_CLASS.replace("2500Mbit", text)).rate_bps == rate_bps
        burst: Any = kernel.burst_bytes(rate_bps)
        assert burst >= 1514, "it holds a frame"
        assert burst == 1600 or burst * 8 <= rate_bps * 0.00025 + 8


def netem_with(limit: int = 10**6, **options: Any) -> list[dict[str, Any]]:
    return [{"kind": "netem", "handle": "10:", "root": True, "options": {"limit": limit, **options}}]


def late_by(jitter: float, correlation: float = 0) -> dict[str, float]:
    return {"delay": 0.003, "jitter": jitter, "correlation": correlation}


@pytest.mark.parametrize(
    ("qdiscs", "classes", "words"),
    [
        *((HTB, classes, "not as it was made") for classes in (
            "", HTB_CLASS.replace("ceil 2500", "ceil 9000"), HTB_CLASS.replace("1:1", "1:2"),
        )),
        ([{"kind": "tbf", "handle": "1:", "root": True, "options": {}}], "", "in the way: tbf"),
        (netem_with(1000), "", "a limit of 1000 frames"),
        *((netem_with(**options), "", "more than configured") for options in (
            {"delay": late_by(0.001)}, {"delay": late_by(0, 0.25)}, {"loss-random": {"loss": 0.01, "correlation": 0.5}},
            {"duplicate": {"duplicate": 0.01, "correlation": 0}}, {"reorder": {"reorder": 0.25, "correlation": 0}},
        )),
    ],
)  # fmt: skip
def test_what_was_not_configured_is_an_error(qdiscs: list[Any], classes: str, words: str) -> None:
    with pytest.raises(RunError, match=words):
        kernel.direction_from_tc(qdiscs, classes)


RATE, BOTH = DirectionSpec(0, 10**6), DirectionSpec(3 * MS, 10**9)
NORMAL = DirectionSpec(MS, jitter=Jitter("normal", 9000, reorder=True))


NETEM = "handle 10: netem limit 1000000 delay"
DELAYED = replace(RATE, delay_ns=MS)
CHANGES: dict[str, tuple[DirectionSpec, DirectionSpec, list[str] | None]] = {
    "nothing": (BOTH, BOTH, []),
    "a delay": (BOTH, replace(BOTH, delay_ns=5 * MS), [f"qdisc change dev rec0 parent 1:1 {NETEM} 5000.000us"]),
    "a rate": (BOTH, replace(BOTH, rate_bps=10**8, queue_frames=2000), [
        "class change dev rec0 parent 1: classid 1:1 htb rate 100000000bit ceil 100000000bit"
        " burst 3125 cburst 3125 quantum 60000",
    ]),
    "a limit": (BOTH, replace(BOTH, queue_frames=50), ["qdisc change dev rec0 parent 10:1 handle 21: pfifo limit 50"]),
    "a limit in bytes": (BOTH, replace(BOTH, queue_bytes=5000), [
        "qdisc replace dev rec0 parent 10:1 handle 31: bfifo limit 5000",
    ]),
    "a delay that comes": (RATE, DELAYED, [
        f"qdisc replace dev rec0 parent 1:1 {NETEM} 1000.000us",
        "qdisc add dev rec0 parent 10:1 handle 21: pfifo limit 200",
    ]),
    "a delay that goes": (DELAYED, RATE, ["qdisc replace dev rec0 parent 1:1 handle 20: pfifo limit 200"]),
    "the first qdisc": (FREE, DirectionSpec(MS), None),
    "the last qdisc": (DirectionSpec(MS), FREE, None),
    "another root": (DirectionSpec(MS), DirectionSpec(MS, 10**6), None),
    # The kernel keeps a table once it is loaded.
    "a table": (NORMAL, replace(NORMAL, jitter=Jitter("uniform", 9000, True)), None),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_leaves_the_qdiscs_and_their_frames_where_it_can(change: str) -> None:
    old, new, changes = CHANGES[change]
    assert kernel.in_place(commands(old), commands(new)) == changes


def test_every_value_that_is_not_held_is_an_error_that_names_link_and_direction() -> None:
    jitter = Jitter("uniform", 1000, correlation_ns=20_000)
    held = DirectionSpec(MS, 10**6, None, 5000, jitter, IndependentLoss(0.1), 7, overhead_bytes=24, uplink="network")
    check_held("x", LinkSpec(held), LinkSpec(held, DirectionSpec(0, None, 1000, None, None, None, 5)))
    check_held("x", LinkSpec(held), LinkSpec(replace(held, delay_ns=MS + 500, rate_bps=999_500)), 1_000, 0.001)
    values: dict[str, tuple[Any, ...]] = {
        "delay_ns": (MS + 1001,), "rate_bps": (None, 9 * 10**5), "queue_bytes": (5001,), "seed": (8,),
        "overhead_bytes": (0,), "uplink": ("host",),
        "loss": (None, IndependentLoss(0.11), GilbertElliottLoss(0.1, 0.1)),
        "jitter": (None, replace(jitter, ns=2001), replace(jitter, reorder=True, correlation_ns=None),
            replace(jitter, correlation_ns=30_000)),
    }  # fmt: skip
    for name, value in ((name, value) for name, others in values.items() for value in others):
        with pytest.raises(RunError, match="link x, a to b"):
            check_held("x", LinkSpec(held), LinkSpec(replace(held, **{name: value})), 1_000, 0.001)
    for other in ({"loss": IndependentLoss(0.5)}, {"rate_bps": 5000}):
        with pytest.raises(RunError, match="link x, b to a"):
            check_held("x", LinkSpec(held), LinkSpec(held, DirectionSpec(**other)))
    with pytest.raises(RunError, match="b to a"):
        check_held("x", LinkSpec(FREE, DirectionSpec(0, 10**6, 5)), LinkSpec(FREE, DirectionSpec(0, 10**6, 6)))


def test_a_partition_is_made_again_on_interfaces_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """`restart h1` during a partition failed: the new interface had no clsact that could be deleted."""
    held = FakeKernel()
    monkeypatch.setattr(netns, "run", held.run)
    h1, h2, h3 = (Interface(n, f"e{n}", f"02:00:00:00:00:0{n}") for n in (1, 2, 3))
    fabric = kernel.KernelFabric()
    fabric.partition([[h1], [h2, h3]])
    parted = {"e1": 2, "e2": 1, "e3": 1}
    assert held.filters == parted
    del held.filters["e1"]
    fabric.partition([[h1], [h2, h3]])
    assert held.filters == parted
    held.gone.add(2)
    fabric.partition([[h1], [h2, h3]])
    del held.filters["e1"]
    fabric.heal()
    assert held.filters == {"e2": 1}
