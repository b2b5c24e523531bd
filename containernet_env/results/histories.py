"""Where a run directory has the histories of its scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from containernet_env.base.named_files import file_name

HISTORIES = "history"
CLIENT_SUFFIX, STORE_SUFFIX = ".jsonl.gz", ".store.jsonl.gz"


def history_name(number: int, scenario: str, repetition: int) -> str:
    """What the files of the history, and the folder of the profiles, of a run's ``number``-th scenario are called."""
    return f"{number:02}-{file_name(_without_number(scenario, repetition))}"


def _without_number(scenario: str, repetition: int) -> str:
    return f"{scenario}.{repetition}" if repetition > 1 else scenario


@dataclass(frozen=True, slots=True)
class KeptHistory:
    """The history of one scenario; ``store`` is the store's own, ``None`` where it is not there."""

    name: str
    client: Path
    store: Path | None


def histories_of(run: Path) -> Iterator[KeptHistory]:
    """The histories in a run directory, in the order of the scenarios."""
    for path in sorted((run / HISTORIES).glob(f"*{CLIENT_SUFFIX}")):
        if path.name.endswith(STORE_SUFFIX):
            continue
        name = path.name.removesuffix(CLIENT_SUFFIX)
        store = path.with_name(name + STORE_SUFFIX)
        yield KeptHistory(name, path, store if store.is_file() else None)


def missing_histories(scenarios: Iterable[Mapping[str, Any]], kept: Iterable[KeptHistory]) -> list[str]:
    """The scenarios of a run (lines of scenarios.jsonl) that were to keep a history which is not there, by name.

    Also those whose load left no result, and those that were never run.
    """
    asked = Counter(_without_number(line["scenario"], line["repetition"]) for line in scenarios if _keeps(line))
    there = Counter(history.name.partition("-")[2] for history in kept)
    return [name for name, count in asked.items() for _ in range(count - there[file_name(name)])]


def _keeps(line: Mapping[str, Any]) -> bool:
    return bool(line.get("history")) or (line["load"] or {}).get("history") is not None
