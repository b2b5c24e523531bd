"""Nearly right texts: JSON of which values, keys or bytes were changed, and tables likewise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

Place = tuple[str | int, ...]


class Token(str):
    """JSON text that stands for a value, whether it is JSON or not."""


class Members(list[tuple[str, Any]]):
    """The members of an object, of which a key may be there twice."""


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
    st.sampled_from(ODD).map(Token),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.integers(0, 10**12).map(lambda number: f"{number / 1000}ms"),
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)


_ODD_VALUES: st.SearchStrategy[Any] = st.one_of(_LEAVES, st.recursive(_LEAVES, _containers, max_leaves=6))
_OTHER_KEYS = st.text(max_size=8)
_KINDS = st.sampled_from(("replace", "replace", "move", "leave out", "repeat", "rename", "wrap"))
_SPOILT = st.sampled_from(("put in", "put in", "cut off", "leave out", "repeat", "first", "encode"))
_SAMPLED_BYTES = st.sampled_from(_BYTES)
_PUT_IN = _SAMPLED_BYTES | st.binary(max_size=4)
_ENCODINGS = st.sampled_from(("utf-16", "utf-32", "utf-8-sig"))
_MOST_SPOILT = st.sampled_from((0, 0, 0, 2))


def json_text(value: Any) -> str:
    """The JSON text of a value in which tokens and members may stand."""
    if isinstance(value, Token):
        return str(value)
    if isinstance(value, Members | dict):
        pairs = value.items() if isinstance(value, dict) else value
        return "{" + ", ".join(f"{json.dumps(key)}: {json_text(item)}" for key, item in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(json_text(item) for item in value) + "]"
    return json.dumps(value)


def odd_values() -> st.SearchStrategy[Any]:
    """Values that few places of a file take."""
    return _ODD_VALUES


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every place of a value, its own first."""
    yield place
    for step, item in _items(value):
        yield from places(item, (*place, step))


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list) and not isinstance(value, Members):
        yield from enumerate(value)


@st.composite
def changed(draw: st.DrawFn, bases: Sequence[Any], most: int = 3) -> Any:
    """One of the bases with up to so many changes: values replaced, moved, left out, given twice, under other keys."""
    value = draw(st.sampled_from(bases))
    for _ in range(draw(st.integers(0, most))):
        value = _change(draw, value, value)
    return value


def _change(draw: st.DrawFn, value: Any, whole: Any) -> Any:
    place = draw(st.sampled_from(list(places(value))))
    kind = draw(_KINDS)
    if not place or kind in ("replace", "move", "wrap"):
        if kind == "move":
            new = _at(whole, draw(st.sampled_from(list(places(whole)))))
        elif kind == "wrap":
            new = draw(st.sampled_from(([_at(value, place)], {"x": _at(value, place)})))
        else:
            new = draw(odd_values())
        return _with(value, place, lambda items, step: _put(items, step, new)) if place else new
    if kind == "rename":
        keys = [step for other in places(whole) for step in other[-1:] if isinstance(step, str)]
        key = draw(st.sampled_from(sorted(set(keys))) | _OTHER_KEYS) if keys else draw(_OTHER_KEYS)
        return _with(value, place, lambda items, step: _renamed(items, step, key))
    if kind == "repeat":
        again = draw(st.just(_at(value, place)) | odd_values())
        return _with(value, place, lambda items, step: _repeated(items, step, again))
    return _with(value, place, _without)


def _at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def _with(value: Any, place: Place, change: Any) -> Any:
    """A copy of the value in which the container of a place was changed."""
    if len(place) == 1:
        return change(value, place[0])
    return _put(value, place[0], _with(value[place[0]], place[1:], change))


def _put(items: Any, step: Any, new: Any) -> Any:
    if isinstance(items, dict):
        return {key: new if key == step else item for key, item in items.items()}
    return [new if index == step else item for index, item in enumerate(items)]


def _without(items: Any, step: Any) -> Any:
    if isinstance(items, dict):
        return {key: item for key, item in items.items() if key != step}
    return [item for index, item in enumerate(items) if index != step]


def _renamed(items: Any, step: Any, name: str) -> Any:
    if isinstance(items, dict):
        return {name if key == step else key: item for key, item in items.items()}
    return [{name: item} if index == step else item for index, item in enumerate(items)]


def _repeated(items: Any, step: Any, again: Any) -> Any:
    if isinstance(items, dict):
        return Members([*items.items(), (step, again)])
    return [*items, again]


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
    text = json_text(draw(changed(bases)))
    return draw(spoilt(text.encode(errors="surrogatepass"), draw(_MOST_SPOILT)))
