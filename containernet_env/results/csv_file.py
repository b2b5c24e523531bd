"""The CSV of results: appending a row so that it survives, reading it back.

pandas is imported when a table is read, not when a row is written.
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING, Any

from containernet_env.base.errors import RunError, UsageError
from containernet_env.model.hints import near_file
from containernet_env.model.scenario import ALL_CLIENTS, EACH_CLIENT
from containernet_env.results.columns import BY_NAME, COLUMNS, NOT_APPLICABLE, SEED_COLUMNS
from containernet_env.results.files import (
    append_whole,
    content_of,
    make_folders,
    open_to_append,
    reason,
    remedy,
    replace_whole,
)

if TYPE_CHECKING:
    import pandas

# So many of the lines that are left out are named; a file of something else may have any number.
_TOLD_LINES = 20
_FORMULA = re.compile(r"[=+@\t\r-]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
FORMS: tuple[tuple[str, ...], ...] = (COLUMNS, SEED_COLUMNS)
"""The headers of new files."""
OF_ALL = (NOT_APPLICABLE, ALL_CLIENTS)
"""The column Client of the row that stands for its scenario: there is one client, or it is of all together."""


def is_form(header: tuple[str, ...]) -> bool:
    """Whether a file with this header is a results file: the seed's, ours, or ours before some columns were added.

    Rows are appended to it in its own form; where it lacks columns, they are read as missing.
    """
    ours = {*SEED_COLUMNS, "Scenario", "RunId", COLUMNS[-1]} <= set(header)
    return header == SEED_COLUMNS or (ours and header == tuple(name for name in COLUMNS if name in header))


def _line(values: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode(errors="backslashreplace")


def columns_of(path: Path, content: bytes) -> tuple[str, ...] | None:
    """The columns of a results file by its first bytes, which are longer than any header; ``None`` if it has none.

    It is new then, empty, or was killed while its header was being written: nothing else can be in it. Raises
    ``UsageError`` for a file that is not ours.
    """
    first, newline, _ = content.partition(b"\n")
    if not newline and any(_line(form).startswith(first) for form in FORMS):
        return None
    columns = tuple(first.rstrip(b"\r").decode(errors="replace").split(","))
    if not is_form(columns):
        raise UsageError(
            f"{path} is not a results file: its first line is neither our header nor the seed's.\n"
            f"  got: {first[:100].decode(errors='replace')!r}\n  Choose another file, or move this one away."
        )
    return columns


def inert(text: str) -> str:
    """A CSV field that is safe in a spreadsheet: ' before text that it would interpret as a formula."""
    stays = text == NOT_APPLICABLE or _NUMBER.fullmatch(text) or not _FORMULA.match(text)
    return text if stays else f"'{text}"


def csv_text(lines: Iterable[Iterable[object]]) -> str:
    """Lines of a CSV that people open: '-' where there is no value, texts `inert`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for line in lines:
        fields = (NOT_APPLICABLE if value is None else value for value in line)
        writer.writerow([inert(value) if isinstance(value, str) else value for value in fields])
    return text.getvalue()


class RowNotWrittenError(RunError):
    """A row is not in the results file; ``reason`` is one line, ``remedy`` describes how a user can fix it."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.reason = f"{path} cannot be written: {reason(error)}"
        self.remedy = remedy(error)
        super().__init__(f"{self.reason}\n  {self.remedy}")


