"""Suggestions for keys and values that are refused: usual spellings that a file does not accept."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import wraps
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from containernet_env.base.units import format_number
from containernet_env.model.names import find, nearest, plain

# Other words for keys: those of Containernet and Mininet (addDocker, TCLink), of Docker, tc and etcd's tools.
_OTHER_WORDS = {
    "address": "ip",
    "addr": "ip",
    "rate": "bandwidth",
    "cpuquota": "cpus",
    "cores": "cpus",
    "latency": "delay",
    "memlimit": "mem",
    "ram": "mem",
    "maxqueuesize": "queue",
    "limit": "queue",
    "hosts": "nodes",
    "network": "subnet",
    "ssl": "tls",
    "https": "tls",
    "secure": "tls",
}

_NUMBER = re.compile(r"([0-9]+(?:[.,][0-9]+)?|[.][0-9]+)[ \t_]*([^0-9., \t_].*)?")
_DURATION_UNITS = {
    "ns": ("n", "nsec", "nanosecond"),
    "us": ("µs", "μs", "u", "usec", "microsecond"),
    "ms": ("msec", "milli", "millisecond"),
    "s": ("sec", "second"),
}
_LONGER_S = {"m": 60, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600}
_SIZE = re.compile(r"([kmgt]?)(?:i?b?|bytes?)", re.IGNORECASE)
_RATE = re.compile(r"([kmg]?)(?:bits?|b)?(?:ps|/s|/sec)?", re.IGNORECASE)
_RATE_FACTORS = {"": Decimal("1e-6"), "k": Decimal("1e-3"), "m": Decimal(1), "g": Decimal(1000)}
_UNLIMITED_WORDS = frozenset({"unlimited", "none", "inf", "infinite", "infinity", "max", "no", "off", "-1"})


def suggestion(word: str, known: Sequence[str]) -> str:
    """The end of an error about an unknown ``word``: "; did you mean ...?", or nothing."""
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else ""


def near_file(path: Path, names: Iterable[str] = (), suffix: str = ".json") -> str | None:
    """Suggestions for a missing file: one of ``names``, or a file beside it whose name ends in ``suffix``."""
    meant = {name.lower(): name for name in names}
    with contextlib.suppress(OSError, ValueError):  # a folder that cannot be read; a null character
        meant |= {other.stem.lower(): str(other) for other in path.parent.glob(f"*{suffix}")}
    near = difflib.get_close_matches(path.stem.lower(), meant, n=1)
    return meant[near[0]] if near else None


def closest_key(word: str, known: Sequence[str]) -> str | None:
    """The one of ``known`` that is spelt most like ``word``, or that people know by it."""
    near = find(_OTHER_WORDS.get(plain(word), word), known) or nearest(word, known)
    return None if near is None else f'"{near}"'


def choices(value: object, known: Sequence[str]) -> Iterator[str]:
    """Suggestions of choices for another text: the nearest one, or one that it begins (``l`` for linearizable)."""
    if isinstance(value, str):
        near = nearest(value, known)
        yield from [near] if near else [choice for choice in known if value.lower().startswith(choice)]


def addresses(value: object) -> Iterator[str]:
    """The address in one with a prefix length."""
    if isinstance(value, str):
        yield value.strip().partition("/")[0]


def networks(value: object) -> Iterator[str]:
    """The network that an address with a prefix length is in."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            yield str(IPv4Network(value.strip(), strict=False))


def names(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip().lower().replace("_", "-").replace(" ", "-")


def measured(suggest: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Suggestions of a function of a number and its unit, for a value that begins with one; none for others."""

    @wraps(suggest)
    def near(value: object, **more: Any) -> Iterator[Any]:
        number, unit = _split(value)
        if number is not None:
            yield from suggest(number, unit, **more)

    return near


@measured
def durations(number: Decimal, given: str, unit: str = "ms") -> Iterator[str]:
    """Suggestions for a value that is no duration such as ``"3ms"``; a number alone has that unit."""
    given = given.lower()
    for ours, others in _DURATION_UNITS.items():
        if (given or unit) == ours or given in others or given.removesuffix("s") in others:
            yield f"{format_number(number)}{ours}"
    # "ms" is no plural of minutes.
    if given not in _DURATION_UNITS and (unit_s := _LONGER_S.get(given.removesuffix("s"))) is not None:
        yield f"{format_number(number * unit_s)}s"


@measured
def sizes(number: Decimal, unit: str) -> Iterator[str]:
    """Suggestions for a value that is no size such as ``"512m"``."""
    match = _SIZE.fullmatch(unit)
    if not unit:
        yield from (f"{format_number(number)}m", f"{format_number(number)}b")
    elif match is not None and match[1].lower() == "t":
        yield f"{format_number(number * 1024)}g"
    elif match is not None:
        yield f"{format_number(number)}{match[1].lower() or 'b'}"


@measured
def rates(number: Decimal, unit: str) -> Iterator[Decimal]:
    if not unit:
        yield number
    elif unit.endswith(("B/s", "Bps", "Byte/s", "bytes/s")):
        yield number * _RATE_FACTORS[unit[0].lower() if unit[0] in "kKmMgG" else ""] * 8
    elif (match := _RATE.fullmatch(unit)) is not None:
        yield number * _RATE_FACTORS[match[1].lower()]


@measured
def cpus(number: Decimal, unit: str) -> Iterator[Decimal]:
    if unit.lower() in ("", "cpu", "cpus", "core", "cores"):
        yield number
    elif unit in ("%", "m"):  # thousandths are Kubernetes'
        yield number / (100 if unit == "%" else 1000)


@measured
def numbers(number: Decimal, unit: str) -> Iterator[Decimal | int]:
    """Suggestions of numbers for a text, including a percentage, or for a number like ``1e3``."""
    factors = {"": Decimal(1), "k": Decimal(1000), "m": Decimal(10**6), "%": Decimal("0.01")}
    if (factor := factors.get(unit.lower())) is not None:
        number *= factor
        yield int(number) if number == number.to_integral_value() else number


def has_unit(value: object) -> bool:
    return bool(_split(value)[1])


def unlimited(value: object) -> Iterator[str]:
    """``unlimited``, for its usual synonyms."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _UNLIMITED_WORDS):
        yield "unlimited"


def advice(value: object, candidates: Iterable[object], accepts: Callable[[object], object]) -> str:
    """The suggestion at the end of a message; empty if none of the candidates is accepted."""
    for candidate in candidates:
        if candidate == value:
            continue
        try:
            accepts(candidate)
        except ValueError:
            continue
        return ": write " + (f'"{candidate}"' if isinstance(candidate, str) else format_number(Decimal(str(candidate))))
    return ""


def _split(value: object) -> tuple[Decimal | None, str]:
    """The number that a value begins with and its unit; no number where it begins with none."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None, ""
    match = _NUMBER.fullmatch(str(value).strip())
    # Longer numbers are no mistake in a unit, and leave the digits of decimal arithmetic.
    if match is None or len(match[1]) > 15:
        return None, ""
    return Decimal(match[1].replace(",", ".")), (match[2] or "").strip()
