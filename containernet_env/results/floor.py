"""The floor of a scenario: the least median latency that its network, its disks and its store's protocol allow.

It is that of an unloaded system: the time that requests wait for each other, for a CPU, or for a window of TCP or
HTTP/2 is the remainder above it. docs/floor.md derives it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from random import Random

from containernet_env.model.scenario import Scenario
from containernet_env.model.topology import Topology, UnloadedNetwork, jitters_of
from containernet_env.stores.store import Request, Store

DRAWS = 1999
"""If links have jitter, at least this many requests are sampled: the fastest of several followers is then faster than
any of them on average. The standard error of the median is 1.25 / sqrt(1999), 3 % of the latency's deviation, or more
where several members are queried with the same delays of the client's link."""

_LEAST_ROUNDS = 33
"""How often delays are drawn at least, however many members are queried."""

_SEED = 1

Answered = tuple[int, int | None]
"""How many requests of a client had good answers, and how many of these were puts of a mixed load."""


class Floor:
    """Floors of scenarios on one testbed: ``sync_ns`` is the duration of an fdatasync on each member's data path."""

    def __init__(self, store: Store, topology: Topology, sync_ns: Mapping[str, float]) -> None:
        self._store = store
        self._topology = topology
        self._sync_ns = dict(sync_ns)
        self._members = [member.name for member in topology.members]
        self._client = topology.clients[0].name
        self._network = UnloadedNetwork(topology)
        self._shares_of = cache(self._latencies)

    def median_s(
        self,
        scenario: Scenario,
        leader: str | None,
        living: Collection[str],
        answered: Mapping[str, Answered] | None = None,
    ) -> float | None:
        """The least median latency of a scenario in seconds, under one leader and with these members alive.

        It is that of the requests that were ``answered``, by the name of their client ("" of a single one). Without
        these each client counts as much, and a mixed load has its configured share of puts. ``None`` if it depends on a
        leader that is unknown, on an fdatasync that was not measured, or on members that are no majority.
        """
        mixture: list[tuple[float, float]] = []
        for part in scenario.parts or (scenario,):
            count, puts = (1, None) if answered is None else answered.get(part.client or "", (0, None))
            if count and puts is not None:
                part = replace(part, put_ratio=Decimal(puts) / count)
            among = tuple(name for name in self._members if name in living)
            if (shares := self._shares_of(part, leader, among)) is None:
                return None
            whole = sum(share for share, _ in shares)
            mixture += [(count * share / whole, value) for share, value in shares if count]
        return weighted_median(mixture) / 1e9 if mixture else None

    def _latencies(
        self, scenario: Scenario, leader: str | None, living: tuple[str, ...]
    ) -> list[tuple[float, float]] | None:
        """The latencies of one client's requests with their shares; ``None`` as of the median."""
        local = scenario.consistency == "s" and not scenario.put_ratio
        agreed = leader in living and 2 * len(living) > len(self._members)
        if not agreed and (scenario.target == "leader" or not local):
            return None
        writes = float(not scenario.reads if scenario.put_ratio is None else scenario.put_ratio)
        if writes and not all(name in self._sync_ns for name in living):
            return None
        kinds = [(writes, self._store.write_ns), (1 - writes, self._store.read_ns)]
        # Each equally often: request k of several goes to member k mod n.
        only = leader if scenario.target == "leader" else scenario.member
        queried = living if only is None else [only]
        if not queried or any(name not in living for name in queried):
            return None
        jitters = jitters_of(self._topology)
        rounds = max(-(-DRAWS // len(queried)), _LEAST_ROUNDS) if jitters else 1
        # Jitter that keeps order changes slowly. While delays are short, a closed loop sends more requests: at most in
        # proportion to 1 / latency, where delays stay the same for many requests.
        is_uneven = not scenario.is_open and not all(jitter.reorder for jitter in jitters)
        network = UnloadedNetwork(self._topology, Random(_SEED)) if rounds > 1 else self._network
        client, shares = scenario.client or self._client, list[tuple[float, float]]()
        requests = [
            Request(scenario, self._members, living, client, name, leader, network, self._sync_ns) for name in queried
        ]
        for _ in range(rounds):
            network.redraw()
            drawn = [(share, latency_ns(request)) for request in requests for share, latency_ns in kinds if share]
            weight = 1 / max(1.0, sum(share * ns for share, ns in drawn)) if is_uneven else 1.0
            shares += [(weight * share, ns) for share, ns in drawn]
        return shares


def weighted_median(shares: Iterable[tuple[float, float]]) -> float:
    """The smallest value that half of all requests are at or below; ``shares`` are weights, at least one, and values.

    With weights for requests this is the median of ``50%``, by nearest rank: of two equal halves the upper end of the
    lower one.
    """
    ordered = sorted(shares, key=lambda share: share[1])
    half = sum(weight for weight, _ in ordered) / 2
    reached = 0.0
    for weight, value in ordered:
        reached += weight
        if reached >= half * (1 - 1e-9):
            return value
    raise AssertionError("no shares")
