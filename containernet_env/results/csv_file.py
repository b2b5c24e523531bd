"""The CSV of results: appending a row so that it survives, reading it back.

pandas is imported when a table is read, not when a row is written.
"""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from containernet_env.base.errors import UsageError
from containernet_env.results.columns import BY_NAME, COLUMNS, NOT_APPLICABLE, SEED_COLUMNS
from containernet_env.results.ownership import give_to_caller

if TYPE_CHECKING:
    import pandas

# The headers that are appended to in their own form: ours, and the seed's.
FORMS: tuple[tuple[str, ...], ...] = (COLUMNS, SEED_COLUMNS)


@dataclass(frozen=True)
class Opened:
    """What `ResultsFile.open` found: the header in use, and a line for each thing that it created or repaired."""

    columns: tuple[str, ...]
    notes: tuple[str, ...]


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
        """Check that the file is writable and its header known; write the header into a new or empty file.

        A last line without its end (a run that was killed while writing) is ended, so that it is never
        joined with the next row. Raises UsageError where the file cannot be written or is not ours.
        """
        created = not os.path.exists(self.path)  # False for a name that is too long, where Path raises
        if not created and not self.path.is_file() and not self.path.is_dir():
            raise UsageError(f"cannot write results to {self.path}: it is no regular file")
        try:
            folders = [folder for folder in self.path.parents if not folder.exists()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for folder in folders:
                give_to_caller(folder)
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            content = self.path.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot write results to {self.path}: {error.strerror}") from error
        if created:
            give_to_caller(self.path)
        mended = self._adopt(content)
        os.fsync(self._fd)
        notes = [f"created the folder {folders[0]}"] if folders else []
        return Opened(self.columns, (*notes, mended) if mended else tuple(notes))

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


def load(path: Path, note: Callable[[str], object] = warnings.warn) -> pandas.DataFrame:
    """The rows of a results file: one column per CSV column, '-' as missing, numeric columns as numbers.

    Rows that were torn (a run that was killed while writing) are left out, and ``note`` is told of each: those with
    fewer or more values than the header, and a last one whose line does not end, since its last value may be cut.
    Raises UsageError where the file cannot be read or its header is not one of ours.
    """
    import pandas

    if path.is_char_device():
        raise UsageError(f"cannot read {path}: it is a device, which may have no end")
    try:
        # Line by line: no row of ours holds a line break, and a torn one may hold a quote that never closes.
        lines = path.read_bytes().decode().split("\n")
        header, *rows = [next(csv.reader([line.rstrip("\r")]), []) for line in lines]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if tuple(header) not in FORMS:
        raise UsageError(f"{path} is not a results file: unknown header {header[:5]}...")
    whole = []
    for number, row in enumerate(rows, start=2):
        if row and number == len(lines):
            note(f"{path}, line {number} is left out: it does not end, so its last value may be cut short")
        elif len(row) == len(header):
            whole.append(row)
        elif row:
            note(f"{path}, line {number} is left out: it has {len(row)} values for {len(header)} columns")
    return typed(pandas.DataFrame(whole, columns=header, dtype=str).replace(NOT_APPLICABLE, None))


def frame_of(rows: Sequence[Mapping[str, str]]) -> pandas.DataFrame:
    """Rows as ``columns.row_of`` makes them, as a table: '-' as missing, numeric columns as numbers."""
    import pandas

    frame = pandas.DataFrame([dict(row) for row in rows], columns=list(COLUMNS), dtype=str)
    return typed(frame.replace(NOT_APPLICABLE, None))


def typed(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The table with numbers in the columns that hold numbers; missing values are NaN."""
    import pandas

    for name in frame.columns:
        if BY_NAME[name].number:
            frame[name] = pandas.to_numeric(frame[name], errors="coerce")
    return frame
