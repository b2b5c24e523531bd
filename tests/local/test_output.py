"""Standard output and error that end, fill up or stop: the work goes on, and leaves with its own exit status."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from containernet_env.cli import output
from tests.deadline import HANG_S, eventually

ROOT = Path(__file__).resolve().parents[2]
CHECK = (sys.executable, "-c", "from containernet_env.__main__ import main; main()", "check", "3node-3ms")
# Work that goes on printing once its input ends, and has an exit status of its own.
WORK = """
import sys, time
from containernet_env.cli import output
with output.guarded():
    with output.unblocked():
        print("line 0", flush=True)
        sys.stdin.read()
        for number in range(1, 20):
            print("line", number, flush=True)
            time.sleep(0.02)
    sys.exit(7)
"""


# Work that prints more than a pipe takes to a reader who does not read, and makes the file `done` at its end.
MUCH = """
import pathlib, sys
from containernet_env.cli import output
with output.guarded():
    with output.unblocked():
        for number in range(20_000): print("line", number)
        pathlib.Path(sys.argv[1]).touch()
"""
# The results file would be standard output, and get what is printed.
NUMBER = """
import sys
from containernet_env.cli import output
with output.guarded():
    file = open(sys.argv[1], "w")
    print("printed")
    file.write(str(file.fileno()))
"""


def start(*command: str | Path, **streams: Any) -> Any:
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | streams
    return subprocess.Popen(command, cwd=ROOT, **streams)


def work(code: str, *words: Path, **streams: Any) -> Any:
    return start(sys.executable, "-c", code, *words, **streams)


def close_output(process: Any) -> None:
    process.stdout.close()
    process.stdout = None


def end(process: Any) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=HANG_S)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def test_a_reader_who_has_had_enough_of_what_only_prints_is_no_error() -> None:
    """`check 3node-3ms | head -1`: a traceback, or 'Exception ignored ... BrokenPipeError' and status 120."""
    process = start(*CHECK)
    close_output(process)
    assert end(process) == (0, "", "")


def test_what_only_prints_fails_where_its_output_is_not_whole() -> None:
    with open("/dev/full", "wb") as full:
        status, _, told = end(start(*CHECK, stdout=full))
    assert (status, told) == (1, "Error: standard output ended: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_from_the_beginning_is_none_to_be_told(closed: str, tmp_path: Path) -> None:
    status, _, told = end(start("sh", "-c", f'exec "$@" {closed}', "sh", *CHECK))
    assert (status, told) == (0, "")
    number = tmp_path / "number"
    assert end(start("sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", NUMBER, number))[0] == 0
    assert int(number.read_text()) > 2, "a file has the number of the stream that is closed"


def test_work_goes_on_without_its_reader_and_says_so_once() -> None:
    """`run ... | head -4`"""
    process = work(WORK)
    assert process.stdout.readline() == b"line 0\n"
    close_output(process)
    status, _, told = end(process)
    assert (status, told) == (7, "standard output ended: Broken pipe; the run goes on without it\n")


def test_work_goes_on_on_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        process = work(WORK, stdout=full)
        told = process.stderr.readline()  # its input ends after that
        assert told == b"standard output ended: No space left on device; the run goes on without it\n"
        assert end(process) == (7, "", "") and end(work(WORK, stdout=full, stderr=full))[0] == 7


def test_a_terminal_that_is_stopped_holds_no_work_up_and_loses_nothing(tmp_path: Path) -> None:
    """Ctrl-S, or a pager at its first page: the driver stood in a write, and its containers stayed up."""
    process = work(MUCH, tmp_path / "done")
    eventually((tmp_path / "done").exists, "the work ends without its reader")
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


def test_a_pipe_that_somebody_made_non_blocking_loses_nothing_and_what_was_written_waits_no_longer() -> None:
    """A run that prints more than 16 MiB in all went on without output."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    printed, got = output.Output(write, output.STDOUT), bytearray()

    def take() -> None:
        while part := os.read(read, 65536):
            got.extend(part)

    reader = threading.Thread(target=take)
    reader.start()
    with printed.unblocked():
        for _ in range(8):
            printed.write(b"x" * 1_000_000)
    os.close(write)
    reader.join(HANG_S)
    os.close(read)
    assert (printed.error, printed._waiting, len(got)) == (None, 0, 8_000_000)
