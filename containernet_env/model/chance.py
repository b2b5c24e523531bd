"""Random effects on the frames of a link: jitter and loss, as values that every implementation understands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

Distribution = Literal["uniform", "normal"]

DELAY_MAX_NS = 3600 * 10**9
"""The longest delay, an hour (the link emulator's bound, link_emulator/model/params.go)."""

CORRELATION_MAX_NS = 10 * DELAY_MAX_NS
"""The longest correlation time (the link emulator's bound)."""

LEAST_CORRELATION, USUAL_CORRELATION = 8, 10
"""The shortest correlation time with which frames keep their order, and the default one, in units of the jitter.

``leastCorrelation`` in link_emulator/model/params.go has the derivation.
"""

REACH = {"uniform": 1, "normal": 4}
"""How far a delay can be from its mean, in units of the jitter: where the distribution ends or is truncated."""


def check_int(name: str, value: object, low: int, high: int) -> None:
    """Raise ``TypeError`` unless ``value`` is an ``int``, ``ValueError`` unless it is from ``low`` to ``high``."""
    # bool is an int to Python, but True is no number of nanoseconds.
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be {low} to {high}, got {value}")


def _check_ratio(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be 0 to 1, got {value}")


@dataclass(frozen=True, slots=True)
class Jitter:
    """Variation of the delay.

    ``distribution``: ``uniform`` draws from delay - ``ns`` to delay + ``ns``; ``normal`` has the delay as its mean and
    ``ns`` as its standard deviation, truncated at four of them. ``ns``: 1 or more. ``reorder``: whether each frame
    draws a delay of its own, so that one with a short delay may overtake; otherwise the delay changes with time, so
    slowly that frames keep their order. ``correlation_ns`` says how slowly: delays so far apart have a correlation of
    a third, twice as far none. 8 times ``ns`` or more; ``None`` is 10 times ``ns``, and all there is with ``reorder``.
    """

    distribution: Distribution
    ns: int
    reorder: bool = False
    correlation_ns: int | None = None

    def __post_init__(self) -> None:
        if self.distribution not in REACH:
            raise ValueError(f"distribution must be uniform or normal, got {self.distribution!r}")
        check_int("ns", self.ns, 1, DELAY_MAX_NS)
        if not isinstance(self.reorder, bool):
            raise TypeError(f"reorder must be a bool, got {self.reorder!r}")
        if self.correlation_ns is None:
            return
        if self.reorder:
            raise ValueError("correlation_ns goes with jitter that keeps order, not with reorder")
        check_int("correlation_ns", self.correlation_ns, LEAST_CORRELATION * self.ns, CORRELATION_MAX_NS)

    @property
    def reach_ns(self) -> int:
        """By how much a delay can differ from its mean, either way."""
        return REACH[self.distribution] * self.ns

    @property
    def held_correlation_ns(self) -> int:
        """The correlation time in force; 0 where each frame draws a delay of its own."""
        if self.reorder:
            return 0
        return USUAL_CORRELATION * self.ns if self.correlation_ns is None else self.correlation_ns

    @property
    def deviation_ns(self) -> float:
        """Standard deviation of the delay; truncating the normal distribution at four reduces it by a thousandth."""
        return self.ns / math.sqrt(3) if self.distribution == "uniform" else float(self.ns)


@dataclass(frozen=True, slots=True)
class IndependentLoss:
    """Each frame is lost with the probability ``ratio`` (0 to 1), independently of the others."""

    ratio: float
    model: Literal["independent"] = field(default="independent", init=False)

    def __post_init__(self) -> None:
        _check_ratio("ratio", self.ratio)
        object.__setattr__(self, "ratio", float(self.ratio))

    @property
    def mean_ratio(self) -> float:
        """The share of frames that is lost in the long run."""
        return self.ratio

    @property
    def correlation(self) -> float:
        """Correlation of the losses of two consecutive frames."""
        return 0.0


@dataclass(frozen=True, slots=True)
class GilbertElliottLoss:
    """Losses in bursts: a good and a bad state, each with a loss ratio of its own; all values are 0 to 1.

    A frame is lost with the loss ratio of the current state, then the state changes with the probability of leaving
    it; the first frame meets the good state (Elliott, Bell System Technical Journal 42, 1963).
    """

    good_to_bad_ratio: float
    bad_to_good_ratio: float
    good_loss_ratio: float = 0.0
    bad_loss_ratio: float = 1.0
    model: Literal["gilbert_elliott"] = field(default="gilbert_elliott", init=False)

    def __post_init__(self) -> None:
        for name in ("good_to_bad_ratio", "bad_to_good_ratio", "good_loss_ratio", "bad_loss_ratio"):
            _check_ratio(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def mean_ratio(self) -> float:
        """The share of frames that is lost in the long run."""
        changes = self.good_to_bad_ratio + self.bad_to_good_ratio
        bad = self.good_to_bad_ratio / changes if changes else 0.0
        return (1 - bad) * self.good_loss_ratio + bad * self.bad_loss_ratio

    @property
    def correlation(self) -> float:
        """Correlation of the states that two consecutive frames meet, at least 0."""
        return max(0.0, 1 - self.good_to_bad_ratio - self.bad_to_good_ratio)


Loss = IndependentLoss | GilbertElliottLoss
