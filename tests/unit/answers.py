"""The benchmark server's answers, as benchmark_image/internal/api/examples.md has them and a test there keeps them."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "benchmark_image" / "internal" / "api" / "examples.md"
_EXAMPLE = re.compile(r"```sh\ncurl ([^\n]*)\n```\n\nAnswer (\d+):\n\n```json\n([^\n]*)\n```")


@cache
def schema() -> dict[str, Any]:
    """docs/benchmark-result.schema.json."""
    read: dict[str, Any] = json.loads((DOCS / "benchmark-result.schema.json").read_text(encoding="utf-8"))
    return read


def examples() -> list[tuple[str, int, Any]]:
    """Each example: what is asked (curl's arguments), the answer's status and its JSON value."""
    found = _EXAMPLE.findall(EXAMPLES.read_text(encoding="utf-8"))
    return [(asked, int(status), json.loads(answer)) for asked, status, answer in found]


def benchmarks() -> list[tuple[int, Any]]:
    """The answers, with their status, to all that asks for a benchmark."""
    return [(status, answer) for asked, status, answer in examples() if "-d" in asked]


def results() -> dict[str, dict[str, Any]]:
    """By what was asked: every example that measured something, also one that failed."""
    found = {}
    for asked, status, answer in examples():
        result = answer.get("result") if status == 500 else answer if "schema" in answer else None
        if result is not None:
            found[asked] = result
    return found


def check(result: Any) -> None:
    """Fail unless ``result`` is what the schema allows."""
    problems = [error.message for error in Draft202012Validator(schema()).iter_errors(result)]
    assert not problems, problems


def check_request(path: str, body: Any) -> None:
    """Fail unless ``body`` is what the schema allows that follows from the server's own table of parameters."""
    schema = json.loads((DOCS / "benchmark-request.schema.json").read_text(encoding="utf-8"))
    schema["anyOf"] = [{"$ref": f"#/$defs/{path.rpartition('/')[2]}"}]
    problems = [error.message for error in Draft202012Validator(schema).iter_errors(body)]
    assert not problems, problems


_TIMES = ("cpu_s", "run_delay_s", "mean_run_delay_s", "busy_ratio", "pause_s", "paused_s")
_IDLE = dict.fromkeys(_TIMES, 0.0) | {"pauses": 0}


def result(*words: str, **changes: Any) -> dict[str, Any]:
    """The first example whose question has all ``words``, with ``changes`` by path ("schedule__fell_behind"); valid.

    Its client had all the CPU time that it wanted, unless ``changes`` say otherwise.
    """
    made = deepcopy(next(found for asked, found in results().items() if all(word in asked for word in words)))
    for path, value in (_IDLE | changes).items():
        *parents, name = path.split("__")
        place = made
        for parent in parents:
            place = place[parent]
        assert name in place, f"{path} is in no result"
        place[name] = value
    check(made)
    return made


def closed_loop(**changes: Any) -> dict[str, Any]:
    """1000 puts by 5 clients, all answered."""
    return result('"targetLeader": true', "/benchmark/write", **changes)


def open_loop(**changes: Any) -> dict[str, Any]:
    """50 puts at 100/s: too few for a 99th percentile."""
    return result('"rate": 100', **changes)


def without_answers(made: dict[str, Any], failed: int) -> dict[str, Any]:
    """``made`` as it is when ``failed`` requests were sent and none succeeded."""
    nothing = dict.fromkeys(("slowest_s", "fastest_s", "average_s", "stddev_s", "percentiles_s", "response_time"))
    outcomes = {"ok": 0, "failed": failed, "unknown": 0, "unsent": 0}
    counts = {"ok": 0, "failed": failed, "done": failed, "requests_per_s": 0.0, "outcomes": outcomes}
    made = made | nothing | counts | {"service_time": None, "timeline": []}
    check(made)
    return made
