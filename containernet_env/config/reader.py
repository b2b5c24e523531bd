"""Reads a JSON file that may contain comments, and no other extension of JSON; finds the positions of its values.

``//`` and ``/* */`` comments are blanked out before parsing, so that every line and column in a message is the file's
own. Commas before a closing bracket, keys given twice, ``NaN`` and ``Infinity`` are refused, but do not hide what else
is wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from containernet_env.base.errors import ConfigError, Problem
from containernet_env.model.hints import near_file
from containernet_env.model.kinds import Location, Refused

_SPACE = re.compile(r"[ \t\n\r]*")
# Runs in C: the skipped part is parsed and discarded. Numbers stay text, since one may be too long for an int.
_scan = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).raw_decode


class Occurrence(str):
    """A key that its object has more than once, and which of them it is, from 0; equal to the key alone."""

    number: int

    def __new__(cls, key: str, number: int) -> Occurrence:
        made = super().__new__(cls, key)
        made.number = number
        return made


# A config is written by hand; the bound keeps a wrong path (a device, a disk image) from filling the memory, and a file
# that is wrong in every place from taking long.
MAX_FILE_BYTES = 1 << 20
_MAX_DEPTH = 32
# An integer of more digits than this is no quantity of ours, and Python refuses to parse it beyond 4300.
_MAX_DIGITS = 40
_GOT_CHARACTERS = 60

# A string ends with its line, whatever is wrong with it.
_STRING = r'"(?:[^"\\\n]+|\\.)*"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|/\*", re.DOTALL)
_NO_NUMBER, _NO_TEXT = "is not a number", "is no Unicode text"
_TEXT = r"no half of a surrogate pair (\ud800 to \udfff)"
_NOT_LINE_END = re.compile(r"[^\r\n]")
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=[ \t\n\r]*[\]}}])", re.DOTALL)


class Fault(Refused):
    """What is wrong with the text of a document, at ``offset``, whatever it is."""

    def __init__(self, offset: int, message: str, allowed: str | None, got: str) -> None:
        super().__init__(message, allowed, got=got)
        self.offset = offset


@dataclass(frozen=True)
class Document:
    """A parsed file: ``value`` has plain dicts and lists, integers as ``int``, other numbers as ``Decimal``.

    ``text`` is the parsed text, comments blanked out. ``faults`` leave the document readable (keys given
    twice, ``NaN``): a caller adds what it refuses and raises all together with `refuse`. ``sha256`` is of the
    file's bytes, in hex.
    """

    path: Path
    text: str
    value: Any
    faults: tuple[Refused, ...]
    sha256: str

    def __reduce__(self) -> tuple[Any, ...]:
        return document_of, (self.path, self.text, self.sha256)

    def offset(self, location: Location, at_key: bool = False) -> int:
        """Where a value begins, or with ``at_key`` its key; for a missing value, where the object or list begins.

        Of a key that is given more than once it is the last, which counts, unless the step is an `Occurrence`. Each
        object and list on the way to a value is walked once; without a question nothing is walked.
        """
        at = key_at = self._skip(0)
        for step in location:
            given = self._entries(at).get(step)
            if given is None:
                return at
            key_at, at = given[step.number if isinstance(step, Occurrence) else -1]
        return key_at if at_key else at

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Both from 1; a column is a character, a tab too."""
        line = bisect_left(self._line_ends, offset)
        return line + 1, offset - (self._line_ends[line - 1] if line else -1)

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    @cached_property
    def _walked(self) -> dict[int, dict[str | int, list[tuple[int, int]]]]:
        return {}

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        assert match is not None
        return match.end()

    def _entries(self, start: int) -> dict[str | int, list[tuple[int, int]]]:
        """Where each key and its value begin in an object, and each entry of a list, by its index; else none."""
        if start not in self._walked:
            found = self._walked[start] = {}
            bracket, at = self.text[start], self._skip(start + 1)
            while bracket in "{[" and self.text[at] not in "}]":
                key: str | int = len(found)
                key_at = at
                if bracket == "{":
                    key, end = _scan(self.text, at)
                    at = self._skip(self._skip(end) + 1)
                found.setdefault(key, []).append((key_at, at))
                at = self._skip(_scan(self.text, at)[1])
                if self.text[at] == ",":
                    at = self._skip(at + 1)
        return self._walked[start]

    def refuse(self, refused: Iterable[Refused]) -> None:
        """Raise ``ConfigError`` with the document's own faults and these, in the file's order, if any."""
        own = [(self._offset(fault), fault) for fault in self.faults]
        replaced = {offset for offset, fault in own if fault.message == _NO_TEXT}
        added = [(offset, one) for one in refused if (offset := self._offset(one)) not in replaced]
        explained = {offset for offset, _ in added}
        # Others have the allowed values.
        kept = [(offset, fault) for offset, fault in own if fault.message != _NO_NUMBER or offset not in explained]
        found = sorted((*kept, *added), key=lambda placed: placed[0])
        if found:
            raise ConfigError(str(self.path), [self._problem(offset, one) for offset, one in found])

    def _offset(self, refused: Refused) -> int:
        return refused.offset if isinstance(refused, Fault) else self.offset(refused.place, refused.at_key)

    def _problem(self, offset: int, refused: Refused) -> Problem:
        path, got = "" if isinstance(refused, Fault) else json_path(refused.place), refused.got
        if got is None:
            with contextlib.suppress(KeyError):  # no value there
                got = render(value_at(self.value, refused.place))
        return Problem(path, refused.message, got, refused.allowed, *self.line_and_column(offset))


