"""What was used between two samples, and what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from containernet_env.model.usage import NAMES, Consumers, Consumption, Usage, difference
from containernet_env.usage.window import Sample, Window

S = 10**9
BEFORE = Consumption(**dict.fromkeys(NAMES, 1000))
AFTER = Consumption(**{name: 1500 + index for index, name in enumerate(NAMES)})


def test_counters_are_differences_and_levels_the_largest() -> None:
    largest = Consumption(memory_bytes=7777, rss_bytes=8888)
    used = difference(BEFORE, AFTER, largest)
    for index, name in enumerate(NAMES):
        wanted = {"memory_bytes": 7777, "rss_bytes": 8888}.get(name, 500 + index)
        assert getattr(used, name) == wanted, name


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("memory_b", "rss"))])
def test_what_one_sample_lacks_is_not_known(name: str) -> None:
    for before, after in ((replace(BEFORE, **{name: None}), AFTER), (BEFORE, replace(AFTER, **{name: None}))):
        used = difference(before, after, Consumption())
        assert getattr(used, name) is None
        assert name not in used.values()
    assert getattr(difference(AFTER, BEFORE, Consumption()), name) is None, "it went back"


@pytest.mark.parametrize(("threads", "known"), [(100, True), (80, True), (79, False), (0, False)])
def test_what_threads_waited_for_counts_where_the_threads_that_ran_were_seen(threads: int, known: bool) -> None:
    """A program that ran for half a second was not there at any look: its run delay is not 0."""
    zero = Consumption(cpu_ns=0, threads_cpu_ns=0, run_delay_ns=0, context_switches=0)
    used = difference(
        zero, Consumption(cpu_ns=100, threads_cpu_ns=threads, run_delay_ns=5, context_switches=6), Consumption()
    )
    assert (used.run_delay_ns, used.context_switches) == ((5, 6) if known else (None, None))
    assert used.threads_cpu_ns == threads


def sample(at_s: float, **consumers: object) -> Sample:
    return Sample(round(at_s * S), Consumers(**consumers))  # type: ignore[arg-type]


def test_a_window_is_the_difference_of_its_edges() -> None:
    window = Window(sample(10, machine=Consumption(cpu_ns=50, rss_bytes=5), client=Consumption(cpu_ns=7)))
    window.add(sample(11, machine=Consumption(cpu_ns=70, rss_bytes=9), client=Consumption(cpu_ns=8)))
    window.add(sample(11.5, machine=Consumption(cpu_ns=90, rss_bytes=6), client=Consumption(cpu_ns=10)))
    usage = window.usage()
    assert usage.window_ns == 1.5 * S
    assert usage.used.machine == Consumption(cpu_ns=40, rss_bytes=9)
    assert usage.used.client == Consumption(cpu_ns=3)
    assert usage.used.links is None and usage.used.members == {}


def test_a_member_that_dies_counts_as_far_as_it_was_seen() -> None:
    window = Window(sample(0, members={"a": Consumption(cpu_ns=S, sent_bytes=5), "b": Consumption(cpu_ns=0)}))
    window.add(sample(1, members={"a": Consumption(cpu_ns=2 * S, sent_bytes=9), "b": Consumption(cpu_ns=S)}))
    window.add(sample(1.5, members={"a": Consumption(cpu_ns=3 * S), "b": Consumption(cpu_ns=2 * S)}))
    window.add(sample(2, members={"b": Consumption(cpu_ns=3 * S)}))
    usage = window.usage()
    assert usage.used.members["a"] == Consumption(cpu_ns=2 * S, sent_bytes=4)
    assert usage.cluster_cores == 2.5


def test_one_that_comes_later_is_left_out() -> None:
    window = Window(sample(0, machine=Consumption(cpu_ns=0)))
    window.add(sample(1, machine=Consumption(cpu_ns=1), members={"a": Consumption(cpu_ns=5)}))
    assert window.usage().used.members == {}


def test_cores() -> None:
    members = {"a": Consumption(cpu_ns=S), "b": Consumption(cpu_ns=S // 2)}
    usage = Usage(2 * S, Consumers(members=members, client=Consumption(throttled_ns=3), machine=Consumption()))
    assert usage.cluster_cores == 0.75
    assert (usage.links_cores, usage.client_cores, usage.steal_cores) == (None, None, None)
    assert usage.client_throttled_ns == 3
    unknown = Usage(2 * S, Consumers(members=members | {"c": Consumption()}))
    assert unknown.cluster_cores is None, "the sum of some is not that of all"
    assert (unknown.client_throttled_ns, unknown.steal_cores) == (None, None)
    assert Usage(2 * S, Consumers()).cluster_cores is None
    assert Usage(0, Consumers(members=members)).cluster_cores is None
