"""The result of a gate: for every direction of every link and each property, whether it is as configured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Property = Literal["delay", "loss", "duplication", "jitter", "rate", "queue", "aqm"]
Verdict = Literal["proved", "unproved", "wrong"]
Moment = Literal["before", "after", "change"]
"""Before the first scenario, after the last one, or after links were changed between two."""

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One property (``kind``) of a direction of a link ("etcd1>s1": sent by etcd1) or of a path ("etcd1>s1>etcd2").

    ``configured``, ``measured`` and ``allowed`` are text with units, "-" for none. ``why`` is the reason of a verdict
    other than ``proved``, in words. ``values`` are the figures behind it.
    """

    subject: str
    kind: Property
    verdict: Verdict
    configured: str
    measured: str = "-"
    allowed: str = "-"
    why: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        text = f"{self.kind} of {self.subject} ({self.configured})"
        if self.verdict == "wrong":
            text = f"{self.kind} of {self.subject}: {self.configured} configured, {self.measured} measured, "
            text += f"allowed {self.allowed}"
        return ": ".join(filter(None, (text, self.why)))

    def to_json(self) -> dict[str, Any]:
        return {"asked" if key == "configured" else key: value for key, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class NetworkProof:
    """All checks of one gate."""

    moment: Moment
    checks: tuple[Check, ...]
    doubt: str | None = None
    """Why wrong checks count as unproved; ``None`` if they do not."""

    def of(self, verdict: Verdict) -> tuple[Check, ...]:
        """The checks with that verdict, in order."""
        return tuple(check for check in self.checks if check.verdict == verdict)

    @property
    def passed(self) -> bool:
        """Whether no check is wrong; unproved ones may be."""
        return not self.of("wrong")

    def doubted(self, why: str) -> NetworkProof:
        """The same proof with wrong checks as unproved, for this reason."""
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
        """A table of the wrong checks: configured, measured and allowed values."""
        rows = [("direction", "property", "configured", "measured", "allowed", "")]
        rows += [(c.subject, c.kind, c.configured, c.measured, c.allowed, c.why) for c in self.of("wrong")]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def directions_text(names: Sequence[str]) -> str:
    """Directions by name, or their number if more than three."""
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} directions"


def named(checks: Iterable[Check], *, reasons: bool = False) -> str:
    """Checks by name, or their number if more than three have the same property and value."""
    groups: dict[tuple[Property, str, str], list[str]] = {}
    for check in checks:
        groups.setdefault((check.kind, check.configured, check.why if reasons else ""), []).append(check.subject)
    words = []
    for (prop, configured, why), subjects in groups.items():
        words.append(f"{prop} of {directions_text(subjects)} ({configured})" + (f": {why}" if why else ""))
    return "; ".join(words)
