"""Simulated time: the product's real threads run one at a time, in an order that a seed decides, and no test waits.

    @simulated(seeds=100)
    def test_a_silent_member_is_named(world: World) -> None: ...

runs a test once for each seed. In it, the names of ``base.clock`` are those of a ``World``: time moves only where all
threads wait, and then to the end of the shortest wait. Wherever a thread waits, sets an event, takes or releases a
lock, reads the clock or starts another one, the seed decides which thread goes on; with ``preempt`` also between two
lines of the product. A failure names its seed, and ``CONTAINERNET_ENV_SEED=<seed>`` begins with it. Processes and
sockets stay real: who waits for one of them holds everything up.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import selectors
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from concurrent.futures import Future as RealFuture
from contextlib import contextmanager, nullcontext
from random import Random
from types import FrameType
from typing import Any, ParamSpec, TypeVar
from unittest import mock

from containernet_env.base import clock
from tests.deadline import HANG_S

P = ParamSpec("P")
T = TypeVar("T")

START_NS, EPOCH_NS = 1_000 * 10**9, 1_700_000_000 * 10**9
"""The monotonic clock when a simulation begins, and the wall clock when the monotonic one would be 0."""
STEPS_MAX, SPAN_MAX_NS = 20_000, 7200 * 10**9
"""So many steps without any time passing are a loop that polls without a wait; and no test waits for so long."""
_PRODUCT = f"{os.sep}containernet_env{os.sep}"


class Stuck(Exception):
    """Every thread waits for another one, or polls for ever; the stack of each is in the text."""


class _Killed(BaseException):
    """Ends a daemon thread when the simulation is over."""


class _Task:
    """A thread of a simulation. It runs between an ``acquire`` and the next ``release`` of its baton by others."""

    def __init__(self, name: str, daemon: bool) -> None:
        self.name, self.daemon = name, daemon
        self.baton = threading.Lock()
        self.baton.acquire()
        self.ready: Callable[[], bool] = lambda: True
        self.until_ns: int | None = None
        self.ident: int | None = None
        self.killed = self.done = False


def _leaves_with(frame: FrameType) -> bool:
    """Whether its next line calls the ``__exit__`` of a `with`: before that call CPython runs no signal's handler."""
    at = frame.f_lasti
    return frame.f_code.co_code[at : at + 6 : 2] == bytes([dis.opmap["LOAD_CONST"]] * 3)


