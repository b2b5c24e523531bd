"""The same scenarios at several dilations, interleaved: how far their figures agree, and what each costs.

``sudo .venv/bin/python bench/dilation`` prints the tables of docs/dilation.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__" and not __package__:
    # Run as a directory, which Python then puts first: its modules are bench.dilation's, never top-level ones.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from containernet_env.model.findings import counts
from containernet_env.model.names import split
from containernet_env.results.csv_file import load_all
from containernet_env.results.statistics import ratio_of_medians
from containernet_env.runs.measure import measure

FIGURES = ("Requests/sec", "50%", "95%", "99%")
AGREE = 0.03
"""Medians that differ by less are equal, as are those whose ratio's interval has 1 in it."""


def topology(store: str, cpus: float) -> dict[str, Any]:
    """Three members behind 3 ms and 1000 Mbit/s, each with so many CPUs."""
    host = {"mem": "1g" if store == "zookeeper" else "500m", "cpus": cpus, "bandwidth": 1000, "link_delay": "3ms"}
    return {
        "store": store,
        "nodes": [{"ip": f"10.0.0.{251 + n}", **host} for n in range(3)],
        "client": {"link_delay": "3ms"},
    }


def scenarios(loads: Sequence[Any]) -> dict[str, Any]:
    """Writes and reads with each of the loads."""
    data = {"keySize": 8, "valSize": 256}
    return {
        "dataset": {"keySize": 8, "valSize": 256, "keys": 100},
        "scenarios": [
            {"type": "write", "load": list(loads), "target": "leader", "data": data},
            {"type": "read", "load": list(loads), "consistency": "l"},
        ],
    }


LOADS = {
    "one client": {"total": 150, "clients": 1, "conns": 1},
    "100/s": {"duration": "5s", "rate": 100, "arrival": "poisson", "clients": 100, "conns": 10},
    "20 clients": {"total": 3000, "clients": 20, "conns": 5},
}


def run(folder: Path, store: str, cpus: float, factors: Sequence[int], repeat: int) -> dict[int, Path]:
    """Measure all loads at each factor, ``repeat`` times on new clusters, in turn; the results file of each factor."""
    config, loads = folder / f"{store}.json", folder / "scenarios.json"
    config.write_text(json.dumps(topology(store, cpus)))
    loads.write_text(json.dumps(scenarios([*LOADS.values()])))
    files = {factor: folder / f"{store}-{factor}.csv" for factor in factors}
    for number in range(1, repeat + 1):
        for factor, path in files.items():
            print(f"{store}, dilation {factor}, repetition {number} of {repeat}", file=sys.stderr)
            measure(config, loads, path, dilation=factor, first_repetition=number)
    return files


def compared(files: dict[int, Path]) -> Iterator[str]:
    """A line for each scenario and figure: the median at the first factor, and for each other one the ratio to it."""
    tables = dict(zip(files, load_all([*files.values()], lambda note: print(note, file=sys.stderr)), strict=True))
    first, *others = tables
    used = {factor: table[list(map(counts, table["Valid"], table["Reasons"]))] for factor, table in tables.items()}
    for name in dict.fromkeys(tables[first]["Scenario"]):
        for figure in FIGURES:
            values = {}
            for factor, table in used.items():
                held = table[table["Scenario"] == name][figure].dropna().tolist()
                values[factor] = [value for value in held if value > 0]
            cells = [_ratio(values[first], values[factor]) for factor in others]
            shown = "-" if not values[first] else f"{sorted(values[first])[len(values[first]) // 2]:.6g}"
            yield f"| {name} | {figure} | {shown} | {' | '.join(cells)} |"


def _ratio(a: Sequence[float], b: Sequence[float]) -> str:
    if not a or not b:
        return "no valid row"
    found = ratio_of_medians(a, b)
    interval = "" if found.low is None or found.high is None else f" ({found.low:.3f} to {found.high:.3f})"
    holds_one = found.low is not None and found.high is not None and found.low <= 1 <= found.high
    differs = "" if abs(found.estimate - 1) <= AGREE or holds_one else " **differs**"
    return f"{found.estimate:.3f}{interval}{differs}"


def costs(files: dict[int, Path]) -> Iterator[str]:
    """For each factor: rows, valid ones, and the time that they took."""
    for factor, table in zip(files, load_all([*files.values()], lambda note: None), strict=True):
        valid = int((table["Valid"] == "yes").sum())
        yield f"| {factor} | {len(table)} | {valid} | {table['WallTime_s'].sum():.0f} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/dilation", description=__doc__)
    parser.add_argument(
        "--factors", default="1,2,4,8", help="separated by commas; the first is what others are compared with"
    )
    parser.add_argument("--stores", default="etcd,zookeeper,consul,replicas")
    parser.add_argument("--cpus", type=float, default=0.3, help="CPU limit of each member")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    factors = [int(word) for word in split("--factors", [options.factors])]
    with tempfile.TemporaryDirectory(prefix="bench-dilation-") as folder:
        for store in split("--stores", [options.stores]):
            files = run(Path(folder), store, options.cpus, factors, options.repeat)
            print(f"\n{store}, {options.cpus:g} CPUs a member, {options.repeat} repetitions\n")
            others = " | ".join(f"{factor} / {factors[0]}" for factor in factors[1:])
            print(f"| scenario | figure | dilation {factors[0]} | {others} |")
            print(f"| --- | --- | ---: | {' | '.join('---:' for _ in factors[1:])} |")
            print("\n".join(compared(files)))
            print("\n| dilation | rows | valid | time, s |\n| ---: | ---: | ---: | ---: |")
            print("\n".join(costs(files)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
