"""Durations, sizes, CPUs and bandwidths: what is exact, what is refused, and that texts survive."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containernet_env.base import units

MIB, GIB = 1 << 20, 1 << 30
DURATIONS = {"3ms": 3_000_000, "500us": 500_000, "1.5ms": 1_500_000, "0ms": 0, "2s": 2 * 10**9, "100ns": 100}
SIZES = {"512m": 512 * MIB, "100M": 100 * MIB, "1g": GIB, "64m": 64 * MIB, "1.5g": 3 << 29, "7b": 7, "2K": 2048}
NO_DURATIONS = ("3", "3 ms", "-3ms", "3MS", "3m", "ms", "", "1e3ms", "0.5ns", "٣ms", ".5ms", "3ms\n", 3, None, True)
NO_CPUS = ("", "two", "1e3", "-1", -1, float("nan"), float("inf"), True, None, [1], 10**400)


def test_values_are_exact_and_written_as_people_write_them():
    cpus = {"8": 8, 1: 1, 0.2: Decimal("0.2"), "0.25": Decimal("0.25"), Decimal("1.50"): Decimal("1.5")}
    for parse, values in (
        (units.parse_duration, DURATIONS | {"0.1ms": 100_000}),  # no float
        (units.parse_size, SIZES),
        (units.parse_cpus, cpus),
        (units.parse_bandwidth, {1000: 10**9, 0.1: 10**5, 2500: 2_500_000_000}),
    ):
        assert {text: parse(text) for text in values} == values
    for text in (*DURATIONS, "1.001s", "1000.001us"):
        assert units.format_duration(units.parse_duration(text)) == text
    sizes = {0: "0 B", 1000: "1000 B", 512 * MIB: "512 MiB", 3 << 29: "1.5 GiB", 1 << 40: "1 TiB"}
    assert {size: units.describe_size(size) for size in sizes} == sizes


def test_what_has_no_known_unit_or_is_no_number_is_refused():
    for parse, words, values in (
        (units.parse_duration, "number", (*NO_DURATIONS, ["3ms"])),
        (units.parse_size, "number", ("512", "512mb", "-1m", "1 g", "m", "0.3b", 512, 1.5, None, True)),
        (units.parse_cpus, "cpus", NO_CPUS),
        (units.parse_bandwidth, "Mbit/s", ("1000", "1g", True, None, -1, float("nan"), 0.0000001, Decimal("Infinity"))),
    ):
        for value in values:
            with pytest.raises(ValueError, match=words):
                pytest.fail(f"{value!r} is {parse(value)!r}")


@given(st.integers(min_value=0, max_value=10**14))
def test_values_survive_being_written_and_read(value):
    assert units.parse_duration(units.format_duration(value)) == value
    assert units.parse_size(units.format_size(value)) == value
    assert units.parse_bandwidth(Decimal(units.format_mbps(value % 10**11))) == value % 10**11
