"""The columns of what hosts, links and machine used."""

from __future__ import annotations

from collections.abc import Callable

from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.run_facts import RunFacts
from containernet_env.model.usage import Usage
from containernet_env.results.column import Column, Value


def _of_usage(get: Callable[[Usage], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return lambda facts, outcome: get(outcome.machine) if outcome.machine is not None else None


def _of_load(get: Callable[[LoadResult], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return lambda facts, outcome: get(outcome.load) if outcome.load is not None else None


def _cores(name: str, meaning: str, get: Callable[[Usage], float | None]) -> Column:
    return Column(f"{name}_cores", "cores", "measured", meaning, _of_usage(get), 3)


def _client_throttled_s(usage: Usage) -> Value:
    return None if usage.client_throttled_ns is None else usage.client_throttled_ns / 1e9


USAGE_COLUMNS = (
    _cores(
        "ClusterCpu",
        "CPU time that all members took, per second from right before the benchmark was sent to right after its "
        "answer: connecting, the warm-up and the generator's report included",
        lambda usage: usage.cluster_cores,
    ),
    _cores(
        "LinksCpu",
        "the same of the link emulator, in which the hosts' network stacks take the frames that it brings; '-' where "
        "the kernel carries the links",
        lambda usage: usage.links_cores,
    ),
    _cores("ClientCpu", "the same of the client's host", lambda usage: usage.client_cores),
    _cores("Steal", "the same of what a hypervisor took from this machine", lambda usage: usage.steal_cores),
    Column(
        "ClientThrottled_s",
        "s",
        "measured",
        "for how long the client's host was stopped by its own CPU limit",
        _of_usage(_client_throttled_s),
        3,
    ),
    Column(
        "GeneratorBusy_ratio",
        "ratio",
        "measured",
        "share of `Total` in which the load generator did not wait for the members: near 1 it was itself the limit",
        _of_load(lambda load: load.busy_ratio),
        4,
    ),
    Column(
        "GeneratorPauses",
        "",
        "measured",
        "how often the load generator did not run for more than 10 ms although it had something to do: it was stopped, "
        "or the machine was busy",
        _of_load(lambda load: load.pauses),
    ),
    Column(
        "GeneratorPaused_s",
        "s",
        "measured",
        "for how long in all",
        _of_load(lambda load: load.paused_s),
        3,
    ),
    Column(
        "GeneratorWaited_s",
        "s",
        "measured",
        "for how long its threads were runnable and did not run, all together; '-' where the kernel does not tell",
        _of_load(lambda load: load.run_delay_s),
        3,
    ),
    Column(
        "LinksCore",
        "",
        "configured",
        "the core that `--links-cpu` keeps for the link emulator; '-' without it",
        lambda facts, outcome: facts.links_cpu,
    ),
)
