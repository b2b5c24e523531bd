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


def configured(frame: pandas.DataFrame) -> list[str]:
    """The columns of a results table that hold what was configured, in column order."""
    return [name for name in frame.columns if BY_NAME[name].role == "configured"]


def varied(frame: pandas.DataFrame) -> list[str]:
    """Those of them that differ between rows, except hashes and what the scenario's name says already."""
    said = {"TestType", "ClientCount", "ConnectionCount", "KeySize", "ValueSize", "Consistency", "Target"}
    said |= {"OfferedRate_per_s", "ReadSpan", "ReadLimit", "ReadAnswer", "ConfigHash", "ScenarioHash"}
    known = said if "Scenario" in frame.columns else set()
    return [name for name in configured(frame) if name not in known and frame[name].nunique(dropna=False) > 1]


def summarize(frame: pandas.DataFrame, by: Sequence[str] = ()) -> pandas.DataFrame:
    """One row per group, in the order in which groups first appear.

    Groups are rows that agree in ``by``, by default in everything that was configured: rows of different experiments
    are never merged unless ``by`` says so. Columns: those of ``by`` (by default the ones that vary), ``rows``
    (n), ``failed``, and for each of ``FIGURES`` median, least and largest over the rows that have it
    (``50%``, ``50%_min``, ``50%_max``). Raises ``UsageError`` for a column that the table does not have.
    """
    import pandas

    unknown = [name for name in by if name not in frame.columns]
    if unknown:
        raise UsageError(f"--by {', '.join(unknown)}: no such column; allowed: {', '.join(frame.columns)}")
    keys = list(by) or configured(frame)
    shown = list(by) or [name for name in keys if name == "Scenario" or name in varied(frame)]
    if not shown:
        shown = keys
    if not by:
        # Where nothing shown tells two groups apart, the hash of what differs does.
        hashes = [name for name in ("ConfigHash", "ScenarioHash") if name in keys]
        apart = frame.drop_duplicates(keys)
        shown += [name for name in hashes if apart.duplicated(shown, keep=False).any() and apart[name].nunique() > 1]
    groups: list[dict[str, Any]] = []
    for _, rows in frame.groupby(keys, sort=False, dropna=False):
        group: dict[str, Any] = {name: rows[name].iloc[0] for name in shown}
        group["rows"] = len(rows)
        group["failed"] = int(rows["Error"].notna().sum()) if "Error" in rows.columns else 0
        for name in FIGURES:
            values = rows[name] if name in rows.columns else pandas.Series(dtype=float)
            group |= {name: values.median(), f"{name}_min": values.min(), f"{name}_max": values.max()}
        groups.append(group)
    return pandas.DataFrame(groups)
