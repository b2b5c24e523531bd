"""Links carried out by the project's own link emulator: one process with a TAP in each host's namespace."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from containernet_env.base import assets, programs
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter, Loss
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.link_statistics import link_counters
from containernet_env.network.emulator.control import Answer, ControlClient
from containernet_env.network.link import EventHandler, ShapedLink, check_held

_START_DEADLINE_S = 10.0
_END_DEADLINE_S = 5.0


def default_binary() -> Path:
    """The emulator that the set-up has built. Raises ``MissingRequirementError`` where it has not."""
    return programs.path("link-emulator")


def direction_to_json(direction: DirectionSpec) -> dict[str, Any]:
    """One direction as the control protocol has it, all fields given: its names are those of the spec."""
    fields = asdict(direction)
    usual = fields.pop("default_queue_frames")
    if direction.queue_frames is None and direction.queue_bytes is None:
        fields["queue_frames"] = usual
    return fields


def direction_from_json(value: Mapping[str, Any]) -> DirectionSpec:
    """What the emulator says it holds; its counters are left out."""
    jitter, loss = value.get("jitter"), value.get("loss")
    return DirectionSpec(
        int(value["delay_ns"]),
        value.get("rate_bps"),
        value.get("queue_frames"),
        value.get("queue_bytes"),
        None if jitter is None else Jitter(jitter["distribution"], int(jitter["ns"]), bool(jitter["reorder"])),
        None if loss is None else _loss_from_json(loss),
        value.get("seed"),
    )


def _loss_from_json(value: Mapping[str, Any]) -> Loss:
    values = {key: item for key, item in value.items() if key != "model"}
    kinds: dict[str, type[Loss]] = {"independent": IndependentLoss, "gilbert_elliott": GilbertElliottLoss}
    return kinds[value["model"]](**values)


def changed_fields(held: DirectionSpec, wanted: DirectionSpec, restart: bool = False) -> dict[str, Any]:
    """One direction for ``set_link``: all but a seed that stays, since naming it begins the draws anew.

    ``restart``: they are to begin anew, whether the seed stays or not.
    """
    fields = direction_to_json(wanted)
    if wanted.seed == held.seed and not restart:
        del fields["seed"]
    return fields


class LinkEmulator:
    """The emulator's process. It ends with its control connection, so it never outlives this process.

    ``on_event`` hears of ports whose host has ended, and of the emulator's own unexpected end. ``hello`` holds
    what the emulator said of itself (version, realtime, pid).
    """

    def __init__(self, binary: Path | str | None, on_event: EventHandler) -> None:
        self._binary = Path(binary) if binary is not None else None
        self._on_event = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._client: ControlClient | None = None
        self._said: deque[str] = deque(maxlen=20)
        self._listener: threading.Thread | None = None
        self._stopping = False
        self._lock = threading.Lock()
        self.hello: dict[str, Any] = {}

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start the process unless it runs already. Raises ``MissingRequirementError`` where it is not built."""
        with self._lock:
            if self._client is not None:
                return
            binary = self._binary or default_binary()
            if not os.access(binary, os.X_OK):
                raise MissingRequirementError(f"the link emulator is missing: {binary}", assets.set_up_hint())
            ours, theirs = socket.socketpair()
            try:
                # A session of its own: the terminal's Ctrl-C is for the driver. Its life hangs on the socket and
                # not on a parent's death signal, which the kernel sends when the THREAD that forked ends.
                self._process = subprocess.Popen(
                    [str(binary), "serve", "--control-fd", str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise RunError(f"the link emulator cannot be started: {error}") from error
            finally:
                theirs.close()
            self._listener = threading.Thread(
                target=self._listen, args=(self._process,), name="link-emulator-log", daemon=True
            )
            self._listener.start()
            self._client = ControlClient(ours, self._event, self._lost)
        try:
            self.hello = self.call("hello", deadline_s=_START_DEADLINE_S)
        except RunError as error:
            raise RunError(f"{error}{self._last_words()}") from error

    def call(self, op: str, deadline_s: float = 5.0, **fields: Any) -> dict[str, Any]:
        """One request (see ``ControlClient.call``)."""
        return self.ask(op, deadline_s, **fields).result

    def ask(self, op: str, deadline_s: float = 5.0, **fields: Any) -> Answer:
        """One request and when it took effect (see ``ControlClient.ask``)."""
        if self._client is None:
            raise RunError(f"link emulator: {op}: it has not been started")
        return self._client.ask(op, deadline_s, **fields)

    def stop(self) -> None:
        """End the process: its interfaces vanish with it. Idempotent."""
        self._stopping = True
        if self._client is not None:
            self._client.close()
        if self._process is None:
            return
        try:
            self._process.wait(_END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_DEADLINE_S)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._said.append(line.decode(errors="replace").rstrip())

    def _event(self, message: dict[str, Any]) -> None:
        if self._stopping:
            return  # hosts end in a tear-down: no news
        kind = str(message.get("event", "unknown"))
        about = message.get("port") or message.get("link") or ""
        self._on_event(kind, f"{about}: {message.get('reason', kind)}" if about else str(message))

    def _lost(self) -> None:
        if self._stopping or self._process is None:
            return
        said = self._last_words()
        self._on_event("emulator_died", f"the link emulator ended with status {self._process.poll()}{said}")

    def _last_words(self) -> str:
        """What it said last, after a colon; of one that has ended, once all of it is known."""
        if self._process is not None and self._client is not None and self._client.lost:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_DEADLINE_S)
            if self._listener is not None:
                self._listener.join(_END_DEADLINE_S)
        return f": {self._said[-1]}" if self._said else ""


class EmulatedLink(ShapedLink):
    """A link inside the emulator; its ends are TAPs in hosts' namespaces or ports of the emulator's switches.

    ``ends`` are the two ends as the protocol names them, such as {"port": "d1-eth0"} or {"switch": "s1"}.
    """

    def __init__(
        self, emulator: LinkEmulator, name: str, ends: tuple[dict[str, str], dict[str, str]], spec: LinkSpec
    ) -> None:
        super().__init__(name, spec)
        self._emulator = emulator
        self._ends = ends
        self._made = False
        self._ports: list[str] = []

    def add_port(self, port: str, pid: int, ifname: str, mac: str, mtu: int) -> None:
        """Make the TAP of one end; it stays down until it is brought up. Taken away by ``clear``."""
        self._emulator.call("add_port", name=port, pid=pid, ifname=ifname, mac=mac, mtu=mtu)
        self._ports.append(port)

    def apply(self, spec: LinkSpec) -> int:
        """See ``LinkImplementation``: both directions change between two frames, at one moment."""
        return self.apply_change(spec, {})

    def apply_change(self, spec: LinkSpec, changes: Mapping[str, Mapping[str, Any]]) -> int:
        """See ``ShapedLink``: naming a seed begins the draws of that direction anew, the same seed too."""
        if self._made:
            a_to_b, b_to_a = (
                changed_fields(getattr(self.spec, side), getattr(spec, side), "seed" in changes.get(side, {}))
                for side in ("a_to_b", "b_to_a")
            )
            answer = self._emulator.ask("set_link", name=self.name, a_to_b=a_to_b, b_to_a=b_to_a)
        else:
            answer = self._emulator.ask(
                "add_link",
                name=self.name,
                a=self._ends[0],
                b=self._ends[1],
                a_to_b=direction_to_json(spec.a_to_b),
                b_to_a=direction_to_json(spec.b_to_a),
            )
            self._made = True
        check_held(self.name, spec, self.read_back())
        self.spec = spec
        return answer.at_ns

    def read_back(self) -> LinkSpec:
        """See ``LinkImplementation``."""
        held = self._emulator.call("read_link", name=self.name)
        return LinkSpec(direction_from_json(held["a_to_b"]), direction_from_json(held["b_to_a"]))

    def statistics(self) -> dict[str, Any]:
        """See ``ShapedLink``."""
        return link_counters(self._emulator.call("read_link", name=self.name))

    @property
    def ports(self) -> tuple[str, ...]:
        """The emulator's names of the ends that are TAPs."""
        return tuple(end["port"] for end in self._ends if "port" in end)

    def set_up(self, up: bool) -> int:
        """See ``ShapedLink``."""
        return self._emulator.ask("link_state", name=self.name, up=up).at_ns

    def clear(self) -> None:
        """See ``LinkImplementation``. Nothing is asked of an emulator that has ended: all of it is gone then."""
        if self._emulator.pid is not None:
            if self._made:
                self._emulator.call("remove_link", name=self.name)
            for port in self._ports:
                self._emulator.call("remove_port", name=port)
        self._made = False
        self._ports.clear()
