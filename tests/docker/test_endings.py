"""However a run ends, no row is lost and nothing of it stays."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.deadline import eventually
from tests.docker.conftest import COMMAND, PROJECT
from tests.docker.machine_state import left_over, snapshot

pytestmark = pytest.mark.docker

CONFIG = PROJECT / "configs" / "3node-3ms.json"
# Errors of the two rows: before the matrix, between its begin and that of the first scenario, in that.
_NOT_RUN = "not run: interrupted by SIGINT"
AFTER_CTRL_C = ([], [_NOT_RUN, _NOT_RUN], ["interrupted", _NOT_RUN])
# Moments of a run: the first call of each of these functions on its main thread, in their order.
MOMENTS = (
    "main",  # Ctrl-C is heard, the command is not imported yet
    "LazyGroup.get_command",
    "prepare",
    "RunLock.__enter__",
    "remove_leftovers",
    "Testbed._start_hosts",
    "Testbed._connect",
    "NetworkProver.prove",
    "Testbed._start_cluster",
    "Matrix.run",
    "Follower.follow",
    "Course.look",
)
STRUCK = """
import os, signal, sys

heard = False

def press(frame, event, arg):
    global heard
    name = frame.f_code.co_qualname
    heard = heard or (name, event) == ("hear_ctrl_c", "return")
    if heard and (name, event) == ({moment!r}, "call"):
        sys.setprofile(None)
        os.killpg(0, signal.SIGINT)

sys.setprofile(press)
from containernet_env.__main__ import main
sys.exit(main())
"""
"""A program that is the command, and presses Ctrl-C for its process group at a moment."""


def start(
    scenarios: Path, out: Path, config: Path = CONFIG, *options: str, command: Sequence[str] = (str(COMMAND),)
) -> subprocess.Popen[str]:
    """Begin a run in a process group of its own, as a shell does."""
    return subprocess.Popen(
        [*command, "run", str(config), str(out), "--scenarios", str(scenarios), "--port", "18080", *options],
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


def wait_for_event(kind: str, run: subprocess.Popen[str], out: Path) -> None:
    """Wait until a run has forced such an event to disk."""

    def happened() -> bool:
        assert run.poll() is None, "the run has ended"
        return any(kind in path.read_text() for path in out.with_suffix(".runs").glob("*/events.jsonl"))

    eventually(happened, f"{kind} in the run's events")


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
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_moment(moment: str, long: Path, tmp_path: Path) -> None:
    run = start(long, tmp_path / "out.csv", command=(sys.executable, "-c", STRUCK.format(moment=moment)))
    output = end(run)
    assert run.returncode == 130, output
    assert "Traceback" not in output and "ignored" not in output, output
    measuring = MOMENTS.index("Matrix.run")
    errors = [row["Error"] for row in rows(tmp_path / "out.csv")]
    assert errors == ([] if MOMENTS.index(moment) < measuring else AFTER_CTRL_C[1 + (moment != "Matrix.run")])


@pytest.mark.usefixtures("unchanged_machine")
@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]
)
def test_a_stopped_run_leaves_a_row_interrupted(signum: int, code: int, long: Path, tmp_path: Path) -> None:
    run = start(long, tmp_path / "out.csv")
    wait_for_event("scenario_began", run, tmp_path / "out.csv")
    os.kill(run.pid, signum)
    wait_for_event("run_interrupted", run, tmp_path / "out.csv")  # pending together, the lower one would come first
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
    wait_for_event("scenario_began", run, out)
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
        wait_for_event("matrix_began", run, tmp_path / "out.csv")
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
    wait_for_event("matrix_began", first, tmp_path / "first.csv")
    second = start(tiny, tmp_path / "second.csv")
    output = end(second)
    assert second.returncode == 1
    assert f"another run is on (process {first.pid})" in output
    os.kill(first.pid, signal.SIGINT)
    end(first)
    assert first.returncode == 130
