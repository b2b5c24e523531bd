"""Links and switches inside the project's own link emulator: its process, its control connection, its links."""

from __future__ import annotations

import itertools
import json
import logging
import os
import select
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from containernet_env.base import assets, clock, programs
from containernet_env.base.errors import ContainernetEnvError, MissingRequirementError, RunError
from containernet_env.base.programs import ending, last_words
from containernet_env.config.traces import points_of
from containernet_env.hosts.netns import ProcessGoneError
from containernet_env.model.link import (
    DISCIPLINES,
    DirectionSpec,
    GilbertElliottLoss,
    IndependentLoss,
    Jitter,
    LinkSpec,
    Loss,
)
from containernet_env.model.trace import Trace
from containernet_env.model.usage import SIDES, emulator_counters, link_counters
from containernet_env.network.interface import Interface, Port
from containernet_env.network.kernel import Uplink
from containernet_env.network.link import EventHandler, Fabric, Rerouted, Routes, ShapedLink, check_held, counters_of

_LOG = logging.getLogger(__name__)

DEADLINE_S = 5.0
# An answer holds the statistics of every link; a longer line is refused.
_LINE_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its ``result``, and the moment on the monotonic clock (ns) at which the request took effect."""

    result: dict[str, Any]
    at_ns: int


class ControlClient:
    """Requests and events over one connection; may be used from several threads at once.

    ``on_event`` gets each event as it was sent, ``on_lost`` is called once when the other side ends the
    connection (not after ``close``); both on the reading thread. Their exceptions are logged and ignored.
    """

    def __init__(
        self,
        connection: socket.socket,
        on_event: Callable[[dict[str, Any]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._on_event = on_event
        self._on_lost = on_lost
        self._ids = itertools.count(1)
        self._pending: dict[int, clock.Future[dict[str, Any]]] = {}
        self._lock = clock.Lock()
        self._sending = clock.Lock()  # separate, so that close() does not wait for a sender
        self._closed = False
        self.lost = False
        """Whether the other side has ended the connection."""
        self._thread = clock.Thread(target=self._read, name="link-emulator-control", daemon=True)
        self._thread.start()

    def request(self, op: str, deadline_s: float = DEADLINE_S, **fields: Any) -> Answer:
        """Send one request, return the answer.

        Raises ``RunError`` if it is refused, if the connection is lost, or after ``deadline_s`` seconds without an
        answer or with the request unsent. A request that was sent in part ends the connection, since the emulator
        could not read anything after it.
        """
        end_s = clock.monotonic() + deadline_s
        answer: clock.Future[dict[str, Any]] = clock.Future()
        with self._lock:
            if self._closed or self.lost:
                raise RunError(f"link emulator: {op}: it has ended")
            number = next(self._ids)
            self._pending[number] = answer
        line = json.dumps({"id": number, "op": op, **fields}, separators=(",", ":"))
        try:
            if not self._send(line.encode() + b"\n", end_s):
                raise RunError(f"link emulator: {op}: the request cannot be sent within {deadline_s:g} s")
            reply = answer.result(max(0.0, end_s - clock.monotonic()))
        except FutureTimeout as error:
            raise RunError(f"link emulator: {op}: no answer after {deadline_s:g} s") from error
        except OSError as error:
            self.lost = True
            raise RunError(f"link emulator: {op}: it has ended") from error
        finally:
            self._pending.pop(number, None)
        if not reply.get("ok"):
            raise RunError(f"link emulator: {op}: {reply.get('error', 'refused without a reason')}")
        return Answer(dict(reply.get("result") or {}), int(reply.get("at_ns", 0)))

    def close(self) -> None:
        """End the connection, which ends the emulator. Idempotent; never called by the reading thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._shut()
        self._thread.join(DEADLINE_S)
        # A request that is being sent fails now; its thread still holds the file.
        if self._sending.acquire(timeout=DEADLINE_S):
            self._sending.release()
        self._connection.close()

    def _shut(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The other side has ended it already.
            self.lost = True

    def _send(self, data: bytes, end_s: float) -> bool:
        """Whether the other side has read all of it by ``end_s``. Raises ``OSError`` where it has ended."""
        if not self._sending.acquire(timeout=max(0.0, end_s - clock.monotonic())):
            return False
        try:
            # A socket's own timeout would hold for the reading thread, too.
            writable = select.poll()
            writable.register(self._connection, select.POLLOUT)
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[self._connection.send(rest, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    left_s = end_s - clock.monotonic()
                    if left_s <= 0 or not writable.poll(left_s * 1000):
                        if len(rest) < len(data):
                            self._shut()
                        return False
        finally:
            self._sending.release()
        return True

    def _read(self) -> None:
        reason = "it has ended"
        try:
            with self._connection.makefile("rb") as lines:
                while line := lines.readline(_LINE_MAX_BYTES):
                    self._take(json.loads(line))
        except OSError:
            pass  # it ended with something of ours unread
        except ValueError as error:
            reason = f"its answer cannot be read: {error}"
        finally:
            with self._lock:
                self.lost = True
                expected = self._closed
            for future in list(self._pending.values()):
                if not future.done():
                    future.set_result({"ok": False, "error": reason})
            if not expected:
                _guarded(self._on_lost)

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict) or not isinstance(message.get("id", 0), int):
            raise ValueError(f"{message!r} is neither an answer nor an event")
        if "id" not in message:
            _guarded(self._on_event, message)
            return
        future = self._pending.get(message["id"])
        # A late answer is dropped.
        if future is not None and not future.done():
            future.set_result(message)


def _guarded(handler: Callable[..., None], *arguments: Any) -> None:
    """Call a handler; its error is its own and must not end the thread that reads."""
    try:
        handler(*arguments)
    except Exception:  # noqa: BLE001 - whatever it is
        _LOG.exception("link emulator: the handler of an event failed")


_START_DEADLINE_S = 10.0
_END_DEADLINE_S = 5.0
_INTERFACE_END_S = 0.1
"""On two busy cores the kernel took 20 ms for each interface."""
# It prints a line where something is wrong; never one for each frame.
_LOG_LINES = 1000


def default_binary() -> Path:
    """The emulator that the set-up has built. Raises ``MissingRequirementError`` if it is not built."""
    return programs.path("link-emulator")


def granted(core: int | None = None) -> dict[str, Any]:
    """The ``hello`` of an emulator that is started and stopped on this machine. Raises as ``LinkEmulator.start``."""
    emulator = LinkEmulator(None, lambda kind, text: None, core)
    try:
        emulator.start()
        return emulator.hello
    finally:
        emulator.stop()


class LinkEmulator:
    """The emulator's process. It ends with its control connection, so it never outlives this process.

    ``on_event`` is called for ports whose host has ended, and for the emulator's own unexpected end. ``hello`` is
    the emulator's description of itself (version, realtime, pid). ``core`` is the only core of its data thread. With
    ``offload`` hosts leave checksums and the segmentation of TCP to it.
    """

    def __init__(
        self, binary: Path | str | None, on_event: EventHandler, core: int | None = None, offload: bool = False
    ) -> None:
        self._binary = Path(binary) if binary is not None else None
        self._core = core
        self._arguments = [*(() if core is None else ("--core", str(core))), *(("--offload",) if offload else ())]
        self._on_event = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._client: ControlClient | None = None
        self._log_lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._listener: clock.Thread | None = None
        self._stopping = False
        self._interfaces = 0
        self._lock = clock.Lock()
        self._traces: set[str] = set()
        self.hello: dict[str, Any] = {}
        # See `Fabric.route`; the links between switches that are down.
        self._rerouted: Rerouted | None = None
        self._down: frozenset[str] = frozenset()
        self._routing = clock.Lock()

    @property
    def pid(self) -> int | None:
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
                    [str(binary), "serve", "--control-fd", str(theirs.fileno()), *self._arguments],
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
            self._listener = clock.Thread(
                target=self._listen, args=(self._process,), name="link-emulator-log", daemon=True
            )
            self._listener.start()
            self._client = ControlClient(ours, self._event, self._lost)
        try:
            self.hello = self.request("hello", _START_DEADLINE_S).result
        except RunError as error:
            reason = self._ending() if self._client.lost else f"{error}: {last_words(self.log)}".removesuffix(": ")
            raise RunError(reason) from error
        if self._core is not None and self.hello.get("core") != self._core:
            raise RunError(f"the link emulator keeps to core {self.hello.get('core')}, not {self._core}")

    def request(self, op: str, deadline_s: float = DEADLINE_S, **fields: Any) -> Answer:
        if self._client is None:
            raise RunError(f"link emulator: {op}: it has not been started")
        self._interfaces += op == "add_port"
        return self._client.request(op, deadline_s, **fields)

    def route(self, routes: Routes, rerouted: Rerouted | None) -> None:
        with self._routing:
            self.request("routes", switches=routes)
            self._rerouted = rerouted

    def plug_between(self, name: str, up: bool) -> int:
        """Take a link between switches down or up, with the routes that frames take then; when (monotonic, ns)."""
        with self._routing:
            down = self._down - {name} if up else self._down | {name}
            routes = None if self._rerouted is None else self._rerouted(down)
            at_ns = self.request("link_state", name=name, up=up, switches=routes).at_ns
            self._down = down
        return at_ns

    def load(self, trace: Trace) -> str:
        """Make a trace known to it, once; return its name there. Raises ``RunError``, also if the file has changed."""
        name = trace_name(trace)
        if name in self._traces:
            return name
        times, values = points_of(trace)
        repeats = trace.kind == "opportunities" or trace.repeat_ns is None
        given: dict[str, Any] = {"name": name, "kind": trace.kind, "repeat_ns": None if repeats else trace.repeat_ns}
        for start in range(0, len(times), _POINTS):
            end = start + _POINTS
            given |= {"times_ns": times[start:end], "values": values[start:end], "more": end < len(times)}
            self.request("add_trace", **given)
        self._traces.add(name)
        return name

    def answers(self, timeout_s: float) -> bool:
        """Whether it answers in time, its data thread too; true of one that has not been started."""
        if not self.hello:
            return True
        try:
            self.request("hello", timeout_s)
        except RunError:
            return False
        return True

    def stop(self) -> None:
        """End the process: its interfaces vanish with it. Idempotent."""
        self._stopping = True
        if self._client is not None:
            self._client.close()
        if self._process is None:
            return
        # Also after SIGKILL the kernel removes one interface after the other before the process has ended.
        deadline_s = _END_DEADLINE_S + _INTERFACE_END_S * self._interfaces
        try:
            self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(deadline_s)

    @property
    def log(self) -> str:
        return "".join(f"{line}\n" for line in list(self._log_lines))

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._log_lines.append(line.decode(errors="replace").rstrip())

    def _event(self, message: dict[str, Any]) -> None:
        if self._stopping:
            return  # hosts end in a tear-down: no news
        kind = str(message.get("event", "unknown"))
        about = message.get("port") or message.get("link") or ""
        self._on_event(kind, f"{about}: {message.get('reason', kind)}" if about else str(message))

    def _lost(self) -> None:
        if self._stopping or self._process is None:
            return
        self._on_event("emulator_died", self._ending())

    def _ending(self) -> str:
        """How it ended once its connection was lost, with its last output."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_DEADLINE_S)
        if self._listener is not None:
            self._listener.join(_END_DEADLINE_S)
        status = self._process.poll()
        if status is None:
            return "the link emulator closed its connection"
        return f"the link emulator ended: {ending(status, self.log)}"


_POINTS = 20_000
"""Of a trace in one request: a line has at most 1 MiB, and the longest numbers 19 digits."""


def trace_name(trace: Trace) -> str:
    """What the emulator calls a trace: different ones have different names."""
    return f"{trace.kind} {trace.sha256} {trace.second_ns} {trace.repeat_ns}"


def direction_to_json(direction: DirectionSpec, seed: int = 0) -> dict[str, Any]:
    """One direction as the control protocol has it, all fields given: its names are those of the spec.

    ``seed``: of a direction that has none of its own.
    """
    fields = asdict(direction)
    usual = fields.pop("default_queue_frames")
    del fields["uplink"], fields["trace"]  # not the emulator's, or not now: see `EmulatedLink.follow`
    if direction.queue_frames is None and direction.queue_bytes is None:
        fields["queue_frames"] = usual
    if direction.seed is None:
        fields["seed"] = seed
    return fields


def direction_from_json(value: Mapping[str, Any]) -> DirectionSpec:
    """The direction that the emulator holds, without its counters."""
    jitter, loss, aqm = value.get("jitter"), dict(value.get("loss") or {}), dict(value.get("aqm") or {})
    kinds: dict[str, type[Loss]] = {"independent": IndependentLoss, "gilbert_elliott": GilbertElliottLoss}
    held = {name: value[name] for name in DirectionSpec.__dataclass_fields__ if name in value}
    held["jitter"] = None if jitter is None else Jitter(**jitter)
    held["loss"] = kinds[loss.pop("model")](**loss) if loss else None
    if aqm:
        of = DISCIPLINES[aqm.pop("kind")]
        held["aqm"] = of(**{name: item for name, item in aqm.items() if item is not None})
    return DirectionSpec(**held)


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
        # The undo of each request that was sent, in order, and how many of the requests are known to have been done.
        self._undo: list[tuple[str, str]] = []
        self._done = 0

    def _no_uplinks(self) -> dict[str, Uplink]:
        """An uplink, which holds nothing back yet, for each direction on which a host sends."""
        return {side: Uplink(end) for side, end in zip(SIDES, self.ends, strict=True) if isinstance(end, Interface)}

    def make(self) -> None:
        """See ``ShapedLink``: the TAPs stay down until they are brought up."""
        for end in self.ends:
            if isinstance(end, Interface):
                tap = port_name(end)
                self._create("port", name=tap, pid=end.pid, ifname=end.name, mac=end.mac, mtu=end.mtu_bytes)

    def _create(self, what: str, name: str, **fields: Any) -> Answer:
        self._undo.append((f"remove_{what}", name))
        answer = self._emulator.request(f"add_{what}", name=name, **fields)
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
            a, b = ({"port": port_name(e)} if isinstance(e, Interface) else {"switch": e.switch} for e in self.ends)
            sides = {side: direction_to_json(getattr(spec, side), self._seed) for side in SIDES}
            answer = self._create("link", name=self.name, a=a, b=b, **sides)
            self.made = True
        try:
            self._hold_at_hosts(spec)
        except ContainernetEnvError:
            if held is not None:
                self._set(spec, held, {})
                self._hold_at_hosts(held)
            raise
        # An uplink has no effect where no host sends, or without a rate.
        directions = {side: getattr(spec, side) for side in SIDES}
        effective = (
            of if side in self._uplinks and of.rate_bps is not None else replace(of, uplink=None)
            for side, of in directions.items()
        )
        check_held(self.name, LinkSpec(*effective), self.read_back())
        for direction in directions.values():
            for trace in direction.traces.values():
                self._emulator.load(trace)
        self.spec = spec
        return answer.at_ns

    def _set(self, held: LinkSpec, spec: LinkSpec, changes: Mapping[str, Mapping[str, Any]]) -> Answer:
        sides: dict[str, Any] = {side: direction_to_json(getattr(spec, side), self._seed) for side in SIDES}
        for side, fields in sides.items():
            # Sending a seed restarts the draws.
            if getattr(held, side).seed == getattr(spec, side).seed and "seed" not in changes.get(side, {}):
                del fields["seed"]
        return self._emulator.request("set_link", name=self.name, **sides)

    def follow(self, start_ns: int | None) -> int:
        """Follow the traces of the spec, which began at ``start_ns`` (monotonic); ``None``: none any more.

        Returns when it took effect. Raises ``RunError`` if the emulator does not hold that then.
        """
        names = {"rate_bps": "rate", "delay_ns": "delay"}
        wanted: dict[str, Any] = {side: {} for side in SIDES}
        for side in SIDES if start_ns is not None else ():
            traces = getattr(self.spec, side).traces
            wanted[side] = {names[field]: trace_name(trace) for field, trace in traces.items()}
        answer = self._emulator.request("follow", name=self.name, start_ns=start_ns, **wanted)
        for side in SIDES:
            held = answer.result[side].get("traces") or {}
            found = {key: held[key] for key in ("rate", "delay") if held.get(key) is not None}
            if found != wanted[side]:
                raise RunError(f"link {self.name}, {side}: follows {found or 'no trace'}, not {wanted[side] or 'none'}")
        return answer.at_ns

    def _hold_at_hosts(self, spec: LinkSpec) -> None:
        for side, uplink in self._uplinks.items():
            with suppress(ProcessGoneError):  # its host has ended, and sends no more
                uplink.apply(getattr(spec, side))

    def read_back(self) -> LinkSpec:
        held = self._emulator.request("read_link", name=self.name).result
        return LinkSpec(*(self._held(side, direction_from_json(held[side])) for side in SIDES))

    def _held(self, side: str, direction: DirectionSpec) -> DirectionSpec:
        uplink = self._uplinks.get(side)
        if uplink is None or direction.rate_bps is None:
            return direction
        try:
            return replace(direction, uplink="host" if uplink.holds() else "network")
        except ProcessGoneError:
            return direction

    def statistics(self) -> dict[str, Any]:
        counters = link_counters(self._emulator.request("read_link", name=self.name).result)
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
        if not any(isinstance(end, Interface) for end in self.ends):
            return self._emulator.plug_between(self.name, up)
        return self._emulator.request("link_state", name=self.name, up=up).at_ns

    def set_mtu(self, end: Interface, size_bytes: int) -> None:
        super().set_mtu(end, size_bytes)
        self._emulator.request("set_port", name=port_name(end), mtu=size_bytes)

    def clear(self) -> None:
        """See ``ShapedLink``. Of an emulator that has ended, everything is gone already."""
        if self._emulator.pid is not None:
            for number, (undo, name) in reversed(list(enumerate(self._undo))):
                try:
                    self._emulator.request(undo, name=name)
                except RunError:
                    if number < self._done:
                        raise
                    # It was refused, or the call was interrupted: there may be nothing to remove.
        self.made = False
        self._uplinks = self._no_uplinks()
        self._undo.clear()
        self._done = 0


def port_name(end: Interface) -> str:
    """What the emulator calls the port of a TAP."""
    return end.alias or end.name


class EmulatorFabric(Fabric):
    """The link emulator; ``emulator`` gives it, and is not called before there is a link."""

    def __init__(self, emulator: Callable[[], LinkEmulator]) -> None:
        self._emulator = emulator

    def partition(self, sets: Sequence[Sequence[Interface]]) -> int:
        """See ``Fabric``: at one moment, between two frames."""
        return self._emulator().request("partition", sets=[[port_name(end) for end in group] for group in sets]).at_ns

    def heal(self) -> int:
        # Before its start there is no partition.
        return self._emulator().request("heal").at_ns if self._emulator().hello else clock.monotonic_ns()

    def route(self, routes: Routes, rerouted: Rerouted | None = None) -> None:
        self._emulator().route(routes, rerouted)

    def statistics(self, links: Sequence[ShapedLink], *, reset: bool, buckets: bool) -> dict[str, Any]:
        """See ``Fabric``: of all its links, whichever are given."""
        if not links:
            return counters_of([])
        answer = self._emulator().request("stats", reset=reset, buckets=buckets)
        counters = emulator_counters(answer.result, answer.at_ns)
        for link in links:
            if isinstance(link, EmulatedLink) and link.name in counters["links"]:
                link.count_at_hosts(counters["links"][link.name], counters["ports"], reset=reset)
        return counters
