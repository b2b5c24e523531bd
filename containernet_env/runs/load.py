"""The driver's client of the benchmark server: the request of a scenario, its course, its figures; the relay to it."""

from __future__ import annotations

import errno
import socket
import socketserver
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

from containernet_env.base import assets, clock
from containernet_env.base.errors import RunError
from containernet_env.base.http import Connection, HttpError, NoAnswerError
from containernet_env.hosts.http import UnixConnection
from containernet_env.model import load_contract as contract
from containernet_env.model.load_result import SCHEMA, LoadResult
from containernet_env.model.scenario import Load, Scenario, Span
from containernet_env.stores.cluster import NEAR, Broken, Waits
from containernet_env.stores.store import LoadTerms

# The server's default of dialTimeout; no scenario changes it.
_DIAL_TIMEOUT_S = 10.0
TIMELINE_STEP_S = 0.1
"""The step of the timeline of a scenario with events, fine enough to show them."""


def dial_timeout_s(waits: Waits) -> float:
    """Time limit for opening all connections of a load."""
    return min(waits.dilation * _DIAL_TIMEOUT_S + waits.request_s, float(contract.MOST["dialTimeout"]))


def request_of(
    scenario: Scenario,
    endpoints: Mapping[str, str],
    run_timeout_s: float,
    load_seed: int = 0,
    terms: LoadTerms | None = None,
    prefix: str = "",
    leader: str | None = None,
    waits: Waits = NEAR,
    start_ns: int = 0,
) -> tuple[str, dict[str, Any]]:
    """The path and JSON body of the request for `scenario`; fields that it does not configure are left out.

    `endpoints` has "ip:port" of each living member by its name; the one that the scenario targets is among them.
    `load_seed`: the seed of everything but values; 0 is the server's default. `terms`: those of the store, if it is not
    the server's default one. `prefix`: the start of every key, before a prefix of the scenario's own. `leader`: the
    leader, for loads whose members do not report it; the first of `endpoints` if it is none of these. `waits`: those of
    the network that the load crosses. `start_ns`: when the load starts (CLOCK_MONOTONIC); 0: at once.
    """
    terms = terms or LoadTerms()
    body: dict[str, Any] = {
        "endpoints": ",".join(endpoints.values()),
        "runTimeout": run_timeout_s,
        **_load_fields(scenario),
        **terms.always,
    }
    if not scenario.reads or scenario.put_ratio is not None:
        body |= terms.puts
    if scenario.reads:
        body |= terms.gets
    if waits.request_s or waits.dilation > 1:
        body["dialTimeout"] = dial_timeout_s(waits)
    if waits.dilation > 1:
        body["dilation"] = waits.dilation
    if load_seed:
        body["loadSeed"] = load_seed
    if start_ns:
        body["startNs"] = start_ns
    if scenario.events:
        body["timelineInterval"] = TIMELINE_STEP_S
    if scenario.verify or not scenario.span.named:
        body |= _key_fields(scenario, prefix)
    if scenario.history:
        body["history"] = True
    if scenario.member is not None:
        body["targetMember"] = endpoints[scenario.member]
    elif terms.leaderless:
        if scenario.target == "leader":
            body["targetMember"] = endpoints.get(leader or "") or next(iter(endpoints.values()))
    elif scenario.type == "write" or scenario.target == "leader":
        body["targetLeader"] = scenario.target == "leader"
    # Sequential is the server's default for reads; writes set it with sequentialKeys.
    if scenario.keys != "sequential" or scenario.type in ("mixed", "txn"):
        body["keyOrder"] = scenario.keys
    if scenario.keys == "zipfian":
        body["zipfExponent"] = float(scenario.zipf_exponent)
    if scenario.type == "write":
        order = {"sequentialKeys": True} if scenario.keys == "sequential" else {}
        return contract.PATHS["write"], body | order | {"valSize": scenario.val_size}
    if scenario.type == "txn":
        return contract.PATHS["txn"], body | {"valSize": scenario.val_size}
    body |= {"consistency": scenario.consistency, "requireFound": True, **_span_fields(scenario.span, prefix)}
    if scenario.verify:
        body["verify"] = True
    # The expected result of reads follows from the size of the values and from the seed: the server's default, as when
    # the keys were written.
    if scenario.verify or scenario.type == "mixed":
        body["valSize"] = scenario.val_size
    if scenario.put_ratio is None:
        return contract.PATHS["read"], body
    return contract.PATHS["mixed"], body | {"ratio": float(scenario.put_ratio)}


def _key_fields(scenario: Scenario, prefix: str) -> dict[str, Any]:
    keys: dict[str, Any] = {"keySize": scenario.key_size}
    if scenario.key_space is not None:
        keys["keySpace"] = scenario.key_space
    if prefix or scenario.key_prefix:
        keys["keyPrefix"] = prefix + scenario.key_prefix
    return keys


