"""What etcd itself has of a run: every write from a revision on, by a watch over its JSON gateway."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.http import streamed
from containernet_env.stores.etcd.flags import CLIENT_PORT
from containernet_env.stores.protocol import Connection, Written

# etcd's JSON gateway (server/etcdserver/api/v3rpc, rpc.proto).
_RANGE, _WATCH = "/v3/kv/range", "/v3/watch"
ASK_S = 5.0
# A member reads a million small events from its memory and disk in some seconds, a tenth of a core in a minute.
_SILENCE_S = 10.0
_LINE_BYTES = 256 << 20


def revision(connection: Connection, prefix: str = "", timeout_s: float = ASK_S) -> int:
    """The revision of the store, by a linearizable read of keys that start with ``prefix``. Raises RunError."""
    return _last_write(connection, prefix, timeout_s)[0]


def events(
    connection: Connection, prefix: str, since: int, timeout_s: float, headers: Mapping[str, str] | None = None
) -> Iterator[Written]:
    """Every write of keys that start with ``prefix``, at revisions from ``since`` up to the present, in order.

    ``headers`` are sent besides. Raises RunError where some of them are compacted, and once ``timeout_s`` are over.
    """
    deadline = clock.monotonic() + timeout_s
    _, last = _last_write(connection, prefix, timeout_s)
    if last < since:
        return
    made = connection.open(CLIENT_PORT, timeout_s=_SILENCE_S)
    request = {"create_request": {**span(prefix), "start_revision": str(since)}}
    with streamed(made, "POST", _WATCH, request, headers) as answer:
        while True:
            if clock.monotonic() > deadline:
                raise RunError(f"the store's history could not be read within {timeout_s:g} s")
            line = answer.readline(_LINE_BYTES)
            if not line:
                raise RunError("the store ended its history early")
            for event in _events_of(line):
                yield event
                if event.revision >= last:
                    return


def _events_of(line: bytes) -> Iterator[Written]:
    try:
        told = json.loads(line)
    except ValueError as error:
        raise RunError(f"the store's history cannot be read: {line[:80]!r}") from error
    if "error" in told:
        raise RunError(f"the store refuses its history: {told['error']}")
    result = told["result"]
    if result.get("canceled"):
        compacted = result.get("compact_revision")
        reason = f"it is compacted up to revision {compacted}" if compacted else str(result.get("cancel_reason"))
        raise RunError(f"the store no longer has its history: {reason}")
    for event in result.get("events", ()):
        if event.get("type", "PUT") == "PUT":
            entry = event["kv"]
            key = base64.b64decode(entry["key"]).decode(errors="replace")
            yield Written.of(int(entry["mod_revision"]), key, base64.b64decode(entry.get("value", "")))


def _last_write(connection: Connection, prefix: str, timeout_s: float) -> tuple[int, int]:
    """The revision of the store, and that of the last write of these keys; 0 where there is none."""
    newest = {"sort_order": "DESCEND", "sort_target": "MOD", "limit": 1, "keys_only": True}
    answer = connection.request_json(CLIENT_PORT, "POST", _RANGE, {**span(prefix), **newest}, timeout_s=timeout_s)
    found = answer.get("kvs", ())
    return int(answer["header"]["revision"]), int(found[0]["mod_revision"]) if found else 0


def span(prefix: str) -> dict[str, Any]:
    """The keys that start with ``prefix``, whose last byte is below 0xff in every UTF-8 text."""
    raw = prefix.encode()
    first, end = (raw, raw[:-1] + bytes([raw[-1] + 1])) if raw else (b"\0", b"\0")
    return {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(end).decode()}
