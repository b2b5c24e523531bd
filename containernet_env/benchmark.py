"""The benchmark server, seen from the driver: start a benchmark, follow it, end it, read its figures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from containernet_env.data_keys import Span
from containernet_env.errors import RunError
from containernet_env.netns_http import HttpError, NoAnswerError, request_json
from containernet_env.scenarios import Scenario

SERVER_PORT = 8080
RESULT_SCHEMA = 4
"""The version of docs/benchmark-result.schema.json that is read here."""
# Questions other than the benchmark itself are answered from memory; longer means the server is stuck.
QUESTION_TIMEOUT_S = 5.0
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
        """Run one benchmark to its end: blocks. `timeout_s` bounds the wait for the answer.

        Raises RunError where the answer is not in the form that is read here: no other one can follow.
        """
        try:
            result = request_json(self._pid, SERVER_PORT, "POST", path, body, timeout_s=timeout_s)
        except HttpError as error:
            partial = error.body.get("result") if isinstance(error.body, dict) else None
            if partial is None:
                return Outcome(None, str(error))
            return Outcome(_known(partial), str(error.body["error"]))
        except NoAnswerError as error:
            return Outcome(None, f"the benchmark server did not answer: {error}")
        return Outcome(_known(result), None)

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


def _known(result: Any) -> Mapping[str, Any]:
    """`result`, which must be in the version that is read here."""
    version = result.get("schema") if isinstance(result, dict) else None
    if version != RESULT_SCHEMA:
        got = "without a version" if version is None else f"of version {version!r}"
        raise RunError(
            f"the benchmark server gave a result {got}; version {RESULT_SCHEMA} is read here. Its image was not built "
            "from this clone: run ./build.sh"
        )
    assert isinstance(result, dict)
    return result


def request_of(scenario: Scenario, endpoints: Mapping[str, str], run_timeout_s: float) -> tuple[str, dict[str, Any]]:
    """The path and JSON body that ask the server for `scenario`; what it does not ask for is left out.

    `endpoints` has "ip:port" of each living member by its name; the one that the scenario targets is among them.
    """
    body: dict[str, Any] = {
        "endpoints": ",".join(endpoints.values()),
        "clients": scenario.clients,
        "conns": scenario.conns,
        "requestTimeout": scenario.request_timeout_ns / 1e9,
        "runTimeout": run_timeout_s,
        **_load_fields(scenario),
    }
    if scenario.verify or not scenario.span.named:
        body |= _key_fields(scenario)
    if scenario.member is not None:
        body["targetMember"] = endpoints[scenario.member]
    elif scenario.type == "write" or scenario.target == "leader":
        body["targetLeader"] = scenario.target == "leader"
    # Only reads and what is written here are sequential by themselves.
    if scenario.keys != "sequential" or scenario.type in ("mixed", "txn"):
        body["keyOrder"] = scenario.keys
    if scenario.keys == "zipfian":
        body["zipfExponent"] = float(scenario.zipf_exponent)
    if scenario.type == "write":
        order = {"sequentialKeys": True} if scenario.keys == "sequential" else {}
        return "/benchmark/write", body | order | {"valSize": scenario.val_size}
    if scenario.type == "txn":
        return "/benchmark/txn", body | {"valSize": scenario.val_size}
    body |= {"consistency": scenario.consistency, "requireFound": True, **_span_fields(scenario.span)}
    if scenario.verify:
        body["verify"] = True
    # What a read must find follows from the size of the values and from the seed, which is the server's own default
    # here as when the keys were written.
    if scenario.verify or scenario.type == "mixed":
        body["valSize"] = scenario.val_size
    if scenario.put_ratio is None:
        return "/benchmark/read", body
    return "/benchmark/mixed", body | {"ratio": float(scenario.put_ratio)}


def _key_fields(scenario: Scenario) -> dict[str, Any]:
    """Which keys there are."""
    keys: dict[str, Any] = {"keySize": scenario.key_size}
    if scenario.key_space is not None:
        keys["keySpace"] = scenario.key_space
    if scenario.key_prefix:
        keys["keyPrefix"] = scenario.key_prefix
    return keys


def _span_fields(span: Span) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if span.prefix is not None:
        fields |= {"key": span.prefix, "prefix": True}
    if span.start is not None:
        fields |= {"key": span.start, "endRange": span.end}
    if span.keys is not None:
        fields["spanKeys"] = span.keys
    if span.limit is not None:
        fields["limit"] = span.limit
    if span.answer != "values":
        fields[f"{span.answer}Only"] = True
    return fields


def _load_fields(scenario: Scenario) -> dict[str, Any]:
    load: dict[str, Any] = {}
    if scenario.duration_ns is not None:
        load["duration"] = scenario.duration_ns / 1e9
    else:
        load["total"] = scenario.total
    if scenario.rate is not None:
        load |= {"rate": float(scenario.rate), "arrival": scenario.arrival}
    if scenario.warmup.requests:
        load["warmupRequests"] = scenario.warmup.requests
    if scenario.warmup.length_ns:
        load["warmupDuration"] = scenario.warmup.length_ns / 1e9
    return load


def lateness_of(result: Mapping[str, Any]) -> str | None:
    """What there is to say of an open loop that fell behind its schedule, one line; None where it kept it."""
    schedule = result["schedule"]
    if schedule is None or not schedule["fell_behind"]:
        return None
    late, own, unsent = schedule["late"], schedule["generator_late"], schedule["unsent"]
    parts = [f"behind its schedule: {late:,} requests started late, by up to {schedule['worst_lag_s']:.3f} s"]
    if unsent:
        parts.append(f"{unsent:,} were never sent")
    if schedule["clients_short"]:
        parts.append("all clients were busy")
    if own:
        parts.append(f"the generator itself was too slow for {own:,}: their figures are not the store's")
    return "; ".join(parts)
