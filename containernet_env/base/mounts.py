"""The form of /proc/PID/mountinfo."""

from __future__ import annotations


def unescape(field: str) -> str:
    """A field as it is meant: space, tab, newline and backslash stand as octal escapes there (proc(5))."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field
