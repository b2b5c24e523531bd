"""What was used between two moments: pure, samples come in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from containernet_env.model.usage import NAMES, Consumers, Consumption, Usage, difference, larger

Edge = Literal["begin", "end"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at all consumers; ``edge`` is whether a scenario begins or ends with it."""

    at_ns: int
    consumers: Consumers
    edge: Edge | None = None


class _Course:
    """Of one consumer: its first sample, what was last known of each counter, the largest levels."""

    def __init__(self, first: Consumption) -> None:
        self._first = self._last = first
        self._largest = larger(None, first)

    def add(self, sample: Consumption) -> None:
        # A consumer that ends loses its counters one by one: each counts as far as it was seen.
        known = {name: value for name in NAMES if (value := getattr(sample, name)) is not None}
        self._last = replace(self._last, **known)
        self._largest = larger(self._largest, sample)

    def used(self) -> Consumption:
        return difference(self._first, self._last, self._largest)


class Window:
    """Takes the samples from the one at its begin to the one at its end."""

    def __init__(self, first: Sample) -> None:
        self._began_ns = self._ended_ns = first.at_ns
        self._courses = {place: _Course(sample) for place, sample in _places(first.consumers).items()}

    def add(self, sample: Sample) -> None:
        """A later sample; a consumer that the first one has not is left out."""
        self._ended_ns = sample.at_ns
        for place, consumption in _places(sample.consumers).items():
            if place in self._courses:
                self._courses[place].add(consumption)

    def usage(self) -> Usage:
        """What was used until the last sample."""
        used = {place: course.used() for place, course in self._courses.items()}
        members = {name: value for (role, name), value in used.items() if role == "members"}
        singles = {role: value for (role, name), value in used.items() if not name}
        return Usage(self._ended_ns - self._began_ns, Consumers(members=members, **singles))


def _places(consumers: Consumers) -> Mapping[tuple[str, str], Consumption]:
    """By role, and name where several have one."""
    found = {("members", name): member for name, member in consumers.members.items()}
    for role in ("client", "links", "driver", "machine"):
        if (single := getattr(consumers, role)) is not None:
            found[role, ""] = single
    return found
