"""A testbed that is reused by the next run of a block: which plans can follow each other, and what changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.work import Progress, Stop
from containernet_env.config.plan import HostPlan, Plan
from containernet_env.hosts import netns
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.outcome import Reused
from containernet_env.model.topology import Link
from containernet_env.network.kernel import held_at_host, segments_at_once
from containernet_env.results.capacity import capacity_of
from containernet_env.results.run_files import Proof
from containernet_env.runs.progress import OnEvent, ignore_event
from containernet_env.runs.testbed import Testbed, take_down
from containernet_env.setup.images import Images

# Connections between members outlive a change of their links. These reset their path estimates at the next losses; bbr,
# for example, uses the least RTT of the last ten seconds as that of the path.
_FORGETFUL = ("cubic", "reno")


@dataclass(frozen=True, slots=True)
class Change:
    """The changes to a kept testbed: CPU limits of these hosts, and these links."""

    limits: tuple[HostPlan, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def reused(self) -> Reused:
        """The state that the first scenario after it starts with; see ``model.outcome``."""
        if self.links:
            return "cluster;new-limits;new-links" if self.limits else "cluster;new-links"
        return "cluster;new-limits" if self.limits else "cluster"


def standing_key(plan: Plan) -> str:
    """Plans with the same one can follow each other on one testbed; they differ in loads, CPU limits and links.

    The members keep running, so everything that they are started with is equal: their flags, with the timing derived
    from RTTs, and ``GOMEMLIMIT``, derived from the memory limit. So are the settings of an existing link that cannot be
    changed.
    """
    is_live = plan.options.engine == "builtin"
    hosts = [_started(host, plan.run_id) if is_live else host for host in plan.hosts]
    links = [(link.a, link.b, _fixed(link.spec, plan) if is_live else link.spec) for link in plan.links]
    options = replace(plan.options, run_id="", seed=0, first_repetition=1)
    text = repr((options, hosts, links, plan.switches, plan.config.store, plan.dataset))
    return hashlib.sha256(text.encode()).hexdigest()


def change_between(standing: Plan, wanted: Plan) -> Change | None:
    """The change from the one plan to the other; ``None`` if that requires a new testbed.

    If the values of one link differ, all are reset: draws of losses and jitter restart with their seeds then.
    """
    if standing.options.seed != wanted.options.seed or standing_key(standing) != standing_key(wanted):
        return None
    hosts = zip(standing.hosts, wanted.hosts, strict=True)
    limits = tuple(new for old, new in hosts if old.cpu_quota_us != new.cpu_quota_us)
    return Change(limits, wanted.links if standing.links != wanted.links else ())


def all_fields(spec: LinkSpec) -> dict[str, dict[str, Any]]:
    """A whole spec as a change of both directions; the seeds are named, so draws restart."""
    sides = {"a_to_b": spec.a_to_b, "b_to_a": spec.b_to_a}
    return {side: {field.name: getattr(held, field.name) for field in fields(held)} for side, held in sides.items()}


def _started(host: HostPlan, run_id: str) -> HostPlan:
    """A host without the settings that can be changed while it runs, and without the name of its run."""
    command = tuple(word.replace(run_id, "") for word in host.command)
    return replace(host, cpus=None, cpu_quota_us=None, command=command)


def _fixed(spec: LinkSpec, plan: Plan) -> tuple[object, ...]:
    if plan.options.congestion_control not in _FORGETFUL:
        return (spec,)
    return _fixed_direction(spec.a_to_b), _fixed_direction(spec.b_to_a)


def _fixed_direction(direction: DirectionSpec) -> tuple[object, ...]:
    """The fixed settings of an existing link: where frames wait, and how much of a flow a host hands over at once.

    Sockets keep the latter as it was when they connected.
    """
    limits = (direction.rate_bps, direction.queue_frames, direction.queue_bytes)
    return direction.uplink, *(limit is None for limit in limits), segments_at_once(held_at_host(direction))


OnProof = Callable[[Proof], None]


class _Follower:
    """The current receiver of a testbed's events, called by one thread at a time: a run, or none between two runs."""

    def __init__(self, on_event: OnEvent, on_proof: OnProof) -> None:
        self.last: Proof | None = None
        self._lock = clock.Lock()
        self.change(on_event, on_proof)

    def change(self, on_event: OnEvent, on_proof: OnProof) -> None:
        """When this returns, the previous receiver gets no more events."""
        with self._lock:
            self._on_event, self._on_proof = on_event, on_proof

    def event(self, kind: str, text: str, subject: str | None = None) -> None:
        """See ``OnEvent``."""
        with self._lock:
            self._on_event(kind, text, subject)

    def proof(self, proof: Proof) -> None:
        """Each proof; the ``last`` one is kept."""
        with self._lock:
            self.last = proof
            self._on_proof(proof)


