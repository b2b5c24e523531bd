"""A run to call: what the command `run` does, for the command line, sweeps and notebooks alike.

Nothing here knows terminals or installs signal handlers, and it works on any thread: the caller hands in a stop token
(``base.stop.Stop``) and whoever wants to see the course of the run (``runs.progress.RunProgress``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

from containernet_env.base.clock import Moment
from containernet_env.base.errors import Interrupted, MissingRequirementError, UsageError, text_of
from containernet_env.base.exhausted import told
from containernet_env.base.stop import Stop
from containernet_env.containernet import select
from containernet_env.fidelity.rtt import Tolerance
from containernet_env.model.config import Config
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.run_facts import RunFacts
from containernet_env.model.scenario import ScenarioSet
from containernet_env.plan.export import plan_values
from containernet_env.plan.identity import config_hash
from containernet_env.plan.plan import Plan
from containernet_env.results.columns import row_of
from containernet_env.results.csv_file import ResultsFile
from containernet_env.results.run_directory import RunDirectory
from containernet_env.results.run_files import Manifest
from containernet_env.results.run_result import RunResult
from containernet_env.runs import clean, labs, machine, preflight, version
from containernet_env.runs.keeper import Keeper
from containernet_env.runs.lock import RunLock
from containernet_env.runs.matrix import Matrix
from containernet_env.runs.prepare import RunChoices, prepare
from containernet_env.runs.progress import Guarded, RunProgress, Silent
from containernet_env.runs.testbed import Testbed, take_down
from containernet_env.setup import ready_images

DEFAULT_PORT = 8080
DEFAULT_TOLERANCE = Tolerance()


def measure(
    topology: Config | Path | str,
    scenarios: ScenarioSet | Path | str | None,
    out: Path | str,
    *,
    rtt_tolerance: str | Tolerance = DEFAULT_TOLERANCE,
    port: int = DEFAULT_PORT,
    progress: RunProgress | None = None,
    stop: Stop | None = None,
    **choices: Unpack[RunChoices],
) -> RunResult:
    """Bring ``topology`` up, run ``scenarios`` on it, append a row for each to the CSV ``out``, tear down.

    Files may be named, or loaded before. ``scenarios`` ``None`` is what the topology names, or the default matrix;
    ``quick`` its small form. ``choices`` are the options of `run`: ``quick``, ``only``, ``repeat``, ``links``,
    ``switches``, ``seed``, ``engine``, ``congestion_control``. Raises ``ConfigError`` and ``UsageError`` before
    anything is created, ``MissingRequirementError`` where the machine lacks something, ``RunError`` where the run could
    not be carried out, and ``Interrupted`` where ``stop`` asked it to end. Needs root.
    """
    if not 1 <= port <= 65_535:
        raise UsageError(f"port={port}; allowed: 1 to 65535")
    plan = prepare(topology, scenarios, **choices)
    preflight.check(plan, Path(out))
    tolerance = rtt_tolerance if isinstance(rtt_tolerance, Tolerance) else Tolerance.parse(rtt_tolerance)
    return carry_out(plan, Path(out), tolerance=tolerance, port=port, progress=progress, stop=stop)


def carry_out(
    plan: Plan,
    out: Path,
    *,
    tolerance: Tolerance,
    port: int = DEFAULT_PORT,
    progress: RunProgress | None = None,
    stop: Stop | None = None,
    command: Sequence[str] | None = None,
) -> RunResult:
    """Carry a plan out. ``command`` is what the manifest says of the caller. See ``measure``."""
    guarded, stop = Guarded(progress or Silent()), stop or Stop()
    require_root()
    select.require(plan)
    stop.check()
    try:
        with told(), RunLock():
            results = ResultsFile(out)
            for note in results.open().notes:
                guarded.note(note)
            try:
                run = _Run(plan, results, tolerance, port, guarded, stop, list(command or sys.argv))
                return run.carry_out()
            finally:
                results.close()
    finally:
        stop.unshield()


class _Run:
    """One run: bring-up, matrix, tear-down in any case, and what it leaves behind."""

    def __init__(
        self,
        plan: Plan,
        results: ResultsFile,
        tolerance: Tolerance,
        port: int,
        progress: Guarded,
        stop: Stop,
        command: list[str],
    ) -> None:
        self._plan = plan
        self._results = results
        self._progress = progress
        self._stop = stop
        self._began = Moment.now()
        self._run_id = f"{self._began.at[:19].replace('-', '').replace(':', '')}Z-{plan.run_id}"
        self._keeper = Keeper(results, RunDirectory(results.path, self._run_id), progress)
        progress.on_failure = lambda text: self._keeper.event("progress_failed", text)
        self._manifest = Manifest(
            run_id=self._run_id,
            began=self._began.at,
            began_ns=self._began.at_ns,
            program={"version": version.version(), "commit": version.commit(), "dirty": version.dirty()},
            command=command,
            config_hash=config_hash(plan),
            plan=plan_values(plan),
        )
        self._matrix: Matrix | None = None
        self._facts = RunFacts(plan.config, self._run_id)
        self._labs = 0
        self._handled = sys.exception()
        self._testbed_settings = (tolerance, port)

    def carry_out(self) -> RunResult:
        """Everything from the images to the tear-down."""
        images = ready_images()
        for name in clean.remove_leftovers().removed:
            self._progress.note(f"removed {name}, left behind by a killed run")
        for note in self._plan.notes:
            self._progress.note(note)
        self._keeper.manifest(self._manifest)
        self._event("run_began", f"run {self._run_id}")
        self._labs = labs.others_up()
        if self._labs:
            count = f"{self._labs} lab{'s are' if self._labs > 1 else ' is'}"
            self._progress.note(f"{count} up on this machine: what is done there disturbs what is measured here")
        tolerance, port = self._testbed_settings
        testbed = Testbed(
            self._plan,
            images,
            self._progress,
            port=port,
            tolerance=tolerance,
            on_event=self._event,
            on_proof=self._keeper.proof,
            stop=self._stop,
        )
        try:
            try:
                self._stop.check()
                testbed.up()
                with testbed.told_why():
                    self._describe(testbed)
                self._event("matrix_began", f"{len(self._plan.scenarios)} scenarios")
                plan = self._plan
                self._matrix = Matrix(
                    testbed, plan.scenarios, plan.dataset, self._leave, self._progress, self._stop, self._event
                )
                self._matrix.run()
            finally:
                self._stop.shield()
        finally:
            self._stop.shield()
            self._end(testbed)
        kept = self._keeper
        return RunResult(self._run_id, kept.directory.path, tuple(kept.outcomes), tuple(kept.rows), kept.results.file)

    def _describe(self, testbed: Testbed) -> None:
        """Write down what was brought up, before the load."""
        plan, leader, store_version = self._plan, testbed.leader_at_start, testbed.cluster.version()
        largest = plan.largest_member_rtt
        self._manifest = self._manifest.model_copy(
            update={
                "machine": machine.facts(),
                "images": dict(testbed.images),
                "links": testbed.link_facts(),
                "hosts": testbed.host_facts(),
                "store": {"kind": plan.store.name, "version": store_version, "leader_at_start": leader},
            }
        )
        self._keeper.manifest(self._manifest)
        self._facts = RunFacts(
            config=plan.config,
            run_id=self._run_id,
            rtt=largest,
            rtt_measured_ns=testbed.rtt.measured_ns(largest) if testbed.rtt and largest else None,
            hosts=testbed.net.hosts_kind,
            links=testbed.net.links_kind,
            store=plan.store.name,
            store_version=store_version,
            timing=plan.timing.values(),
            congestion_control=plan.options.tcp_congestion_control,
            realtime=testbed.realtime,
            seed=plan.options.seed if testbed.net.links_kind == "emulator" else None,
            config_hash=self._manifest.config_hash,
            commit=version.commit_text(),
            cpu_model=machine.cpu_model(),
            labs=self._labs,
        )

    def _leave(self, outcome: ScenarioOutcome) -> str | None:
        """See ``matrix.Leave``."""
        return self._keeper.keep(outcome, partial(row_of, self._facts))

    def _event(self, kind: str, text: str, subject: str | None = None) -> None:
        self._keeper.event(kind, text, subject)

    def _error(self) -> BaseException | None:
        """What is on its way to the caller; not what the caller itself is handling."""
        error = sys.exception()
        return None if error is self._handled else error

    def _end(self, testbed: Testbed) -> None:
        """Keep the logs, take everything down, and tell of it; each whatever becomes of the one before it."""
        error = self._error()
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else text_of(error) if error else None
        if reason is not None:
            interrupted = isinstance(error, Interrupted | KeyboardInterrupt)
            self._event("run_interrupted" if interrupted else "run_failed", reason)
        left = ""
        try:
            self._keeper.logs(testbed.logs)
        finally:
            self._event("tear_down_began", "hosts, links and cluster are taken down")
            try:
                take_down(testbed, self._progress)
            except BaseException as problem:
                left = f"; {text_of(problem)}"
                raise
            finally:
                try:
                    if self._matrix is not None and reason is not None:
                        self._matrix.leave_rest(reason)
                finally:
                    outcomes = self._keeper.outcomes
                    failed = sum(outcome.error is not None for outcome in outcomes)
                    ended = f"{len(outcomes)} of {len(self._plan.scenarios)} scenarios, {failed} failed{left}"
                    self._event("run_ended", ended)
                    self._keeper.settle(self._error())


def require_root() -> None:
    """Raises MissingRequirementError unless this is root."""
    if os.geteuid() != 0:
        raise MissingRequirementError(
            "containers, namespaces and links need root", "Run it again with sudo, or as root."
        )
