"""A run as a function: the implementation of the command `run`, for the command line, sweeps and notebooks alike.

Nothing here depends on terminals or installs signal handlers, and it works on any thread: the caller passes a stop
token (``base.work.Stop``) and a receiver of the run's progress (``runs.progress.RunProgress``).
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from containernet_env.base.clock import Moment
from containernet_env.base.errors import ContainernetEnvError, Interrupted, RunError, resource_errors, text_of
from containernet_env.base.work import Stop, stops_kept
from containernet_env.config.plan import AUTO, Plan, PlannedScenario
from containernet_env.config.planning import dilated
from containernet_env.config.scenarios import ScenarioSet
from containernet_env.containernet import engines
from containernet_env.hosts.counters import AllUse
from containernet_env.hosts.sampler import Sampler
from containernet_env.model.config import Config
from containernet_env.model.findings import Finding, network_finding, states_text
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import NetworkProof
from containernet_env.network.rtt import Tolerance
from containernet_env.results.capacity import MachineKey
from containernet_env.results.columns import RunFacts, row_of
from containernet_env.results.csv_file import ResultsFile
from containernet_env.results.run_directory import RunDirectory, RunResult
from containernet_env.results.run_files import ClusterRecord, Manifest, Proof, Repeats, StoreFacts, Sync
from containernet_env.runs import clean, version
from containernet_env.runs.external import ExternalTestbed
from containernet_env.runs.external_access import require_consent
from containernet_env.runs.keeper import Keeper, advised, keep_costs, next_dilation, was_measured
from containernet_env.runs.manifest import inputs_of, manifest_of, trace_copies
from containernet_env.runs.matrix import Matrix
from containernet_env.runs.observer import Observer
from containernet_env.runs.preflight import preflight
from containernet_env.runs.prepare import kept_off, lock_for, prepare, require_root
from containernet_env.runs.progress import Guarded, RunProgress, Silent
from containernet_env.runs.reuse import change_between
from containernet_env.runs.target import Target, take_down
from containernet_env.runs.testbed import Standing, Testbed
from containernet_env.setup import ready_images
from containernet_env.setup.images import Images

WRONG_AFTER = "after the last scenario the network was not the one that was configured"


def measure(
    topology: Config | Path | str,
    scenarios: ScenarioSet | Path | str | None,
    out: Path | str,
    *,
    rtt_tolerance: str | Tolerance | None = None,
    progress: RunProgress | None = None,
    stop: Stop | None = None,
    yes_load_this_cluster: bool = False,
    **choices: Any,
) -> RunResult:
    """Bring ``topology`` up, run ``scenarios`` on it, append a row for each to the CSV ``out``, tear down.

    Files may be named, or loaded before. ``scenarios`` ``None`` means those that the topology names, or the default
    matrix; ``quick`` its small form. ``choices`` are the options of `run` by their names (``config.plan.PlanOptions``).
    Raises ``ConfigError`` and ``UsageError`` before anything is created, ``MissingRequirementError`` if the machine
    lacks a requirement, ``RunError`` if the run failed, and ``Interrupted`` if ``stop`` requested its end. Needs root,
    unless the topology names endpoints of an external cluster, which is loaded with ``yes_load_this_cluster`` only.
    """
    plan = prepare(topology, scenarios, **choices)
    preflight(plan, Path(out))
    tolerance = Tolerance.parse(rtt_tolerance) if isinstance(rtt_tolerance, str) else rtt_tolerance
    return carry_out(RunOrder(plan, Path(out), tolerance, consent=yes_load_this_cluster), progress, stop)


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A run that is about to begin, its rows in ``out``; ``command`` and ``repeats`` are for the manifest.

    ``consent``: an external cluster may be loaded.

    ``standing`` is that of a sweep; it holds the testbed of the previous run, if that can be changed to this plan, and
    receives the testbed of this run if it is wanted and had no failure. The sweep closes it, holds the machine's lock,
    measures later what was not measured now, so that it has no rows, and loses no measurement if it is interrupted: the
    network is measured once more before the end. An empty one: in a sweep that keeps no testbed, as on its workers.
    """

    plan: Plan
    out: Path
    tolerance: Tolerance | None = None
    command: Sequence[str] | None = None
    repeats: Repeats | None = None
    consent: bool = False
    standing: Standing | None = None


