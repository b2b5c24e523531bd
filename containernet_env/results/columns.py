"""The columns of the CSV: one table from which rows, their reading and the documentation follow.

``results/README.md`` has the table as text, between its markers; a test writes it with --snapshot-update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from containernet_env.model.link import DirectionSpec, IndependentLoss, LinkSpec
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import RunFacts, ScenarioOutcome
from containernet_env.model.scenario import Scenario
from containernet_env.model.search import SearchResult
from containernet_env.model.usage import Usage

NOT_APPLICABLE = "-"

Value = str | int | float | Decimal | bool | None
Role = Literal["configured", "derived", "measured", "run"]
"""``configured``: chosen by the user, or derived if left open. ``derived``: always follows from others. ``measured``:
the outcome. ``run``: which run, when, on which machine."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``digits`` after the point make its text; ``None`` for words and counts.

    ``derive`` gives the value for a row, ``None`` if the column does not apply or nothing was measured.
    """

    name: str
    unit: str
    role: Role
    meaning: str
    derive: Callable[[RunFacts, ScenarioOutcome], Value]
    digits: int | None = None
    number: bool = True

    def text(self, facts: RunFacts, outcome: ScenarioOutcome) -> str:
        """The value of a row in this column, on one line."""
        value = self.derive(facts, outcome)
        if value is None:
            return NOT_APPLICABLE
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.digits is not None:
            return f"{value:.{self.digits}f}"
        return " ".join(str(value).split()) or NOT_APPLICABLE


def plain(value: Decimal | int) -> str:
    """Plain decimal text without trailing zeros: "3", "0.5", "1000"."""
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def each_or_one(values: Sequence[str]) -> str:
    """One value where all are equal, else all of them in order, separated by semicolons."""
    return values[0] if len(set(values)) == 1 else ";".join(values)


def _both_ways(link: LinkSpec, text: Callable[[DirectionSpec], str]) -> str:
    """One value where both directions agree, else that to the switch, a slash, and that from it."""
    to_switch, from_switch = text(link.a_to_b), text(link.b_to_a)
    return to_switch if to_switch == from_switch else f"{to_switch}/{from_switch}"


def delay_ms(link: LinkSpec) -> str:
    """One-way delays."""
    return _both_ways(link, lambda direction: plain(Decimal(direction.delay_ns) / 1_000_000))


def _rate(direction: DirectionSpec) -> str:
    return "unlimited" if direction.rate_bps is None else plain(Decimal(direction.rate_bps) / 1_000_000)


def _counted(direction: DirectionSpec) -> str:
    """How frames take their turn at the rate, where it is configured."""
    overhead = f" overhead {direction.overhead_bytes}" if direction.overhead_bytes else ""
    return overhead + (f" uplink {direction.uplink}" if direction.uplink is not None else "")


def bandwidth_mbps(link: LinkSpec) -> str:
    """Rates, with the overhead of a frame besides its bytes and the place where it waits; "unlimited" without a
    limit."""
    return _both_ways(link, lambda direction: _rate(direction) + _counted(direction))


def _jitter(direction: DirectionSpec) -> str:
    jitter = direction.jitter
    if jitter is None:
        return "0"
    value = f"{jitter.distribution} {plain(Decimal(jitter.ns) / 1_000_000)}"
    if jitter.correlation_ns is not None:
        value += f" correlation {plain(Decimal(jitter.correlation_ns) / 1_000_000)}"
    return f"{value} reordering" if jitter.reorder else value


def jitter_ms(link: LinkSpec) -> str:
    """Distribution and value of the jitter; "0" where there is none."""
    return _both_ways(link, _jitter)


def _loss(direction: DirectionSpec) -> str:
    loss = direction.loss
    if loss is None:
        return "0"
    ratio = plain(Decimal(f"{loss.mean_ratio:.6g}"))
    return ratio if isinstance(loss, IndependentLoss) else f"{ratio} in bursts"


def loss_ratio(link: LinkSpec) -> str:
    """Share of frames that are to be lost."""
    return _both_ways(link, _loss)


def impairments(link: LinkSpec) -> str:
    """All of a link in a few words, such as "3 ms 1000 Mbit/s" or "0 ms unlimited, loss 0.01"."""
    rate = _both_ways(link, _rate)
    words = f"{delay_ms(link)} ms {rate if rate == 'unlimited' else f'{rate} Mbit/s'}{_both_ways(link, _counted)}"
    for name, value in (("jitter", jitter_ms(link)), ("loss", loss_ratio(link))):
        words += f", {name} {value}" if value != "0" else ""
    return words


def first_successes_s(outcome: ScenarioOutcome) -> list[float | None]:
    """For each thing that an event did, in order, how long after it the first request succeeded."""
    done, load = outcome.disruptions, outcome.load
    times = [item.since_start_ns for item in done.executed if item.strikes] if done is not None else []
    return [None if load is None or at_ns is None else load.first_success_s(at_ns / 1e9) for at_ns in times]


def _first_successes(outcome: ScenarioOutcome) -> Value:
    found = first_successes_s(outcome)
    return ";".join("-" if value is None else f"{value:.3f}" for value in found) or None


EVENT_COLUMNS = (
    Column(
        "Events",
        "",
        "configured",
        "[what is done to members and their links](../docs/events.md) while the load runs; '-' where nothing is",
        lambda facts, outcome: "; ".join(event.text for event in outcome.scheduled.scenario.events) or None,
        number=False,
    ),
    Column(
        "EventsDone",
        "",
        "measured",
        "what of that happened to whom and when, after the start of the load; disruptions.jsonl has all of it",
        lambda facts, outcome: outcome.disruptions.text or None if outcome.disruptions else None,
        number=False,
    ),
    Column(
        "EventSeed",
        "",
        "run",
        "what `random` members were drawn from: the run's seed with scenario, repetition and attempt",
        lambda facts, outcome: outcome.disruptions.seed if outcome.disruptions else None,
        number=False,
    ),
    Column(
        "LongestGap_s",
        "s",
        "measured",
        "the longest time in which no request succeeded",
        lambda facts, outcome: outcome.load.longest_gap_s if outcome.load else None,
        6,
    ),
    Column(
        "FirstSuccess_s",
        "s",
        "measured",
        "for each thing that events did, in order: how long after it the first request succeeded, `a;b;c`; requests "
        "that were under way may succeed after it",
        lambda facts, outcome: _first_successes(outcome),
        number=False,
    ),
)


LEADER_COLUMNS = (
    Column(
        "Leader",
        "",
        "measured",
        "who led when the scenario ended; `etcd1>etcd3` where another one did at its start",
        lambda facts, outcome: outcome.leader,
        number=False,
    ),
    Column(
        "LeaderAtStart",
        "",
        "measured",
        "who led when it began; where the topology names a leader, every living member agreed",
        lambda facts, outcome: outcome.leader_at_start,
        number=False,
    ),
    Column(
        "TermAtStart",
        "",
        "measured",
        "the term of that leadership: every election begins a new one; '-' where the store has no leader",
        lambda facts, outcome: outcome.term_at_start,
    ),
    Column(
        "TermAtEnd",
        "",
        "measured",
        "the term when it ended: a larger one means an election, also where the same member leads",
        lambda facts, outcome: outcome.term_at_end,
    ),
    Column(
        "LeaderConfigured",
        "",
        "configured",
        "who is made the leader before every scenario; '-' leaves that to elections",
        lambda facts, outcome: facts.config.etcd.leader,
        number=False,
    ),
    Column(
        "Floor_50%_s",
        "s",
        "measured",
        "[the least median latency](../docs/floor.md) that links, disks and the store's protocol allow under that "
        "leader, in an unloaded system; '-' where it is not known, as where the leader changed",
        lambda facts, outcome: outcome.floor_s,
        6,
    ),
    Column(
        "AboveFloor_50%_s",
        "s",
        "measured",
        "what is left of the median (`50%`) above it: CPU time, waiting, windows of TCP and HTTP/2, losses",
        lambda facts, outcome: outcome.above_floor_s,
        6,
    ),
)


REPETITION_COLUMNS = (
    Column(
        "Repetition",
        "",
        "run",
        "which of `--repeat`; in a sweep, which block",
        lambda facts, outcome: outcome.scheduled.repetition,
    ),
    Column(
        "Cluster",
        "",
        "run",
        "the number of the cluster within the run: rows with the same one share it; `--fresh` makes one for each "
        "repetition; '-' where the scenario was not run",
        lambda facts, outcome: outcome.cluster,
    ),
    Column(
        "Reused",
        "",
        "run",
        "what the scenario found from before it: `nothing`, all was brought up for it; `cluster`, hosts, links and the "
        "members with what scenarios before it had written; `cluster;new-limits`, `cluster;new-links`, "
        "`cluster;new-limits;new-links`, the same, on which CPU limits, links or both were changed just before it "
        "(sweeps); '-' where it was not run",
        lambda facts, outcome: outcome.reused,
        number=False,
    ),
    Column(
        "Attempt",
        "",
        "run",
        "which one of this repetition: with `--retry-invalid` it is measured again where `Valid` is not `yes`",
        lambda facts, outcome: outcome.scheduled.attempt,
    ),
)


def _measured_ms(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
    if outcome.client_rtts:
        return max(rtt.median_ns for rtt in outcome.client_rtts.values()) / 1e6
    return None if facts.rtt_measured_ns is None else facts.rtt_measured_ns / 1e6


def _proof(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
    if outcome.client_rtts:
        medians = ";".join(f"{rtt.median_ns / 1e6:.3f}" for rtt in outcome.client_rtts.values())
        samples = min(rtt.samples for rtt in outcome.client_rtts.values())
        return f"RTT {medians} ms: medians of {samples} each"
    return facts.network.text if facts.network is not None else None


RTT_COLUMNS = (
    Column(
        "RttExpected_ms",
        "ms",
        "derived",
        "of the member pair with the largest expected RTT: what the links make of it",
        lambda facts, outcome: facts.rtt.expected_ns / 1e6 if facts.rtt else None,
        3,
    ),
    Column(
        "RttMeasured_ms",
        "ms",
        "measured",
        "of the same pair: the medians of both ways, measured before the cluster started, together; of a cluster that "
        "somebody else runs the largest median RTT from the client to an endpoint, around the scenario",
        _measured_ms,
        3,
    ),
    Column(
        "NetworkProof",
        "",
        "run",
        "what was measured of the network before the scenario ([how](../docs/fidelity.md)): `proved`, all as "
        "configured; `unproved: loss of etcd1>s1 (0.1 %)`, the rest is: the samples cannot tell what is named; of a "
        "cluster that somebody else runs `RTT 0.201;0.312 ms: medians of 20 each`: how long TCP connections to each "
        "endpoint took to open, right before and after the scenario",
        _proof,
        number=False,
    ),
)


def _of_search(get: Callable[[SearchResult], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return lambda facts, outcome: get(outcome.search) if outcome.search is not None else None


def _objective(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
    search = outcome.scheduled.scenario.search
    return None if search is None else search.text


SEARCH_COLUMNS = (
    Column(
        "SearchObjective",
        "",
        "configured",
        "the response times that a [search](../docs/load.md#saturation-search) wants held: `p99<=50ms`, several joined "
        "by `;`; '-' for all other loads, as in the columns to `SearchProbes`",
        _objective,
        number=False,
    ),
    Column(
        "SearchRate_per_s",
        "1/s",
        "measured",
        "the highest rate at which they held, whose figures the row has; '-' where `SearchEnd` is not `found`",
        _of_search(lambda search: search.rate_per_s),
        4,
    ),
    Column(
        "SearchLow_per_s",
        "1/s",
        "measured",
        "lower end of its interval: the highest rate at which they held in all repeats; '-' for none",
        _of_search(lambda search: search.low_per_s),
        4,
    ),
    Column(
        "SearchHigh_per_s",
        "1/s",
        "measured",
        "upper end: the least rate above it at which they held in none; '-' where there is none",
        _of_search(lambda search: search.high_per_s),
        4,
    ),
    Column(
        "SearchEnd",
        "",
        "measured",
        "`found`, or why there is no rate: `from`, they did not hold at the lowest one; `to`, they were not missed at "
        "the highest one; `generator` or `machine`, which were the limit above the lower end; `noise`, probes "
        "contradicted each other; `ended`, see `Error`",
        _of_search(lambda search: search.end),
        number=False,
    ),
    Column(
        "SearchProbes",
        "",
        "measured",
        "how many loads the search measured; each is in probes.jsonl",
        _of_search(lambda search: len(search.probes)),
    ),
)


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


def _of_scenario(get: Callable[[Scenario], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return lambda facts, outcome: get(outcome.scheduled.scenario)


def _ours(derive: Callable[[RunFacts, ScenarioOutcome], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    """The configuration of hosts and links; nothing for an external cluster."""
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
