"""Text for links in a row: short, and equal where links are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from containernet_env.model.chance import IndependentLoss
from containernet_env.model.link import DirectionSpec, LinkSpec


def plain(value: Decimal | int) -> str:
    """Plain decimal text without trailing zeros: "3", "0.5", "1000"."""
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def each_or_one(values: Sequence[str]) -> str:
    """One value where all are equal, else all of them in order, separated by semicolons."""
    return values[0] if len(set(values)) == 1 else ";".join(values)


def _both_ways(link: LinkSpec, text: Callable[[DirectionSpec], str]) -> str:
    """One value where both directions agree, else that to the switch, a slash, and that from it."""
    to_switch, from_switch = text(link.a_to_b), text(link.b_to_a)
    return to_switch if to_switch == from_switch else f"{to_switch}/{from_switch}"


def delay_ms(link: LinkSpec) -> str:
    """One-way delays."""
    return _both_ways(link, lambda direction: plain(Decimal(direction.delay_ns) / 1_000_000))


def _rate(direction: DirectionSpec) -> str:
    return "unlimited" if direction.rate_bps is None else plain(Decimal(direction.rate_bps) / 1_000_000)


def _counted(direction: DirectionSpec) -> str:
    """How frames take their turn at the rate, where it is configured."""
    overhead = f" overhead {direction.overhead_bytes}" if direction.overhead_bytes else ""
    return overhead + (f" uplink {direction.uplink}" if direction.uplink is not None else "")


def bandwidth_mbps(link: LinkSpec) -> str:
    """Rates, with what a frame takes besides its bytes and where it waits; "unlimited" where there is no limit."""
    return _both_ways(link, lambda direction: _rate(direction) + _counted(direction))


def _jitter(direction: DirectionSpec) -> str:
    jitter = direction.jitter
    if jitter is None:
        return "0"
    value = f"{jitter.distribution} {plain(Decimal(jitter.ns) / 1_000_000)}"
    if jitter.correlation_ns is not None:
        value += f" correlation {plain(Decimal(jitter.correlation_ns) / 1_000_000)}"
    return f"{value} reordering" if jitter.reorder else value


def jitter_ms(link: LinkSpec) -> str:
    """Distribution and value of the jitter; "0" where there is none."""
    return _both_ways(link, _jitter)


def _loss(direction: DirectionSpec) -> str:
    loss = direction.loss
    if loss is None:
        return "0"
    ratio = plain(Decimal(f"{loss.mean_ratio:.6g}"))
    return ratio if isinstance(loss, IndependentLoss) else f"{ratio} in bursts"


def loss_ratio(link: LinkSpec) -> str:
    """Share of frames that are to be lost."""
    return _both_ways(link, _loss)


def impairments(link: LinkSpec) -> str:
    """All of a link in a few words, such as "3 ms 1000 Mbit/s" or "0 ms unlimited, loss 0.01"."""
    rate = _both_ways(link, _rate)
    words = f"{delay_ms(link)} ms {rate if rate == 'unlimited' else f'{rate} Mbit/s'}{_both_ways(link, _counted)}"
    for name, value in (("jitter", jitter_ms(link)), ("loss", loss_ratio(link))):
        words += f", {name} {value}" if value != "0" else ""
    return words