class World:
    """One simulation. ``strike`` = (step, call): at that step the main thread runs ``call``, as a signal's handler."""

    current: World
    """The latest one that was made: in a test, its own."""

    def __init__(self, seed: int, preempt: float = 0.0, strike: tuple[int, Callable[[], None]] | None = None) -> None:
        World.current = self
        self.seed, self.random, self.now_ns, self.steps = seed, Random(seed), START_NS, 0
        self._preempt, self._strike = preempt, strike
        self._main = self._running = _Task("main", daemon=False)
        self._tasks, self._polls, self._over, self._strike_over = [self._main], 0, False, False
        self._error: BaseException | None = None
        self._last_ns = START_NS + SPAN_MAX_NS

    def run(self, test: Callable[[], T]) -> T:
        """The result of ``test``, which is called on this thread, once every thread that is no daemon has ended.

        Raises its exception; that of the first thread that ended by one; ``Stuck`` where nothing can go on.
        """
        self._main.ident = threading.get_ident()
        with mock.patch.multiple(clock, **self._names()), _on_one_core():
            try:
                with self._traced():
                    # A generator has a handled exception of its own: after one that `trace` raises at the last
                    # line of an `except`, CPython 3.11 takes the older one for handled until the frame below returns.
                    result = next(call() for call in [test])
                    self._strike_over = True
                    self.wait(lambda: all(task.daemon for task in self._tasks if task is not self._main))
            except BaseException as error:
                if self._error not in (None, error):
                    raise error from self._error
                raise
            finally:
                self._end()
            if self._error is not None:
                raise self._error
            return result

    def wait(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Let others run until ``ready`` or the timeout; which of both it was."""
        task = self._running
        if task.ident != threading.get_ident():
            raise RuntimeError(f"{threading.current_thread().name} is no thread of this simulation")
        if task.killed:
            raise _Killed
        task.ready = ready
        if timeout_s is None:
            task.until_ns = None
        else:
            task.until_ns = self.now_ns + max(round(timeout_s * 1e9), 1 if timeout_s > 0 else 0)
        while True:
            self._hand_over(task)
            if self._is_struck(task):
                self._handle()
            if task is self._main and isinstance(self._error, Stuck):
                raise self._error
            if ready() or (task.until_ns is not None and task.until_ns <= self.now_ns):
                return ready()

    def step(self) -> None:
        """Let another thread run, if the seed says so."""
        if not self._running.killed:
            self.wait(lambda: True)

    def stall(self, seconds: float) -> None:
        """The machine, or this whole process, is stopped for a while: time passes and no thread runs."""
        self.now_ns += round(seconds * 1e9)
        self._last_ns += round(seconds * 1e9)

    @property
    def threads(self) -> list[str]:
        """The names of all threads that run, but the main one."""
        return [task.name for task in self._tasks if task is not self._main]

    # --- the scheduler -----------------------------------------------------------------------------------------------

    def _hand_over(self, task: _Task) -> None:
        following = self._next()
        if following is not task:
            self._running = following
            following.baton.release()
            self._sleep(task)
        if task.killed:
            raise _Killed

    def _sleep(self, task: _Task) -> None:
        seen = -1
        while not task.baton.acquire(timeout=HANG_S):
            if task is self._main and seen == self.steps:
                raise AssertionError(
                    f"{self._running.name} waits for something that is not simulated\n{self._stacks()}"
                )
            seen = self.steps

    def _next(self) -> _Task:
        """Who runs next; time moves to where somebody can."""
        self.steps += 1
        self._polls += 1
        if self._is_struck(self._main):
            return self._main
        while not (able := [task for task in self._tasks if self._is_able(task)]):
            ends = [task.until_ns for task in self._tasks if task.until_ns is not None]
            if not ends:
                return self._stuck("no thread can go on")
            self.now_ns, self._polls = max(self.now_ns, min(ends)), 0
            if self.now_ns > self._last_ns:
                return self._stuck(f"{SPAN_MAX_NS / 1e9:.0f} s have passed")
        if self._polls > STEPS_MAX:
            return self._stuck(f"no time has passed in {STEPS_MAX} steps")
        return self.random.choice(able)

    def _is_able(self, task: _Task) -> bool:
        return task.ready() or (task.until_ns is not None and task.until_ns <= self.now_ns)

    def _stuck(self, why: str) -> _Task:
        stuck = Stuck(f"{why}\n{self._stacks()}")
        stuck.__cause__, self._error = self._error, stuck
        return self._main

    def _stacks(self) -> str:
        frames, found = sys._current_frames(), []
        for task in self._tasks:
            stack = [line for line in traceback.extract_stack(frames.get(task.ident or 0)) if line.filename != __file__]
            found.append(f"--- {task.name}\n{''.join(traceback.format_list(stack[-6:]))}")
        return "\n".join(found)

    def _is_struck(self, task: _Task) -> bool:
        due = self._strike is not None and self.steps >= self._strike[0] and not self._strike_over
        return due and task is self._main

    def _handle(self) -> None:
        assert self._strike is not None
        (_, call), self._strike = self._strike, None
        call()

    def _end(self) -> None:
        """End every thread that is left, one after the other."""
        self._over = self._strike_over = True
        while rest := [task for task in self._tasks if task is not self._main]:
            self._running = task = rest[0]
            task.killed = True
            task.baton.release()
            self._sleep(self._main)

    def begins(self, task: _Task) -> None:
        """Called on a new thread: returns when it is its turn."""
        task.ident = threading.get_ident()
        self._sleep(task)

    def ends(self, task: _Task, error: BaseException | None) -> None:
        """Called on a thread that is over."""
        sys.settrace(None)
        task.done = True
        self._tasks.remove(task)
        if error is not None and not isinstance(error, SystemExit) and self._error is None and not self._over:
            error.add_note(f"on the thread {task.name}")
            self._error = error
        following = self._main if self._over else self._next()
        self._running = following
        following.baton.release()

    # --- preemption between lines ------------------------------------------------------------------------------------

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Python's trace function (``sys.settrace``): each line of the product is a step."""
        if _PRODUCT not in frame.f_code.co_filename:
            return None
        if event == "line" and not self._running.killed and not self._over:
            self.steps += 1
            if self._is_struck(self._running) and not _leaves_with(frame):
                self._handle()
            elif self.random.random() < self._preempt:
                self.step()
        return self.trace

    @contextmanager
    def _traced(self) -> Iterator[None]:
        if not self._preempt:
            yield
            return
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(before)

    # --- what replaces the names of ``base.clock`` -------------------------------------------------------------------

    def _names(self) -> dict[str, Any]:
        def now_ns() -> int:
            if self._running.ident == threading.get_ident():
                self.step()
            return self.now_ns

        def select(selector: selectors.BaseSelector, timeout_s: float | None) -> Any:
            self.wait(lambda: bool(selector.select(0)), timeout_s)
            return selector.select(0)

        names: dict[str, Any] = {
            "monotonic": lambda: now_ns() / 1e9,
            "monotonic_ns": now_ns,
            "perf_counter_ns": now_ns,
            "time": lambda: (EPOCH_NS + now_ns()) / 1e9,
            "time_ns": lambda: EPOCH_NS + now_ns(),
            "sleep": lambda seconds: self.wait(lambda: False, seconds) and None,
            "select": select,
            "waking": nullcontext,
        }
        for kind in (Condition, Event, Future, Lock, SimpleQueue, Thread, ThreadPoolExecutor):
            names[kind.__name__] = functools.partial(kind, self)
        names["RLock"] = functools.partial(Lock, self, again=True)
        return names


class Lock:
    """As ``threading.Lock``; ``again``: as ``threading.RLock``."""

    def __init__(self, world: World, again: bool = False) -> None:
        self._world, self._again, self._owner, self.depth = world, again, None, 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me: Any = threading.get_ident()
        if self._again and self._owner == me:
            self.depth += 1
            return True
        if blocking:
            got = self._world.wait(lambda: not self.depth, None if timeout < 0 else timeout)
        else:
            self._world.step()
            got = not self.depth
        if got:
            self._owner, self.depth = me, 1
        return got

    def release(self) -> None:
        if not self.depth:
            raise RuntimeError("release unlocked lock")
        self.depth -= 1
        if not self.depth:
            self._owner = None
            self._world.step()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *args: object) -> None:
        self.release()


