"""Figures in real time: measured by ``./check.sh measure``, recorded with the machine's state, never a gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Measurement = Callable[[], float | Mapping[str, float]]
"""One figure, or several of one run by their names."""


@dataclass(frozen=True)
class Figure:
    """A measurement: the name of its figure (or the first part of its figures' names), its unit, what it takes."""

    name: str
    unit: str
    measure: Measurement


FIGURES: list[Figure] = []
"""In the order in which they are declared."""


def figure(name: str, unit: str) -> Callable[[Measurement], Measurement]:
    """Declare a measurement. It takes no argument, asserts nothing about its value, and leaves nothing behind.

    ``name``: a few words without a number that may change: "emulator, one TCP flow at 1000 Mbit/s". What it raises is
    shown as its result; the other measurements go on.
    """

    def declare(measure: Measurement) -> Measurement:
        FIGURES.append(Figure(name, unit, measure))
        return measure

    return declare
