"""A link inside the link emulator: its ends are TAPs in hosts' namespaces, or ports of the emulator's switches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from containernet_env.base.errors import ContainernetEnvError, RunError
from containernet_env.hosts.netns import ProcessGoneError
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter, Loss
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.link_statistics import link_counters
from containernet_env.network.emulator.control import Answer
from containernet_env.network.emulator.process import LinkEmulator
from containernet_env.network.interface import Interface, Port
from containernet_env.network.link import ShapedLink, check_held
from containernet_env.network.uplink import Uplink


def direction_to_json(direction: DirectionSpec, seed: int = 0) -> dict[str, Any]:
    """One direction as the control protocol has it, all fields given: its names are those of the spec.

    ``seed``: of a direction that has none of its own.
    """
    fields = asdict(direction)
    usual = fields.pop("default_queue_frames")
    del fields["uplink"]  # not the emulator's
    if direction.queue_frames is None and direction.queue_bytes is None:
        fields["queue_frames"] = usual
    if direction.seed is None:
        fields["seed"] = seed
    return fields


def direction_from_json(value: Mapping[str, Any]) -> DirectionSpec:
    """What the emulator says it holds; its counters are left out."""
    jitter, loss = value.get("jitter"), value.get("loss")
    return DirectionSpec(
        int(value["delay_ns"]),
        value.get("rate_bps"),
        value.get("queue_frames"),
        value.get("queue_bytes"),
        None if jitter is None else Jitter(**jitter),
        None if loss is None else _loss_from_json(loss),
        value.get("seed"),
        overhead_bytes=value["overhead_bytes"],
    )


def _loss_from_json(value: Mapping[str, Any]) -> Loss:
    values = {key: item for key, item in value.items() if key != "model"}
    kinds: dict[str, type[Loss]] = {"independent": IndependentLoss, "gilbert_elliott": GilbertElliottLoss}
    return kinds[value["model"]](**values)


def changed_fields(held: DirectionSpec, wanted: DirectionSpec, seed: int = 0, restart: bool = False) -> dict[str, Any]:
    """One direction for ``set_link``: all but a seed that stays, since naming it restarts the draws.

    ``seed``: see ``direction_to_json``. ``restart``: they are to restart, whether the seed stays or not.
    """
    fields = direction_to_json(wanted, seed)
    if wanted.seed == held.seed and not restart:
        del fields["seed"]
    return fields


class EmulatedLink(ShapedLink):
    """See ``ShapedLink``. The emulator calls the port of a TAP by its interface's alias.

    ``seed``: of directions that have none of their own. Names of link and direction are part of what is drawn, so that
    links and directions with one seed draw independently.
    """

    def __init__(
        self, emulator: LinkEmulator, name: str, ends: tuple[Port, Port], spec: LinkSpec, seed: int = 0
    ) -> None:
        super().__init__(name, ends, spec)
        self._seed = seed
        self._emulator = emulator
        self._uplinks = self._no_uplinks()
        # What takes back each request that was sent, in their order, and how many of these are known to have been done.
        self._undo: list[tuple[str, str]] = []
        self._done = 0

    def _no_uplinks(self) -> dict[str, Uplink]:
        """By direction, what can hold back frames at the host that sends on it; as yet nothing does."""
        ends = zip(("a_to_b", "b_to_a"), self.ends, strict=True)
        return {side: Uplink(end) for side, end in ends if isinstance(end, Interface)}

    def make(self) -> None:
        """See ``ShapedLink``: the TAPs stay down until they are brought up."""
        for end in self.ends:
            if isinstance(end, Interface):
                tap = port_name(end)
                self._create("port", name=tap, pid=end.pid, ifname=end.name, mac=end.mac, mtu=end.mtu_bytes)

    def _create(self, what: str, name: str, **fields: Any) -> Answer:
        self._undo.append((f"remove_{what}", name))
        answer = self._emulator.ask(f"add_{what}", name=name, **fields)
        self._done = len(self._undo)
        return answer

    def apply(self, spec: LinkSpec) -> int:
        """See ``ShapedLink``: both directions change between two frames, at one moment; what hosts hold back, after it.

        Where ``tc`` fails at a host, the link is made as it was before.
        """
        return self.apply_change(spec, {})

    def apply_change(self, spec: LinkSpec, changes: Mapping[str, Mapping[str, Any]]) -> int:
        """See ``ShapedLink``: naming a seed restarts the draws of that direction, the same seed too."""
        held = self.spec if self.made else None
        if held is not None:
            answer = self._set(held, spec, changes)
        else:
            answer = self._create(
                "link",
                name=self.name,
                a=_end_to_json(self.ends[0]),
                b=_end_to_json(self.ends[1]),
                a_to_b=direction_to_json(spec.a_to_b, self._seed),
                b_to_a=direction_to_json(spec.b_to_a, self._seed),
            )
            self.made = True
        try:
            self._hold_at_hosts(spec)
        except ContainernetEnvError:
            if held is not None:
                self._set(spec, held, {})
                self._hold_at_hosts(held)
            raise
        noticed = LinkSpec(self._noticed("a_to_b", spec.a_to_b), self._noticed("b_to_a", spec.b_to_a))
        check_held(self.name, noticed, self.read_back())
        self.spec = spec
        return answer.at_ns

    def _set(self, held: LinkSpec, spec: LinkSpec, changes: Mapping[str, Mapping[str, Any]]) -> Answer:
        a_to_b, b_to_a = (
            changed_fields(getattr(held, side), getattr(spec, side), self._seed, "seed" in changes.get(side, {}))
            for side in ("a_to_b", "b_to_a")
        )
        return self._emulator.ask("set_link", name=self.name, a_to_b=a_to_b, b_to_a=b_to_a)

    def _hold_at_hosts(self, spec: LinkSpec) -> None:
        for side, uplink in self._uplinks.items():
            with suppress(ProcessGoneError):  # its host has ended, and sends no more
                uplink.apply(getattr(spec, side))

    def read_back(self) -> LinkSpec:
        """See ``ShapedLink``."""
        held = self._emulator.call("read_link", name=self.name)
        return LinkSpec(*(self._held(side, direction_from_json(held[side])) for side in ("a_to_b", "b_to_a")))

    def _noticed(self, side: str, direction: DirectionSpec) -> DirectionSpec:
        """The direction without an uplink that says nothing: where no host sends, or without a rate."""
        says = side in self._uplinks and direction.rate_bps is not None
        return direction if says else replace(direction, uplink=None)

    def _held(self, side: str, direction: DirectionSpec) -> DirectionSpec:
        uplink = self._uplinks.get(side)
        if uplink is None or direction.rate_bps is None:
            return direction
        try:
            return replace(direction, uplink="host" if uplink.holds() else "network")
        except ProcessGoneError:
            return direction

    def statistics(self) -> dict[str, Any]:
        """See ``ShapedLink``."""
        counters = link_counters(self._emulator.call("read_link", name=self.name))
        self.count_at_hosts(counters, {})
        return counters

    def count_at_hosts(self, link: dict[str, Any], ports: Mapping[str, dict[str, Any]], *, reset: bool = False) -> None:
        """Add what was lost at the hosts' own queues to the counters of the link: offered, and dropped by its queue.

        ``ports``: those of the emulator by name; each gets ``host_queue``, see ``Uplink.counters``. ``reset``: the next
        counts begin now.
        """
        for side, uplink in self._uplinks.items():
            counted = uplink.counters(reset=reset)
            if (port := ports.get(port_name(uplink.end))) is not None:
                port["host_queue"] = counted
            if counted is not None:
                link[side]["offered"] += counted["dropped"]
                link[side]["drops"]["queue"] += counted["dropped"]

    def set_up(self, up: bool) -> int:
        """See ``ShapedLink``."""
        return self._emulator.ask("link_state", name=self.name, up=up).at_ns

    def set_mtu(self, end: Interface, size_bytes: int) -> None:
        """See ``ShapedLink``."""
        super().set_mtu(end, size_bytes)
        self._emulator.call("set_port", name=port_name(end), mtu=size_bytes)

    def clear(self) -> None:
        """See ``ShapedLink``. Nothing is asked of an emulator that has ended: all of it is gone then."""
        if self._emulator.pid is not None:
            for number, (undo, name) in reversed(list(enumerate(self._undo))):
                try:
                    self._emulator.call(undo, name=name)
                except RunError:
                    if number < self._done:
                        raise
                    # It was refused, or nobody waited for the answer: there may be nothing to take back.
        self.made = False
        self._uplinks = self._no_uplinks()
        self._undo.clear()
        self._done = 0


def port_name(end: Interface) -> str:
    """What the emulator calls the port of a TAP."""
    return end.alias or end.name


def _end_to_json(end: Port) -> dict[str, str]:
    return {"port": port_name(end)} if isinstance(end, Interface) else {"switch": end.switch}