class ResultsFile:
    """Appends rows to one CSV file; a row is on disk when `append` returns.

    ``file`` is where the rows are: ``path``, or, where that was removed or replaced meanwhile, a new file beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = self.file = path
        self.columns: tuple[str, ...] = COLUMNS
        self._fd: int | None = None

    def open(self) -> list[str]:
        """Check that the file is writable and its header known; write the header into a new or empty file.

        Returns a line for each thing that it created or repaired.

        A last line without its end (a run that was killed while writing) is ended, so that it is never
        joined with the next row. Raises UsageError if the file cannot be written or is not ours.
        """
        try:
            folders = [folder for folder in self.path.parents if not folder.exists()]
            created = not self.path.exists()
            self._fd = open_to_append(self.path, through_link=True)
            repaired = self._adopt(content_of(self._fd))
            os.fsync(self._fd)
        except OSError as error:
            if self._fd is not None and created:
                self.path.unlink(missing_ok=True)
            self.close()
            raise UsageError(f"cannot write results to {self.path}: {reason(error)}\n  {remedy(error)}") from error
        except UsageError:
            self.close()
            raise
        return [*([f"created the folder {folders[0]}"] if folders else []), *([repaired] if repaired else [])]

    def _adopt(self, content: bytes) -> str | None:
        assert self._fd is not None
        columns = columns_of(self.path, content)
        if columns is None:
            os.ftruncate(self._fd, 0)
            append_whole(self._fd, _line(self.columns))
            return None if not content else f"{self.path}: its header was torn and has been completed"
        self.columns = columns
        if content.endswith(b"\n"):
            return None
        append_whole(self._fd, b"")
        whole = why_torn(values_of(content.rpartition(b"\n")[2]), self.columns) is None
        if whole:
            return f"{self.path}: its last line had no end (a killed run); it has been ended and is whole"
        return f"{self.path}: its last line was torn (a killed run); it has been ended and is incomplete"

    def append(self, row: Mapping[str, str]) -> str | None:
        """Append one row (column name -> text; missing columns become '-') and force it to disk.

        Returns a note where the file has lost its place and the rows are now in another one, see `follow`. Raises
        RowNotWrittenError if the row is in no file that can be found, and KeyError for a name that is no column: a
        value must never be dropped by a typo.
        """
        assert self._fd is not None, "append before open"
        unknown = set(row) - set(COLUMNS)
        if unknown:
            raise KeyError(f"no such columns: {sorted(unknown)}")
        try:
            size = os.fstat(self._fd).st_size
            append_whole(self._fd, self.line(row))
        except OSError as error:
            raise RowNotWrittenError(self.file, error) from error
        try:
            return self.follow()
        except BaseException:  # Ctrl-C in a notebook, too
            with suppress(OSError):
                os.ftruncate(self._fd, size)  # so that it is not there twice, should another one follow
            raise

    def amend(self, changes: Iterable[tuple[Mapping[str, str], Mapping[str, str]]]) -> None:
        """Put other rows in the place of rows that were appended: all of them, or none, and OSError."""
        assert self._fd is not None, "amend before open"
        lines = {self.line(old): self.line(new) for old, new in changes}
        content = content_of(self._fd)
        amended = b"".join(lines.get(line, line) for line in content.splitlines(keepends=True))
        if amended != content and not self.lost:
            self._fd = replace_whole(self._fd, self.file, amended)

    def line(self, row: Mapping[str, str]) -> bytes:
        """The row as it is in the file."""
        return _line([" ".join(row.get(column, NOT_APPLICABLE).split()) or NOT_APPLICABLE for column in self.columns])

    def follow(self) -> str | None:
        """If ``file`` no longer leads to the opened file, write all of it beside ``path``; returns a note of that.

        The new file is OUT.rescued, or OUT.rescued-2 and so on if that exists. Raises RowNotWrittenError if none can be
        written: then no row of this run is in a file that can be found.
        """
        assert self._fd is not None
        what = self._what_became_of_it()
        if what is None:
            return None
        try:
            fd, rescued = self._open_beside()
            try:
                append_whole(fd, content_of(self._fd))
            except BaseException:
                os.close(fd)
                rescued.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise RowNotWrittenError(self.file, OSError(error.errno, f"it was {what}; {reason(error)}")) from error
        os.close(self._fd)
        self._fd = fd
        lost, self.file = self.file, rescued
        return f"{lost} was {what} during the run: all rows, and those that follow, are in {rescued}"

    @property
    def lost(self) -> bool:
        """Whether ``file`` no longer leads to the file to which rows are appended."""
        return self._what_became_of_it() is not None

    def _what_became_of_it(self) -> str | None:
        """How ``file`` was lost: "removed"; None if it leads to the opened file."""
        assert self._fd is not None
        held = os.fstat(self._fd)
        try:
            found = os.stat(self.file)
        except OSError as error:
            if held.st_nlink == 0:
                return "removed"
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            return "renamed" if missing else f"lost ({reason(error)})"
        return None if (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino) else "replaced"

    def _open_beside(self) -> tuple[int, Path]:
        make_folders(self.path.parent)
        for number in count_from(1):
            path = self.path.with_name(f"{self.path.name}.rescued{f'-{number}' if number > 1 else ''}")
            with suppress(FileExistsError):
                return open_to_append(path, new=True), path
        raise AssertionError

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


# How values end that were not cut: a moment of `base.clock.utc_now`, and a time in seconds.
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_SECONDS = re.compile(r"\d+\.(\d+)")
_TIMES = tuple(name for name in SEED_COLUMNS if BY_NAME[name].unit == "s")


def why_torn(values: Sequence[str], columns: Sequence[str], ended: bool = True) -> str | None:
    """Why the values of a line are not a whole row; None for one that is. ``ended``: the line has its line break.

    A line that was cut has fewer values, or its last one is cut short. In our form that is a timestamp, which always
    has the same length. In the seed's it is a time: it is cut where it has fewer decimals than all the others. If these
    differ a cut cannot be detected, and only a line with its line break is taken.
    """
    if len(values) != len(columns):
        return f"it has {len(values)} values for {len(columns)} columns"
    last = values[-1]
    if last == NOT_APPLICABLE:
        return None
    if columns[-1] not in _TIMES:
        return None if _TIMESTAMP.fullmatch(last) else "its last value is cut short"
    row = dict(zip(columns, values, strict=True))
    times = [_SECONDS.fullmatch(row[name]) for name in _TIMES if row[name] != NOT_APPLICABLE]
    *others, own = (len(match[1]) if match else 0 for match in times)
    known = len(set(others)) == 1 and others[0] > 0
    if not known and not ended:
        return "it does not end, so its last value may be cut short"
    return "its last value is cut short" if known and own < others[0] else None


def values_of(line: bytes) -> list[str]:
    """The values of a line; of one that is none of a CSV, its text as a single one."""
    text = line.decode(errors="replace").rstrip("\r")
    try:
        return next(csv.reader([text]), [])
    except csv.Error:
        return [text]


def load(path: Path, note: Callable[[str], object] = warnings.warn, client: str = ALL_CLIENTS) -> pandas.DataFrame:
    """The rows of a results file: one column per CSV column, '-' as missing, numeric columns as numbers.

    Where several clients loaded a cluster, of each scenario the row for all, or that of the ``client`` of that name, or
    with ``EACH_CLIENT`` those of all single ones.

    Rows that were torn (a run that was killed while writing) are left out, and ``note`` is called with each; see
    ``why_torn``. Raises UsageError if the file cannot be read, its header is not one of ours, or it has rows, but none
    of the client.
    """
    header, rows = _whole_rows(path, note)
    place = header.index("Client") if "Client" in header else None
    clients = [NOT_APPLICABLE if place is None else row[place] for row in rows]
    single = [name for name in dict.fromkeys(clients) if name not in OF_ALL]
    chosen = {ALL_CLIENTS: OF_ALL, EACH_CLIENT: single}.get(client, [name for name in single if name == client])
    if rows and not chosen:
        whose = "a single client, of several" if client == EACH_CLIENT else f"the client {client}"
        names = ", ".join(single) or "none: each has one client, or was not measured"
        raise UsageError(f"{path} has no rows of {whose}\n  The clients of its rows: {names}.")
    rows = [row for row, name in zip(rows, clients, strict=True) if name in chosen]
    return _frame(rows, header, header if header == SEED_COLUMNS else COLUMNS)


def load_all(
    paths: Sequence[Path], note: Callable[[str], object] = warnings.warn, client: str = ALL_CLIENTS
) -> list[pandas.DataFrame]:
    """The rows of several files, see `load`; those that a file before has, too, are left out, and ``note`` is called.

    Within a file the same row stays: it may have been measured twice.
    """
    tables: list[pandas.DataFrame] = []
    taken: set[tuple[str, ...]] = set()
    for path in paths:
        table = load(path, note, client)
        own = identities(table)
        new = [identity not in taken for identity in own]
        if count := new.count(False):
            note(f"{path}: {count} rows are left out, since a file before it has them, too")
        tables.append(table.loc[new])
        taken.update(own)
    return tables


def identities(table: pandas.DataFrame) -> list[tuple[str, ...]]:
    """The identity of each row: its run, moment and measurement; in the seed's form the whole row."""
    names = ("RunId", "Timestamp", "Scenario", "Repetition", "Attempt", "Client")
    return texts_of(table, [name for name in names if name in table.columns] or list(table.columns))


