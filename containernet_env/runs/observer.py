"""Observations of a scenario besides its load: resource usage, counters of members, profiles of one of them.

No observation can fail a scenario or delay it: one that cannot be made is missing.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import count
from statistics import median

from containernet_env.base.errors import RunError
from containernet_env.base.files import file_name
from containernet_env.hosts import profiles
from containernet_env.hosts.sampler import Sampler
from containernet_env.model.outcome import ClientRtt, ScenarioOutcome
from containernet_env.model.scenario import Scenario
from containernet_env.model.usage import StoreActivity, Usage
from containernet_env.results.run_directory import CLIENT_SUFFIX, STORE_SUFFIX, history_name
from containernet_env.runs.target import Target
from containernet_env.stores.cluster import Observation
from containernet_env.stores.profiling import Profile, Profiling

KeepHistory = Callable[[str, Iterable[bytes]], None]
"""Keeps a file by its name; its content is passed in pieces."""

# Timeout for the store's own history: a million writes take some 10 s.
STORE_TIMEOUT_S = 60.0
# Bytes compressed at a time.
_PIECE_BYTES = 1 << 16
# zlib's parameter for the gzip format.
_GZIP = 31
# Matches in a line of the client's history, which the client writes without spaces (benchmark_image/internal/history).
_WRITE = re.compile(rb'"op":"(?:put|txn)","key":"([^"]*)"')


@dataclass(eq=False)
class Histories:
    """Keeps files of scenarios: ``prepare`` before each, ``keep`` after it. Neither raises."""

    _target: Target
    _keep: KeepHistory
    _since: int = 1

    def prepare(self, scenario: Scenario) -> None:
        if scenario.history:
            try:
                self._since = self._target.cluster.revision() + 1
            except RunError:
                self._since = 1  # all that the store has

    def keep(self, outcome: ScenarioOutcome, name: str) -> None:
        """It has ended; ``name`` is the prefix of its files."""
        scenario, load = outcome.scheduled.scenario, outcome.load
        if scenario.history and load is not None and load.values.get("history") is not None:
            keys = WrittenKeys()
            self._keep(name + CLIENT_SUFFIX, self._client(scenario, keys))
            self._keep(name + STORE_SUFFIX, packed(self._store(scenario, keys)))

    def _client(self, scenario: Scenario, keys: WrittenKeys) -> Iterator[bytes]:
        try:
            for piece in self._target.loader(None)[1].history():
                keys.take(piece)
                yield piece
        except RunError as error:
            # The part that exists shows that it was cut off.
            self._target.progress.note(f"{scenario.name}: its history could not be fetched: {error}")

    def _store(self, scenario: Scenario, keys: WrittenKeys) -> Iterator[str]:
        """Lines of JSON; the last one describes them, and says whether they are complete."""
        whole, final, prefix = True, False, self._target.key_prefix + scenario.key_prefix
        try:
            written, cluster = keys.all(prefix), self._target.cluster
            # If the store does not report past writes, each key may be read by itself, over the network.
            waits = cluster.waits
            timeout_s = waits.dilation * STORE_TIMEOUT_S + waits.request_s + 2 * len(written) * waits.rtt_s
            own = cluster.written(prefix, self._since, written, timeout_s)
            final = own.final
            for write in own.writes:
                yield json.dumps(asdict(write), separators=(",", ":"))
        except RunError as error:
            whole = False
            what = "final state" if final else "own history"
            self._target.progress.note(f"{scenario.name}: the store's {what} is not there: {error}")
        yield json.dumps({"whole": False, "final": whole} if final else {"whole": whole})


class WrittenKeys:
    """The keys that a load has written, from the pieces of the history that its client kept."""

    def __init__(self) -> None:
        self._unpack = zlib.decompressobj(_GZIP)
        self._rest = b""
        self._keys: dict[bytes, None] = {}

    def take(self, piece: bytes) -> None:
        """Add the next piece. Of a damaged file, which the checker refuses, only some keys are found."""
        try:
            lines, _, self._rest = (self._rest + self._unpack.decompress(piece)).rpartition(b"\n")
        except zlib.error:
            return
        self._keys.update(dict.fromkeys(_WRITE.findall(lines)))

    def all(self, prefix: str) -> list[str]:
        """Each of them once, with this prefix."""
        return [prefix + key.decode() for key in self._keys]


def packed(lines: Iterable[str]) -> Iterator[bytes]:
    """The lines as one gzip file, in pieces."""
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


KeepProfile = Callable[[str, str, bytes], None]
"""Keeps a file of the scenario's folder, both by name; does not raise."""


