"""`containernet-env results`, `compare`, `show`, `verify` and `export`: the stored results of runs."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from containernet_env.base.units import format_number
from containernet_env.cli import FILE, RUN, SHARE, of_client
from containernet_env.cli.output import note, plain
from containernet_env.cli.terminal import (
    clients_text,
    milliseconds_text,
    name_text,
    plain_console,
    rate_text,
    seconds_text,
    table,
    wide_console,
)
from containernet_env.model.names import listed, split
from containernet_env.model.scenario import ALL_CLIENTS

if TYPE_CHECKING:
    from containernet_env.results.comparison import Cell, Comparison
    from containernet_env.results.files import Checked
    from containernet_env.results.run_files import EventLine, Manifest, Proof, ScenarioLine
    from containernet_env.runs.verify import Judgement


@click.command()
@click.argument("file", type=FILE)
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Merge rows that agree in this column, and no matter in which others: link_delay, clients, or any column's "
    "name; several with commas between them. By default rows are merged that agree in everything configured, in CPU "
    "model and commit.",
)
@of_client
@click.option("--all", "every", is_flag=True, help="Take rows into the medians whose figures are not certainly valid.")
@click.option("--json", "form", flag_value="json", help="Print JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV.")
def results_command(file: Path, by: tuple[str, ...], client: str, every: bool, form: str | None) -> None:
    """Show the rows of FILE: for each configuration how many rows there are, the median, and the spread."""
    from containernet_env.results.csv_file import load
    from containernet_env.results.repetitions import FIGURES, summarize

    # Not in the output for programs.
    summary = summarize(load(file, note, client), split("--by", by), every)
    if form == "json":
        click.echo(summary.to_json(orient="records", indent=1, double_precision=9))
        return
    if form == "csv":
        summary.to_csv(sys.stdout, index=False)
        return
    texts: dict[str, Callable[[float | None], str]] = {"Requests/sec": rate_text}
    names = {"Requests/sec": "requests/s", "50%": "p50", "95%": "p95", "99%": "p99"}
    keys = list(summary.columns[: list(summary.columns).index("rows")])
    headings = ("scenario" if name == "Scenario" else name for name in keys)
    shown = table(*headings, ">rows", ">failed", ">not valid", *(f">{names[figure]}" for figure in FIGURES))
    for group in summary.to_dict("records"):
        cells = [_words(group[name]) for name in keys]
        cells += [str(group["rows"]), str(group["failed"]), str(group["invalid"])]
        cells += [_spread(group, figure, texts.get(figure, milliseconds_text)) for figure in FIGURES]
        shown.add_row(*cells)
    wide_console().print(shown)
    if summary.empty:
        click.echo("\nno rows yet")
    elif (summary["rows"] > 1).any():
        left_out = [" that did not fail"] if summary["failed"].any() else []
        left_out += [" that are certainly valid"] if summary["invalid"].any() and not every else []
        whose = " and".join(left_out)
        click.echo(f"\nmedian over the rows of each line{whose}, with the least and the largest in brackets")
    for group in summary.to_dict("records"):
        if isinstance(group["bimodal"], str):
            name = ", ".join(_words(group[key]) for key in keys)
            click.echo(f"{name}: p50 is of two groups: {group['bimodal']}")


def _words(value: Any) -> str:
    if value is None or value != value:
        return "-"
    return format_number(value) if isinstance(value, float) else plain(str(value))


def _spread(group: dict[Any, Any], figure: str, text: Callable[[float | None], str]) -> str:
    median, least, largest = (
        None if group[name] != group[name] else float(group[name])
        for name in (figure, f"{figure}_min", f"{figure}_max")
    )
    if median is None or group["rows"] == 1 or least == largest:
        return text(median)
    return f"{text(median)} [{text(least)}..{text(largest)}]"


EXIT_SLOWER, EXIT_CANNOT_TELL = 1, 2
_NAME_WIDTH, _WIDTH = 36, 120
_COLUMNS = (
    "cell", "figure", "repetitions_a", "repetitions_b", "rows_a", "rows_b", "median_a", "median_b",
    "ratio", "ratio_low", "ratio_high", "p", "p_adjusted", "verdict", "words",
    "repetitions_needed", "repetitions_advised", "detectable_ratio",
)  # fmt: skip


@click.command()
@click.argument("a", type=FILE)
@click.argument("b", type=FILE)
@click.option("--also-a", multiple=True, type=FILE, metavar="FILE", help="One more file of A; repeatable.")
@click.option("--also-b", multiple=True, type=FILE, metavar="FILE", help="One more file of B; repeatable.")
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="COLUMN",
    help="What is compared: throughput, p50, p99, another percentile, ServiceTime_50%_s and so on; several with "
    "commas between them. "
    "By default throughput, and p50 of scenarios with a configured rate.",
)
@click.option(
    "--fail-if-slower",
    type=SHARE,
    help="Exit status 1 where the whole interval of a cell is of a B that is slower by more than this, such as 5%; "
    "2 if there is none, but some cell is undecided.",
)
@of_client
@click.option("--csv", "table", type=FILE, metavar="FILE", help="Write the cells to this file, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare_command(
    a: Path,
    b: Path,
    also_a: tuple[Path, ...],
    also_b: tuple[Path, ...],
    figures: tuple[str, ...],
    fail_if_slower: float | None,
    client: str,
    table: Path | None,
    as_json: bool,
) -> int:
    """Compare the results in B with those in A: scenario by scenario the ratio with its interval, and a verdict.

    Repetitions on fresh clusters are compared (`run --repeat 6 --fresh`), never requests: docs/statistics.md.
    """
    from containernet_env.cli.arguments import check_output, write_output
    from containernet_env.model.names import column_of
    from containernet_env.results.comparison import FIGURES, compare, read
    from containernet_env.results.csv_file import csv_text
    from containernet_env.setup import packages

    names = [column_of("--figure", name, FIGURES) for name in split("--figure", figures)]
    files = (a, *also_a), (b, *also_b)
    texts = [", ".join(map(str, paths)) for paths in files]
    sides = [read(paths, note, client) for paths in files]
    found = compare(sides[0], sides[1], list(dict.fromkeys(names)), (f"A ({texts[0]})", f"B ({texts[1]})"))
    if table is not None:
        check_output(table, re.compile(",".join(_COLUMNS).encode()), (*files[0], *files[1]))
    packages.require("scipy", note)
    rows = [_row(cell) for cell in found.cells]
    if table is not None:
        text = csv_text([_COLUMNS, *(row.values() for row in rows)])
        write_output(table, text.encode(errors="backslashreplace"))
    if as_json:
        click.echo(json.dumps(_document(found, rows, *files), indent=1))
    else:
        _print(found, texts)
    return 0 if fail_if_slower is None else _gate(found, fail_if_slower)


def _gate(found: Comparison, share: float) -> int:
    """The exit status of --fail-if-slower: an unknown result must not pass."""
    slower = [cell for cell in found.cells if cell.slower_by_more_than(share)]
    unknown = [cell for cell in found.cells if cell.cannot_tell_slower()]
    limit = f"{100 * share:g} %"
    if slower:
        named = listed([f"{cell.title} ({cell.words})" for cell in slower], 3)
        note(f"B is slower by more than {limit} in {len(slower)} of {len(found.cells)} cells: {named}")
        return EXIT_SLOWER
    if unknown or found.only[0]:
        reasons = [f"{len(unknown)} of {len(found.cells)} cells are undecided"] if unknown else []
        reasons += [f"{len(found.only[0])} scenarios of A have no valid row in B"] if found.only[0] else []
        note(f"whether B is slower by more than {limit}: {'; '.join(reasons)}")
        return EXIT_CANNOT_TELL
    return 0


def _row(cell: Cell) -> dict[str, Any]:
    """A cell as programs get it; times in seconds, ratios as B over A."""
    ratio = cell.ratio
    values = [cell.title, cell.figure, *cell.repetitions, *cell.rows, *cell.medians]
    values += [ratio.estimate, ratio.low, ratio.high] if ratio else [None] * 3
    values += [cell.p, cell.adjusted_p, cell.verdict, cell.words, cell.needed, cell.advised, cell.detectable]
    return dict(zip(_COLUMNS, values, strict=True))


def _document(
    found: Comparison, rows: Sequence[Mapping[str, Any]], a: Sequence[Path], b: Sequence[Path]
) -> dict[str, Any]:
    return {
        "version": 1,
        "a": [*map(str, a)],
        "b": [*map(str, b)],
        "differs": {name: {"a": left, "b": right} for name, left, right in found.differs},
        "cells": [dict(row) for row in rows],
        "only_a": list(found.only[0]),
        "only_b": list(found.only[1]),
        "left_out_a": dict(found.left_out[0]),
        "left_out_b": dict(found.left_out[1]),
        "notes": list(found.notes),
    }


def _print(found: Comparison, files: Sequence[str]) -> None:
    lines = []
    for name, path, left_out in zip("AB", files, found.left_out, strict=True):
        out = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        lines.append(f"{name}: {path}" + (f" (rows left out: {out})" if out else ""))
    for name, left, right in found.differs:
        lines.append(f"  {name}: {left} in A, {right} in B")
    if not found.differs:
        lines.append("  no column that distinguishes experiments differs as a whole")
    shown = table("", ">figure", ">n", ">A", ">B", ">B/A", ">95 % interval", ">p", "verdict")
    shown.columns[0].max_width = _NAME_WIDTH
    named = None
    for cell in found.cells:
        shown.add_row("" if cell.title == named else plain(cell.title), *_cells(cell))
        named = cell.title
    click.echo(plain("\n".join([*lines, ""])))
    plain_console(width=_WIDTH).print(shown)
    texts = (textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False) for text in _reasons(found))
    click.echo(plain("\n".join(["", *texts])))


def _cells(cell: Cell) -> list[str]:
    text = rate_text if cell.figure == "Requests/sec" else milliseconds_text
    ratio, interval = "-", "-"
    if cell.ratio is not None:
        ratio = f"{cell.ratio.estimate:.3f}"
        if cell.ratio.low is not None and cell.ratio.high is not None:
            interval = f"{cell.ratio.low:.3f}..{cell.ratio.high:.3f}"
    p = "-" if cell.adjusted_p is None else f"{cell.adjusted_p:.2g}" if cell.adjusted_p >= 0.001 else "<0.001"
    numbers = "|".join(map(str, cell.repetitions))
    figure = {"Requests/sec": "req/s"}.get(cell.figure, cell.figure.removeprefix("ServiceTime_"))
    verdict = cell.words.partition(";")[0] if cell.verdict in ("slower", "faster") else cell.verdict
    return [figure, numbers, *map(text, cell.medians), ratio, interval, p, verdict]


def _reasons(found: Comparison) -> list[str]:
    """Notes that do not fit into the table, each once."""
    tested = sum(cell.p is not None for cell in found.cells)
    over = f", Holm's correction over {tested} tests" if tested > 1 else ""
    lines = [f"n: repetitions; A, B: their medians; p: Mann-Whitney{over}; intervals of each ratio by itself"]
    unknown = [cell for cell in found.cells if cell.verdict == "cannot tell"]
    groups: dict[str, list[Cell]] = {}
    for cell in unknown:
        groups.setdefault(cell.words.partition(", by this spread")[0], []).append(cell)
    for words, cells in groups.items():
        advised = [cell.advised for cell in cells if cell.advised is not None and cell.advised > cell.needed]
        more = ""
        if advised and "needed" in words:
            span = f"{min(advised)}" if min(advised) == max(advised) else f"{min(advised)} to {max(advised)}"
            more = f", {span} to find a difference of 12 % by their spreads"
        lines.append(f"{words}{more}" + (f" ({len(cells)} cells)" if len(found.cells) > 1 else ""))
    seen = [cell for cell in found.cells if cell.verdict == "no difference shown" and cell.detectable]
    if seen:
        least, most = (100 * (end(cell.detectable or 1 for cell in seen) - 1) for end in (min, max))
        span = f"{least:.2g} %" if f"{least:.2g}" == f"{most:.2g}" else f"{least:.2g} to {most:.2g} %, by cell,"
        lines.append(f"no difference shown: one of {span} would have been found with a probability of 80 %")
    shared = sum(sum(cell.rows) - sum(cell.repetitions) for cell in found.cells)
    if shared:
        lines.append(
            "rows that share a cluster are one repetition, their median: `run --fresh` makes a cluster for each"
        )
    for name, others in zip("AB", found.only, strict=True):
        if others:
            lines.append(f"only in {name}: {listed(others, 5)}")
    return [*lines, *found.notes]


_NAMED_FILES = 10


@click.command()
@click.argument("run", type=RUN)
@click.option("--events", is_flag=True, help="Show what happened when, too.")
def show_command(run: Path, events: bool) -> None:
    """Show RUN: what was measured on what, the network's proof, every scenario and its findings, and whether its files
    are as the run left them.

    RUN is a run directory (OUT.runs/RUN), or a results file, whose newest run is shown.
    """
    from containernet_env.results.run_directory import find_run, read_run

    found = read_run(find_run(run))
    lines = [f"run {found.path.name}, in {found.path}", *(f"  {line}" for line in _header(found.manifest))]
    proofs = found.network.proofs if found.network is not None else ()
    lines += [f"  {line}" for proof in proofs for line in _proof(proof)]
    parts: list[str | Text | Table] = [plain("\n".join(lines))]
    if found.scenarios:
        parts += ["", _table(found.scenarios), *_findings(found.scenarios)]
    if events and found.events:
        parts += ["", plain("\n".join(_events(found.events)))]
    parts.append("")
    if found.torn:
        torn = f"{found.torn} lines were cut short: the run was killed while it wrote them"
        parts.append(Text(torn, style="yellow"))
    parts += [f"logs: {', '.join(path.name for path in found.logs) or 'none'}", _files(found.checked)]
    out = wide_console()
    for part in parts:
        out.print(part, soft_wrap=not isinstance(part, Table))


def _header(manifest: Manifest | None) -> list[str]:
    if manifest is None:
        return ["manifest.json is missing: the run ended before it was written"]
    from containernet_env.results.run_directory import facts_of

    plan, links, store, repeats = manifest.plan, manifest.links, manifest.store, manifest.repeats
    members = [host for host in plan["hosts"] if host["role"] != "benchmark"]
    clients = clients_text(len(plan["hosts"]) - len(members))
    lines = [
        f"began {manifest.began}",
        f"{plan['config']['path']}: {len(members)} members and {clients}, config {manifest.config_hash}",
    ]
    if repeats is not None:
        differing = ", ".join(item.name for item in repeats.differences if item.matters)
        lines.append(f"repeats {repeats.run_id}, {f'with other {differing}' if differing else 'on equal terms'}")
    if store is not None:
        led = f", leader at the start {store.leader_at_start}" if store.leader_at_start else ""
        lines.append(f"{store.kind} {store.version}{led}")
    if len(manifest.clusters) > 1:
        led = ", ".join(str(cluster.leader_at_start) for cluster in manifest.clusters)
        lines.append(f"{len(manifest.clusters)} clusters, one after the other, led at their starts by {led}")
    if links is not None:
        seed = f" (seed {plan['seed']})" if links.links == "emulator" and "seed" in plan else ""
        lines.append(f"links by {links.links}{seed}, hosts by {links.network} ({links.network_version})")
    lines += [f"{name}: {text}" for name, text in facts_of(manifest).items() if name not in ("Links", "Store")]
    if links is None:
        lines.append("nothing was brought up as a whole: see events.jsonl and logs")
    return lines


_MOMENTS = {"before": "before the first scenario", "after": "after the last", "change": "after links were changed"}


def _proof(proof: Proof) -> list[str]:
    measured = [pair for pair in proof.pairs if pair["measured_ns"] is not None]
    line = f"network {'as configured' if proof.passed else 'NOT as configured'} {_MOMENTS[proof.moment]}: "
    if proof.checks:
        proved = sum(check["verdict"] == "proved" for check in proof.checks)
        line += f"{proved} of {len(proof.checks)} properties proved"
    else:
        line += f"{len(measured)} of {len(proof.pairs)} RTTs proved"
    if measured:
        worst = max(measured, key=lambda pair: abs(pair["measured_ns"] - pair["expected_ns"]))
        line += (
            f", worst RTT {worst['a']}-{worst['b']}: {worst['expected_ns'] / 1e6:.3f} ms expected, "
            f"{worst['measured_ns'] / 1e6:.3f} ms measured"
        )
    problems = [f"  wrong: {text}" for text in proof.problems]
    return [line, *problems, *(f"  not proved: {text}" for text in proof.unproved)]


def _table(scenarios: Sequence[ScenarioLine]) -> Table:
    shown = table("scenario", ">requests/s", ">p50", ">p99", ">errors", ">valid", ">took", "leader")
    for line in scenarios:
        load = line.load or {}
        percentiles = (load.get("response_time") or {}).get("percentiles_s", {})
        shown.add_row(
            plain(
                name_text(line.scenario, line.repetition, line.attempt) + (f", {line.client}" if line.client else "")
            ),
            rate_text(load.get("requests_per_s") if load.get("ok") else None),
            milliseconds_text(percentiles.get("50")),
            milliseconds_text(percentiles.get("99")),
            str(load.get("failed", 0)),
            line.valid or "-",
            seconds_text(line.seconds),
            plain(line.leader or "-"),
            style="red" if line.error else "",
        )
    return shown


def _findings(scenarios: Sequence[ScenarioLine]) -> list[Text]:
    lines = []
    for line in scenarios:
        if line.client not in (None, ALL_CLIENTS):
            continue  # the line of all has what single clients have
        name = plain(line.scenario)
        if line.error:
            lines.append(Text(f"{name}: {plain(line.error)}", style="red"))
        texts = [*(finding["text"] for finding in line.findings), line.advice]
        lines += [Text(f"{name}: {plain(text)}", style="yellow") for text in filter(None, texts)]
    return [Text(""), *lines] if lines else []


def _events(events: Sequence[EventLine]) -> list[str]:
    start_ns = events[0].at_ns
    return [f"{(event.at_ns - start_ns) / 1e9:9.3f} s  {event.kind:<16} {event.text}" for event in events]


def _files(checked: Checked | None) -> Text:
    if checked is None:
        return Text("files: no checksums: the run goes on, or was killed", style="yellow")
    added = [item.name for item in checked.changed if item.how == "added"]
    others = [f"{item.name} ({item.how})" for item in checked.changed if item.how != "added"]
    beside = f"; added since: {listed(added, _NAMED_FILES)}" if added else ""
    if others:
        return Text(f"files: NOT as the run left them: {listed(others, _NAMED_FILES)}{beside}", style="red")
    return Text(f"files: {checked.files}, all as the run left them{beside}")


EXIT_VIOLATED, EXIT_NOTHING, EXIT_UNDECIDED = 1, 2, 4
_MIB = 1 << 20
# By the checker's name of its reference (benchmark_image/internal/verify).
_COMPARED = {
    "history": "the store's own history",
    "final state": "the store's final state: a lost write that was replaced before anybody read it is not seen",
    "nothing": "nothing of the store's own, which is missing or has gaps: only reads show writes",
}


@click.command()
@click.argument("run", type=RUN)
@click.option(
    "--time",
    "time_s",
    type=click.IntRange(1, 86_400),
    metavar="SECONDS",
    default=60,
    show_default=True,
    help="How long the judgement of one history may take.",
)
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(16, 1 << 20),
    metavar="MIB",
    default=1024,
    show_default=True,
    help="How much memory it may take.",
)
def verify_command(run: Path, time_s: int, memory_mib: int) -> int:
    """Judge the histories of RUN: whether each key's operations are those of one copy of the store, which does one
    after the other (linearizability), and whether what was acknowledged was carried out once.

    RUN is a run directory (OUT.runs/RUN), or a results file, whose newest run is judged. Judgements, and pictures of
    violations, are written to OUT.runs/RUN.verify.

    Exit status: 0 all are ok, 1 one is violated, 2 one could not be judged, 4 one is undecided; of several the worst:
    1, 2, 4, 0.
    """
    from containernet_env.base.errors import UsageError
    from containernet_env.results.run_directory import find_run, histories_of, missing_histories, read_run
    from containernet_env.runs.verify import judge

    found = read_run(find_run(run))
    histories = list(histories_of(found.path))
    missing = missing_histories(found.scenarios, histories)
    if not histories and not missing:
        raise UsageError(
            f'{found.path} has no history to judge\n  Give a scenario "history": true, and run it (docs/verify.md).'
        )
    folder = found.path.with_name(f"{found.path.name}.verify")
    judgements = []
    for history in histories:
        judgement = judge(history, folder, time_s=time_s, memory_bytes=memory_mib * _MIB)
        for line in _lines(judgement, folder):
            click.echo(plain(line))
        judgements.append(judgement)
    for name in missing:
        note(f"{name}: not judged: its history is missing")
    return status_of(judgements, len(missing))


def status_of(judgements: Sequence[Judgement], missing: int) -> int:
    """The exit status for all of them; ``missing`` histories could not be judged either."""
    verdicts = {judgement.verdict for judgement in judgements}
    if "violated" in verdicts:
        return EXIT_VIOLATED
    if missing or None in verdicts:
        return EXIT_NOTHING
    return EXIT_UNDECIDED if "undecided" in verdicts else 0


def _lines(judgement: Judgement, folder: Path) -> Iterator[str]:
    values, name = judgement.values, judgement.name
    if judgement.verdict is None:
        yield f"{name}: not judged: {judgement.reason}"
        return
    reason = f": {judgement.reason}" if judgement.reason else ""
    yield f"{name}: {judgement.verdict}{reason}"
    yield f"  {values['judged']:,} of {values['operations']:,} operations judged, on {values['keys']:,} keys"
    if values["operations"]:
        yield f"  compared with {_COMPARED[values['compared']]}"
    if (unknown := values["unknown"]) > 0:
        known = values["resolved"]
        others = f", of {unknown - known} it is not" * (known < unknown)
        yield f"  {unknown} writes without an answer, of {known} it is known what became of them{others}"
    reads = values["serializable"]
    if reads["reads"] and not reads["dated"]:
        yield f"  {reads['reads']:,} reads that may be stale: which were is unknown, since writes reported no revisions"
    elif reads["reads"]:
        stale = f", by {reads['median_ms']:.1f} ms in the median, at most {reads['max_ms']:.1f} ms" * bool(
            reads["stale"]
        )
        yield f"  {reads['stale']:,} of {reads['reads']:,} serializable reads were stale{stale}"
    if (violation := values["violation"]) is not None:
        yield f"  key {violation['key']}:"
        yield from (f"    {line}" for line in violation["operations"] or ())
        yield from (f"    the store has: {line}" for line in violation["store"] or ())
        if violation["picture"]:
            yield f"  picture: {folder / Path(violation['picture']).name}"


@click.command()
@click.argument("run", type=RUN)
@click.argument("file", type=FILE, required=False)
@click.option(
    "--license",
    "license_name",
    metavar="NAME",
    help="Under which license others get it: an SPDX identifier such as CC-BY-4.0, a URL, or a text.",
)
@click.option(
    "--rows",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="OUT",
    help="The results file with its rows, where RUN does not lie beside it.",
)
def export_command(run: Path, file: Path | None, license_name: str | None, rows: Path | None) -> int:
    """Write RUN as an RO-Crate to FILE: the run directory, its rows and what their columns mean in one zip.

    RUN is a run directory (OUT.runs/RUN), or a results file, whose newest run is exported. FILE is RUN.zip in this
    folder unless it is given.
    """
    from containernet_env.results.crate import export
    from containernet_env.results.run_directory import find_run, read_run, results_file_of

    found = read_run(find_run(run))
    beside = rows or results_file_of(run, found.path)
    wanted = file or Path(f"{found.path.name}.zip")
    done = export(found, wanted, results=beside, license_name=license_name)
    for text in done.notes:
        note(text)
    click.echo(f"{done.file}: {done.files} files, {done.rows} rows")
    return 0