def text_of(table: pandas.DataFrame, name: str) -> list[str]:
    """The values of a column as text that identifies rows; '-' for none."""
    values = table[name].tolist()
    if not BY_NAME[name].number:
        return ["-" if value is None or value != value else str(value) for value in values]
    return ["-" if value != value else f"{value:.15g}" for value in values]


def texts_of(table: pandas.DataFrame, names: Sequence[str]) -> list[tuple[str, ...]]:
    """The values of these columns, row by row."""
    return list(zip(*(text_of(table, name) for name in names), strict=True))


def rows_after(path: Path, offset: int = 0) -> list[dict[str, str]]:
    """The whole rows of a results file in our own form, as text; of those from ``offset`` (bytes) on, where given.

    Those of single clients, of several, are left out. None at all if there is no file. Raises UsageError if it cannot
    be read, or is of another form.
    """
    try:
        with path.open("rb") as file:
            header = tuple(values_of(file.readline().rstrip(b"\n")))
            file.seek(max(offset, file.tell()))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read {path}: {reason(error)}") from error
    if header == SEED_COLUMNS or (header != COLUMNS and any(lines)):
        raise UsageError(
            f"{path} has not the columns of this version: which cells its rows are of cannot be determined"
        )
    rows = (values_of(line) for line in lines if line)
    whole = [dict(zip(COLUMNS, row, strict=True)) for row in rows if why_torn(row, COLUMNS) is None]
    return [row for row in whole if row["Client"] in OF_ALL]


