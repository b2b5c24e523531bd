"""Work on several items at the same time, with as many threads as the machine gives, or for a bounded time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from containernet_env.base import clock

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


def answers_within(timeout_s: float, ask: Callable[[_K], _R], items: Iterable[_K]) -> dict[_K, _R]:
    """What ``ask`` returns for each item, of those for which it does so in time and without an exception.

    Nobody waits for the others: their threads end by themselves, and hold up no end of the program.
    """
    answers: dict[_K, _R] = {}

    def work(item: _K) -> None:
        with suppress(Exception):
            answers[item] = ask(item)

    threads = [clock.Thread(target=work, args=(item,), name="ask", daemon=True) for item in items]
    deadline_s = clock.monotonic() + timeout_s
    with suppress(RuntimeError):  # no thread can be started: there is no answer then
        for thread in threads:
            thread.start()
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, deadline_s - clock.monotonic()))
    return dict(answers)
