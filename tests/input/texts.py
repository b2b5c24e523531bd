"""Nearly right texts: JSON of which values, keys or bytes were changed, and tables likewise."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

Spans = dict[tuple[tuple[str | int, ...], str], tuple[int, int]]
"""Begin and end of each value, key and member, by its place in the document and which of them it is."""

ODD = (
    *("null", "true", "false", "NaN", "Infinity", "-Infinity", "nan", "undefined", "", "'x'", "0x10", "01", "+1", ".5"),
    *("0", "-0", "1", "-1", "0.0", "1.0", "1000.0", "1e3", "1E+3", "1e999", "1e-999", "1e999999999999999999999"),
    *("0.1" + "0" * 400 + "1", "9" * 15, "9" * 40, "9" * 41, "9" * 5000, "-" + "9" * 5000, "1" + "0" * 300 + ".5"),
    *("[]", "{}", "[null]", "[[]]", '{"":{}}', "[" * 33 + "]" * 33, "[" * 9000 + "]" * 9000, "[" * 9000),
    *('{"a":' * 40 + "1" + "}" * 40, '{"a":' * 9000 + "1" + "}" * 9000, "[" + "1," * 2000 + "1]"),
    *('""', '" "', '"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\ud83d"', '"\x00"', '"\n"'),
    *(json.dumps("x" * 300), json.dumps("x" * 200_000), json.dumps("\u202e\u0301\ufeff\u2028"), '"unlimited"'),
    *('"3ms"', '"3 ms"', '"-3ms"', '"1e3ms"', '"\uff13ms"', '"3ms\\n"', '"0.5ns"', '"999999999999999s"', '"0s"'),
    *('"512m"', '"512M"', '"99999999g"', '"0b"', '"1.5k"', '"50%"', '"2"', '"10.0.0.1"', '"10.0.0.256"'),
    *('"::1"', '"010.0.0.1"', '"10.0.0.0/24"', '"10.0.0.1/24"', '"0.0.0.0/0"', '"etcd1"', '"leader"', '"l"', '"read"'),
    *('"../../etc/passwd"', '"/dev/null"', '"."', '"%s%n{0}"', '"[red]x[/red]"', '"a/b.c:d"', '"*"'),
)
_BYTES = (
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0", b"\xef\xbb\xbf", b"\xfe\xff", b"\r", b"\n", b"\t"),
    *(b"//", b"/*", b"*/", b"/", b"#", b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b",", b",,", b":", b"-", b"e", b"1"),
    *(b"\xe2\x80\xa8", b"\x1b[31m", b"\x7f", b"// x\n", b"/* \n */", b" " * 5000, b"\n" * 5000, b"/*/", b"\xc2\xa0"),
)

# Strategies that are the same each time are made once: hypothesis examines each new one.
_LEAVES = st.one_of(
    st.integers() | st.floats() | st.text(max_size=20), st.integers(0, 10**12).map(lambda number: f"{number / 1000}ms")
)
_CONTAINERS = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
ODD_TEXTS = st.sampled_from(ODD) | (_LEAVES | _CONTAINERS).map(json.dumps)
"""JSON text that few places of a file take, whether it is JSON or not."""
_KINDS = st.sampled_from(("replace", "replace", "move", "leave out", "repeat", "wrap", "wrap in an object"))
_SPOILT = st.sampled_from(("put in", "put in", "cut off", "leave out", "repeat", "first", "encode"))
_SAMPLED_BYTES = st.sampled_from(_BYTES)
_PUT_IN = _SAMPLED_BYTES | st.binary(max_size=4)
_ENCODINGS = st.sampled_from(("utf-16", "utf-32", "utf-8-sig"))
_MOST_SPOILT = st.sampled_from((0, 0, 0, 2))


def json_text(
    value: Any, spans: Spans, at: int = 0, gap: Callable[[], str] = str, place: tuple[str | int, ...] = ()
) -> str:
    """The JSON text of a value, with a ``gap`` around each token; ``spans`` gets where each value, key and member
    begins and ends in it."""
    begin = at + len(text := gap())
    if isinstance(value, dict):
        text += "{"
        for number, (key, item) in enumerate(value.items()):
            text += (", " if number else "") + gap()
            start, name, below = at + len(text), json.dumps(key), (*place, key)
            text += f"{name}{gap()}: "
            text += json_text(item, spans, at + len(text), gap, below)
            spans |= {(below, "key"): (start, start + len(name)), (below, "member"): (start, at + len(text))}
        text += gap() + "}"
    elif isinstance(value, list):
        text += "["
        for index, item in enumerate(value):
            text += ", " if index else ""
            text += json_text(item, spans, at + len(text), gap, (*place, index))
        text += gap() + "]"
    else:
        text += json.dumps(value, ensure_ascii=False)
    spans[place, "value"] = begin, at + len(text)
    return text + gap()


@st.composite
def changed(draw: st.DrawFn, bases: Sequence[Any], most: int = 3) -> str:
    """The text of one of the bases with up to so many values, keys or members replaced, moved, left out or repeated."""
    found: Spans = {}
    text = json_text(draw(st.sampled_from(bases)), found)
    spans = [*found.values()]
    places = st.integers(0, len(spans) - 1).map(spans.__getitem__)
    begun = len(text)
    for begin, end in sorted(draw(st.lists(places, max_size=most)), reverse=True):
        if end > begun:
            continue  # in or around what was changed already
        begun = begin
        head, old, tail = text[:begin], text[begin:end], text[end:]
        kind = draw(_KINDS)
        if kind == "leave out":
            head, tail = (head, tail[2:]) if tail.startswith(", ") else (head.removesuffix(", "), tail)
        if kind == "move":
            other = draw(places)
            new = text[other[0] : other[1]]
        else:
            made = {
                "leave out": "",
                "repeat": f"{old}, {old}",
                "wrap": f"[{old}]",
                "wrap in an object": f'{{"x": {old}}}',
            }
            new = made[kind] if kind in made else draw(ODD_TEXTS)
        text = head + new + tail
    return text


@st.composite
def spoilt(draw: st.DrawFn, text: bytes, most: int = 2) -> bytes:
    """The bytes with up to so many of them cut off, left out, repeated or put in."""
    for _ in range(draw(st.integers(0, most))):
        at, until = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        kind = draw(_SPOILT)
        if kind == "put in":
            text = text[:at] + draw(_PUT_IN) + text[at:]
        elif kind == "cut off":
            text = text[:at]
        elif kind == "leave out":
            text = text[:at] + text[until:]
        elif kind == "repeat":
            text = text[:until] + text[at:]
        elif kind == "first":
            text = draw(_SAMPLED_BYTES) + text
        else:
            text = text.decode(errors="replace").encode(draw(_ENCODINGS))
    return text


@st.composite
def json_files(draw: st.DrawFn, bases: Sequence[Any]) -> bytes:
    """The bytes of a file that holds one of the bases, changed and spoilt."""
    text = draw(changed(bases))
    return draw(spoilt(text.encode(errors="surrogatepass"), draw(_MOST_SPOILT)))
