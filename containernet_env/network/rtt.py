"""The prober, which measures round trips and one-way delays in the hosts' namespaces, and RTT tolerances."""

from __future__ import annotations

import errno
import json
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from containernet_env.base import assets, clock, programs
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.base.programs import ending
from containernet_env.base.units import parse_cpus, parse_duration
from containernet_env.network.emulator import default_binary

_LOOK_S = 0.1
_NAMES = {"rtt": "the RTT measurement", "probe": "the network's measurement"}

Broken = Callable[[], str | None]
"""The reason to abort a measurement, or ``None`` while there is none."""


def never_broken() -> None:
    """The default of ``broken``: never a reason."""


def probe(
    command: Literal["rtt", "probe"],
    request: Mapping[str, Any],
    limit_s: float,
    broken: Broken = never_broken,
    binary: Path | str | None = None,
) -> dict[str, Any]:
    """Run a command of the prober with ``request`` as its input; return its answer.

    Raises ``RunError`` if it fails or takes longer than ``limit_s``, and as soon as ``broken`` returns a reason, with
    that reason; ``MissingRequirementError`` if the prober is not built.
    """
    program = Path(binary) if binary is not None else default_binary()
    try:
        process = subprocess.Popen(
            [str(program), command, "--life-fd", str(programs.descriptor())],
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
            out, err = _communicate(process, json.dumps(request), limit_s, broken, _NAMES[command])
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise RunError(f"{_NAMES[command]} failed: {ending(process.returncode, err)}")
    try:
        return dict(json.loads(out))
    except ValueError as error:
        raise RunError(f"{_NAMES[command]}'s answer cannot be read: {out[:80]!r}") from error


def _communicate(
    process: subprocess.Popen[str], text: str, limit_s: float, broken: Broken, name: str
) -> tuple[str, str]:
    """Write ``text`` to a process and return its output. Raises ``RunError`` after ``limit_s`` or by ``broken``."""
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
    """A host that takes part: the id of its first process on this machine, and its address."""

    name: str
    pid: int
    ip: str


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Echoes between two hosts. ``samples_ns`` are the RTTs of answered probes, in the order in which they were sent.

    ``sent`` and ``lost`` do not count the warm-up, during which addresses are resolved and ports begin to forward,
    unless none of its probes was answered.
    """

    a: str
    b: str
    sent: int
    lost: int
    samples_ns: tuple[int, ...]

    @property
    def median_ns(self) -> int | None:
        """The median RTT; ``None`` if no probe was answered."""
        return round(statistics.median(self.samples_ns)) if self.samples_ns else None


def measure(
    hosts: Sequence[ProbeHost],
    *,
    binary: Path | str | None = None,
    probes: int = PROBES,
    timeout_ms: int = 5000,
    broken: Broken = never_broken,
) -> tuple[MeasuredPair, ...]:
    """Send ``probes`` ICMP echoes between every two hosts, all pairs at once, after the first answer of a warm-up.

    A pair with fewer than ``ANSWERS`` answers sends more until ``timeout_ms``, which also bounds the wait for an
    answer. Raises ``RunError`` as ``probe`` does.
    """
    request = {
        "hosts": [asdict(host) for host in hosts],
        "probes": probes,
        "answers": min(ANSWERS, probes),
        "warmup": WARMUP_PROBES,
        "interval_ms": INTERVAL_MS,
        "payload_bytes": PAYLOAD_BYTES,
        "timeout_ms": timeout_ms,
    }
    # The warm-up, further probes, and the last answer.
    limit_s = _SPARE_S + 3 * timeout_ms / 1000 + probes * INTERVAL_MS / 1000
    answer = probe("rtt", request, limit_s, broken, binary)
    return tuple(
        MeasuredPair(pair["a"], pair["b"], pair["sent"], pair["lost"], tuple(pair.get("samples_ns") or ()))
        for pair in answer["pairs"]
    )


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
                raise ValueError("one duration and one percentage")
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
