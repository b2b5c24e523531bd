"""Dilation: a testbed that runs ``factor`` times slower than real time, and figures in the time that it emulates.

Slowing the emulated world down gives it more of the machine's cores in each of its seconds (Gupta et al., "To Infinity
and Beyond: Time-Warped Network Emulation", NSDI 2006). Files, plans and rows are in emulated time; only what runs is in
real time. `slowed` makes of a configured value the one that runs, `emulated` and `emulated_outcome` make of a measured
value the one of the row. What is a time or a rate, follows from the units in names. docs/dilation.md has the limits.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from typing import Any, Literal, TypeVar

from containernet_env.model.disruption import Disruption
from containernet_env.model.link import DirectionSpec, queue_frames
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.usage import LinkStatistics

_T = TypeVar("_T")
_WHOLE = ("ns", "_us", "_ms", "_bps")
"""Ends of names of whole numbers."""
_TIMES, _RATES = ("_ns", "_us", "_ms", "_s"), ("_per_s", "_bps")
# Those of the load generator's request beside them, as its answer repeats it.
_TIME_NAMES = frozenset(
    {"ns", "second", "duration", "requestTimeout", "stallTimeout", "warmupDuration", "dialTimeout", "runTimeout"}
    | {"timelineInterval"}
)
_MOMENTS = frozenset({"at_ns", "began_ns", "answered_ns"})
"""Of measured values these are moments on a clock of the machine."""
_WORK = frozenset({"cpu_ns", "user_ns", "system_ns", "threads_cpu_ns", "cpu_s", "steal_ns"})
"""CPU time that something took, a hypervisor too: as much work is done in emulated time."""
_COUNTS = frozenset({"errors", "codes", "warnings"})
"""Counts by any text."""
_RATIO_AT = struct.calcsize(">iiiiqq")
"""Where a histogram of HdrHistogram's version 2 has the factor of its values, a double."""


def slowed(value: _T, factor: int) -> _T:
    """The configured ``value`` as it runs: times are ``factor`` times as long, rates that much lower."""
    scaled: _T = value if factor == 1 else _Scale(factor, 1).of(value)
    return scaled


def emulated(value: _T, factor: int, name: str = "") -> _T:
    """The measured ``value``, an object, JSON or of that name: times are ``factor`` times shorter, rates higher.

    Moments of the machine's clock, and CPU time, stay.
    """
    scaled: _T = value if factor == 1 else _Scale(1, factor).of(value, name)
    return scaled


def default_queue_frames(direction: DirectionSpec, factor: int) -> int | None:
    """The default queue limit of a slowed ``direction`` for which none was planned: that of the emulated direction.

    ``None`` without a rate.
    """
    unplanned = replace(direction, default_queue_frames=None)
    return None if direction.rate_bps is None else queue_frames(emulated(unplanned, factor))


def emulated_outcome(outcome: ScenarioOutcome, factor: int) -> ScenarioOutcome:
    """What was measured of a scenario in real time, in emulated time; its own configuration is left as it is."""
    if factor == 1:
        return outcome
    load, network, done = outcome.load, outcome.network, outcome.disruptions
    if done is not None:
        # What undoes an event has its value, and another verb.
        values = [None, *(event.value for event in outcome.scheduled.scenario.events)]
        done = replace(
            done, executed=tuple(replace(emulated(item, factor), value=values[item.number]) for item in done.executed)
        )
    return replace(
        outcome,
        seconds=outcome.seconds / factor,
        load=None if load is None else LoadResult.from_json(emulated(load.values, factor)),
        network=None if network is None else LinkStatistics(emulated(network.values, factor)),
        machine=emulated(outcome.machine, factor),
        store=emulated(outcome.store, factor),
        disruptions=done,
    )


class _Scale:
    """Multiplies times by ``longer / shorter``, and divides rates by it; one of both is 1."""

    def __init__(self, longer: int, shorter: int) -> None:
        self._longer, self._shorter = longer, shorter

    def of(self, value: Any, name: str = "") -> Any:
        """The value, an object, JSON or a number with that name."""
        if isinstance(value, Disruption):
            return replace(self._of_fields(replace(value, value=None)), value=self.of(value.value, value.value_name))
        if is_dataclass(value) and not isinstance(value, type):
            return self._of_fields(value)
        if isinstance(value, Mapping):
            if name in _COUNTS:
                return value
            own = {key: name if self._kind(name) else str(key) for key in value}
            return {key: self.of(item, own[key]) for key, item in value.items()}
        if name == "buckets":  # pairs of an edge, in ns or in seconds, and a count
            return type(value)(type(pair)((self.of(pair[0], "_ns"), pair[1])) for pair in value)
        if isinstance(value, list | tuple):
            return type(value)(self.of(item, name) for item in value)
        if name == "histogram" and isinstance(value, str):
            return self._histogram(value)
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return value
        return self._number(value, name)

    def _of_fields(self, value: Any) -> Any:
        made = [item.name for item in fields(value) if item.init]
        return replace(value, **{name: self.of(getattr(value, name), name) for name in made})

    def _kind(self, name: str) -> Literal["time", "rate"] | None:
        if name in _WORK or (name in _MOMENTS and self._shorter > 1):
            return None
        if name == "rate" or name.endswith(_RATES):
            return "rate"
        return "time" if name in _TIME_NAMES or name.endswith(_TIMES) else None

    def _number(self, value: float | Decimal, name: str) -> float | Decimal:
        kind = self._kind(name)
        if kind is None:
            return value
        up, down = (self._longer, self._shorter) if kind == "time" else (self._shorter, self._longer)
        scaled = value * up / down
        return round(scaled) if isinstance(value, int) and name.endswith(_WHOLE) else scaled

    def _histogram(self, text: str) -> str:
        packed = base64.b64decode(text)
        content = bytearray(zlib.decompress(packed[8:]))
        (ratio,) = struct.unpack_from(">d", content, _RATIO_AT)
        struct.pack_into(">d", content, _RATIO_AT, ratio * self._longer / self._shorter)
        compressed = zlib.compress(bytes(content))
        return base64.b64encode(packed[:4] + struct.pack(">i", len(compressed)) + compressed).decode()
