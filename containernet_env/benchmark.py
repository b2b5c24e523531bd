"""The benchmark server, seen from the driver: start a benchmark, follow it, end it, read its figures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from containernet_env.errors import RunError
from containernet_env.netns_http import HttpError, NoAnswerError, request_json
from containernet_env.scenarios import Scenario

SERVER_PORT = 8080
# Questions other than the benchmark itself are answered from memory; longer means the server is stuck.
QUESTION_TIMEOUT_S = 5.0
# Deadline of each request. A loaded member on a fifth of a core answers within a few seconds; a dead one never
# does, and a run should say so within a minute.
REQUEST_TIMEOUT_S = 20.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Outcome:
    """How one benchmark ended.

    `result` is the server's figures (schema in docs/http-api.md), also of a failed run as far as it came; None where
    nothing was measured. `error` is one line, None where every request was answered well.
    """

    result: Mapping[str, Any] | None
    error: str | None


@dataclass(frozen=True)
class Progress:
    """What the server says of the benchmark that it is running."""

    running: bool
    done: int
    total: int
    errors: int


class BenchmarkServer:
    """Talks to the server inside the namespace of the benchmark host's process `pid`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the server answers; RunError after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                request_json(self._pid, SERVER_PORT, "GET", "/healthz", timeout_s=QUESTION_TIMEOUT_S)
                return
            except RunError as error:
                if time.monotonic() > deadline:
                    raise RunError(f"the benchmark server did not answer within {timeout_s:g} s: {error}") from error
                time.sleep(_POLL_S)

    def run(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Outcome:
        """Run one benchmark to its end: blocks. `timeout_s` bounds the wait for the answer."""
        try:
            result = request_json(self._pid, SERVER_PORT, "POST", path, body, timeout_s=timeout_s)
        except HttpError as error:
            partial = error.body.get("result") if isinstance(error.body, dict) else None
            return Outcome(partial, str(error.body["error"]) if partial is not None else str(error))
        except NoAnswerError as error:
            return Outcome(None, f"the benchmark server did not answer: {error}")
        return Outcome(result, None)

    def progress(self) -> Progress | None:
        """How far the benchmark has come; None where the server does not say."""
        try:
            answer = request_json(self._pid, SERVER_PORT, "GET", "/progress", timeout_s=QUESTION_TIMEOUT_S)
        except RunError:
            return None
        return Progress(bool(answer["running"]), int(answer["done"]), int(answer["total"]), int(answer["errors"]))

    def cancel(self) -> None:
        """Ask the running benchmark to end and to report what it has. Raises RunError where the server is gone."""
        request_json(self._pid, SERVER_PORT, "POST", "/benchmark/cancel", {}, timeout_s=QUESTION_TIMEOUT_S)


def request_of(scenario: Scenario, endpoints: Sequence[str], run_timeout_s: float) -> tuple[str, dict[str, Any]]:
    """The path and JSON body that ask the server for `scenario` on `endpoints` ("ip:port" each)."""
    body: dict[str, Any] = {
        "endpoints": ",".join(endpoints),
        "clients": scenario.clients,
        "total": scenario.total,
        "conns": scenario.conns,
        "requestTimeout": REQUEST_TIMEOUT_S,
        "runTimeout": run_timeout_s,
    }
    if scenario.type == "write":
        body |= {
            "keySize": scenario.key_size,
            "valSize": scenario.val_size,
            "sequentialKeys": True,
            "keySpace": scenario.key_space,
            "targetLeader": scenario.target == "leader",
        }
        return "/benchmark/write", body
    body |= {
        "keySize": scenario.key_size,
        "keySpace": scenario.key_space,
        "consistency": scenario.consistency,
        "requireFound": True,
    }
    return "/benchmark/read", body
