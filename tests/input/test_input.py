"""Bad input of every kind: accepted, or refused with a message that names it; nothing else happens.

``CONTAINERNET_ENV_INPUTS`` is how many inputs are generated in all, 300 unless it is set: others each time, by a seed
that is printed and that ``CONTAINERNET_ENV_SEED`` replays.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.deadline import HANG_S

ROOT = Path(__file__).resolve().parents[2]
INPUTS = int(os.environ.get("CONTAINERNET_ENV_INPUTS") or 300)
SEED = int(os.environ.get("CONTAINERNET_ENV_SEED") or random.SystemRandom().randrange(10**6))
# Percent of all inputs. Those of `valid` and `tables` take the longest: the first plan every file twice, the others
# have columns by the hundred thousand.
SHARES = {"topologies": 27, "scenarios": 25, "runs": 18, "words": 14, "tables": 10, "valid": 6}
BATCH = 500
"""As many inputs are in one process at most, since the memory of the process is watched.

Hypothesis remembers what it generated: 1,500 tables took 763 MiB with a property that does nothing, and 830 MiB with
the real one. The program keeps nothing: 60 tables, each answered 20 times, took 119 MiB after 117.
"""

Ended = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def batches(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Ended]]:
    """Each selected kind -> the last of its batches, as many at a time as there are cores, the longest first."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    selected = {item.callspec.params.get("kind") for item in items}
    folder = tmp_path_factory.mktemp("input")
    environment = os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(kind: str) -> Ended:
        """The batches of a kind one after the other, up to the first that fails."""
        total = max(1, INPUTS * SHARES[kind] // 100)
        for number, done in enumerate(range(0, total, BATCH)):
            count = min(BATCH, total - done)
            ended = subprocess.run(
                [sys.executable, "-m", "tests.input.batch", kind, str(count), str(SEED + number)],
                cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                timeout=HANG_S * max(10, count // 10),
            )  # fmt: skip
            if ended.returncode != 0:
                break
        return ended

    pool = ThreadPoolExecutor(os.cpu_count())
    request.addfinalizer(pool.shutdown)
    return {kind: pool.submit(run, kind) for kind in reversed(SHARES) if kind in selected}


@pytest.mark.parametrize("kind", SHARES)
def test_bad_input_is_answered(batches: dict[str, Future[Ended]], kind: str) -> None:
    ended = batches[kind].result()
    print(ended.stdout, end="")
    replay = f"CONTAINERNET_ENV_SEED={SEED} CONTAINERNET_ENV_INPUTS={INPUTS} replays this"
    assert ended.returncode == 0, f"{ended.stdout[-5000:]}{ended.stderr[-15000:]}\n{replay}"


LARGEST = 1 << 20
WRONG_EVERYWHERE = {
    "commas": "[" + ",]" * (LARGEST // 2 - 2),
    "one key": "{" + '"a":1,' * (LARGEST // 6 - 3) + '"a":1}',
    "odd keys": "[" + ",".join("{" + ",".join(f'"k{n}":1' for n in range(1000)) + "}" for _ in range(90)) + "]",
}


@pytest.mark.parametrize("text", WRONG_EVERYWHERE.values(), ids=WRONG_EVERYWHERE)
def test_a_large_file_that_is_wrong_in_every_place_is_answered(tmp_path: Path, text: str) -> None:
    """4 MiB of commas took 1.3 GiB; ten times the CPU time that these take hangs."""
    path = tmp_path / "large.json"
    path.write_text(text)
    memory_bytes = 768 << 20

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (int(HANG_S), int(HANG_S)))

    ended = subprocess.run(
        [sys.executable, "-c", "from containernet_env.cli import main; main()", "check", str(path)],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=10 * HANG_S,
        preexec_fn=bound,
    )  # fmt: skip
    assert ended.returncode == 2 and f"{path} is refused:" in ended.stderr, ended.stderr[-3000:]
