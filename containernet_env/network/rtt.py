"""RTTs of all pairs of hosts by ICMP echo, measured at once, beside those that the links should give."""

from __future__ import annotations

import errno
import json
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from containernet_env.base import assets, clock, programs
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.base.programs import ending
from containernet_env.base.units import format_ms, parse_cpus, parse_duration
from containernet_env.model.link import DirectionSpec
from containernet_env.network.chance import NO_CHANCE, Chance, chance_of
from containernet_env.network.emulator import default_binary

_LOOK_S = 0.1
_NAMES = {"rtt": "the RTT measurement", "probe": "the network's measurement"}

Broken = Callable[[], str | None]
"""Why measuring any longer is pointless; ``None`` while it is not."""


def never_broken() -> None:
    """The default of ``broken``: the network is never known to be broken."""


def ask(
    verb: Literal["rtt", "probe"],
    request: Mapping[str, Any],
    limit_s: float,
    broken: Broken = never_broken,
    binary: Path | str | None = None,
) -> dict[str, Any]:
    """Have the prober carry a request out; its answer.

    Raises ``RunError`` where it fails or takes longer than ``limit_s``, and as soon as ``broken`` gives a reason, with
    that reason; ``MissingRequirementError`` where there is no prober.
    """
    program = Path(binary) if binary is not None else default_binary()
    try:
        process = subprocess.Popen(
            [str(program), verb, "--life-fd", str(programs.descriptor())],
            pass_fds=(programs.descriptor(),),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
            raise  # a limit of this process, which no set-up changes
        raise MissingRequirementError(
            f"the network's prober cannot be started: {program}: {error.strerror}",
            assets.set_up_hint(),
        ) from error
    with process:
        try:
            out, err = _communicate(process, json.dumps(request), limit_s, broken, _NAMES[verb])
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise RunError(f"{_NAMES[verb]} failed: {ending(process.returncode, err)}")
    try:
        return dict(json.loads(out))
    except ValueError as error:
        raise RunError(f"{_NAMES[verb]}'s answer cannot be read: {out[:80]!r}") from error


def _communicate(
    process: subprocess.Popen[str], text: str, limit_s: float, broken: Broken, name: str
) -> tuple[str, str]:
    """Give ``text`` to a process and return what it writes; ``RunError`` after ``limit_s`` or by ``broken``."""
    deadline = clock.monotonic() + limit_s
    rest: str | None = text
    while True:
        if (reason := broken()) is not None:
            raise RunError(reason)
        try:
            return process.communicate(rest, timeout=_LOOK_S)
        except subprocess.TimeoutExpired as error:
            rest = None  # the process has it: communicate continues where it was
            if clock.monotonic() > deadline:
                raise RunError(f"{name} took more than {limit_s:.0f} s") from error


PROBES = 25
# A pair whose probes are mostly lost, as configured, sends more until this many are answered, for a median.
ANSWERS = 5
WARMUP_PROBES = 3
INTERVAL_MS = 10
PAYLOAD_BYTES = 56
_SPARE_S = 10.0


@dataclass(frozen=True, slots=True)
class ProbeHost:
    """A host that takes part: its first process's id on this machine and its address."""

    name: str
    pid: int
    ip: str


class Expectation(Protocol):
    """What is expected of a pair (``containernet_env.model.topology.RttExpectation``)."""

    @property
    def a(self) -> str: ...

    @property
    def b(self) -> str: ...

    @property
    def propagation_ns(self) -> int: ...

    @property
    def expected_ns(self) -> int: ...

    @property
    def round_trip(self) -> Sequence[DirectionSpec]: ...


class ProbedTopology(Protocol):
    """What ``measure_rtt`` needs of a topology (``containernet_env.model.topology.Topology``)."""

    @property
    def hosts(self) -> Sequence[Any]: ...

    def rtt_pairs(self, frame_bytes: int = ...) -> Sequence[Expectation]: ...


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a measured RTT may be from the expected one: the larger of both."""

    absolute_ns: int = 500_000
    ratio: float = 0.10

    @classmethod
    def parse(cls, text: str) -> Tolerance:
        """Read "1ms", "15%" or both, "1ms,15%"; if only one is given, the other is 0. Raises ``UsageError``."""
        absolute_ns, ratio = 0, 0.0
        words = [word.strip() for word in text.split(",")]
        try:
            if len(words) > 2 or len({word.endswith("%") for word in words}) != len(words):
                raise ValueError("one of each")
            for word in words:
                if word.endswith("%"):
                    ratio = float(parse_cpus(word[:-1])) / 100
                else:
                    absolute_ns = parse_duration(word)
        except ValueError as error:
            raise UsageError(f"RTT tolerance {text!r}; allowed: a duration, a percentage, or both: 1ms,15%") from error
        return cls(absolute_ns, ratio)

    def allowed_ns(self, expected_ns: int) -> int:
        """Nanoseconds either way for one expected RTT."""
        return max(self.absolute_ns, round(expected_ns * self.ratio))


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """One pair of hosts. ``samples_ns`` are the RTTs of the probes that were answered, in the order they were sent.

    ``measured_ns`` is their median, ``None`` where none was answered; ``expected_ns`` is propagation plus the probe's
    own serialization at each link's rate. ``sent`` and ``lost`` do not count the warm-up, during which addresses are
    resolved and ports begin to forward, unless nothing of it was answered. ``chance`` is the
    variation and loss that are configured.
    """

    a: str
    b: str
    propagation_ns: int
    expected_ns: int
    measured_ns: int | None
    sent: int
    lost: int
    samples_ns: tuple[int, ...]
    chance: Chance = NO_CHANCE

    def problem(self, tolerance: Tolerance) -> str | None:
        """What is wrong with it in one line; ``None`` when it is as expected.

        Where jitter is configured, the tolerance is widened by what the median may vary. Where loss is configured, the
        number of lost probes has to be a likely one, even if that is all of them (see ``analysis.rtt_chance`` and
        ``unproven``); where none is, none may be lost.
        """
        if self.chance.loss_ratio == 0:
            if self.measured_ns is None:
                return f"{self.a}-{self.b}: none of {self.sent} probes was answered"
            if self.lost:
                return f"{self.a}-{self.b}: {self.lost} of {self.sent} probes lost, none asked to be lost"
        elif not self.chance.loss_is_likely(self.sent, self.lost):
            share = f"{self.chance.loss_ratio:.2%} of probes asked to be lost"
            return f"{self.a}-{self.b}: {self.lost} of {self.sent} probes lost, {share}"
        if self.measured_ns is None:
            return None
        allowed_ns = self.allowed_ns(tolerance)
        off = self.measured_ns - self.expected_ns
        if abs(off) > allowed_ns:
            return (
                f"{self.a}-{self.b}: {format_ms(self.measured_ns)} ms measured, {format_ms(self.expected_ns)} ms "
                f"expected, off by {off / 1e6:+.3f} ms, allowed {format_ms(allowed_ns)} ms"
            )
        return None

    @property
    def unproven(self) -> str | None:
        """Why its RTT is not known, in one line, where the configured loss makes that likely; else ``None``."""
        if self.measured_ns is not None or not self.chance.loss_ratio or not self.sent:
            return None
        if not self.chance.loss_is_likely(self.sent, self.lost):
            return None
        return (
            f"{self.a}-{self.b}: the RTT is not proved: none of {self.sent} probes was answered, "
            f"{self.chance.loss_ratio:.2%} are asked to be lost"
        )

    def allowed_ns(self, tolerance: Tolerance) -> int:
        """Nanoseconds that the median may be early or late."""
        return tolerance.allowed_ns(self.expected_ns) + self.chance.off_ns(max(1, len(self.samples_ns)))


@dataclass(frozen=True, slots=True)
class RttTable:
    """All pairs, in host order; each unordered pair once."""

    pairs: tuple[MeasuredPair, ...]

    def problems(self, tolerance: Tolerance = Tolerance()) -> list[str]:
        """One line per pair that is outside ``tolerance``; empty when the network is as configured."""
        return [problem for pair in self.pairs if (problem := pair.problem(tolerance)) is not None]

    def unproven(self) -> list[str]:
        """One line per pair that lost every probe, as the configured loss makes likely."""
        return [line for pair in self.pairs if (line := pair.unproven) is not None]

    def worst(self) -> MeasuredPair | None:
        """The pair farthest from its expectation, of those that were answered; ``None`` where none was."""
        return max((pair for pair in self.pairs if pair.measured_ns is not None), key=_distance, default=None)

    def pair(self, a: str, b: str) -> MeasuredPair:
        """The pair of these hosts, in either order; ``KeyError`` when it was not measured."""
        for pair in self.pairs:
            if {pair.a, pair.b} == {a, b}:
                return pair
        raise KeyError(f"{a}-{b}")

    def measured_ns(self, expectation: Expectation) -> int | None:
        """The median of the pair that ``expectation`` is about."""
        return self.pair(expectation.a, expectation.b).measured_ns

    def render(self, tolerance: Tolerance = Tolerance()) -> str:
        """A text table, expected and measured side by side, in ms."""
        rows = [("pair", "expected", "measured", "min", "max", "off", "lost", "")]
        for pair in self.pairs:
            samples = pair.samples_ns
            known = pair.measured_ns is not None
            rows.append(
                (
                    f"{pair.a} - {pair.b}",
                    format_ms(pair.expected_ns),
                    format_ms(pair.measured_ns) if pair.measured_ns is not None else "-",
                    format_ms(min(samples)) if samples else "-",
                    format_ms(max(samples)) if samples else "-",
                    f"{((pair.measured_ns or 0) - pair.expected_ns) / 1e6:+.3f}" if known else "-",
                    f"{pair.lost}/{pair.sent}",
                    "WRONG" if pair.problem(tolerance) else "unproven" if pair.unproven else "ok",
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = []
        for row in rows:
            cells = [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def to_list(self) -> list[dict[str, Any]]:
        """JSON values for a run's record, samples included."""
        return [{**asdict(pair), "samples_ns": list(pair.samples_ns)} for pair in self.pairs]


def _distance(pair: MeasuredPair) -> int:
    return abs((pair.measured_ns or 0) - pair.expected_ns)


def measure_rtt(
    topology: ProbedTopology,
    pids: Mapping[str, int],
    *,
    binary: Path | str | None = None,
    probes: int = PROBES,
    broken: Broken = never_broken,
) -> RttTable:
    """Measure every pair of ``topology``'s hosts; ``pids`` are their first processes by name. See ``measure``."""
    hosts = [ProbeHost(host.name, pids[host.name], str(host.ip)) for host in topology.hosts]
    return measure(hosts, topology.rtt_pairs(), binary=binary, probes=probes, broken=broken)


def measure(
    hosts: Sequence[ProbeHost],
    expectations: Iterable[Expectation],
    *,
    binary: Path | str | None = None,
    probes: int = PROBES,
    timeout_ms: int | None = None,
    broken: Broken = never_broken,
) -> RttTable:
    """Send ``probes`` echoes between every two hosts, all pairs at once, once the first of a warm-up was answered.

    A pair with fewer than ``ANSWERS`` answers sends more until the timeout of an answer.

    ``timeout_ms`` bounds the wait for an answer (default: 5 s and ten times the largest expected RTT). Raises
    ``RunError`` where the prober fails, and as soon as ``broken`` gives a reason, with that reason; a pair without an
    answer is no failure here (see ``RttTable.problems``).
    """
    expected = {frozenset((item.a, item.b)): item for item in expectations}
    if len(hosts) < 2:
        return RttTable(())
    timeout = timeout_ms or 5000 + max(item.expected_ns for item in expected.values()) * 10 // 10**6
    request = {
        "hosts": [{"name": host.name, "pid": host.pid, "ip": host.ip} for host in hosts],
        "probes": probes,
        "answers": min(ANSWERS, probes),
        "warmup": WARMUP_PROBES,
        "interval_ms": INTERVAL_MS,
        "payload_bytes": PAYLOAD_BYTES,
        "timeout_ms": timeout,
    }
    # The wait for the warm-up, for more answers, and for the last answer.
    limit_s = _SPARE_S + 3 * timeout / 1000 + probes * INTERVAL_MS / 1000
    answer = ask("rtt", request, limit_s, broken, binary)
    return table_from_answer(answer, expected)


def table_from_answer(answer: Mapping[str, Any], expected: Mapping[frozenset[str], Expectation]) -> RttTable:
    """Join the prober's answer with what is expected; the median is taken from the samples themselves."""
    pairs = []
    interval_ns = answer.get("interval_ns", INTERVAL_MS * 10**6)
    for entry in answer["pairs"]:
        wanted = expected[frozenset((entry["a"], entry["b"]))]
        samples = tuple(int(sample) for sample in entry.get("samples_ns") or ())
        median = round(statistics.median(samples)) if samples else None
        pairs.append(
            MeasuredPair(
                a=entry["a"],
                b=entry["b"],
                propagation_ns=wanted.propagation_ns,
                expected_ns=wanted.expected_ns,
                measured_ns=median,
                sent=int(entry["sent"]),
                lost=int(entry["lost"]),
                samples_ns=samples,
                chance=chance_of(wanted.round_trip, interval_ns),
            )
        )
    return RttTable(tuple(pairs))
