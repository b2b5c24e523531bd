"""HTML that cannot be broken out of: text is escaped where it becomes HTML, and nowhere else can it become HTML.

`Html` is made by `element`, `joined` and `trusted` alone; the latter is for what travels with the program.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable
from typing import Any

_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_VOID = frozenset({"meta", "link", "input", "br"})


class Html:
    """Some HTML. It is no ``str``, so that it cannot be joined with text that is not escaped."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


Child = Html | str | int | None


def trusted(text: str) -> Html:
    """HTML, style or script of our own or of Plotly; never anything that was read from a user's file."""
    return Html(text)


def joined(children: Iterable[Child]) -> Html:
    """Children one after the other; text among them is escaped."""
    return Html("".join(map(_of, children)))


def element(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """An element; ``class_`` and ``data_x`` are its attributes class and data-x; what is None or False is absent."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        words.append(attribute if value is True else f'{attribute}="{html.escape(_text(value), quote=True)}"')
    start = f"<{' '.join(words)}>"
    return Html(start if name in _VOID else f"{start}{joined(children)}</{name}>")


def _of(child: Child) -> str:
    if child is None:
        return ""
    return str(child) if isinstance(child, Html) else html.escape(_text(child), quote=True)


def _text(value: str | int) -> str:
    """Text without what no HTML can hold: control characters, and halves of surrogate pairs."""
    return _NO_TEXT.sub("\ufffd", str(value))


def json_block(name: str, value: Any) -> Html:
    """Data for scripts, in a block that nothing in it can end; NaN is none of JSON."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return element("script", Html(safe), type="application/json", id=name)


def hash_of(text: str) -> str:
    """What a Content-Security-Policy calls an inline script or style that may be there."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
