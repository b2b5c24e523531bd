"""Long work: ended early from any thread, reported as it goes on, and done on several items in parallel."""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Protocol, TypeVar

from containernet_env.base import clock
from containernet_env.base.errors import ContainernetEnvError, Interrupted, RunError

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end the program early, after what it has made is removed."""


def stop_behind(error: BaseException, handled: BaseException | None = None) -> Interrupted | KeyboardInterrupt | None:
    """The stop that is the error or its cause; ``None`` if there is none, or if the error is one of this project's.

    ``handled`` is the exception that the caller was handling before; it is not a cause.

    A stop may be raised inside a library, which may turn it into another error: RuntimeError where Python calls
    ``__set_name__`` (before 3.12), or where a lock is released that the stop kept from being taken.
    """
    behind: BaseException | None = error
    while behind is not None and behind is not handled and not isinstance(behind, ContainernetEnvError):
        if isinstance(behind, Interrupted | KeyboardInterrupt):
            return behind
        behind = behind.__cause__ or behind.__context__
    return None


@contextmanager
def stops_kept() -> Iterator[None]:
    """Raise the stop itself in place of an error that it caused; see ``stop_behind``."""
    handled = sys.exception()
    try:
        yield
    except Exception as error:
        if (stop := stop_behind(error, handled)) is None:
            raise
        raise stop from None


class Stop:
    """A stop token: a run checks it wherever it waits, and ends with ``Interrupted`` unless it is tearing down already.

    It installs no signal handler and may be used on any thread. ``received`` is the signal that requested the end, 0 if
    none did; ``None`` before any request.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._shielded = False
        self._lock = clock.Lock()

    def request(self, signum: int = 0) -> None:
        """Request the end of the run; later requests change nothing."""
        with self._lock:
            if self.received is None:
                self.received = signum

    def check(self) -> None:
        """Raise ``Interrupted`` if the end of the run was requested and its tear-down has not begun."""
        if self.received is not None and not self._shielded:
            raise Interrupted(self.received)

    def shield(self) -> None:
        """Make ``check`` raise nothing from now on, so that the tear-down completes. Idempotent."""
        self._shielded = True

    def unshield(self) -> None:
        """End the shield after the tear-down: a request made meanwhile ends the caller's next run."""
        self._shielded = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A block that is carried out as a whole; may be nested."""
        yield


class Stage:
    """One stage in progress; ``text`` is its result, which is shown when it ends."""

    text = ""

    def done(self, text: str) -> None:
        self.text = text


class Progress(Protocol):
    """Receives the progress of some work. No method may raise because of the terminal."""

    def stage(self, name: str, seconds: float | None = None) -> AbstractContextManager[Stage]:
        """A stage begins; leaving the context ends it. ``seconds`` is its duration if it is over already."""

    def note(self, text: str) -> None:
        """A line that the user should read."""


class RemainingTime:
    """The remaining time of several measurements: estimates, corrected by what those that have ended took."""

    def __init__(self) -> None:
        self.at_once = 1
        """The number of groups measured at the same time."""
        self.all = 0
        self.took_s = 0.0
        self._left = 0
        self._left_s = self._estimated_s = self._pending_s = 0.0

    def wants(self, count: int, estimated_s: float, again: bool = False) -> None:
        """Set the remaining measurements and their estimated time; ``again``: repeated ones do not add to the total."""
        self.all += 0 if again else count - self._left
        self._left_s, self._left = estimated_s, count

    def ended(self, estimated_s: float) -> None:
        self._left -= 1
        self._left_s = max(self._left_s - estimated_s, 0.0)
        self._pending_s += estimated_s

    def took(self, seconds: float, around_s: float = 0.0) -> None:
        """The duration of the measurements that have ended since; ``around_s`` was estimated for the rest."""
        self._estimated_s += self._pending_s + around_s
        self.took_s += seconds
        self._left_s = max(self._left_s - around_s, 0.0)
        self._pending_s = 0.0

    @property
    def done(self) -> int:
        return self.all - self._left

    @property
    def left_s(self) -> float:
        ratio = self.took_s / self._estimated_s if self._estimated_s > 0 and self.took_s > 0 else 1.0
        return self._left_s * ratio / self.at_once


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


def persistently(query: Callable[[], _R], timeout_s: float) -> _R:
    """The result of ``query``, which is retried after a RunError until ``timeout_s`` are over.

    It is called at least twice, since the first call may take all of that time, but once if ``timeout_s`` is 0. Raises
    the last RunError.
    """
    deadline_s, pause_s, last = clock.monotonic() + timeout_s, _RETRY_S, timeout_s == 0
    while True:
        try:
            return query()
        except RunError:
            if last:
                raise
        last = clock.monotonic() + 2 * pause_s >= deadline_s
        clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _RETRY_MAX_S)


def answers_within(timeout_s: float, query: Callable[[_K], _R], items: Iterable[_K]) -> dict[_K, _R]:
    """The results of ``query``, retried ``persistently``, for the items that answer in time.

    The threads of the others are not waited for; they do not keep the program from ending.
    """
    answers: dict[_K, _R] = {}

    def work(item: _K) -> None:
        with suppress(Exception):
            answers[item] = persistently(partial(query, item), timeout_s)

    threads = [clock.Thread(target=work, args=(item,), name="query", daemon=True) for item in items]
    deadline_s = clock.monotonic() + timeout_s
    with suppress(RuntimeError):  # no thread can be started: there is no answer then
        for thread in threads:
            thread.start()
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, deadline_s - clock.monotonic()))
    return dict(answers)