class Event:
    """As ``threading.Event``."""

    def __init__(self, world: World) -> None:
        self._world, self._set = world, False

    def is_set(self) -> bool:
        self._world.step()
        return self._set

    def set(self) -> None:
        self._set = True
        self._world.step()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._world.wait(lambda: self._set, timeout)


class SimpleQueue:
    """As ``queue.SimpleQueue``."""

    def __init__(self, world: World) -> None:
        self._world, self._held = world, deque[Any]()

    def put(self, item: Any) -> None:
        self._held.append(item)
        self._world.step()

    def get(self, timeout: float | None = None) -> Any:
        if not self._world.wait(lambda: bool(self._held), timeout):
            raise clock.Empty
        return self._held.popleft()

    def empty(self) -> bool:
        self._world.step()
        return not self._held


class Condition:
    """As ``threading.Condition``."""

    def __init__(self, world: World, lock: Lock | None = None) -> None:
        self._world = world
        self._lock = Lock(world, again=True) if lock is None else lock
        self._waiting: list[list[bool]] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *args: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        called = [False]
        self._waiting.append(called)
        depth, self._lock.depth = self._lock.depth, 1
        self._lock.release()
        try:
            return self._world.wait(lambda: called[0], timeout)
        finally:
            self._waiting = [other for other in self._waiting if other is not called]
            self._lock.acquire()
            self._lock.depth = depth

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        end_ns = None if timeout is None else self._world.now_ns + round(timeout * 1e9)
        while not (found := predicate()):
            left_s = None if end_ns is None else (end_ns - self._world.now_ns) / 1e9
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return found

    def notify_all(self) -> None:
        for called in self._waiting:
            called[0] = True
        self._waiting = []