def read_document(path: Path) -> Document:
    """Parse a file. Raises ``ConfigError`` when it cannot be read or is not JSON (with line and column)."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) else error
        if str(path) == "-":
            reason = f"{reason} (standard input is not read)"
        elif isinstance(error, FileNotFoundError) and (near := near_file(path)) is not None:
            reason = f"{reason}; did you mean {near}?"
        raise ConfigError(str(path), [Problem("file", f"cannot be read: {reason}")]) from error
    if len(content) > MAX_FILE_BYTES:
        too_large = Problem("file", "is too large", f"more than {MAX_FILE_BYTES} bytes", f"{MAX_FILE_BYTES} bytes")
        raise ConfigError(str(path), [too_large])
    try:
        # Some editors put a byte order mark first; RFC 8259 section 8.1 lets a parser ignore it.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        fault = Fault(len(before), "is not UTF-8 text", None, hex(error.object[error.start]))
        Document(path, before, None, (fault,), "").refuse(())
    if not text.strip():
        raise ConfigError(str(path), [Problem("file", "is empty", f"{len(content)} bytes", "one JSON value")])
    return document_of(path, text, hashlib.sha256(content).hexdigest())


_FAULTS: dict[str, tuple[str, str]] = {
    "Extra data": ("has more text after the end of the JSON value", "one JSON value"),
    "Open comment": ("comment is never closed", "a closing */"),
}


def document_of(path: Path, text: str, sha256: str = "") -> Document:
    """Parse a text, under the path that messages show. Raises ``ConfigError`` when it is not JSON."""
    faults: list[Refused] = []
    stripped, value, is_json = text, None, False
    try:
        stripped = strip_comments(text)
        try:
            value = _load(stripped)
        except json.JSONDecodeError:
            commas = [match.start() for match in _TRAILING_COMMA.finditer(stripped) if match[0] == ","]
            allowed = "no comma before ] or }"
            faults = [_fault(stripped, at, "has a comma with nothing after it", allowed) for at in commas]
            stripped = _TRAILING_COMMA.sub(lambda match: " " if match[0] == "," else match[0], stripped)
            value = _load(stripped)
        value, is_json = _plain(value, (), faults), True
    except json.JSONDecodeError as error:
        other = f"is not JSON: {error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')}", None
        faults.append(_fault(stripped, error.pos, *_FAULTS.get(error.msg, other)))
    except RecursionError:
        faults = [_fault(stripped, 0, "is nested too deeply", f"at most {_MAX_DEPTH} levels")]
    document = Document(path, stripped, value, tuple(faults), sha256)
    if not is_json:
        document.refuse(())
    return document


def _load(text: str) -> Any:
    """The value of a JSON text, in which `_plain` has to see to `_Pairs`, `_NotANumber` and surrogates."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Pairs:
        made = dict(pairs)
        return made if len(made) == len(pairs) and all(map(_is_text, made)) else _Pairs(pairs)

    def integer(literal: str) -> int | _NotANumber:
        return int(literal) if len(literal) <= _MAX_DIGITS else _NotANumber(literal)

    def decimal(literal: str) -> Decimal | _NotANumber:
        try:
            return Decimal(literal)
        except InvalidOperation:  # an exponent beyond what decimal can hold
            return _NotANumber(literal)

    return json.loads(
        text, object_pairs_hook=members, parse_constant=_NotANumber, parse_int=integer, parse_float=decimal
    )


