"""The plot of a run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import packages

COLOURS = {"emulator": "#1f6fb2", "wirefilter": "#c2571a", "netem": "#3a8f4f"}


def why_no_pictures() -> str | None:
    """``None`` where matplotlib is available, or could be installed beside the project; else why not."""
    try:
        packages.require("matplotlib", print)
    except MissingRequirementError as error:
        return str(error)
    return None


def draw(results: Mapping[str, Any], picture: Path) -> str | None:
    """Write ``picture``; return the reason where that is not possible."""
    if (reason := why_no_pictures()) is not None:
        return reason
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), dpi=120)
    for kind, colour in COLOURS.items():
        rows = [row for row in results["points"] if row["kind"] == kind]
        idle = [row for row in rows if row["table"] == "accuracy" and not row["loaded"]]
        if idle:
            middle = [(row["median_ns"] - row["asked_ns"]) / 1e3 for row in idle]
            below = [(row["median_ns"] - row["min_ns"]) / 1e3 for row in idle]
            above = [(row["p99_ns"] - row["median_ns"]) / 1e3 for row in idle]
            left.errorbar(
                [row["delay_ns"] / 1e6 for row in idle],
                middle,
                [below, above],
                color=colour,
                marker="o",
                markersize=4,
                capsize=3,
                linewidth=1,
                label=kind,
            )
        limited = [row for row in rows if row["table"] == "bandwidth" and row["protocol"] == "tcp" and row["rate_bps"]]
        if limited:
            goodputs = [statistics.median(run["goodput_bps"] for run in row["runs"]) for row in limited]
            ratios = [100 * got / row["theory_bps"] for got, row in zip(goodputs, limited, strict=True)]
            right.plot([row["rate_bps"] / 1e6 for row in limited], ratios, "o-", color=colour, markersize=4, label=kind)
    left.axhline(0, color="#b0b0b0", linewidth=1)
    left.set(
        xscale="log", xlabel="delay of a link, ms", ylabel="RTT measured - configured, us", title="min, median, 99 %"
    )
    left.set_yscale("symlog", linthresh=100)
    right.axhline(100, color="#b0b0b0", linewidth=1)
    right.set(xscale="log", xlabel="rate, Mbit/s", ylabel="% of theory", title="TCP goodput")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(picture)
    plt.close(figure)
    return None
