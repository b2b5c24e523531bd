"""What is known of a proxy that serves another store's clients in front of etcd."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from containernet_env.model.scenario import Scenario
from containernet_env.stores.features import Lacking
from containernet_env.stores.protocol import Connection, LoadTerms, Written


@dataclass(frozen=True, slots=True)
class ClientSizes:
    """How many bytes a request and its answer are in a TCP stream between client and proxy, at least."""

    request: int
    answer: int


@dataclass(frozen=True, slots=True)
class Proxy:
    """One kind of proxy. ``name``, ``load_terms``, ``consistency`` and so on as in ``stores.protocol.Store``.

    ``arguments`` are the two that it is started with. ``ping`` is answered with any bytes, whatever etcd does.
    ``read`` has it carry out a consistent read within a time in s, and ``values`` tells what keys with a prefix hold;
    both raise ``RunError``. ``writes`` and ``reads`` are the sizes of a scenario's requests.
    """

    name: str
    port: int
    arguments: tuple[str, str]
    load_terms: LoadTerms
    largest_value_bytes: int
    lacks: Lacking
    ping: bytes
    read: Callable[[Connection, float], None]
    values: Callable[[Connection, str, Collection[str], float], list[Written]]
    writes: Callable[[Scenario], ClientSizes]
    reads: Callable[[Scenario], ClientSizes]
    consistency: Mapping[str, str] = field(default_factory=dict)
    keys_are_paths: bool = False
