"""Results on file systems that are full or read-only: real ones, in a mount namespace of the test's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

ROOT = Path(__file__).resolve().parents[2]


def on(folder: Path, options: str, program: str) -> list[str]:
    """What a Python program prints, a line each, whose ``place`` is a tmpfs with these mount options."""
    folder.mkdir()
    lines = f"from pathlib import Path\nplace = Path({str(folder)!r})\n{program}"
    script = f'mount -t tmpfs -o {options} tmpfs "$1" && shift && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(folder), sys.executable, "-c", lines]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_full_disk_holds_whole_rows_and_takes_more_when_there_is_room(tmp_path: Path) -> None:
    program = """
from containernet_env.results.csv_file import ResultsFile, RowNotWrittenError, load
(place / "filler").write_bytes(b"x" * 20_000)
file = ResultsFile(place / "out.csv")
file.open()
row = {"Scenario": "w" * 700, "Timestamp": "2026-01-01T00:00:00.000Z"}
taken = 0
try:
    while True:
        file.append(row)
        taken += 1
except RowNotWrittenError as error:
    print(error.reason)
print(taken > 10 and (place / "out.csv").read_bytes().endswith(b"Z\\n"))
(place / "filler").unlink()
file.append(row)
print(len(load(place / "out.csv", print)) - taken)
"""
    assert on(tmp_path / "full", "size=64k", program) == [
        f"{tmp_path / 'full' / 'out.csv'} cannot be written: No space left on device",
        "True",
        "1",
    ]


@pytest.mark.parametrize(
    ("options", "needed", "words"),
    [
        ("ro", 0, "is on a read-only file system"),
        ("size=64k", 100_000, "0.1 MB free in"),
        ("nr_inodes=1", 0, "no inode free in"),
        ("size=1m", 0, None),
    ],
)
def test_a_place_that_takes_no_results_is_refused(tmp_path: Path, options: str, needed: int, words: str | None) -> None:
    program = f"""
from containernet_env.base.errors import UsageError
from containernet_env.results.run_directory import check_place
try:
    check_place(place / "new" / "out.csv", {needed})
    print("taken", list(place.iterdir()))
except UsageError as error:
    print(str(error).splitlines()[0])
"""
    (message,) = on(tmp_path / "place", options, program)
    assert words in message if words is not None else message == "taken []"
