"""What a tear-down keeps of its steps that fail, so that the others still run, and what it raises at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from containernet_env.base.errors import RunError
from containernet_env.hosts.engine import EngineGoneError

# Of a step that is about no container of its own: all that a list would tell is told by the steps of the hosts.
CONTAINERS = "containers"


def attempt(name: str, step: Callable[[], object], problems: list[tuple[str, Exception]]) -> None:
    """Carry out one step; whatever goes wrong is noted with its name."""
    try:
        step()
    except Exception as failure:  # noqa: BLE001 - reported at the end, with all others
        problems.append((name, failure))


def tear_down_error(problems: Sequence[tuple[str, Exception]]) -> RunError:
    """What to raise for steps that failed: that the engine is gone, where it is that, with what stays in it."""
    gone = [(name, failure) for name, failure in problems if isinstance(failure, EngineGoneError)]
    others = [f"{name}: {failure}" for name, failure in problems if not isinstance(failure, EngineGoneError)]
    if not gone:
        return RunError("could not be removed:\n" + "\n".join(f"  {problem}" for problem in others))
    hosts = ", ".join(name for name, _ in gone if name != CONTAINERS)
    stay = f"the containers of {hosts} stay in it, their processes have been ended" if hosts else ""
    failure = gone[0][1]
    assert isinstance(failure, EngineGoneError)
    return EngineGoneError(failure.state, "; ".join([*filter(None, [stay]), *others]))
