"""Where the values of a JSON text stand: found by walking the text, and only for what is wrong in it."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator

Location = tuple[str | int, ...]
"""Keys and list indices from the top of a document to a value."""

_SPACE = re.compile(r"[ \t\n\r]*")
# Runs in C: what is stepped over is parsed and thrown away. Numbers stay text, since one may be too long for an int.
_scan = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).raw_decode


class Occurrence(str):
    """A key that its object has more than once, and which of them it is, from 0; equal to the key alone."""

    number: int

    def __new__(cls, key: str, number: int) -> Occurrence:
        """The key, with its number."""
        made = super().__new__(cls, key)
        made.number = number
        return made


class Positions:
    """Offsets, lines and columns in a JSON text that has been parsed without an error and holds no comments.

    Each object and list on the way to a value is walked once; without a question nothing is walked.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._line_ends: list[int] | None = None
        self._objects: dict[int, dict[str, list[tuple[int, int]]]] = {}
        self._lists: dict[int, tuple[list[int], Iterator[int]]] = {}

    def offset(self, location: Location, at_key: bool = False) -> int:
        """Where a value begins, or with ``at_key`` its key; for what is missing, where the object or list begins.

        Of a key that is given more than once it is the last, which counts, unless the step is an `Occurrence`.
        """
        at = key_at = self._skip(0)
        for step in location:
            if isinstance(step, int):
                key_at = at = self._item(at, step)
                continue
            given = self._members(at).get(step)
            if given is None:
                return at
            key_at, at = given[step.number if isinstance(step, Occurrence) else -1]
        return key_at if at_key else at

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Both from 1; a column is a character, a tab too."""
        if self._line_ends is None:
            self._line_ends = [match.start() for match in re.finditer("\n", self._text)]
        line = bisect_left(self._line_ends, offset)
        return line + 1, offset - (self._line_ends[line - 1] if line else -1)

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        assert match is not None
        return match.end()

    def _members(self, start: int) -> dict[str, list[tuple[int, int]]]:
        """Key -> where each of it and its value begin; none where no object begins."""
        if start not in self._objects:
            found = self._objects[start] = {}
            at = self._skip(start + 1) if self._text[start] == "{" else start + 1
            while self._text[start] == "{" and self._text[at] != "}":
                key, end = _scan(self._text, at)
                value = self._skip(self._skip(end) + 1)
                found.setdefault(key, []).append((at, value))
                at = self._skip(_scan(self._text, value)[1])
                if self._text[at] == ",":
                    at = self._skip(at + 1)
        return self._objects[start]

    def _item(self, start: int, index: int) -> int:
        """Where an entry begins; the list itself where it has fewer."""
        if start not in self._lists:
            self._lists[start] = ([], self._items(start))
        found, more = self._lists[start]
        while len(found) <= index:
            at = next(more, None)
            if at is None:
                return start
            found.append(at)
        return found[index]

    def _items(self, start: int) -> Iterator[int]:
        if self._text[start] != "[":
            return
        at = self._skip(start + 1)
        while self._text[at] != "]":
            yield at
            at = self._skip(_scan(self._text, at)[1])
            if self._text[at] == ",":
                at = self._skip(at + 1)
