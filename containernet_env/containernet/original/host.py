"""A Docker host of the original Containernet: its class, with what it has no keyword for and without what it adds."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from mininet.node import Docker as ContainernetDocker

from containernet_env.base import clock
from containernet_env.base.endings import LastWords, last_words
from containernet_env.base.errors import RunError
from containernet_env.hosts import engine
from containernet_env.hosts.container import Container
from containernet_env.hosts.engine import ExitState
from containernet_env.hosts.limits import Limits
from containernet_env.hosts.options import NO_NEW_PRIVILEGES, PIDS_LIMIT, ContainerOptions, log_config
from containernet_env.hosts.processes import SENTINEL
from containernet_env.plan.plan import HostPlan

_SHELL_DEADLINE_S = 30.0
_END_TIMEOUT_S = 10.0


class EngineClient:
    """The SDK's client as its Docker class uses it: what that class asks the engine for is put right on the way.

    Interfaces are configured from outside (see ``original_links``), so that no capability is needed, not even the
    NET_ADMIN that the class always adds. Its cgroup parent is one that is refused where systemd manages cgroups.
    """

    def __init__(self, api: Any, labels: Mapping[str, str]) -> None:
        self._api = api
        self._labels = dict(labels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def create_host_config(self, **asked: Any) -> Any:
        """Without capabilities or a way to new ones, with bounded logs and processes."""
        wanted = {key: value for key, value in asked.items() if key not in ("cap_add", "cgroup_parent")}
        wanted |= {"cap_drop": ["ALL"], "security_opt": [*NO_NEW_PRIVILEGES], "pids_limit": PIDS_LIMIT}
        return self._api.create_host_config(**wanted, log_config=log_config(True))

    def create_container(self, **asked: Any) -> Any:
        """With our labels, by which `clean` finds it, and without the proxies of the user's ~/.docker/config.json."""
        return self._api.create_container(**{**asked, "labels": self._labels, "use_config_proxy": False})


class OriginalHost(ContainernetDocker):  # type: ignore[misc]
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
        super().__init__(
            name,
            dimage=image,
            dcmd=list(command),
            environment=dict(plan.environment),
            tmpfs=[f"{path}:{options}" for path, options in plan.tmpfs.items()],
            mem_limit=plan.memory_bytes,
            memswap_limit=plan.memswap_bytes,
            cpu_period=plan.cpu_period_us,
            cpu_quota=plan.cpu_quota_us,
            # Otherwise each host is on docker0 as well, a path around the emulated links, with all its ports published.
            network_mode="none",
            publish_all_ports=False,
            cap_add=[],
            **params,
        )
        options = ContainerOptions(
            mem_limit=plan.memory_bytes,
            memswap_limit=plan.memswap_bytes,
            cpu_period=plan.cpu_period_us,
            cpu_quota=plan.cpu_quota_us,
            logs=True,
        )
        self.container = Container(name, options, self.did)
        self.container.adopt(max(0, self.pid or 0))

    # --- what its constructor sets --------------------------------------------------------------------------------

    @property
    def dnameprefix(self) -> str:
        """What the container's name begins with; its "mn" would clash with other networks on the machine."""
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
        """Start its shell. Raises ``RunError`` where none comes up; it would wait or try for ever."""
        if self._shell_wanted:
            # Its own check after the start found the shell dead and asks for another one.
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
            # As in Mininet's other shells: bash's line editor writes codes into what commands print.
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

    # --- what it is -----------------------------------------------------------------------------------------------

    def wait_up(self, deadline_s: float) -> None:
        """See ``testbed_network.TestbedHost``; the constructor has waited."""

    @property
    def alive(self) -> bool:
        """Whether the container's first process runs."""
        return self.container.alive

    def exit_state(self) -> ExitState:
        """How the first process ended, once the engine has noticed."""
        return self.container.exit_state()

    def ending(self, words: LastWords = last_words) -> str | None:
        """See ``stores.protocol.MemberHost``."""
        return self.container.ending(words)

    def logs(self, tail: int = 20) -> str:
        """The last ``tail`` lines the first process wrote."""
        return self.container.logs(tail)

    def limits(self) -> Limits:
        """See ``testbed_network.TestbedHost``."""
        return self.container.limits()

    def limit_cpu(self, quota_us: int | None, period_us: int) -> None:
        """See ``testbed_network.TestbedHost``."""
        self.container.update(cpu_quota=-1 if quota_us is None else quota_us, cpu_period=period_us)

    def freeze(self) -> int:
        """See ``testbed_network.TestbedHost``."""
        return self.container.signal(signal.SIGSTOP)

    def thaw(self) -> int:
        """See ``testbed_network.TestbedHost``."""
        return self.container.signal(signal.SIGCONT)

    def kill(self) -> int:
        """See ``testbed_network.TestbedHost``."""
        return self.container.signal(signal.SIGKILL)

    def wait_frozen(self, frozen: bool) -> None:
        """See ``testbed_network.TestbedHost``."""
        self.container.wait_stopped(frozen)

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
    """End the output with the sentinel also when it is the shell that ended: what waits for it would wait for ever."""
    process.wait()
    with suppress(OSError):  # our end is closed already
        os.write(terminal, SENTINEL.encode())
    os.close(terminal)
