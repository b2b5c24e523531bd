"""Bad input of every kind: accepted, or refused with a message that names it; nothing else happens.

``CONTAINERNET_ENV_INPUTS`` is how many inputs are generated in all, 5,000 unless it is set. As many as that are the
same each time; any other number takes new ones.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = 5000
INPUTS = int(os.environ.get("CONTAINERNET_ENV_INPUTS") or DEFAULT)
# Percent of all inputs. Those of `valid` and `tables` take the longest: the first plan every file twice, the others
# have columns by the hundred thousand.
SHARES = {"topologies": 27, "scenarios": 25, "runs": 18, "words": 14, "tables": 10, "valid": 6}
SLOWEST_S = 1.0
"""What an input may take on average, so that a batch that hangs ends: ten times what the slowest kind takes."""
BATCH = 500
"""As many random inputs are in one process at most, since the memory of the process is watched.

Hypothesis remembers what it generated: 1,500 tables took 763 MiB with a property that does nothing, and 830 MiB with
the real one. The program keeps nothing: 60 tables, each answered 20 times, took 119 MiB after 117. Inputs that are the
same each time are in one process: the next one would begin with the same inputs.
"""

Ended = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def batches(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ended]]]:
    """Each kind that is selected -> its batch, as many at a time as there are cores, the longest first."""
    selected = {
        item.callspec.params.get("kind")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    folder = tmp_path_factory.mktemp("input")
    environment = os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    random = INPUTS != DEFAULT

    def run(kind: str) -> Ended:
        """The batches of a kind one after the other, up to the first that fails; the last one is returned."""
        left = INPUTS * SHARES[kind] // 100
        while True:
            count = min(left, BATCH) if random else left
            ended = run_batch(kind, count)
            left -= count
            if ended.returncode != 0 or not left:
                return ended

    def run_batch(kind: str, count: int) -> Ended:
        command = [sys.executable, "-m", "tests.input.batch", kind, str(count), *(["--random"] if random else [])]
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60 + SLOWEST_S * count,
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {kind: pool.submit(run, kind) for kind in reversed(SHARES) if kind in selected}


def test_the_shares_make_a_whole() -> None:
    assert sum(SHARES.values()) == 100


@pytest.mark.parametrize("kind", SHARES)
def test_bad_input_is_answered(batches: dict[str, Future[Ended]], kind: str) -> None:
    ended = batches[kind].result()
    print(ended.stdout, end="")
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-15000:]


LARGEST = 1 << 20
WRONG_EVERYWHERE = {
    "commas": "[" + ",]" * (LARGEST // 2 - 2),
    "one key": "{" + '"a":1,' * (LARGEST // 6 - 3) + '"a":1}',
    "odd keys": "[" + ",".join("{" + ",".join(f'"k{n}":1' for n in range(1000)) + "}" for _ in range(90)) + "]",
}


@pytest.mark.parametrize("text", WRONG_EVERYWHERE.values(), ids=WRONG_EVERYWHERE)
def test_a_large_file_that_is_wrong_in_every_place_is_answered(tmp_path: Path, text: str) -> None:
    """4 MiB of commas took 1.3 GiB and 20 s; these take up to 6 s of a core's time, and longer beside other rings."""
    path = tmp_path / "large.json"
    path.write_text(text)
    memory_bytes, cpu_s = 768 << 20, 60

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))

    ended = subprocess.run(
        [sys.executable, "-c", "from containernet_env.cli import main; main()", "check", str(path)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=10 * cpu_s,  # for one that waits; where the cores are busy, time passes that is not its own
        preexec_fn=bound,
    )
    assert ended.returncode == 2 and f"{path} is refused:" in ended.stderr, ended.stderr[-3000:]
