"""Lines of a ZooKeeper member's log: what counts as a warning, and what the log tells of the member's end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from containernet_env.base.programs import one_line

# zookeeper_image/logback.xml and log4j.properties; a stack trace may follow on lines of its own.
LINE = re.compile(
    r"^(?P<at>[0-9-]{10}T[0-9:.]+Z) (?P<level>[A-Z]+) +(?P<logger>[^ \n]+) - (?P<message>[^\n]*)$", re.MULTILINE
)
_WARNINGS = ("WARN", "ERROR")
# No warnings to ZooKeeper, but what people look for in its log.
_TOLD = re.compile(r"^(Snapshotting|LEADING - LEADER ELECTION TOOK|FOLLOWING - LEADER ELECTION TOOK)")
# Numbers, addresses, names of files and sessions: what tells one line from another of its kind.
_VARYING = re.compile(r"0x[0-9a-f]+|/[^ ,]*|\b[0-9]+(?:\.[0-9]+)*(?:ms)?\b")
_MOST_KINDS, OTHERS = 20, "(other warnings)"
_MILLISECONDS = len("2026-01-01T00:00:00.000")
_OUT_OF_MEMORY = re.compile(r"^Terminating due to (java\.lang\.OutOfMemoryError: .*)$", re.MULTILINE)
_JAVA = re.compile(r"^(?:Error: |Exception in thread )(.*)$", re.MULTILINE)


def warnings_between(log: str, began: str, ended: str) -> Mapping[str, int]:
    """How many warnings, snapshots and elections a log has from one moment to the other, by their message.

    The moments are ISO 8601 in UTC, to the millisecond, both included. What varies in messages is left out.
    """
    first, last = began[:_MILLISECONDS], ended[:_MILLISECONDS]
    found: Counter[str] = Counter()
    for line in LINE.finditer(log):
        if not first <= line["at"][:_MILLISECONDS] <= last:
            continue
        told = _TOLD.match(line["message"])
        if told is None and line["level"] not in _WARNINGS:
            continue
        kind = told[1] if told is not None else one_line(_VARYING.sub("N", line["message"]))
        found[kind if kind in found or len(found) < _MOST_KINDS else OTHERS] += 1
    return dict(found)


def last_words(log: str, killed: bool) -> str:
    """See ``base.endings.LastWords``: that Java had no memory left, else the last error or warning."""
    if (memory := _OUT_OF_MEMORY.search(log)) is not None:
        return one_line(memory[1])
    told = [line for line in LINE.finditer(log) if line["level"] in _WARNINGS]
    errors = [line for line in told if line["level"] == "ERROR"]
    if errors or told:
        # Errors tell more than the warnings of connections that end with the member.
        line = (errors or told)[-1]
        level = "error" if errors else "warning"
        return one_line(f"last {level}: {line['message']}" if killed else line["message"])
    if (java := _JAVA.search(log)) is not None:
        return one_line(java[0])
    return "" if killed or LINE.search(log) else one_line(log.strip().partition("\n")[0])
