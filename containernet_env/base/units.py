"""Durations, sizes, cpus and bandwidths as people write them in configs: exact parsing and short formatting.

Every parser raises ``ValueError`` whose message says what is allowed; the caller checks ranges that
depend on what a value is used for. Arithmetic is decimal, so that ``"0.1ms"`` is exactly 100000 ns.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

DURATION_FORM = 'a number of s, ms, us or ns with its unit, such as "3ms", "500us" or "1.5ms"'
SIZE_FORM = 'a number with one of the units b, k, m or g (powers of 1024), such as "512m" or "1g"'
CPUS_FORM = 'a number of cpus, such as 1, 0.5 or "2"'
BANDWIDTH_FORM = "a number of Mbit/s, such as 1000 or 0.5"

_DURATION_UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_SIZE_UNITS_BYTES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE_NAMES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

# Digits are bounded: a longer number would exceed the 28 digits of decimal arithmetic.
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,12})?"
_DURATION = re.compile(rf"({_NUMBER})(s|ms|us|ns)", re.ASCII)
_SIZE = re.compile(rf"({_NUMBER})([bkmg])", re.ASCII | re.IGNORECASE)
_CPUS = re.compile(_NUMBER, re.ASCII)

# Beyond any meaningful value, and small enough that converting to an integer stays cheap.
_NUMBER_MAX = Decimal(10) ** 15
_BPS_PER_MBPS = 10**6


def parse_duration(text: object) -> int:
    """Nanoseconds (0 or more) of a duration such as ``"3ms"``; exact, never rounded."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(DURATION_FORM)
    return _whole(Decimal(match[1]) * _DURATION_UNITS_NS[match[2]], "a whole number of nanoseconds")


def about_duration(seconds: float) -> str:
    """An estimated duration for people: "85 s", "9 min"."""
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


def format_duration(duration_ns: int) -> str:
    """The shortest exact text of a duration in nanoseconds (0 or more); ``parse_duration`` reads it back."""
    if duration_ns == 0:
        return "0ms"
    for unit, unit_ns in _DURATION_UNITS_NS.items():
        # Up to three decimals read well ("1.5ms"); finer values go to the next smaller unit.
        if duration_ns >= unit_ns and duration_ns * 1000 % unit_ns == 0:
            return f"{_plain(Decimal(duration_ns) / unit_ns)}{unit}"
    return f"{duration_ns}ns"


def format_ms(duration_ns: int) -> str:
    """Milliseconds with three decimals, for aligned columns."""
    return f"{Decimal(duration_ns) / 10**6:.3f}"


def parse_size(text: object) -> int:
    """Bytes (0 or more) of a size in Docker's form such as ``"512m"``; units are powers of 1024."""
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(SIZE_FORM)
    return _whole(Decimal(match[1]) * _SIZE_UNITS_BYTES[match[2].lower()], "a whole number of bytes")


def format_size(size_bytes: int) -> str:
    """The shortest exact text of a size in bytes (0 or more) that ``parse_size`` reads back."""
    for unit, unit_bytes in reversed(_SIZE_UNITS_BYTES.items()):
        if size_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes}{unit}"
    return f"{size_bytes}b"


def describe_size(size_bytes: int) -> str:
    """A size for people, such as ``512 MiB``; at most two decimals."""
    for unit_bytes, name in _SIZE_NAMES:
        if size_bytes >= unit_bytes:
            return f"{_plain(round(Decimal(size_bytes) / unit_bytes, 2))} {name}"
    return f"{size_bytes} B"


def parse_cpus(value: object) -> Decimal:
    """A number of cpus (0 or more, may be fractional) from a number or the text of one."""
    if isinstance(value, str):
        if _CPUS.fullmatch(value) is None:
            raise ValueError(CPUS_FORM)
        return Decimal(value)
    return parse_number(value, CPUS_FORM)


def parse_bandwidth(value: object) -> int:
    """Bits per second (0 or more) of a number of Mbit/s; 1 Mbit/s is 10^6 bit/s."""
    return _whole(parse_number(value, BANDWIDTH_FORM) * _BPS_PER_MBPS, "at most 6 decimals of Mbit/s (whole bit/s)")


def format_mbps(rate_bps: int) -> str:
    """Mbit/s without needless zeros, such as ``1000`` or ``0.5``; exact."""
    return _plain(Decimal(rate_bps) / _BPS_PER_MBPS)


def format_number(value: Decimal | float) -> str:
    """A number without exponent or needless zeros."""
    return _plain(Decimal(str(value)))


def parse_number(value: object, form: str = "a number") -> Decimal:
    """A finite number (0 or more) of a document; ``form`` is what the ``ValueError`` says is allowed."""
    # bool is an int to Python; in a config it is a mistake.
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError(form)
    try:
        # Through text, so that the float 0.1 is one tenth, as it was written.
        number = Decimal(str(value))
    except (InvalidOperation, ValueError) as error:  # ValueError: an integer of more than 4300 digits
        raise ValueError(form) from error
    if not number.is_finite() or number < 0 or number > _NUMBER_MAX:
        raise ValueError(form)
    return number


def _whole(number: Decimal, allowed: str) -> int:
    if number != number.to_integral_value():
        raise ValueError(allowed)
    return int(number)


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
