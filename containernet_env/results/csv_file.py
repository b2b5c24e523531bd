"""The CSV of results: its columns, appending a row so that it survives, reading it back.

The only module that knows pandas (imported when a table is asked for, not when a row is written).
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from containernet_env.base.errors import UsageError

if TYPE_CHECKING:
    import pandas

NOT_APPLICABLE = "-"

# The percentiles of a row, in column order, as the keys of the benchmark's ``percentiles_s``.
SEED_PERCENTILES = ("10", "25", "50", "75", "90", "95")
OUR_PERCENTILES = ("99", "99.9")
SERVICE_PERCENTILES = ("50", "95", "99", "99.9")

SEED_COLUMNS = (
    "TestType",
    "ClusterSize",
    "RequestCount",
    "ClientCount",
    "ConnectionCount",
    "KeySize",
    "ValueSize",
    "Consistency",
    "Total",
    "Slowest",
    "Fastest",
    "Average",
    "Stddev",
    "Requests/sec",
    *(f"{p}%" for p in SEED_PERCENTILES),
)
CLOSED_LOOP_COLUMNS = (
    *SEED_COLUMNS,
    *(f"{p}%" for p in OUR_PERCENTILES),
    "Scenario",
    "Repetition",
    "Target",
    "Errors",
    "Error",
    "Leader",
    "LinkDelay_ms",
    "Bandwidth_mbps",
    "RttExpected_ms",
    "RttMeasured_ms",
    "Hosts",
    "Links",
    "EtcdVersion",
    "Config",
    "RunId",
    "Timestamp",
)
OPEN_LOOP_COLUMNS = (
    *CLOSED_LOOP_COLUMNS,
    "Rate_offered",
    "Rate_achieved",
    "Unsent",
    "Unknown",
    "Behind",
    *(f"Service_{p}%" for p in SERVICE_PERCENTILES),
)
LINK_COLUMNS = (
    *OPEN_LOOP_COLUMNS,
    "LinkJitter_ms",
    "LinkLoss_ratio",
    "Realtime",
    "LinkLateness_99%_us",
    "LinkReadGap_99%_us",
)
LEFT_OUT_COLUMNS = (*LINK_COLUMNS, "Late_own", "Left_out")
COLUMNS = (*LEFT_OUT_COLUMNS, "ReadSpan", "ReadLimit", "ReadAnswer")
# Every header that has ever been written, newest first: an existing file is appended to in its own form.
# A new form is added here, never changed in place.
FORMS: tuple[tuple[str, ...], ...] = (
    COLUMNS,
    LEFT_OUT_COLUMNS,
    LINK_COLUMNS,
    OPEN_LOOP_COLUMNS,
    CLOSED_LOOP_COLUMNS,
    SEED_COLUMNS,
)

# Columns that hold words; every other one holds numbers.
TEXT_COLUMNS = frozenset(
    {"TestType", "Consistency", "Scenario", "Target", "Error", "Leader", "LinkDelay_ms", "Bandwidth_mbps"}
    | {"Hosts", "Links", "EtcdVersion", "Config", "RunId", "Timestamp", "Behind"}
    | {"LinkJitter_ms", "LinkLoss_ratio", "Realtime", "ReadSpan", "ReadAnswer"}
)


@dataclass(frozen=True)
class Opened:
    """What `ResultsFile.open` found: the header in use and what had to be mended (one line, or None)."""

    columns: tuple[str, ...]
    mended: str | None


def give_to_caller(path: Path) -> None:
    """Under sudo, make `path` belong to the user who called sudo; elsewhere do nothing."""
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if uid is not None and gid is not None and os.geteuid() == 0:
        os.chown(path, int(uid), int(gid))


def _line(values: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()


class ResultsFile:
    """Appends rows to one CSV file; a row is on disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: tuple[str, ...] = COLUMNS
        self._fd: int | None = None

    def open(self) -> Opened:
        """Prove the file writable and its header known; write the header into a new or empty file.

        A last line without its end (a run that was killed while writing) is ended, so that it is never
        joined with the next row. Raises UsageError where the file cannot be written or is not ours.
        """
        created = not self.path.exists()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            content = self.path.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot write results to {self.path}: {error.strerror}") from error
        if created:
            give_to_caller(self.path)
        mended = self._adopt(content)
        os.fsync(self._fd)
        return Opened(self.columns, mended)

    def _adopt(self, content: bytes) -> str | None:
        assert self._fd is not None
        first, newline, _ = content.partition(b"\n")
        header = first.rstrip(b"\r")
        if not newline and any(_line(form).startswith(first) for form in FORMS):
            # New, empty, or killed while its header was being written: nothing else can be in it.
            os.ftruncate(self._fd, 0)
            self._write(_line(self.columns))
            return None if not first else f"{self.path}: its header was torn and has been completed"
        for form in FORMS:
            if header == _line(form).rstrip(b"\n"):
                self.columns = form
                break
        else:
            os.close(self._fd)
            self._fd = None
            raise UsageError(
                f"{self.path} is not a results file: its first line is neither our header nor the seed's.\n"
                f"  got: {first[:100].decode(errors='replace')!r}\n  Choose another file, or move this one away."
            )
        if not content.endswith(b"\n"):
            self._write(b"\n")
            return f"{self.path}: its last line was torn (a killed run); it has been ended and is incomplete"
        return None

    def append(self, row: Mapping[str, str]) -> None:
        """Append one row (column name -> text; missing columns become '-') and force it to disk.

        Raises KeyError for a name that is no column: a value must never be dropped by a typo.
        """
        assert self._fd is not None, "append before open"
        unknown = set(row) - set(COLUMNS)
        if unknown:
            raise KeyError(f"no such columns: {sorted(unknown)}")
        values = [" ".join(row.get(column, NOT_APPLICABLE).split()) or NOT_APPLICABLE for column in self.columns]
        self._write(_line(values))
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, data: bytes) -> None:
        assert self._fd is not None
        while data:
            data = data[os.write(self._fd, data) :]


def load(path: Path) -> pandas.DataFrame:
    """The rows of a results file: one column per CSV column, '-' as missing, numeric columns as numbers.

    Raises UsageError where the file cannot be read or its header is not one of ours.
    """
    import pandas

    try:
        frame = pandas.read_csv(path, dtype=str, keep_default_na=False, na_values=[NOT_APPLICABLE], on_bad_lines="warn")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if tuple(frame.columns) not in FORMS:
        raise UsageError(f"{path} is not a results file: unknown header {list(frame.columns)[:5]}...")
    for column in frame.columns:
        if column not in TEXT_COLUMNS:
            frame[column] = pandas.to_numeric(frame[column], errors="coerce")
    return frame
