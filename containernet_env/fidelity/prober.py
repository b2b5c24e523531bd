"""The program that measures between hosts (``link-emulator rtt`` and ``probe``): one JSON request, one JSON answer."""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from containernet_env.base import assets, clock, life
from containernet_env.base.endings import ending
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.network.emulator.process import default_binary

_LOOK_S = 0.1
_NAMES = {"rtt": "the RTT measurement", "probe": "the network's measurement"}

Broken = Callable[[], str | None]
"""Why measuring any longer is pointless; ``None`` while it is not."""


def never_broken() -> None:
    """The default of ``broken``: the network is never known to be broken."""


def ask(
    verb: Literal["rtt", "probe"],
    request: Mapping[str, Any],
    limit_s: float,
    broken: Broken = never_broken,
    binary: Path | str | None = None,
) -> dict[str, Any]:
    """Have the prober carry a request out; its answer.

    Raises ``RunError`` where it fails or takes longer than ``limit_s``, and as soon as ``broken`` gives a reason, with
    that reason; ``MissingRequirementError`` where there is no prober.
    """
    program = Path(binary) if binary is not None else default_binary()
    try:
        process = subprocess.Popen(
            [str(program), verb, "--life-fd", str(life.descriptor())],
            pass_fds=(life.descriptor(),),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
            raise  # a limit of this process, which no set-up changes
        raise MissingRequirementError(
            f"the network's prober cannot be started: {program}: {error.strerror}",
            assets.set_up_hint(),
        ) from error
    with process:
        try:
            out, err = _communicate(process, json.dumps(request), limit_s, broken, _NAMES[verb])
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise RunError(f"{_NAMES[verb]} failed: {ending(process.returncode, err)}")
    try:
        return dict(json.loads(out))
    except ValueError as error:
        raise RunError(f"{_NAMES[verb]}'s answer cannot be read: {out[:80]!r}") from error


def _communicate(
    process: subprocess.Popen[str], text: str, limit_s: float, broken: Broken, name: str
) -> tuple[str, str]:
    """Give ``text`` to a process and return what it writes; ``RunError`` after ``limit_s`` or by ``broken``."""
    deadline = clock.monotonic() + limit_s
    rest: str | None = text
    while True:
        if (reason := broken()) is not None:
            raise RunError(reason)
        try:
            return process.communicate(rest, timeout=_LOOK_S)
        except subprocess.TimeoutExpired as error:
            rest = None  # the process has it: communicate continues where it was
            if clock.monotonic() > deadline:
                raise RunError(f"{name} took more than {limit_s:.0f} s") from error
