"""``Docker``: a Mininet host that is a container, with Containernet's keywords and Mininet's ``cmd``."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import select
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mininet.log import debug, info
from mininet.node import Host

from containernet_env.base import clock
from containernet_env.base.errors import RunError, UsageError
from containernet_env.base.files import copy_descriptor
from containernet_env.base.programs import LastWords, last_words
from containernet_env.config.plan import HostPlan
from containernet_env.containernet.links import NoInterface
from containernet_env.hosts.container import Container, ExitState, build_image, find_image
from containernet_env.hosts.limits import Limits
from containernet_env.hosts.netns import ip_batch
from containernet_env.hosts.options import ContainerOptions, check_name
from containernet_env.hosts.processes import SENTINEL, ContainerProcesses, Shell, shell_argv
from containernet_env.model.hints import suggestion

CANNOT_RUN = 126
"""The status of a command that could not be started, as in sh."""
_LINE = re.compile(rf"([^\n{SENTINEL}]*)([\n{SENTINEL}])")


def planned_options(plan: HostPlan) -> dict[str, Any]:
    """The container options of a planned host, as keywords of Containernet's ``Docker`` and ``ContainerOptions``."""
    return {
        "environment": dict(plan.environment),
        "tmpfs": [f"{path}:{options}" for path, options in plan.tmpfs.items()],
        "mem_limit": plan.memory_bytes,
        "memswap_limit": plan.memswap_bytes,
        "cpu_period": plan.cpu_period_us,
        "cpu_quota": plan.cpu_quota_us,
    }


def read_more(node: Any) -> None:
    """Read what a node's shell has printed, after what was read before; blocks until there is something."""
    held, node.readbuf = node.readbuf, ""
    node.readbuf = held + node.read()


def held_line(node: Any) -> str | None:
    """The next line of what was read from a node's shell, without its line end; ``None`` if there is no whole one.

    The last line of a command that has ended counts as whole, and after it ``waiting`` is false.
    """
    line = _LINE.match(node.readbuf)
    if line is None:
        return None
    node.readbuf = node.readbuf[line.end() :]
    if line[2] == "\n":
        return line[1]
    if node.waiting:
        node.waiting = False
        if isinstance(node, ContainerHost):
            node.note_end()
    return line[1] or held_line(node)


