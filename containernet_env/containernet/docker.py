"""``Docker``: a Mininet host that is a container, with the keywords of Containernet's class of that name."""

from __future__ import annotations

import dataclasses
import difflib
import os
import secrets
import select
import shlex
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker.errors import APIError, BuildError, ImageNotFound
from mininet.log import debug, info

from containernet_env.base.errors import RunError, UsageError
from containernet_env.containernet.programs import ContainerPrograms
from containernet_env.hosts import engine, owner
from containernet_env.hosts.engine import ExitState
from containernet_env.hosts.limits import Limits, cgroups_of, check_limits, limit_swap, read_limits, read_oom_kills
from containernet_env.hosts.netns import ip_batch
from containernet_env.hosts.options import ContainerOptions, check_name, cpu_limit, hostname, memory_bytes
from containernet_env.hosts.processes import ContainerProcesses
from containernet_env.network.interface import NoInterface

BRING_UP_DEADLINE_S = 120.0

# What Mininet itself hands to a host; everything else that is unknown is a mistake.
_HOST_PARAMETERS = frozenset({"ip", "mac", "defaultRoute"})
_OPTION_NAMES = frozenset(option.name for option in dataclasses.fields(ContainerOptions))


@dataclass
class ContainerContext:
    """What the hosts of one network share: its run id, the pool that brings containers up, their labels."""

    run_id: str
    pool: Executor
    labels: Mapping[str, str] = field(default_factory=dict)
    closing: threading.Event = field(default_factory=threading.Event)
    _images: dict[str, threading.Lock] = field(default_factory=dict)

    def image_lock(self, image: str) -> threading.Lock:
        """One lock per image, so that hosts that share a missing one fetch it once."""
        return self._images.setdefault(image, threading.Lock())


