"""HTB and netem: the commands for a spec, and the spec in what tc prints.

The HTB output here was recorded with iproute2 6.1 on Linux 6.18, that of netem in tests/recorded on Linux 6.1.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from containernet_env.base.errors import RunError, UsageError
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.network.kernel import tc
from containernet_env.network.link import check_held
from tests.recorded import specs

HTB_QDISC = (
    '[{"kind":"htb","handle":"1:","root":true,"refcnt":3,"options":{"r2q":10,"default":"0x1",'
    '"direct_packets_stat":0,"direct_qlen":4000}},'
    '{"kind":"pfifo","handle":"10:","parent":"1:1","options":{"limit":2000}}]'
)
HTB_CLASS = "class htb 1:1 root leaf 10: prio 0 rate 2500Mbit ceil 2500Mbit burst 78116b cburst 78116b \n"
NOQUEUE = '[{"kind":"noqueue","handle":"0:","root":true,"refcnt":2,"options":{}}]'
NETEM_ALONE = (
    '[{"kind":"netem","handle":"10:","root":true,"refcnt":2,"options":{"limit":1000000,'
    '"delay":{"delay":0.003,"jitter":0,"correlation":0},"ecn":false,"gap":0}}]'
)
HTB_AND_NETEM = (
    '[{"kind":"htb","handle":"1:","root":true,"refcnt":2,"options":{"r2q":10,"default":"0x1",'
    '"direct_packets_stat":0,"direct_qlen":1000}},'
    '{"kind":"netem","handle":"10:","parent":"1:1","options":{"limit":1000000,'
    '"delay":{"delay":0.1,"jitter":0,"correlation":0},"ecn":false,"gap":0}},'
    '{"kind":"pfifo","handle":"21:","parent":"10:1","options":{"limit":200}}]'
)


def parse(qdiscs: str, classes: str = "") -> DirectionSpec:
    return tc.direction_from_tc(json.loads(qdiscs), classes)


def test_nothing_asked_is_nothing_done() -> None:
    assert tc.tc_commands("x0", DirectionSpec()) == []
    assert parse(NOQUEUE) == DirectionSpec()


def test_bandwidth_alone() -> None:
    commands = tc.tc_commands("x0", DirectionSpec(rate_bps=2_500_000_000))
    assert [" ".join(command) for command in commands] == [
        "qdisc add dev x0 root handle 1: htb default 1",
        "class add dev x0 parent 1: classid 1:1 htb rate 2500000000bit ceil 2500000000bit"
        " burst 78125 cburst 78125 quantum 60000",
        "qdisc add dev x0 parent 1:1 handle 20: pfifo limit 2000",
    ]
    assert parse(HTB_QDISC, HTB_CLASS) == DirectionSpec(0, 2_500_000_000, 2000)


def test_delay_alone() -> None:
    (command,) = tc.tc_commands("x0", DirectionSpec(delay_ns=3_000_000))
    assert " ".join(command) == "qdisc add dev x0 root handle 10: netem limit 1000000 delay 3000.000us"
    assert parse(NETEM_ALONE) == DirectionSpec(3_000_000)


def test_delay_and_bandwidth() -> None:
    asked = DirectionSpec(delay_ns=100_000_000, rate_bps=1_000_000)
    commands = [" ".join(command) for command in tc.tc_commands("x0", asked)]
    assert commands[-2:] == [
        "qdisc add dev x0 parent 1:1 handle 10: netem limit 1000000 delay 100000.000us",
        "qdisc add dev x0 parent 10:1 handle 21: pfifo limit 200",
    ]
    text = "class htb 1:1 root leaf 10: prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b \n"
    assert parse(HTB_AND_NETEM, text) == replace(asked, queue_frames=200)


def test_a_queue_is_as_deep_with_a_delay_as_without() -> None:
    """netem once held both waits: 1454 ms of queue, where the emulator had 242."""
    for asked in (DirectionSpec(0, 10**8), DirectionSpec(0, 10**8, 77), DirectionSpec(0, 10**8, None, 30_000)):
        alone, delayed = (tc.tc_commands("x0", replace(asked, delay_ns=ns))[-1] for ns in (0, 50_000_000))
        assert alone[-3:] == delayed[-3:]
        assert delayed[delayed.index("parent") + 1] == "10:1"
    assert alone[-3:] == ["bfifo", "limit", "30000"]


def test_a_frame_has_the_overhead_that_was_asked() -> None:
    asked = DirectionSpec(0, 10**9, overhead_bytes=24)
    assert tc.tc_commands("x0", asked)[1][-2:] == ["overhead", "24"]
    shown = HTB_CLASS.replace("2500Mbit ceil 2500Mbit", "1Gbit overhead 24 ceil 1Gbit")
    assert parse(HTB_QDISC, shown) == replace(asked, queue_frames=2000)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("6400bit", 6400), ("123456Kbit", 123_456_000), ("1Gbit", 10**9), ("100Mbit", 10**8), ("40Gbit", 4 * 10**10)],
)
def test_rates_as_tc_prints_them(text: str, rate_bps: int) -> None:
    classes = f"class htb 1:1 root leaf 10: prio 0 rate {text} ceil {text} burst 1600b cburst 1600b \n"
    assert parse(HTB_QDISC, classes).rate_bps == rate_bps


@pytest.mark.parametrize(
    ("qdiscs", "classes", "words"),
    [
        (HTB_QDISC, "", "not as it was made"),
        (HTB_QDISC, HTB_CLASS.replace("ceil 2500", "ceil 9000"), "not as it was made"),
        (HTB_QDISC, HTB_CLASS.replace("1:1", "1:2"), "not as it was made"),
        ('[{"kind":"tbf","handle":"1:","root":true,"options":{}}]', "", "in the way: tbf"),
        (NETEM_ALONE.replace('"jitter":0,', '"jitter":0.001,'), "", "more than was asked"),
        (NETEM_ALONE.replace('"ecn"', '"duplicate":{"duplicate":0.01,"correlation":0},"ecn"'), "", "more than was"),
    ],
)
def test_what_nobody_asked_for_is_an_error(qdiscs: str, classes: str, words: str) -> None:
    with pytest.raises(RunError, match=words):
        parse(qdiscs, classes)


@pytest.mark.parametrize("name", specs.SPECS)
def test_what_a_kernel_with_netem_holds_is_what_was_asked(name: str) -> None:
    asked, recorded = specs.SPECS[name], json.loads(specs.FILE.read_text())[name]
    assert [" ".join(words) for words in tc.tc_commands("rec0", asked)] == recorded["commands"]
    held = tc.direction_from_tc(recorded["qdiscs"], recorded["classes"], asked)
    tolerance_ns = tc.delay_tolerance_ns(asked.delay_ns)
    nothing = DirectionSpec()
    check_held(name, LinkSpec(asked, nothing), LinkSpec(held, nothing), tolerance_ns, tc.RATE_TOLERANCE_RATIO)
    for changed in (
        replace(asked, delay_ns=asked.delay_ns + 10_000 + asked.delay_ns // 1000),
        replace(asked, rate_bps=77_000),
    ):
        with pytest.raises(RunError):
            check_held(name, LinkSpec(changed, nothing), LinkSpec(held, nothing), tolerance_ns, tc.RATE_TOLERANCE_RATIO)


def test_a_netem_of_somebody_elses_is_an_error() -> None:
    with pytest.raises(RunError, match="a limit of 1000 frames"):
        parse(NETEM_ALONE.replace("1000000", "1000"))


def test_a_queue_limit_without_a_bandwidth_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing ever waits"):
        tc.tc_commands("x0", DirectionSpec(queue_frames=5))


@pytest.mark.parametrize("rate_bps", [10**5, 10**6, 10**9, 4 * 10**10])
def test_a_burst_holds_a_frame_and_no_more_than_a_quarter_of_a_millisecond(rate_bps: int) -> None:
    burst: Any = tc.burst_bytes(rate_bps)
    assert burst >= 1514
    assert burst == 1600 or burst * 8 <= rate_bps * 0.00025 + 8


def test_a_link_that_is_not_held_as_asked_is_named() -> None:
    asked = LinkSpec.symmetric(3_000_000, 10**9)
    check_held("d1-s1", asked, LinkSpec.symmetric(3_000_500, 999_500_000, 77), 1_000, 0.001)
    for held in (
        LinkSpec.symmetric(0, 10**9),
        LinkSpec.symmetric(3_000_000, None),
        LinkSpec.symmetric(3_000_000, 9 * 10**8),
    ):
        with pytest.raises(RunError, match="link d1-s1, a to b"):
            check_held("d1-s1", asked, held, 1_000, 0.001)
    with pytest.raises(RunError, match="b to a"):
        check_held(
            "d1-s1", LinkSpec(asked.a_to_b, DirectionSpec(queue_frames=5)), LinkSpec(asked.a_to_b, DirectionSpec())
        )
