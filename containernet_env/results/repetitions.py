"""Rows of the same configuration, merged: how many there are, their medians, and their spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from containernet_env.base.errors import UsageError
from containernet_env.model.findings import counts, state_of
from containernet_env.model.names import column_of, easiest
from containernet_env.results.columns import BY_NAME, NOT_APPLICABLE
from containernet_env.results.csv_file import text_of, texts_of

if TYPE_CHECKING:
    import pandas

FIGURES = ("Requests/sec", "50%", "95%", "99%")
"""The columns that are summarized for each group."""
MEASURED_WITH = ("CpuModel", "Cores", "Kernel", "Realtime", "LinkStamps", "Commit")
"""Not configured, but rows that differ in these values belong to different experiments."""
LOAD = (
    "TestType", "RequestCount", "ClientCount", "ConnectionCount", "KeySize", "ValueSize", "Consistency", "Scenario",
    "Target", "OfferedRate_per_s", "SearchObjective", "ReadSpan", "ReadLimit", "ReadAnswer",
)  # fmt: skip
"""The columns that define a scenario: rows that differ in these are never matched. Any other column may be compared."""
HASHES = ("ConfigHash", "ScenarioHash")
TIMING = ("Heartbeat_ms", "ElectionTimeout_ms")
"""Settings of the store that follow from the network, the latter also from the former, where files leave them open."""
_DECIDES_TIMING = ("Store", "ClusterSize", "LinkDelay_ms", "Bandwidth_mbps", "LinkJitter_ms", "RttExpected_ms")

GAP_SPREADS, GAP_RATIO, GROUP_ROWS = 3.0, 0.2, 2
"""Medians are of two groups if the largest gap between neighbours, with two rows or more on each side, is wider than
three times the spread (largest less least) of either group, and than a fifth of the larger value below it. For normal
noise with a standard deviation of 10 % the rule reports two groups in 1.5 % of 4 repetitions, 0.3 % of 6, and never
with 2 %."""


def two_groups(values: Sequence[float]) -> int | None:
    """How many of the sorted ``values`` are of the lower one of two groups; ``None`` if they are of one."""
    ordered = sorted(values)
    splits = range(GROUP_ROWS, len(ordered) - GROUP_ROWS + 1)
    if not splits:
        return None
    split = max(splits, key=lambda index: ordered[index] - ordered[index - 1])
    gap = ordered[split] - ordered[split - 1]
    spread = max(ordered[split - 1] - ordered[0], ordered[-1] - ordered[split])
    return split if gap > GAP_SPREADS * spread and gap > GAP_RATIO * ordered[split - 1] else None


def bimodal(rows: pandas.DataFrame) -> str | None:
    """Where the medians of rows are of two groups: how many rows each has, its median, and by whom its rows were led.

    Leaders are left out where they do not differ, or no row has one.
    """
    if "50%" not in rows.columns:
        return None
    ordered = rows[rows["50%"].notna()].sort_values("50%", kind="stable")
    if (split := two_groups(ordered["50%"].tolist())) is None:
        return None
    led = "Leader" in ordered.columns and ordered["Leader"].nunique() > 1
    parts = []
    for group in (ordered.iloc[:split], ordered.iloc[split:]):
        leaders = sorted(group["Leader"].dropna().unique()) if led else []
        by = f" led by {', '.join(leaders)}" if leaders else ""
        parts.append(f"{len(group)} rows{by} at {group['50%'].median() * 1000:.3g} ms")
    return "; ".join(parts)


def following(frame: pandas.DataFrame) -> tuple[str, ...]:
    """The columns of `TIMING` that do not distinguish rows with equal network and store: they follow from these."""
    if not set(TIMING) <= set(frame.columns):
        return ()
    decides = [name for name in _DECIDES_TIMING if name in frame.columns]
    found = []
    for name in TIMING:
        pairs = set(zip(texts_of(frame, decides), text_of(frame, name), strict=True))
        known = [decided for decided, value in pairs if value != NOT_APPLICABLE]
        if len(set(known)) < len(known):
            decides.append(name)
        else:
            found.append(name)
    return tuple(found)


def stamped(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The rows with `LinkStamps` also where one failed and lacks it: within a run it is the same."""
    if not {"LinkStamps", "RunId"} <= set(frame.columns):
        return frame
    return frame.assign(LinkStamps=frame.groupby("RunId", dropna=False)["LinkStamps"].transform("first"))


