"""How the course of a run looks: a live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from containernet_env.base.progress import ScenarioReport

NAME_WIDTH = 10
# Without a terminal a long scenario says how far it is this often; shorter ones say only how they ended.
PLAIN_INTERVAL_S = 15.0


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
    return (
        f"{milliseconds:.0f} ms"
        if milliseconds >= 99.95
        else f"{milliseconds:.{1 if milliseconds >= 9.995 else 2}f} ms"
    )


def rate_text(requests_per_s: float | None) -> str:
    """A throughput for people, in requests per second."""
    if requests_per_s is None:
        return "-"
    return f"{requests_per_s:,.0f}" if requests_per_s >= 100 else f"{requests_per_s:.1f}"


class TerminalStage:
    """One line that appears when the stage ends, with what came of it and how long it took."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._text = ""
        self._status = console.status(f"{name} ...") if console.is_terminal else None
        self._began = time.monotonic()

    def done(self, text: str) -> None:
        """Remember what the stage came to."""
        self._text = text

    def __enter__(self) -> TerminalStage:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
        if kind is None:
            seconds = seconds_text(time.monotonic() - self._began)
            line = Text.assemble(f"  {self._name:<{NAME_WIDTH}} ", self._text, (f"  ({seconds})", "dim"))
            self._console.print(line, soft_wrap=True)


class TerminalReporter:
    """A `containernet_env.base.progress.Reporter` on a rich console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._prefix = ""
        self._name = ""
        self._total: int | None = None
        self._seconds: float | None = None
        self._began = 0.0
        self._told = 0.0
        self.reports: list[ScenarioReport] = []

    def stage(self, name: str) -> TerminalStage:
        """Begin a stage."""
        return TerminalStage(self._console, name)

    def note(self, text: str) -> None:
        """Print a line of its own."""
        self._console.print(Text(f"  {'note':<{NAME_WIDTH}} {text}", style="yellow"), soft_wrap=True)

    def scenario_started(self, index: int, count: int, name: str, total: int | None, seconds: float | None) -> None:
        """Show scenario `index` of `count` as the running one."""
        width = len(str(count))
        self._prefix = f"[{index:>{width}}/{count}]"
        self._name, self._total, self._seconds = name, total, seconds
        self._began = self._told = time.monotonic()
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[place]}"),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(compact=True),
                console=self._console,
                transient=True,
            )
            self._task = self._progress.add_task(
                f"{self._prefix} {name}", total=seconds if total is None else total, place=self._place(0, 0.0), rate=""
            )
            self._progress.start()

    def scenario_progress(self, done: int, errors: int) -> None:
        """Move the live line, or say from time to time how far a long scenario is."""
        now = time.monotonic()
        elapsed_s = now - self._began
        rate = done / elapsed_s if elapsed_s > 0 else 0.0
        failed = f", {errors:,} failed" if errors else ""
        if self._progress is not None and self._task is not None:
            self._progress.update(
                self._task,
                completed=elapsed_s if self._total is None else done,
                place=self._place(done, elapsed_s),
                rate=f"{rate_text(rate)}/s{failed}",
            )
        elif now - self._told >= PLAIN_INTERVAL_S:
            self._told = now
            left_s = self._left_s(done, elapsed_s, rate)
            left = f", about {seconds_text(left_s)} left" if left_s is not None else ""
            text = f"{self._prefix} {self._name}: {self._place(done, elapsed_s)}, {rate_text(rate)}/s{failed}{left}"
            self._console.print(text, soft_wrap=True)

    def _place(self, done: int, elapsed_s: float) -> str:
        """How far the running scenario is: requests where their number was asked for, else seconds."""
        if self._total is not None:
            return f"{done:,} of {self._total:,}"
        seconds = self._seconds or 0.0
        return f"{min(elapsed_s, seconds):.0f} of {seconds:g} s"

    def _left_s(self, done: int, elapsed_s: float, rate: float) -> float | None:
        if self._total is None:
            return max((self._seconds or 0.0) - elapsed_s, 0.0)
        return (self._total - done) / rate if rate > 0 else None

    def scenario_ended(self, report: ScenarioReport) -> None:
        """Replace the live line by the scenario's figures."""
        self._stop_live()
        self.reports.append(report)
        if report.error is not None:
            line = Text.assemble(self._prefix, " ", report.name, "  ", (report.error, "red"))
        else:
            line = Text.assemble(
                f"{self._prefix} {report.name:<36}  {rate_text(report.requests_per_s):>7}/s",
                f"  p50 {milliseconds_text(report.p50_s):>8}  p99 {milliseconds_text(report.p99_s):>8}",
                (f"  ({seconds_text(report.seconds)})", "dim"),
                (f"  {report.left_out:,} requests in no percentile" if report.left_out else "", "yellow"),
            )
        self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was, whatever was being shown."""
        self._stop_live()

    def _stop_live(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._task = None


def result_table(reports: list[ScenarioReport]) -> Table:
    """The short table at the end of a run, one line per row of the CSV."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scenario", no_wrap=True)
    for heading in ("requests/s", "p50", "p99", "errors"):
        table.add_column(heading, justify="right", no_wrap=True)
    for report in reports:
        name = report.name if report.repetition == 1 else f"{report.name} #{report.repetition}"
        table.add_row(
            name,
            rate_text(report.requests_per_s),
            milliseconds_text(report.p50_s),
            milliseconds_text(report.p99_s),
            str(report.errors),
            style="red" if report.error else "",
        )
    return table
