"""How a container's first process ended, from what the engine and the kernel still know of it."""

from __future__ import annotations

from datetime import datetime

from containernet_env.base import clock
from containernet_env.base.endings import OOM_BY_OWN_LIMIT, LastWords, how_ended, killing_signal, with_words
from containernet_env.base.units import describe_size
from containernet_env.hosts import engine
from containernet_env.hosts.engine import ExitState

# An OOM kill and the end that follows from it are a few milliseconds apart; more where memory is short for all.
_OOM_TO_END_S = 2.0


def ending_of(state: ExitState, oom: bool, memory_bytes: int | None, log: str, words: LastWords) -> str:
    """How the first process ended, in one line; ``oom``: an OOM kill in its container came right before."""
    assert state.exit_code is not None
    how, signal = how_ended(state.exit_code), killing_signal(state.exit_code)
    if oom:
        limit = f" ({OOM_BY_OWN_LIMIT} {describe_size(memory_bytes)})" if memory_bytes else ""
        how = f"OOM-killed{limit}" if signal == "SIGKILL" else f"{how} after an OOM kill in it{limit}"
    return with_words(how, words(log, signal is not None), killed=signal is not None)


def ended_by_oom(container: str, state: ExitState) -> bool:
    """Whether an OOM kill in the container came right before its end.

    The engine's flag alone does not tell: it is also set where another process was killed long before. The engine
    keeps its last 256 events; where it has none of this container's, the flag decides.
    """
    only = {"container": container, "event": "oom"}
    try:
        # Up to now, as text with a fraction: a later moment would be waited for.
        kills = engine.client().api.events(since=1, until=f"{clock.time():.9f}", filters=only, decode=True)
        kills_s = [kill["timeNano"] / 1e9 for kill in kills]
    except engine.UNREACHABLE:
        kills_s = []
    if not kills_s or not state.finished_at:
        return state.oom_killed
    ended_s = datetime.fromisoformat(state.finished_at).timestamp()
    return any(abs(kill_s - ended_s) <= _OOM_TO_END_S for kill_s in kills_s)