class Thread(threading.Thread):
    """As ``threading.Thread``, and a real one."""

    def __init__(self, world: World, *args: Any, **kwargs: Any) -> None:
        daemon = kwargs.pop("daemon", None)
        super().__init__(*args, daemon=True, **kwargs)
        self._world, self._task = world, _Task(self.name, bool(daemon))
        self._begun = False

    def start(self) -> None:
        super().start()
        self._begun = True
        self._world._tasks.append(self._task)
        self._world.step()

    def run(self) -> None:
        error = None
        self._world.begins(self._task)
        try:
            if self._world._preempt:
                sys.settrace(self._world.trace)
            if not self._task.killed:
                super().run()
        except BaseException as raised:  # noqa: BLE001 - raised by the simulation
            error = raised
        self._world.ends(self._task, error)

    def join(self, timeout: float | None = None) -> None:
        self._world.wait(lambda: self._task.done, timeout)

    def is_alive(self) -> bool:
        self._world.step()
        return self._begun and not self._task.done


class Future(RealFuture[Any]):
    """As ``concurrent.futures.Future``."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._condition: Any = Condition(world)  # all that it waits by


class ThreadPoolExecutor(Executor):
    """As ``concurrent.futures.ThreadPoolExecutor``."""

    def __init__(self, world: World, max_workers: int = 8, thread_name_prefix: str = "pool") -> None:
        self._world, self._max, self._prefix = world, max_workers, thread_name_prefix
        self._threads: list[Thread] = []
        self._todo: deque[tuple[Future, Callable[[], Any]]] = deque()
        self._idle, self._closed = 0, False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> RealFuture[T]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = Future(self._world)
        self._todo.append((future, functools.partial(fn, *args, **kwargs)))
        if len(self._todo) > self._idle and len(self._threads) < self._max:
            name = f"{self._prefix}_{len(self._threads)}"
            self._threads.append(Thread(self._world, target=self._work, name=name, daemon=True))
            self._threads[-1].start()
        return future

    def _work(self) -> None:
        while True:
            self._idle += 1
            self._world.wait(lambda: bool(self._todo) or self._closed)
            self._idle -= 1
            if not self._todo:
                return
            future, call = self._todo.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        while cancel_futures and self._todo:
            self._todo.popleft()[0].cancel()
        for thread in self._threads if wait else ():
            thread.join()


@contextmanager
def _on_one_core() -> Iterator[None]:
    """One thread runs at a time: to wake it on another core takes longer. The product sees the cores that it sets."""
    cores = os.sched_getaffinity(0)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(cores)[worker % len(cores)]})
    held = set(cores)
    names = {
        "sched_getaffinity": lambda pid: set(held),
        "sched_setaffinity": lambda pid, wanted: (held.clear(), held.update(wanted)),
    }
    try:
        with mock.patch.multiple(os, **names):
            yield
    finally:
        os.sched_setaffinity(0, cores)


LONG = os.environ.get("CONTAINERNET_ENV_SEEDS") == "long"


def chosen(number: int, many: int | None = None) -> range:
    """The seeds of one test; see the module. ``many``: how many in the long form."""
    first = int(os.environ.get("CONTAINERNET_ENV_SEED", "0"))
    return range(first, first + (many if LONG and many else number))


def simulated(seeds: int = 1, preempt: float = 0.0) -> Callable[[Callable[P, None]], Callable[..., None]]:
    """Have a test run in simulated time, once for each of so many seeds; it may take the ``world``."""

    def decorate(test: Callable[P, None]) -> Callable[..., None]:
        takes = dict(inspect.signature(test).parameters)
        wants = takes.pop("world", None) is not None

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            for seed in chosen(seeds):
                world = World(seed, preempt)
                call = functools.partial(test, *args, **kwargs, **({"world": world} if wants else {}))
                replayed(world, call)

        run.__signature__ = inspect.Signature(list(takes.values()))
        return run

    return decorate


def replayed(world: World, test: Callable[[], T]) -> T:
    """Run it; a failure says how it is replayed."""
    try:
        return world.run(test)
    except BaseException as error:
        error.add_note(f"CONTAINERNET_ENV_SEED={world.seed} replays it")
        raise


def struck_everywhere(
    test: Callable[[World], None], call: Callable[[], None], seed: int = 0, preempt: float = 0.0, every: int = 1
) -> int:
    """Run a test again and again, with a signal's handler ``call`` on its main thread at each step; how many.

    ``test`` has to cope with what ``call`` raises. ``every``: only at each so manieth step.
    """
    step = 1 + chosen(1)[0] % every
    while True:
        world = World(seed, preempt, (step, call))
        try:
            replayed(world, functools.partial(test, world))
        except BaseException as error:
            error.add_note(f"struck at step {step}")
            raise
        if world._strike is not None:
            return step
        step += every
