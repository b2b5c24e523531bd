"""Work on several items at the same time, with as many threads as the machine gives, or for a bounded time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from containernet_env.base import clock
from containernet_env.base.errors import RunError

_RETRY_S, _RETRY_MAX_S = 0.05, 0.5
"""The first pause before an unanswered query is sent again, which doubles, and the longest."""

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")
_R = TypeVar("_R")


def side_by_side(action: Callable[[_T], _R], items: Sequence[_T], workers: int) -> list[_R]:
    """``action`` of each item, begun in their order and at most ``workers`` at a time; the results in their order.

    The calling thread works, too: where no thread can be started it does all of it. Every item is worked on, then the
    first error is raised.
    """
    todo = deque(enumerate(items))
    results: dict[int, _R] = {}
    errors: dict[int, BaseException] = {}

    def work() -> None:
        while True:
            try:
                number, item = todo.popleft()
            except IndexError:
                return
            try:
                results[number] = action(item)
            except BaseException as error:  # noqa: BLE001 - raised below
                errors[number] = error

    threads = []
    for _ in range(min(workers, len(items)) - 1):
        thread = clock.Thread(target=work, name="side-by-side")
        try:
            thread.start()
        except RuntimeError:
            break
        threads.append(thread)
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(items))]


def persistently(ask: Callable[[], _R], timeout_s: float) -> _R:
    """What ``ask`` returns; as a client does, it is called again after a RunError, until ``timeout_s`` are over.

    It is called twice at least, as the first call may take all of that time, but once where ``timeout_s`` is 0. Raises
    the last RunError then.
    """
    deadline_s, pause_s, last = clock.monotonic() + timeout_s, _RETRY_S, timeout_s == 0
    while True:
        try:
            return ask()
        except RunError:
            if last:
                raise
        last = clock.monotonic() + 2 * pause_s >= deadline_s
        clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _RETRY_MAX_S)


def answers_within(timeout_s: float, ask: Callable[[_K], _R], items: Iterable[_K]) -> dict[_K, _R]:
    """What ``ask`` returns ``persistently`` for each item, of those for which it does so in time.

    Nobody waits for the others: their threads end by themselves, and hold up no end of the program.
    """
    answers: dict[_K, _R] = {}

    def work(item: _K) -> None:
        with suppress(Exception):
            answers[item] = persistently(partial(ask, item), timeout_s)

    threads = [clock.Thread(target=work, args=(item,), name="ask", daemon=True) for item in items]
    deadline_s = clock.monotonic() + timeout_s
    with suppress(RuntimeError):  # no thread can be started: there is no answer then
        for thread in threads:
            thread.start()
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, deadline_s - clock.monotonic()))
    return dict(answers)
