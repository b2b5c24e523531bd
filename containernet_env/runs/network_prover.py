"""The proofs of a run's network: before the first scenario, after the last one, and after changes of links."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from containernet_env.base import clock
from containernet_env.base.clock import Moment
from containernet_env.base.errors import RunError
from containernet_env.model.findings import PAUSE_NS
from containernet_env.model.proof import Check, NetworkProof, named
from containernet_env.model.proof import Moment as GateMoment
from containernet_env.model.usage import LATE_NS, LinkStatistics
from containernet_env.network.gate import Gate, measure_gate
from containernet_env.network.gate_plan import MARGIN_NS
from containernet_env.network.rtt import Tolerance
from containernet_env.results.run_files import Proof

if TYPE_CHECKING:
    from containernet_env.runs.testbed import Testbed

# How many times the network is measured if it seems wrong, or if the link emulator was paused meanwhile (for any
# reason, as after SIGSTOP), lost frames by itself or was late by itself.
_PROOFS = 3
# After the last scenario members may still exchange pending data: maximum wait, and poll interval, until less than
# this share of any link is used.
_QUIET_S, _QUIET_LOOK_S, _QUIET_RATIO, _UNLIMITED_BPS = 3.0, 0.1, 0.02, 10**9
# Where something is wrong: how often its counters are compared at most, and in what intervals.
_CATCH_UP_LOOKS, _CATCH_UP_S = 10, 0.02


@dataclass(eq=False)
class NetworkProver:
    """Measures the network of a testbed, which keeps every measurement, also a failed one."""

    _testbed: Testbed
    _tolerance: Tolerance | None

    def prove(self, moment: GateMoment = "before") -> Gate:
        """Measure a network that has just been built, or changed. Raises ``RunError`` if it is not as configured.

        Where it was changed, the members run and send: see ``prove_again``.
        """
        busy = self._wait_until_quiet() if moment == "change" else None
        gate = self._measured(moment, list(self._testbed.hosts), busy)
        if gate.proof.doubt is not None:
            raise RunError(f"the network cannot be proved: {gate.proof.doubt}")
        if not gate.proof.passed:
            wrong = named(gate.proof.of("wrong"))
            raise RunError(f"the network is not the one that was configured: {wrong}\n{gate.proof.render()}")
        if unproved := gate.proof.of("unproved"):
            self._testbed.progress.note(f"not proved: {named(unproved, reasons=True)}")
        return gate

    def prove_again(self, moment: GateMoment) -> Gate:
        """Measure the network once more, between the living hosts; deviations of the network are no error here.

        After the last scenario the members still run and send: it waits until little is sent, and if that does not
        happen, deviations are reported as unproved. Raises ``RunError`` if it cannot be measured.
        """
        with self._testbed.progress.stage("network") as stage:
            living = [name for name, host in self._testbed.hosts.items() if host.alive]
            gate = self._measured(moment, living, self._wait_until_quiet())
            stage.done(f"{proved_text(gate.proof)} again")
        return gate

    def _measured(self, moment: GateMoment, hosts: Sequence[str], busy: str | None) -> Gate:
        """A gate whose samples are the network's own: repeated if other causes spoilt them.

        Other programs on a machine of few cores occasionally slow down a train, which looks like a lower rate. So a
        deviation that only one gate has seen does not count: a wrong network is wrong again.
        """
        suspected: set[tuple[str, str]] = set()
        for left in reversed(range(_PROOFS)):
            gate = self._measure(moment, hosts, busy)
            spoiled = gate.spoiled or (None if gate.proof.passed else self._own_fault(gate.proof.of("wrong")))
            if spoiled is None:
                wrong = gate.proof.of("wrong")
                seen = {(check.subject, check.kind) for check in wrong}
                if not wrong or seen & suspected:
                    return gate
                suspected |= seen
                spoiled = f"seemingly wrong: {named(wrong)}"
            if left:
                self._testbed.progress.note(f"{spoiled}: it is proved anew")
        seems = f"; {gate.proof.text}" if not gate.proof.passed else ""
        raise RunError(f"{spoiled}, {_PROOFS} times in a row: something else keeps this machine busy{seems}")

    def _measure(self, moment: GateMoment, hosts: Sequence[str], busy: str | None) -> Gate:
        try:
            if moment == "before":
                self._check_emulator()
            self._testbed.net.link_statistics(reset=True)
            gate = measure_gate(
                self._testbed.emulated.topology,
                {name: self._testbed.hosts[name].pid for name in hosts},
                links=self._testbed.net.links_kind,
                moment=moment,
                tolerance=self._tolerance,
                hosts=hosts,
                broken=lambda: self._broken(hosts),
                dilation=self._testbed.emulated.dilation,
            )
            if (reason := self._broken(hosts)) is not None:
                raise RunError(reason)
        except RunError as error:
            self._testbed.keep_proof(_proof(moment, [str(error) if moment == "after" else self._testbed.why(error)]))
            raise
        if busy is not None:
            gate = replace(gate, proof=gate.proof.doubted(busy))
        wrong, unproved = ([check.line for check in gate.proof.of(verdict)] for verdict in ("wrong", "unproved"))
        self._testbed.keep_proof(_proof(moment, wrong, unproved, gate.to_json()))
        return gate

    def _broken(self, hosts: Collection[str]) -> str | None:
        self._testbed.stop.check()
        return self._testbed.gone(hosts)

    def _check_emulator(self) -> None:
        """Raise RunError if the emulator's own test at its start has failed: no link of it can be trusted."""
        hello = self._testbed.net.link_backend_facts()
        if not hello:
            return
        if not hello["self_test"]["passed"]:
            reason = hello["self_test"]["reason"]
            raise RunError(f"the link emulator does not keep its times on this machine: {reason}")
        for fact, wanted, otherwise in (
            ("realtime", True, "the link emulator got no real-time priority"),
            ("kept_awake", True, "processors may fall into deep sleep and wake late"),
            ("stamps", "kernel", "the kernel does not stamp frames, so they count as come when they are read"),
        ):
            if hello[fact] != wanted:
                self._testbed.progress.note(f"{otherwise}: {hello[f'{fact}_reason']}")

    def _wait_until_quiet(self) -> str | None:
        """Wait until the hosts send little; returns how much they still send if that does not happen."""
        rates = {
            link.name: (link.spec.a_to_b.rate_bps or _UNLIMITED_BPS, link.spec.b_to_a.rate_bps or _UNLIMITED_BPS)
            for link in self._testbed.plan.topology.links
        }
        until = clock.monotonic() + _QUIET_S
        while True:
            before = LinkStatistics(self._testbed.net.link_statistics())
            clock.sleep(_QUIET_LOOK_S)
            share, name = LinkStatistics(self._testbed.net.link_statistics()).busiest_since(before, rates)
            if share <= _QUIET_RATIO:
                return None
            if clock.monotonic() > until:
                return f"the hosts still filled {share:.0%} of {name}"
            self._testbed.stop.check()

    def _own_fault(self, wrong: Sequence[Check]) -> str | None:
        """Events that the link emulator itself counted since its counters were reset, and that no link explains.

        Queues are measured last: what the emulator delivers later than the plan's margin comes after the end.
        """
        seen = self._once_caught_up()
        late_ns, often_late_ns = seen.lateness_max_ns or 0, seen.lateness_p99_ns or 0
        if late_ns > PAUSE_NS:
            return f"the link emulator was paused for {late_ns / 1e9:.1f} s while the network was proved"
        for _, _, text in seen.own_losses():
            return f"{text}, while the network was proved"
        if late_ns > MARGIN_NS * self._testbed.emulated.dilation and all(check.kind == "queue" for check in wrong):
            often_late_ns = late_ns
        if often_late_ns > LATE_NS:
            return f"the link emulator was late by {often_late_ns / 1e6:.1f} ms while the network was proved"
        return None

    def _once_caught_up(self) -> LinkStatistics:
        """What the emulator has counted once it has handled the frames that waited for it, as after a pause."""
        seen = LinkStatistics(self._testbed.net.link_statistics())
        for _ in range(_CATCH_UP_LOOKS):
            clock.sleep(_CATCH_UP_S)
            before, seen = seen, LinkStatistics(self._testbed.net.link_statistics())
            if seen.values.get("links") == before.values.get("links"):
                break
        return seen


def proved_text(proof: NetworkProof) -> str:
    """How much of a network is proved."""
    return f"{len(proof.of('proved'))} of {len(proof.checks)} properties proved"


def _proof(
    moment: GateMoment, problems: list[str], unproved: Sequence[str] = (), found: Mapping[str, Any] | None = None
) -> Proof:
    """A proof made now; it has failed if there are problems."""
    now = Moment.now()
    return Proof(
        at=now.at,
        at_ns=now.at_ns,
        moment=moment,
        passed=not problems,
        problems=problems,
        unproved=list(unproved),
        **(found or {"pairs": []}),
    )
