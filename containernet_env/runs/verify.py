"""Whether a store kept its promises: histories of a run, judged by the project's own checker (docs/verify.md)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from containernet_env.base import programs
from containernet_env.results.files import replacing
from containernet_env.results.run_directory import KeptHistory

CHECKER = "history-checker"
# Beside its own limit: reading a history, and making the violation small and its picture.
_GRACE_S = 120.0
# The checker's exit statuses (benchmark_image/cmd/history-checker) with which it prints a judgement.
_JUDGED = (0, 1, 4)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The facts about one history. ``verdict`` is ``None`` if nothing was judged, for the ``reason``.

    ``values`` is the checker's complete output; docs/verify.md lists it.
    """

    name: str
    verdict: Literal["ok", "violated", "undecided"] | None
    reason: str
    values: Mapping[str, Any]


def judge(history: KeptHistory, folder: Path, *, time_s: int, memory_bytes: int) -> Judgement:
    """Judge a history within so much time and memory; the judgement, and a picture of a violation, go to ``folder``.

    What an earlier judgement of it left there is removed first.

    Raises ``MissingRequirementError`` if the checker is not built, and OSError if ``folder`` cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    picture, values_file = folder / f"{history.name}.html", folder / f"{history.name}.json"
    argv = [str(programs.path(CHECKER)), f"--time={time_s}s", f"--memory={memory_bytes}", f"--picture={picture}"]
    if history.store is not None:
        argv.append(f"--store={history.store}")
    for stale in (picture, values_file):
        stale.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            [*argv, "--", str(history.client)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=time_s + _GRACE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Judgement(history.name, None, f"{CHECKER} did not end within {error.timeout:g} s", {})
    if done.returncode not in _JUDGED:
        said = done.stderr.strip().removeprefix(f"{CHECKER}: ") or f"{CHECKER} ended with {done.returncode}"
        return Judgement(history.name, None, said.splitlines()[0], {})
    try:
        values = json.loads(done.stdout)
        judgement = Judgement(history.name, values["verdict"], values["reason"], values)
    except (ValueError, KeyError):
        return Judgement(history.name, None, f"{CHECKER} printed no judgement: {done.stdout[:80]!r}", {})
    with replacing(values_file) as file:
        file.write(f"{json.dumps(values, indent=1)}\n".encode())
    return judgement
