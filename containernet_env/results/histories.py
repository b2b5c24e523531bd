"""Where a run directory has the histories of its scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HISTORIES = "history"
CLIENT_SUFFIX, STORE_SUFFIX = ".jsonl.gz", ".store.jsonl.gz"


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