class StandingTestbed(Testbed):
    """A testbed that can be changed to another plan while it is up.

    ``reused`` is the state that the first scenario of its plan starts with, ``loaded`` whether the store already holds
    the data set.
    """

    def __init__(
        self, plan: Plan, images: Images, progress: Progress, *, on_event: OnEvent, on_proof: OnProof, **more: Any
    ) -> None:
        self._follower = _Follower(on_event, on_proof)
        super().__init__(plan, images, progress, on_event=self._follower.event, on_proof=self._follower.proof, **more)
        self.reused: Reused = "nothing"
        self.loaded = False

    def rest(self, loaded: bool) -> None:
        """Its run has ended, and it is kept for another one: no events are delivered until `turn_to`."""
        self.loaded = loaded
        self._follower.change(ignore_event, lambda proof: None)

    def turn_to(self, plan: Plan, change: Change, progress: Progress, on_event: OnEvent, on_proof: OnProof) -> None:
        """Change it to the testbed of another plan; see ``change.change_between``.

        Changes are read back, and changed links are proved. Without changes, the proof after the last scenario is also
        the one before the next: the network was not modified in between. Raises RunError if anything deviates from the
        plan; only `down` is possible then.
        """
        self._follower.change(on_event, on_proof)
        self.plan, self._progress = plan, progress
        self.leader_wanted, self.capacity = plan.config.etcd.leader, capacity_of(plan)
        self._prover, self._floor = self._make_prover(), self._make_floor()
        self._during = "while it stood between two runs"
        with self.told_why():
            self._check()
            self._change_hosts(change)
            self._change_network(change)
            self.cluster.waits = plan.waits
            self.led_at_start = self.cluster.leadership()
            if self.led_at_start is None:
                raise RunError("the members that stand have no leader")
            self._check()
        self._during = "before the first scenario"
        self.reused = change.reused

    def _change_hosts(self, change: Change) -> None:
        if change.limits:
            with self._progress.stage("hosts") as stage:
                for host in change.limits:
                    self.hosts[host.name].limit_cpu(host.cpu_quota_us, host.cpu_period_us)
                self._done(stage, "limits_changed", f"CPU limits of {len(change.limits)} hosts, read back")

    def _change_network(self, change: Change) -> None:
        with self._progress.stage("network") as stage:
            if change.links:
                for link in change.links:
                    self.net.link_between(link.a, link.b).change_directions(all_fields(link.spec))
                for host in self.hosts.values():
                    netns.forget_paths(host.pid)
                self._follower.event("links_changed", f"{len(change.links)} links, read back")
                self.gate = self._prover.prove("change")
            else:
                self.gate, proof = self.gate_after, self._follower.last
                if self.gate is None or proof is None:
                    raise RunError("the network was not proved after the last scenario")
                self._follower.proof(proof.model_copy(update={"moment": "before"}))
            self._done(stage, "network_proved", self._proved_text(self.gate))

    @property
    def why_unfit(self) -> str | None:
        """Why no further measurement should run on it after its last scenario; ``None`` if there is no reason."""
        if (reason := self._gone()) is not None:
            return reason
        if deaths := self.cluster.deaths():
            return "; ".join(deaths.values())
        proof = self.gate_after.proof if self.gate_after is not None else None
        if proof is None or not proof.passed or proof.doubt is not None:
            return "its network was not proved after the last scenario"
        return None


class Standing:
    """Holds the testbed that a run has kept, if any; its creator closes it, whatever happens.

    ``is_wanted``: whether the current run is to keep its testbed, since the next one can use it.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self._testbed: StandingTestbed | None = None

    def leave(self, testbed: StandingTestbed, loaded: bool) -> None:
        """Hold it until `take`. ``loaded``: whether its store holds the data set of the plan."""
        testbed.rest(loaded)
        self._testbed = testbed

    def take(self) -> StandingTestbed | None:
        """Return the testbed; the caller owns it from here on."""
        testbed, self._testbed = self._testbed, None
        return testbed

    def close(self, progress: Progress, stop: Stop) -> None:
        """Take down the kept testbed; idempotent, and not interrupted. Raises ``RunError`` for leftovers."""
        if (testbed := self.take()) is not None:
            stop.shield()
            try:
                take_down(testbed, progress)
            finally:
                stop.unshield()
