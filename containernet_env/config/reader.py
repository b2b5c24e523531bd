"""Reads a JSON file that may hold comments, and nothing else that JSON does not have.

``//`` and ``/* */`` comments are blanked out before parsing, so that every line and column in a message is
the file's own. Trailing commas, keys given twice, ``NaN`` and ``Infinity`` are refused.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from containernet_env.base.errors import ConfigError, Problem

Location = tuple[str | int, ...]
"""Keys and list indices from the top of a document to a value."""

# A config is written by hand; the bound keeps a wrong path (a device, a disk image) from filling the memory.
MAX_FILE_BYTES = 4 << 20
_MAX_DEPTH = 32
# An integer of more digits than this is no quantity of ours, and Python refuses to parse it beyond 4300.
_MAX_DIGITS = 40
_GOT_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong at a place of a document; becomes a `Problem` when the document is refused.

    ``implied``: any other finding at the same place says it better, with what is allowed there.
    """

    location: Location
    message: str
    got: str | None = None
    allowed: str | None = None
    implied: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: ``value`` has plain dicts and lists, integers as ``int``, other numbers as ``Decimal``.

    ``findings`` are the faults that leave the document readable (keys given twice, ``NaN``): a caller adds
    its own and raises them all together with `refuse`. ``sha256`` is of the file's bytes, in hex.
    """

    path: Path
    value: Any
    findings: tuple[Finding, ...]
    sha256: str

    def refuse(self, findings: Iterable[Finding]) -> None:
        """Raise ``ConfigError`` with the document's own findings and these, in the file's order, if any."""
        added = tuple(findings)
        explained = {finding.location for finding in added}
        own = (finding for finding in self.findings if not (finding.implied and finding.location in explained))
        found = sorted((*own, *added), key=lambda finding: _position(self.value, finding.location))
        if found:
            raise ConfigError(
                str(self.path),
                [Problem(json_path(item.location), item.message, item.got, item.allowed) for item in found],
            )


def read_document(path: Path) -> Document:
    """Parse a file. Raises ``ConfigError`` when it cannot be read or is not JSON (with line and column)."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(str(path), [Problem("file", f"cannot be read: {error.strerror}")]) from error
    if len(content) > MAX_FILE_BYTES:
        too_large = Problem("file", "is too large", f"more than {MAX_FILE_BYTES} bytes", f"{MAX_FILE_BYTES} bytes")
        raise ConfigError(str(path), [too_large])
    try:
        # Some editors put a byte order mark first; RFC 8259 section 8.1 lets a parser ignore it.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        raise ConfigError(str(path), [Problem(where, "is not UTF-8 text", hex(content[error.start]))]) from error
    try:
        value, findings = parse_document(text)
    except _SyntaxFault as fault:
        raise ConfigError(str(path), [fault.problem(text)]) from fault
    return Document(path, value, tuple(findings), hashlib.sha256(content).hexdigest())


def parse_document(text: str) -> tuple[Any, list[Finding]]:
    """The value of a text and the faults in it that leave it readable; raises a ``ValueError`` otherwise."""
    stripped = strip_comments(text)
    try:
        raw = json.loads(
            stripped,
            object_pairs_hook=_Pairs,
            parse_constant=_NotANumber,
            parse_int=_parse_int,
            parse_float=_parse_decimal,
        )
    except json.JSONDecodeError as error:
        raise _syntax_fault(stripped, error) from error
    except RecursionError as error:
        raise _SyntaxFault(0, "is nested too deeply", allowed=f"at most {_MAX_DEPTH} levels") from error
    findings: list[Finding] = []
    return _plain(raw, (), findings), findings


def strip_comments(text: str) -> str:
    """The text with every comment replaced by as many spaces, line ends kept; strings are left alone."""
    pieces: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == '"':
            end = _string_end(text, position)
            pieces.append(text[position:end])
        elif text.startswith("//", position):
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            pieces.append(" " * (end - position))
        elif text.startswith("/*", position):
            end = text.find("*/", position + 2) + 2
            if end < 2:
                raise _SyntaxFault(position, "comment is never closed", allowed="a closing */")
            pieces.append("".join(c if c in "\r\n" else " " for c in text[position:end]))
        else:
            end = position + 1
            pieces.append(character)
        position = end
    return "".join(pieces)


def json_path(location: Location) -> str:
    """A location as people write it: ``$[1].bandwidth``, ``$.nodes[0]["odd key"]``."""
    path = "$"
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() and step.isascii():
            path += f".{step}"
        else:
            path += f"[{render(step)}]"
    return path


