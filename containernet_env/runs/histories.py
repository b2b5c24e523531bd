"""The histories of scenarios that keep one: the client's, and what the store itself has of the same time."""

from __future__ import annotations

import json
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
            self._keep(name + CLIENT_SUFFIX, self._client(scenario))
            self._keep(name + STORE_SUFFIX, packed(self._store(scenario)))

    def _client(self, scenario: Scenario) -> Iterator[bytes]:
        try:
            yield from self._target.server.history()
        except RunError as error:
            # What is there of it says that it was cut off.
            self._progress.note(f"{scenario.name}: its history could not be fetched: {error}")

    def _store(self, scenario: Scenario) -> Iterator[str]:
        """Lines of JSON; the last one says whether nothing is missing."""
        whole, prefix = True, self._target.key_prefix + scenario.key_prefix
        try:
            for event in self._target.cluster.written(prefix, self._since, STORE_TIMEOUT_S):
                yield json.dumps(asdict(event), separators=(",", ":"))
        except RunError as error:
            whole = False
            self._progress.note(f"{scenario.name}: the store's own history is not there: {error}")
        yield json.dumps({"whole": whole})


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
