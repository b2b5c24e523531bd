"""The output of a run: rows in the CSV first, then the run directory; whatever fails, no measurement is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import ParamSpec

from containernet_env.base.errors import RunError, text_of
from containernet_env.config.plan import Plan, config_hash
from containernet_env.config.planning import at_most
from containernet_env.model.config import DILATION_MAX
from containernet_env.model.findings import OF_THE_MACHINE
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.results import capacity
from containernet_env.results.capacity import MachineKey
from containernet_env.results.csv_file import ResultsFile, RowNotWrittenError
from containernet_env.results.files import reason
from containernet_env.results.run_directory import MANIFEST, SCENARIOS, RunDirectory
from containernet_env.results.run_files import ClusterRecord, MachineFacts, Manifest
from containernet_env.runs.matrix import INTERRUPTED, NOT_RUN
from containernet_env.runs.progress import Guarded

_P = ParamSpec("_P")


def advised(plan: Plan, key: MachineKey, outcome: ScenarioOutcome) -> ScenarioOutcome:
    """An outcome with what would make its figures valid. Never raises."""
    if outcome.state in ("valid", "failed"):
        return outcome
    try:
        advice = capacity.advice(plan, outcome, _known(plan, key, outcome))
    except Exception:  # noqa: BLE001 - the row is worth more
        return outcome
    parts = [part if part.state == "valid" else replace(part, advice=advice) for part in outcome.parts]
    return replace(outcome, advice=advice, parts=tuple(parts))


def _known(plan: Plan, key: MachineKey, outcome: ScenarioOutcome) -> capacity.MachineCosts:
    """The costs on this machine, with those of an outcome."""
    known, _ = capacity.read(key)
    own = capacity.sample_of(outcome, len(plan.config.nodes), key.cores, config_hash(plan), plan.store.name)
    return known.model_copy(update={"requests": [*known.requests, *([] if own is None else [own])]})


def next_dilation(plan: Plan, key: MachineKey, outcome: ScenarioOutcome) -> int | None:
    """The dilation at which an outcome is measured again: its row is not valid because of this machine; else ``None``.

    That of ``plan``, at which it was measured, unless cores were missing: then it is what the scenario needs by its
    costs, or if these are unknown all hosts by their limits, and at least twice as much, as far as it can be as slow.
    The client's CPU limit is as much lower as the rate is, so no dilation helps where that was reached.
    """
    causes = {finding.kind for finding in outcome.findings if finding.effect == "invalid"}
    if outcome.error is not None or not causes or not causes <= capacity.SHORT_OF_CORES | OF_THE_MACHINE:
        return None
    if "client_throttled" in causes:
        return None
    if not causes & capacity.SHORT_OF_CORES:
        return plan.dilation
    name = outcome.scheduled.scenario.name
    needed = capacity.dilations(plan, _known(plan, key, outcome)).get(name, 1)
    needed = capacity.enough_dilation(plan) if needed == 1 else needed
    factor = at_most(plan, name, min(max(needed, 2 * plan.dilation), DILATION_MAX))
    return factor if factor > plan.dilation else None


def keep_costs(
    plan: Plan, facts: MachineFacts, clusters: Sequence[ClusterRecord], outcomes: Sequence[ScenarioOutcome]
) -> str | None:
    """Add measured costs to the machine's file; a note if that is not possible. Never raises.

    Profiles cost CPU time that other runs do not spend, so scenarios of such a run are left out; so are those with
    events, during which requests wait and fail.
    """
    try:
        members = len(plan.topology.members)
        usual = [outcome for outcome in outcomes if outcome.disruptions is None]
        measured = [] if plan.options.profile else usual
        which = config_hash(plan), plan.store.name
        samples = [capacity.sample_of(outcome, members, facts.cores, *which) for outcome in measured]
        syncs = [
            capacity.SyncSample(at=cluster.at, data=plan.config.etcd.data, median_ns=median(medians_ns))
            for cluster in clusters
            if (medians_ns := [times.median_ns for name, times in cluster.sync.items() if name not in plan.fsyncs_ns])
        ]
        capacity.add(MachineKey.of(facts), [one for one in samples if one is not None], syncs)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run and its rows are worth more
        return f"what requests cost on this machine is not kept: {_why(error)}"
    return None


def _why(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) else text_of(error)


class RowsNotWrittenError(RunError):
    """The results file refused a row of a run; the message locates each row, ``rows`` are in no file at all."""

    def __init__(
        self, results: ResultsFile, refused: RowNotWrittenError, rows: Iterable[Mapping[str, str]], *where: str
    ) -> None:
        self.rows = tuple(map(dict, rows))
        lines = [refused.reason, *where, refused.remedy]
        if self.rows:
            lines.append(f"{len(self.rows)} rows are in no file; here they are, as the results file would have them:")
        text = "".join("\n" + results.line(row).decode().rstrip("\n") for row in self.rows)
        super().__init__("\n  ".join(lines) + text)


def was_measured(outcome: ScenarioOutcome) -> bool:
    """Whether a scenario ran to its end, well or not."""
    return outcome.error is None or not (outcome.error == INTERRUPTED or outcome.error.startswith(NOT_RUN))


@dataclass(eq=False)
class Keeper:
    """Keeps the outcomes of a run: once kept, each is written once, now or as soon as there is room for it.

    Without ``unmeasured`` the results file has no rows of scenarios that were not run or were interrupted. Only
    `settle` raises. A run directory that cannot be written is reported once and stops nothing.
    """

    results: ResultsFile
    directory: RunDirectory
    _progress: Guarded
    _unmeasured: bool

    def __post_init__(self) -> None:
        self.outcomes: list[ScenarioOutcome] = []
        self.rows: list[dict[str, str]] = []
        # How many of the rows the results file has taken, and why it took no more.
        self._taken = 0
        self._recorded = 0
        self._refused: RowNotWrittenError | None = None
        self._rescued: list[str] = []
        self._record_failed = False

    @property
    def _lines(self) -> list[ScenarioOutcome]:
        """What has a row and a line of its own: of several clients each one's outcome, then that of all."""
        return [each for outcome in self.outcomes for each in outcome.each]

    def keep(self, outcome: ScenarioOutcome, row_of: Callable[[ScenarioOutcome], dict[str, str]]) -> str | None:
        """Write its rows to disk, then add it to the run directory, then report it; see ``matrix.Leave``."""
        new = not self.outcomes or self.outcomes[-1].scheduled.key != outcome.scheduled.key
        if new:
            rows = [row_of(each) for each in outcome.each]
            self.outcomes.append(outcome)
            self.rows += rows
        self._write_rows()
        while self._recorded < len(lines := self._lines):
            self._recorded += 1
            self.record(self.directory.add_scenario, lines[self._recorded - 1])
        if new:
            self._progress.scenario_ended(outcome)
        return self._refused.reason if self._refused is not None else None

    def amend(
        self, changed: Mapping[int, ScenarioOutcome], row_of: Callable[[ScenarioOutcome], dict[str, str]]
    ) -> None:
        """Put other outcomes in the place of kept ones, by their indices, in rows and run directory."""
        if not changed:
            return
        before = list(self.rows)
        for index, outcome in changed.items():
            self.outcomes[index] = outcome
            first = sum(len(earlier.each) for earlier in self.outcomes[:index])
            for number, each in enumerate(outcome.each, start=first):
                self.rows[number] = row_of(each)
        pairs = [(old, new) for old, new in zip(before, self.rows, strict=True) if old != new]
        try:
            self.results.amend(pairs)
        except OSError as error:
            self._progress.note(
                f"{self.results.file} could not be written anew: {reason(error)}; "
                f"later findings about {len(pairs)} of its rows are in {self.directory.path / SCENARIOS}"
            )
        self.record(self.directory.amend_scenarios, self._lines)

    def record(self, write: Callable[_P, object], *values: _P.args, **named: _P.kwargs) -> None:
        """Write to the run directory by one of its methods, or report once that it cannot be written."""
        try:
            write(*values, **named)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run and its rows are worth more
            if not self._record_failed:
                self._record_failed = True
                self._progress.note(f"{self.directory.path} cannot be kept as a whole: {_why(error)}; the run goes on")

    def manifest(self, manifest: Manifest, inputs: Mapping[str, str] | None = None) -> None:
        """See ``RunDirectory``; ``inputs`` are the files that the manifest names, by their names."""
        self.record(self.directory.write, MANIFEST, manifest)
        for name, text in (inputs or {}).items():
            self.record(self.directory.write, name, text)

    def logs(self, read: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Keep the output of the hosts."""

        def keep() -> None:
            for name, text in read():
                self.record(self.directory.write_log, name, text)

        self.record(keep)

    def settle(self, error: BaseException | None) -> None:
        """At the end, after the tear-down, retry the refused rows once, and report where the rows are.

        Raises RowsNotWrittenError if the results file refused a row; an ``error`` that is being raised to the caller
        gets that as a note instead, and a second note if the rows are not in the configured place.
        """
        self._write_rows()
        self.record(self.directory.restore)
        if self._refused is not None:
            problem = self._refusal(self._refused)
            if error is None:
                raise problem
            error.add_note(str(problem))
        elif error is not None and self._rescued:
            error.add_note(self._rescued[-1])

    def _write_rows(self) -> None:
        """Write every row that the results file has not taken yet."""
        try:
            for outcome, row in zip(self._lines[self._taken :], self.rows[self._taken :], strict=True):
                moved = self.results.append(row) if self._unmeasured or was_measured(outcome) else None
                self._taken += 1
                self._tell_moved(moved)
            self._tell_moved(self.results.follow())
        except RowNotWrittenError as error:
            self._refused = self._refused or error

    def _tell_moved(self, moved: str | None) -> None:
        if moved is not None:
            self._rescued.append(moved)
            self._progress.note(moved)

    def _refusal(self, refused: RowNotWrittenError) -> RowsNotWrittenError:
        """Where every row is, of a run that had one refused."""
        count = len(self.rows)
        taken = 0 if self.results.lost else self._taken
        kept = max(taken, count - len(self.directory.missing))
        where = f"{count - taken} of {count} rows are not in it."
        if taken == count:
            where = f"All {count} rows are in it: at the end of the run it took them."
        elsewhere = [f"{kept - taken} of them are in {self.directory.path / SCENARIOS}."] if kept > taken else []
        return RowsNotWrittenError(self.results, refused, self.rows[kept:], where, *elsewhere)
