"""Mininet's Switch around a switch of the network, and a stand-in for the controller that it needs none of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mininet.node import Controller, Node, Switch

from containernet_env.base.errors import UsageError
from containernet_env.containernet.links import NoInterface
from containernet_env.network.switches import BridgeSwitch, LearningSwitch

# Mininet hands these to every switch class; they are about OpenFlow.
_IGNORED_KEYWORDS = frozenset(
    {"listenPort", "inNamespace", "dpid", "protocols", "failMode", "opts", "batch", "isSwitch"}
)


class LazyShellNode(Node):  # type: ignore[misc]
    """A Mininet node whose shell on this machine is started by the first command that is given to it."""

    _wanted = False

    def defaultIntf(self) -> Any:
        """The first interface, or what stands for none."""
        return self.intfs[min(self.intfs)] if self.intfs else NoInterface()

    @classmethod
    def setup(cls) -> None:
        """Mininet's hook that looks for programs; none is needed before the first command."""

    def _shell_namespace(self) -> str:
        """Options for mnexec that lead to where the node's commands belong; the machine itself by default."""
        return "-cd"

    def startShell(self, mnopts: str | None = None) -> None:
        """Does nothing when Mininet's constructor asks for it."""
        if self._wanted:
            super().startShell(mnopts)

    def sendCmd(self, *args: Any, **options: Any) -> None:
        """See Mininet."""
        if not self.shell:
            self._wanted = True
            # inNamespace would make mnexec create yet another namespace.
            self.inNamespace = False
            self.startShell(self._shell_namespace())
        super().sendCmd(*args, **options)

    def cmd(self, *args: Any, **options: Any) -> Any:
        """See Mininet."""
        if not self._wanted:
            self.sendCmd(*args, **options)
            return self.waitOutput(options.get("verbose", False))
        return super().cmd(*args, **options)


class NetworkSwitch(LazyShellNode, Switch):  # type: ignore[misc]
    """A switch of Mininet's that is ``held``, one of the network's: no OpenFlow, no controller.

    ``start`` plugs cables in again that ``stop`` has pulled (the CLI's ``switch s1 stop``).
    """

    controlIntf = None

    def __init__(self, held: LearningSwitch) -> None:
        self.held = held
        # inNamespace: Mininet would configure the machine's own loopback interface otherwise.
        super().__init__(held.name, inNamespace=True)
        self._ports_down = False

    @property
    def pid(self) -> int | None:
        """The process in whose network namespace its ports are, or that it is a part of."""
        return self.held.pid

    @pid.setter
    def pid(self, value: int | None) -> None:
        # Mininet notes its shell's process here; the switch is not in it.
        del value

    def _shell_namespace(self) -> str:
        return f"-cda{self.pid}" if isinstance(self.held, BridgeSwitch) else super()._shell_namespace()

    def defaultDpid(self, dpid: str | None = None) -> str:
        """No OpenFlow here, so that names without a digit are fine."""
        return "0" * self.dpidLen if dpid is None else str(super().defaultDpid(dpid))

    def start(self, controllers: Sequence[Any]) -> None:
        """Forwarding begins with the first link; after ``stop`` the cables are plugged in again."""
        if self._ports_down:
            self._set_links(True)

    def stop(self, deleteIntfs: bool = False) -> None:
        """Pull every cable; the switch itself stays until the network stops."""
        self._set_links(False)

    def _set_links(self, up: bool) -> None:
        for intf in self.intfList():
            intf.link.set_up(up)
        self._ports_down = not up

    def dpctl(self, *args: Any) -> str:
        """No OpenFlow here."""
        return f"{self.name} learns addresses by itself: there are no flows to show\n"


def check_keywords(name: str, params: dict[str, Any]) -> None:
    """Raise ``UsageError`` for keywords that would change how a switch forwards."""
    unknown = sorted(key for key in set(params) - _IGNORED_KEYWORDS if params[key])
    if unknown:
        raise UsageError(f"switch {name}: unknown keyword {', '.join(unknown)}")


class StandInController(LazyShellNode, Controller):  # type: ignore[misc]
    """Takes the place of an OpenFlow controller where the switches need none; it runs nothing."""

    def __init__(self, name: str, **params: Any) -> None:
        # Not Controller's constructor: that one looks for a process that listens.
        Node.__init__(self, name, inNamespace=False, **params)
        self.ip = "127.0.0.1"
        self.port = 6653
        self.protocol = "tcp"

    def start(self) -> None:
        """Nothing to start."""

    def stop(self, *_args: Any, **_options: Any) -> None:
        """Nothing to stop but a shell somebody asked for."""
        self.terminate()
