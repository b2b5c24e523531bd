"""The columns of the CSV: one table from which rows, their reading and the documentation follow.

``results/README.md`` has the table as text, between its markers; a test writes it with --snapshot-update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from containernet_env.model.link import LinkSpec
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.run_facts import RunFacts
from containernet_env.model.scenario import Scenario
from containernet_env.results.column import Column, Role, Value
from containernet_env.results.event_columns import EVENT_COLUMNS
from containernet_env.results.leader_columns import LEADER_COLUMNS
from containernet_env.results.link_text import (
    bandwidth_mbps,
    delay_ms,
    each_or_one,
    impairments,
    jitter_ms,
    loss_ratio,
    plain,
)
from containernet_env.results.repetition_columns import REPETITION_COLUMNS
from containernet_env.results.rtt_columns import RTT_COLUMNS
from containernet_env.results.search_columns import SEARCH_COLUMNS
from containernet_env.results.usage_columns import USAGE_COLUMNS


def _of_scenario(get: Callable[[Scenario], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return lambda facts, outcome: get(outcome.scheduled.scenario)


def _of_load(get: Callable[[LoadResult], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return lambda facts, outcome: get(outcome.load) if outcome.load is not None else None


def _ours(derive: Callable[[RunFacts, ScenarioOutcome], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    """What is configured of hosts and links; nothing where somebody else runs the cluster."""
    return lambda facts, outcome: None if facts.config.external is not None else derive(facts, outcome)


def _of_links(text: Callable[[LinkSpec], str]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return _ours(lambda facts, outcome: each_or_one([text(node.link) for node in facts.config.nodes]))


def _of_nodes(get: Callable[[RunFacts], list[int | Decimal | None]]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    def derive(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
        return each_or_one(["unlimited" if value is None else plain(value) for value in get(facts)])

    return _ours(derive)


def _requests(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
    return outcome.scheduled.scenario.requests if outcome.load is None else outcome.load.requests


def _consistency(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
    asked = outcome.scheduled.scenario.consistency
    return None if asked is None else facts.consistency.get(asked, asked)


def _written(get: Callable[[Scenario], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return _of_scenario(lambda scenario: get(scenario) if scenario.type != "read" else None)


def _second_tries(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
    puts = outcome.scheduled.scenario.type in ("write", "mixed")
    return outcome.load.second_tries if facts.second_tries and puts and outcome.load is not None else None


def _read(get: Callable[[Scenario], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return _of_scenario(lambda scenario: get(scenario) if scenario.reads else None)


def _open_loop(get: Callable[[LoadResult], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return _of_load(lambda load: get(load) if load.schedule is not None else None)


def _timing(name: str) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return lambda facts, outcome: facts.timing.get(name)


def _microseconds(get: Callable[[ScenarioOutcome], int | None]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    def derive(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
        value_ns = get(outcome)
        return None if value_ns is None else value_ns / 1e3

    return derive


def _seed_percentile(p: str) -> Column:
    meaning = "latency percentile, nearest rank over every answered request"
    if p == "95":
        meaning += "; with up to 19 requests the slowest"
    return Column(f"{p}%", "s", "measured", meaning, _of_load(lambda load: load.percentiles_s.get(p)), 6)


def _percentile(p: str, requests: int) -> Column:
    meaning = f"the same, but '-' where {requests} requests or fewer cannot tell it from the slowest"
    return Column(f"{p}%", "s", "measured", meaning, lambda facts, outcome: outcome.percentile_s(p), 6)


def _service_percentile(p: str) -> Column:
    return Column(
        f"ServiceTime_{p}%_s",
        "s",
        "measured",
        "percentile of the service time, from the actual start; '-' where there are too few requests",
        _open_loop(lambda load: load.service_time_s.get(p)),
        6,
    )


def _words(name: str, role: Role, meaning: str, derive: Callable[[RunFacts, ScenarioOutcome], Value]) -> Column:
    return Column(name, "", role, meaning, derive, number=False)


SEED_PERCENTILES = ("10", "25", "50", "75", "90", "95")

SEED_TABLE = (
    _words(
        "TestType",
        "configured",
        "`write` (put), `read` (range), `mixed` (both) or `txn` (put in a transaction, if the key has its value)",
        _of_scenario(lambda scenario: scenario.type),
    ),
    Column("ClusterSize", "", "configured", "members", lambda facts, outcome: len(facts.config.nodes)),
    Column(
        "RequestCount",
        "",
        "measured",
        "requests in all: as configured, as the schedule of a rate made of the duration, or, for a duration without "
        "a rate, as were sent",
        _requests,
    ),
    Column("ClientCount", "", "configured", "concurrent clients", _of_scenario(lambda scenario: scenario.clients)),
    Column("ConnectionCount", "", "configured", "TCP connections", _of_scenario(lambda scenario: scenario.conns)),
    Column("KeySize", "bytes", "configured", "of what is written", _written(lambda scenario: scenario.key_size)),
    Column("ValueSize", "bytes", "configured", "of what is written", _written(lambda scenario: scenario.val_size)),
    _words(
        "Consistency",
        "configured",
        "`l` linearizable, `s` serializable; `sync+read` of ZooKeeper, which promises less than the former; `stale` "
        "and `default` of Consul; `from N` or `from majority` of replicas, of which so many are asked; `by URL` of "
        "services that are known by URLs, which decide it; not for writes and transactions",
        _consistency,
    ),
    Column(
        "Total", "s", "measured", "from the first request to the last answer", _of_load(lambda load: load.total_s), 6
    ),
    Column(
        "Slowest",
        "s",
        "measured",
        "latency of answered requests: the response time, in an open loop from the intended start",
        _of_load(lambda load: load.slowest_s),
        6,
    ),
    Column("Fastest", "s", "measured", "likewise", _of_load(lambda load: load.fastest_s), 6),
    Column("Average", "s", "measured", "likewise", _of_load(lambda load: load.average_s), 6),
    Column("Stddev", "s", "measured", "likewise", _of_load(lambda load: load.stddev_s), 6),
    Column(
        "Requests/sec",
        "1/s",
        "measured",
        "answered requests / Total; with a duration: those answered within it, divided by it",
        lambda facts, outcome: outcome.requests_per_s,
        4,
    ),
    *(_seed_percentile(p) for p in SEED_PERCENTILES),
)

OUR_TABLE = (
    _percentile("99", 99),
    _percentile("99.9", 999),
    _words("Scenario", "configured", "the scenario's name", _of_scenario(lambda scenario: scenario.name)),
    *REPETITION_COLUMNS,
    _words(
        "Target",
        "configured",
        "`leader`: only the leader was asked; `cluster`: all members in turn; else the member that was asked",
        _of_scenario(lambda scenario: scenario.target),
    ),
    Column(
        "Errors",
        "",
        "measured",
        "requests that failed, empty and wrong answers to reads and those of `Unknown` among them",
        _of_load(lambda load: load.failed),
    ),
    Column(
        "Unknown",
        "",
        "measured",
        "requests that may have happened: no answer in time, or the connection was lost; part of `Errors`",
        _of_load(lambda load: load.unknown),
    ),
    Column(
        "Excluded",
        "",
        "measured",
        "requests in no latency figure: they got no good answer, or were never sent",
        _of_load(lambda load: load.excluded),
    ),
    Column(
        "SecondTries",
        "",
        "measured",
        "writes whose latency has two round trips in it: no request of ZooKeeper writes a key whether or not it "
        "exists, so the other one follows where the first was [the wrong one](../docs/load.md#zookeeper); of "
        "ZooKeeper and zetcd, '-' for other stores",
        _second_tries,
    ),
    _words(
        "Error",
        "measured",
        "why the scenario failed, one line; `interrupted`; `not run: ...`",
        lambda facts, outcome: outcome.error,
    ),
    _words(
        "Valid",
        "measured",
        "whether the figures are those of the store under what was configured: `yes`, `no`, or `unknown` where nobody "
        "can tell; [what decides it](../docs/fidelity.md)",
        lambda facts, outcome: outcome.verdict.valid if outcome.verdict else None,
    ),
    _words(
        "Reasons",
        "measured",
        "the kinds of findings that are why it is not `yes`, the worst first: `links_paused;few_answers`",
        lambda facts, outcome: ";".join(outcome.verdict.reasons) or None if outcome.verdict else None,
    ),
    _words(
        "Advice",
        "measured",
        "what would make the figures valid on this machine, as `check` says it: clients, rate, cores, CPU limits; '-' "
        "where they are valid or nothing is known to help",
        lambda facts, outcome: outcome.advice,
    ),
    *LEADER_COLUMNS,
    *EVENT_COLUMNS,
    Column(
        "Drain_s",
        "s",
        "measured",
        "of `Total`, from the end of the duration to the last answer; '-' for a number of requests",
        _of_load(lambda load: load.drain_s),
        6,
    ),
    Column(
        "LoadSeed",
        "",
        "configured",
        "what schedule, order of keys and kinds of requests were drawn from: the scenario's `seed`, and one more with "
        "each repetition; '-' in a search, whose probes have seeds of their own",
        lambda facts, outcome: outcome.scheduled.load_seed if outcome.scheduled.scenario.search is None else None,
    ),
    Column(
        "OfferedRate_per_s",
        "1/s",
        "configured",
        "requests/s of an open loop's schedule; '-' in a closed loop, and in a search, which chooses it",
        _of_scenario(lambda scenario: scenario.rate),
        4,
    ),
    Column(
        "AchievedRate_per_s",
        "1/s",
        "measured",
        "requests/s that were started, over the schedule's time; '-' in a closed loop, as in the columns to "
        "`ServiceTime_99.9%_s`",
        _open_loop(lambda load: load.rate_achieved_per_s),
        4,
    ),
    Column(
        "Unsent",
        "",
        "measured",
        "requests that were due by the schedule and never sent",
        _open_loop(lambda load: load.unsent),
    ),
    _words(
        "FellBehind",
        "measured",
        "`yes`: requests started more than 10 ms late, or never. That is no error: latency counts from the intended "
        "start",
        _open_loop(lambda load: load.schedule.fell_behind if load.schedule else None),
    ),
    Column(
        "GeneratorLate",
        "",
        "measured",
        "requests that started more than 10 ms late because the generator itself was busy or held up: such a row is "
        "not about the store",
        _open_loop(lambda load: load.schedule.generator_late if load.schedule else None),
    ),
    *(_service_percentile(p) for p in ("50", "95", "99", "99.9")),
    *SEARCH_COLUMNS,
    _words(
        "ReadSpan",
        "configured",
        "what one read requests: `1 key`; `100 keys` of the data set in a row, fewer at its end; `prefix 00`: all "
        "keys that start with it; `0010 to 0020`: all keys between, the latter not included",
        _read(lambda scenario: scenario.span.shown),
    ),
    Column(
        "ReadLimit",
        "",
        "configured",
        "the most keys that an answer is to hold; '-' without a limit",
        _read(lambda scenario: scenario.span.limit),
    ),
    _words(
        "ReadAnswer",
        "configured",
        "what an answer is to hold: `values` with their keys, `keys` alone, or only their `count`",
        _read(lambda scenario: scenario.span.answer),
    ),
    _words(
        "LinkDelay_ms",
        "configured",
        "of the members' links, one way: one value if all are equal, else `a;b;c` in config order; `to/from` the "
        "switch where a link's directions differ",
        _of_links(delay_ms),
    ),
    _words(
        "Bandwidth_mbps",
        "configured",
        "in the same form, or `unlimited`; with `overhead` where a frame takes so many bytes besides its own, and with "
        "`uplink` where that is configured",
        _of_links(bandwidth_mbps),
    ),
    _words(
        "LinkJitter_ms",
        "configured",
        "in the same form: `0`, or `uniform` or `normal` with the value, `correlation` where it is configured, and "
        "`reordering` where frames may overtake each other",
        _of_links(jitter_ms),
    ),
    _words(
        "LinkLoss_ratio",
        "configured",
        "in the same form: the share of frames that is lost, and `in bursts` where not each by itself",
        _of_links(loss_ratio),
    ),
    _words(
        "Cpus",
        "configured",
        "CPU limit of the members, in the same form; `unlimited`",
        _of_nodes(lambda facts: [node.cpus for node in facts.config.nodes]),
    ),
    _words(
        "Memory_bytes",
        "configured",
        "memory limit of the members, in the same form; `unlimited`",
        _of_nodes(lambda facts: [node.memory_bytes for node in facts.config.nodes]),
    ),
    _words(
        "ClientLink",
        "configured",
        "the client's link: delay in ms, bandwidth in Mbit/s, jitter and loss where it has them",
        _ours(lambda facts, outcome: impairments(facts.config.client.link)),
    ),
    _words(
        "ClientCpus",
        "configured",
        "CPU limit of the client; `unlimited`",
        _of_nodes(lambda facts: [facts.config.client.cpus]),
    ),
    _words(
        "ClientMemory_bytes",
        "configured",
        "memory limit of the client; `unlimited`",
        _of_nodes(lambda facts: [facts.config.client.memory_bytes]),
    ),
    Column("Heartbeat_ms", "ms", "configured", "the store's heartbeat interval", _timing("heartbeat_ms")),
    Column("ElectionTimeout_ms", "ms", "configured", "the store's election timeout", _timing("election_ms")),
    _words(
        "Data",
        "configured",
        "where the members keep their data: `disk` or `tmpfs`",
        _ours(lambda facts, outcome: facts.config.etcd.data),
    ),
    _words(
        "CongestionControl",
        "configured",
        "TCP congestion control of every host, read back from a socket",
        lambda facts, outcome: facts.congestion_control,
    ),
    *RTT_COLUMNS,
    _words(
        "Realtime",
        "run",
        "`yes`, `no`: whether the link emulator got the real-time priority that it asks for; '-' where the kernel "
        "carries the links",
        lambda facts, outcome: facts.realtime,
    ),
    _words(
        "LinkStamps",
        "run",
        "when a frame came from its host: as the `kernel` stamped it, or when the link emulator `read` it; '-' where "
        "the kernel carries the links",
        lambda facts, outcome: outcome.network.stamps if outcome.network else None,
    ),
    Column(
        "LinkSeed",
        "",
        "run",
        "what losses and jitter were drawn from, where the config gives no seed; `--seed` with it repeats the draws",
        lambda facts, outcome: facts.seed,
    ),
    Column(
        "LinkLateness_99%_us",
        "us",
        "measured",
        "99th percentile, over all frames of the scenario and all links, of how long after its time a frame reached "
        "its host; '-' where the kernel carries the links, which does not tell",
        _microseconds(lambda outcome: outcome.network.lateness_p99_ns if outcome.network else None),
        1,
    ),
    _words(
        "Hosts",
        "configured",
        "`docker`; `containernet`: those of the original Containernet; `external`: [somebody else's](../docs/real-"
        "clusters.md)",
        lambda facts, outcome: facts.hosts,
    ),
    _words(
        "Links",
        "configured",
        "what carries the links: `emulator`, `netem`; `tclink`: HTB and netem as the original sets them",
        _ours(lambda facts, outcome: facts.links),
    ),
    _words("Store", "configured", "what is measured", lambda facts, outcome: facts.store),
    _words("StoreVersion", "configured", "the members' own version", lambda facts, outcome: facts.store_version),
    _words("Config", "run", "the topology file's name", lambda facts, outcome: facts.config.path.name),
    _words(
        "ConfigHash",
        "configured",
        "of everything configured but the load: equal where hosts, links, store and their settings are equal, "
        "however the file is written; what carries the links is in `Links` alone",
        lambda facts, outcome: facts.config_hash,
    ),
    _words(
        "ScenarioHash",
        "configured",
        "of the scenario and its data set, likewise",
        lambda facts, outcome: outcome.scheduled.identity,
    ),
    *USAGE_COLUMNS,
    Column(
        "OtherLabs",
        "",
        "run",
        "testbeds of `containernet-env shell` that were up on the machine when the run began: more than 0 disturbs",
        lambda facts, outcome: facts.labs,
    ),
    _words(
        "Machine",
        "run",
        "the name of the machine; of a [sweep on several](../docs/sweeps.md#on-several-machines), which one it was",
        lambda facts, outcome: facts.machine,
    ),
    _words("CpuModel", "run", "the machine's", lambda facts, outcome: facts.cpu_model),
    Column("Cores", "", "run", "the machine's", lambda facts, outcome: facts.cores),
    _words("Kernel", "run", "the release of the machine's kernel", lambda facts, outcome: facts.kernel),
    _words("Commit", "run", "of the program that measured", lambda facts, outcome: facts.commit),
    _words("RunId", "run", "the run; its directory has that name", lambda facts, outcome: facts.run_id),
    _words("Timestamp", "run", "when the scenario began, UTC", lambda facts, outcome: outcome.began),
)

TABLE = (*SEED_TABLE, *OUR_TABLE)
BY_NAME: Mapping[str, Column] = {column.name: column for column in TABLE}
COLUMNS = tuple(column.name for column in TABLE)
SEED_COLUMNS = tuple(column.name for column in SEED_TABLE)


def row_of(facts: RunFacts, outcome: ScenarioOutcome) -> dict[str, str]:
    """The whole row of an outcome, in column order."""
    return {column.name: column.text(facts, outcome) for column in TABLE}


def as_markdown() -> str:
    """The table of columns for results/README.md."""
    lines = ["| column | unit | holds |", "| --- | --- | --- |"]
    lines += [f"| {column.name} | {column.unit} | {column.meaning} |" for column in TABLE]
    return "\n".join(lines) + "\n"
