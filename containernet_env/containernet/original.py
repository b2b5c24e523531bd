"""The original Containernet as the network: its hosts, links and switches, through its own classes.

Can be imported only where `from mininet.net import Containernet` finds it. Its own tear-down is not used: it talks to a
shell in every container, which hangs where one is gone or busy, and it removes by names.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mininet.net
import mininet.node  # before mininet.link, which cannot be imported first where it is Containernet's
from mininet.link import TCLink
from mininet.net import CONTAINERNET_VERSION, VERSION, Mininet
from mininet.net import Containernet as OriginalContainernet
from mininet.node import Docker as ContainernetDocker
from mininet.node import OVSBridge
from mininet.nodelib import LinuxBridge

from containernet_env.base import clock, programs
from containernet_env.base.errors import ContainernetEnvError, MissingRequirementError, RunError
from containernet_env.config.plan import HostPlan
from containernet_env.containernet.docker import FirstProcess, planned_options
from containernet_env.containernet.links import NetworkLink
from containernet_env.containernet.live_links import LiveLinks, Measurements
from containernet_env.containernet.network import CONTAINERS, attempt, tear_down_error
from containernet_env.containernet.original_links import CheckedInterface, OriginalLink, commit_of, keywords
from containernet_env.hosts import engine, netns, owner
from containernet_env.hosts.container import Container
from containernet_env.hosts.engine import EngineGoneError
from containernet_env.hosts.limits import Limits
from containernet_env.hosts.options import NO_NEW_PRIVILEGES, PIDS_LIMIT, ContainerOptions, log_config
from containernet_env.hosts.processes import SENTINEL
from containernet_env.model.backends import SwitchKind
from containernet_env.model.link import LinkSpec
from containernet_env.network import switches
from containernet_env.network.factory import remove_interfaces
from containernet_env.network.interface import NAME_MAX, derive_mac, enter_neighbours
from containernet_env.network.kernel import KernelFabric
from containernet_env.network.link import EventHandler, Fabric


class NamespacedBridge(LinuxBridge):  # type: ignore[misc]
    """Its LinuxBridge in a network namespace that its shell holds.

    There its commands cannot affect bridges of other programs, the machine's firewall sees none of the frames, and
    everything is removed with the shell, which ends when the driver does, for any reason.
    """

    # A switch outside the machine's namespace is not given one.
    controlIntf = None

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **{**params, "inNamespace": True})

    @classmethod
    def setup(cls) -> None:
        """Its warnings are about the machine's firewall, which does not see this bridge."""

    def check(self, interfaces: Iterable[str]) -> None:
        """Raise ``RunError`` unless these interfaces are its ports, without others."""
        shown = netns.run(self.pid, ["ip", "-j", "link", "show", "master", self.name]).stdout
        ports = {entry["ifname"] for entry in json.loads(shown or "[]") if entry}
        _check_ports(self.name, ports, set(interfaces))

    def remove(self) -> None:
        """Remove it from the system. Idempotent."""
        _end_shell(self)


class OwnedOvsBridge(OVSBridge):  # type: ignore[misc]
    """Its OVSBridge, called ``<run id><name>`` and marked with its owner, whose errors are raised."""

    def __init__(self, name: str, run_id: str, **params: Any) -> None:
        self._started = False
        super().__init__(name, prefix=run_id, **params)

    @classmethod
    def isOldOVS(cls) -> bool:
        """Not older than 1.10, of 2013; its own comparison needs a module that Python has removed."""
        return False

    def bridgeOpts(self) -> str:
        """See Mininet; with the owner, from the first moment on."""
        return f'{super().bridgeOpts()} external_ids:{owner.LABEL}=\\"{owner.current()}\\"'

    def start(self, controllers: Sequence[Any]) -> None:
        """See Mininet."""
        super().start(controllers)
        self._started = True

    def attach(self, intf: Any) -> None:
        """See Mininet; before the start there is no bridge, and starting it adds all ports."""
        if self._started:
            super().attach(intf)

    def vsctl(self, *args: Any, **_options: Any) -> str:
        """See Mininet. Raises ``RunError`` where ovs-vsctl fails or does not answer."""
        return switches.vsctl(*shlex.split(" ".join(map(str, args))))

    def check(self, interfaces: Iterable[str]) -> None:
        """Raise ``RunError`` unless these interfaces are its ports, without others."""
        _check_ports(self.name, set(switches.vsctl("list-ports", self.deployed_name).split()), set(interfaces))

    def remove(self) -> None:
        """Remove it from the system. Idempotent."""
        switches.remove_bridge(self.deployed_name)
        _end_shell(self)