def rows_of_run(path: Path, run_id: str, note: Callable[[str], object]) -> tuple[tuple[str, ...], list[bytes]]:
    """The columns of a results file, and the lines of one run in it: the header, then its rows; see ``load``.

    In the seed's form rows do not name their run.
    """
    header, rows = _whole_rows(path, note)
    found = [row for row in rows if dict(zip(header, row, strict=True)).get("RunId") == run_id]
    return header, [_line(row) for row in (header, *found)]


def near_results(path: Path) -> str:
    """The end of an error about a results file that is missing: "; did you mean ...?", or nothing."""
    near = None if os.path.lexists(path) else near_file(path, suffix=".csv")
    return f"; did you mean {near}?" if near else ""


def _whole_rows(path: Path, note: Callable[[str], object]) -> tuple[tuple[str, ...], list[list[str]]]:
    try:
        if path.is_char_device():
            raise UsageError(f"cannot read {path}: it is a device, which may have no end")
        # Line by line: no row of ours holds a line break, and a torn one may hold a quote that never closes.
        first, *lines = path.read_bytes().split(b"\n")
        header = tuple(values_of(first))
        rows = [values_of(line) for line in lines]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {reason(error)}{near_results(path)}") from error
    if header[: len(SEED_COLUMNS)] == SEED_COLUMNS and "Scenario" in header and not is_form(header):
        missing, more = ([name for name in a if name not in b] for a, b in ((COLUMNS, header), (header, COLUMNS)))
        parts = [f"{what} {', '.join(names[:5])}" for what, names in (("it lacks", missing), ("it has", more)) if names]
        raise UsageError(
            f"{path} is of another version of this program: {'; '.join(parts) or 'its columns are in another order'}\n"
            "  Read it with the version that wrote it, or measure again with this one."
        )
    if not is_form(header):
        raise UsageError(f"{path} is not a results file: unknown header {','.join(header)[:100]!r}")
    whole, torn = [], 0
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        why = why_torn(row, header, ended=number <= len(lines))
        if why is None:
            whole.append(row)
            continue
        torn += 1
        if torn <= _TOLD_LINES:
            note(f"{path}, line {number} is left out: {why}")
    if torn > _TOLD_LINES:
        note(f"{path}: {torn - _TOLD_LINES:,} more lines are left out for such reasons")
    return header, whole


def frame_of(rows: Sequence[Mapping[str, str]]) -> pandas.DataFrame:
    """Rows as ``columns.row_of`` makes them, as a table: '-' as missing, numeric columns as numbers."""
    return _frame([[row.get(name, NOT_APPLICABLE) for name in COLUMNS] for row in rows], COLUMNS, COLUMNS)


def _frame(rows: Sequence[Sequence[str]], header: Sequence[str], columns: Sequence[str]) -> pandas.DataFrame:
    """Rows with some columns as a table with others, which are missing where the rows lack them."""
    import pandas

    held = dict(zip(header, zip(*rows, strict=True), strict=False))  # nothing, of no rows
    made: dict[str, Any] = {}
    for name in columns:
        lacks = "1" if name == "Dilation" else NOT_APPLICABLE  # of files from before there was another one
        texts = held.get(name, (lacks,) * len(rows))
        values = [None if text == NOT_APPLICABLE else text for text in texts]
        is_number = BY_NAME[name].number
        made[name] = pandas.to_numeric(values, errors="coerce") if is_number else pandas.Series(values, dtype=str)
    return pandas.DataFrame(made)
