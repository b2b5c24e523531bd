"""The names of generated keys are the benchmark server's, and spans of them are counted right."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from containernet_env.model.scenario import ALPHABET, ONE_KEY, Keys, Span, after_prefix

GO_KEYS = Path(__file__).resolve().parents[2] / "benchmark_image" / "internal" / "keys" / "orders.go"
TEXTS = st.text(ALPHABET + "-/~", min_size=1, max_size=5)


def test_the_digits_are_the_servers() -> None:
    assert re.findall(r'^const alphabet = "(\w+)"$', GO_KEYS.read_text(), re.MULTILINE) == [ALPHABET]


def test_names() -> None:
    names = {(0, 1): "0", (61, 1): "z", (0, 8): "00000000", (999, 4): "00G7", (9_999, 8): "000002bH"}
    names |= {(3844, 8): "00000100"}
    assert {key: Keys(key[1], 10_000, "d/").name(key[0]) for key in names} == {k: f"d/{v}" for k, v in names.items()}


@given(st.integers(1, 300), TEXTS, TEXTS, st.sampled_from(["", "0", "d/"]))
def test_keys_within_a_span_are_those_that_sort_so(count: int, start: str, end: str, prefix: str) -> None:
    keys = Keys(2, count, prefix)
    found = keys.within(start, end)
    assert list(found) == [number for number in range(count) if start <= keys.name(number) < end]


@given(TEXTS, TEXTS)
def test_what_comes_after_a_prefix(prefix: str, text: str) -> None:
    assert (prefix <= text < after_prefix(prefix)) == text.startswith(prefix)


def test_an_answer_holds_what_is_there_up_to_the_limit() -> None:
    dataset = Keys(2, 100, "d/")
    for span, keys in (
        (ONE_KEY, 1),
        (Span(keys=7), 7),
        (Span(keys=7, limit=3), 3),
        (Span(keys=1000), 100),
        (Span(prefix="d/0"), 62),
        (Span(prefix="d/1"), 38),
        (Span(prefix="d/1", limit=50), 38),
        (Span(start="d/00", end="d/0A", answer="keys"), 10),
        (Span(start="d/00", end="d/0A", answer="count"), 0),
    ):
        assert span.answered(dataset) == keys, span
    assert Span(keys=5).bounds(dataset) == ("d/00", "d/1b\0")
