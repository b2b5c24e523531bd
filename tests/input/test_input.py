"""Bad input of every kind: accepted, or refused with a message that names it; nothing else happens.

``CONTAINERNET_ENV_INPUTS`` is how many inputs are generated in all: 300, or very many where ``CONTAINERNET_ENV_SEEDS``
is ``long``. ``CONTAINERNET_ENV_SEED``, by default 0, makes others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas  # noqa: F401  # imported here, so that no input is charged for it
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from containernet_env.base.errors import UsageError
from containernet_env.runs import machine, manifest, measure, rerun
from containernet_env.setup.images import Images
from tests.input import guard
from tests.input.kinds import ALL_FILES, Kinds
from tests.simulated_time import LONG
from tests.unit import manifests

SEED = int(os.environ.get("CONTAINERNET_ENV_SEED") or 0)
INPUTS = int(os.environ.get("CONTAINERNET_ENV_INPUTS") or (20_000 if LONG else 300))
# Percent of all inputs. Those of `valid` and `tables` take the longest: the first plan every file twice, the others
# have columns by the hundred thousand.
SHARES = {"topologies": 27, "scenarios": 25, "runs": 18, "words": 14, "tables": 10, "valid": 6}


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a command that is watched, on a machine that is none, of a user who is not root.

    Root would try the kernel out for some options: what is tried here is the input alone.
    """

    def begins(*_: object, **__: object) -> None:
        raise UsageError("a run would begin here: an option took --dry-run for its value")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(measure, "carry_out", begins)
    monkeypatch.setattr(rerun, "require_root", lambda: None)
    monkeypatch.setattr(rerun, "required_images", lambda *of: Images(member="e", benchmark="b"))
    monkeypatch.setattr(rerun.engines, "foreseen", lambda plan: manifests.LINKS)
    monkeypatch.setattr(machine, "facts", lambda: manifests.MACHINE)
    monkeypatch.setattr(manifest.images, "digest", lambda tag: f"sha256:{tag}")
    monkeypatch.setattr(manifest, "program_facts", lambda: manifests.PROGRAM)
    guard.install()
    yield tmp_path
    left = {path.name for path in tmp_path.rglob("*")}
    allowed = {"in", "topology.json", "scenarios.json", "out.csv", "run", "logs", "inputs", "empty", "large.json"}
    assert left <= allowed | {Path(name).name for name in ALL_FILES}, left


@pytest.mark.parametrize("kind", SHARES)
def test_bad_input_is_answered(scratch: Path, kind: str) -> None:
    strategy, property_of = Kinds(scratch / "in").strategies[kind]

    # No time is judged: what hangs is ended by the guard.
    @seed(SEED)
    @settings(
        max_examples=max(1, INPUTS * SHARES[kind] // 100),
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(strategy)
    def holds(value: Any) -> None:
        property_of(value)

    guard.judgements.clear()
    holds()
    print(f"{kind}, seed {SEED}: {dict(guard.judgements)}")


LARGEST = 1 << 18
WRONG_EVERYWHERE = {
    "commas": "[" + ",]" * (LARGEST // 2 - 2),
    "one key": "{" + '"a":1,' * (LARGEST // 6 - 3) + '"a":1}',
    "odd keys": "[" + ",".join("{" + ",".join(f'"k{n}":1' for n in range(1000)) + "}" for _ in range(24)) + "]",
}


@pytest.mark.parametrize("text", WRONG_EVERYWHERE.values(), ids=WRONG_EVERYWHERE)
def test_a_large_wrong_file_is_answered(scratch: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MiB of commas took 1.3 GiB."""
    monkeypatch.setattr(guard, "MEMORY_BYTES", 512 * LARGEST)
    path = scratch / "large.json"
    path.write_text(text)
    result = guard.answer("check", str(path))
    assert result.code == 2 and f"{path} is refused:" in result.err, result.err[-3000:]
