"""Draw the picture of docs/floor.md: python docs/plot_floor.py RESULTS.csv... docs/images/floor.png

The measured median of every scenario with one client over its floor, a colour for each topology (needs matplotlib).
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas

from containernet_env.results.csv_file import load

COLOURS = ("#1f6fb2", "#c2571a", "#2e8b57", "#8e44ad", "#b8860b", "#444444")
MARKERS = {"write": "o", "txn": "^", "mixed": "D", "read": "s"}


def main(results: list[Path], picture: Path) -> None:
    """Write `picture` from the single-client rows of `results`."""
    frame = pandas.concat([load(path) for path in results])
    rows = frame[(frame["ClientCount"] == 1) & frame["Floor_50%_s"].notna() & frame["50%"].notna()]
    floors, medians = rows["Floor_50%_s"] * 1000, rows["50%"] * 1000
    figure, axes = plt.subplots(figsize=(6.5, 5), dpi=120)
    ends = (floors.min() / 1.5, medians.max() * 1.5)
    axes.plot(ends, ends, color="#a0a0a0", linewidth=1)
    axes.text(ends[1] / 1.1, ends[1] / 2.2, "the floor", color="#808080", fontsize=8, ha="right")
    for colour, (config, group) in zip(COLOURS, rows.groupby("Config", sort=False), strict=False):
        for kind, marker in MARKERS.items():
            of_kind = group[group["TestType"] == kind]
            x, y = of_kind["Floor_50%_s"] * 1000, of_kind["50%"] * 1000
            label = str(config).removesuffix(".json") if kind == group["TestType"].iloc[0] else None
            axes.plot(x, y, marker, color=colour, markersize=6, alpha=0.6, markeredgewidth=0, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("floor of the median, ms")
    axes.set_ylabel("measured median, ms (circles: writes, squares: reads)")
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:-1]], Path(sys.argv[-1]))
