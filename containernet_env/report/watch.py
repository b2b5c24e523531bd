"""The state of a run or sweep while it goes on, from the files that it leaves."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from containernet_env.base import clock
from containernet_env.base.errors import UsageError
from containernet_env.model.findings import State, states_text
from containernet_env.results.columns import COLUMNS
from containernet_env.results.csv_file import OF_ALL, values_of, why_torn
from containernet_env.results.run_directory import EVENTS, runs_folder
from containernet_env.runs.lock import Holder
from containernet_env.runs.sweep.ledger import Kept, Tried, journal_of, take, tried_of

Course = Literal["nothing", "on", "ended", "killed"]
"""``nothing``: none of OUT is measured now; ``killed``: what measured is gone without an end of its run or sweep."""
MOST_ROWS = 100
"""The last rows, which the page shows."""
# Clocks are read one after the other, and the kernel counts the start of a process in hundredths of a second.
_CLOCKS_S = 2.0


class Tail:
    """What was added to a file since the last look. A file that was replaced or cut is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: tuple[int, int] | None = None
        self._offset = 0

    def more(self) -> tuple[list[bytes], bool]:
        """Lines that have their end, without it, and whether they are the file's first ones: forget what was before.

        A file that does not exist has none. Raises ``OSError`` where it cannot be read.
        """
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            began = self._inode is not None
            self._inode, self._offset = None, 0
            return [], began
        with open(fd, "rb") as file:
            found = os.fstat(file.fileno())
            inode = (found.st_dev, found.st_ino)
            anew = inode != self._inode or found.st_size < self._offset
            if anew:
                self._inode, self._offset = inode, 0
            if found.st_size == self._offset:
                return [], anew
            file.seek(self._offset)
            whole, end, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(end)
        return (whole.split(b"\n") if end else []), anew


@dataclass(slots=True)
class _Run:
    """A run directory's events: ``counted`` of its scenarios have begun and ended, ``now`` is the one that goes on.

    One that is measured once more has not ended.
    """

    path: Path
    tail: Tail
    began_s: float = 0.0
    scenarios: int = 0
    counted: int = 0
    now: str | None = None
    now_s: float = 0.0
    last: str = ""
    over: str | None = None

    def take(self, line: Mapping[str, Any]) -> None:
        """One event."""
        kind, text, at_s = str(line["kind"]), str(line["text"]), _seconds(line["at"])
        if kind == "run_began":
            self.began_s = at_s
        elif kind == "matrix_began":
            self.scenarios += int(text.partition(" ")[0])
        elif kind == "scenario_began":
            self.counted -= text != str(line["subject"])  # "NAME, attempt 2"
            self.now, self.now_s = text, at_s
        elif kind == "scenario_ended":
            self.now, self.counted = None, self.counted + 1
        elif kind == "run_ended":
            self.now, self.over = None, text
        self.last = f"{kind.replace('_', ' ')}: {text}"


