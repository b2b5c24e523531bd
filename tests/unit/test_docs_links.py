"""The Markdown files: every relative link leads somewhere, and prose fits the page."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
MAX_COLUMNS = 120

_LINK = re.compile(r"\[[^\[\]]*\]\(([^()\s]+)\)")
_INLINE_CODE = re.compile(r"(`+).*?\1", re.DOTALL)


def markdown_files() -> list[str]:
    """Paths relative to the project; hidden directories hold caches and virtual environments."""
    found = []
    for directory, subdirectories, names in os.walk(ROOT):
        subdirectories[:] = [name for name in subdirectories if not name.startswith(".")]
        found += [str(Path(directory, name).relative_to(ROOT)) for name in names if name.endswith(".md")]
    return sorted(found)


def outside_code(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without fenced and indented code blocks."""
    fence, indented, before = "", False, ""
    for number, line in enumerate(text.splitlines(), 1):
        marker = re.match(r" *(```+|~~~+)", line)
        if marker is not None and (not fence or marker[1].startswith(fence)):
            fence = "" if fence else marker[1]
        elif not fence:
            indented = line.startswith("    ") and (indented or not before.strip())
            if not indented:
                yield number, line
        before = line


def anchors(text: str) -> set[str]:
    """What GitHub makes of the headings: lower case, no punctuation, hyphens for spaces, a number if repeated."""
    made: dict[str, int] = {}
    found = set()
    for _, line in outside_code(text):
        if (heading := re.match(r"#{1,6} +(.*)", line)) is not None:
            slug = re.sub(r"[^\w\- ]", "", heading[1].strip().lower()).replace(" ", "-")
            count = made.get(slug, 0)
            made[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
    return found


def broken(file: Path) -> list[str]:
    """The targets of a file's links that lead nowhere; a link may be broken over two lines."""
    dead = []
    text = "\n".join(line for _, line in outside_code(file.read_text("utf-8")))
    for target in _LINK.findall(_INLINE_CODE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        found = file.parent / path if path else file
        if not found.exists() or (anchor and anchor not in anchors(found.read_text("utf-8"))):
            dead.append(target)
    return dead


def test_every_relative_link_leads_somewhere() -> None:
    assert {name: dead for name in markdown_files() if (dead := broken(ROOT / name))} == {}


def test_no_line_of_prose_is_too_long() -> None:
    """But for table rows and lines with an address."""
    assert [
        (name, number)
        for name in markdown_files()
        for number, line in outside_code((ROOT / name).read_text("utf-8"))
        if len(line) > MAX_COLUMNS and not line.lstrip().startswith("|") and "://" not in line
    ] == []
