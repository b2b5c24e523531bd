"""The shell's commands that change links while the network runs: words to calls, and what to say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from containernet_env.base.errors import UsageError

if TYPE_CHECKING:
    from containernet_env.containernet.testbed_network import LiveChanges
    from containernet_env.model.chance import Distribution

_ONE_WAY = "one-way"


def _link(net: LiveChanges, words: list[str]) -> tuple[str, int]:
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


def _delay(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    one, two, value, one_way, where = _value("delay", "TIME", words)
    return f"delay {value} {where}", net.set_delay(one, two, value, one_way=one_way)


def _jitter(net: LiveChanges, words: list[str]) -> tuple[str, int]:
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


def _rate(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    one, two, value, one_way, where = _value("rate", "MBIT|unlimited", words)
    mbps = None if value == "unlimited" else _number(value, "a number of Mbit/s such as 100, or unlimited")
    unit = "" if mbps is None else " Mbit/s"
    return f"rate {value}{unit} {where}", net.set_rate(one, two, mbps, one_way=one_way)


def _loss(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    one, two, value, one_way, where = _value("loss", "PERCENT%", words)
    allowed = "a percentage from 0% to 100%, such as 1%"
    percent = _number(value.removesuffix("%"), allowed) if value.endswith("%") else None
    if percent is None or not 0 <= percent <= 100:
        raise UsageError(f"got {value!r}; allowed: {allowed}")
    return f"loss {value} {where}", net.set_loss(one, two, float(percent / 100), one_way=one_way)


def _number(text: str, allowed: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise UsageError(f"got {text!r}; allowed: {allowed}") from error
    if not number.is_finite():
        raise UsageError(f"got {text!r}; allowed: {allowed}")
    return number


def _partition(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    sets = [part.split() for part in " ".join(words).split("|")]
    if len(sets) < 2 or not all(sets):
        raise UsageError("usage: partition HOST... | HOST... [| HOST...]")
    at_ns = net.partition(sets)
    return f"parted: {' | '.join(' '.join(names) for names in sets)}", at_ns


def _heal(net: LiveChanges, words: list[str]) -> tuple[str, int]:
    if words:
        raise UsageError("usage: heal")
    return "healed", net.heal()


CHANGES: Mapping[str, Callable[[LiveChanges, list[str]], tuple[str, int]]] = {
    "link": _link,
    "delay": _delay,
    "jitter": _jitter,
    "rate": _rate,
    "loss": _loss,
    "partition": _partition,
    "heal": _heal,
}


def change(net: LiveChanges, verb: str, line: str) -> str:
    """Carry out one of ``CHANGES``; a line that says what holds now and since when.

    Raises ``UsageError`` for words that make no sense, and what the change raises.
    """
    said, at_ns = CHANGES[verb](net, line.split())
    return f"{said} (at {at_ns / 1e9:.6f} s of the monotonic clock)"
