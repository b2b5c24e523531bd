from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containernet_env.base.errors import ConfigError
from containernet_env.config.reader import (
    MAX_FILE_BYTES,
    json_path,
    parse_document,
    read_document,
    render,
    strip_comments,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(min_value=-(10**20), max_value=10**20) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refusal(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        document = read_document(path)
        document.refuse(())
    assert caught.value.file == str(path)
    return [str(problem) for problem in caught.value.problems]


@settings(deadline=None)
@given(JSON)
def test_json_without_comments_is_read_as_it_is(value):
    assert parse_document(json.dumps(value)) == (value, [])


@settings(deadline=None)
@given(JSON, st.text(alphabet="ab*/\"' \t", max_size=10).filter(lambda text: "*/" not in text))
def test_comments_change_nothing(value, comment):
    plain = json.dumps(value, indent=1)
    commented = plain.replace("\n", f" // {comment} \n", 1) if "\n" in plain else plain
    assert parse_document(f"/*{comment}*/{commented}//{comment}") == (value, [])


@settings(deadline=None)
@given(st.text(alphabet='/*"\\ab\n,', max_size=30))
def test_stripping_keeps_every_line_and_column(text):
    try:
        stripped = strip_comments(text)
    except ValueError:
        return
    assert len(stripped) == len(text)
    assert [i for i, c in enumerate(stripped) if c == "\n"] == [i for i, c in enumerate(text) if c == "\n"]


def test_what_looks_like_a_comment_in_a_string_is_text():
    assert parse_document('["http://x", "/* y */", "\\"//"]') == (["http://x", "/* y */", '"//'], [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,}', "line 1, column 8: has a comma with nothing after it; got ,}; allowed: no comma before ] or }"),
        ("[1, // one\n 2, // two\n]", "line 2, column 3: has a comma with nothing after it"),
        ("[1 2]", "line 1, column 4: is not JSON: expecting ',' delimiter; got 2]"),
        ("[1] [2]", "line 1, column 5: has more text after the end of the JSON value"),
        ("", "file: is empty; got 0 bytes; allowed: one JSON value"),
        (" \n", "file: is empty; got 2 bytes; allowed: one JSON value"),
        ("// x", "line 1, column 5: is not JSON: expecting value; got the end of the file"),
        ("[1, /* open", "line 1, column 5: comment is never closed"),
        ("['a']", "line 1, column 2: is not JSON: expecting value; got 'a']"),
        ("[01]", "line 1, column 3"),
        ("# x\n[]", "line 1, column 1"),
        ('["a\nb"]', "line 1, column 4: is not JSON: invalid control character"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 50 + "]" * 50, "nested too deeply"),
        (b"[\xff]", "line 1, column 2: is not UTF-8 text; got 0xff"),
        (b'\xef\xbb\xbf["\xc3\xa4",\n "\xc3\xa4\xff"]', "line 2, column 4: is not UTF-8 text; got 0xff"),
        (b"\x89PNG\r\n", "line 1, column 1: is not UTF-8 text; got 0x89"),
        (b" " * (MAX_FILE_BYTES + 1), "is too large"),
    ],
)
def test_text_that_is_not_json_is_refused_with_its_place(tmp_path, text, expected):
    (problem,) = refusal(tmp_path, text)
    assert expected in problem


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_document(tmp_path / "none.json")


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_document(tmp_path)


def test_keys_given_twice_and_numbers_that_are_none_are_all_found(tmp_path):
    text = '{"a": {"b": 1, "b": 2}, "c": [NaN, -Infinity, 1e99999999999999999999999], "d e": ' + "9" * 5000 + "}"
    assert [problem.split(";")[0] for problem in refusal(tmp_path, text)] == [
        "line 1, column 16, $.a.b: is given more than once",
        "line 1, column 31, $.c[0]: is not a number",
        "line 1, column 36, $.c[1]: is not a number",
        "line 1, column 47, $.c[2]: is not a number",
        'line 1, column 82, $["d e"]: is not a number',
    ]


def test_a_byte_order_mark_is_ignored(tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(b"\xef\xbb\xbf[]")
    assert read_document(path).value == []


def test_values_are_shown_short_and_printable():
    assert render("a\x1b[31m\udc80") == r'"a\u001b[31m\udc80"'
    assert render("\x9b") == r'"\x9b"'
    assert len(render("x" * 1000)) == 60
    assert json_path(("nodes", 0, "odd key")) == '$.nodes[0]["odd key"]'


@given(JSON)
def test_the_beginning_of_any_value_is_shown(value):
    whole = json.dumps(value, ensure_ascii=False)
    if whole.isprintable():
        assert render(value) == (whole if len(whole) <= 60 else f"{whole[:57]}...")
