"""The page, made of the same parts as a report, and served to this machine alone: HTTP on 127.0.0.1 with events.

Other machines do not reach it, and pages of other sites are refused, also those whose name leads here (DNS rebinding):
only requests to its own name are answered, only from its own page, and only GET. The number of clients is bounded, each
has a thread, and a slow one delays no other and is closed.
"""

from __future__ import annotations

import json
import math
import socket
import socketserver
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from containernet_env.base import clock
from containernet_env.base.errors import UsageError
from containernet_env.model.findings import reasons_text
from containernet_env.report.page import live, render
from containernet_env.report.rows import Figure, figure_of, scaled
from containernet_env.results.columns import NOT_APPLICABLE

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
_SAFE = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


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


def page(name: str) -> tuple[bytes, str]:
    """The page about a results file of this name, and its Content-Security-Policy."""
    policy = ["connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    text, allowed = render("watch.html", ["watch.js"], policy, title=name)
    return text.encode(), allowed


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
    """What a row has of a figure, in its unit."""
    try:
        return scaled(float(row[figure.column]), figure.scale)
    except ValueError:
        return None


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


class State:
    """The last state that was published, for many readers."""

    def __init__(self) -> None:
        self._changed = clock.Condition()
        self._number = 0
        self._data = b""
        self._ended = False

    def publish(self, state: Mapping[str, Any], ended: bool = False) -> None:
        """Give readers a state; ``ended``: it is the last one."""
        data = json.dumps(state, allow_nan=False, separators=(",", ":")).encode()
        with self._changed:
            if data != self._data or ended:
                self._number, self._data, self._ended = self._number + 1, data, ended
                self._changed.notify_all()

    def after(self, number: int, timeout_s: float) -> tuple[int, bytes, bool]:
        """The first state after that of a number, with its own, and whether it is the last; the same number if late."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > number, timeout_s)
            return self._number, self._data, self._ended


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
        self.page, self.policy = page(out.name)
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
        """The request of a client is there."""
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
        """A client is done with."""
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
