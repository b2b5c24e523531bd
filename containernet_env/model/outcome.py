"""The outcome of one scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from containernet_env.model.disruption import Disruptions
from containernet_env.model.findings import Finding, State, Verdict, state_of, verdict
from containernet_env.model.load_result import LoadResult
from containernet_env.model.scenario import ALL_CLIENTS, ScheduledScenario
from containernet_env.model.search import SearchResult
from containernet_env.model.usage import LinkStatistics, StoreActivity, Usage

Reused = Literal["nothing", "cluster", "cluster;new-limits", "cluster;new-links", "cluster;new-limits;new-links"]
"""What a scenario found from before it: nothing, or hosts, links and the members with their data, on which CPU limits,
links or both were changed just before it."""


@dataclass(frozen=True, slots=True)
class ClientRtt:
    """The RTT from the client to one member, measured right before and after a scenario."""

    median_ns: int
    samples: int


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """One scenario of a run, ended.

    A field that is annotated with a description is a key of its line in scenarios.jsonl (``results.run_files``).
    ``load`` and ``network`` are what the generator and the links saw; ``None`` where nothing was measured. ``findings``
    are what a reader of the figures has to know, in the order in which they are shown. ``search`` is what a saturation
    search found; the figures are then those of one of its probes. ``disruptions`` is what events did; ``None`` where
    none is configured. ``reused`` is what was there before; ``None`` where it was not run. ``testbed_failed``: it
    failed because nothing could be measured any more, and not because of the store. ``parts``: of several clients what
    each of them measured; the outcome has what all did together.
    """

    scheduled: ScheduledScenario
    began: Annotated[str, "when it began, UTC, ISO 8601"]
    began_ns: Annotated[int, "the same moment on the monotonic clock, ns"]
    cluster: Annotated[int | None, "the number of the cluster within the run; null where it was not run"] = None
    leader: Annotated[str | None, "who led at the end; etcd1>etcd3 where another one did at the start"] = None
    leader_at_start: Annotated[str | None, "who led at the start; null where it is not known, as of the terms"] = None
    term_at_start: Annotated[int | None, "the term of that leadership"] = None
    term_at_end: Annotated[int | None, "the term at the end"] = None
    floor_s: Annotated[float | None, "the least possible median latency; docs/floor.md"] = None
    seconds: Annotated[float, "how long it took, the benchmark server's answer included"] = 0.0
    dilation: Annotated[int, "how many times slower than real time it ran; figures are in emulated time"] = 1
    load: LoadResult | None = None
    network: LinkStatistics | None = None
    machine: Annotated[Usage | None, "what hosts, links and machine used"] = None
    store: Annotated[StoreActivity | None, "what the members counted themselves"] = None
    findings: tuple[Finding, ...] = ()
    search: SearchResult | None = None
    error: Annotated[str | None, "one line; null where every request was answered well"] = None
    disruptions: Disruptions | None = None
    reused: Reused | None = None
    testbed_failed: bool = False
    client_rtts: Annotated[
        Mapping[str, ClientRtt] | None,
        "of an external cluster: how long TCP connections to each member took to open, right before and after the "
        "scenario",
    ] = None
    advice: Annotated[str | None, "what would make the figures valid; the CSV's Advice"] = None
    parts: tuple[ScenarioOutcome, ...] = ()

    @property
    def client(self) -> str | None:
        """Which of several clients it is of, ``ALL_CLIENTS`` of all together; ``None`` where there is one."""
        scenario = self.scheduled.scenario
        return ALL_CLIENTS if scenario.parts else scenario.client

    @property
    def each(self) -> tuple[ScenarioOutcome, ...]:
        """What has a row of its own: the parts, then all of it."""
        return (*self.parts, self)

    def found(self, finding: Finding) -> ScenarioOutcome:
        """The same with one more finding, also in all parts."""
        parts = tuple(part.found(finding) for part in self.parts)
        return replace(self, findings=(*self.findings, finding), parts=parts)

    @property
    def wall_s(self) -> float:
        """How long it took in real time."""
        return self.seconds * self.dilation

    @property
    def requests_per_s(self) -> float | None:
        """Answered requests per second; ``None`` where none was answered."""
        return self.load.requests_per_s if self.load is not None and self.load.ok else None

    @property
    def verdict(self) -> Verdict | None:
        """Whether its figures are the store's under what was configured; ``None`` where there are no figures."""
        return verdict(self.findings) if self.load is not None and self.load.ok else None

    @property
    def state(self) -> State:
        return state_of(self.error is not None, self.verdict and self.verdict.valid)

    @property
    def above_floor_s(self) -> float | None:
        """What is left of the median above the floor; ``None`` where either is not known."""
        median_s = self.percentile_s("50")
        return None if median_s is None or self.floor_s is None else median_s - self.floor_s

    def percentile_s(self, percentile: str) -> float | None:
        """A percentile of the response time such as "50" or "99.9"; ``None`` where it is not known."""
        return self.load.response_time_s.get(percentile) if self.load is not None else None
