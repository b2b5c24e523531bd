"""What measures, as far as rows of another one are no repetitions: program, store, and options beside the plan's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from containernet_env.fidelity.rtt import Tolerance
from containernet_env.model.config import StoreChoice
from containernet_env.runs import manifest
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.protocol import Store

_DIGITS = 12
_NOT_COMPARED = "program"


def made_by(stores: Iterable[Store], tolerance: Tolerance | None) -> dict[str, str]:
    """By name, as text: what measures now. All but the commit is compared: it says for people which sources these are.

    The machine is not part of it: rows name theirs.
    """
    # Of several versions of one store each cell names its own.
    versions = {store.name: KINDS[store.name].make(StoreChoice(store.name)).version for store in stores}
    program = manifest.program_facts()
    commit = (program.commit or "unknown")[:_DIGITS] + ("-dirty" if program.dirty else "")
    return {
        _NOT_COMPARED: f"{program.version} (commit {commit})",
        "sources": program.sources[:_DIGITS],
        "Go": program.go or "unknown",
        **{name: versions[name] for name in sorted(versions)},
        "RTT tolerance": _text(tolerance),
    }


def of_store(made: Mapping[str, str], store: Store) -> dict[str, str]:
    """What of ``made_by`` is about the rows of one store."""
    return {name: value for name, value in made.items() if name not in KINDS or name == store.name}


def _text(tolerance: Tolerance | None) -> str:
    if tolerance is None:
        return "by the kind of links"
    return f"{tolerance.absolute_ns / 1e6:g} ms, {100 * tolerance.ratio:g} %"


def other(was: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """In what they differ, in words, with both values; ``None`` where what is compared is the same."""
    # Rows of one store say nothing of another one, which the sweep may have got since.
    names = [name for name in now if was.get(name) != now[name] and (name in was or name not in KINDS)]
    if not [name for name in names if name != _NOT_COMPARED]:
        return None
    return ", ".join(f"{name} {was.get(name, 'unknown')}, now {now[name]}" for name in names)
