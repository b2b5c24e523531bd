"""However a run ends, no row is lost and nothing of it stays."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from containernet_env.results.run_directory import find_run
from tests.docker.conftest import COMMAND, PROJECT
from tests.docker.machine_state import left_over, snapshot

pytestmark = pytest.mark.docker

CONFIG = PROJECT / "configs" / "3node-3ms.json"
# Errors of the two rows: before the matrix, between its begin and that of the first scenario, in that.
_NOT_RUN = "not run: interrupted by SIGINT"
AFTER_CTRL_C = ([], [_NOT_RUN, _NOT_RUN], ["interrupted", _NOT_RUN])
# Moments of a run, in seconds after its start: imports, containers, links, cluster, first scenario, later in it.
MOMENTS_S = (0.1, 0.4, 0.7, 1.0, 1.4, 1.8, 2.3, 3.0, 4.5, 6.0)


def start(scenarios: Path, out: Path, config: Path = CONFIG, *options: str) -> subprocess.Popen[str]:
    """Begin a run in a process group of its own, as a shell does."""
    return subprocess.Popen(
        [str(COMMAND), "run", str(config), str(out), "--scenarios", str(scenarios), "--port", "18080", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(run: subprocess.Popen[str], timeout_s: float = 60) -> str:
    """Wait for a run that should be ending; its output."""
    try:
        output, _ = run.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        raise
    return output


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(out.read_text().splitlines())) if out.exists() else []


def wait_until_measuring(run: subprocess.Popen[str], out: Path, deadline_s: float = 40) -> None:
    """Wait until the first scenario of a run is being measured: its member answers puts."""
    assert run.stdout is not None
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        line = run.stdout.readline()
        if line.split()[:1] == ["cluster"]:
            break
    else:
        raise AssertionError("the run did not bring its cluster up")
    while "matrix_began" not in (find_run(out) / "events.jsonl").read_text():
        assert time.monotonic() < deadline and run.poll() is None, "the run did not begin to measure"
        time.sleep(0.005)


@pytest.fixture
def unchanged_machine() -> Iterator[None]:
    """Fails the test if anything is on the machine afterwards that was not there before."""
    before = snapshot()
    yield
    assert left_over(before) == {}


@pytest.mark.usefixtures("unchanged_machine")
def test_success_leaves_rows_and_nothing_else(tiny: Path, tmp_path: Path) -> None:
    run = start(tiny, tmp_path / "out.csv")
    output = end(run)
    assert run.returncode == 0, output
    found = rows(tmp_path / "out.csv")
    assert [row["TestType"] for row in found] == ["write", "write", "read", "read"]
    assert {row["Error"] for row in found} == {"-"}, output
    # RTT 6 ms to a member and 12 ms between members: no write or linearizable read can be faster than 18 ms.
    by_name = {row["Scenario"]: row for row in found}
    for name, row in by_name.items():
        least = 0.006 if name.startswith("read-s") else 0.018
        assert float(row["Fastest"]) >= least, (name, row["Fastest"])
    assert {row["RttExpected_ms"] for row in found} == {"12.003"}


@pytest.mark.usefixtures("unchanged_machine")
@pytest.mark.parametrize("moment", MOMENTS_S)
def test_ctrl_c_at_any_moment(moment: float, long: Path, tmp_path: Path) -> None:
    run = start(long, tmp_path / "out.csv")
    time.sleep(moment)
    os.killpg(run.pid, signal.SIGINT)
    output = end(run)
    assert run.returncode in (130, -signal.SIGINT), output
    if moment > MOMENTS_S[0]:  # until Python has started it tells in its own way where it was struck
        assert "Traceback" not in output and "ignored" not in output, output
    assert [row["Error"] for row in rows(tmp_path / "out.csv")] in AFTER_CTRL_C


@pytest.mark.usefixtures("unchanged_machine")
@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]
)
def test_a_stopped_run_leaves_a_row_interrupted(signum: int, code: int, long: Path, tmp_path: Path) -> None:
    run = start(long, tmp_path / "out.csv")
    wait_until_measuring(run, tmp_path / "out.csv")
    time.sleep(1)
    os.kill(run.pid, signum)
    time.sleep(0.05)  # pending together, the lower number would be handled first
    os.kill(run.pid, signal.SIGINT)  # an impatient second one changes nothing
    output = end(run)
    assert run.returncode == code, output
    assert [row["Error"] for row in rows(tmp_path / "out.csv")] == [
        "interrupted",
        f"not run: interrupted by {signal.Signals(signum).name}",
    ]


@pytest.mark.usefixtures("unchanged_machine")
@pytest.mark.parametrize("whole_group", [False, True])
def test_after_kill_9_the_next_run_cleans_up(whole_group: bool, long: Path, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    run = start(long, out)
    wait_until_measuring(run, out)
    time.sleep(0.5)
    (os.killpg if whole_group else os.kill)(run.pid, signal.SIGKILL)
    end(run)
    following = start(tiny, out)
    output = end(following)
    assert following.returncode == 0, output
    assert "left behind" in output
    assert [row["Error"] for row in rows(out)] == ["-"] * 4


@pytest.mark.usefixtures("unchanged_machine")
def test_clean_removes_what_is_ours_and_only_that(long: Path, tmp_path: Path) -> None:
    from containernet_env.hosts import engine

    client = engine.client()
    image = next(image.id for image in client.images.list(filters={"label": engine.LABEL}))
    theirs = client.containers.create(image, name="cnenv-not-ours", command="sh")
    try:
        run = start(long, tmp_path / "out.csv")
        wait_until_measuring(run, tmp_path / "out.csv")
        kept = subprocess.run([str(COMMAND), "clean"], capture_output=True, text=True, check=True).stdout
        assert kept.count("kept container") == 4, kept
        os.killpg(run.pid, signal.SIGKILL)
        end(run)
        removed = subprocess.run([str(COMMAND), "clean"], capture_output=True, text=True, check=True).stdout
        assert removed.count("removed container") == 4, removed
        theirs.reload()
    finally:
        theirs.remove()


@pytest.mark.usefixtures("unchanged_machine")
def test_a_second_run_at_once_is_refused(long: Path, tiny: Path, tmp_path: Path) -> None:
    first = start(long, tmp_path / "first.csv")
    wait_until_measuring(first, tmp_path / "first.csv")
    second = start(tiny, tmp_path / "second.csv")
    output = end(second)
    assert second.returncode == 1
    assert f"another run is on (process {first.pid})" in output
    os.kill(first.pid, signal.SIGINT)
    end(first)
    assert first.returncode == 130
