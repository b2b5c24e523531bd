"""Files as text: comments, what JSON does not have, and the line and column of every value and key."""

from __future__ import annotations

import json
import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from containernet_env.config.reader import document_of, json_path, read_document, render
from tests.input.texts import json_text

KEYS = st.text(alphabet='ab"\\/*,:{}[] \näß', max_size=5) | st.text(max_size=5)


def parsed(text):
    """A text in which nothing is wrong."""
    found = document_of(Path(), text)
    assert not found.faults
    return found


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)


def test_what_looks_like_a_comment_in_a_string_is_text(tmp_path):
    text = '["http://x", "/* y */", "\\"//"]'
    assert parsed(text).value == ["http://x", "/* y */", '"//']
    path = tmp_path / "file.json"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())  # a byte order mark is ignored
    assert read_document(path).value == parsed(text).value


@given(DOCUMENTS)
def test_values_are_shown_short_and_printable(value):
    assert [render(text) for text in ("a\x1b[31m\udc80", "\x9b")] == [r'"a\u001b[31m\udc80"', r'"\x9b"']
    assert json_path(("nodes", 0, "odd key")) == '$.nodes[0]["odd key"]'
    whole = json.dumps(value, ensure_ascii=False)
    if whole.isprintable():
        assert render(value) == (whole if len(whole) <= 60 else f"{whole[:57]}...")


# --- positions --------------------------------------------------------------------------------------------------------


def test_the_earlier_one_of_a_key_given_twice_has_its_own_place():
    text = '{"a": {"b": 1},\n "a": 5, "a": [1,\n 2]}'
    found = document_of(Path(), text)
    assert found.value == {"a": [1, 2]}
    assert [found.line_and_column(found.offset(f.place, f.at_key)) for f in found.faults] == [(2, 2), (2, 10)]
    places = {("a", 1): (3, 2), ("a", 7, "c"): (2, 15), ("x", "y"): (1, 1)}
    assert {at: found.line_and_column(found.offset(at)) for at in places} == places


def gaps(seed):
    """A source of what may stand between two tokens."""
    drawn = random.Random(seed)
    return lambda: "".join(drawn.choices([" ", "\n", "\t", '/* \n" */', '// "x\n', ""], k=drawn.randint(0, 3)))


@given(DOCUMENTS, st.integers())
def test_every_value_and_key_of_any_document_is_found(value, seed):
    spans = {}
    text = json_text(value, spans, gap=gaps(seed))
    found = parsed(text)
    assert found.value == value
    for (place, what), (offset, _) in spans.items():
        if what != "member":
            assert found.offset(place, what == "key") == offset
        line, column = found.line_and_column(offset)
        assert sum(len(part) + 1 for part in text.split("\n")[: line - 1]) + column - 1 == offset
