"""Draw the README's picture from a results file: python docs/plot_latency.py RESULTS.csv docs/images/3node-3ms.png

Latency of every scenario with one client, beside its floor: the least that links, disks and etcd's protocol allow
(docs/floor.md; needs matplotlib).
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from containernet_env.results.csv_file import load


def main(results: Path, picture: Path) -> None:
    """Write `picture` from the single-client rows of `results`."""
    frame = load(results)
    rows = frame[frame["ClientCount"] == 1].iloc[::-1]
    figure, axes = plt.subplots(figsize=(9, 3.6), dpi=120)
    for position, (_, row) in enumerate(rows.iterrows()):
        low, high = row["10%"] * 1000, row["99%"] * 1000
        colour = "#1f6fb2" if row["TestType"] == "write" else "#c2571a"
        axes.plot([low, high], [position, position], color=colour, linewidth=7, solid_capstyle="butt", alpha=0.45)
        axes.plot(row["50%"] * 1000, position, "|", color=colour, markersize=14, markeredgewidth=2.5)
        floor = row["Floor_50%_s"] * 1000  # not a number, and not drawn, where it is not known
        axes.plot([floor, floor], [position - 0.42, position + 0.42], color="#606060", linewidth=1.5)
        axes.text(floor - 0.25, position + 0.28, f"{floor:.1f}", fontsize=7, color="#606060", ha="right")
    axes.set_yticks(range(len(rows)), list(rows["Scenario"]), fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.3)
    axes.set_xlim(left=0)
    axes.set_xlabel("latency in ms: bar from 10 % to 99 %, tick at the median; grey: the floor of the median")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
