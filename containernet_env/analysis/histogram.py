"""Percentiles from the histograms that the load generator leaves: HdrHistogram, compressed V2 encoding, base64.

The encoding is described in HdrHistogram's own sources (V2: cookie 0x1c849303, counts as zigzag LEB128 with runs of
zeros as negative numbers; 0x1c849304 is the same, deflated).
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_COMPRESSED, _PLAIN, _COOKIE_MASK = 0x1C849304, 0x1C849303, ~0xF0
_HEADER = struct.Struct(">iiiiqqd")
_MOST_BYTES = 1 << 24
"""A histogram of 3 digits has some 10,000 counters; one that inflates to more than this is none."""
_MOST_SLOTS = 1 << 20
_MOST_NS = 1 << 63


@dataclass(frozen=True, slots=True)
class Histogram:
    """``counts``: (largest value of a slot in ns, how many) in order of the values, no slot is empty."""

    counts: tuple[tuple[int, int], ...]

    @property
    def total(self) -> int:
        """How many values it holds."""
        return sum(count for _, count in self.counts)

    def percentiles_ns(self, percents: Sequence[float]) -> list[int | None]:
        """The value at each percentage, by nearest rank, for percentages in rising order.

        ``None`` where there are too few values to tell it from the largest one.
        """
        total, found = self.total, []
        slots = iter(self.counts)
        value, reached = 0, 0
        for percent in percents:
            rank = max(1, -(-round(percent * 1e6) * total // 10**8))
            while reached < rank:
                value, count = next(slots)
                reached += count
            found.append(value if rank < total else None)
        return found


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """All values of several histograms in one."""
    counts: Counter[int] = Counter()
    for histogram in histograms:
        for value, count in histogram.counts:
            counts[value] += count
    return Histogram(tuple(sorted(counts.items())))


def decode(text: str) -> Histogram:
    """The histogram that a text holds. Raises ``ValueError`` for any other text."""
    try:
        packed = base64.b64decode(text, validate=True)
        cookie, size = struct.unpack_from(">ii", packed)
        if cookie & _COOKIE_MASK != _COMPRESSED & _COOKIE_MASK or size != len(packed) - 8:
            raise ValueError("it is no compressed histogram of version 2")
        inflate = zlib.decompressobj()
        content = inflate.decompress(packed[8:], _MOST_BYTES)
        if not inflate.eof:
            raise ValueError("it is cut short, or too large")
        cookie, length, offset, digits, lowest, _, _ = _HEADER.unpack_from(content)
    except (binascii.Error, struct.error, zlib.error) as error:
        raise ValueError(f"it is no histogram: {error}") from error
    known = cookie & _COOKIE_MASK == _PLAIN & _COOKIE_MASK
    if not known or offset or not 0 <= digits <= 5 or lowest < 1 or length != len(content) - _HEADER.size:
        raise ValueError("it is no histogram of version 2")
    if not (counts := tuple(_counts(content[_HEADER.size :], digits, lowest))):
        raise ValueError("it is a histogram of no values")
    return Histogram(counts)


def _counts(content: bytes, digits: int, lowest: int) -> list[tuple[int, int]]:
    """The slots that are not empty. Half of the sub-buckets of each bucket but the first are in the one before it."""
    sub_buckets = 1 << (2 * 10**digits - 1).bit_length()
    half_magnitude, unit = sub_buckets.bit_length() - 2, lowest.bit_length() - 1
    slot, found = 0, []
    for number in _numbers(content):
        if number < 0:
            slot -= number
        else:
            if number:
                bucket, sub_bucket = (slot >> half_magnitude) - 1, slot & ((1 << half_magnitude) - 1)
                sub_bucket += 1 << half_magnitude
                if bucket < 0:
                    bucket, sub_bucket = 0, sub_bucket - (1 << half_magnitude)
                # What has more bits is not even made: it could take any amount of memory.
                if bucket + unit > 63 or (beyond := (sub_bucket + 1) << (bucket + unit)) > _MOST_NS:
                    raise ValueError("it has slots for values above 2^63")
                found.append((beyond - 1, number))
            slot += 1
        if slot > _MOST_SLOTS:
            raise ValueError("it has more slots than any histogram")
    return found


def _numbers(content: bytes) -> Iterator[int]:
    """Zigzag LEB128 of 64 bits: seven bits a byte, and eight in the ninth."""
    number, shift = 0, 0
    for byte in content:
        if shift == 56:
            number, more = number | byte << shift, False
        else:
            number, more = number | (byte & 0x7F) << shift, bool(byte & 0x80)
        if more:
            shift += 7
            continue
        yield (number >> 1) ^ -(number & 1)
        number, shift = 0, 0
    if shift:
        raise ValueError("its last number is cut short")
