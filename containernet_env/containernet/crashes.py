"""The shell's commands that crash hosts, stop them for a while, and start them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from containernet_env.base import clock
from containernet_env.base.errors import RunError, UsageError
from containernet_env.config.hints import closest
from containernet_env.containernet.changes import timed
from containernet_env.containernet.docker import Docker
from containernet_env.model.leadership import Leadership

_END_S = 10.0
_POLL_S = 0.02


class Crashes:
    """Crashes and restarts of the containers of a network without a cluster."""

    def __init__(self, net: Any) -> None:
        self.net = net

    @property
    def names(self) -> Sequence[str]:
        """The hosts that can crash."""
        return [host.name for host in self.net.hosts if isinstance(host, Docker)]

    def leadership(self) -> Leadership | None:
        """The leader; ``None`` where no quorum knows one. Raises ``UsageError`` without a cluster."""
        raise UsageError("there is no cluster here that could have a leader")

    def kill(self, name: str) -> int:
        """Kill its first process; when that was (monotonic, ns)."""
        at_ns: int = self.net[name].kill()
        return at_ns

    def freeze(self, name: str) -> int:
        """Stop its first process (SIGSTOP), and see that the kernel has; likewise."""
        at_ns: int = self.net[name].freeze()
        self.net[name].wait_frozen(True)
        return at_ns

    def thaw(self, name: str) -> int:
        """Let its first process go on; likewise."""
        at_ns: int = self.net[name].thaw()
        self.net[name].wait_frozen(False)
        return at_ns

    def restart(self, names: Sequence[str]) -> str:
        """Start these again, killed first where they run; what has become of them, in words."""
        self.end(names)
        for name in names:
            self.net[name].restart()
        return f"{' '.join(names)}: started again"

    def end(self, names: Sequence[str]) -> None:
        """Kill those that run, and return once they have ended."""
        for name in names:
            if self.net[name].alive:
                self.kill(name)
        deadline_s = clock.monotonic() + _END_S
        while running := [name for name in names if self.net[name].alive]:
            if clock.monotonic() > deadline_s:
                raise RunError(f"{' '.join(running)}: still running {_END_S:g} s after SIGKILL")
            clock.sleep(_POLL_S)

    def _leads(self) -> str:
        if (found := self.leadership()) is None:
            raise RunError("no leader: no quorum of members knows one")
        return found.leader

    def named(self, words: Sequence[str], usage: str) -> Sequence[str]:
        """The hosts that the words of a command mean. Raises ``UsageError``."""
        if not words:
            raise UsageError(f"usage: {usage}")
        known = self.names
        names = [self._leads() if word == "leader" and word not in known else word for word in words]
        for name in names:
            if name not in known:
                near = closest(name, known)
                hint = f"; did you mean {near}?" if near else ""
                raise UsageError(
                    f"{name!r} cannot be crashed; allowed: {', '.join(known) or 'none: no host is a container'}{hint}"
                )
        return list(dict.fromkeys(names))


def _each(name: str, done: str, does: str) -> Callable[[Crashes, list[str]], str]:
    """A command that calls a method of ``Crashes`` for each host that is named."""

    @timed
    def carry_out(crashes: Crashes, words: list[str]) -> tuple[str, int]:
        names = crashes.named(words, f"{name} NAME...|leader")
        at_ns = max([getattr(crashes, name)(one) for one in names])
        return f"{' '.join(names)}: {done}", at_ns

    carry_out.__doc__ = f"{name} NAME...|leader: {does}: {name} etcd1"
    return carry_out


def _restart(crashes: Crashes, words: list[str]) -> str:
    """restart NAME...: start members again, on their data; those that run are killed first: restart etcd1"""
    return crashes.restart(crashes.named(words, "restart NAME..."))


def _leader(crashes: Crashes, words: list[str]) -> str:
    """leader: show which member leads, and in which term."""
    if words:
        raise UsageError("usage: leader")
    found = crashes.leadership()
    return f"{found.leader} leads, in term {found.term}" if found else "no leader: no quorum of members knows one"


CRASHES: Mapping[str, Callable[[Crashes, list[str]], str]] = {
    "kill": _each("kill", "killed", "end a member's program at once (SIGKILL), as a crash would"),
    "restart": _restart,
    "freeze": _each("freeze", "frozen", "stop a member's program (SIGSTOP) until thaw"),
    "thaw": _each("thaw", "going on", "let a frozen member's program go on"),
    "leader": _leader,
}
