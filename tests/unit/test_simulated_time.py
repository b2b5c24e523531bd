"""Simulated time itself: the order of threads follows from the seed, and whatever cannot go on is reported."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from containernet_env.base import clock
from tests.simulated_time import EPOCH_NS, START_NS, Stuck, World, simulated, struck_everywhere


def order(seed: int, preempt: float = 0.0) -> list[str]:
    """In which order threads take the turns of a loop, each with a lock and a wait."""
    seen: list[str] = []

    def work(name: str) -> None:
        for _ in range(3):
            with lock:
                seen.append(name)
            clock.sleep(1)

    world = World(seed, preempt)
    lock = clock.Lock()
    world.run(lambda: [clock.Thread(target=work, args=(name,)).start() for name in "0123"])
    assert world.now_ns == START_NS + 3 * 10**9, "all slept at the same time"
    return seen


def test_the_order_of_threads_follows_from_the_seed_alone() -> None:
    orders = [order(seed) for seed in range(20)]
    assert orders == [order(seed) for seed in range(20)]
    assert len({"".join(names) for names in orders}) > 15
    assert order(3, preempt=0.5) == order(3, preempt=0.5)


@simulated()
def test_time_moves_to_the_end_of_the_shortest_wait_and_by_nothing_else(world: World) -> None:
    over = clock.Event()
    clock.Thread(target=lambda: (clock.sleep(2.5), over.set())).start()
    assert (clock.monotonic(), clock.time()) == (1000.0, (EPOCH_NS + START_NS) / 1e9)
    assert not over.wait(1) and clock.monotonic_ns() == START_NS + 10**9
    assert over.wait(60) and clock.monotonic() == 1002.5
    world.stall(3600)
    assert clock.monotonic() == 4602.5
    assert clock.utc_now() == "2023-11-14T23:30:02.500Z"


@simulated(seeds=50)
def test_locks_conditions_futures_and_pools_keep_their_promises() -> None:
    condition, lock = clock.Condition(), clock.RLock()
    inside, most, served = 0, 0, []

    def work(number: int) -> int:
        nonlocal inside, most
        with lock, lock:
            inside += 1
            most = max(most, inside)
            clock.sleep(0.1)
            inside -= 1
        with condition:
            served.append(number)
            condition.notify_all()
        return number**2

    pool = clock.ThreadPoolExecutor(3)
    squares = [pool.submit(work, number) for number in range(5)]
    with condition:
        assert not condition.wait_for(lambda: len(served) == 5, 0.25)
        assert condition.wait_for(lambda: len(served) == 5)
    assert [square.result() for square in squares] == [0, 1, 4, 9, 16]
    assert most == 1 and clock.monotonic() == 1000.5
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(1)
    unanswered: clock.Future[None] = clock.Future()
    with pytest.raises(TimeoutError):
        unanswered.result(5)
    pool.shutdown()
    assert lock.acquire(blocking=False) and clock.Lock().acquire(timeout=1)


def locks_in_turn(first: Any, second: Any) -> None:
    with first, second:
        pass


def test_a_deadlock_is_reported_with_the_stacks_and_the_seed_that_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @simulated(seeds=50)
    def test(world: World) -> None:
        seen.append(world.seed)
        one, other = clock.Lock(), clock.Lock()
        for pair in ((one, other), (other, one)):
            clock.Thread(target=locks_in_turn, args=pair).start()

    monkeypatch.setenv("CONTAINERNET_ENV_SEED", "40")
    with pytest.raises(Stuck, match="locks_in_turn") as raised:
        test()
    assert raised.value.__notes__[-1].startswith(f"CONTAINERNET_ENV_SEED={seen[-1]} ")
    assert seen == [*range(40, seen[-1] + 1)]


def test_what_cannot_go_on_is_stuck() -> None:
    whats: list[tuple[Callable[[], object], str]] = [
        (lambda: clock.Event().wait(), "no thread can go on"),
        (lambda: [clock.monotonic() for _ in iter(int, 1)], "no time has passed in 20000 steps"),
        (lambda: [clock.sleep(0.25) for _ in iter(int, 1)], "7200 s have passed"),
        (lambda: clock.Thread(target=clock.Event().wait, name="sleeper").start(), "--- sleeper"),
    ]
    for what, words in whats:
        with pytest.raises(Stuck, match=words):
            World(0).run(what)


def test_a_simulation_ends_its_threads_and_raises_their_exceptions() -> None:
    names, before = dict(vars(clock)), set(threading.enumerate())

    def test() -> None:
        for target in (clock.Event().wait, clock.Event().wait, lambda: 1 // 0):
            clock.Thread(target=target, name="worker", daemon=target.__name__ == "wait").start()

    with pytest.raises(ZeroDivisionError) as raised:
        World(0).run(test)
    assert raised.value.__notes__ == ["on the thread worker"] and dict(vars(clock)) == names
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


def test_a_strike_meets_the_main_thread_at_each_step_also_while_it_waits() -> None:
    struck: list[int] = []

    def strike() -> None:
        raise KeyboardInterrupt

    def test(world: World) -> None:
        try:
            clock.sleep(1)
            clock.sleep(1)
        except KeyboardInterrupt:
            struck.append(world.now_ns - START_NS)

    assert struck_everywhere(test, strike) == len(struck) + 1
    assert (struck[0], struck[-1]) == (0, 10**9)


def test_no_exception_stays_handled_after_a_strike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulated_time._PRODUCT", __file__)

    def strike() -> None:
        raise KeyboardInterrupt

    def handled() -> bool:
        try:
            raise ValueError
        except ValueError:
            return True

    for step in range(1, 8):
        with suppress(KeyboardInterrupt):
            World(0, 1e-9, (step, strike)).run(handled)
        assert sys.exc_info()[0] is None, step


def test_a_race_between_two_lines_is_found_by_preemption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulated_time._PRODUCT", __file__)

    def counted(seed: int) -> int:
        counter = 0

        def add() -> None:
            nonlocal counter
            seen = counter
            counter = seen + 1

        World(seed, preempt=0.5).run(lambda: [clock.Thread(target=add).start() for _ in range(2)])
        return counter

    assert {counted(seed) for seed in range(20)} == {1, 2}