def kept_apart(frame: pandas.DataFrame) -> list[str]:
    """The columns whose values make rows different experiments, in column order.

    In the seed's form that includes the number of requests: no other column there distinguishes such rows. The seed of
    a load is excluded: each repetition has its own, and the scenario's hash covers a configured one. Derived columns
    are excluded, too.
    """
    more = set(MEASURED_WITH) if "Scenario" in frame.columns else {"RequestCount"}
    less = {"LoadSeed", *following(frame)}
    configured = [name for name in frame.columns if BY_NAME[name].role == "configured" and name not in less]
    return [name for name in frame.columns if name in configured or name in more]


def clusters_of(frame: pandas.DataFrame) -> list[object]:
    """For each row the cluster that it was measured on; a row that does not say has one of its own."""
    if "RunId" not in frame.columns:
        return list(range(len(frame)))
    places = enumerate(texts_of(frame, ("RunId", "Cluster")))
    return [number if place[0] == NOT_APPLICABLE else place for number, place in places]


def varied(frame: pandas.DataFrame) -> list[str]:
    """Those of ``kept_apart`` that differ between rows, except hashes and columns covered by the scenario's name."""
    known = {*LOAD, *HASHES} - {"RequestCount", "Scenario"} if "Scenario" in frame.columns else set()
    return [name for name in kept_apart(frame) if name not in known and frame[name].nunique(dropna=False) > 1]


def summarize(frame: pandas.DataFrame, by: Sequence[str] = (), every: bool = False) -> pandas.DataFrame:
    """One row per group, in the order in which groups first appear.

    Groups are rows that agree in ``by``, by default in the whole configuration, in machine, commit and how well the
    emulator could run (``MEASURED_WITH``): rows of different experiments are never merged unless ``by`` merges them.
    Columns: those of ``by`` (by default the ones that vary), ``rows`` (n), ``failed`` (how many of them), ``invalid``
    (how many of the others are not certainly valid), and for each of ``FIGURES`` median, least and largest over the
    rows that have it, did not fail and are valid, or with ``every`` may be not (``50%``, ``50%_min``, ``50%_max``), and
    ``bimodal`` (see there). ``by`` may have any name of a column (``model.names``). Raises ``UsageError`` for a name
    that is no column of the table, and for one of ``FIGURES``.
    """
    import pandas

    by = list(dict.fromkeys(column_of("--by", name, list(frame.columns)) for name in by))
    if figures := [name for name in by if name in FIGURES]:
        allowed = ", ".join(easiest(name for name in frame.columns if name not in FIGURES))
        raise UsageError(f"--by {', '.join(figures)}: what is summarized merges no rows; allowed: {allowed}")
    frame = stamped(frame)
    keys = by or kept_apart(frame)
    differing = varied(frame)
    shown = by or [name for name in keys if name == "Scenario" or name in differing]
    if not shown:
        shown = keys
    if not by:
        # If no shown column distinguishes two groups, the hash of the differing columns does.
        hashes = [name for name in HASHES if name in keys]
        apart = frame.drop_duplicates(keys)
        shown += [name for name in hashes if apart.duplicated(shown, keep=False).any() and apart[name].nunique() > 1]
    figures = [name + suffix for name in FIGURES for suffix in ("", "_min", "_max")]
    groups: list[dict[str, Any]] = []
    for _, rows in frame.groupby(keys, sort=False, dropna=False):
        group: dict[str, Any] = {name: rows[name].iloc[0] for name in shown}
        why = unused(rows)
        failed = why.count("failed")
        group |= {"rows": len(rows), "failed": failed, "invalid": len(rows) - failed - why.count("")}
        good = rows.loc[[not state or (every and state != "failed") for state in why]]
        for name in FIGURES:
            values = good[name] if name in good.columns else pandas.Series(dtype=float)
            group |= {name: values.median(), f"{name}_min": values.min(), f"{name}_max": values.max()}
        group["bimodal"] = bimodal(good)
        groups.append(group)
    return pandas.DataFrame(groups, columns=[*shown, "rows", "failed", "invalid", *figures, "bimodal"])


def unused(rows: pandas.DataFrame) -> list[str]:
    """For each row the state by which its figures are not used, "" where they are; see ``model.findings.counts``.

    Those of a row of the seed's form, which says neither when it was measured nor whether it is valid, are.
    """
    if "Valid" not in rows.columns:
        return [""] * len(rows)
    columns = (rows[name] for name in ("Error", "Valid", "Reasons", "Timestamp"))
    found: list[str] = []
    for error, valid, reasons, at in zip(*columns, strict=True):
        failed, of_the_seed = isinstance(error, str), not isinstance(at, str) and not isinstance(valid, str)
        used = not failed and (of_the_seed or counts(valid, reasons))
        found.append("" if used else state_of(failed, valid))
    return found
