"""What loads cost on this machine, as its runs have measured it: a file beside the built programs, read by `check`.

Nothing depends on it. A file that is missing, broken or of another program is as good as an empty one.
"""

from __future__ import annotations

import math
import os
import stat
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from containernet_env.base import cache
from containernet_env.base.errors import ContainernetEnvError
from containernet_env.model.config import DataStore
from containernet_env.results.provenance import MachineFacts, Part
from containernet_env.results.run_files import RunFile
from containernet_env.results.whole_lines import reason

NAME = "machine-costs-1.json"
"""In the machine's cache folder; the number is the version of the form, so that other versions have other files."""
KEPT_OF_A_GROUP = 9
"""The last samples that are kept of each group of like loads, and of fdatasync on each kind of place."""
KEPT_SAMPLES = 400
KEPT_MACHINES = 4
"""A disk may move to another machine, and a virtual machine may get other cores."""
_MAX_BYTES = 4 << 20

Limit = Literal["none", "members", "one core", "cores"]
"""Nothing; the members' own CPU limits; the one core of the generator or of the link emulator; somebody waited for any
core, so that the row is not valid."""
_Amount = Annotated[float, Field(ge=0, lt=1e15)]


class MachineKey(Part):
    """What makes a machine another one, as far as the cost of a request goes."""

    cpu_model: str
    architecture: str
    cores: int = Field(ge=1)
    kernel: str

    @classmethod
    def of(cls, facts: MachineFacts) -> MachineKey:
        """That of a machine as the manifest has it."""
        return cls(
            cpu_model=facts.cpu_model, architecture=facts.architecture, cores=max(1, facts.cores), kernel=facts.kernel
        )


class CostSample(Part):
    """What one scenario's requests cost, each in ns of CPU time: connecting and warm-up included, as in its usage."""

    at: str = Field(description="when the scenario began, UTC")
    kind: str = Field(description="what its requests do")
    one_member: bool = Field(description="whether one member was asked, and not all in turn")
    members: int = Field(ge=1)
    rate_per_s: _Amount = Field(description="how many were answered a second")
    payload_bytes: _Amount = Field(description="keys and values of a request or of its answer")
    requests: int = Field(ge=1)
    cluster_ns: _Amount = Field(description="of all members together")
    member_ns: _Amount = Field(description="of the busiest member")
    client_ns: _Amount = Field(description="of the client's host")
    generator_ns: _Amount = Field(description="of the load generator alone, in the measured time")
    links_ns: _Amount = Field(description="of the link emulator")
    rest_ns: _Amount = Field(description="of the machine, besides all of these: kernel, driver, engine")
    frames: _Amount = Field(description="per request, as the hosts sent them, those of heartbeats included")
    frame_bytes: _Amount
    busy_ratio: _Amount = Field(description="share of the time for which the machine's cores were busy")
    limit: Limit = Field(description="what of CPU time kept the rate from being higher, as its findings say")
    config: str = Field(description="hash of everything configured but the load; the CSV's ConfigHash")
    clients: int = Field(ge=0, description="of a closed loop; 0 of an open one")
    store: str = Field(default="etcd", description="the kind of store that was asked")

    @property
    def group(self) -> tuple[str, bool, int, int, int]:
        """Loads of one group cost the same: by what is asked, cluster, amount of data and requests a second."""
        return (self.kind, self.one_member, self.members, size_class(self.payload_bytes), rate_class(self.rate_per_s))


class SyncSample(Part):
    """An fdatasync where members keep their data: the median of their medians."""

    at: str
    data: DataStore
    median_ns: _Amount


class MachineCosts(Part):
    """Of one machine, the oldest first."""

    machine: MachineKey
    requests: list[CostSample] = Field(default_factory=list)
    syncs: list[SyncSample] = Field(default_factory=list)


class CostsFile(RunFile):
    """The file; the machine that ran last is the last one."""

    machines: list[MachineCosts] = Field(default_factory=list)


def rate_class(rate_per_s: float) -> int:
    """The power of ten that is nearest.

    The more requests there are a second, the less each costs: members, TCP and links batch them, and heartbeats, which
    cost the same in any second, are shared by more.
    """
    return round(math.log10(max(1.0, rate_per_s)))


def size_class(payload_bytes: float) -> int:
    """0 up to 1 KiB, where what surrounds the data costs most; then a class for each factor of 16."""
    return max(0, math.ceil(math.log(max(1.0, payload_bytes) / 1024, 16)))


def read(machine: MachineKey, place: Path | None = None) -> tuple[MachineCosts, str | None]:
    """What is known of a machine, and a note where there is a file that cannot be used; never raises."""
    path = place or cache.MACHINE / NAME
    held, note = _read(path)
    return next((costs for costs in held.machines if costs.machine == machine), MachineCosts(machine=machine)), note


def add(machine: MachineKey, requests: Sequence[CostSample], syncs: Sequence[SyncSample]) -> str | None:
    """Add samples of this machine, atomically; a note where that cannot be. Never raises."""
    if not requests and not syncs:
        return None
    try:
        path = cache.make() / NAME
        held, _ = _read(path)
        known = next((costs for costs in held.machines if costs.machine == machine), MachineCosts(machine=machine))
        now = MachineCosts(
            machine=machine,
            requests=_last([*known.requests, *requests], [item.group for item in (*known.requests, *requests)]),
            syncs=_last([*known.syncs, *syncs], [item.data for item in (*known.syncs, *syncs)]),
        )
        others = [costs for costs in held.machines if costs.machine != machine]
        _write(path, CostsFile(machines=[*others, now][-KEPT_MACHINES:]))
    except OSError as error:
        return f"what requests cost on this machine is not kept: {reason(error)}"
    except ContainernetEnvError as error:
        return f"what requests cost on this machine is not kept: {error}"
    return None


_Sample = TypeVar("_Sample", CostSample, SyncSample)


def _last(samples: list[_Sample], groups: Sequence[object]) -> list[_Sample]:
    """The last ones of each group, and of all."""
    seen: Counter[object] = Counter()
    kept = []
    for sample, group in zip(reversed(samples), reversed(groups), strict=True):
        seen[group] += 1
        if seen[group] <= KEPT_OF_A_GROUP:
            kept.append(sample)
    return kept[:KEPT_SAMPLES][::-1]


def _read(path: Path) -> tuple[CostsFile, str | None]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return CostsFile(), None
    except OSError as error:
        return CostsFile(), f"{path} cannot be read: {reason(error)}; what it knows of this machine is left out"
    try:
        held = os.fstat(fd)
        if not stat.S_ISREG(held.st_mode) or held.st_size > _MAX_BYTES:
            raise ValueError
        with open(fd, "rb", closefd=False) as file:
            return CostsFile.model_validate_json(file.read(_MAX_BYTES)), None
    except (OSError, ValueError):
        return CostsFile(), f"{path} is not what a run has left there: it is ignored, and the next run replaces it"
    finally:
        os.close(fd)


def _write(path: Path, content: CostsFile) -> None:
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with open(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, 0o644)  # for `check` without root, whatever the umask is
            file.write(f"{content.model_dump_json(by_alias=True, indent=1)}\n")
            file.flush()
            os.fsync(fd)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
