"""The names of generated keys, as the benchmark server makes them, and which of them a read requests. Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The digits of a key's number, in the order in which keys sort."""

Answer = Literal["values", "keys", "count"]


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys ``prefix`` + number in ``size`` bytes, for the numbers 0 to before ``count``; they sort as their numbers."""

    size: int
    count: int
    prefix: str = ""

    def name(self, number: int) -> str:
        """The key of a number."""
        digits = []
        while number:
            number, digit = divmod(number, len(ALPHABET))
            digits.append(ALPHABET[digit])
        return self.prefix + "".join(reversed(digits)).rjust(self.size, ALPHABET[0])

    def within(self, start: str, end: str) -> range:
        """The numbers of the keys from ``start`` to before ``end``, both ASCII."""
        numbers = range(self.count)
        first, last = (bisect_left(numbers, bound, key=self.name) for bound in (start, end))
        return range(first, max(first, last))


@dataclass(frozen=True, slots=True)
class Span:
    """What one read requests: at most one of ``prefix``, ``start`` with ``end``, and ``keys``; without any, one key.

    ``prefix``: all keys that start with it. ``start``, ``end``: all keys from ``start`` to before ``end``. ``keys``: a
    range scan of this many consecutive keys of the data set from the next key on, fewer at its end. An answer holds
    the first ``limit`` of them (``None``: all) with their values, or the keys alone, or only their count.
    """

    prefix: str | None = None
    start: str | None = None
    end: str | None = None
    keys: int | None = None
    limit: int | None = None
    answer: Answer = "values"

    @property
    def named(self) -> bool:
        """Whether every read requests the same keys, by name."""
        return self.prefix is not None or self.start is not None

    @property
    def label(self) -> str:
        """What a scenario's name says of it; empty for one key with its value."""
        of = {"values": "", "keys": "keysonly", "count": "countonly"}[self.answer]
        limit = "" if self.limit is None else f"limit{self.limit}"
        return "-".join(filter(None, (self._extent("prefix:", "..", "span"), limit, of)))

    @property
    def shown(self) -> str:
        """What the CSV says of the keys that are requested, without limit and answer."""
        extent = self._extent("prefix ", " to ", "")
        return extent if self.named else "1 key" if self.keys in (None, 1) else f"{extent} keys"

    def _extent(self, of_prefix: str, between: str, of_keys: str) -> str:
        if self.prefix is not None:
            return f"{of_prefix}{self.prefix}"
        if self.start is not None:
            return f"{self.start}{between}{self.end}"
        return "" if self.keys is None else f"{of_keys}{self.keys}"

    def bounds(self, dataset: Keys) -> tuple[str, str]:
        """The smallest key that a read may find, and the end of the range, exclusive."""
        if self.prefix is not None:
            return self.prefix, after_prefix(self.prefix)
        if self.start is not None and self.end is not None:
            return self.start, self.end
        return dataset.name(0), dataset.name(dataset.count - 1) + "\0"

    def answered(self, dataset: Keys) -> int:
        """How many keys an answer holds at most."""
        if self.answer == "count":
            return 0
        asked = len(dataset.within(*self.bounds(dataset))) if self.named else min(self.keys or 1, dataset.count)
        return asked if self.limit is None else min(asked, self.limit)


ONE_KEY = Span()


def is_path(prefix: str) -> bool:
    """Whether what comes before the names of keys stays what it is in a path: no part of it is empty or dots."""
    return set(prefix.split("/")[:-1]).isdisjoint(("", ".", ".."))


def after_prefix(prefix: str) -> str:
    """The smallest key after all keys that start with ``prefix``, ASCII of at least one character."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
