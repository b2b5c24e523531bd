"""The shell's commands that change links while the network runs: words to calls, and what to say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from containernet_env.base.errors import UsageError

if TYPE_CHECKING:
    from containernet_env.containernet.testbed_network import LiveChanges
    from containernet_env.model.chance import Distribution

_ONE_WAY = "one-way"
_Of = TypeVar("_Of")


def timed(change: Callable[[_Of, list[str]], tuple[str, int]]) -> Callable[[_Of, list[str]], str]:
    """A change that says what holds now, and since when."""

    @wraps(change)
    def carry_out(of: _Of, words: list[str]) -> str:
        said, at_ns = change(of, words)
        return f"{said} (at {at_ns / 1e9:.6f} s of the monotonic clock)"

    return carry_out


@timed
def _link(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    """link NODE NODE up|down: plug the cable between two nodes in, or pull it: link etcd1 s1 down"""
    if len(words) != 3 or words[2] not in ("up", "down"):
        raise UsageError("usage: link NODE NODE up|down")
    one, two, status = words
    return f"link {one}-{two} is {status}", net.set_link_up(one, two, status == "up")


def _value(verb: str, form: str, words: list[str]) -> tuple[str, str, str, bool, str]:
    """The nodes, the value, whether one way, and how to say which directions."""
    one_way = words[-1:] == [_ONE_WAY]
    words = words[:-1] if one_way else words
    if len(words) != 3:
        raise UsageError(f"usage: {verb} NODE NODE {form} [{_ONE_WAY}]")
    one, two, value = words
    return one, two, value, one_way, f"from {one} to {two}" if one_way else f"between {one} and {two}, both ways"


@timed
def _delay(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    """delay NODE NODE TIME [one-way]: a link's delay, both ways or as the first sends: delay etcd1 s1 10ms"""
    one, two, value, one_way, where = _value("delay", "TIME", words)
    return f"delay {value} {where}", net.set_delay(one, two, value, one_way=one_way)


@timed
def _jitter(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    """jitter NODE NODE TIME|0 [uniform|normal] [one-way]: let a link's delay vary: jitter etcd1 s1 1ms
    uniform: by up to TIME either way; normal: with that standard deviation, cut at four of them. The delay must be
    as long as that reaches. With the link emulator frames keep their order, with netem they overtake each other."""
    one_way = words[-1:] == [_ONE_WAY]
    rest = words[:-1] if one_way else words
    distribution: Distribution = "normal" if rest[-1:] == ["normal"] else "uniform"
    if rest[-1:] == [distribution]:
        rest = rest[:-1]
    form = "TIME|0 [uniform|normal]"
    one, two, value, one_way, where = _value("jitter", form, [*rest, _ONE_WAY] if one_way else rest)
    asked = None if value == "0" else value
    kind = "" if asked is None else f" ({distribution})"
    at_ns = net.set_jitter(one, two, asked, distribution=distribution, one_way=one_way)
    return f"jitter {value}{kind} {where}", at_ns


@timed
def _rate(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    """rate NODE NODE MBIT|unlimited [one-way]: change a link's bandwidth, in Mbit/s: rate etcd1 s1 100"""
    one, two, value, one_way, where = _value("rate", "MBIT|unlimited", words)
    mbps = None if value == "unlimited" else _number(value, "a number of Mbit/s such as 100, or unlimited")
    unit = "" if mbps is None else " Mbit/s"
    return f"rate {value}{unit} {where}", net.set_rate(one, two, mbps, one_way=one_way)


@timed
def _loss(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    """loss NODE NODE PERCENT% [one-way]: let a link lose a share of its frames: loss etcd1 s1 1%"""
    one, two, value, one_way, where = _value("loss", "PERCENT%", words)
    allowed = "a percentage from 0% to 100%, such as 1%"
    percent = _number(value.removesuffix("%"), allowed) if value.endswith("%") else None
    if percent is None or not 0 <= percent <= 100:
        raise UsageError(f"got {value!r}; allowed: {allowed}")
    return f"loss {value} {where}", net.set_loss(one, two, float(percent / 100), one_way=one_way)


@timed
def _queue(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    """queue NODE NODE FRAMES|default [one-way]: how many frames wait for a link's rate at most: queue etcd1 s1 100"""
    one, two, value, one_way, where = _value("queue", "FRAMES|default", words)
    if value != "default" and not value.isdecimal():
        raise UsageError(f"got {value!r}; allowed: a number of frames such as 100, or default")
    frames = None if value == "default" else int(value)
    unit = "" if frames is None else " frames"
    at_ns = net.change_link(one, two, one_way=one_way, queue_frames=frames, queue_bytes=None)
    return f"queue {value}{unit} {where}", at_ns


def _number(text: str, allowed: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise UsageError(f"got {text!r}; allowed: {allowed}") from error
    if not number.is_finite():
        raise UsageError(f"got {text!r}; allowed: {allowed}")
    return number


@timed
def _partition(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    """partition HOST... | HOST...: keep sets of hosts apart until heal: partition etcd1 | etcd2 etcd3"""
    sets = [part.split() for part in " ".join(words).split("|")]
    if len(sets) < 2 or not all(sets):
        raise UsageError("usage: partition HOST... | HOST... [| HOST...]")
    at_ns = net.partition(sets)
    return f"parted: {' | '.join(' '.join(names) for names in sets)}", at_ns


@timed
def _heal(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    """heal: end the partition."""
    if words:
        raise UsageError("usage: heal")
    return "healed", net.heal()


CHANGES: Mapping[str, Callable[[LiveChanges, list[str]], str]] = {
    "link": _link,
    "delay": _delay,
    "jitter": _jitter,
    "rate": _rate,
    "loss": _loss,
    "queue": _queue,
    "partition": _partition,
    "heal": _heal,
}
