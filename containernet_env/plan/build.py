"""From what is configured to what will be done: the last stage without side effects, printed by a dry run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from containernet_env.base.errors import ConfigError, Problem, UsageError
from containernet_env.base.units import format_duration, format_ms
from containernet_env.model import containernet_rules, netem_rules
from containernet_env.model.choices import check_choices
from containernet_env.model.config import Config, Node
from containernet_env.model.scenario import Dataset, ScenarioSet, ScheduledScenario
from containernet_env.model.topology import HostRole, Link, star
from containernet_env.plan.estimate import Estimator
from containernet_env.plan.event_rules import check_events
from containernet_env.plan.external import UNSEEN_NOTE, check_external
from containernet_env.plan.identity import scenario_hash
from containernet_env.plan.notes import notes_of
from containernet_env.plan.plan import CPU_PERIOD_US, HostPlan, Plan, PlannedScenario, PlanOptions
from containernet_env.plan.selection import select
from containernet_env.plan.store_rules import check_profile, check_scenarios
from containernet_env.stores.external import UnknownTiming
from containernet_env.stores.kinds import store_of
from containernet_env.stores.memory import go_environment
from containernet_env.stores.protocol import CLIENT_SECRETS, MemberStart, Store, Timing

# The kernel keeps memory limits in pages and rounds down; what is read back must be what was configured.
_PAGE_BYTES = 4096
# Certificates and keys take a page each.
_SECRETS_MOUNT = "mode=0700,size=64k"


def build_plan(config: Config, scenario_set: ScenarioSet | None, options: PlanOptions) -> Plan:
    """The plan of a run; of a topology alone where there is no ``scenario_set``.

    Raises ``ConfigError`` when a timing of the config contradicts one that follows from the RTTs, when a scenario asks
    for what the store lacks, targets a member that the config does not have or searches for what the links alone do not
    allow, and ``UsageError`` when ``options.only`` matches nothing, links and switches contradict each other, or netem
    or the original Containernet was chosen and cannot carry out the links.
    """
    check_choices(options.links, options.switches, options.engine)
    is_external = config.external is not None
    if is_external:
        check_external(config, scenario_set, options)
    topology = star(config)
    if options.engine == "containernet":
        containernet_rules.check(topology.links, options.links)
    if options.links == "netem":
        _check_netem(config, topology.links)
    if options.links_core is not None:
        _check_kept_core(options)
    largest = None if is_external else topology.largest_member_rtt()
    store = store_of(config)
    check_profile(config, options.profile, store)
    timing: Timing = UnknownTiming() if is_external else store.timing(config, largest)
    if scenario_set is not None:
        _check_targets(config, scenario_set)
        check_scenarios(config, scenario_set, store)
        check_events(config, scenario_set, options)
    dataset = scenario_set.dataset if scenario_set else Dataset()
    scheduled = [
        replace(item, identity=scenario_hash(item.scenario, dataset))
        for item in (_selected(scenario_set, options) if scenario_set else ())
    ]
    cores = len(options.links_core.others) if options.links_core is not None else options.machine_cores
    estimator = Estimator(topology, [node.cpus for node in config.nodes], cores, config.etcd.leader)
    if scenario_set is not None:
        _check_objectives(config, scenario_set, estimator)
    scenarios = tuple(_plan_scenarios(scheduled, dataset, estimator, options.fresh))
    around_s = estimator.around_s(timing.settle_s) * (options.repeat if options.fresh else 1)
    return Plan(
        run_id=options.run_id,
        config=config,
        scenario_set=scenario_set,
        options=options,
        topology=topology,
        hosts=() if is_external else tuple(_plan_host(node, config, store, timing, options) for node in config.hosts),
        switches=() if is_external else topology.switches,
        links=() if is_external else topology.links,
        rtt=() if is_external else topology.rtt_pairs(),
        largest_member_rtt=largest,
        store=store,
        timing=timing,
        dataset=dataset,
        scenarios=scenarios,
        estimated_s=around_s + sum(planned.estimated_s for planned in scenarios),
        notes=(UNSEEN_NOTE,)
        if is_external
        else (*notes_of(config, options, topology, timing, largest), *_timeout_notes(scheduled, estimator)),
    )


def _selected(scenario_set: ScenarioSet, options: PlanOptions) -> tuple[ScheduledScenario, ...]:
    return select(scenario_set.scenarios, options.only, options.repeat, options.first_repetition)


def _check_kept_core(options: PlanOptions) -> None:
    if options.links == "netem" or options.engine != "builtin":
        asked = f"links={options.links!r}, engine={options.engine!r}"
        raise UsageError(f"links_cpu keeps a core for the link emulator, which carries no links of {asked}")


def _check_netem(config: Config, links: Sequence[Link]) -> None:
    refused = [(link.name, reason) for link in links if (reason := _netem_refusal(link)) is not None]
    if not refused:
        return
    name, reason = refused[0]
    others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    cannot = f"HTB and netem cannot carry out {reason} (link {name}{others})"
    raise UsageError(f"{config.path}: {cannot}: got links='netem'; allowed: links='emulator' or 'auto'")


def _netem_refusal(link: Link) -> str | None:
    return netem_rules.refusal(link.spec.a_to_b) or netem_rules.refusal(link.spec.b_to_a)


def _check_targets(config: Config, scenario_set: ScenarioSet) -> None:
    names = [node.name for node in config.nodes]
    problems = [
        Problem(
            item.where,
            f"is not a member of {config.path}",
            json.dumps(item.member),
            f'"leader", "cluster", {", ".join(names)}',
            item.line,
            item.column,
        )
        for item in scenario_set.member_targets
        if item.member not in names
    ]
    if problems:
        raise ConfigError(str(scenario_set.path), problems)


def _check_objectives(config: Config, scenario_set: ScenarioSet, estimator: Estimator) -> None:
    problems = []
    for place in scenario_set.search_places:
        (scenario,) = (item for item in scenario_set.scenarios if item.name == place.scenario)
        least_ns = round(estimator.least_latency_s(scenario) * 1e9)
        for objective in scenario.search.objectives if scenario.search is not None else ():
            if objective.limit_ns <= least_ns:
                message = f"can never be met on {config.path}: its links alone take {format_duration(least_ns)}"
                allowed = f"more than that for p{objective.percentile}"
                problems.append(Problem(place.where, message, objective.text, allowed, place.line, place.column))
    if problems:
        raise ConfigError(str(scenario_set.path), problems)


def _timeout_notes(scheduled: Sequence[ScheduledScenario], estimator: Estimator) -> Iterator[str]:
    """Request timeouts below what the links alone take."""
    late: dict[int, dict[str, float]] = {}
    for item in scheduled:
        least_s, timeout_ns = estimator.least_latency_s(item.scenario), item.scenario.request_timeout_ns
        if least_s * 1e9 >= timeout_ns:
            late.setdefault(timeout_ns, {})[item.scenario.name] = least_s
    for timeout_ns, scenarios in late.items():
        name, least_s = max(scenarios.items(), key=lambda pair: pair[1])
        others = f" and of {len(scenarios) - 1} more scenarios" if len(scenarios) > 1 else ""
        yield (
            f"requests of {name}{others} end after {format_duration(timeout_ns)}, "
            f"before any can be answered: the links alone take {format_ms(round(least_s * 1e9))} ms"
        )


def _plan_host(node: Node, config: Config, store: Store, timing: Timing, options: PlanOptions) -> HostPlan:
    is_member = node in config.nodes
    role: HostRole = "member" if is_member else "benchmark"
    memory_bytes = node.memory_bytes and node.memory_bytes // _PAGE_BYTES * _PAGE_BYTES
    if is_member:
        profiled = options.profile is not None
        limited = replace(node, memory_bytes=memory_bytes)
        start = store.start(limited, config, timing, options.run_id, profiled=profiled)
    else:
        secrets = CLIENT_SECRETS if config.etcd.tls else None
        flags = _server_flags(config, store, secrets)
        start = MemberStart(flags, secrets=secrets, environment=go_environment(memory_bytes))
    tmpfs = {path: "mode=0700" for path in start.data if config.etcd.data == "tmpfs"}
    if start.secrets is not None:
        tmpfs[start.secrets] = _SECRETS_MOUNT
    return HostPlan(
        name=node.name,
        role=role,
        ip=str(node.ip),
        prefix_length=config.subnet.prefixlen,
        image=store.name if is_member else role,
        command=start.command,
        data=start.data,
        environment=start.environment,
        tcp_congestion_control=options.tcp_congestion_control,
        tmpfs=tmpfs,
        memory_bytes=memory_bytes,
        memswap_bytes=memory_bytes,
        cpus=node.cpus,
        cpu_period_us=CPU_PERIOD_US,
        cpu_quota_us=round(node.cpus * CPU_PERIOD_US) if node.cpus is not None else None,
        cpuset=options.links_core.others if options.links_core is not None else (),
    )


def _server_flags(config: Config, store: Store, secrets: str | None) -> tuple[str, ...]:
    """The members, which alone the benchmark server may be made to connect to, and where its certificates are."""
    allowed = "--allow=" + ",".join(f"{node.ip}:{store.client_port}" for node in config.nodes)
    return (allowed, "--credentials", secrets) if secrets is not None else (allowed,)


def _plan_scenarios(
    scheduled: Sequence[ScheduledScenario], dataset: Dataset, estimator: Estimator, fresh: bool
) -> Iterator[PlannedScenario]:
    present, repetition = False, None
    for item in scheduled:
        if fresh and item.repetition != repetition:
            present, repetition = False, item.repetition
        loads = item.scenario.uses_dataset and not present
        present = loads or dataset.present_after(item.scenario, present)
        estimated_s = estimator.scenario_s(item.scenario)
        if loads:
            estimated_s += estimator.scenario_s(dataset.load)
        yield PlannedScenario(item, loads, estimated_s)