def render(value: object) -> str:
    """A value as it stood in the file, on one line, printable and cut to a readable length."""
    text = _render(value)
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return printable if len(printable) <= _GOT_CHARACTERS else printable[: _GOT_CHARACTERS - 3] + "..."


def value_at(value: Any, location: Location) -> Any:
    """The value at a location of a document; ``KeyError`` when nothing stands there."""
    for step in location:
        members = dict(enumerate(value)) if isinstance(value, list) else value
        if not isinstance(members, dict):
            raise KeyError(step)
        value = members[step]
    return value


def unknown_key(location: Location, got: str, known: Sequence[str]) -> Finding:
    """The finding for a key that nothing reads; names the key that was probably meant."""
    key = str(location[-1])
    close = difflib.get_close_matches(key.lower(), known, n=1)
    hint = f', did you mean "{close[0]}"?' if close else ""
    return Finding(location, f"is not a known key{hint}", got, f"the keys {', '.join(known)}")


class _SyntaxFault(ValueError):
    """The text is not JSON from this character on."""

    def __init__(self, index: int, message: str, allowed: str | None = None) -> None:
        super().__init__(message)
        self.index = index
        self.message = message
        self.allowed = allowed

    def problem(self, text: str) -> Problem:
        line = text.count("\n", 0, self.index) + 1
        column = self.index - text.rfind("\n", 0, self.index)
        rest = text[self.index :].split("\n", 1)[0].strip()
        if rest:
            got = render(_Verbatim(rest))
        else:
            got = "the end of the line" if self.index < len(text) else "the end of the file"
        return Problem(f"line {line}, column {column}", self.message, got, self.allowed)


class _Verbatim(str):
    """Text shown as it is, without quotes."""


class _NotANumber(_Verbatim):
    """A literal in a number's place that is none: kept as text until its location is known."""


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in order, keys that are given twice included."""


def _parse_int(text: str) -> Any:
    return int(text) if len(text) <= _MAX_DIGITS else _NotANumber(text)


def _parse_decimal(text: str) -> Any:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond what decimal can hold
        return _NotANumber(text)


def _plain(raw: Any, location: Location, findings: list[Finding]) -> Any:
    if len(location) > _MAX_DEPTH:
        raise _SyntaxFault(0, "is nested too deeply", allowed=f"at most {_MAX_DEPTH} levels")
    if isinstance(raw, _NotANumber):
        findings.append(Finding(location, "is not a number", render(raw), "a finite number", implied=True))
        return raw
    if isinstance(raw, _Pairs):
        members: dict[str, Any] = {}
        for key, value in raw:
            place = (*location, key)
            plain = _plain(value, place, findings)
            if key in members:
                findings.append(Finding(place, "is given more than once", f"{render(plain)} again", "each key once"))
            members[key] = plain
        return members
    if isinstance(raw, list):
        return [_plain(value, (*location, index), findings) for index, value in enumerate(raw)]
    return raw


def _string_end(text: str, start: int) -> int:
    position = start + 1
    while position < len(text) and text[position] not in '"\n':
        position += 2 if text[position] == "\\" else 1
    return min(position + 1, len(text))


def _syntax_fault(text: str, error: json.JSONDecodeError) -> _SyntaxFault:
    # Python 3.13 points at a trailing comma, earlier ones at what follows it: find the comma for both.
    before = text[: error.pos + 1].rstrip()
    comma = len(before) - 1
    if not before.endswith(","):
        comma = len(text[: error.pos].rstrip()) - 1
    if comma >= 0 and text[comma] == "," and text[comma + 1 :].lstrip()[:1] in ("]", "}"):
        return _SyntaxFault(comma, "has a comma with nothing after it", allowed="no comma before ] or }")
    if error.msg == "Extra data":
        return _SyntaxFault(error.pos, "has more text after the end of the JSON value", allowed="one JSON value")
    message = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
    return _SyntaxFault(error.pos, f"is not JSON: {message}")


def _position(value: Any, location: Location) -> tuple[int, ...]:
    """Sorts locations as they stand in the file; what is missing comes after what is there."""
    position: list[int] = []
    for step in location:
        if isinstance(value, dict):
            keys = list(value)
            position.append(keys.index(str(step)) if step in value else len(keys))
        else:
            position.append(step if isinstance(step, int) else 0)
        try:
            value = value_at(value, (step,))
        except KeyError:
            value = None
    return tuple(position)


def _render(value: object) -> str:
    if isinstance(value, _Verbatim | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_render(key)}: {_render(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_render(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