@dataclass(eq=False)
class Observer:
    """Observes one scenario after the other: ``prepare``, ``begin``, ``end``, ``finish``.

    The load runs only between ``begin`` and ``end``; members are queried before and after. ``_numbers`` are those of
    the scenarios of a run, whose clusters each have an observer of their own.
    """

    _target: Target
    _sampler: Sampler
    _keep_profile: KeepProfile
    _keep_history: KeepHistory
    _numbers: Iterator[int] = field(default_factory=partial(count, 1))

    def __post_init__(self) -> None:
        options = self._target.plan.options
        self._kinds, self._member = options.profile, options.profile_member
        self._histories = Histories(self._target, self._keep_history)
        self._store: Observation | None = None
        self._profiling: Profiling | None = None
        self._profiled = ""
        self._usage: Usage | None = None
        self._rtts: Mapping[str, Sequence[int]] = {}
        self._number = 0

    def start(self) -> None:
        self._sampler.start()

    def close(self) -> None:
        """Release all resources. Idempotent."""
        self._end_profiling()
        self._sampler.close()

    def prepare(self, leader: str | None, scenario: Scenario) -> None:
        """A scenario is about to begin; ``leader`` if it is known."""
        self._number = next(self._numbers)
        self._end_profiling()
        self._histories.prepare(scenario)
        self._usage = None
        self._rtts = self._target.client_rtts_ns()
        self._store = self._target.cluster.observe()
        if self._kinds:
            self._profiled = self._member or leader or ""
            self._profiling = self._target.cluster.profile(self._profiled, self._kinds)

    def begin(self) -> None:
        if self._profiling is not None:
            self._profiling.begin()
        self._sampler.begin()

    def end(self) -> None:
        self._usage = self._sampler.end()
        if self._profiling is not None:
            self._profiling.end()

    def finish(self, outcome: ScenarioOutcome) -> ScenarioOutcome:
        """Add the observations; members are queried unless the target has failed as a whole."""
        store: StoreActivity | None = None
        rtts: Mapping[str, ClientRtt] | None = None
        if self._target.failure is None:
            rtts = self._client_rtts()
            store = self._store.end() if self._store is not None else None
            name = history_name(self._number, outcome.scheduled.scenario.name, outcome.scheduled.repetition)
            if self._kinds:
                self._keep(outcome, name)
            self._histories.keep(outcome, name)
        self._end_profiling()
        self._store = None
        return replace(outcome, machine=self._usage, store=store, client_rtts=rtts)

    def _client_rtts(self) -> Mapping[str, ClientRtt] | None:
        """Those before and those after, together."""
        after = self._target.client_rtts_ns()
        both = {name: [*before, *after.get(name, ())] for name, before in self._rtts.items()}
        return {name: ClientRtt(round(median(all_ns)), len(all_ns)) for name, all_ns in both.items() if all_ns} or None

    def _keep(self, outcome: ScenarioOutcome, folder: str) -> None:
        name = outcome.scheduled.scenario.name
        if self._profiling is None:
            self._target.progress.note(f"{name}: no profile: {self._profiled or 'the leader'} does not run")
            return
        for profile in self._profiling.profiles():
            if profile.problem is not None:
                self._target.progress.note(f"{name}: no {profile.kind} profile of {self._profiled}: {profile.problem}")
                continue
            stem = f"{file_name(self._profiled)}-{profile.kind}"
            self._keep_profile(folder, f"{stem}.pb.gz", profile.data)
            if profile.before is not None:
                self._keep_profile(folder, f"{stem}-before.pb.gz", profile.before)
            try:
                graph = flame_graph(f"{profile.kind} of {self._profiled}, {name}", profile)
            except ValueError as error:
                self._target.progress.note(f"{name}: no flame graph of the {profile.kind} profile: {error}")
                continue
            self._keep_profile(folder, f"{stem}.svg", graph.encode())
        self._target.on_event("profiled", f"profiles of {self._profiled} are in profiles/{folder}", name)

    def _end_profiling(self) -> None:
        profiling, self._profiling = self._profiling, None
        if profiling is not None:
            with suppress(OSError):
                profiling.close()


def flame_graph(title: str, profile: Profile) -> str:
    """The flame graph of a profile; of a cumulative one, of its increase. Raises ``ValueError``."""
    parsed = profiles.parse(profile.data)
    stacks = parsed.of(profile.measured)
    if profile.before is not None:
        stacks = profiles.grown(profiles.parse(profile.before).of(profile.measured), stacks)
    return profiles.svg(title, stacks, parsed.units[profile.measured])