class Follower:
    """Follows OUT. ``look`` is what the page shows; call it from one thread, about once a second."""

    def __init__(self, out: Path, holder: Callable[[], Holder | None]) -> None:
        self.out = out
        self._holder = holder
        self._rows = Tail(out)
        self._journal_tail = Tail(journal_of(out))
        self._kept = Kept()
        self._sweep: tuple[float, int, int] | None = None
        """When the last sweep of the journal began, its cells and its repetitions."""
        self._over = False
        self._run: _Run | None = None
        self._listed_ns: int | None = None
        self._shown: deque[dict[str, str]] = deque(maxlen=MOST_ROWS)
        self._count = 0
        self._header: list[str] | None = None
        self._tried: dict[tuple[str, int], dict[str, Tried]] = {}
        self._new: set[tuple[str, int]] = set()
        self._pace: tuple[float, int, int, int] | None = None
        self._end_s = 0.0
        self._mine: Holder | None = None

    def look(self) -> dict[str, Any]:
        """The state as plain data, rows as the file has them with ``number`` and ``name``.

        Raises ``UsageError`` where OUT is not of this version's form.
        """
        try:
            # The holder is looked up first: everything it wrote before it ended is then read below.
            holder = self._holder()
            _read(self._journal_tail, self._take_journal)
            self._read_run()
            self._read_rows()
            problem = None
        except OSError as error:
            holder, problem = self._mine, f"cannot read {error.filename}: {error.strerror}"
        course, run = self._course(holder), self._run
        done, whole, end_s = self._standing()
        return {
            "out": self.out.name,
            "what": "sweep" if self._is_sweep else "run",
            "course": course,
            "summary": self._summary(course, done, whole),
            "now": self._now() if course == "on" else None,
            "now_began_s": run.now_s if run is not None and run.now is not None and course == "on" else None,
            "step": run.last if run is not None else "",
            "run": run.path.name if run is not None else None,
            "done": done,
            "all": whole,
            "end_s": end_s if course == "on" else None,
            "rows": list(self._shown),
            "row_count": self._count,
            "problem": problem,
        }

    # --- who measures -------------------------------------------------------------------------------------------------

    def _course(self, holder: Holder | None) -> Course:
        if holder is not None and (self._mine is None or holder.pid == self._mine.pid) and self._is_of(holder):
            self._mine = holder
            return "on"
        if self._mine is None:
            return "nothing"
        is_over = self._over if self._is_sweep else self._run is None or self._run.over is not None
        return "ended" if is_over else "killed"

    def _is_of(self, holder: Holder) -> bool:
        """Whether this process began the last run or sweep here: the lock does not say what it is held for."""
        run = self._run
        return self._is_sweep_of(holder) or (run is not None and run.began_s >= holder.began_s - _CLOCKS_S)

    def _is_sweep_of(self, holder: Holder) -> bool:
        return self._sweep is not None and self._sweep[0] >= holder.began_s - _CLOCKS_S

    @property
    def _is_sweep(self) -> bool:
        if self._mine is not None:
            return self._is_sweep_of(self._mine)
        return self._sweep is not None

    # --- files --------------------------------------------------------------------------------------------------------

    def _take_journal(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "sweep":
            self._sweep = _seconds(line["at"]), int(line["cells"]), int(line["repeat"])
            self._over = False
            self._rows = Tail(self.out)  # rows of before may be of cells that this sweep names
        self._over |= line["kind"] == "sweep_ended"
        take(self._kept, line)

    def _read_run(self) -> None:
        folder = runs_folder(self.out)
        newest = self._newest(folder)
        if newest is not None and (self._run is None or newest > self._run.path.name):
            self._run = _Run(folder / newest, Tail(folder / newest / EVENTS))
        if self._run is not None:
            _read(self._run.tail, self._run.take)

    def _newest(self, folder: Path) -> str | None:
        """The name of the newest run; ``None`` also where the folder is as it was."""
        try:
            changed_ns = folder.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        if changed_ns == self._listed_ns:
            return None
        with os.scandir(folder) as entries:
            newest = max((entry.name for entry in entries if entry.is_dir()), default=None)
        # The times of files have the resolution of the kernel's tick: a change may follow that has the same one.
        self._listed_ns = changed_ns if clock.time_ns() - changed_ns > _CLOCKS_S * 1e9 else None
        return newest

    def _read_rows(self) -> None:
        lines, anew = self._rows.more()
        if anew:
            self._header, self._count = None, 0
            self._shown.clear()
            self._tried.clear()
            self._new.clear()
        for line in lines:
            values = values_of(line)
            if self._header is None:
                self._header = values
                if tuple(values) != COLUMNS:
                    raise UsageError(f"{self.out} has not the columns of this version: it cannot be followed")
            elif values and why_torn(values, COLUMNS) is None:
                self._add(dict(zip(COLUMNS, values, strict=True)))

    def _add(self, row: Mapping[str, str]) -> None:
        if row["Client"] not in OF_ALL:
            return  # the row for all stands for its scenario
        self._count += 1
        cell = self._kept.hashes.get((row["ConfigHash"], row["ScenarioHash"]), "")
        if self._sweep is not None and cell and row["Repetition"].isdecimal():
            measured = (cell, int(row["Repetition"]))
            self._tried.setdefault(measured, {})[row["RunId"].rpartition("-")[2]] = tried_of(row)
            with suppress(ValueError):
                if _seconds(row["Timestamp"]) >= self._sweep[0]:
                    self._new.add(measured)
        self._shown.append({**row, "number": str(self._count), "name": self._kept.cells.get(cell, row["Scenario"])})

    # --- words --------------------------------------------------------------------------------------------------------

    def _states(self) -> list[State]:
        """What each measurement counts as: its first row with figures decides, else the last, as for the sweep."""
        each = (list(tried.values()) for tried in self._tried.values())
        return [next((one for one in tried if one.result == "measured"), tried[-1]).state for tried in each]

    def _settled(self) -> set[tuple[str, int]]:
        """The measurements that are not tried again: the machine has not spoiled all that was measured of them."""
        failed = self._kept.failures
        return {
            measured
            for measured, tried in self._tried.items()
            if any(one.result != "machine" and (*measured, run) not in failed for run, one in tried.items())
        }

    def _standing(self) -> tuple[int, int | None, float | None]:
        """How many are done, of how many, and when all are by the pace so far (seconds since 1970).

        What the machine spoiled is not done. That stays until one more is done: nothing new is sent and drawn each
        second beside what is measured.
        """
        if self._is_sweep and self._sweep is not None:
            began_s, cells, repeat = self._sweep
            whole: int | None = max(cells * repeat, len(self._tried))
            settled = self._settled()
            done, new = len(settled), len(settled & self._new)
        elif self._run is not None:
            whole, new, began_s = self._run.scenarios or None, self._run.counted, self._run.began_s
            done = new
        else:
            return 0, None, None
        if not new or whole is None or done >= whole:
            return done, whole, None
        if self._pace != (pace := (began_s, done, new, whole)):
            self._pace, now_s = pace, clock.time()
            self._end_s = now_s + max(0.0, now_s - began_s) / new * (whole - done)
        return done, whole, self._end_s

    def _now(self) -> str | None:
        if self._run is None or self._run.now is None:
            return None
        if not self._is_sweep or self._sweep is None or not self._kept.runs:
            return self._run.now
        (_, number, cells), (_, _, repeat) = self._kept.runs[-1], self._sweep
        texts = [self._kept.cells.get(cell, "") for cell in cells]
        known = [text for text in texts if text == self._run.now or text.startswith(f"{self._run.now} (")]
        repetition = f", repetition {number} of {repeat}" if repeat > 1 else ""
        return f"{known[0] if len(known) == 1 else self._run.now}{repetition}"

    def _summary(self, course: Course, done: int, whole: int | None) -> str:
        """The course in a sentence."""
        what = "the sweep" if self._is_sweep else "the run"
        if course == "nothing":
            return f"nothing is measured on {self.out} now"
        if course == "on":
            spoiled = len(self._tried) - done if self._is_sweep else 0
            again = f"; {spoiled} not done, since the machine spoiled its measurement" if spoiled else ""
            return f"{what} on {self.out} goes on{again}"
        if course == "killed":
            remedy = "the same command goes on where it was" if self._is_sweep else "its rows are kept; run it again"
            return f"{what} on {self.out} was killed: its process is gone, and no end was recorded; {remedy}"
        if self._is_sweep:
            rest = "" if done == whole else f"; the same command measures the {(whole or 0) - done} that are left"
            have = f"{len(self._tried)} of {whole} measurements have a row"
            return f"{what} on {self.out} ended: {have}: {states_text(self._states())}{rest}"
        assert self._run is not None
        return f"{what} on {self.out} ended: {self._run.over}"


def _read(tail: Tail, take: Callable[[Mapping[str, Any]], None]) -> None:
    """Have ``take`` the lines of JSON; a line that is none of ours is left out."""
    lines, _ = tail.more()
    for text in lines:
        with suppress(ValueError, TypeError, LookupError, OverflowError, RecursionError):
            take(json.loads(text))


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