def _span_fields(span: Span, prefix: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if span.prefix is not None:
        fields |= {"key": prefix + span.prefix, "prefix": True}
    if span.start is not None:
        fields |= {"key": prefix + span.start, "endRange": f"{prefix}{span.end}"}
    if span.keys is not None:
        fields["spanKeys"] = span.keys
    if span.limit is not None:
        fields["limit"] = span.limit
    if span.answer != "values":
        fields[f"{span.answer}Only"] = True
    return fields


def _load_fields(load: Load) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for item in fields(Load):
        name, value = item.metadata.get("request"), getattr(load, item.name)
        if name is not None and value is not None:
            value = float(value) if isinstance(value, Decimal) else value
            body[name] = value / 1e9 if item.name.endswith("_ns") else value
    if load.rate is not None:
        body["arrival"] = load.arrival
    if load.warmup.requests:
        body["warmupRequests"] = load.warmup.requests
    if load.warmup.length_ns:
        body["warmupDuration"] = load.warmup.length_ns / 1e9
    return body


SERVER_ENTRY_POINT = "benchmark-server"
"""The first process of the benchmark host."""
SERVER_SOCKET = "benchmark-server"
"""The abstract name of its socket, which exists only in the network namespace of that host (unix(7))."""
_ONLY_PORT = 0  # a socket has none
# All requests but benchmarks are answered from memory; a longer wait means that the server is stuck.
QUESTION_TIMEOUT_S = 5.0
_POLL_S = 0.05
# Time limit for the end of a benchmark after the connection to its caller broke: the longest grace of its client, and
# the same again on a busy machine.
_KEPT_TIMEOUT_S = 60.0
_PIECE_BYTES = 1 << 20
_HISTORY_PATH = "/benchmark/history"


@dataclass(frozen=True, slots=True)
class Answer:
    """How one benchmark ended.

    ``load`` is the measurement, also of a failed benchmark, up to its failure; ``None`` if there is none.
    ``error`` is one line; ``None`` if every request succeeded. ``lost``: the server gave no answer.
    """

    load: LoadResult | None
    error: str | None
    lost: bool = False


@dataclass(frozen=True)
class Progress:
    """The server's progress of the running benchmark, by the names of the server's answer.

    ``done`` requests of the measurement have an outcome, ``errors`` of them a bad one, and ``warmup_done`` of the
    warm-up; the client's last report is ``client_silent_s`` old. The measurement began at ``began_ns``
    (CLOCK_MONOTONIC); ``None`` before.
    """

    running: bool
    done: int
    errors: int
    warmup_done: int
    client_silent_s: float
    began_ns: int | None = None


class BenchmarkServer:
    """Talks to the server over the connection to its host; every benchmark's body also has the fields ``common``."""

    def __init__(self, connection: Connection, common: Mapping[str, str] | None = None) -> None:
        self._connection = connection
        self._common = dict(common or {})
        self._job: str | None = None  # of the running benchmark, once its progress was queried

    def wait_ready(self, timeout_s: float, broken: Broken = lambda: None) -> None:
        """Wait until the server answers; RunError after `timeout_s`, or once `broken` gives a reason, with it."""
        deadline = clock.monotonic() + timeout_s
        while True:
            try:
                self._connection.request_json(_ONLY_PORT, "GET", "/healthz", timeout_s=QUESTION_TIMEOUT_S)
                return
            except RunError as error:
                if (reason := broken()) is not None:
                    raise RunError(reason) from error
                if clock.monotonic() > deadline:
                    raise RunError(f"the benchmark server did not answer within {timeout_s:g} s: {error}") from error
                clock.sleep(_POLL_S)

    def run(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        """Run one benchmark to its end: blocks. `timeout_s` bounds the wait for the answer.

        If the connection breaks before the answer arrives, the server may have kept the answer, and it is fetched.
        Raises RunError for an unknown form of the answer: later ones would have the same.
        """
        self._job = None
        try:
            return self._answer("POST", path, {**body, **self._common}, timeout_s)
        except HttpError as error:
            return Answer(None, str(error))
        except NoAnswerError as error:
            return self._kept() or Answer(None, f"the benchmark server did not answer: {error}", lost=True)

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Answer:
        """The measurement; HttpError if there is none."""
        try:
            result = self._connection.request_json(_ONLY_PORT, method, path, body, timeout_s=timeout_s)
        except HttpError as error:
            partial = error.body.get("result") if isinstance(error.body, dict) else None
            if partial is None:
                raise
            return Answer(_known(partial), str(error.body["error"]))
        return Answer(_known(result), None)

    def _kept(self) -> Answer | None:
        """The answer to the last benchmark once that has ended; None if the server has none or is gone."""
        deadline = clock.monotonic() + _KEPT_TIMEOUT_S
        while self._job is not None and clock.monotonic() < deadline:
            try:
                return self._answer("GET", contract.PATHS["result"] + self._job, None, QUESTION_TIMEOUT_S)
            except HttpError as error:
                if error.status == 500:
                    return Answer(None, str(error))
                if error.status != 409:
                    return None
            except NoAnswerError:
                return None
            clock.sleep(_POLL_S)  # it is still running
        return None

    def progress(self) -> Progress | None:
        """The progress of the benchmark; None if the server does not answer."""
        try:
            answer = self._connection.request_json(_ONLY_PORT, "GET", "/progress", timeout_s=QUESTION_TIMEOUT_S)
        except RunError:
            return None
        self._job = answer["job"] or self._job
        return Progress(**{field.name: answer[field.name] for field in fields(Progress)})

    def history(self) -> Iterator[bytes]:
        """The history of the last benchmark that kept one, compressed, in pieces. Raises RunError."""
        with self._connection.stream(_ONLY_PORT, "GET", _HISTORY_PATH, timeout_s=QUESTION_TIMEOUT_S) as answer:
            while piece := answer.read(_PIECE_BYTES):
                yield piece
            if answer.length:
                raise RunError(f"the benchmark server ended the history {answer.length} bytes early")

    def cancel(self) -> None:
        """End the running benchmark early, with a report of its results so far. RunError if the server is gone."""
        self._connection.request_json(_ONLY_PORT, "POST", "/benchmark/cancel", {}, timeout_s=QUESTION_TIMEOUT_S)


def _known(result: Any) -> LoadResult:
    """`result`, which must have the version that this client reads."""
    version = result.get("schema") if isinstance(result, dict) else None
    if version != SCHEMA:
        got = "without a version" if version is None else f"of version {version!r}"
        raise RunError(
            f"the benchmark server gave a result {got}; version {SCHEMA} is read here. Its image was not built "
            f"from these sources. {assets.set_up_hint()}"
        )
    return LoadResult.from_json(result)


MAX_CONNECTIONS = 64
_CHUNK_BYTES = 64 * 1024


class Relay(socketserver.ThreadingTCPServer):
    """Listens on 127.0.0.1 and relays each connection to the server over a connection of its own.

    `port` is the requested one, or another if that is taken (`port_taken` is true then). Only loopback is ever
    bound. Two threads serve a connection, at most `MAX_CONNECTIONS` concurrently; further ones are closed at once.
    """

    allow_reuse_address = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, server: UnixConnection, port: int) -> None:
        self._server = server
        self._lock = clock.Lock()
        self._is_closing = False
        self._ends: dict[socket.socket, list[socket.socket]] = {}
        self._acceptor = clock.Thread(target=self.serve_forever, args=(_POLL_S,), name="relay", daemon=True)
        super().__init__(("127.0.0.1", port), socketserver.BaseRequestHandler, bind_and_activate=False)
        self.port_taken = False
        try:
            self.server_bind()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                self.server_close()
                raise RunError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
            self.port_taken = True
            self.server_address = ("127.0.0.1", 0)
            self.server_bind()
        self.port = int(self.server_address[1])

    def start(self) -> None:
        """Start accepting; the port answers when this returns."""
        self.server_activate()
        self._acceptor.start()

    def close(self) -> None:
        """Stop accepting, close every connection, join the threads; idempotent."""
        with self._lock:
            self._is_closing = True
            for ends in self._ends.values():
                for end in ends:
                    _cut(end, socket.SHUT_RDWR)
        if self._acceptor.is_alive():
            self.shutdown()
        self.server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether a connection is served; called by the acceptor."""
        with self._lock:
            is_served = not self._is_closing and len(self._ends) < MAX_CONNECTIONS
            if is_served:
                self._ends[request] = [request]
        return is_served

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Relay one connection, on a thread of its own.

        If the host is gone or refuses, the caller's connection is closed, as on a real network.
        """
        with suppress(OSError, RunError), self._server.open(timeout_s=None) as inside:
            with self._lock:
                if self._is_closing:
                    return
                self._ends[request].append(inside)
            back = clock.Thread(target=_pump, args=(inside, request), name="relay", daemon=True)
            back.start()
            _pump(request, inside)
            back.join()

    def shutdown_request(self, request: Any) -> None:
        """Let go of a connection that has ended, or is not served."""
        with self._lock:
            self._ends.pop(request, None)
        super().shutdown_request(request)


def _cut(end: socket.socket, how: int) -> None:
    with suppress(OSError):  # not connected any more
        end.shutdown(how)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until the source ends, then end the sink's direction only (half close)."""
    with suppress(OSError):  # either end was cut
        while data := source.recv(_CHUNK_BYTES):
            sink.sendall(data)
    _cut(sink, socket.SHUT_WR)
