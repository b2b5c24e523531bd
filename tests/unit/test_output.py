"""Standard output and error that end, fill up or stop: the work goes on, and leaves with its own exit status."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import Interrupted
from containernet_env.cli import group, main, output
from containernet_env.cli.signals import StopSignals
from containernet_env.model.findings import Effect, Finding
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import ScheduledScenario
from containernet_env.results.run_result import RunResult
from containernet_env.runs import measure
from tests.unit import report_rows
from tests.unit.answers import closed_loop
from tests.unit.matrix_fakes import write

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from containernet_env.__main__ import main; main()"]
# Work that prints for a second, and has an exit status of its own.
WORK = """
import os, sys, time
from containernet_env.cli import output
with output.guarded():
    with output.unblocked():
        for number in range(20):
            print("line", number)
            time.sleep(0.02)
    sys.exit(7)
"""


def start(command: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.Popen(command, cwd=ROOT, **streams)


def end(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def test_a_reader_who_has_had_enough_of_what_only_prints_is_no_error() -> None:
    """`check 3node-3ms | head -1`: a traceback, or 'Exception ignored ... BrokenPipeError' and status 120."""
    process = start([*COMMAND, "check", "3node-3ms"])
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert end(process) == (0, "", "")


def test_what_only_prints_fails_where_its_output_is_not_whole() -> None:
    with open("/dev/full", "wb") as full:
        status, _, told = end(start([*COMMAND, "check", "3node-3ms"], stdout=full))
    assert (status, told) == (1, "Error: standard output ended: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_from_the_beginning_is_none_to_be_told(closed: str) -> None:
    process = start(["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, "check", "3node-3ms"])
    status, _, told = end(process)
    assert (status, told) == (0, "")


def test_no_file_gets_the_number_of_a_stream_that_is_closed(tmp_path: Path) -> None:
    """The results file would be standard output, and get what is printed."""
    program = (
        "import os, sys\n"
        "from containernet_env.cli import output\n"
        "with output.guarded():\n"
        f"    file = open({str(tmp_path / 'number')!r}, 'w')\n"
        "    print('printed')\n"
        "    file.write(str(file.fileno()))\n"
    )
    assert end(start(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]))[0] == 0
    assert int((tmp_path / "number").read_text()) > 2


def test_work_goes_on_without_its_reader_and_says_so_once() -> None:
    """`run ... | head -4`"""
    process = start([sys.executable, "-c", WORK])
    assert process.stdout is not None and process.stdout.readline() == b"line 0\n"
    process.stdout.close()
    process.stdout = None
    status, _, told = end(process)
    assert (status, told) == (7, "standard output ended: Broken pipe; the run goes on without it\n")


def test_work_goes_on_on_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        status, _, told = end(start([sys.executable, "-c", WORK], stdout=full))
        assert told == "standard output ended: No space left on device; the run goes on without it\n"
        assert status == end(start([sys.executable, "-c", WORK], stdout=full, stderr=full))[0] == 7


def test_work_goes_on_on_a_terminal_that_is_gone() -> None:
    """The master's side is closed (a terminal window, ssh): every write gives EIO."""
    master, slave = pty.openpty()
    process = start([sys.executable, "-c", WORK], stdout=slave, stderr=slave)
    os.close(slave)
    said = b""
    while b"line 0" not in said:
        said += os.read(master, 100)
    os.close(master)
    assert end(process)[0] == 7


@pytest.fixture
def stopped(tmp_path: Path) -> Callable[[], subprocess.Popen[bytes]]:
    """Work that prints more than a pipe takes to a reader who does not read, and makes the file `done` at its end."""
    program = (
        "import pathlib, sys\n"
        "from containernet_env.cli import output\n"
        "with output.guarded():\n"
        "    with output.unblocked():\n"
        "        for number in range(20_000): print('line', number)\n"
        f"        pathlib.Path({str(tmp_path / 'done')!r}).touch()\n"
    )
    return lambda: start([sys.executable, "-c", program])


