"""One container of the engine, from its creation to its end, without Mininet; files and data in it."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

from docker.errors import BuildError, ImageNotFound, NotFound

from containernet_env.base import clock
from containernet_env.base.errors import ContainernetEnvError, RunError
from containernet_env.base.files import open_folder, reason
from containernet_env.base.programs import (
    OOM_BY_OWN_LIMIT,
    LastWords,
    how_ended,
    killing_signal,
    last_words,
    one_line,
    with_words,
)
from containernet_env.base.units import describe_size
from containernet_env.hosts import engine, owner
from containernet_env.hosts.engine import EngineGoneError, HeldProcess, shim_of
from containernet_env.hosts.limits import (
    Limits,
    cgroups_of,
    check_limits,
    limit_swap,
    read_limits,
    read_oom_kills,
)
from containernet_env.hosts.options import ContainerOptions, cpu_limit, hostname, memory_bytes
from containernet_env.hosts.processes import ContainerProcesses


@dataclass
class ExitState:
    """How a container's first process ended; ``exit_code`` is ``None`` while it runs.

    ``oom_killed`` is the engine's flag: some process in the container has been OOM-killed, at any time.
    """

    exit_code: int | None
    oom_killed: bool
    finished_at: str = ""
    """When, as the engine writes it (RFC 3339, nanoseconds, UTC)."""


# An OOM kill and the end that follows from it are a few milliseconds apart; more where memory is short for all.
_OOM_TO_END_S = 2.0


def ending_of(state: ExitState, oom: bool, memory_bytes: int | None, log: str, words: LastWords) -> str:
    """How the first process ended, in one line; ``oom``: an OOM kill in its container came right before."""
    assert state.exit_code is not None
    how, signal = how_ended(state.exit_code), killing_signal(state.exit_code)
    if oom:
        limit = f" ({OOM_BY_OWN_LIMIT} {describe_size(memory_bytes)})" if memory_bytes else ""
        how = f"OOM-killed{limit}" if signal == "SIGKILL" else f"{how} after an OOM kill in it{limit}"
    return with_words(how, words(log, signal is not None), killed=signal is not None)


def ended_by_oom(container: str, state: ExitState) -> bool:
    """Whether an OOM kill in the container came right before its end.

    The engine's flag is not enough: it is also set if another process was killed long before. The engine keeps its
    last 256 events; if none is this container's, the flag decides.
    """
    only = {"container": container, "event": "oom"}
    try:
        # Up to now, as text with a fraction: a later moment would be waited for.
        kills = engine.client().api.events(since=1, until=f"{clock.time():.9f}", filters=only, decode=True)
        kills_s = [kill["timeNano"] / 1e9 for kill in kills]
    except engine.UNREACHABLE:
        kills_s = []
    if not kills_s or not state.finished_at:
        return state.oom_killed
    ended_s = datetime.fromisoformat(state.finished_at).timestamp()
    return any(abs(kill_s - ended_s) <= _OOM_TO_END_S for kill_s in kills_s)


def put_secrets(root: Path, host: str, files: Mapping[str, bytes]) -> None:
    """Write ``files``, contents by path, into ``host``, whose files are below ``root``; only root can read them there.

    The host must have mounted memory where they go: they must never be on a disk. They end with the host. Raises
    RunError, which names no contents.
    """
    for path, content in files.items():
        parent, name = os.path.split(path)
        try:
            folder = open_folder(root, parent)
            try:
                if os.fstat(folder).st_dev == root.stat().st_dev:
                    raise RunError(f"{host}: {path} would not be in memory: nothing is mounted there")
                # Nothing that is there is followed or replaced.
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            finally:
                os.close(folder)
            with open(file, "wb") as opened:
                opened.write(content)
        except OSError as error:
            raise RunError(f"{host}: {path} could not be written: {reason(error)}") from error


# The lines of its log that are searched for the reason of its end: thousands of goroutines may be dumped after it.
_WORDS_LINES = 10_000
_KILL_DEADLINE_S = 5.0
_STATE_DEADLINE_S, _STATE_POLL_S = 1.0, 0.001
# How long the engine may take to notice that the first process has ended.
_EXIT_DEADLINE_S, _EXIT_POLL_S = 10.0, 0.02
# The SDK's names of limits, and ours.
_OPTION_NAMES = frozenset(field.name for field in fields(ContainerOptions))
_UPDATES = {
    "cpu_quota": "cpu_quota_us",
    "cpu_period": "cpu_period_us",
    "mem_limit": "memory_bytes",
    "memswap_limit": "memswap_bytes",
    "cpuset_cpus": "cpuset",
}
# The part of /etc/hosts that has the hosts of the network.
_BEGIN, _END = "# hosts of the emulated network", "# end of these hosts"
# Of that file: its container may make it as long as it likes.
_HOSTS_MAX = 1 << 20


class Container:
    """The container of a host, which names it in errors; all calls raise ``RunError`` where the engine refuses.

    ``id`` is the engine's, ``None`` until there is one. Limits are those of ``options``.
    """

    def __init__(self, host: str, options: ContainerOptions, container_id: str | None = None) -> None:
        self.host = host
        self.options = options
        self.id = container_id
        self._first: HeldProcess | None = None
        # The process before the last restart: another thread may be using it.
        self._former: HeldProcess | None = None
        self._pid: int | None = None
        self._shim: HeldProcess | None = None
        self._config: dict[str, Any] = {}
        self._processes: ContainerProcesses | None = None
        self._hosts_file: str | None = None
        self._removed = False

    # --- bringing it up ----------------------------------------------------------------------------------------

    def create(self, image: Mapping[str, Any], run: str) -> list[str]:
        """Have the engine create it for a run, from an image (see ``find_image``); the engine's warnings."""
        command = self.options.command()
        exposed = tuple((image.get("Config") or {}).get("ExposedPorts") or ())
        with engine.refusals("the engine refused"):
            api = engine.client().api
            created = api.create_container(
                image=image["Id"],
                name=engine.container_name(run, self.host),
                # As entrypoint and not as command, so that the image's own entrypoint does not come before it.
                entrypoint=shlex.split(command) if isinstance(command, str) else command,
                stdin_open=True,
                hostname=hostname(self.host),
                environment=self.options.environment or None,
                volumes=self.options.volume_mounts() or None,
                ports=self.options.exposed_ports() or None,
                labels={**self.options.labels, **engine.labels(run, self.host)},
                host_config=api.create_host_config(**self.options.host_config(exposed)),
            )
        self.id = created["Id"]
        return list(created.get("Warnings") or ())

    def start(self) -> None:
        """Start it, and see that its first process runs within its limits."""
        with engine.refusals("the engine refused"):
            api = engine.client().api
            api.start(self.id)
            state = api.inspect_container(self.id)
        self._begin_names(state)
        self.adopt(state["State"]["Pid"], state["Config"])

    def adopt(self, pid: int, config: Mapping[str, Any] | None = None) -> None:
        """Take note of the process that the engine started (0: it has ended), and see that it is within its limits.

        ``config`` is the ``Config`` part of the engine's description.
        """
        self._config = dict(config or {})
        try:
            self._first = HeldProcess(pid) if pid else None
            if self._first is not None:
                self._shim = shim_of(pid)
                cgroups = cgroups_of(pid)
                options, (memory, memswap) = self.options, self.options.memory_limits
                limit_swap(cgroups, memory, memswap)
                quota_us, period_us = cpu_limit(options.cpus, options.cpu_quota, options.cpu_period)
                configured = {
                    "cpu_quota_us": quota_us,
                    "cpu_period_us": period_us,
                    "memory_bytes": memory,
                    "memswap_bytes": memswap,
                    "cpuset": options.cpuset_cpus,
                }
                check_limits(configured, read_limits(cgroups))
        except (ProcessLookupError, RunError):
            if self.alive:
                raise
        if not self.alive:
            hint = "" if self.options.logs else " (logs=True keeps its output)"
            raise RunError(f"its first process ended at once: {self._how_ended(last_words)}{hint}")
        self._pid = pid

    def write_names(self, addresses: Mapping[str, str]) -> None:
        """Have its /etc/hosts name the hosts of its network (name -> address), and itself; nothing once it has ended.

        Raises ``RunError``.
        """
        if not self.alive:
            return
        if self._hosts_file is None:
            with engine.refusals(f"host {self.host}: the engine does not describe it"):
                self._begin_names(engine.client().api.inspect_container(self.id))
        self._write_names(addresses)

    def _begin_names(self, state: Mapping[str, Any]) -> None:
        """Write its own name into its hosts file, and no name servers that it cannot reach into its resolver file.

        ``state`` is the engine's description, which writes both files at each start.
        """
        self._hosts_file = state.get("HostsPath") or ""
        self._write_names({})
        if self.options.network == "none" and (resolver := state.get("ResolvConfPath")):
            # With none a look-up fails at once, as nothing listens at the default, 127.0.0.1.
            _rewrite(resolver, lambda _: "".join(f"nameserver {server}\n" for server in self.options.dns))

    def _write_names(self, addresses: Mapping[str, str]) -> None:
        if self._hosts_file:  # else it is a volume's
            _rewrite(self._hosts_file, lambda text: hosts_text(text, {self.host: "127.0.0.1", **addresses}))

    def restart(self) -> None:
        """Start its first process again once that has ended: with its files, within its limits, on no network.

        Raises ``RunError`` where it still runs, or as ``start`` does.
        """
        if self.alive or self._removed:
            raise RunError(f"host {self.host}: it cannot be started again: it has not ended, or was removed")
        self._ended()  # the engine starts none that it takes for running
        self.wait_gone()
        self._processes = None
        former, self._former = self._former, self._first
        if former is not None:
            former.close()
        self.start()

    # --- its state ---------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Its first process on this machine, which may have ended: see ``alive``."""
        if self._removed or self._pid is None:
            raise RunError(f"host {self.host}: its container has been removed")
        return self._pid

    @property
    def removed(self) -> bool:
        return self._removed

    @property
    def alive(self) -> bool:
        first = self._first
        return not self._removed and first is not None and not first.has_ended()

    def died(self) -> bool:
        """Whether it was up and its first process has ended since."""
        return self._first is not None and not self.alive

    def exit_state(self) -> ExitState:
        """How the first process ended, once the engine has noticed (at most 10 s)."""
        return ExitState(None, False) if self.alive else self._ended()

    def ending(self, words: LastWords = last_words) -> str | None:
        """How the first process ended, in one line, with its last ``words``; ``None`` while it runs and before.

        Never raises: if the engine does not report it, the text says so. May wait as ``exit_state`` does.
        """
        if self._removed:
            return "its container has been removed"
        return self._how_ended(words) if self.died() else None

    def _how_ended(self, words: LastWords) -> str:
        try:
            state = self._ended()
            oom = ended_by_oom(str(self.id), state)
        except EngineGoneError as error:
            return f"how is unknown: the Docker engine {error.state}"
        except ContainernetEnvError as error:
            return f"how is unknown: {one_line(str(error).removeprefix(f'host {self.host}: '))}"
        try:
            log = self.logs(_WORDS_LINES) if self.options.logs else ""
        except (ContainernetEnvError, *engine.UNREACHABLE):
            log = ""
        return ending_of(state, oom, self.options.memory_limits[0], log, words)

    def _ended(self) -> ExitState:
        deadline_s = clock.monotonic() + _EXIT_DEADLINE_S
        while True:
            try:
                with engine.refusals(f"host {self.host}: the engine does not report how it ended", NotFound):
                    state = engine.client().api.inspect_container(self.id)["State"]
            except NotFound as error:
                raise RunError(f"host {self.host}: its container has been removed") from error
            if not state["Running"]:
                return ExitState(int(state["ExitCode"]), bool(state["OOMKilled"]), str(state.get("FinishedAt", "")))
            if clock.monotonic() > deadline_s:
                raise RunError(f"host {self.host}: the engine has not noticed the end of its first process")
            clock.sleep(_EXIT_POLL_S)

    def logs(self, tail: int = 20) -> str:
        """The last ``tail`` lines the first process wrote, with plain line ends.

        Raises ``RunError`` without ``logs=True`` in its options, and where they are gone.
        """
        if not self.options.logs:
            raise RunError(f"host {self.host} keeps no logs: it was added without logs=True")
        if self.id is None:
            return ""
        with engine.refusals(f"host {self.host}: no logs"):
            data: bytes = engine.client().api.logs(self.id, stdout=True, stderr=True, tail=tail)
        return data.decode(errors="replace").replace("\r\n", "\n")

    @property
    def processes(self) -> ContainerProcesses:
        """What starts programs in it. Raises ``RunError`` where it does not run."""
        pid = self.pid
        if not self.alive:
            raise RunError(f"host {self.host}: its container has ended")
        if self._processes is None:
            self._processes = ContainerProcesses(pid, self._config, self.host)
        return self._processes

    # --- its first process -------------------------------------------------------------------------------------

    def signal(self, signum: int) -> int:
        """Send its first process a signal; when that was (monotonic, ns). Raises ``RunError`` where it has ended."""
        try:
            if self._first is None:
                raise ProcessLookupError
            self._first.signal(signum)
        except ProcessLookupError as error:
            raise RunError(f"host {self.host}: its container has ended") from error
        return clock.monotonic_ns()

    def wait_stopped(self, stopped: bool) -> None:
        """Return once its first process is stopped (SIGSTOP), or is not, as the kernel reports it.

        Raises ``RunError`` after a second.
        """
        deadline_s = clock.monotonic() + _STATE_DEADLINE_S
        while _is_stopped(self.pid) is not stopped:
            if clock.monotonic() > deadline_s:
                raise RunError(f"host {self.host}: its first process is {'not ' if stopped else ''}stopped")
            clock.sleep(_STATE_POLL_S)

    # --- limits ------------------------------------------------------------------------------------------------

    def limits(self) -> Limits:
        return read_limits(cgroups_of(self.pid))

    def oom_kills(self) -> int:
        """How many of its processes the kernel has killed for want of memory; 1 or 0 once it has ended."""
        try:
            return read_oom_kills(cgroups_of(self.pid))
        except RunError:
            if self.alive:
                raise
            # The groups vanish with the container; what the engine saw remains.
            return int(self.exit_state().oom_killed)

    def update(self, **resources: Any) -> None:
        """Change limits while it runs; keywords of the SDK's ``update_container``, ``None`` is not given.

        It has them after a ``restart``, too. Raises ``RunError`` where the engine refuses, or the kernel then holds
        something else.
        """
        wanted = {key: value for key, value in resources.items() if value is not None}
        for key in ("mem_limit", "memswap_limit"):
            if key in wanted:
                wanted[key] = memory_bytes(wanted[key])
        if "mem_limit" in wanted:
            wanted.setdefault("memswap_limit", wanted["mem_limit"])
        if not wanted:
            return
        what = f"host {self.host}: limits {wanted} were refused"
        try:
            with engine.refusals(what):
                engine.client().api.update_container(self.id, **wanted)
        except TypeError as error:
            raise RunError(f"{what}: {error}") from error
        limit_swap(cgroups_of(self.pid), self.limits().memory_bytes, wanted.get("memswap_limit"))
        try:
            check_limits({_UPDATES[name]: value for name, value in wanted.items() if name in _UPDATES}, self.limits())
        except RunError as error:
            raise RunError(f"host {self.host}: {error}") from error
        changed = {name: value for name, value in wanted.items() if name in _OPTION_NAMES}
        if "cpu_quota" in changed:
            changed["cpus"] = None  # the same limit in other words
        self.options = replace(self.options, **changed)

    # --- the end -----------------------------------------------------------------------------------------------

    def remove(self) -> None:
        """Remove it, whatever state it is in. Idempotent; see ``wait_gone``.

        Where the engine is gone, its first process, and with it all others of it, is ended from here;
        ``EngineGoneError`` is raised then, since the container stays.
        """
        if self._removed:
            return
        if self.id is not None:
            try:
                engine.remove_container(self.id)
            except EngineGoneError:
                self._kill()
                raise
        self._let_go()

    def _kill(self) -> None:
        """End its first process without the engine, and wait for no shim: the engine ends that when it is back."""
        if self._shim is not None:
            self._shim.close()
            self._shim = None
        if self._first is not None:
            with suppress(ProcessLookupError):
                self._first.signal(signal.SIGKILL)
            self._first.has_ended(_KILL_DEADLINE_S)

    def close(self) -> None:
        """Note that another caller has removed it from the engine; see ``wait_gone``. Idempotent."""
        self._let_go()
        self.wait_gone()

    def _let_go(self) -> None:
        self._removed = True
        for process in (self._first, self._former):
            if process is not None:
                process.close()
        self._first = self._former = None

    def wait_gone(self) -> None:
        """Once it was removed, return when the engine's shim beside it has ended, too."""
        shim, self._shim = self._shim, None
        if shim is not None and (problem := engine.wait_shim(shim)):
            raise RunError(f"host {self.host}: {problem}")