class ContainerHost(Host):  # type: ignore[misc]
    """A Mininet host that is a container: its first process and its programs. Calls raise ``RunError``.

    ``pid`` is the first process on this machine: its network namespace is reached through it. ``wait_up(deadline_s)``
    returns when it runs within its limits, which are read back from the kernel; ``restart`` starts it again once it has
    ended. A shell is started by the first command that needs it.
    """

    container: Container

    def __init__(self, name: str, **parameters: Any) -> None:
        self._shell: Shell | None = None
        self._children: list[subprocess.Popen[Any]] = []
        self.last_status: int | None = None
        # Mininet's own, which its constructor sets to None.
        self.stdin: Any
        self.stdout: Any
        self.shell: Any
        self.lastCmd: str | None
        self.lastPid: int | None
        super().__init__(name, **parameters)

    @property
    def alive(self) -> bool:
        """Whether the container's first process runs; false until it is up."""
        return self.container.alive

    def exit_state(self) -> ExitState:
        """How the first process ended, once the engine has noticed (at most 10 s)."""
        return (self.container if self.alive else self._started()).exit_state()

    def ending(self, words: LastWords = last_words) -> str | None:
        return self.container.ending(words)

    def logs(self, tail: int = 20) -> str:
        """The last ``tail`` lines of its output. Raises ``RunError`` for a host without ``logs=True``."""
        return self.container.logs(tail)

    def freeze(self) -> int:
        """Stop it (SIGSTOP); returns when the signal was sent (monotonic, ns)."""
        return self.container.signal(signal.SIGSTOP)

    def thaw(self) -> int:
        """Continue it (SIGCONT); likewise."""
        return self.container.signal(signal.SIGCONT)

    def kill(self) -> int:
        """Kill it; likewise."""
        return self.container.signal(signal.SIGKILL)

    def wait_frozen(self, frozen: bool) -> None:
        """Return once the kernel reports it as stopped, or as running."""
        self.container.wait_stopped(frozen)

    def _started(self) -> Container:
        """The container once it is up. Raises ``RunError`` if it did not come up."""
        return self.container

    @property
    def processes(self) -> ContainerProcesses:
        """The launcher of programs in the container. Raises ``RunError`` if it does not run."""
        return self._started().processes

    def limits(self) -> Limits:
        """CPU and memory limits as the kernel holds them now."""
        return self._started().limits()

    def limit_cpu(self, quota_us: int | None, period_us: int) -> None:
        """Limit its CPU time per period; ``None``: no limit. Raises ``RunError`` unless the kernel applies it."""
        self._started().update(cpu_quota=-1 if quota_us is None else quota_us, cpu_period=period_us)

    # --- programs in it ----------------------------------------------------------------------------------------

    def startShell(self, *_args: Any, **_options: Any) -> None:
        """Does nothing: the shell is started by the first command that needs it."""

    def mountPrivateDirs(self) -> None:
        """Does nothing: a container's files are private; ``tmpfs`` and ``volumes`` mount."""

    unmountPrivateDirs = mountPrivateDirs

    def _ensure_shell(self) -> Shell:
        processes = self.processes
        if self._shell is None or not self._shell.alive:
            self._close_shell()
            self._shell = Shell(processes, self.name)
            self._poll(os.fdopen(os.dup(self._shell.terminal), "rb", buffering=0))
            self.shell = self._shell.process
            self.waiting = False
        return self._shell

    def _close_shell(self) -> None:
        if self.stdout is not None:
            self.outToNode.pop(self.stdout.fileno(), None)
            self.inToNode.pop(self.stdout.fileno(), None)
            self.stdout.close()
            self.stdout = self.stdin = None
        if self._shell is not None:
            self._shell.close()
        self._shell = None
        self.shell = None

    def sendCmd(self, *args: Any, **_options: Any) -> None:
        """Start a command in the shell; ``monitor`` and ``waitOutput`` read its output.

        If the container has ended, they read an error message instead, and the status is ``CANNOT_RUN``.
        """
        try:
            shell = self._ensure_shell()
        except RunError as error:
            self._say(f"*** {error}\n")
            return
        if self.waiting:
            raise RunError(f"host {self.name}: {self.lastCmd!r} still runs; waitOutput() or sendInt() first")
        words = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        command = " ".join(map(str, words)) or ":"
        self.lastCmd, self.lastPid = command, None
        if command.rstrip().endswith("&") and not command.rstrip().endswith("&&"):
            # Mininet's marker, from which monitor() learns lastPid.
            command = f"{command} printf '\\001%d\\012' $!"
        shell.send(command)
        self.last_status = None
        self.waiting = True

    def _say(self, text: str) -> None:
        """Return ``text`` as a command's output: an exception in ``sendCmd`` would end Mininet's CLI."""
        self._close_shell()
        ours, theirs = os.pipe()
        os.write(theirs, f"{text}{SENTINEL}".encode())
        os.close(theirs)
        self._poll(os.fdopen(ours, "rb", buffering=0))
        self.last_status = CANNOT_RUN
        self.waiting = True

    def _poll(self, stream: Any) -> None:
        """Make Mininet's CLI and ``monitor`` wait for ``stream``."""
        self.stdout = self.stdin = stream
        self.pollOut = select.poll()
        # Register for reading only; Mininet's default includes writing, which a terminal always allows, so monitor()
        # would ignore its time limit.
        self.pollOut.register(stream, select.POLLIN)
        self.outToNode[stream.fileno()] = self
        self.inToNode[stream.fileno()] = self
        self.readbuf = ""

    def read(self, size: int = 1024) -> str:
        """Mininet's buffered read; the end of the shell reads as the end of its command."""
        if not self.readbuf and self.stdout is not None:
            try:
                data = os.read(self.stdout.fileno(), max(1, size))
            except OSError:
                data = b""  # EIO: no process holds the other end of the terminal any more
            self.readbuf = self.decoder.decode(data) if data else SENTINEL
        found, self.readbuf = self.readbuf[:size], self.readbuf[size:]
        return str(found)

    def readline(self) -> str | None:
        """The next line of the running command; ``None`` until it is whole. Mininet's own reads a part of it again."""
        line = held_line(self)
        if line is None:
            read_more(self)
            line = held_line(self)
        return line

    def waitReadable(self, timeoutms: int | None = None) -> Any:
        """See Mininet, which calls what ``readline`` has left nothing to read, so that ``waitOutput`` never returns."""
        return True if self.readbuf else super().waitReadable(timeoutms)

    def write(self, data: str) -> None:
        if self._shell is not None:
            os.write(self._shell.terminal, data.encode())

    def sendInt(self, intr: str = "\x03") -> None:
        """Interrupt the running command, if any."""
        if self.waiting:
            self.write(intr)

    def monitor(self, timeoutms: int | None = None, findPid: bool = True) -> str:
        """The running command's output since the last call; ``waiting`` is false once it has ended."""
        if not self.waiting:
            return ""
        data = str(super().monitor(timeoutms, findPid=findPid))
        self.note_end()
        return data

    def note_end(self) -> None:
        """Keep the exit status of a command that has just ended."""
        if not self.waiting and self._shell is not None:
            self.last_status = self._shell.status()

    def cmd(self, *args: Any, **options: Any) -> str:
        """Run a command in the shell and return its output. Raises ``RunError`` if the container has ended."""
        self._ensure_shell()
        self.sendCmd(*args)
        return str(self.waitOutput(bool(options.get("verbose", False))))

    def run(self, *args: Any) -> tuple[int, str]:
        """Run a command in the shell; its exit status, and its output with ``\\n`` line ends."""
        output = self.cmd(*args).replace("\r\n", "\n")
        assert self.last_status is not None
        return self.last_status, output

    def popen(self, *args: Any, **options: Any) -> subprocess.Popen[Any]:
        """Start a program beside the shell; arguments as in Mininet (list, words, or text), ``Popen`` keywords."""
        words = args[0] if len(args) == 1 else args
        shell = options.pop("shell", False)
        options.pop("mncmd", None)
        if isinstance(words, str):
            words = [words] if shell else words.split()
        argv = [str(word) for word in words]
        if shell:
            argv = shell_argv(" ".join(argv))
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process = self.processes.popen(argv, **options)
        self._children.append(process)
        return process

    def release(self) -> None:
        """End the shell and programs started from here; the container stays. Idempotent."""
        self._close_shell()
        for process in self._children:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._children.clear()


