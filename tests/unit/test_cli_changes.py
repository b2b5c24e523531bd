"""The shell's commands that change links: what they call, what they say, what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.containernet.changes import change


class Net:
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def called(*args: Any, **options: Any) -> int:
            self.asked.append((name, *args, *options.items()))
            return 12_345_678_901

        return called


@pytest.mark.parametrize(
    ("line", "call", "said"),
    [
        ("link etcd1 s1 down", ("set_link_up", "etcd1", "s1", False), "link etcd1-s1 is down"),
        ("link etcd1 s1 up", ("set_link_up", "etcd1", "s1", True), "link etcd1-s1 is up"),
        (
            "delay etcd1 s1 10ms",
            ("set_delay", "etcd1", "s1", "10ms", ("one_way", False)),
            "delay 10ms between etcd1 and s1, both ways",
        ),
        (
            "delay  s1 etcd1 10ms one-way",
            ("set_delay", "s1", "etcd1", "10ms", ("one_way", True)),
            "delay 10ms from s1 to etcd1",
        ),
        (
            "rate etcd1 s1 100",
            ("set_rate", "etcd1", "s1", 100, ("one_way", False)),
            "rate 100 Mbit/s between etcd1 and s1, both ways",
        ),
        (
            "rate etcd1 s1 unlimited",
            ("set_rate", "etcd1", "s1", None, ("one_way", False)),
            "rate unlimited between etcd1 and s1, both ways",
        ),
        (
            "loss etcd1 s1 1.5%",
            ("set_loss", "etcd1", "s1", 0.015, ("one_way", False)),
            "loss 1.5% between etcd1 and s1, both ways",
        ),
        (
            "jitter etcd1 s1 1ms",
            ("set_jitter", "etcd1", "s1", "1ms", ("distribution", "uniform"), ("one_way", False)),
            "jitter 1ms (uniform) between etcd1 and s1, both ways",
        ),
        (
            "jitter s1 etcd1 500us normal one-way",
            ("set_jitter", "s1", "etcd1", "500us", ("distribution", "normal"), ("one_way", True)),
            "jitter 500us (normal) from s1 to etcd1",
        ),
        (
            "jitter etcd1 s1 0",
            ("set_jitter", "etcd1", "s1", None, ("distribution", "uniform"), ("one_way", False)),
            "jitter 0 between etcd1 and s1, both ways",
        ),
        (
            "partition etcd1 | etcd2 etcd3",
            ("partition", [["etcd1"], ["etcd2", "etcd3"]]),
            "parted: etcd1 | etcd2 etcd3",
        ),
        ("partition a|b|c", ("partition", [["a"], ["b"], ["c"]]), "parted: a | b | c"),
        ("heal", ("heal",), "healed"),
    ],
)
def test_what_a_line_does(line: str, call: tuple[Any, ...], said: str) -> None:
    net: Any = Net()
    verb, _, rest = line.partition(" ")
    assert change(net, verb, rest) == f"{said} (at 12.345679 s of the monotonic clock)"
    assert net.asked == [call]


@pytest.mark.parametrize(
    "line",
    [
        "link etcd1 s1",
        "link etcd1 s1 sideways",
        "delay etcd1 10ms",
        "delay etcd1 s1 10 ms",
        "jitter etcd1 1ms",
        "jitter etcd1 s1 1ms pareto",
        "jitter etcd1 s1 normal",
        "rate etcd1 s1 fast",
        "rate etcd1 s1 nan",
        "loss etcd1 s1 1",
        "loss etcd1 s1 101%",
        "loss etcd1 s1 -1%",
        "loss etcd1 s1 %",
        "partition etcd1 etcd2",
        "partition etcd1 |",
        "heal now",
    ],
)
def test_lines_that_make_no_sense_are_refused_and_do_nothing(line: str) -> None:
    net: Any = Net()
    verb, _, rest = line.partition(" ")
    with pytest.raises(UsageError, match=r"usage|allowed"):
        change(net, verb, rest)
    assert net.asked == []
