"""A saturation search on a target that is up: one probe after the other, each a measured open loop of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from containernet_env.analysis.probes import judge, result_of, search_finding, shown
from containernet_env.base import clock
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.saturation import Saturation, Step
from containernet_env.model.scenario import ScheduledScenario
from containernet_env.model.search import Probe, Search, rate_text
from containernet_env.runs.progress import OnEvent, RunProgress

_SEEDS = 2**32
Keep = Callable[[ScenarioOutcome], None]
Measure = Callable[[ScheduledScenario, Keep], None]
"""Measures a scenario like any other one and hands its outcome over, uninterrupted."""
KeepProbe = Callable[[Probe, ScenarioOutcome], None]
"""Keeps a probe and what was measured in it; does not raise."""

_SEEDS = 2**32


class Searching:
    """One search. ``why_over`` says of a probe's outcome why no other one can be made, if so."""

    def __init__(
        self,
        scheduled: ScheduledScenario,
        measure: Measure,
        why_over: Callable[[ScenarioOutcome], str | None],
        progress: RunProgress,
        on_event: OnEvent,
        keep_probe: KeepProbe,
    ) -> None:
        scenario = scheduled.scenario
        assert scenario.search is not None
        self._search: Search = scenario.search
        self._scheduled = scheduled
        self._course = Saturation(scenario.search, scenario.arrival == "poisson")
        self._measure = measure
        self._why_over = why_over
        self._progress = progress
        self._on_event = on_event
        self._keep_probe = keep_probe
        self._probes: list[Probe] = []
        self._outcomes: list[ScenarioOutcome] = []

    def run(self) -> str | None:
        """Probe until the search ends; why it could not, if so. What `measure` raises goes on to the caller."""
        while (step := self._course.next) is not None:
            number = len(self._probes) + 1
            probe = self._scheduled.scenario.probe(step.rate, self._seed(number))
            self._progress.probe_started(number, probe)
            scheduled = replace(self._scheduled, scenario=probe)
            self._measure(scheduled, partial(self._keep, step, scheduled.load_seed))
            if (why := self._why_over(self._outcomes[-1])) is not None:
                return why
        return None

    def _seed(self, number: int) -> int:
        """That of a probe: another one for each of a run, the same when the run is repeated."""
        at = self._scheduled
        text = f"{at.scenario.name}/{at.repetition}/{at.attempt}/{number}"
        return 1 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % _SEEDS

    def _keep(self, step: Step, seed: int, outcome: ScenarioOutcome) -> None:
        judged = judge(self._search, outcome)
        probe = Probe(
            len(self._probes) + 1,
            step.purpose,
            step.rate,
            round(outcome.seconds, 3),
            seed,
            judged.verdict,
            judged.why,
            judged.objectives_s,
        )
        self._probes.append(probe)
        self._outcomes.append(outcome)
        self._course.tell(probe.verdict)
        self._keep_probe(probe, outcome)
        name, why = self._scheduled.scenario.name, f" ({probe.why})" if probe.why else ""
        self._on_event("probe_ended", f"probe {probe.number}: {rate_text(probe.rate)}: {probe.verdict}{why}", name)

    def sum_up(self, row: ScenarioOutcome) -> ScenarioOutcome:
        """The outcome of the whole search, however far it got: ``row`` has what was known when it began, and its error.

        Its figures are those of one probe (``analysis.probes.shown``). It may be summed up more than once.
        """
        seconds = (clock.monotonic_ns() - row.began_ns) / 1e9
        result = result_of(self._search, self._course, self._probes, self._clients_short())
        if not self._probes:
            return replace(row, search=result)
        chosen = self._outcomes[shown(self._search, self._course, self._probes)]
        return replace(
            chosen,
            scheduled=row.scheduled,
            began=row.began,
            began_ns=row.began_ns,
            seconds=seconds,
            error=row.error,
            findings=(*chosen.findings, search_finding(result)),
            search=result,
        )

    def _clients_short(self) -> bool:
        """Whether, where the objective was missed by the repeats above, only requests that waited for a client did."""
        high = self._course.high
        if high is None:
            return False
        rate = self._course.rates[high]
        pairs = zip(self._probes, self._outcomes, strict=True)
        loads = [outcome.load for probe, outcome in pairs if probe.rate == rate and probe.purpose == "repeat"]
        return all(
            load is not None
            and load.schedule is not None
            and load.schedule.clients_short
            and all(
                (service_s := load.service_time_s.get(item.percentile)) is not None and service_s * 1e9 <= item.limit_ns
                for item in self._search.objectives
            )
            for load in loads
        )
