"""The prober, which measures one-way delays in the hosts' namespaces, and tolerances of round trips."""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from containernet_env.base import assets, clock, programs
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.base.programs import ending
from containernet_env.base.units import parse_cpus, parse_duration
from containernet_env.network.emulator import default_binary

_LOOK_S = 0.1

Broken = Callable[[], str | None]
"""The reason to abort a measurement, or ``None`` while there is none."""


def probe(
    request: Mapping[str, Any],
    limit_s: float,
    broken: Broken = lambda: None,
    binary: Path | str | None = None,
) -> dict[str, Any]:
    """Run the prober with ``request`` as its input; return its answer.

    Raises ``RunError`` if it fails or takes longer than ``limit_s``, and as soon as ``broken`` returns a reason, with
    that reason; ``MissingRequirementError`` if the prober is not built.
    """
    program = Path(binary) if binary is not None else default_binary()
    try:
        process = subprocess.Popen(
            [str(program), "probe", "--life-fd", str(programs.descriptor())],
            pass_fds=(programs.descriptor(),),
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
            out, err = _communicate(process, json.dumps(request), limit_s, broken)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise RunError(f"the network's measurement failed: {ending(process.returncode, err)}")
    try:
        return dict(json.loads(out))
    except ValueError as error:
        raise RunError(f"the answer of the network's measurement cannot be read: {out[:80]!r}") from error


def _communicate(process: subprocess.Popen[str], text: str, limit_s: float, broken: Broken) -> tuple[str, str]:
    """Write ``text`` to a process and return its output. Raises ``RunError`` after ``limit_s`` or by ``broken``."""
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
                raise RunError(f"the network's measurement took more than {limit_s:.0f} s") from error


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a measured RTT may be from the expected one: the larger of both."""

    absolute_ns: int = 500_000
    ratio: float = 0.10

    @classmethod
    def parse(cls, text: str) -> Tolerance:
        """Read "1ms", "15%" or both, "1ms,15%"; if only one is given, the other is 0. Raises ``UsageError``."""
        absolute_ns, ratio = 0, 0.0
        words = [word.strip() for word in text.split(",")]
        try:
            if len(words) > 2 or len({word.endswith("%") for word in words}) != len(words):
                raise ValueError("one duration and one percentage")
            for word in words:
                if word.endswith("%"):
                    ratio = float(parse_cpus(word[:-1])) / 100
                else:
                    absolute_ns = parse_duration(word)
        except ValueError as error:
            raise UsageError(f"RTT tolerance {text!r}; allowed: a duration, a percentage, or both: 1ms,15%") from error
        return cls(absolute_ns, ratio)
