"""The terminal: how the course of a run looks, and the signals that end it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from containernet_env.base import clock
from containernet_env.base.errors import ContainernetEnvError, Interrupted
from containernet_env.base.work import STOP_SIGNALS, RemainingTime, Stage, Stop, stop_behind

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

    from containernet_env.config.plan import PlannedScenario
    from containernet_env.model.findings import Finding
    from containernet_env.model.outcome import ScenarioOutcome
    from containernet_env.model.scenario import Scenario

WIDE = 1000
"""Columns of a table that no terminal shows: it is never cut."""
# Without a terminal a long scenario reports its progress at this interval; shorter ones report only their end.
PLAIN_INTERVAL_S = 15.0


def plain_console(**settings: Any) -> Console:
    """Standard output; texts of files hold brackets and colons that rich takes for markup."""
    return Console(highlight=False, markup=False, emoji=False, **settings)


def wide_console() -> Console:
    return plain_console(width=None if sys.stdout.isatty() else WIDE)


def table(*headings: str, gap: int = 2) -> Table:
    """A table without lines. A heading that begins with ``>`` is of a column of figures: right-aligned, never cut.

    Where a line is too short, the texts of other columns are continued below.
    """
    made = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for heading in headings:
        if heading.startswith(">"):
            made.add_column(Text(heading[1:]), justify="right", no_wrap=True)
        else:
            made.add_column(Text(heading), overflow="fold")
    return made


def seconds_text(seconds: float) -> str:
    """A duration for people: "0.8 s", "12 s", "4 min 52 s"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    return f"{int(seconds + 0.5) // 60} min {int(seconds + 0.5) % 60:02d} s"


def milliseconds_text(seconds: float | None) -> str:
    """A latency for people, in ms with three significant digits; "-" where there is none."""
    if seconds is None:
        return "-"
    milliseconds = seconds * 1000
    digits = 0 if milliseconds >= 99.95 else 1 if milliseconds >= 9.995 else 2
    return f"{milliseconds:.{digits}f} ms"


def rate_text(requests_per_s: float | None) -> str:
    """A throughput for people, in requests per second."""
    if requests_per_s is None:
        return "-"
    return f"{requests_per_s:,.0f}" if requests_per_s >= 100 else f"{requests_per_s:.1f}"


