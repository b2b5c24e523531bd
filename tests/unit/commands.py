"""Commands in this process: the whole answer, the same on every machine."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

from containernet_env import cli
from containernet_env.base import assets


def answer(*words: object, **places: Path) -> str:
    """Exit status, standard output and standard error of a command, on a terminal of 120 columns that has no colours.

    Each path of ``places`` is shown by its name; those of the project are relative to it.
    """
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    code: object = None
    columns = mock.patch.dict(os.environ, {"COLUMNS": "120"})
    with columns, contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            cli.main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code
    shown = f"exit status {code}\n"
    for stream in streams:
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        shown += stream.buffer.getvalue().decode()
    for name, place in sorted(places.items(), key=lambda item: -len(str(item[1]))):
        shown = shown.replace(str(place), name.upper())
    return shown.replace(f"{assets.ROOT}/", "")
