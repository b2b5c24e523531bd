"""The driver's client of the benchmark server: start a benchmark, follow it, end it, read its figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from containernet_env.base import assets, clock
from containernet_env.base.errors import RunError
from containernet_env.base.http_answer import HttpError, NoAnswerError
from containernet_env.base.http_stream import streamed
from containernet_env.model import load_contract as contract
from containernet_env.model.load_result import SCHEMA, LoadResult
from containernet_env.stores.protocol import Broken, Connection

SERVER_ENTRY_POINT = "benchmark-server"
"""The first process of the benchmark host."""
SERVER_SOCKET = "benchmark-server"
"""The abstract name of its socket, which exists in the network namespace of that host alone (unix(7))."""
_ONLY_PORT = 0  # a socket has none
# All requests but benchmarks are answered from memory; a longer wait means that the server is stuck.
QUESTION_TIMEOUT_S = 5.0
_POLL_S = 0.05
# How long a benchmark may take to end once the connection to its caller broke: the longest grace of its client, and as
# much again on a busy machine.
_KEPT_TIMEOUT_S = 60.0
_PIECE_BYTES = 1 << 20
_HISTORY_PATH = "/benchmark/history"


@dataclass(frozen=True, slots=True)
class Answer:
    """How one benchmark ended.

    ``load`` is what was measured, also of a failed benchmark, as far as it got; ``None`` where nothing was.
    ``error`` is one line; ``None`` where every request was answered well. ``lost``: the server gave no answer.
    """

    load: LoadResult | None
    error: str | None
    lost: bool = False


@dataclass(frozen=True)
class Progress:
    """The server's progress of the running benchmark.

    ``done`` requests of the measurement have an outcome, ``errors`` of them a bad one, and ``warmup_done`` of the
    warm-up; the client last told of itself ``client_silent_s`` ago. ``job`` names the result that there will be. The
    measurement began at ``began_ns`` (CLOCK_MONOTONIC); ``None`` before.
    """

    running: bool
    done: int
    total: int
    errors: int
    warmup_done: int
    client_silent_s: float
    job: str | None = None
    began_ns: int | None = None


class BenchmarkServer:
    """Talks to the server over the connection to its host; every benchmark's body also has the fields ``common``."""

    def __init__(self, connection: Connection, common: Mapping[str, str] | None = None) -> None:
        self._connection = connection
        self._common = dict(common or {})
        self._job: str | None = None  # of the running benchmark, once its progress was asked for

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

        Where the connection breaks before the answer came, the server may have kept it, and it is fetched. Raises
        RunError where the answer is not in the form that is read here: later ones would not be either.
        """
        self._job = None
        try:
            return self._answer("POST", path, {**body, **self._common}, timeout_s)
        except HttpError as error:
            return Answer(None, str(error))
        except NoAnswerError as error:
            return self._kept() or Answer(None, f"the benchmark server did not answer: {error}", lost=True)

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Answer:
        """What was measured; HttpError where nothing was."""
        try:
            result = self._connection.request_json(_ONLY_PORT, method, path, body, timeout_s=timeout_s)
        except HttpError as error:
            partial = error.body.get("result") if isinstance(error.body, dict) else None
            if partial is None:
                raise
            return Answer(_known(partial), str(error.body["error"]))
        return Answer(_known(result), None)

    def _kept(self) -> Answer | None:
        """The answer to the last benchmark once that has ended; None where the server has none or is gone."""
        deadline = clock.monotonic() + _KEPT_TIMEOUT_S
        while self._job is not None and clock.monotonic() < deadline:
            try:
                return self._answer("GET", contract.RESULT_PATH + self._job, None, QUESTION_TIMEOUT_S)
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
        """The progress of the benchmark; None where the server does not answer."""
        try:
            answer = self._connection.request_json(_ONLY_PORT, "GET", "/progress", timeout_s=QUESTION_TIMEOUT_S)
        except RunError:
            return None
        self._job = answer["job"] or self._job
        return Progress(
            running=bool(answer["running"]),
            done=int(answer["done"]),
            total=int(answer["total"]),
            errors=int(answer["errors"]),
            warmup_done=int(answer["warmup_done"]),
            client_silent_s=float(answer["client_silent_s"]),
            job=answer["job"],
            began_ns=answer["began_ns"],
        )

    def history(self) -> Iterator[bytes]:
        """The history of the last benchmark that kept one, compressed, in pieces. Raises RunError."""
        connection = self._connection.open(_ONLY_PORT, timeout_s=QUESTION_TIMEOUT_S)
        with streamed(connection, "GET", _HISTORY_PATH) as answer:
            while piece := answer.read(_PIECE_BYTES):
                yield piece
            if answer.length:
                raise RunError(f"the benchmark server ended the history {answer.length} bytes early")

    def cancel(self) -> None:
        """End the running benchmark early, with a report of what it has. Raises RunError where the server is gone."""
        self._connection.request_json(_ONLY_PORT, "POST", "/benchmark/cancel", {}, timeout_s=QUESTION_TIMEOUT_S)


def _known(result: Any) -> LoadResult:
    """`result`, which must be in the version that is read here."""
    version = result.get("schema") if isinstance(result, dict) else None
    if version != SCHEMA:
        got = "without a version" if version is None else f"of version {version!r}"
        raise RunError(
            f"the benchmark server gave a result {got}; version {SCHEMA} is read here. Its image was not built "
            f"from these sources. {assets.set_up_hint()}"
        )
    return LoadResult.from_json(result)
