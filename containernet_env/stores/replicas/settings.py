"""How a replica is started, and what a topology may choose of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from containernet_env.base.errors import ConfigError, Problem
from containernet_env.model.config import Config, Node, StoreChoice
from containernet_env.stores.flags import Flag, whole
from containernet_env.stores.protocol import LoadTerms

DATA_DIR = "/var/lib/replicas"
PORT = 8080


def _no_version(value: object) -> str:
    raise ValueError("cannot be chosen")


VERSION = Flag("none: the replicas are built from this project's own sources", _no_version)
FLAGS: Mapping[str, Flag] = {"ack": whole(1, 100), "from": whole(1, 100)}
"""How many replicas acknowledge a write, and how many are asked by a read; without them a majority each."""


@dataclass(frozen=True, slots=True)
class Quorums:
    """``None``: a majority, as the service takes it where a request names no number."""

    ack: int | None = None
    read: int | None = None

    @classmethod
    def of(cls, choice: StoreChoice) -> Quorums:
        """Those that a topology chooses."""
        flags = {name: int(value) for name, value in choice.flags}
        return cls(flags.get("ack"), flags.get("from"))

    def among(self, replicas: int) -> tuple[int, int]:
        """Their numbers for so many replicas."""
        majority = replicas // 2 + 1
        return self.ack or majority, self.read or majority

    @property
    def terms(self) -> LoadTerms:
        """Requests of a load: templates of URLs, with the key in its place."""
        put = "/v0/entity?id={key}" + (f"&ack={self.ack}" if self.ack else "")
        get = "/v0/entity?id={key}" + (f"&from={self.read}" if self.read else "")
        return LoadTerms({"store": "http"}, {"putPath": put}, {"getPath": get}, leaderless=True)


def check(config: Config) -> None:
    """Raise ``ConfigError`` where more replicas are to answer than there are."""
    there = len(config.nodes)
    problems = [
        Problem(f"$.store.flags.{name}", "is more than there are replicas", str(value), f"at most {there}")
        for name, value in config.store.flags
        if int(value) > there
    ]
    if problems:
        raise ConfigError(str(config.path), problems)


def arguments(node: Node, config: Config, timeout_ms: int) -> tuple[str, ...]:
    """The arguments of one replica."""
    names = [member.name for member in config.nodes]
    peers = ",".join(f"{member.ip}:{PORT}" for member in config.nodes)
    return (
        f"--listen=0.0.0.0:{PORT}",
        f"--id={names.index(node.name)}",
        f"--peers={peers}",
        f"--data={DATA_DIR}",
        f"--timeout={timeout_ms}ms",
    )
