"""Commands in this process: the whole answer, the same on every machine; and files that are made from the program.

Such files and parts of files are kept as they should be, and rewritten by --snapshot-update.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from syrupy.assertion import SnapshotAssertion

from containernet_env import cli
from containernet_env.base import assets

COMMAND = "run: pytest tests/unit --snapshot-update"


class Answer(NamedTuple):
    """How a command ended and what it printed."""

    code: object
    out: str
    err: str


def run(*words: object) -> Answer:
    """Run a command; whatever it raises but an exit comes out here."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    code: object = None
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            cli.main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code
    printed = []
    for stream in streams:
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        printed.append(stream.buffer.getvalue().decode())
    return Answer(code, *printed)


def answer(*words: object, **places: Path) -> str:
    """Exit status, standard output and standard error of a command, on a terminal of 120 columns that has no colours.

    Each path of ``places`` is shown by its name; those of the project are relative to it.
    """
    with mock.patch.dict(os.environ, {"COLUMNS": "120"}):
        code, out, err = run(*words)
    shown = f"exit status {code}\n{out}{err}"
    for name, place in sorted(places.items(), key=lambda item: -len(str(item[1]))):
        shown = shown.replace(str(place), name.upper())
    return shown.replace(f"{assets.ROOT}/", "")


def check_file(path: Path, wanted: str, snapshot: SnapshotAssertion) -> None:
    """A file is what the program makes of it."""
    if snapshot.session.update_snapshots:
        path.write_text(wanted)
    assert path.read_text() == wanted, COMMAND


def check_block(page: Path, name: str, source: str, text: str, snapshot: SnapshotAssertion) -> None:
    """A page has the block ``name`` as ``source`` makes it."""
    begin, end = f"<!-- {name}: made from {source} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    assert found and found_end, f"{page} has no block {name}"
    check_file(page, f"{before}{begin}{text}{end}{after}", snapshot)
