"""What a gate found: for every direction of every link and each of its properties, whether it is as configured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Property = Literal["delay", "loss", "jitter", "rate", "queue"]
Verdict = Literal["proved", "unproved", "wrong"]
Moment = Literal["before", "after", "change"]
"""Before the first scenario, after the last one, or after links were changed between two."""

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One property (``kind``) of a direction of a link ("etcd1>s1": what etcd1 sends) or of a path ("etcd1>s1>etcd2").

    ``asked``, ``measured`` and ``allowed`` are words with units, "-" where there is none. ``why`` says what is missing
    where it is ``unproved``, and what is off where it is ``wrong``, in words. ``values`` are the figures behind it.
    """

    subject: str
    kind: Property
    verdict: Verdict
    asked: str
    measured: str = "-"
    allowed: str = "-"
    why: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """It on one line, for people."""
        if self.verdict == "wrong":
            return (
                f"{self.kind} of {self.subject}: {self.asked} asked, {self.measured} measured, "
                f"allowed {self.allowed}" + (f": {self.why}" if self.why else "")
            )
        return f"{self.kind} of {self.subject} ({self.asked})" + (f": {self.why}" if self.why else "")

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class NetworkProof:
    """All checks of one gate."""

    moment: Moment
    checks: tuple[Check, ...]
    doubt: str | None = None
    """Why what is wrong counts as unproved; ``None`` where that is not so."""

    def of(self, verdict: Verdict) -> tuple[Check, ...]:
        """The checks with that verdict, in order."""
        return tuple(check for check in self.checks if check.verdict == verdict)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong; what is unproved may still be."""
        return not self.of("wrong")

    def doubted(self, why: str) -> NetworkProof:
        """The same, but what is wrong is unproved, for this reason."""
        if self.passed:
            return self
        checks = (replace(c, verdict="unproved", why=why) if c.verdict == "wrong" else c for c in self.checks)
        return NetworkProof(self.moment, tuple(checks), why)

    @property
    def text(self) -> str:
        """The column of a row: ``proved``, ``unproved: loss of etcd1>s1 (0.1 %)``, or ``wrong: ...``."""
        for verdict in ("wrong", "unproved"):
            if found := self.of(verdict):
                return f"{verdict}: {named(found)}"
        return "proved"

    def render(self) -> str:
        """A table of what is wrong: what was asked, what was measured, what is allowed."""
        rows = [("direction", "property", "asked", "measured", "allowed", "")]
        rows += [(c.subject, c.kind, c.asked, c.measured, c.allowed, c.why) for c in self.of("wrong")]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def directions_text(names: Sequence[str]) -> str:
    """Directions by name, or how many there are where they are more than three."""
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} directions"


def named(checks: Iterable[Check], *, reasons: bool = False) -> str:
    """Checks by name; where more than three are of the same property and value, how many there are."""
    groups: dict[tuple[Property, str, str], list[str]] = {}
    for check in checks:
        groups.setdefault((check.kind, check.asked, check.why if reasons else ""), []).append(check.subject)
    words = []
    for (prop, asked, why), subjects in groups.items():
        words.append(f"{prop} of {directions_text(subjects)} ({asked})" + (f": {why}" if why else ""))
    return "; ".join(words)
