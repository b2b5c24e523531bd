"""The histories of scenarios that keep one: the client's, and what the store itself has of the same time.

A store that does not tell past writes has its final state: what each key that was written holds after the load.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

from containernet_env.base.errors import RunError
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario
from containernet_env.results.histories import CLIENT_SUFFIX, STORE_SUFFIX
from containernet_env.runs.progress import RunProgress
from containernet_env.runs.target import Target

KeepHistory = Callable[[str, Iterable[bytes]], None]
"""Keeps a file by its name; its content comes in pieces."""

# How long the store's own history may take: a million writes take some 10 s.
STORE_TIMEOUT_S = 60.0
# How much is compressed at once.
_PIECE_BYTES = 1 << 16
# gzip's form of what zlib compresses.
_GZIP = 31
# Of a line of the client's history, which the client writes without spaces (benchmark_image/internal/history).
_WRITE = re.compile(rb'"op":"(?:put|txn)","key":"([^"]*)"')


class Histories:
    """Keeps what scenarios leave: ``prepare`` before each, ``keep`` after it. Neither raises."""

    def __init__(self, target: Target, progress: RunProgress, keep: KeepHistory) -> None:
        self._target = target
        self._progress = progress
        self._keep = keep
        self._since = 1

    def prepare(self, scenario: Scenario) -> None:
        """The scenario is about to begin."""
        if scenario.history:
            try:
                self._since = self._target.cluster.revision() + 1
            except RunError:
                self._since = 1  # all that the store has

    def keep(self, outcome: ScenarioOutcome, name: str) -> None:
        """It has ended; ``name`` is what its files are called."""
        scenario, load = outcome.scheduled.scenario, outcome.load
        if scenario.history and load is not None and load.values.get("history") is not None:
            keys = WrittenKeys()
            self._keep(name + CLIENT_SUFFIX, self._client(scenario, keys))
            self._keep(name + STORE_SUFFIX, packed(self._store(scenario, keys)))

    def _client(self, scenario: Scenario, keys: WrittenKeys) -> Iterator[bytes]:
        try:
            for piece in self._target.server.history():
                keys.take(piece)
                yield piece
        except RunError as error:
            # What is there of it says that it was cut off.
            self._progress.note(f"{scenario.name}: its history could not be fetched: {error}")

    def _store(self, scenario: Scenario, keys: WrittenKeys) -> Iterator[str]:
        """Lines of JSON; the last one says what they are, and whether nothing is missing."""
        whole, final, prefix = True, False, self._target.key_prefix + scenario.key_prefix
        try:
            written, cluster = keys.all(prefix), self._target.cluster
            # Where the store does not tell past writes, each key may be read by itself, over the network.
            timeout_s = STORE_TIMEOUT_S + cluster.waits.request_s + 2 * len(written) * cluster.waits.rtt_s
            own = cluster.written(prefix, self._since, written, timeout_s)
            final = own.final
            for write in own.writes:
                yield json.dumps(asdict(write), separators=(",", ":"))
        except RunError as error:
            whole = False
            what = "final state" if final else "own history"
            self._progress.note(f"{scenario.name}: the store's {what} is not there: {error}")
        yield json.dumps({"whole": False, "final": whole} if final else {"whole": whole})


class WrittenKeys:
    """The keys that a load has written, from the pieces of the history that its client kept."""

    def __init__(self) -> None:
        self._unpack = zlib.decompressobj(_GZIP)
        self._rest = b""
        self._keys: dict[bytes, None] = {}

    def take(self, piece: bytes) -> None:
        """The next piece. Of a file that is damaged, which the checker refuses, the keys are some of it."""
        try:
            lines, _, self._rest = (self._rest + self._unpack.decompress(piece)).rpartition(b"\n")
        except zlib.error:
            return
        self._keys.update(dict.fromkeys(_WRITE.findall(lines)))

    def all(self, prefix: str) -> list[str]:
        """Each of them once, with this prefix."""
        return [prefix + key.decode() for key in self._keys]


def packed(lines: Iterable[str]) -> Iterator[bytes]:
    """The lines as a gzip file, in pieces."""
    compressor = zlib.compressobj(1, wbits=_GZIP)
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting.append(f"{line}\n".encode())
        size += len(waiting[-1])
        if size >= _PIECE_BYTES:
            yield compressor.compress(b"".join(waiting))
            waiting, size = [], 0
    yield compressor.compress(b"".join(waiting)) + compressor.flush()
