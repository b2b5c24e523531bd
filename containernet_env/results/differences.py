"""What has to be equal for one run to repeat another, what is only told, and why. Pure.

``results/README.md`` has the table as text, between its markers; a test writes it with --snapshot-update.
"""

from __future__ import annotations

import reprlib
import textwrap
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import eq
from typing import Any

from pydantic import BaseModel

from containernet_env.base.units import describe_size
from containernet_env.results.provenance import Difference
from containernet_env.results.run_files import Manifest

_SHOWN_CHARACTERS = 100
# Of one fact that has many parts, such as the plan of another version: more of them tell nothing more.
_SHOWN_PARTS = 20
# What the kernel keeps for itself differs from boot to boot; the machine is the same.
_MEMORY_RATIO = 0.01
# Of the plan: which run it is, where its files came from, and what follows from values that are compared themselves.
_NOT_COMPARED = frozenset({"run_id", "config", "scenario_file", "estimated_s", "notes"})


def _nearly(was: Any, now: Any) -> bool:
    known = isinstance(was, int) and isinstance(now, int)
    return abs(was - now) <= _MEMORY_RATIO * was if known else bool(was == now)


def _text(value: object) -> str:
    # reprlib bounds how deep it looks: an edited file may hold anything.
    text = value if isinstance(value, str) else reprlib.repr(value)
    return "not known" if value is None else textwrap.shorten(text, _SHOWN_CHARACTERS)


def _bytes(value: object) -> str:
    return describe_size(value) if isinstance(value, int) else _text(value)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something of a manifest, at ``place`` in it, that may be another one when a run is repeated.

    Where it is an object, each of its parts is compared by itself. What is not known of a run counts as another one.
    """

    place: str
    name: str
    why: str
    matters: bool = True
    same: Callable[[Any, Any], bool] = eq
    text: Callable[[object], str] = _text

    def of(self, manifest: Manifest) -> object:
        """The value; ``None`` where the manifest does not have it."""
        value: object = manifest
        for step in self.place.split("."):
            value = value.get(step) if isinstance(value, dict) else getattr(value, step, None)
        return value


def _told(place: str, name: str, why: str) -> Fact:
    return Fact(place, name, why, matters=False)


FACTS = (
    Fact("program.version", "program version", "another program measures in another way"),
    Fact("program.commit", "program commit", "another program measures in another way"),
    Fact("program.sources", "program sources", "files that are in no commit, or not those of the commit"),
    Fact("program.go", "Go", "the client and the link emulator are built with it: their speed and pauses"),
    Fact("images", "image", "what the members and the client run"),
    Fact("store.version", "version of the store", "it is what is measured"),
    Fact("machine.cpu_model", "CPU model", "every figure depends on its speed"),
    Fact("machine.cores", "cores", "members, client and links share them"),
    Fact(
        "machine.memory_bytes",
        "memory",
        "page cache and reclaim; 1 % more or less is the same machine",
        same=_nearly,
        text=_bytes,
    ),
    Fact("machine.architecture", "architecture", "other programs"),
    Fact("machine.virtualisation", "virtualisation", "what a hypervisor adds to timers, faults and interrupts"),
    Fact("machine.kernel", "kernel", "TCP, scheduling and disks are its own"),
    Fact("machine.kernel_build", "kernel build", "its configuration may differ at the same release"),
    Fact("machine.clock_source", "clock source", "every time stamp costs what it costs to read"),
    Fact("machine.storage_driver", "storage driver", "the members' data lie on it: fsync"),
    Fact("machine.data_filesystem", "data file system", "what an fdatasync of the members takes"),
    Fact("machine.cgroup_version", "cgroup version", "CPU and memory limits are carried out in another way"),
    Fact("links.links", "links", "emulator and netem have their own lateness and queues"),
    Fact("links.link_emulator.realtime", "real-time priority of links", "without it, others make frames late"),
    Fact("links.link_emulator.stamps", "stamps of frames", "who tells when a frame came, and how exactly"),
    Fact("links.switches", "switches", "another path through the kernel"),
    Fact("links.network_commit", "original Containernet", "it makes the links, where it is chosen"),
    Fact("config_hash", "config hash", "it says that something else was configured"),
    Fact("tolerances", "tolerance", "other networks are called proved, or other rows valid"),
    Fact("plan", "plan", "what is carried out"),
    _told("program.dirty", "uncommitted changes", "the hash of the sources tells what they come to"),
    _told("program.python", "Python", "it drives the run; no request passes through it"),
    _told("machine.engine", "Docker engine", "it starts the hosts; limits are read back"),
    _told("machine.cgroup_driver", "cgroup driver", "where the groups lie; limits are read back"),
    _told("machine.iproute2", "iproute2", "it sets the links up; they are read back and proved"),
    _told("machine.congestion_control", "the machine's congestion control", "every host gets its own"),
    _told("machine.load_average", "load average", "it is never the same twice; what a row suffered, the row says"),
    _told("machine.memory_available_bytes", "free memory", "it is never the same twice"),
    _told("links.network_version", "Mininet", "it names hosts and links; they are read back and proved"),
    _told("links.docker_sdk", "Docker SDK", "it talks to the engine; limits are read back"),
)
"""What is compared, in the order in which it is told."""


def differences(was: Manifest, now: Manifest) -> list[Difference]:
    """What is not the same in two runs, as the first lines of their manifests say."""
    return [difference for fact in FACTS for difference in _compared(fact, fact.of(was), fact.of(now))]


def _compared(fact: Fact, was: object, now: object) -> Iterator[Difference]:
    parts_was, parts_now = _parts(fact, was), _parts(fact, now)
    differing = [
        name
        for name in dict.fromkeys((*parts_was, *parts_now))
        if not fact.same(parts_was.get(name), parts_now.get(name))
    ]
    for name in differing[:_SHOWN_PARTS]:
        texts = [fact.text(parts.get(name)) for parts in (parts_was, parts_now)]
        yield Difference(name=name, was=texts[0], now=texts[1], matters=fact.matters, why=fact.why)
    if (more := len(differing) - _SHOWN_PARTS) > 0:
        yield Difference(name=fact.name, was=f"{more} more", now="others", matters=fact.matters, why=fact.why)


def _parts(fact: Fact, value: object) -> dict[str, object]:
    """The values in an object by their names, in their order; one value where it is none.

    Without recursion: an edited plan may be nested deeply.
    """
    parts: dict[str, object] = {}
    left: deque[tuple[str, object]] = deque([("", value)])
    while left:
        place, item = left.popleft()
        inner: list[tuple[str, object]] = []
        if isinstance(item, BaseModel):
            item = {name: getattr(item, name) for name in type(item).model_fields}
        if isinstance(item, dict):
            inner = [(f"{place}.{key}", part) for key, part in item.items() if place or key not in _NOT_COMPARED]
        elif isinstance(item, list) and fact.place == "plan":
            inner = [(f"{place}[{index}]", part) for index, part in enumerate(item)]
        if inner:
            left.extendleft(reversed(inner))
        else:
            name = f"{fact.name} {place.removeprefix('.')}".rstrip()
            parts[textwrap.shorten(name, _SHOWN_CHARACTERS)] = item
    return parts


def as_markdown() -> str:
    """The table for ``results/README.md``."""
    lines = ["| compared | where in manifest.json | if it differs | because |", "| --- | --- | --- | --- |"]
    for fact in FACTS:
        lines.append(f"| {fact.name} | `{fact.place}` | {'refused' if fact.matters else 'told'} | {fact.why} |")
    return "\n".join(lines) + "\n"
