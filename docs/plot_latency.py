"""Draw the README's picture from a results file: python docs/plot_latency.py RESULTS.csv docs/images/3node-3ms.png

Latency of every scenario with one client, beside the least that the links allow (needs matplotlib).
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from containernet_env.results.csv_file import load

# One client on links of 3 ms: 6 ms to a member and back, 12 ms from the leader to a follower and back, and 12 ms more
# where the member that was asked is not the leader.
FLOORS_MS = {6: "client RTT", 18: "+ quorum RTT", 30: "+ forwarding to the leader"}


def main(results: Path, picture: Path) -> None:
    """Write `picture` from the single-client rows of `results`."""
    frame = load(results)
    rows = frame[frame["ClientCount"] == 1].iloc[::-1]
    figure, axes = plt.subplots(figsize=(9, 3.6), dpi=120)
    for floor, label in FLOORS_MS.items():
        axes.axvline(floor, color="#b0b0b0", linewidth=1)
        axes.text(floor + 0.15, len(rows) - 0.35, f"{floor} ms: {label}", fontsize=8, color="#606060")
    for position, (_, row) in enumerate(rows.iterrows()):
        low, high = row["10%"] * 1000, row["99%"] * 1000
        colour = "#1f6fb2" if row["TestType"] == "write" else "#c2571a"
        axes.plot([low, high], [position, position], color=colour, linewidth=7, solid_capstyle="butt", alpha=0.45)
        axes.plot(row["50%"] * 1000, position, "|", color=colour, markersize=14, markeredgewidth=2.5)
    axes.set_yticks(range(len(rows)), list(rows["Scenario"]), fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.1)
    axes.set_xlim(0, 40)
    axes.set_xlabel("latency in ms: bar from 10 % to 99 %, tick at the median")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
