from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containernet_env.base import units

DURATIONS = {"3ms": 3_000_000, "500us": 500_000, "1.5ms": 1_500_000, "0ms": 0, "2s": 2 * 10**9, "100ns": 100}


@pytest.mark.parametrize(("text", "duration_ns"), DURATIONS.items())
def test_a_duration_is_exact(text, duration_ns):
    assert units.parse_duration(text) == duration_ns


def test_a_tenth_of_a_millisecond_is_not_a_float():
    assert units.parse_duration("0.1ms") == 100_000


@pytest.mark.parametrize(
    "value",
    ["3", "3 ms", "-3ms", "3MS", "3m", "ms", "", "1e3ms", "0.5ns", "٣ms", ".5ms", "3ms\n", 3, None, True, ["3ms"]],
)
def test_a_duration_without_a_known_unit_is_refused(value):
    with pytest.raises(ValueError, match="number"):
        units.parse_duration(value)


@given(st.integers(min_value=0, max_value=10**14))
def test_durations_survive_being_written_and_read(duration_ns):
    assert units.parse_duration(units.format_duration(duration_ns)) == duration_ns


@pytest.mark.parametrize("text", ["3ms", "500us", "1.5ms", "0ms", "2s", "100ns", "1.001s", "1000.001us"])
def test_durations_are_written_as_people_write_them(text):
    assert units.format_duration(units.parse_duration(text)) == text


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512m", 512 << 20),
        ("100M", 100 << 20),
        ("1g", 1 << 30),
        ("64m", 64 << 20),
        ("1.5g", 3 << 29),
        ("7b", 7),
        ("2K", 2048),
    ],
)
def test_sizes_are_powers_of_1024(text, size_bytes):
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize("value", ["512", "512mb", "-1m", "1 g", "m", "0.3b", 512, 1.5, None, True])
def test_a_size_without_a_known_unit_is_refused(value):
    with pytest.raises(ValueError, match="number"):
        units.parse_size(value)


@given(st.integers(min_value=0, max_value=1 << 44))
def test_sizes_survive_being_written_and_read(size_bytes):
    assert units.parse_size(units.format_size(size_bytes)) == size_bytes


def test_sizes_read_well():
    assert [units.describe_size(size) for size in (0, 1000, 512 << 20, 3 << 29, 1 << 40)] == [
        "0 B",
        "1000 B",
        "512 MiB",
        "1.5 GiB",
        "1 TiB",
    ]


@pytest.mark.parametrize(
    ("value", "cpus"), [("8", "8"), (1, "1"), (0.2, "0.2"), ("0.25", "0.25"), (Decimal("1.50"), "1.5")]
)
def test_cpus_are_numbers_or_their_text(value, cpus):
    assert units.parse_cpus(value) == Decimal(cpus)


@pytest.mark.parametrize("value", ["", "two", "1e3", "-1", -1, float("nan"), float("inf"), True, None, [1], 10**400])
def test_what_is_no_number_of_cpus_is_refused(value):
    with pytest.raises(ValueError, match="cpus"):
        units.parse_cpus(value)


@given(st.integers(min_value=0, max_value=10**11))
def test_bandwidths_survive_being_written_and_read(rate_bps):
    assert units.parse_bandwidth(Decimal(units.format_mbps(rate_bps))) == rate_bps


@pytest.mark.parametrize(("value", "rate_bps"), [(1000, 10**9), (0.1, 10**5), (2500, 2_500_000_000)])
def test_bandwidth_is_in_mbit_per_second(value, rate_bps):
    assert units.parse_bandwidth(value) == rate_bps


@pytest.mark.parametrize("value", ["1000", "1g", True, None, -1, float("nan"), 0.0000001, Decimal("Infinity")])
def test_what_is_no_bandwidth_is_refused(value):
    with pytest.raises(ValueError, match="Mbit/s"):
        units.parse_bandwidth(value)