def test_a_terminal_that_is_stopped_holds_no_work_up_and_loses_nothing(
    stopped: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """Ctrl-S, or a pager at its first page: the driver stood in a write, and its containers stayed up."""
    process = stopped()
    deadline = time.monotonic() + 20
    while not (tmp_path / "done").exists():
        assert time.monotonic() < deadline, "the work waits for its reader"
        time.sleep(0.02)
    assert process.poll() is None  # what is printed is whole for a reader who comes later
    status, out, _ = end(process)
    assert (status, out.splitlines()) == (0, [f"line {number}" for number in range(20_000)])


def test_what_waits_for_a_stopped_terminal_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(output, "MAX_WAITING_BYTES", 200_000)
    stream = output.Output(write, output.STDOUT)
    with stream.unblocked():
        for _ in range(100):
            assert stream.write(b"x" * 10_000) == 10_000
        waiting = stream._waiting
        os.close(read)  # ends the wait of the thread
    os.close(write)
    assert waiting <= 210_000


@pytest.mark.parametrize("lost", [False, True])
def test_the_last_line_of_a_run_names_the_file_that_the_rows_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Exit 0, '4 rows in OUT, no errors', and no file."""
    out = tmp_path / "out.csv"
    file = tmp_path / "out.csv.rescued" if lost else out
    result = RunResult("r", tmp_path / "out.runs" / "r", (), (), file)
    monkeypatch.setattr(measure, "carry_out", lambda *arguments, **options: result)
    done = CliRunner().invoke(group, ["run", "3node-3ms", str(out)], standalone_mode=False)
    words = f"0 rows in {file} ({out} was lost during the run), no" if lost else f"0 rows in {out}, no errors;"
    assert words in done.output
    assert done.return_value == (1 if lost else 0)


@pytest.mark.parametrize(
    ("effect", "words", "strict_status"),
    [("told", "no errors;", 0), ("unknown", "1 of unknown validity;", 1), ("invalid", "1 NOT VALID;", 1)],
)
def test_the_last_line_of_a_run_counts_rows_that_are_not_valid_and_strict_fails_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: Effect, words: str, strict_status: int
) -> None:
    scheduled = ScheduledScenario(write("w"), 1)
    load = LoadResult.from_json(closed_loop())
    outcome = ScenarioOutcome(
        scheduled, "t", 1, load=load, findings=(Finding("links_paused", effect, "they stood still"),)
    )
    result = RunResult("r", tmp_path, (outcome,), ({},), tmp_path / "out.csv")
    monkeypatch.setattr(measure, "carry_out", lambda *arguments, **options: result)
    for options, status in (((), 0), (("--strict",), strict_status)):
        command = ["run", "3node-3ms", str(tmp_path / "out.csv"), *options]
        done = CliRunner().invoke(group, command, standalone_mode=False)
        assert words in done.output
        assert done.return_value == status


def test_a_background_command_of_a_script_ends_by_sigquit() -> None:
    """A shell starts it with SIGQUIT ignored, and SIGINT."""
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        with StopSignals(), pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGQUIT)
    finally:
        signal.signal(signal.SIGQUIT, before)


def test_a_hang_up_that_is_ignored_at_entry_stays_ignored() -> None:
    """nohup: a hang-up ended the run that was to survive it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.received is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "command",
    [
        ["results", "out.csv"],
        ["report", "out.csv", "out.csv", "-o", "page.html"],
        ["plot", "out.csv", "--x", "type", "--y", "p50", "--where", "type=none", "-o", "figure.svg"],
    ],
)
def test_text_of_a_file_moves_no_cursor(command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A name in a CSV cleared the screen, or turned what followed it round."""
    folder = tmp_path / "\x1b[2J\u202e"
    folder.mkdir()
    path = report_rows.write(folder / "out.csv", [report_rows.row(TestType="\x1b[31m")])
    with path.open("a") as file:
        file.write("torn,line\n")
    with pytest.raises(SystemExit):
        main([str(path) if word == "out.csv" else str(tmp_path / word) if "." in word else word for word in command])
    said = capfd.readouterr().err
    assert "\\x1b[" in said and not {"\x1b", "\u202e"} & set(said)
