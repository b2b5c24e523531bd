"""The state of a run or sweep while it goes on, from the files that it leaves, and the page that shows it.

The page is made of the same parts as a report, and served to this machine alone: HTTP on 127.0.0.1 with events. Other
machines do not reach it, and pages of other sites are refused, also those whose name leads here (DNS rebinding): only
requests to its own name are answered, only from its own page, and only GET. The number of clients is bounded, each has
a thread, and a slow one delays no other and is closed.
"""

from __future__ import annotations

import json
import math
import os
import socket
import socketserver
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Literal

from containernet_env.base import clock
from containernet_env.base.errors import UsageError
from containernet_env.model import findings
from containernet_env.model.findings import reasons_text, states_text
from containernet_env.report.page import live, render
from containernet_env.report.rows import Figure, figure_of, number, scaled
from containernet_env.results.columns import COLUMNS, NOT_APPLICABLE
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

    def _states(self) -> list[findings.State]:
        """What each measurement counts as: its last row with figures decides, else the last, as for the sweep."""
        each = (list(tried.values()) for tried in self._tried.values())
        return [next((one for one in reversed(tried) if one.result == "measured"), tried[-1]).state for tried in each]

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


# --- the page ---------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 600, 220, 62, 20, 10
_MOST_MARKS = 60
_SHAPES = {"first": "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "second": "m0-5l5 9h-10z", "cross": "m-4-4l8 8m0-8l-8 8"}
"""Marks as SVG paths: a disc, a triangle and a cross."""
_RATE, _P50, _P99 = _FIGURES = tuple(map(figure_of, ("Requests/sec", "50%", "99%")))
_CHARTS = (
    ("Requests/s", ((_RATE, "first"),)),
    ("Latency: p50 \u25cf and p99 \u25b3 (ms)", ((_P50, "first"), (_P99, "second"))),
)


def view(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of a look: its course and problem, and the rest as HTML."""
    rows, noun = found["rows"], "measurements" if found["what"] == "sweep" else "scenarios"
    step, now = found["step"], found["now"]
    whole = "" if found["all"] is None else f" of {found['all']}"
    over = {"ended": "ended", "killed": "\u00d7 killed"}.get(found["course"])
    shown, count = len(rows), found["row_count"]
    html = live(
        found=found,
        now=over or now or step or "-",
        standing=f"{found['done']}{whole} {noun} done",
        step="" if found["run"] is None else f"run {found['run']}{f': {step}' if now is not None else ''}",
        charts=[_chart(title, series, rows[-_MOST_MARKS:]) for title, series in _CHARTS],
        columns=["row", "scenario", "repetition", "requests/s", "p50 (ms)", "p99 (ms)", "errors", "valid", "why"],
        rows=[_cells(row) for row in reversed(rows)],
        bad=[not _counts(row) for row in reversed(rows)],
        caption=f"The last {shown} of {count} rows" if shown < count else f"All {count} rows",
    )
    return {"course": found["course"], "summary": found["summary"], "problem": found["problem"], "html": html}


def _counts(row: Mapping[str, str]) -> bool:
    return row["Valid"] == "yes" and row["Error"] == NOT_APPLICABLE


def _cells(row: Mapping[str, str]) -> list[str]:
    parts = (row["Error"], reasons_text(row["Reasons"]), row["Advice"])
    why = "; ".join(part for part in parts if part != NOT_APPLICABLE)
    figures = [_number(_value(row, figure)) for figure in _FIGURES]
    return [row["number"], row["name"], row["Repetition"], *figures, row["Errors"], row["Valid"], why or "-"]


def _value(row: Mapping[str, str], figure: Figure) -> float | None:
    return scaled(number(row[figure.column]), figure.scale)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 3
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _chart(title: str, series: Sequence[tuple[Figure, str]], rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """A logarithmic chart with a mark for each row: where its lines, marks and texts are."""
    values = [value for figure, _ in series for row in rows if (value := _value(row, figure) or 0) > 0]
    low = math.floor(math.log10(min(values))) if values else 0
    high = max(low + 1, math.ceil(math.log10(max(values)) + 1e-9) if values else 1)

    def y(value: float) -> float:
        return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (math.log10(value) - low) / (high - low)), 1)

    def x(place: int) -> float:
        return round(_LEFT + 10 + (_WIDTH - _LEFT - 20) * (place / (len(rows) - 1) if len(rows) > 1 else 0.5), 1)

    def marks() -> Iterator[tuple[str, str, str]]:
        for place, row in enumerate(rows):
            for figure, kind in series:
                if (value := _value(row, figure) or 0) <= 0:
                    continue
                words = f"{row['number']}: {row['name']}\n{figure.short} {_number(value)} {figure.unit}".rstrip()
                for one in [kind] if _counts(row) else ["second", "cross"] if kind == "second" else ["cross"]:
                    yield one, f"M{x(place)} {y(value)}{_SHAPES[one]}", words

    ends = [(x(0), "middle", f"row {rows[0]['number']}")] if rows else []
    ends += [(_WIDTH, "end", f"row {rows[-1]['number']}")] if len(rows) > 1 else []
    decades = [(y(10.0**decade), _number(10.0**decade)) for decade in range(low, high + 1)]
    return {"title": title, "decades": decades, "marks": list(marks()), "ends": ends}


# --- the server -------------------------------------------------------------------------------------------------------

MOST_CLIENTS = 32
"""Connections at once; a browser takes up to six for a page, mostly one."""
REQUEST_S = 5.0
"""A request has to be there, whole, so soon after its connection."""
SEND_S = 5.0
"""What a client takes nothing of for so long, it does not get."""
BEAT_S = 5.0
"""So often a line is sent where nothing changes, which finds clients that are gone."""
LAST_S = 2.0
"""At the end, clients have so long to take the last state."""
_NAMES = ("127.0.0.1", "localhost", "[::1]")
_POLICY = ("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
_SAFE = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class State:
    """The last state that was published, for many readers."""

    def __init__(self) -> None:
        self._changed = clock.Condition()
        self._latest = 0, b"", False

    def publish(self, state: Mapping[str, Any], ended: bool = False) -> None:
        """Give readers a state; ``ended``: it is the last one."""
        data = json.dumps(state, allow_nan=False, separators=(",", ":")).encode()
        with self._changed:
            number, before, _ = self._latest
            if data != before or ended:
                self._latest = number + 1, data, ended
                self._changed.notify_all()

    def after(self, number: int, timeout_s: float) -> tuple[int, bytes, bool]:
        """The first state after that of a number, with its own, and whether it is the last; the same number if late."""
        with self._changed:
            self._changed.wait_for(lambda: self._latest[0] > number, timeout_s)
            return self._latest


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "containernet-env"
    sys_version = ""
    timeout = SEND_S

    def do_GET(self) -> None:
        self.server.heard(self.request)
        if (why := self._refused()) is not None:
            self._answer(403, why.encode())
        elif self.path == "/":
            self._answer(200, self.server.page, "text/html; charset=utf-8", self.server.policy)
        elif self.path == "/events":
            self._events()
        else:
            self._answer(404, b"there is / and /events\n")

    def _refused(self) -> str | None:
        """Why this request is not answered: it is to another name, or from the page of another site."""
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0].lower() not in self.server.names:
            return f"this is {self.server.url} and answers to no other name\n"
        own = {origin.lower() for origin in origins} <= {f"http://{name}" for name in self.server.names}
        if not own or self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "this answers its own page only\n"
        return None

    def _head(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**_SAFE, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _answer(
        self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", policy: str = "default-src 'none'"
    ) -> None:
        self._head(status, Content_Type=kind, Content_Length=str(len(body)), Content_Security_Policy=policy)
        self.wfile.write(body)

    def _events(self) -> None:
        self._head(200, Content_Type="text/event-stream")
        number, ended = 0, False
        while not ended:
            latest, data, ended = self.server.state.after(number, BEAT_S)
            self.wfile.write(b"data: %s\n\n" % data if latest > number else b": nothing new\n\n")
            number = latest

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Also for methods other than GET, which have no handler."""
        self._head(405 if code == 501 else code, Allow="GET", Content_Length="0")

    def log_message(self, *args: Any, **more: Any) -> None:
        """Nothing is logged."""


class Server(socketserver.ThreadingTCPServer):
    """Serves ``state`` from its construction to ``close``. Raises ``UsageError`` where the port cannot be had."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = MOST_CLIENTS

    def __init__(self, out: Path, state: State, port: int = 0) -> None:
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise UsageError(
                f"the page cannot be served on port {port} of 127.0.0.1: {error.strerror}\n"
                "  Choose another one with --port, or leave it out."
            ) from error
        self.state = state
        page, self.policy = render("watch.html", ["watch.js"], _POLICY, title=out.name)
        self.page = page.encode()
        self.port = int(self.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/"
        self.names = {f"{name}:{self.port}" for name in _NAMES} | (set(_NAMES) if self.port == 80 else set())
        self._lock = clock.Lock()
        self._clients: dict[socket.socket, float | None] = {}
        self._thread = clock.Thread(target=self.serve_forever, args=(0.1,), name="watch", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def heard(self, client: Any) -> None:
        with self._lock:
            if client in self._clients:
                self._clients[client] = None

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a client a thread, while there are not too many."""
        with self._lock:
            full = len(self._clients) >= MOST_CLIENTS
            if not full:
                self._clients[request] = clock.monotonic() + REQUEST_S
        if not full:
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.setblocking(False)
            request.send(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n")
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Give up clients whose request is late, however slowly it still comes."""
        now = clock.monotonic()
        with self._lock:
            late = [client for client, until in self._clients.items() if until is not None and now > until]
        for client in late:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone or takes nothing is no error of ours."""

    def drain(self) -> None:
        """Wait until every client has the last state, at most `LAST_S`."""
        until = clock.monotonic() + LAST_S
        while self._clients and clock.monotonic() < until:
            clock.sleep(0.02)

    def close(self) -> None:
        """End it at once; idempotent."""
        self.shutdown()
        self.server_close()
