"""Flags that a topology may give a store: an allow-list for each kind, every value within bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from containernet_env.base.units import describe_size, format_duration, format_size, parse_duration, parse_size


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: what its values may be, for people, and how one is read.

    ``parse`` gives the value in a form that it reads again, equal for values that mean the same; it raises
    ``ValueError`` with what is wrong ("is out of range"). ``argument`` makes of that what the program takes.
    """

    allowed: str
    parse: Callable[[object], int | str]
    argument: Callable[[int | str], str] = str


def whole(low: int, high: int) -> Flag:
    """A whole number."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("is not a whole number")
        return _within(value, low, high)

    return Flag(f"a whole number from {low} to {high}", parse)


def size(low: int, high: int) -> Flag:
    """An amount of memory such as ``"4g"``; the program takes a number of bytes."""

    def parse(value: object) -> str:
        try:
            found = parse_size(value)
        except ValueError as error:
            raise ValueError("is not an amount of bytes") from error
        return format_size(_within(found, low, high))

    form = f'a number with b, k, m or g such as "4g", from {describe_size(low)} to {describe_size(high)}'
    return Flag(form, parse, lambda value: str(parse_size(value)))


def milliseconds(low_ms: int, high_ms: int) -> Flag:
    """A duration in whole milliseconds, such as ``"100ms"``; as text with its unit."""

    def parse(value: object) -> str:
        try:
            found_ns = parse_duration(value)
        except ValueError as error:
            raise ValueError("is not a duration") from error
        if found_ns % 10**6:
            raise ValueError("is not a whole number of milliseconds")
        return f"{_within(found_ns // 10**6, low_ms, high_ms)}ms"

    low, high = (format_duration(bound_ms * 10**6) for bound_ms in (low_ms, high_ms))
    return Flag(f'whole milliseconds such as "100ms", from {low} to {high}', parse)


def one_of(*choices: str) -> Flag:
    """A text that is one of a few."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError("is not one of the choices")
        return value

    return Flag(" or ".join(f'"{text}"' for text in choices), parse)


def _within(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError("is out of range")
    return value
