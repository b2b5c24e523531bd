"""The columns of the CSV: one table from which rows, their reading and the documentation follow.

``results/README.md`` has the table as text, between its markers; a test writes it with --snapshot-update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, cast

from containernet_env.base.units import format_mbps, format_number
from containernet_env.config.plan import Plan
from containernet_env.model.link import DirectionSpec, GilbertElliottLoss, LinkSpec
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import NetworkProof
from containernet_env.results.run_files import Manifest

NOT_APPLICABLE = "-"

_TABLE = """\
TestType            configured scenario.type                words
    `write` (put), `read` (range), `mixed` (both) or `txn` (put in a transaction, if the key has its value)
ClusterSize         configured members                      count
    members
RequestCount        measured   requests                     count
    requests in all: as configured, as the schedule of a rate made of the duration, or, for a duration without a
    rate, as were sent
ClientCount         configured scenario.clients             count
    concurrent clients
ConnectionCount     configured scenario.conns               count
    TCP connections
KeySize             configured written.key_size             count bytes
    of what is written
ValueSize           configured written.val_size             count bytes
    of what is written
Consistency         configured consistency                  words
    `l` linearizable, `s` serializable; `sync+read` of ZooKeeper, which promises less than the former; `stale` and
    `default` of Consul; `from N` or `from majority` of replicas, of which so many are read; `by URL` of services
    that are known by URLs, which decide it; not for writes and transactions
Total               measured   load.total_s                 .6 s
    from the first request to the last answer
Slowest             measured   load.slowest_s               .6 s
    latency of answered requests: the response time, in an open loop from the intended start
Fastest             measured   load.fastest_s               .6 s
    likewise
Average             measured   load.average_s               .6 s
    likewise
Stddev              measured   load.stddev_s                .6 s
    likewise
