"""Lines of an etcd member's log, and the warnings in it, counted by what they say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

# etcd's log in the form "console" (zap's ConsoleEncoder): time, level, perhaps a logger, caller, message, perhaps
# fields as JSON, with tabs between; a stack trace may follow on lines of its own.
LINE = re.compile(
    r"^(?P<at>[0-9-]{10}T[0-9:.]+Z)\t(?P<level>[a-z]+)\t(?:[^\t\n]*\t)?[^\t\n]+\.go:[0-9]+"
    r"\t(?P<message>[^\t\n]*)(?:\t(?P<fields>\{.*\}))?$",
    re.MULTILINE,
)
ENDS = ("dpanic", "panic", "fatal")
"""Levels of a line after which there is none."""
ERRORS = ("error", *ENDS)
# Ids of members, as raft's own messages have them: "8e9e05c52164694d stepped down to follower ...".
_ID = re.compile(r"\b[0-9a-f]{13,16}\b")
# The lines of a member say few things; more kinds than these are counted together.
_MOST_KINDS, OTHERS = 20, "(other warnings)"
# Times have microseconds, those that they are compared with milliseconds: both in UTC, so that text can be compared.
_MILLISECONDS = len("2026-01-01T00:00:00.000")


def warnings_between(log: str, began: str, ended: str) -> Mapping[str, int]:
    """How many lines of level warning and above a log has from one moment to the other, by their message.

    The moments are ISO 8601 in UTC, to the millisecond, both included. Ids in messages are left out.
    """
    first, last = began[:_MILLISECONDS], ended[:_MILLISECONDS]
    found: Counter[str] = Counter()
    for line in LINE.finditer(log):
        if line["level"] not in ("warn", *ERRORS) or not first <= line["at"][:_MILLISECONDS] <= last:
            continue
        kind = _ID.sub("ID", line["message"])
        found[kind if kind in found or len(found) < _MOST_KINDS else OTHERS] += 1
    return dict(found)
