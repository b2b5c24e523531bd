"""The rows of one or several results files, and which of them count.

A row counts where it did not fail and is certainly valid; the seed's form does not say, and all its rows count. No
other row is in a median or an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from containernet_env.model.findings import counts, reasons_text
from containernet_env.report.names import text
from containernet_env.results.columns import BY_NAME, SEED_COLUMNS
from containernet_env.results.csv_file import load
from containernet_env.results.repetitions import MEASURED_WITH, following

if TYPE_CHECKING:
    import pandas

FILE = "file"
"""The column that says which file a row is of, where there are several."""
VARIANT = "variant"
"""The column that tells rows apart whose other axes are equal, by name and hash of scenario or topology file."""
SENT = "sent"
"""The column `RequestCount` as the file has it, where some of its values were not configured: keys lack these."""
_INFINITE = (float("inf"), float("-inf"))
HASHES = ("ConfigHash", "ScenarioHash")
# LoadSeed: it differs between repetitions.
_NO_KEYS = {*HASHES, "LoadSeed", "Scenario"}


@dataclass(frozen=True)
class Rows:
    """``frame``: every row, with `FILE` and `VARIANT`. ``why``: for each row why it does not count, "" where it does.

    ``keys``: the columns in which rows have to agree to be repetitions. ``following``: columns that follow from these,
    and tell no further rows apart. ``notes``: what was left out while reading.
    """

    frame: pandas.DataFrame
    why: tuple[str, ...]
    keys: tuple[str, ...]
    following: tuple[str, ...]
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    seed_only: bool

    def __len__(self) -> int:
        return len(self.why)

    def values(self, column: str) -> list[Any]:
        """What the rows have in a column, ``None`` where it is missing, and for a number that is none."""
        if column not in self.frame.columns:
            return [None] * len(self)
        return [None if value != value or value in _INFINITE else value for value in self.frame[column].tolist()]

    @property
    def requests(self) -> list[Any]:
        """How many requests each row is of, configured or not."""
        return self.values(SENT if SENT in self.frame.columns else "RequestCount")

    def only(self, numbers: Sequence[int]) -> Rows:
        """Some of the rows, by their numbers."""
        frame = self.frame.iloc[list(numbers)].reset_index(drop=True)
        return replace(self, frame=frame, why=tuple(self.why[number] for number in numbers))

    @cached_property
    def clusters(self) -> tuple[object, ...]:
        """For each row the cluster that it was measured on; a row that does not say has one of its own."""
        pairs = zip(self.values("RunId"), self.values("Cluster"), strict=True)
        return tuple(number if run is None else (run, cluster) for number, (run, cluster) in enumerate(pairs))

    @property
    def varied(self) -> tuple[str, ...]:
        """Those of ``keys`` that have several values."""
        return self._varied(self.keys)

    @property
    def varied_with(self) -> tuple[str, ...]:
        """Those of ``following`` that have several values."""
        return self._varied(self.following)

    def _varied(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if self.frame[name].nunique(dropna=False) > 1)

    @property
    def constant(self) -> dict[str, Any]:
        """Every configured column that has one value in all rows, with it."""
        roles = ("configured", "derived")
        names = [name for name in self.frame.columns if name in BY_NAME and BY_NAME[name].role in roles]
        if not len(self):
            return {}
        single = [name for name in names if self.frame[name].nunique(dropna=False) == 1]
        return {name: value for name in single if (value := self.values(name)[0]) is not None}


def read_rows(files: Sequence[Path], note: Callable[[str], object] = lambda text: None) -> Rows:
    """The rows of results files of either form.

    What is left out of them is said in the result and told to ``note``: rows that were torn, a file that is named
    twice, and rows that an earlier file has word for word, which would count twice. Raises ``UsageError`` for a file
    that cannot be read or has another header.
    """
    import pandas

    notes: list[str] = []

    def left_out(told: str) -> None:
        notes.append(told)
        note(told)

    paths: list[Path] = []
    for path in files:
        if path.resolve() in {known.resolve() for known in paths}:
            left_out(f"{path} is named twice, and read once")
        else:
            paths.append(path)
    loaded = [load(path, left_out) for path in paths]
    names = _names(paths)
    frames = [frame.assign(**{FILE: name}) for frame, name in zip(loaded, names, strict=True)]
    columns = max((list(frame.columns) for frame in frames), key=len)
    frame = pandas.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    frame = frame.reindex(columns=columns)
    if len(frames) > 1 and len(frame):
        measured = [name for name in columns if name != FILE]
        # The same row within a file is left as it is: nobody can say that it was not measured twice.
        again = frame.duplicated(measured, keep="first") & ~frame.duplicated([*measured, FILE], keep=False)
        if again.any():
            left_out(f"rows that are in several files word for word count once: {int(again.sum()):,}")
            frame = frame[~again].reset_index(drop=True)
    seed_only = tuple(name for name in columns if name != FILE) == SEED_COLUMNS
    frame, keys = _identified(frame)
    return Rows(frame, tuple(_why(frame)), keys, following(frame), tuple(paths), tuple(notes), seed_only)


def _names(paths: Sequence[Path]) -> list[str]:
    """Short names of the files, no two alike."""
    names = [path.name for path in paths]
    return [name if names.count(name) == 1 else str(path) for name, path in zip(names, paths, strict=True)]


def _identified(frame: pandas.DataFrame) -> tuple[pandas.DataFrame, tuple[str, ...]]:
    """The table with `VARIANT`, and the columns whose values make rows different experiments."""
    names = list(frame.columns)
    less = {*_NO_KEYS, *following(frame)}
    keys = [name for name in names if name in BY_NAME and BY_NAME[name].role == "configured" and name not in less]
    keys += [name for name in MEASURED_WITH if name in names]
    if "LinkStamps" in names:
        # A row that failed may lack it; within a run it is the same.
        frame = frame.assign(LinkStamps=frame.groupby("RunId", dropna=False)["LinkStamps"].transform("first"))
    if "Scenario" not in names:
        # Nothing else there tells rows of other lengths apart.
        return frame.assign(**{VARIANT: ""}), (*keys, "RequestCount")
    counted = _counted(frame)
    if any(counted):
        keys.append("RequestCount")
        sent = frame["RequestCount"]
        frame = frame.assign(**{"RequestCount": sent.where(counted), SENT: sent})
    return frame.assign(**{VARIANT: _variants(frame, keys)}), (*keys, VARIANT)


def _counted(frame: pandas.DataFrame) -> list[bool]:
    """For each row whether its number of requests was configured: its scenario is named after it, or it has no name.

    That of other rows may be what a load of some duration came to, which differs between repetitions.
    """
    names = ("Scenario", "ScenarioHash", "RequestCount", "ClientCount", "ConnectionCount")
    counted = []
    for scenario, configured, *size in zip(*(frame[name] for name in names), strict=True):
        if isinstance(scenario, str):
            counted.append("x".join(map(text, size)) in scenario.split("-"))
        else:
            counted.append(not isinstance(configured, str))
    return counted


def _variants(frame: pandas.DataFrame, keys: Sequence[str]) -> list[str]:
    """For each row what tells it from rows that are configured otherwise and agree in ``keys``; "" where none do."""
    groups = frame.groupby(list(keys), dropna=False, sort=False)
    configs, scenarios = (groups[name].transform("nunique") > 1 for name in HASHES)
    variants = []
    named = ("Config", "ConfigHash", "Scenario", "ScenarioHash")
    columns = zip(configs, scenarios, *(frame[name] for name in named), strict=True)
    for other_config, other_scenario, config, config_hash, scenario, scenario_hash in columns:
        parts = [f"{config} ({config_hash})"] if other_config else []
        parts += [f"{scenario} ({scenario_hash})"] if other_scenario else []
        variants.append(", ".join(parts))
    return variants


def _why(frame: pandas.DataFrame) -> list[str]:
    def column(name: str) -> list[Any]:
        return list(frame[name]) if name in frame.columns else [None] * len(frame)

    of_seed = [value != value or value is None for value in column("Timestamp")]
    columns = (column("Error"), column("Valid"), column("Reasons"), column("Advice"), of_seed)
    return [_reason(*values) for values in zip(*columns, strict=True)]


def _reason(error: Any, valid: Any, reasons: Any, advice: Any, of_seed: bool) -> str:
    if isinstance(error, str):
        return f"failed: {error}"
    if counts(valid, reasons) or (of_seed and not isinstance(valid, str)):
        return ""
    parts = [reasons_text(reasons)] if isinstance(reasons, str) else []
    parts += [advice] if isinstance(advice, str) else []
    why = f": {'; '.join(parts)}" if parts else ""
    return f"not valid{why}" if valid == "no" else f"not known to be valid{why}"
