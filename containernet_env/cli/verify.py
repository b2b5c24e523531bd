"""`containernet-env verify`: whether the store kept its promises, by the histories of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from containernet_env.cli.output import plain

if TYPE_CHECKING:
    from containernet_env.runs.verify import Judgement

EXIT_VIOLATED, EXIT_NOTHING, EXIT_UNDECIDED = 1, 2, 4
_MIB = 1 << 20
# By what the checker says that it compared with (benchmark_image/internal/verify).
_COMPARED = {
    "history": "the store's own history",
    "final state": "the store's final state: a lost write that was replaced before anybody read it is not seen",
    "nothing": "nothing of the store's own, which is missing or has gaps: only reads tell of writes",
}


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("run", type=click.Path(path_type=Path))
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
def command(run: Path, time_s: int, memory_mib: int) -> int:
    """Judge the histories of RUN: whether each key's operations are those of one copy of the store, which does one
    after the other (linearizability), and whether what was acknowledged was carried out once.

    RUN is a run directory (OUT.runs/RUN), or a results file, whose newest run is judged. Judgements, and pictures of
    violations, are written to OUT.runs/RUN.verify.

    Exit status: 0 all are ok, 1 one is violated, 2 one could not be judged, 4 one is undecided; of several the worst:
    1, 2, 4, 0.
    """
    from containernet_env.base.errors import UsageError
    from containernet_env.results.histories import histories_of, missing_histories
    from containernet_env.results.run_directory import find_run, read_run
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
        click.echo(plain(f"{name}: not judged: its history is missing"), err=True)
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
        yield f"  {reads['reads']:,} reads that may be stale: which were is not known, since writes told no revisions"
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