def _is_stopped(pid: int) -> bool | None:
    """Whether a process is stopped, from /proc; ``None`` if it has ended."""
    try:
        return owner.stat_field(pid, 3) == "T"
    except OSError:
        return None


def find_image(image: str, on_fetch: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """The description of an image, which is fetched from its registry where the engine does not have it.

    ``on_fetch`` is called before that. Raises ``RunError``.
    """
    with engine.refusals("the engine refused"):
        api = engine.client().api
        try:
            return dict(api.inspect_image(image))
        except ImageNotFound:
            on_fetch()
    with engine.refusals("the engine neither has the image nor could fetch it"):
        engine.client().images.pull(image)
        return dict(api.inspect_image(image))


def build_image(**parameters: Any) -> str:
    """Have the engine build an image; keywords of the SDK's ``images.build``. Its id. Raises ``RunError``."""
    with engine.refusals("the engine refused"):
        try:
            image, _ = engine.client().images.build(**parameters)
        except (BuildError, TypeError) as error:
            raise RunError(f"the image could not be built: {error}") from error
    return str(image.id)


def hosts_text(text: str, addresses: Mapping[str, str]) -> str:
    """The text of /etc/hosts with these hosts (name -> address) in the place of those that it had; the rest stays."""
    before, found, rest = text.partition(f"{_BEGIN}\n")
    after = rest.partition(f"{_END}\n")[2] if found else ""
    if before and not before.endswith("\n"):
        before += "\n"
    # A long name is beside the shorter one that its host has.
    names = {name: dict.fromkeys((name, hostname(name))) for name in addresses}
    lines = "".join(f"{address}\t{' '.join(names[name])}\n" for name, address in addresses.items())
    return f"{before}{_BEGIN}\n{lines}{_END}\n{after}"


def _rewrite(path: str, change: Callable[[str], str]) -> None:
    # In place: the engine mounts the file itself, so the container can change its contents but not what is at the path.
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "r+", encoding="utf-8", errors="surrogateescape", newline="") as file:
            held = file.read(_HOSTS_MAX + 1)
            if len(held) > _HOSTS_MAX:
                which = f"{path}, which the engine keeps for the container,"
                raise RunError(f"{which} has more than {_HOSTS_MAX} characters")
            wanted = change(held)
            if wanted != held:
                file.seek(0)
                file.write(wanted)
                file.truncate()
    except OSError as error:
        raise RunError(f"{path}, which the engine keeps for the container, cannot be written: {error}") from error


