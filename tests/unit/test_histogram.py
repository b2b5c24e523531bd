"""Histograms of the load generator: what they decode to, and what is none."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from containernet_env.analysis.histogram import decode
from tests.unit.answers import results

RECORDED = [
    (load["response_time"], asked)
    for asked, load in results().items()
    if "histogram" in (load.get("response_time") or {})
]


def encoded(content: bytes, cookie: int = 0x1C849303) -> str:
    body = struct.pack(">iiiiqqd", cookie | 0x10, len(content), 0, 3, 1, 3_600_000_000_000, 1.0) + content
    packed = zlib.compress(body)
    return base64.b64encode(struct.pack(">ii", 0x1C849304 | 0x10, len(packed)) + packed).decode()


def test_histograms_of_the_documentation_say_what_their_results_say() -> None:
    assert RECORDED, "no example of docs/http-api.md has a histogram"
    for times, asked in RECORDED:
        found = decode(times["histogram"])
        assert found.total == times["count"], asked
        largest = found.counts[-1][0]
        assert times["max_s"] * 1e9 <= largest <= times["max_s"] * 1e9 * 1.001 + 1, asked
        for percent, told_s in times["percentiles_s"].items():
            (value,) = found.percentiles_ns([float(percent)])
            if value is not None and told_s is not None:
                assert told_s * 1e9 * 0.999 <= value <= told_s * 1e9 * 1.002, (asked, percent)


def test_counts_are_in_their_slots() -> None:
    """1 in slot 0, 300 in slot 2; a run of zeros is a negative number (zigzag: -1 is 1, 1 is 2, 300 is 600)."""
    found = decode(encoded(bytes([2, 1, 0xD8, 0x04])))
    assert found.counts == ((0, 1), (2, 300)) and found.total == 301
    assert found.percentiles_ns([0.1, 1, 99]) == [0, 2, 2]


def test_a_percentage_that_only_the_largest_value_reaches_is_not_told() -> None:
    found = decode(encoded(bytes([2] * 100)))
    assert found.percentiles_ns([50, 99, 99.9]) == [49, 98, None]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HISTF",
        "!!!!",
        base64.b64encode(b"\x1c\x84\x93\x14").decode(),
        base64.b64encode(struct.pack(">ii", 0x1C849314, 3) + b"abc").decode(),
        encoded(bytes([2])).replace("H", "J", 1),
        encoded(bytes([2]), cookie=0x1C849301),
        encoded(bytes([0x82])),
        encoded(b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        base64.b64encode(struct.pack(">ii", 0x1C849314, 40) + zlib.compress(bytes(1 << 25))[:40]).decode(),
        encoded(b""),
        encoded(bytes([0])),
        encoded(bytes([0xBF, 0xA9, 0x07, 2])),  # after 60,000 empty slots: above 2^63 ns
        encoded(bytes([0xFF, 0x88, 0x7A, 2])),  # after a million: no number holds it
    ],
)
def test_other_texts_are_no_histograms(text: str) -> None:
    with pytest.raises(ValueError, match=r"histogram|cut short|slots"):
        decode(text)


def test_no_more_is_read_than_any_histogram_has() -> None:
    """What 16 kB inflate to was made a list of 16 million numbers first."""
    with pytest.raises(ValueError, match="more slots than any"):
        decode(encoded(bytes((1 << 20) + 2) + b"\x82"))
