"""Draw what events do to a load: python docs/plot_failover.py RUN docs/images/failover.png

RUN is a run directory, or a results file whose newest run is taken. A picture for each scenario with events: requests
per second that succeeded and that did not, and lines where something was done (docs/events.md; needs matplotlib).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from containernet_env.base.errors import ContainernetEnvError, UsageError
from containernet_env.results.run_directory import find_run, read_run

GOOD, BAD, STRUCK, UNDONE = "#1f6fb2", "#c2571a", "#a02020", "#2e8b57"
UNDOING = ("restart", "thaw", "heal", "link_up", "reset")


def key(line: Any) -> tuple[str, int, int]:
    """What tells one scenario of a run from the others."""
    return line.scenario, line.repetition, line.attempt


def main(place: Path, picture: Path) -> None:
    """Write `picture` from the scenarios with events of a run. Raises UsageError where it has none."""
    run = read_run(find_run(place))
    done = run.disruptions
    struck = {key(line) for line in done}
    scenarios = [line for line in run.scenarios if key(line) in struck and line.load]
    if not scenarios:
        raise UsageError(f"{run.path} has no scenario with events that left a result (docs/events.md)")
    import matplotlib.pyplot as plt  # only here: what is wrong with the run is said without it

    figure, all_axes = plt.subplots(len(scenarios), 1, figsize=(9, 2.2 * len(scenarios)), dpi=120, squeeze=False)
    for axes, scenario in zip(all_axes[:, 0], scenarios, strict=True):
        draw(axes, scenario.load, [line for line in done if key(line) == key(scenario)])
        axes.set_title(scenario.scenario, fontsize=7, loc="left", pad=10)
    all_axes[-1, 0].set_xlabel("seconds since the start of the load")
    figure.tight_layout()
    figure.savefig(picture)


def draw(axes: Any, load: Any, done: list[Any]) -> None:
    """One scenario: its timeline, and what was done when."""
    rows, step_s = load["timeline"], load["timeline_interval_s"]
    starts = [row["second"] for row in rows]
    axes.step(starts, [row["ok"] / step_s for row in rows], where="post", color=GOOD, linewidth=1, label="succeeded")
    bad = [(row["failed"] + row["unknown"]) / step_s for row in rows]
    axes.step(starts, bad, where="post", color=BAD, linewidth=1, label="failed or unknown")
    top = axes.get_ylim()[1]
    for line in done:
        if line.since_start_ns is None or line.cause == "end":
            continue
        at_s, colour = line.since_start_ns / 1e9, UNDONE if line.verb in UNDOING else STRUCK
        axes.axvline(at_s, color=colour, linewidth=1, linestyle="--")
        words = f"{line.verb.replace('_', ' ')} {' '.join(line.members)}"
        axes.text(at_s, top, words, fontsize=6, color=colour, ha="left", va="bottom")
    axes.set_ylabel("requests/s", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=6, frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except ContainernetEnvError as error:
        sys.exit(str(error))
