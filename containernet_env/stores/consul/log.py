"""Lines of a Consul agent's log: what counts as a warning, and what the log tells of the agent's end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from containernet_env.base.programs import crash_line, one_line

# hclog's text form: time, level, logger, message, and perhaps fields ("key=value") after a colon.
LINE = re.compile(
    r"^(?P<at>[0-9-]{10}T[0-9:.]+(?:Z|[+-][0-9:]{4,5})) \[(?P<level>[A-Z]+)\] +(?P<logger>[\w.-]+): "
    r"(?P<message>[^\n]*?)(?P<fields>: [\w-]+=[^\n]*)?$",
    re.MULTILINE,
)
_ERRORS = ("ERROR",)
_WARNINGS = ("WARN", *_ERRORS)
# No warnings to Consul, but what people look for in its log.
_TOLD = re.compile(r"(?:creating new snapshot|starting snapshot|Installed remote snapshot|[Ee]lection won)")
_ELECTED = "New leader elected"
# What it says when SIGTERM or SIGINT came, the errors that follow are of its own closing; and the last line of all.
_SIGNALLED = "Caught"
# Before the agent is up it warns in every run, of its own settings.
_READY = "Consul agent running!"
# Numbers and addresses: what tells one line from another of its kind.
_VARYING = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\[::\]:[0-9]+|\b[0-9]+(?:\.[0-9]+)*(?::[0-9]+)?\b"
)
_MOST_KINDS, OTHERS = 20, "(other warnings)"
_MILLISECONDS = len("2026-01-01T00:00:00.000")


def _between(log: str, began: str, ended: str) -> list[re.Match[str]]:
    first, last = began[:_MILLISECONDS], ended[:_MILLISECONDS]
    return [line for line in LINE.finditer(log) if first <= line["at"][:_MILLISECONDS] <= last]


def warnings_between(log: str, began: str, ended: str) -> Mapping[str, int]:
    """How many warnings, snapshots and won elections a log has from one moment to the other, by their message.

    The moments are ISO 8601 in UTC, to the millisecond, both included. What varies in messages is left out.
    """
    found: Counter[str] = Counter()
    for line in _between(log, began, ended):
        if line["level"] not in _WARNINGS and _TOLD.search(line["message"]) is None:
            continue
        kind = one_line(_VARYING.sub("N", line["message"]))
        found[kind if kind in found or len(found) < _MOST_KINDS else OTHERS] += 1
    return dict(found)


def elections_between(log: str, began: str, ended: str) -> int:
    """How often the agent heard of a new leader."""
    return sum(line["message"] == _ELECTED for line in _between(log, began, ended))


def last_words(log: str, killed: bool) -> str:
    """See ``base.endings.LastWords``: a Go crash, else the last error, or warning once it was up; no information.

    Of a log that has no line in Consul's form (an unknown flag, a setting that it refuses), its first line.
    """
    lines = list(LINE.finditer(log))
    if (crash := crash_line(log)) is not None:
        return crash
    if not lines:
        return "" if killed else one_line(log.strip().partition("\n")[0].removeprefix("==> "))
    told, ready = None, False
    for line in lines:
        if line["message"] == _SIGNALLED:
            return _said("shut down by a signal", line)
        ready = ready or line["message"] == _READY
        if line["level"] in _ERRORS or (ready and line["level"] == "WARN"):
            told = line
    if told is None:
        return ""
    level = "error" if told["level"] in _ERRORS else "warning"
    return _said(f"last {level}: {told['message']}" if killed else told["message"], told)


def _said(text: str, line: re.Match[str]) -> str:
    """A message, and its fields, which have the cause."""
    return one_line(text + (line["fields"] or ""))