BRING_UP_DEADLINE_S = 120.0

# Keywords that Mininet itself passes to a host; other unknown keywords are refused.
_HOST_PARAMETERS = frozenset({"ip", "mac", "defaultRoute"})
_OPTION_NAMES = frozenset(option.name for option in dataclasses.fields(ContainerOptions))


@dataclass
class ContainerContext:
    """The context that the hosts of one network share: its run id, and the pool that brings containers up.

    ``reconnect`` creates the links of a restarted host again.
    """

    run_id: str
    pool: Executor
    reconnect: Callable[[str], None] = lambda name: None
    closing: clock.Event = field(default_factory=lambda: clock.Event())
    _images: dict[str, clock.Lock] = field(default_factory=dict)

    def image_lock(self, image: str) -> clock.Lock:
        """One lock per image, so that a missing image that several hosts use is pulled once."""
        return self._images.setdefault(image, clock.Lock())


class Docker(ContainerHost):
    """A container as a Mininet host.

    The constructor returns at once; the container comes up on a pool of threads. Operations that need it
    (``pid``, ``cmd``, a link) wait, and raise ``RunError`` naming host and image if it failed. ``options`` are the
    fields of ``ContainerOptions`` and Mininet's ``ip``, ``mac``, ``defaultRoute``; unknown keywords raise
    ``UsageError``. Interfaces are configured from outside, so the container needs no capability for them.
    """

    def __init__(
        self,
        name: str,
        dimage: str | None = None,
        dcmd: str | Sequence[str] | None = None,
        build_params: Mapping[str, Any] | None = None,
        context: ContainerContext | None = None,
        **options: Any,
    ) -> None:
        check_name(name)
        # With this option Containernet removes a container of the same name; ours never clash.
        options.pop("rm", None)
        unknown = sorted(set(options) - _OPTION_NAMES - _HOST_PARAMETERS)
        if unknown:
            hint = suggestion(unknown[0], sorted(_OPTION_NAMES | _HOST_PARAMETERS))
            raise UsageError(f"Docker host {name}: unknown keyword {', '.join(unknown)}{hint}")
        if not dimage and not (build_params or {}).get("path"):
            raise UsageError(f"Docker host {name}: an image is needed (dimage=...)")
        try:
            # None means "not given", as in Containernet.
            given = {key: options[key] for key in _OPTION_NAMES & set(options) if options[key] is not None}
            self.options = ContainerOptions(dcmd=dcmd, **given)
        except UsageError as error:
            raise UsageError(f"Docker host {name}: {error}") from error
        self.container = Container(name, self.options)
        self.dimage = dimage
        # Those that were set, by destination, as lines for `ip -batch`: they go with the namespace.
        self.routes: dict[str, str] = {}
        self._build_params = dict(build_params or {})
        self._own_pool = clock.ThreadPoolExecutor(1) if context is None else None
        self.context = context or ContainerContext(new_run_id(), self._own_pool)  # type: ignore[arg-type]
        super().__init__(name, **{key: options[key] for key in _HOST_PARAMETERS & set(options)})
        self._ready: clock.Future[None] = self.context.pool.submit(self._bring_up)

    @classmethod
    def setup(cls) -> None:
        """Mininet's hook that checks for programs on the machine; a container needs none of them."""

    # --- bringing the container up (on the pool) -------------------------------------------------------------

    def _bring_up(self) -> None:
        try:
            self._create()
        except RunError as error:
            raise RunError(f"host {self.name} (image {self.dimage}): {error}") from error

    def _create(self) -> None:
        if self._build_params:
            parameters = {"tag": self.dimage, **self._build_params} if self.dimage else self._build_params
            self.dimage = build_image(**parameters)
        assert self.dimage is not None
        with self.context.image_lock(self.dimage):
            image = find_image(self.dimage, lambda: info(f"*** Image {self.dimage} is missing: pulling it\n"))
        self._check_open()
        for warning in self.container.create(image, self.context.run_id):
            info(f"{self.name}: {warning}\n")
        self._check_open()
        self.container.start()
        debug(f"{self.name}: its container is up as process {self.container.pid}\n")

    def _check_open(self) -> None:
        if self.context.closing.is_set():
            raise RunError("the network is being torn down")

    def wait_up(self, deadline_s: float = BRING_UP_DEADLINE_S) -> None:
        """Return when the container runs. Raises ``RunError`` if it failed or takes more than ``deadline_s``."""
        try:
            self._ready.result(deadline_s)
        except FutureTimeout as error:
            raise RunError(f"host {self.name} (image {self.dimage}) is not up after {deadline_s:g} s") from error

    def _started(self) -> Container:
        self.wait_up()
        return self.container

    # --- state ------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The container's first process on this machine; waits for the container.

        Raises ``RunError`` where it did not come up or has been removed. Its process may have ended: see ``alive``.
        """
        return self._started().pid

    @pid.setter
    def pid(self, value: int | None) -> None:
        # Mininet's constructor sets it to None; the real value comes from the engine.
        if value is not None:
            raise AttributeError("a container's pid is given by the engine")

    def __repr__(self) -> str:
        """Mininet's ``dump``, with the state of an ended or removed container."""
        interfaces = ",".join(f"{intf}:{intf.IP()}" for intf in self.intfList())
        state = "removed" if self.container.removed else f"pid={self.pid}"
        return f"<{type(self).__name__} {self.name}: {interfaces} {state}{'' if self.alive else ' (ended)'}> "

    @property
    def did(self) -> str | None:
        return self.container.id

    def died(self) -> bool:
        """Whether the container was up and its first process has ended since."""
        return self.container.died()

    def restart(self) -> None:
        """Restart its ended first process, on its files and within its limits, which are read back.

        Its links are created again with their last configuration, its addresses and neighbours, and read back.
        """
        self.container.restart()
        self.context.reconnect(self.name)

    # --- limits ----------------------------------------------------------------------------------------------

    def oom_kills(self) -> int:
        """How many processes in the container the OOM killer has ended; 1 or 0 once the container has ended."""
        return self._started().oom_kills()

    def update_resources(self, **resources: Any) -> None:
        """Change limits of the running container; keywords of the SDK's ``update_container``.

        Raises ``RunError`` if the engine refuses, or the kernel's values differ afterwards.
        """
        self._started().update(**resources)

    def updateCpuLimit(
        self,
        cpu_quota: int | None = None,
        cpu_period: int | None = None,
        cpu_shares: int | None = None,
        cores: str | None = None,
    ) -> None:
        """Change CPU limits: microseconds per period (-1: no limit), relative shares, cores such as "0-2"."""
        self.update_resources(cpu_quota=cpu_quota, cpu_period=cpu_period, cpu_shares=cpu_shares, cpuset_cpus=cores)

    def updateMemoryLimit(self, mem_limit: int | str | None = None, memswap_limit: int | str | None = None) -> None:
        """Change the memory limit; memory with swap follows it unless given."""
        self.update_resources(mem_limit=mem_limit, memswap_limit=memswap_limit)

    # --- interfaces (configured from outside; see links.NodeInterface) ---------------------------------------------

    def config(
        self,
        mac: str | None = None,
        ip: str | None = None,
        defaultRoute: str | None = None,
        **_params: Any,
    ) -> dict[str, Any]:
        if mac is not None:
            self.setMAC(mac)
        if ip is not None:
            self.setIP(ip)
        if defaultRoute is not None:
            self.setDefaultRoute(defaultRoute)
        return {}

    def defaultIntf(self) -> Any:
        """The first interface, or a placeholder."""
        return self.intfs[min(self.intfs)] if self.intfs else NoInterface()

    def setDefaultRoute(self, intf: Any = None) -> None:
        """``intf`` is an interface, or the words after ``ip route add default`` such as "via 10.0.0.1"."""
        words = str(intf) if intf is not None and " " in str(intf) else f"dev {intf or self.defaultIntf()}"
        self._set_route("default", words)

    def setHostRoute(self, ip: str, intf: Any) -> None:
        self._set_route(f"{ip}/32", f"dev {intf}")

    def _set_route(self, destination: str, words: str) -> None:
        line = f"route replace {destination} {words}"
        ip_batch(self.pid, [line])
        self.routes[destination] = line

    def setARP(self, ip: str, mac: str) -> None:
        """A permanent neighbour entry on the default interface."""
        ip_batch(self.pid, [f"neigh replace {ip} lladdr {mac} dev {self.defaultIntf()}"])

    def start(self) -> None:
        """Run the image's own entrypoint and command, beside the first process.

        As in Containernet, scripts call this once the links exist. Its output goes to the container's log.
        """
        self.wait_up()
        image = find_image(str(self.dimage)).get("Config") or {}
        argv = [*(image.get("Entrypoint") or ()), *(image.get("Cmd") or ())]
        if not argv or (len(argv) == 1 and Path(argv[0]).name in ("sh", "bash", "ash")):
            return
        info(f"{self.name}: running {shlex.join(argv)}\n")
        try:
            log = copy_descriptor(self.pid, 1)
        except OSError as error:
            raise RunError(f"host {self.name}: standard output of its first process: {error.strerror}") from error
        try:
            self.popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        finally:
            os.close(log)

    # --- the end ---------------------------------------------------------------------------------------------

    def terminate(self) -> None:
        """Remove the container in any state; waits for one that is still starting. Idempotent.

        Returns when the engine's process beside it has ended, too; but a network that is torn down waits for those of
        all its hosts together (``wait_gone``).
        """
        if not self.container.removed:
            if not self._ready.cancel():
                # The result of starting it no longer matters: whatever exists is removed.
                self._ready.exception(BRING_UP_DEADLINE_S)
            self.release()
            self.container.remove()
            if self._own_pool is not None:
                self._own_pool.shutdown(wait=False)
        if not self.context.closing.is_set():
            self.wait_gone()

    def wait_gone(self) -> None:
        """Return when the engine's process beside the removed container has ended."""
        self.container.wait_gone()

    cleanup = terminate

    def stop(self, deleteIntfs: bool = False) -> None:
        """Remove the container; its interfaces go with it."""
        self.terminate()


def new_run_id() -> str:
    """A fresh short id: 6 hexadecimal characters."""
    return secrets.token_hex(3)