WRITE_BYTES = 512
"""About the record of a small put in etcd's write-ahead log."""

SAMPLES = 100
BUDGET_S = 0.2
"""A host's measurement ends after so many samples or so long, whichever comes first, and with one at least."""

# As etcd allocates its log before it writes to it (server/storage/wal, Preallocate): room for all samples.
_ROOM_BYTES = SAMPLES * WRITE_BYTES


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """What appending ``WRITE_BYTES`` with an fdatasync took, ``samples`` times (1 or more)."""

    samples: int
    median_ns: int
    slowest_ns: int


def measure_sync(root: Path, directory: str, budget_s: float = BUDGET_S) -> SyncTimes:
    """Append to a file in ``directory`` of a host whose files are below ``root``, in its nearest parent that exists.

    The file has no name any more before the first byte is written, so nothing stays. It is this process that writes:
    limits of the host's cgroup do not slow it down. Raises ``RunError`` where nothing can be written there.
    """
    name = f".containernet-env-{secrets.token_hex(8)}"
    try:
        folder = _nearest_folder(root, PurePosixPath("/", directory))
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            os.posix_fallocate(descriptor, 0, _ROOM_BYTES)
            return _appended(descriptor, budget_s)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RunError(f"no fdatasync could be measured in {directory}: {reason(error)}") from error


def _nearest_folder(root: Path, path: PurePosixPath) -> int:
    try:
        return open_folder(root, str(path))
    except (FileNotFoundError, NotADirectoryError):
        if path == path.parent:
            raise
        return _nearest_folder(root, path.parent)


def _appended(descriptor: int, budget_s: float) -> SyncTimes:
    content = b"\x01" * WRITE_BYTES
    took_ns: list[int] = []
    until = clock.monotonic() + budget_s
    while len(took_ns) < SAMPLES and (not took_ns or clock.monotonic() < until):
        began = clock.perf_counter_ns()
        os.write(descriptor, content)
        os.fdatasync(descriptor)
        took_ns.append(clock.perf_counter_ns() - began)
    return SyncTimes(len(took_ns), round(median(took_ns)), max(took_ns))