def _is_text(word: str) -> bool:
    """Whether it is Unicode text: JSON can name half of a surrogate pair by itself."""
    return word.isascii() or not any("\ud800" <= character <= "\udfff" for character in word)


def strip_comments(text: str) -> str:
    """The text with every comment replaced by as many spaces, line ends kept; strings are left alone."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found[0] == '"':
            return found
        if found == "/*":
            raise json.JSONDecodeError("Open comment", text, match.start())
        return _NOT_LINE_END.sub(" ", found)

    return _COMMENT.sub(blank, text)


def json_path(location: Location) -> str:
    """A location as people write it: ``$[1].bandwidth``, ``$.nodes[0]["odd key"]``."""
    steps = (
        f".{step}" if isinstance(step, str) and step.isidentifier() and step.isascii() else f"[{render(step)}]"
        for step in location
    )
    return "$" + "".join(steps)


def render(value: object) -> str:
    """A value as in the file, on one line, printable and cut to a readable length."""
    # Of two pieces one has a character at least.
    text = "".join(islice(_tokens(value), 2 * _GOT_CHARACTERS + 2))
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return printable if len(printable) <= _GOT_CHARACTERS else printable[: _GOT_CHARACTERS - 3] + "..."


def json_text(value: object) -> str:
    """A value as JSON, on one line: for values of a `Document`, whose numbers are printed exactly as they are."""
    return "".join(_tokens(value))


def value_at(value: Any, location: Location) -> Any:
    """The value at a location of a document; ``KeyError`` if there is none."""
    for step in location:
        is_there = isinstance(value, dict) or (isinstance(value, list) and isinstance(step, int) and step < len(value))
        if not is_there:
            raise KeyError(step)
        value = value[step]
    return value


def _fault(text: str, offset: int, message: str, allowed: str | None = None) -> Fault:
    rest = text[offset : offset + _GOT_CHARACTERS + 1].split("\n", 1)[0].strip()
    end = "the end of the line" if offset < len(text) else "the end of the file"
    got = render(_Verbatim(rest)) if rest else end
    return Fault(offset, message, allowed, got)


class _Verbatim(str):
    """Text shown as it is, without quotes."""


class _NotANumber(_Verbatim):
    """A literal in a number's place that is none: kept as text until its location is known."""


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in order, of one that has a key more than once, or one that is no text."""


def _plain(raw: Any, location: Location, faults: list[Refused]) -> Any:
    """The value without `_Pairs`; their problems and those of `_NotANumber` are added to ``faults``.

    Raises ``RecursionError`` where it is nested too deeply.
    """
    if isinstance(raw, dict | list) and len(location) >= _MAX_DEPTH:
        raise RecursionError
    if isinstance(raw, _NotANumber):
        faults.append(Refused(_NO_NUMBER, "a finite number", location, render(raw)))
    elif isinstance(raw, dict):
        return {key: _plain(value, (*location, key), faults) for key, value in raw.items()}
    elif isinstance(raw, _Pairs):
        members: dict[str, Any] = {}
        given: Counter[str] = Counter()
        for key, value in raw:
            place = (*location, Occurrence(key, given[key]))
            if not _is_text(key):
                faults.append(Refused(_NO_TEXT, _TEXT, place, render(key), at_key=True))
                continue
            given[key] += 1
            members[key] = plain = _plain(value, place, faults)
            if given[key] > 1:
                got = f"{render(plain)} again"
                faults.append(Refused("is given more than once", "each key once", place, got, at_key=True))
        return members
    elif isinstance(raw, list):
        return [_plain(value, (*location, index), faults) for index, value in enumerate(raw)]
    elif isinstance(raw, str) and not _is_text(raw):
        faults.append(Refused(_NO_TEXT, _TEXT, location, render(raw)))
        return raw.encode(errors="replace").decode()  # its own finding is the one that is reported: see `refuse`
    return raw


def _tokens(value: object) -> Iterator[str]:
    """The text of a value, piece by piece: only its beginning is ever shown."""
    if isinstance(value, _Verbatim | Decimal):
        yield str(value)
    elif isinstance(value, Mapping):
        yield "{"
        for index, (key, item) in enumerate(value.items()):
            yield ", " if index else ""
            yield from _tokens(key)
            yield ": "
            yield from _tokens(item)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for index, item in enumerate(value):
            yield ", " if index else ""
            yield from _tokens(item)
        yield "]"
    else:
        yield json.dumps(value, ensure_ascii=False)
