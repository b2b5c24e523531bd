"""Work on several items at the same time, with as many threads as the machine gives."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

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
        thread = threading.Thread(target=work, name="side-by-side")
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