Requests/sec        measured   outcome.requests_per_s       .4 1/s
    answered requests / Total; with a duration: those answered within it, also of the warm-up, divided by it. Without a
    warm-up that is [too low](../docs/load.md#throughput-within-a-duration) by about latency / duration; a warm-up of at
    least the latency removes it
*%=10,25,50,75,90   measured   load.percentiles_s.*         .6 s
    latency percentile, nearest rank over every answered request
95%                 measured   load.percentiles_s.95        .6 s
    latency percentile, nearest rank over every answered request; with up to 19 requests the slowest
99%                 measured   load.response_time_s.99      .6 s
    the same, but '-' where 99 requests or fewer cannot distinguish it from the slowest
99.9%               measured   load.response_time_s.99.9    .6 s
    the same, but '-' where 999 requests or fewer cannot distinguish it from the slowest
Scenario            configured scenario.name                words
    the scenario's name
Repetition          run        outcome.scheduled.repetition count
    which of `--repeat`; in a sweep, which block
Cluster             run        outcome.cluster              count
    the number of the cluster within the run: rows with the same one share it; `--fresh` makes one for each
    repetition; '-' where the scenario was not run
Reused              run        outcome.reused               words
    what the scenario found from before it: `nothing`, all was brought up for it; `cluster`, hosts, links and the
    members with what scenarios before it had written; `cluster;new-limits`, `cluster;new-links`,
    `cluster;new-limits;new-links`, the same, on which CPU limits, links or both were changed just before it
    (sweeps); '-' where it was not run
Attempt             run        outcome.scheduled.attempt    count
    which one of this repetition: with `--retry-invalid` it is measured again where `Valid` is not `yes`
Target              configured scenario.target              words
    where requests went: `leader`, to the leader alone; `cluster`, to all members in turn; else to the member named
Errors              measured   load.failed                  count
    requests that failed: empty and wrong answers to reads are among them, and `Unknown` but for what an early end of
    the load cut off
Unknown             measured   load.unknown                 count
    requests that may have happened: no answer in time, or the connection was lost, both also in `Errors`; or an
    early end of the load cut them off
Excluded            measured   load.excluded                count
    requests in no latency figure: they got no good answer, or were never sent
SecondTries         measured   second_tries                 count
    writes whose latency has two round trips in it: no request of ZooKeeper writes a key whether or not it exists,
    so the other one follows where the first was [the wrong one](../docs/load.md#zookeeper); of ZooKeeper and zetcd,
    '-' for other stores
Error               measured   outcome.error                words
    why the scenario failed, one line; `interrupted`; `not run: ...`
Valid               measured   outcome.verdict.valid        words
    whether the figures are those of the store under what was configured: `yes`, `no`, or `unknown` where that
    cannot be determined; [what decides it](../docs/fidelity.md)
Reasons             measured   reasons                      words
    the kinds of findings that are why it is not `yes`, the worst first: `links_paused;few_answers`
Advice              measured   outcome.advice               words
    what would make the figures valid on this machine, as `check` says it: clients, rate, cores, CPU limits; '-'
    where they are valid or nothing is known to help
Leader              measured   outcome.leader               words
    who led when the scenario ended; `etcd1>etcd3` where another one did at its start
LeaderAtStart       measured   outcome.leader_at_start      words
    who led when it began; where the topology names a leader, every living member agreed
TermAtStart         measured   outcome.term_at_start        count
    the term of that leadership: every election begins a new one; '-' where the store has no leader
TermAtEnd           measured   outcome.term_at_end          count
    the term when it ended: a larger one means an election, also where the same member leads
LeaderConfigured    configured config.etcd.leader           words
    who is made the leader before every scenario; '-' leaves that to elections
Floor_50%_s         measured   outcome.floor_s              .6 s
    [the least median latency](../docs/floor.md) that links, disks and the store's protocol allow under that leader,
    in an unloaded system; '-' where it is not known, as where the leader changed
AboveFloor_50%_s    measured   outcome.above_floor_s        .6 s
    what is left of the median (`50%`) above it: CPU time, waiting, windows of TCP and HTTP/2, losses
Events              configured events                       words
    [what is done to members and their links](../docs/events.md) while the load runs; '-' where nothing is
EventsDone          measured   outcome.disruptions.text     words
    what of that happened to whom and when, after the start of the load; disruptions.jsonl has all of it
EventSeed           run        outcome.disruptions.seed     words
    what `random` members were drawn from: the run's seed with scenario, repetition and attempt
LongestGap_s        measured   load.longest_gap_s           .6 s
    the longest time in which no request succeeded; '-' of several clients together, of which it is not known
FirstSuccess_s      measured   first_successes              words s
    for each thing that events did, in order: how long after it the first request succeeded, `a;b;c`; requests that
    were under way may succeed after it
Drain_s             measured   load.drain_s                 .6 s
    of `Total`, from the end of the duration to the last answer; '-' for a number of requests
LoadSeed            configured load_seed                    count
    what schedule, order of keys and kinds of requests were drawn from: the scenario's `seed`, and one more with
    each repetition; '-' in a search, whose probes have seeds of their own
OfferedRate_per_s   configured scenario.rate                .4 1/s
    requests/s of an open loop's schedule; '-' in a closed loop, and in a search, which chooses it
AchievedRate_per_s  measured   open_loop.rate_achieved_per_s .4 1/s
    requests/s that were started, over the schedule's time; a Poisson schedule has by chance more or fewer than
    offered; '-' in a closed loop, as in the columns to `ServiceTime_99.9%_s`
Unsent              measured   open_loop.unsent             count
    requests that were due by the schedule and never sent
FellBehind          measured   open_loop.schedule.fell_behind words
    `yes`: requests started more than 10 ms late, or never. That is no error: latency counts from the intended start
GeneratorLate       measured   open_loop.schedule.generator_late count
    requests that started more than 10 ms late because the generator itself was busy or held up: such a row is not
    about the store
ServiceTime_*%_s=50,95,99,99.9 measured open_loop.service_time_s.* .6 s
    percentile of the service time, from the actual start; '-' where there are too few requests
SearchObjective     configured scenario.search.text         words
    the response times that a [search](../docs/load.md#saturation-search) wants held: `p99<=50ms`, several joined by
    `;`; '-' for all other loads, as in the columns to `SearchProbes`
SearchRate_per_s    measured   outcome.search.rate_per_s    .4 1/s
    the highest rate at which they held, whose figures the row has; '-' where `SearchEnd` is not `found`
SearchLow_per_s     measured   outcome.search.low_per_s     .4 1/s
    lower end of its interval: the highest rate at which they held in all repeats; '-' for none
SearchHigh_per_s    measured   outcome.search.high_per_s    .4 1/s
    upper end: the least rate above it at which they held in none; '-' where there is none
SearchEnd           measured   outcome.search.end           words
    `found`, or why there is no rate: `from`, they did not hold at the lowest one; `to`, they were not missed at the
    highest one; `generator` or `machine`, which were the limit above the lower end; `noise`, probes contradicted
    each other; `ended`, see `Error`
SearchProbes        measured   probes                       count
    how many loads the search measured; each is in probes.jsonl
ReadSpan            configured read.span.shown              words
    what one read requests: `1 key`; `100 keys` of the data set in a row, fewer at its end; `prefix 00`: all keys
    that start with it; `0010 to 0020`: all keys between, the latter not included
ReadLimit           configured read.span.limit              count
    the most keys that an answer is to hold; '-' without a limit
ReadAnswer          configured read.span.answer             words
    what an answer is to hold: `values` with their keys, `keys` alone, or only their `count`
LinkDelay_ms        configured testbed.delay_ms             words
    of the members' links, one way: one value if all are equal, else `a;b;c` in config order; `to/from` the switch
    where a link's directions differ
Bandwidth_mbps      configured testbed.bandwidth_mbps       words
    in the same form, or `unlimited`; with `overhead` where a frame takes so many bytes besides its own, and with
    `uplink` and the queue discipline where they are configured
LinkJitter_ms       configured testbed.jitter_ms            words
    in the same form: `0`, or `uniform` or `normal` with the value, `correlation` where it is configured, and
    `reordering` where frames may overtake each other
LinkLoss_ratio      configured testbed.loss_ratio           words
    in the same form: the share of frames that is lost, and `in bursts` where not each by itself; `duplication` and
    `corruption` where they are configured
Cpus                configured testbed.cpus                 words
    CPU limit of the members, in the same form; `unlimited`
Memory_bytes        configured testbed.memory_bytes         words
    memory limit of the members, in the same form; `unlimited`
Fsync_ms            configured testbed.fsync_ms             words
    how long an fsync on the members' data takes, in the same form; `-`: as long as the disk takes
ClientLink          configured testbed.client_link          words
    the client's link: delay in ms, bandwidth in Mbit/s, jitter and loss where it has them; of several clients together
    one value if all are equal, else `a;b;c`
ClientCpus          configured testbed.client_cpus          words
    CPU limit of the client, in the same form; `unlimited`
ClientMemory_bytes  configured testbed.client_memory_bytes  words
    memory limit of the client, in the same form; `unlimited`
Heartbeat_ms        configured plan.timing.values.heartbeat_ms count ms
    the store's heartbeat interval
ElectionTimeout_ms  configured plan.timing.values.election_ms count ms
    the store's election timeout
Data                configured testbed.data                 words
    where the members keep their data: `disk` or `tmpfs`
CongestionControl   configured congestion_control           words
    TCP congestion control of every host, read back from a socket
RttExpected_ms      derived    rtt_expected_ms              .3 ms
    of the member pair with the largest expected RTT: what the links make of it
RttMeasured_ms      measured   rtt_measured_ms              .3 ms
    of the same pair: the medians of both ways, measured before the cluster started, together; of an external
    cluster the largest median RTT from the client to an endpoint, around the scenario
NetworkProof        run        network_proof                words
    what was measured of the network before the scenario ([how](../docs/fidelity.md)): `proved`, all as configured;
    `unproved: loss of etcd1>s1 (0.1 %)`, the rest is: the samples cannot show what is named; of an external cluster
    `RTT 0.201;0.312 ms: medians of 20 each`: how long TCP connections to each endpoint took to open, right before
    and after the scenario
Realtime            run        manifest.links.link_emulator.realtime words
    `yes`, `no`: whether the link emulator got the real-time priority that it requests; '-' where the kernel carries
    the links
LinkStamps          run        outcome.network.stamps       words
    when a frame came from its host: as the `kernel` stamped it, or when the link emulator `read` it; '-' where the
    kernel carries the links
LinkSeed            run        link_seed                    count
    what losses and jitter were drawn from, where the config gives no seed; `--seed` with it repeats the draws
LinkLateness_99%_us measured   lateness_us                  .1 us
    99th percentile, over all frames of the scenario and all links, of how long after its time a frame reached its
    host; '-' where the kernel carries the links, which does not report it
Hosts               configured facts.hosts                  words
    `docker`; `containernet`: those of the original Containernet; `external`: [an external
    cluster](../docs/real-clusters.md)
Links               configured testbed.links                words
    what carries the links: `emulator`, `netem`; `tclink`: HTB and netem as the original sets them
Store               configured plan.store.name              words
    what is measured
StoreVersion        configured manifest.store.version       words
    the members' own version
Config              run        config.path.name             words
    the topology file's name
ConfigHash          configured manifest.config_hash         words
    of everything configured but the load: equal where hosts, links, store and their settings are equal, however the
    file is written; what carries the links is in `Links` alone
ScenarioHash        configured outcome.scheduled.identity   words
    of the scenario and its data set, likewise
ClusterCpu_cores    measured   outcome.machine.cluster_cores .3 cores
    CPU time that all members took, per second from right before the benchmark was sent to right after its answer:
    connecting, the warm-up and the generator's report included
LinksCpu_cores      measured   outcome.machine.links_cores  .3 cores
    the same of the link emulator, in which the hosts' network stacks take the frames that it brings; '-' where the
    kernel carries the links
ClientCpu_cores     measured   outcome.machine.client_cores .3 cores
    the same of the client's host
Steal_cores         measured   outcome.machine.steal_cores  .3 cores
    the same of what a hypervisor took from this machine
ClientThrottled_s   measured   throttled_s                  .3 s
    for how long the client's host was stopped by its own CPU limit, all cores together
GeneratorBusy_ratio measured   load.busy_ratio              .4 ratio
    share of `Total` in which the load generator did not wait for the members: near 1 it was itself the limit
GeneratorPauses     measured   load.pauses                  count
    how often the load generator did not run for more than 10 ms although it had something to do: it was stopped, or
    the machine was busy
GeneratorPaused_s   measured   load.paused_s                .3 s
    for how long in all
GeneratorWaited_s   measured   load.run_delay_s             .3 s
    for how long its threads were runnable and did not run, all together; '-' where the kernel does not report it
LinksCore           configured manifest.flags.links_cpu     count
    the core that `--links-cpu` keeps for the link emulator; '-' without it
LinkOffload         configured offload                      words
    `yes`: with `--offload`; '-' without it
OtherLabs           run        facts.labs                   count
    testbeds of `containernet-env shell` that were up on the machine when the run began: more than 0 disturbs
Machine             run        facts.machine                words
    the name of the machine; of a [sweep on several](../docs/sweeps.md#on-several-machines), which one it was
CpuModel            run        manifest.machine.cpu_model   words
    the machine's
Cores               run        manifest.machine.cores       count
    the machine's
Kernel              run        manifest.machine.kernel      words
    the release of the machine's kernel
Commit              run        facts.commit                 words
    of the program that measured
RunId               run        facts.run_id                 words
    the run; its directory has that name
Dilation            configured outcome.dilation             count
    how many times slower than real time it ran; all other times and rates of the row are in [emulated
    time](../docs/dilation.md)
WallTime_s          measured   outcome.wall_s               .3 s
    how long the scenario took in real time, the benchmark server's answer included
Client              configured outcome.client               words
    of a topology with [several clients](../docs/scenarios.md#several-clients) the one whose figures these are, or `all`
    of them together; '-' where there is one. Of a scenario that was not run or interrupted there is the row for all
Timestamp           run        outcome.began                words
    when the scenario began, UTC
"""
"""For each column a line with its name, role, source, form and unit, and below it what it holds.

``*`` in name and source stands for each of the words after ``=``: so many columns hold the like.

The source is a path from one of ``_sources``; where anything along it is ``None``, the column does not apply or nothing
was measured. The form is ``words``, ``count``, or ``.N`` for a number with N digits after the point.
"""

Role = Literal["configured", "derived", "measured", "run"]
"""``configured``: chosen by the user, or derived if left open. ``derived``: always follows from others. ``measured``:
the outcome. ``run``: which run, when, on which machine."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column, see ``_TABLE``. ``number``: whether it holds numbers; ``unit`` is "" for words and counts."""

    name: str
    role: Role
    source: str
    form: str
    unit: str
    meaning: str

    @property
    def number(self) -> bool:
        return self.form != "words"

    def text(self, sources: Mapping[str, Any]) -> str:
        """The value of a row in this column, on one line."""
        first, *path = self.source.split(".")
        value = sources[first]
        for place, name in enumerate(path):
            if value is None:
                break
            if isinstance(value, Mapping):
                value = value.get(".".join(path[place:]))  # a percentile: "99.9"
                break
            value = getattr(value, name)
        if value is None:
            return NOT_APPLICABLE
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.form.startswith("."):
            return f"{value:{self.form}f}"
        return " ".join(str(value).split()) or NOT_APPLICABLE


def _columns() -> Iterator[Column]:
    lines = _TABLE.splitlines()
    begins = [place for place, line in enumerate(lines) if not line.startswith(" ")]
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        name, role, source, form, *unit = lines[begin].split()
        name, _, words = name.partition("=")
        meaning = " ".join(map(str.strip, lines[begin + 1 : end]))
        for word in words.split(","):
            named, found = (text.replace("*", word) for text in (name, source))
            yield Column(named, cast("Role", role), found, form, "".join(unit), meaning)


TABLE = tuple(_columns())
BY_NAME: Mapping[str, Column] = {column.name: column for column in TABLE}
COLUMNS = tuple(BY_NAME)
SEED_COLUMNS = COLUMNS[:20]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What all rows of one run share; the manifest is there when the testbed is up.

    ``network`` is what was proved of the network before the scenario, ``rtt_measured_ns`` belongs to the plan's largest
    RTT of two members; ``None`` for a single member. ``hosts`` and ``links`` are the testbed's kinds of them, ``labs``
    is how many other testbeds were up. ``commit`` is the program's, ``machine`` the machine's name.
    """

    run_id: str
    plan: Plan
    manifest: Manifest | None = None
    network: NetworkProof | None = None
    rtt_measured_ns: int | None = None
    hosts: str = "docker"
    links: str = "emulator"
    labs: int = 0
    commit: str | None = None
    machine: str | None = None


def row_of(facts: RunFacts, outcome: ScenarioOutcome) -> dict[str, str]:
    """The whole row of an outcome, in column order."""
    sources = _sources(facts, outcome)
    return {column.name: column.text(sources) for column in TABLE}


def _sources(facts: RunFacts, outcome: ScenarioOutcome) -> dict[str, Any]:
    """Where the values of a row come from, by the first name of their paths."""
    plan, manifest, scenario, load = facts.plan, facts.manifest, outcome.scheduled.scenario.together, outcome.load
    config, terms, rtt = plan.config, plan.store.load_terms, plan.largest_member_rtt
    flags = manifest.flags if manifest is not None else None
    writes = scenario.type in ("write", "mixed")
    throttled_ns = outcome.machine.client_throttled_ns if outcome.machine else None
    lateness_ns = outcome.network.lateness_ns("p99") if outcome.network else None
    return {
        "facts": facts,
        "plan": plan,
        "config": config,
        "manifest": manifest,
        "outcome": outcome,
        "scenario": scenario,
        "load": load,
        "written": scenario if scenario.type != "read" else None,
        "read": scenario if scenario.reads else None,
        "open_loop": load if load and load.schedule else None,
        "testbed": _testbed(facts, outcome) if config.external is None else None,
        "members": len(config.nodes),
        "requests": scenario.requests if load is None else load.requests,
        "consistency": scenario.consistency and plan.store.consistency.get(scenario.consistency, scenario.consistency),
        "second_tries": load.second_tries if load and terms.second_tries and writes else None,
        "load_seed": outcome.scheduled.load_seed if scenario.search is None else None,
        "probes": len(outcome.search.probes) if outcome.search else None,
        "reasons": ";".join(outcome.verdict.reasons) if outcome.verdict else None,
        "events": "; ".join(event.text for event in scenario.events),
        "first_successes": _first_successes(outcome),
        "rtt_expected_ms": rtt.expected_ns / 1e6 if rtt else None,
        "congestion_control": flags.congestion_control if flags and config.external is None else None,
        "offload": "yes" if flags and flags.offload else None,
        "link_seed": flags.seed if flags and facts.links == "emulator" else None,
        **_network(facts, outcome),
        "throttled_s": None if throttled_ns is None else throttled_ns / 1e9,
        "lateness_us": None if lateness_ns is None else lateness_ns / 1e3,
    }


def _testbed(facts: RunFacts, outcome: ScenarioOutcome) -> dict[str, str]:
    """The configuration of hosts and links, which an external cluster has none of."""
    config, scenario = facts.plan.config, outcome.scheduled.scenario
    senders = [part.client for part in scenario.parts or (scenario,)]
    nodes, clients = config.nodes, [client for client in config.clients if client.name in senders] or config.clients
    of_links = ("delay_ms", "bandwidth_mbps", "jitter_ms", "loss_ratio")
    return {
        **{name: each_or_one([link_text(node.link, name) for node in nodes]) for name in of_links},
        "cpus": each_or_one([_limit(node.cpus) for node in nodes]),
        "memory_bytes": each_or_one([_limit(node.memory_bytes) for node in nodes]),
        "fsync_ms": each_or_one(
            ["-" if node.fsync_ns is None else format_number(Decimal(node.fsync_ns).scaleb(-6)) for node in nodes]
        ),
        "client_link": each_or_one([impairments(client.link) for client in clients]),
        "client_cpus": each_or_one([_limit(client.cpus) for client in clients]),
        "client_memory_bytes": each_or_one([_limit(client.memory_bytes) for client in clients]),
        "data": config.etcd.data,
        "links": facts.links,
    }


def _network(facts: RunFacts, outcome: ScenarioOutcome) -> dict[str, float | str | None]:
    """The measured RTT, and what was proved: of an external cluster from what the client measured."""
    if rtts := outcome.client_rtts:
        medians_ms = [rtt.median_ns / 1e6 for rtt in rtts.values()]
        samples = min(rtt.samples for rtt in rtts.values())
        words = f"RTT {';'.join(f'{ms:.3f}' for ms in medians_ms)} ms: medians of {samples} each"
        return {"rtt_measured_ms": max(medians_ms), "network_proof": words}
    measured_ms = None if facts.rtt_measured_ns is None else facts.rtt_measured_ns / 1e6
    return {"rtt_measured_ms": measured_ms, "network_proof": facts.network.text if facts.network else None}


def _first_successes(outcome: ScenarioOutcome) -> str:
    """For each thing that an event did, in order, how long after it the first request succeeded; "" without any."""
    done, load = outcome.disruptions, outcome.load
    times_ns = [item.since_start_ns for item in done.executed if item.strikes] if done is not None else []
    found = [None if load is None or at_ns is None else load.first_success_s(at_ns / 1e9) for at_ns in times_ns]
    return ";".join("-" if value is None else f"{value:.3f}" for value in found)


def _limit(value: Decimal | int | None) -> str:
    return "unlimited" if value is None else format_number(value)


def each_or_one(values: Sequence[str]) -> str:
    """One value where all are equal, else all of them in order, separated by semicolons."""
    return values[0] if len(set(values)) == 1 else ";".join(values)


def link_text(link: LinkSpec, of: str) -> str:
    """A property of a link, by its name in ``_OF_LINKS``.

    One value where both directions agree, else that to the switch, a slash, and that from it.
    """
    to_switch, from_switch = _OF_LINKS[of](link.a_to_b), _OF_LINKS[of](link.b_to_a)
    return to_switch if to_switch == from_switch else f"{to_switch}/{from_switch}"


def impairments(link: LinkSpec) -> str:
    """All of a link in a few words, such as "3 ms 1000 Mbit/s" or "0 ms unlimited, loss 0.01"."""
    delay, rate, turns, jitter, loss = (
        link_text(link, of) for of in ("delay_ms", "rate", "turns", "jitter_ms", "loss_ratio")
    )
    words = f"{delay} ms {rate if rate == 'unlimited' else f'{rate} Mbit/s'}{turns}"
    return words + (f", jitter {jitter}" if jitter != "0" else "") + (f", loss {loss}" if loss != "0" else "")


def _ms(duration_ns: int) -> str:
    return format_number(Decimal(duration_ns) / 1_000_000)


def _rate(direction: DirectionSpec) -> str:
    return "unlimited" if direction.rate_bps is None else format_mbps(direction.rate_bps)


def _turns(direction: DirectionSpec) -> str:
    overhead = f" overhead {direction.overhead_bytes}" if direction.overhead_bytes else ""
    uplink = f" uplink {direction.uplink}" if direction.uplink is not None else ""
    return overhead + uplink + (f" {direction.aqm.text}" if direction.aqm is not None else "")


def _jitter(direction: DirectionSpec) -> str:
    jitter = direction.jitter
    if jitter is None:
        return "0"
    correlation = "" if jitter.correlation_ns is None else f" correlation {_ms(jitter.correlation_ns)}"
    return f"{jitter.distribution} {_ms(jitter.ns)}{correlation}{' reordering' if jitter.reorder else ''}"


def _loss(direction: DirectionSpec) -> str:
    loss = direction.loss
    words = [_share(loss.mean_ratio if loss is not None else 0.0)]
    words += ["in bursts"] if isinstance(loss, GilbertElliottLoss) else []
    return " ".join([*words, *(f"{name} {_share(share)}" for name, share in direction.shares.items())])


def _share(ratio: float) -> str:
    return format_number(Decimal(f"{ratio:.6g}"))


_OF_LINKS: dict[str, Callable[[DirectionSpec], str]] = {
    "delay_ms": lambda direction: _ms(direction.delay_ns),
    "bandwidth_mbps": lambda direction: _rate(direction) + _turns(direction),
    "rate": _rate,
    "turns": _turns,
    "jitter_ms": _jitter,
    "loss_ratio": _loss,
}
"""``turns``: how frames take their turn at the rate, where it is configured."""
