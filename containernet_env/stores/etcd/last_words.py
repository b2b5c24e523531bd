"""What an etcd member's log tells of its end."""

from __future__ import annotations

import json
import re

from containernet_env.base.programs import crash_line, one_line
from containernet_env.stores.etcd.log import ENDS, ERRORS, LINE

# Before this one etcd warns in every run, of what it is not to be used for elsewhere.
_READY = "ready to serve client requests"
# What it says, at level info, when SIGTERM or SIGINT came; the errors that follow are of its own closing.
SIGNALLED = "received signal; shutting down"


def last_words(log: str, killed: bool) -> str:
    """See ``base.endings.LastWords``: why it gave up, a Go crash, else its last warning or error; no information.

    Of a log that has no line in etcd's form (an unknown flag, a shell's error), its first line.
    """
    lines = list(LINE.finditer(log))
    if not lines:
        return crash_line(log) or ("" if killed else one_line(log.strip().partition("\n")[0]))
    told, ready = None, False
    for line in lines:
        if line["message"] == SIGNALLED:
            told = line
            break
        ready = ready or line["message"] == _READY
        if line["level"] in ERRORS or (ready and line["level"] == "warn"):
            told = line
    crash = crash_line(log)
    if told is None or (crash is not None and told["level"] not in ENDS):
        return crash or ""
    level = "warning" if told["level"] == "warn" else told["level"]
    return f"last {level}: {_said(told)}" if killed else _said(told)


def _said(line: re.Match[str]) -> str:
    """A line's message, and what its fields say of the cause."""
    try:
        fields = json.loads(line["fields"] or "{}")
    except ValueError:
        fields = {}
    if line["message"] == SIGNALLED:
        return f"shut down by a signal ({fields.get('signal')})"
    cause = fields.get("error")
    return one_line(f"{line['message'].rstrip('.')}: {cause}" if cause else line["message"])