def carry_out(order: RunOrder, progress: RunProgress | None = None, stop: Stop | None = None) -> RunResult:
    """Execute an order. See ``measure``."""
    guarded, stop, plan = Guarded(progress or Silent()), stop or Stop(), order.plan
    if plan.config.external is not None:
        require_consent(plan, order.consent)
    else:
        require_root()
        engines.require(plan)
    stop.check()
    try:
        with (
            stops_kept(),
            resource_errors(),
            nullcontext() if order.standing is not None else lock_for(plan),
            kept_off(plan.options.links_cpu, plan.options.other_cores),
        ):
            results = ResultsFile(order.out)
            for note in results.open():
                guarded.note(note)
            try:
                return _Run(order, results, guarded, stop).carry_out()
            finally:
                results.close()
    finally:
        stop.unshield()


class _Run:
    """One run: bring-up, matrix, tear-down in any case, and its output."""

    def __init__(self, order: RunOrder, results: ResultsFile, progress: Guarded, stop: Stop) -> None:
        self._order = order
        self._plan = plan = order.plan
        self._in_sweep = order.standing is not None
        self._standing = order.standing or Standing()
        self._progress = progress
        self._stop = stop
        self._began = Moment.now()
        self._run_id = f"{self._began.at[:19].replace('-', '').replace(':', '')}Z-{plan.run_id}"
        directory = RunDirectory(results.path, self._run_id)
        self._keeper = Keeper(results, directory, progress, not self._in_sweep)
        progress.on_failure = lambda text: self._event("progress_failed", text)
        self._is_reused = False
        self._manifest: Manifest
        self._matrix: Matrix | None = None
        self._clusters: list[ClusterRecord] = []
        self._reason: str | None = None
        self._not_removed: str | None = None
        self._facts = RunFacts(self._run_id, plan)
        self._labs = 0
        self._handled = sys.exception()
        self._network_after: NetworkProof | None = None
        self._numbers = count(1)
        self._judged: set[int] = set()  # the clusters whose network was measured after the last scenario

    def carry_out(self) -> RunResult:
        """Everything from the images to the tear-down."""
        images = None
        if self._plan.config.external is None:
            images = ready_images(self._plan.store, self._progress, self._stop)
            found = clean.remove_leftovers()
            self._labs = found.others
            for name in found.removed:
                self._progress.note(f"removed {name}, left behind by a killed run")
        command, repeats = self._order.command or sys.argv, self._order.repeats
        for note in (*self._plan.notes, *(repeats.notes if repeats is not None else ())):
            self._progress.note(note)
        self._manifest = manifest_of(
            self._plan,
            images,
            self._order.tolerance,
            run_id=self._run_id,
            began=self._began,
            command=command,
            repeats=repeats,
        )
        self._keeper.manifest(self._manifest, inputs_of(self._plan) | trace_copies(self._plan))
        self._event("run_began", f"run {self._run_id}")
        if self._labs:
            count = f"{self._labs} lab{'s are' if self._labs > 1 else ' is'}"
            self._progress.note(f"{count} up on this machine: what is done there disturbs what is measured here")
        try:
            self._measure_on_clusters(images, 0)
            if self._plan.options.dilation == AUTO and (tried := self._next_tries()):
                measured, self._plan = len(self._plan.cluster_ends), replace(self._plan, scenarios=tried)
                self._measure_on_clusters(images, measured)
        finally:
            self._stop.shield()
            self._end()
        kept = self._keeper
        return RunResult(
            self._run_id,
            kept.directory.path,
            tuple(kept.outcomes),
            tuple(kept.rows),
            kept.results.file,
            self._facts.network,
            self._network_after,
        )

    def _measure_on_clusters(self, images: Images | None, measured: int) -> None:
        """Run the scenarios of all clusters after the ``measured`` first ones."""
        for number, until in enumerate(self._plan.cluster_ends[measured:], start=measured + 1):
            self._stop.check()  # a stop requested during the previous tear-down
            if not self._measure_on_cluster(images, number, until):
                break

    def _next_tries(self) -> tuple[PlannedScenario, ...] | None:
        """The scenarios, and again those whose last row is not valid because of this machine; see ``next_dilation``.

        ``None`` without any, and where not all scenarios were measured.
        """
        if not all(map(was_measured, self._keeper.outcomes)):
            return None
        last = {(it.scheduled.scenario.name, it.scheduled.repetition): it for it in self._keeper.outcomes}
        key, again = MachineKey.of(self._manifest.machine), []
        for outcome in last.values():
            if (factor := next_dilation(self._plan.at(outcome.dilation), key, outcome)) is not None:
                scheduled = replace(outcome.scheduled, attempt=outcome.scheduled.attempt + 1)
                again.append(PlannedScenario(scheduled, False, factor * outcome.seconds, factor))
        if not again:
            return None
        again.sort(key=lambda planned: planned.dilation)
        names = ", ".join(f"{planned.scheduled.scenario.name} at {planned.dilation}" for planned in again)
        self._progress.note(f"once more, by dilation: {names}")
        return (*self._plan.scenarios, *again)

    def _measure_on_cluster(self, images: Images | None, number: int, until: int) -> bool:
        """Run the scenarios up to number ``until`` on a testbed of their own; whether there are others to run."""
        with stops_kept():
            changed = self._changed()
            self._is_reused = changed is not None
            testbed = changed or self._new_testbed(images, self._plan.at(self._plan.scenarios[until - 1].dilation))
        try:
            try:
                with stops_kept():
                    self._stop.check()
                    if not self._is_reused:
                        testbed.up()
                    with testbed.causes_named():
                        self._describe(testbed, number)
                    left = self._run_matrix(testbed, until)
                    self._prove_after(testbed, number)
                    return left
            except Interrupted:
                if self._in_sweep and any(map(was_measured, self._keeper.outcomes)):
                    self._stop.shield()
                    self._prove_after(testbed, number)
                raise
            finally:
                self._stop.shield()
                if number not in self._judged and testbed.net is not None:
                    self._add_finding(network_finding(None), number)
        finally:
            self._stop.shield()
            is_left = False
            try:
                is_left = self._leave_standing(testbed, number)
            finally:
                if not is_left:
                    self._take_down(testbed, number)
            if self._error() is None:
                self._stop.unshield()

    def _new_testbed(self, images: Images | None, plan: Plan) -> Target:
        if images is None:
            return ExternalTestbed(plan, self._progress, self._event, self._stop)
        return Testbed(
            plan,
            images,
            self._progress,
            tolerance=self._order.tolerance,
            on_event=self._event,
            on_proof=self._proof,
            stop=self._stop,
        )

    def _changed(self) -> Testbed | None:
        """The kept testbed, changed to this run's plan; taken down if that fails: then there is none."""
        if (testbed := self._standing.take()) is None:
            return None
        came_from = testbed.plan.run_id
        try:
            if (change := change_between(testbed.plan, dilated(self._plan))) is None:
                raise RunError("it differs in more than what can be changed while it stands")
            testbed.turn_to(self._plan, change, self._progress, self._event, self._proof)
        except BaseException as error:
            self._stop.shield()
            why = f"the testbed of run {came_from} could not be changed for this one: {text_of(error)}"
            self._event("testbed_not_reused", why)
            take_down(testbed, self._progress)
            if not isinstance(error, ContainernetEnvError):
                raise
            self._progress.note(f"{why}; a new one is brought up")
            self._stop.unshield()
            return None
        self._event("testbed_reused", f"hosts and members stand since run {came_from} or before: {testbed.reused}")
        return testbed

    def _leave_standing(self, testbed: Target, number: int) -> bool:
        """Leave the testbed to the next run, if that wants it and it had no failure; returns whether it was left."""
        if (
            not isinstance(testbed, Testbed)
            or not self._standing.is_wanted
            or self._error() is not None
            or self._matrix is None
        ):
            return False
        failed = next((outcome.error for outcome in self._keeper.outcomes if outcome.error is not None), None)
        if (reason := failed or self._matrix.damaged or testbed.why_unfit) is not None:
            self._event("testbed_not_left", reason)
            return False
        self._keep_logs(testbed, number)
        self._event("testbed_left", "hosts, links and cluster stand for the next run")
        self._standing.leave(testbed, self._matrix.loaded)
        return True

    def _observer(self, testbed: Target) -> Observer:
        record, directory = self._keeper.record, self._keeper.directory
        sampler = Sampler(
            AllUse(testbed.pids(), lambda: testbed.pids().members),
            lambda sample: record(directory.add_usage, sample.at_ns, sample.edge, sample.consumers),
        )
        return Observer(
            testbed,
            sampler,
            lambda folder, name, content: record(directory.write_profile, folder, name, content),
            lambda name, content: record(directory.write_history, name, content),
            self._numbers,
        )

    def _run_matrix(self, testbed: Target, until: int) -> bool:
        if self._matrix is None:
            self._event("matrix_began", f"{len(self._plan.scenarios)} scenarios")
            self._matrix = Matrix(
                testbed,
                lambda outcome: self._keeper.keep(outcome, partial(row_of, self._facts)),
                self._observer(testbed),
                lambda probe, outcome: self._keeper.record(self._keeper.directory.add_probe, probe, outcome),
                alone=self._in_sweep,
                advised=self._advised,
            )
        else:
            self._matrix.move_to(testbed, self._observer(testbed))
        return self._matrix.run(until)

    def _describe(self, testbed: Target, number: int) -> None:
        """Record the created testbed, before the load."""
        plan, led, largest = self._plan, testbed.led_at_start, self._plan.largest_member_rtt
        self._clusters.append(
            ClusterRecord(
                number=number,
                at=Moment.now().at,
                leader_at_start=led.leader if led and led.term is not None else None,
                term_at_start=led.term if led else None,
                sync={name: Sync(**asdict(times)) for name, times in testbed.sync.items()},
            )
        )
        self._manifest = self._manifest.model_copy(
            update={
                "links": testbed.link_facts(),
                "hosts": testbed.host_facts(),
                "store": StoreFacts(
                    kind=plan.store.name,
                    version=testbed.cluster.version(),
                    leader_at_start=self._clusters[0].leader_at_start,
                ),
                "clusters": list(self._clusters),
            }
        )
        self._keeper.manifest(self._manifest)
        self._facts = RunFacts(
            self._run_id,
            plan,
            self._manifest,
            network=testbed.gate.proof if testbed.gate else None,
            rtt_measured_ns=testbed.gate.rtt_ns(largest.a, largest.b) if testbed.gate and largest else None,
            hosts=testbed.hosts_kind,
            links=testbed.links_kind,
            labs=self._labs,
            commit=version.commit_text(),
            machine=platform.node() or None,
        )

    def _prove_after(self, testbed: Target, number: int) -> None:
        """Record whether the network still matches its configuration, also in the rows, all of which are on disk."""
        if testbed.failure is not None:
            return
        try:
            proof = testbed.prove_again()
        except RunError as error:
            self._event("network_unproved", f"after the last scenario the network could not be measured: {error}")
            self._progress.note(f"after the last scenario the network could not be measured: {error}")
            return
        if proof is None:
            return
        self._judged.add(number)
        if self._network_after is None or self._network_after.passed:
            self._network_after = proof  # of several clusters, the first whose network was not held
        self._event("network_proved" if proof.passed else "network_wrong", f"after the last scenario: {proof.text}")
        self._add_finding(network_finding(proof), number)
        if not proof.passed:
            self._progress.note(f"{WRONG_AFTER}\n{proof.render()}")

    def _add_finding(self, finding: Finding | None, number: int) -> None:
        """Add the facts known by now to all outcomes of the cluster of that number."""
        if finding is None:
            return
        changed = {
            index: self._advised(outcome.found(finding))
            for index, outcome in enumerate(self._keeper.outcomes)
            if outcome.cluster == number and outcome.verdict is not None
        }
        before = {outcome.advice for outcome in self._keeper.outcomes}
        self._keeper.amend(changed, partial(row_of, self._facts))
        for advice in dict.fromkeys(outcome.advice for outcome in changed.values()):
            if advice is not None and advice not in before:
                self._progress.note(advice)

    def _advised(self, outcome: ScenarioOutcome) -> ScenarioOutcome:
        return advised(self._plan.at(outcome.dilation), MachineKey.of(self._manifest.machine), outcome)

    def _event(self, kind: str, text: str, subject: str | None = None) -> None:
        self._keeper.record(self._keeper.directory.add_event, kind, text, subject)

    def _proof(self, proof: Proof) -> None:
        self._keeper.record(self._keeper.directory.add_proof, proof)

    def _error(self) -> BaseException | None:
        """The exception being raised to the caller; not one that the caller itself is handling."""
        error = sys.exception()
        return None if error is self._handled else error

    def _take_down(self, testbed: Target, number: int) -> None:
        """Keep the logs, take everything down, and report it; each step runs even if the previous one failed."""
        self._report_reason(self._error())
        try:
            self._keep_logs(testbed, number)
        finally:
            self._event("tear_down_began", f"{testbed.consists_of} are taken down")
            try:
                take_down(testbed, self._progress)
            except BaseException as problem:
                self._not_removed = text_of(problem)
                raise

    def _keep_logs(self, testbed: Target, number: int) -> None:
        """Under names that have the cluster's number from the second one on; no node's name has a point in it."""
        suffix = "" if number == 1 else f".{number}"
        self._keeper.logs(lambda: ((f"{name}{suffix}", text) for name, text in testbed.logs()))

    def _report_reason(self, error: BaseException | None) -> None:
        """Report once, with the first error, that it ends the run."""
        if error is None or self._reason is not None:
            return
        self._reason = "interrupted" if isinstance(error, KeyboardInterrupt) else text_of(error)
        interrupted = isinstance(error, Interrupted | KeyboardInterrupt)
        self._event("run_interrupted" if interrupted else "run_failed", self._reason)

    def _end(self) -> None:
        """Leave outcomes of the scenarios that were not run, and report where everything is."""
        self._report_reason(self._error())
        try:
            if self._matrix is not None and self._reason is not None:
                self._matrix.leave_rest(self._reason)
        finally:
            outcomes = self._keeper.outcomes
            left = "" if self._not_removed is None else f"; {self._not_removed}"
            if self._network_after is not None and not self._network_after.passed:
                left = f"; {WRONG_AFTER}{left}"
            rows, planned = (
                len({(one.scheduled.scenario.name, one.scheduled.repetition) for one in held})
                for held in (outcomes, self._plan.scenarios)
            )
            states = states_text(outcome.state for outcome in outcomes)
            ended = f"{rows} of {planned} scenarios have rows: {states}{left}"
            self._event("run_ended", ended)
            try:
                self._keeper.settle(self._error())
            finally:
                self._keeper.record(self._keeper.directory.seal)
                self._keep_costs()

    def _keep_costs(self) -> None:
        if self._plan.config.external is not None:
            return  # what members cost is elsewhere
        new = [] if self._is_reused else self._clusters  # the others' disks were measured once
        if (note := keep_costs(self._plan, self._manifest.machine, new, self._keeper.outcomes)) is not None:
            self._progress.note(note)