class Docker(ContainerPrograms):
    """A container as a Mininet host.

    The constructor returns at once; the container comes up on a pool of threads. Whatever needs it (``pid``,
    ``cmd``, a link) waits, and raises ``RunError`` naming host and image if it failed. ``options`` are the fields
    of ``ContainerOptions`` and Mininet's ``ip``, ``mac``, ``defaultRoute``; unknown keywords raise ``UsageError``.
    Interfaces are configured from outside, so the container needs no capability for them.
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
        # Containernet removes a container of the same name when told to; ours never clash.
        options.pop("rm", None)
        unknown = sorted(set(options) - _OPTION_NAMES - _HOST_PARAMETERS)
        if unknown:
            near = difflib.get_close_matches(unknown[0], _OPTION_NAMES | _HOST_PARAMETERS, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise UsageError(f"Docker host {name}: unknown keyword {', '.join(unknown)}{hint}")
        if not dimage and not (build_params or {}).get("path"):
            raise UsageError(f"Docker host {name}: an image is needed (dimage=...)")
        try:
            # None stands for "not given", as in Containernet.
            given = {key: options[key] for key in _OPTION_NAMES & set(options) if options[key] is not None}
            self.options = ContainerOptions(dcmd=dcmd, **given)
        except UsageError as error:
            raise UsageError(f"Docker host {name}: {error}") from error
        self.dimage = dimage
        self.did: str | None = None
        self._build_params = dict(build_params or {})
        self._own_pool = ThreadPoolExecutor(1) if context is None else None
        self.context = context or ContainerContext(new_run_id(), self._own_pool)  # type: ignore[arg-type]
        self.container_name = f"cnenv-{self.context.run_id}-{name}"
        self._pid: int | None = None
        self._pidfd: int | None = None
        self._config: dict[str, Any] = {}
        self._processes: ContainerProcesses | None = None
        self._removed = False
        super().__init__(name, **{key: options[key] for key in _HOST_PARAMETERS & set(options)})
        self._ready: Future[None] = self.context.pool.submit(self._bring_up)

    @classmethod
    def setup(cls) -> None:
        """Mininet's hook that looks for programs of the machine; a container needs none of them."""

    # --- bringing the container up (on the pool) -------------------------------------------------------------

    def _bring_up(self) -> None:
        try:
            self._create()
        except RunError as error:
            raise RunError(f"host {self.name} (image {self.dimage}): {error}") from error
        except (APIError, *engine.UNREACHABLE) as error:
            reason = getattr(error, "explanation", None) or error
            raise RunError(f"host {self.name} (image {self.dimage}): the engine refused: {reason}") from error

    def _create(self) -> None:
        api = engine.client().api
        if self._build_params:
            self._build_image()
        image = self._find_image()
        image_config = image.get("Config") or {}
        command = self.options.command()
        argv = shlex.split(command) if isinstance(command, str) else command
        if self.context.closing.is_set():
            raise RunError("the network is being torn down")
        created = api.create_container(
            image=image["Id"],
            name=self.container_name,
            # As entrypoint and not as command, so that the image's own entrypoint does not come before it.
            entrypoint=argv,
            stdin_open=True,
            hostname=hostname(self.name),
            environment=self.options.environment or None,
            volumes=self.options.volume_mounts() or None,
            ports=self.options.exposed_ports() or None,
            labels={
                **self.options.labels,
                **self.context.labels,
                **engine.labels(self.context.run_id, self.name),
                owner.LABEL: owner.current(),
            },
            host_config=api.create_host_config(
                **self.options.host_config(tuple(image_config.get("ExposedPorts") or ()))
            ),
        )
        self.did = created["Id"]
        for warning in created.get("Warnings") or ():
            info(f"{self.name}: {warning}\n")
        if self.context.closing.is_set():
            raise RunError("the network is being torn down")
        api.start(self.did)
        self._adopt(api.inspect_container(self.did))

    def _adopt(self, state: Mapping[str, Any]) -> None:
        """Take note of the process that the engine started, and see that it runs within its limits."""
        pid = state["State"]["Pid"]
        self._config = dict(state["Config"])
        try:
            # No pid: it has ended already.
            self._pidfd = os.pidfd_open(pid) if pid else None
            if self._pidfd is not None:
                cgroups = cgroups_of(pid)
                limit_swap(cgroups, *self.options.memory_limits)
                self._check_limits(read_limits(cgroups))
        except (ProcessLookupError, RunError):
            if self.alive:
                raise
        if not self.alive:
            raise RunError(self._ended_at_once())
        self._pid = pid
        debug(f"{self.name}: container {self.container_name} is up as process {pid}\n")

    def _ended_at_once(self) -> str:
        last = self.logs(tail=5) if self.options.logs else "(logs=True keeps what it says)"
        return f"its first process ended at once with exit code {self._wait_ended().exit_code}: {last}"

    def _find_image(self) -> dict[str, Any]:
        """The image's description, fetched from its registry where the engine does not have it."""
        assert self.dimage is not None
        api = engine.client().api
        with self.context.image_lock(self.dimage):
            try:
                return dict(api.inspect_image(self.dimage))
            except ImageNotFound:
                info(f"*** Image {self.dimage} is not here: fetching it\n")
            try:
                engine.client().images.pull(self.dimage)
                return dict(api.inspect_image(self.dimage))
            except (APIError, *engine.UNREACHABLE) as error:
                reason = str(getattr(error, "explanation", None) or error).splitlines()[0]
                raise RunError(f"the engine neither has the image nor could fetch it: {reason}") from error

    def _build_image(self) -> None:
        parameters = dict(self._build_params)
        if self.dimage:
            parameters.setdefault("tag", self.dimage)
        try:
            image, _ = engine.client().images.build(**parameters)
        except (BuildError, TypeError) as error:
            raise RunError(f"the image could not be built: {error}") from error
        self.dimage = image.id

    def _check_limits(self, held: Limits) -> None:
        """Raise ``RunError`` where the kernel does not hold what was asked for."""
        cpu = cpu_limit(self.options.cpus, self.options.cpu_quota, self.options.cpu_period)
        memory, memswap = self.options.memory_limits
        asked = {"cpu_quota_us": cpu.quota_us, "cpu_period_us": cpu.period_us, "memory_bytes": memory}
        # Where the kernel does not account for swap there is nothing to compare.
        if held.memswap_bytes is not None:
            asked["memswap_bytes"] = memswap
        check_limits(asked, held)

    def wait_up(self, deadline_s: float = BRING_UP_DEADLINE_S) -> None:
        """Return when the container runs. Raises ``RunError`` if it failed or takes more than ``deadline_s``."""
        try:
            self._ready.result(deadline_s)
        except FutureTimeout as error:
            raise RunError(f"host {self.name} (image {self.dimage}) is not up after {deadline_s:g} s") from error

    # --- what it is ------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The container's first process on this machine; waits for the container.

        Raises ``RunError`` where it did not come up or has been removed. Its process may have ended: see ``alive``.
        """
        self.wait_up()
        if self._removed or self._pid is None:
            raise RunError(f"host {self.name}: its container has been removed")
        return self._pid

    @pid.setter
    def pid(self, value: int | None) -> None:
        # Mininet's constructor clears it; it is the engine that knows.
        if value is not None:
            raise AttributeError("a container's pid is given by the engine")

    def __repr__(self) -> str:
        """Mininet's ``dump``; an ended or removed container is said to be so."""
        interfaces = ",".join(f"{intf.name}:{intf.IP()}" for intf in self.intfList())
        state = f"pid={self.pid}" if not self._removed else "removed"
        return f"<{type(self).__name__} {self.name}: {interfaces} {state}{'' if self.alive else ' (ended)'}> "

    @property
    def container_id(self) -> str:
        """The engine's id of the container; waits for the container."""
        self.wait_up()
        assert self.did is not None
        return self.did

    @property
    def alive(self) -> bool:
        """Whether the container's first process runs; false until it is up."""
        if self._removed or self._pidfd is None:
            return False
        return not select.select([self._pidfd], [], [], 0)[0]

    def died(self) -> bool:
        """Whether the container was up and its first process has ended since."""
        return self._pidfd is not None and not self.alive

    def exit_state(self) -> ExitState:
        """How the first process ended, once the engine has noticed (at most 10 s)."""
        if self.alive:
            return ExitState(None, False)
        self.wait_up()
        return self._wait_ended()

    def _wait_ended(self) -> ExitState:
        assert self.did is not None
        return engine.wait_ended(self.did, self.name)

    def logs(self, tail: int = 20) -> str:
        """The last ``tail`` lines the first process wrote. Raises ``RunError`` for a host without ``logs=True``."""
        if not self.options.logs:
            raise RunError(f"host {self.name} keeps no logs: it was added without logs=True")
        if self.did is None:
            return ""
        return engine.logs_of(self.did, self.name, tail)

    @property
    def processes(self) -> ContainerProcesses:
        """What starts programs in the container. Raises ``RunError`` where it does not run."""
        pid = self.pid
        if not self.alive:
            raise RunError(f"host {self.name}: its container has ended")
        if self._processes is None:
            self._processes = ContainerProcesses(pid, self._config, self.name)
        return self._processes

    # --- limits ----------------------------------------------------------------------------------------------

    def limits(self) -> Limits:
        """CPU and memory limits as the kernel holds them now."""
        return read_limits(cgroups_of(self.pid))

    def oom_kills(self) -> int:
        """How many processes in the container the kernel has killed for want of memory; 1 or 0 once it has ended."""
        try:
            return read_oom_kills(cgroups_of(self.pid))
        except RunError:
            if self.alive:
                raise
            # The groups vanish with the container; what the engine saw remains.
            return int(self.exit_state().oom_killed)

    def update_resources(self, **resources: Any) -> None:
        """Change limits of the running container; keywords of the SDK's ``update_container``.

        Raises ``RunError`` where the engine refuses, or the kernel then holds something else.
        """
        wanted = {key: value for key, value in resources.items() if value is not None}
        for key in ("mem_limit", "memswap_limit"):
            if key in wanted:
                wanted[key] = memory_bytes(wanted[key])
        if "mem_limit" in wanted:
            wanted.setdefault("memswap_limit", wanted["mem_limit"])
        if not wanted:
            return
        try:
            engine.client().api.update_container(self.container_id, **wanted)
        except (APIError, TypeError, *engine.UNREACHABLE) as error:
            reason = getattr(error, "explanation", None) or error
            raise RunError(f"host {self.name}: limits {wanted} were refused: {reason}") from error
        names = {"cpu_quota": "cpu_quota_us", "cpu_period": "cpu_period_us", "mem_limit": "memory_bytes"}
        limit_swap(cgroups_of(self.pid), self.limits().memory_bytes, wanted.get("memswap_limit"))
        held = self.limits()
        if held.memswap_bytes is not None:
            names["memswap_limit"] = "memswap_bytes"
        asked = {held_name: wanted[name] for name, held_name in names.items() if name in wanted}
        try:
            check_limits(asked, held)
        except RunError as error:
            raise RunError(f"host {self.name}: {error}") from error

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

    # --- interfaces (configured from outside; see links.interface) ---------------------------------------------

    def config(
        self,
        mac: str | None = None,
        ip: str | None = None,
        defaultRoute: str | None = None,
        **_params: Any,
    ) -> dict[str, Any]:
        """Configure the default interface; Mininet calls this at start."""
        if mac is not None:
            self.setMAC(mac)
        if ip is not None:
            self.setIP(ip)
        if defaultRoute is not None:
            self.setDefaultRoute(defaultRoute)
        return {}

    def defaultIntf(self) -> Any:
        """The first interface, or what stands for none."""
        return self.intfs[min(self.intfs)] if self.intfs else NoInterface()

    def setDefaultRoute(self, intf: Any = None) -> None:
        """``intf`` is an interface, or the words after ``ip route add default`` such as "via 10.0.0.1"."""
        words = str(intf) if intf is not None and " " in str(intf) else f"dev {intf or self.defaultIntf()}"
        ip_batch(self.pid, [f"route replace default {words}"])

    def setHostRoute(self, ip: str, intf: Any) -> None:
        """Reach one address through an interface."""
        ip_batch(self.pid, [f"route replace {ip}/32 dev {intf}"])

    def setARP(self, ip: str, mac: str) -> None:
        """A permanent neighbour entry on the default interface."""
        ip_batch(self.pid, [f"neigh replace {ip} lladdr {mac} dev {self.defaultIntf()}"])

    def start(self) -> None:
        """Run what the image would run by itself (entrypoint and command), beside the first process.

        As in Containernet it is the script that calls this, once the links are there. What it prints goes to the
        container's log.
        """
        self.wait_up()
        image = engine.client().api.inspect_image(self.dimage).get("Config") or {}
        argv = [*(image.get("Entrypoint") or ()), *(image.get("Cmd") or ())]
        if not argv or (len(argv) == 1 and Path(argv[0]).name in ("sh", "bash", "ash")):
            return
        info(f"{self.name}: running {shlex.join(argv)}\n")
        with open(f"/proc/{self.pid}/fd/1", "wb") as log:
            self.popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    # --- the end ---------------------------------------------------------------------------------------------

    def terminate(self) -> None:
        """Remove the container, whatever state it is in; waits for one that is still coming up. Idempotent."""
        if self._removed:
            return
        if not self._ready.cancel():
            # How bringing it up ended does not matter any more: what there is gets removed.
            self._ready.exception(BRING_UP_DEADLINE_S)
        self.release()
        if self.did is not None:
            engine.remove_containers([self.did])
        self._removed = True
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        if self._own_pool is not None:
            self._own_pool.shutdown(wait=False)

    def cleanup(self) -> None:
        """Mininet's name for the end of a node."""
        self.terminate()

    def stop(self, deleteIntfs: bool = False) -> None:
        """Remove the container; its interfaces go with it."""
        self.terminate()


def new_run_id() -> str:
    """A fresh short id: 6 hexadecimal characters."""
    return secrets.token_hex(3)