class StageLines:
    """Reports stages, which may overlap: a line for each ended one, and on a terminal the running ones below them.

    ``width`` is that of the longest name. The duration of a stage is shown from ``shown_from_s`` on.
    """

    width = 10
    shown_from_s = 0.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = clock.Lock()
        self._stages: list[str] = []
        self._status: Status | None = None

    @contextmanager
    def stage(self, name: str, seconds: float | None = None) -> Iterator[Stage]:
        """A stage, or one that took ``seconds``. One that ends without an error shows its line."""
        began, stage = clock.monotonic(), Stage()
        if seconds is None:
            self._change(self._stages.append, name)
        try:
            yield stage
        finally:
            if seconds is None:
                self._change(self._stages.remove, name)
        took = clock.monotonic() - began if seconds is None else seconds
        line = Text(f"  {name:<{self.width}} {stage.text}")
        if took >= self.shown_from_s:
            line.append(f"  ({seconds_text(took)})", "dim")
        self._console.print(line, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line of its own."""
        self._console.print(Text(f"  {'note':<{self.width}} {text}", style="yellow"), soft_wrap=True)

    def _change(self, change: Callable[[str], None], name: str) -> None:
        with self._lock:
            change(name)
            self.show_running(f"{', '.join(self._stages)} ..." if self._stages else "")

    def show_running(self, text: str) -> None:
        """Show what goes on, on a terminal, below the lines of what has ended; nothing if the text is empty."""
        if not text and self._status is not None:
            self._status.stop()
            self._status = None
        elif self._status is not None:
            self._status.update(Text(text, style="dim"))
        elif text and self._console.is_terminal:
            self._status = self._console.status(Text(text, style="dim"))  # a str would be read as markup
            self._status.start()

    def close(self) -> None:
        """Leave the terminal as it was, whatever was being shown."""
        self.show_running("")


@dataclass
class _Running:
    """The scenario that runs; ``probe``: number, load and begin of the last one of a search."""

    planned: PlannedScenario
    began: float
    probe: tuple[int, Scenario, float] | None = None

    @property
    def scenario(self) -> Scenario:
        return self.planned.scheduled.scenario.together

    @property
    def whole_s(self) -> float:
        """Seconds, in real time, of a scenario that ends by its schedule, about those of a search."""
        if self.scenario.search is not None:
            return round(self.planned.estimated_s)
        return self.planned.dilation * ((self.scenario.scheduled_s or 0.0) + (self.scenario.warmup_s or 0.0))

    def place(self, done: int, elapsed_s: float) -> str:
        """How far it is: requests where their number is configured, else seconds."""
        if self.scenario.total is not None:
            return f"{done:,} of {self.scenario.total:,}"
        if self.probe is not None:
            number, probe, _ = self.probe
            return f"probe {number} at {rate_text(float(probe.rate or 0))}/s, {seconds_text(elapsed_s)}"
        return f"{min(elapsed_s, self.whole_s):.0f} of {self.whole_s:g} s"

    def left_s(self, done: int, elapsed_s: float, rate: float) -> float | None:
        if self.scenario.total is None:
            return max(self.whole_s - elapsed_s, 0.0)
        return (self.scenario.total - done) / rate if rate > 0 else None


class TerminalProgress(StageLines):
    """A `containernet_env.runs.progress.RunProgress` on a rich console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._matrix = RemainingTime()
        self._estimates_s: list[float] = []
        self._again = False
        self._running: _Running | None = None
        self._told = 0.0

    def matrix_started(self, scenarios: Sequence[PlannedScenario]) -> None:
        self._estimates_s = [planned.estimated_s for planned in scenarios]
        self._matrix = RemainingTime()
        self._matrix.wants(len(scenarios), sum(self._estimates_s))

    def scenario_started(self, planned: PlannedScenario) -> None:
        self._told = clock.monotonic()
        self._running = _Running(planned, self._told)
        self._again = planned.scheduled.attempt > 1
        self.show_running(f"{self._prefix} {self._running.scenario.name}")

    def probe_started(self, number: int, probe: Scenario) -> None:
        assert self._running is not None
        self._running.probe = (number, probe, clock.monotonic())

    def scenario_progress(self, done: int, errors: int) -> None:
        """Show how far it is: on a terminal below the other lines, elsewhere periodically where it takes long."""
        running, now = self._running, clock.monotonic()
        assert running is not None
        if not self._console.is_terminal and now - self._told < PLAIN_INTERVAL_S:
            return
        self._told = now
        elapsed_s = now - running.began
        counted_s = elapsed_s if running.probe is None else now - running.probe[2]
        rate = done / counted_s if counted_s > 0 else 0.0
        speed = f"{rate_text(rate * running.planned.dilation)}/s{f', {errors:,} failed' if errors else ''}"
        left_s = running.left_s(done, elapsed_s, rate)
        whole = f" (all scenarios: {seconds_text(max(self._matrix.left_s - elapsed_s, 0.0))})"
        left = f", about {seconds_text(left_s)} left{whole}" if left_s is not None else ""
        text = f"{self._prefix} {running.scenario.name}: {running.place(done, elapsed_s)}, {speed}{left}"
        if self._console.is_terminal:
            self.show_running(text)
        else:
            self._console.print(text, soft_wrap=True)

    @property
    def _prefix(self) -> str:
        count = self._matrix.all
        return f"[{self._matrix.done + (not self._again):>{len(str(count))}}/{count}]"

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        self.close()
        self._again = outcome.scheduled.attempt > 1
        name, prefix = outcome.scheduled.scenario.name, self._prefix
        if not self._again:
            self._matrix.ended(sum(self._estimates_s[self._matrix.done : self._matrix.done + 1]))
        self._matrix.took(outcome.wall_s)
        if outcome.error is not None:
            line = Text.assemble(prefix, " ", name, "  ", (outcome.error, "red"))
        else:
            excluded = outcome.load.excluded if outcome.load is not None else 0
            line = Text.assemble(
                f"{prefix} {name:<36}  {rate_text(outcome.requests_per_s):>7}/s",
                f"  p50 {milliseconds_text(outcome.percentile_s('50')):>8}",
                f"  p99 {milliseconds_text(outcome.percentile_s('99')):>8}",
                (f"  ({seconds_text(outcome.wall_s)})", "dim"),
                (f"  {excluded:,} requests in no percentile" if excluded else "", "yellow"),
                (f"  {doubt}" if (doubt := doubt_text(outcome)) else "", "bold yellow"),
            )
        self._console.print(line, soft_wrap=True)
        for text in _finding_texts(item for item in outcome.findings if item.kind != "unseen"):  # once, at the start
            self.note(f"{name}: {text}")
        if outcome.advice is not None:
            self.note(f"{name}: {outcome.advice}")


def _finding_texts(findings: Iterable[Finding]) -> list[str]:
    """A line for each, but of those of one kind that leave a row valid, the largest, with the names of the others."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        alike = finding.effect == "info" and finding.value is not None and finding.subject is not None
        groups.setdefault(finding.kind if alike else finding, []).append(finding)
    texts = []
    for group in groups.values():
        most, *others = sorted(group, key=lambda finding: -(finding.value or 0.0))
        names = ", ".join(sorted(finding.subject or "" for finding in others))
        texts.append(f"{most.text}{f' ({names}: less)' if names else ''}")
    return texts


def result_table(outcomes: Sequence[ScenarioOutcome]) -> Table:
    """The short table at the end of a run, one line per row of the CSV, which has room for either of two columns."""
    slow = any(outcome.dilation > 1 for outcome in outcomes)
    counts = [outcome.load.failed if outcome.load is not None else 0 for outcome in outcomes]
    failed = any(counts) or not slow
    made = table(
        "scenario",
        *([">dilation"] * slow),
        *(">requests/s", ">p50", ">p99"),
        *([">errors"] * failed),
        ">valid",
        gap=1,
    )
    for outcome, count in zip(outcomes, counts, strict=True):
        scheduled = outcome.scheduled
        made.add_row(
            name_text(scheduled.scenario.name, scheduled.repetition, scheduled.attempt),
            *([str(outcome.dilation)] * slow),
            rate_text(outcome.requests_per_s),
            milliseconds_text(outcome.percentile_s("50")),
            milliseconds_text(outcome.percentile_s("99")),
            *([str(count)] * failed),
            outcome.verdict.valid if outcome.verdict is not None else "-",
            style="red" if outcome.error else "yellow" if doubt_text(outcome) else "",
        )
    return made


def clients_text(count: int) -> str:
    return "the client" if count == 1 else f"{count} clients"


def name_text(scenario: str, repetition: int, attempt: int) -> str:
    """A scenario's name, with its repetition and attempt from the second on."""
    name = scenario if repetition == 1 else f"{scenario} #{repetition}"
    return name if attempt == 1 else f"{name}, attempt {attempt}"


def doubt_text(outcome: ScenarioOutcome) -> str:
    """That its figures are not, or may not be, the store's; empty if they are, or where there are none."""
    if outcome.verdict is None or outcome.verdict.valid == "yes":
        return ""
    return "NOT VALID" if outcome.verdict.valid == "no" else "VALID? unknown"


_pressed = False


def hear_ctrl_c() -> None:
    """From now on Ctrl-C is ``interrupt``, and Python does not print where it was dropped."""
    sys.unraisablehook = tell_unraisable
    signal.signal(signal.SIGINT, interrupt)


def tell_unraisable(dropped: UnraisableHookArgs) -> None:
    """Print an error that nothing can catch, unless it is a stop, which is remembered and needs no word."""
    if not issubclass(dropped.exc_type, (KeyboardInterrupt, Interrupted)):
        sys.__unraisablehook__(dropped)


def interrupt(_signum: int, _frame: FrameType | None) -> None:
    """The handler of Ctrl-C before any work: KeyboardInterrupt, which is recorded in case the exception is lost.

    An extension written in another language may drop an exception raised while it calls back, as pydantic's does while
    it builds a schema; ``StopSignals`` would then begin work that was cancelled.
    """
    global _pressed
    _pressed = True
    raise KeyboardInterrupt


class StopSignals(Stop):
    """A stop token that turns the first stop signal into `Interrupted`, raised once in the main thread.

    Every later one, and every one after `shield`, is only recorded (and reported through `on_ignored`), so that
    a tear-down that has begun completes. ``resume`` describes how to continue: the stop has that as a note.
    Under nohup a SIGHUP stays ignored; the handlers found at entry are put back at exit.

    Use it so, since a signal may strike between two lines::

        with StopSignals() as stop:
            try:
                try:
                    work()
                finally:
                    stop.shield()
            finally:          # reached also if the signal struck before the inner shield
                stop.shield()
                tear_down()
    """

    def __init__(
        self, on_ignored: Callable[[int], None] | None = None, resume: Callable[[], str] | None = None
    ) -> None:
        super().__init__()
        self._deferring = False
        self._on_ignored = on_ignored
        self._resume = resume
        self._entered = ExitStack()

    def __enter__(self) -> StopSignals:
        """Raises KeyboardInterrupt where Ctrl-C was pressed before, see ``interrupt``."""
        if _pressed:
            raise KeyboardInterrupt
        with ExitStack() as entered:
            entered.enter_context(clock.waking())
            for signum in STOP_SIGNALS:
                # nohup ignores hang-ups; the others a shell ignores for each command that a script starts with `&`.
                if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
                    entered.callback(signal.signal, signum, signal.signal(signum, self._handle))
            self._entered = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()
        if error is not None and self._resume is not None and (stop := stop_behind(error)) is not None:
            with suppress(ContainernetEnvError):
                stop.add_note(self._resume())

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within this block a first signal waits; it raises when the outermost such block ends."""
        if self._deferring:
            yield
            return
        before = self.received
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if before is None and self.received is not None and not self._shielded:
            raise Interrupted(self.received)

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        first = self.received is None
        if first:
            self.received = signum
        if first and self._deferring:
            return
        if first and not self._shielded:
            raise Interrupted(signum)
        if self._on_ignored is not None:
            self._on_ignored(signum)
