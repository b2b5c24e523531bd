"""`containernet-env watch`: a page that follows a run or a sweep."""

from __future__ import annotations

from pathlib import Path

import click

from containernet_env.base import clock
from containernet_env.cli import FILE

_LOOK_S = 1.0
# A run or sweep that was begun just before has the machine before it has left anything.
_BEGIN_S = 15.0


@click.command()
@click.argument("out", metavar="OUT", type=FILE)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Of 127.0.0.1; 0, the default, takes a free one."
)
def watch_command(out: Path, port: int) -> int:
    """Follow the run or sweep that measures into OUT, on a page that this machine alone can open.

    It ends with that; Ctrl-C ends it before, and the measurement goes on. Needs no root.
    """
    from containernet_env.base.errors import UsageError
    from containernet_env.cli.output import plain
    from containernet_env.report.watch import Follower
    from containernet_env.report.watch_server import Server, State, view
    from containernet_env.runs.lock import Holder, holder
    from containernet_env.runs.sweep.ledger import journal_of

    def measurer() -> Holder | None:
        """A sweep holds its journal, also where other machines measure for it; a run holds the machine alone."""
        return holder(journal_of(out)) or holder()

    follower = Follower(out, measurer)
    found, until = follower.look(), clock.monotonic() + _BEGIN_S
    while found["course"] == "nothing" and measurer() is not None and clock.monotonic() < until:
        clock.sleep(_LOOK_S)
        found = follower.look()
    if found["course"] == "nothing":
        other = measurer()
        busy = "" if other is None else f"; process {other.pid} measures into another file"
        raise UsageError(
            f"nothing is measured on {out} now{busy}\n"
            f"  Begin it (containernet-env run CONFIG {out}, or sweep SWEEP {out}), and watch it beside that.\n"
            f"  For a report of the rows: containernet-env report {out}"
        )
    state = State()
    state.publish(view(found))
    with Server(out, state, port) as server:
        click.echo(plain(f"watching {out}: {server.url} (Ctrl-C ends this page, not the measurement)"))
        while found["course"] == "on":
            clock.sleep(_LOOK_S)
            found = follower.look()
            state.publish(view(found), ended=found["course"] != "on")
        server.drain()
    click.echo(plain(found["summary"]))
    return 0 if found["course"] == "ended" else 1