def _check_ports(switch: str, ports: set[str], wanted: set[str]) -> None:
    if ports != wanted:
        names = ", ".join(sorted(ports)) or "none"
        raise RunError(f"switch {switch}: its ports should be {', '.join(sorted(wanted))}, the system holds {names}")


def _end_shell(node: Any) -> None:
    """End a node's shell within a deadline: its own way waits for a busy shell for ever."""
    if node.shell is None:
        return
    with suppress(ProcessLookupError):
        # mnexec has made it the leader of a group.
        os.killpg(node.shell.pid, signal.SIGKILL)
    node.cleanup()


_SHELL_DEADLINE_S = 30.0
_END_TIMEOUT_S = 10.0


class EngineClient:
    """The SDK's client as its Docker class uses it, with the options of that class corrected.

    Interfaces are configured from outside (see ``original_links``), so that no capability is needed, not even the
    NET_ADMIN that the class always adds. Its cgroup parent is refused where systemd manages cgroups.
    """

    def __init__(self, api: Any, labels: Mapping[str, str]) -> None:
        self._api = api
        self._labels = dict(labels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def create_host_config(self, **options: Any) -> Any:
        """Without capabilities or a way to new ones, with bounded logs and processes."""
        wanted = {key: value for key, value in options.items() if key not in ("cap_add", "cgroup_parent")}
        wanted |= {"cap_drop": ["ALL"], "security_opt": [*NO_NEW_PRIVILEGES], "pids_limit": PIDS_LIMIT}
        return self._api.create_host_config(**wanted, log_config=log_config(True))

    def create_container(self, **options: Any) -> Any:
        """With our labels, by which `clean` finds it, and without the proxies of the user's ~/.docker/config.json."""
        return self._api.create_container(**{**options, "labels": self._labels, "use_config_proxy": False})


class OriginalHost(FirstProcess, ContainernetDocker):  # type: ignore[misc]
    """See ``testbed_network.TestbedHost``. The constructor returns when the container runs within its limits.

    Raises ``RunError`` where the engine refuses, the first process ends at once, or a limit is not held.
    """

    def __init__(
        self, name: str, run_id: str, plan: HostPlan, image: str, command: Sequence[str], **params: Any
    ) -> None:
        # Its constructor sets dnameprefix and dcli, which are properties here that need these.
        self._run_id = run_id
        self._labels = engine.labels(run_id, name)
        self._shell_wanted = False
        self._terminal: int | None = None
        self._ends: list[clock.Thread] = []
        options = planned_options(plan)
        super().__init__(
            name,
            dimage=image,
            dcmd=list(command),
            **options,
            # Otherwise each host is on docker0 as well, a path around the emulated links, with all its ports published.
            network_mode="none",
            publish_all_ports=False,
            cap_add=[],
            **params,
        )
        self.container = Container(name, ContainerOptions(**options, logs=True), self.did)
        self.container.adopt(max(0, self.pid or 0))

    # --- what its constructor sets --------------------------------------------------------------------------------

    @property
    def dnameprefix(self) -> str:
        """The prefix of the container's name; its "mn" would clash with other networks on the machine."""
        return f"cnenv-{self._run_id}"

    @dnameprefix.setter
    def dnameprefix(self, value: str) -> None:
        del value

    @property
    def dcli(self) -> Any:
        """Its client of the engine."""
        return self._client

    @dcli.setter
    def dcli(self, api: Any) -> None:
        self._client = EngineClient(api, self._labels)

    # --- its shell ------------------------------------------------------------------------------------------------

    def startShell(self, *_args: Any, **_options: Any) -> None:
        """Start its shell. Raises ``RunError`` if none starts; its own way would wait or retry for ever."""
        if self._shell_wanted:
            # Its own check after the start found the shell dead and starts another one.
            raise RunError(f"host {self.name}: no shell could be started in its container")
        self._shell_wanted = True
        self._close_terminal()
        deadline = clock.Timer(_SHELL_DEADLINE_S, self._kill_shell)
        deadline.start()
        try:
            super().startShell()
        finally:
            self._shell_wanted = False
            deadline.cancel()
            deadline.join()

    def _popen(self, cmd: Sequence[str], **params: Any) -> subprocess.Popen[Any]:
        is_shell = params.get("stdin") is not None and params["stdin"] == self.slave
        if is_shell:
            # As in Mininet's other shells: bash's line editor writes control codes into the output of commands.
            words = list(cmd)
            words.insert(words.index("--norc") + 1, "--noediting")
            cmd = words
        # A session of its own: the terminal's Ctrl-C is for the driver.
        process: subprocess.Popen[Any] = super()._popen(cmd, **{"start_new_session": True, **params})
        if is_shell:
            terminal: int = params["stdin"]
            self._terminal = terminal
            end = clock.Thread(target=_mark_end, args=(process, os.dup(terminal)), name=self.name, daemon=True)
            self._ends.append(end)
            end.start()
        return process

    def _close_terminal(self) -> None:
        """Close both ends of the last shell's terminal, which its class forgets."""
        if self._terminal is None:
            return
        os.close(self._terminal)
        self._terminal = self.slave = None
        if self.stdin is not None:
            self.stdin.close()

    def _kill_shell(self) -> None:
        if self.shell is not None:
            self.shell.kill()

    def run(self, *args: Any) -> tuple[int, str]:
        """See ``testbed_network.TestbedHost``."""
        output = self.cmd(*args)
        if self.shell is None:
            raise RunError(f"host {self.name}: its container has ended")
        with suppress(subprocess.TimeoutExpired):
            # The command was the shell's last (exit 7).
            return self.shell.wait(0), _plain(output)
        return int(self.cmd("echo $?")), _plain(output)

    # --- state ----------------------------------------------------------------------------------------------------

    def wait_up(self, deadline_s: float) -> None:
        """See ``testbed_network.TestbedHost``; the constructor has waited."""

    def limits(self) -> Limits:
        """See ``testbed_network.TestbedHost``."""
        return self.container.limits()

    def limit_cpu(self, quota_us: int | None, period_us: int) -> None:
        """See ``testbed_network.TestbedHost``."""
        self.container.update(cpu_quota=-1 if quota_us is None else quota_us, cpu_period=period_us)

    def restart(self) -> None:
        """Refused: its class makes a container, its interfaces and its shell once."""
        raise RunError(f"host {self.name}: the original Containernet does not start a host again")

    # --- the end --------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """End its shell and close what is open; the container is the network's to remove. Idempotent."""
        if self.shell is not None:
            self.shell.kill()
        for end in self._ends:
            end.join(_END_TIMEOUT_S)
        self._close_terminal()
        self.cleanup()
        self.d_client.close()
        self.container.close()


def _plain(text: str) -> str:
    # Its containers and its shells have terminals.
    return text.replace("\r\n", "\n")


def _mark_end(process: subprocess.Popen[Any], terminal: int) -> None:
    """End the output with the sentinel when the shell ends, too: readers would wait for it for ever."""
    process.wait()
    with suppress(OSError):  # our end is closed already
        os.write(terminal, SENTINEL.encode())
    os.close(terminal)


def commit() -> str | None:
    """The original's commit, if it can be determined."""
    return commit_of(Path(mininet.net.__file__).parent)


class OriginalNetwork(Measurements, LiveLinks, OriginalContainernet):  # type: ignore[misc]
    """See ``TestbedNetwork``. ``switches``: "ovs" is its OVSBridge, "bridge" its LinuxBridge. Needs root."""

    backend_name = "containernet"
    backend_version = f"{CONTAINERNET_VERSION} (Mininet {VERSION})"
    hosts_kind = "containernet"
    links_kind = "tclink"

    def __init__(self, run_id: str, switches: SwitchKind) -> None:
        if os.geteuid() != 0:
            raise MissingRequirementError("networks and containers can only be made by root", "Run it with sudo.")
        self.run_id = run_id
        self.switches_kind = switches
        self.fabric: Fabric = KernelFabric()
        self._numbers = itertools.count()
        # Its constructors create resources and then record them. No signal interrupts a constructor on this thread, so
        # that `stop` finds all resources recorded.
        self._worker = clock.ThreadPoolExecutor(1, thread_name_prefix="containernet")
        # Mininet's init() would raise sysctls of this machine and never restore them.
        Mininet.inited = True
        # It runs mnexec, docker, ifconfig and brctl.
        programs.complete_path()
        super().__init__(controller=None, link=TCLink, build=False)

    # --- bringing it up -------------------------------------------------------------------------------------------

    @property
    def backend_commit(self) -> str | None:
        """See ``testbed_network.TestbedNetwork``."""
        return commit()

    @property
    def link_backend(self) -> str:
        """See ``testbed_network.TestbedNetwork``."""
        return f"Containernet's TCLink on its {'OVSBridge' if self.switches_kind == 'ovs' else 'LinuxBridge'}"

    def add_host(self, plan: HostPlan, image: str, command: Sequence[str]) -> OriginalHost:
        """See ``testbed_network.TestbedNetwork``; the container is running on return."""
        with _translated(f"host {plan.name} (image {image})"):
            host: OriginalHost = self._carry_out(
                self.addDocker,
                plan.name,
                cls=OriginalHost,
                ip=f"{plan.ip}/{plan.prefix_length}",
                run_id=self.run_id,
                plan=plan,
                image=image,
                command=command,
            )
        return host

    def add_switch(self, name: str) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        with _translated(f"switch {name}"):
            if self.switches_kind == "ovs":
                self._carry_out(self.addSwitch, name, cls=OwnedOvsBridge, run_id=self.run_id)
            else:
                self._carry_out(self.addSwitch, name, cls=NamespacedBridge)

    def add_link(self, node1: str, node2: str, spec: LinkSpec) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        name = f"{node1}-{node2}"
        # Its LinuxBridge accepts only interfaces whose names contain its own, and every pair is created among the
        # machine's interfaces, where its usual names (etcd1-eth0) may be in use.
        names = [self._interface_name(node) for node in (node1, node2)]
        with _translated(f"link {name}"):
            link = self._carry_out(
                self.addLink,
                node1,
                node2,
                cls=TCLink,
                cls1=CheckedInterface,
                cls2=CheckedInterface,
                intfName1=names[0],
                intfName2=names[1],
                addr1=derive_mac(node1, 0),
                addr2=derive_mac(f"{node2}/{node1}", 0),
                params1=keywords(spec.a_to_b),
                params2=keywords(spec.b_to_a),
            )
            made = OriginalLink(name, link, spec)
            self.links[self.links.index(link)] = NetworkLink(made, link.intf1, link.intf2)
            made.limit_segments()

    def _interface_name(self, node: str) -> str:
        part = node if node in (switch.name for switch in self.switches) else ""
        name = f"{self.run_id}{part}e{next(self._numbers)}"
        if len(name) > NAME_MAX:
            raise RunError(f"interface name {name} is too long: the kernel allows {NAME_MAX} characters")
        return name

    def start(self) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        with _translated("network"):
            self._carry_out(super().start)
        for host in self.hosts:
            host.defaultIntf().check_address(host.params["ip"])
        for switch in self.switches:
            switch.check(intf.name for intf in switch.intfList() if intf.link is not None)
        for link in self.links:
            link.held.check()
        self.write_names()

    def _carry_out(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self._worker.submit(call, *args, **options).result()

    def staticArp(self) -> None:
        """See ``TestbedNetwork``; from outside, since its own way needs `arp` and NET_ADMIN in the containers."""
        ends = [host.defaultIntf() for host in self.hosts]
        for own in ends:
            others = [(end.ip, end.mac) for end in ends if end is not own]
            enter_neighbours(own.node.pid, own.name, others)

    def on_event(self, handler: EventHandler) -> None:
        """See ``testbed_network.TestbedNetwork``; kernel links report no events."""

    def link_backend_log(self) -> None:
        """See ``TestbedNetwork``."""

    def link_backend_answers(self, timeout_s: float) -> bool:
        """See ``testbed_network.TestbedNetwork``."""
        return True

    def link_backend_facts(self) -> Mapping[str, Any]:
        """See ``testbed_network.TestbedNetwork``."""
        return {}

    # --- the end --------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        problems: list[tuple[str, Exception]] = []
        self._worker.shutdown(wait=True, cancel_futures=True)
        attempt("captures", self.stop_captures, problems)
        # By their names: also one that failed half-way. Their links go with their namespaces.
        attempt(CONTAINERS, self._remove_containers, problems)
        if any(isinstance(failure, EngineGoneError) for _, failure in problems):
            for host in self.hosts:
                attempt(host.name, host.container.remove, problems)
        for host in self.hosts:
            attempt(host.name, host.release, problems)
        for switch in self.switches:
            attempt(switch.name, switch.remove, problems)
        attempt("interfaces", lambda: remove_interfaces(self.run_id), problems)
        if problems:
            raise tear_down_error(problems)

    def _remove_containers(self) -> None:
        engine.remove_containers([container.id for container in engine.list_ours(self.run_id)])


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn the exceptions of its classes into ``RunError``: plain ones, the SDK's, and even ``SystemExit``."""
    try:
        with engine.refusals("the engine refused"):
            yield
    except RunError as error:
        raise RunError(f"{what}: {error}") from error
    except ContainernetEnvError:
        raise
    except (Exception, SystemExit) as error:
        raise RunError(f"{what}: {type(error).__name__}: {error}") from error
