"""What all rows of one run share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from containernet_env.model.config import Config
from containernet_env.model.proof import NetworkProof
from containernet_env.model.topology import RttExpectation


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run's configuration and what its machine and its network were.

    ``consistency`` and ``second_tries`` are the store's (``stores.protocol``).
    ``rtt_measured_ns`` belongs to the pair ``rtt``; both are ``None`` for a single member. ``network`` is what was
    proved of the network before the scenario. ``timing`` is the store's clock (``stores.protocol.Timing.values``).
    ``realtime`` is whether the link emulator got the real-time priority that it needs; ``None`` where none carries the
    links. ``config_hash`` is that of everything configured but the scenarios, ``dataset_hash`` that of the data set.
    ``seed`` is that of losses and jitter where the config gives none; ``None`` by netem, which has no seeds. ``commit``
    is the program's; ``machine`` is the machine's name, ``cpu_model``, ``cores`` and ``kernel`` (its release) are its,
    too; ``labs`` how many other testbeds were up. ``links_cpu`` is the core that is kept for the link emulator.
    """

    config: Config
    run_id: str
    rtt: RttExpectation | None = None
    rtt_measured_ns: int | None = None
    network: NetworkProof | None = None
    hosts: str = "docker"
    links: str = "emulator"
    store: str = "etcd"
    consistency: Mapping[str, str] = field(default_factory=dict)
    second_tries: bool = False
    store_version: str | None = None
    timing: Mapping[str, int | str] = field(default_factory=dict)
    congestion_control: str | None = None
    realtime: bool | None = None
    seed: int | None = None
    config_hash: str | None = None
    commit: str | None = None
    machine: str | None = None
    cpu_model: str | None = None
    cores: int | None = None
    kernel: str | None = None
    labs: int = 0
    links_cpu: int | None = None
