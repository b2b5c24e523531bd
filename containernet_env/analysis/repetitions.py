"""Rows of the same configuration, merged: how many there are, their medians, and their spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from containernet_env.base.errors import UsageError
from containernet_env.results.columns import BY_NAME

if TYPE_CHECKING:
    import pandas

FIGURES = ("Requests/sec", "50%", "95%", "99%")
"""What is summarized of each group."""
MEASURED_WITH = ("CpuModel", "Commit")
"""Nobody configured these, but rows that differ in them are of different experiments too."""


def kept_apart(frame: pandas.DataFrame) -> list[str]:
    """The columns whose values make rows different experiments, in column order.

    In the seed's form that includes the number of requests: nothing else there tells such rows apart.
    """
    more = set(MEASURED_WITH) if "Scenario" in frame.columns else {"RequestCount"}
    return [name for name in frame.columns if BY_NAME[name].role == "configured" or name in more]


def varied(frame: pandas.DataFrame) -> list[str]:
    """Those of ``kept_apart`` that differ between rows, except hashes and what the scenario's name says already."""
    said = {"TestType", "ClientCount", "ConnectionCount", "KeySize", "ValueSize", "Consistency", "Target"}
    said |= {"OfferedRate_per_s", "ReadSpan", "ReadLimit", "ReadAnswer", "ConfigHash", "ScenarioHash"}
    known = said if "Scenario" in frame.columns else set()
    return [name for name in kept_apart(frame) if name not in known and frame[name].nunique(dropna=False) > 1]


def summarize(frame: pandas.DataFrame, by: Sequence[str] = ()) -> pandas.DataFrame:
    """One row per group, in the order in which groups first appear.

    Groups are rows that agree in ``by``, by default in everything that was configured, in CPU model and commit: rows
    of different experiments are never merged unless ``by`` says so. Columns: those of ``by`` (by default the ones that
    vary), ``rows`` (n), ``failed`` (how many of them), and for each of ``FIGURES`` median, least and largest over the
    rows that have it and did not fail (``50%``, ``50%_min``, ``50%_max``). Raises ``UsageError`` for a column that
    the table does not have, and for one of ``FIGURES``.
    """
    import pandas

    unknown = [name for name in by if name not in frame.columns]
    if unknown:
        raise UsageError(f"--by {', '.join(unknown)}: no such column; allowed: {', '.join(frame.columns)}")
    by = list(dict.fromkeys(by))
    if figures := [name for name in by if name in FIGURES]:
        allowed = ", ".join(name for name in frame.columns if name not in FIGURES)
        raise UsageError(f"--by {', '.join(figures)}: what is summarized merges no rows; allowed: {allowed}")
    keys = by or kept_apart(frame)
    shown = by or [name for name in keys if name == "Scenario" or name in varied(frame)]
    if not shown:
        shown = keys
    if not by:
        # Where nothing shown tells two groups apart, the hash of what differs does.
        hashes = [name for name in ("ConfigHash", "ScenarioHash") if name in keys]
        apart = frame.drop_duplicates(keys)
        shown += [name for name in hashes if apart.duplicated(shown, keep=False).any() and apart[name].nunique() > 1]
    figures = [name + suffix for name in FIGURES for suffix in ("", "_min", "_max")]
    groups: list[dict[str, Any]] = []
    for _, rows in frame.groupby(keys, sort=False, dropna=False):
        group: dict[str, Any] = {name: rows[name].iloc[0] for name in shown}
        group["rows"] = len(rows)
        good = rows[rows["Error"].isna()] if "Error" in rows.columns else rows
        group["failed"] = len(rows) - len(good)
        for name in FIGURES:
            values = good[name] if name in good.columns else pandas.Series(dtype=float)
            group |= {name: values.median(), f"{name}_min": values.min(), f"{name}_max": values.max()}
        groups.append(group)
    return pandas.DataFrame(groups, columns=[*shown, "rows", "failed", *figures])
