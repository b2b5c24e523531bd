"""The configuration of a link, independent of its implementation: rate, delay, queue, and random effects on frames."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from containernet_env.base.units import format_duration, format_mbps, format_size
from containernet_env.model import kinds
from containernet_env.model.kinds import Chosen, Record, Refused, keyed, keys_of, record, refuse, rule, rules_of
from containernet_env.model.trace import Trace, Traces

FULL_FRAME_BYTES = 1514
"""An Ethernet frame with 1500 bytes of payload as links count it: no checksum, preamble or gap."""

USUAL_MS = 250
"""The time that a queue holds at its rate, within ``USUAL_MIN_FRAMES`` and ``USUAL_MAX_FRAMES``."""

USUAL_MIN_FRAMES = 200
USUAL_MAX_FRAMES = 2_000
MAX_FRAMES = 100_000
"""The most: 151 MB of full frames, of the 512 MiB that the link emulator has for all links together."""

_UNLIMITED_FRAMES = 1_000
"""Without a rate nothing waits, but netem needs a limit: this is its default."""


def product_frames(rtt_ns: int, rate_bps: int, overhead_bytes: int = 0) -> int:
    """The bandwidth-delay product in full frames with their overhead, rounded up."""
    return -(-rtt_ns * rate_bps // (8 * 10**9 * (FULL_FRAME_BYTES + overhead_bytes)))


def default_frames(rtt_ns: int, rate_bps: int, overhead_bytes: int = 0) -> int:
    """The default limit of a link that sends at ``rate_bps`` and over which the longest round trip takes ``rtt_ns``.

    Full frames of 250 ms at the rate, from 200 to 2,000; never less than the bandwidth-delay product, which a
    loss-based TCP needs at most to keep the link busy (RFC 3439, section 2.2, names the rule); at most 100,000.
    ``model.DefaultQueueFrames`` of the link emulator computes the same. The reasons are in docs/adr/0011.
    """
    usual = min(max(product_frames(USUAL_MS * 10**6, rate_bps, overhead_bytes), USUAL_MIN_FRAMES), USUAL_MAX_FRAMES)
    return min(max(product_frames(rtt_ns, rate_bps, overhead_bytes), usual), MAX_FRAMES)


def queue_frames(direction: DirectionSpec) -> int:
    """How many frames may wait to be sent: as configured, as planned, or as if the other link had the same delay."""
    if direction.queue_frames is not None:
        return direction.queue_frames
    if direction.default_queue_frames is not None:
        return direction.default_queue_frames
    if direction.rate_bps is None:
        return _UNLIMITED_FRAMES
    return default_frames(4 * direction.delay_ns, direction.rate_bps, direction.overhead_bytes)


Distribution = Literal["uniform", "normal"]

DELAY_MAX_NS = 3600 * 10**9
"""The longest delay, an hour (the link emulator's bound, link_emulator/model/params.go)."""

LEAST_CORRELATION, USUAL_CORRELATION = 8, 10
"""The shortest correlation time with which frames keep their order, and the default one, in units of the jitter.

``leastCorrelation`` in link_emulator/model/params.go has the derivation.
"""

REACH: dict[Distribution, int] = {"uniform": 1, "normal": 4}
"""How far a delay can be from its mean, in units of the jitter: where the distribution ends or is truncated."""

# The link emulator's bounds (link_emulator/model/params.go); no other implementation allows more.
LINK_RATE_MIN_BPS, LINK_RATE_MAX_BPS = 1000, 10**12
QUEUE_MAX_FRAMES = 1_000_000
QUEUE_MAX_BYTES = 10**10
SEED_MAX = 2**53 - 1
OVERHEAD_MAX_BYTES = 1000
FLOWS_MAX = 65536
QUANTUM_MIN_BYTES, QUANTUM_MAX_BYTES = 256, 2**20
_INTEGERS = {
    "ns": (1, DELAY_MAX_NS),
    "correlation_ns": (LEAST_CORRELATION, 10 * DELAY_MAX_NS),
    "delay_ns": (0, DELAY_MAX_NS),
    "rate_bps": (LINK_RATE_MIN_BPS, LINK_RATE_MAX_BPS),
    "queue_frames": (1, QUEUE_MAX_FRAMES),
    "queue_bytes": (1, QUEUE_MAX_BYTES),
    "default_queue_frames": (1, QUEUE_MAX_FRAMES),
    "seed": (0, SEED_MAX),
    "overhead_bytes": (0, OVERHEAD_MAX_BYTES),
    "target_ns": (1, DELAY_MAX_NS),
    "interval_ns": (1, DELAY_MAX_NS),
    "flows": (1, FLOWS_MAX),
    "quantum_bytes": (QUANTUM_MIN_BYTES, QUANTUM_MAX_BYTES),
}


class _Checked(Record):
    """Raises ``TypeError`` for a field of another type, ``ValueError`` for one out of range and by its class's
    rules."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for item in fields(self):
            name, value = item.name, getattr(self, item.name)
            low, high = _INTEGERS.get(name, (0, 1))
            if (name in _INTEGERS and value is not None) or name.endswith("ratio"):
                # bool is an int to Python, but True is no number of nanoseconds.
                if isinstance(value, bool) or not isinstance(value, int if name in _INTEGERS else int | float):
                    raise TypeError(f"{name} must be a number, got {value!r}")
                if not low <= value <= high:
                    raise ValueError(f"{name} must be {low} to {high}, got {value}")
        for check in rules_of(type(self)):
            for refused in check(self) or ():
                raise refused


@record
class Jitter(_Checked):
    """How the delay varies.

    ``uniform`` draws from delay - ``ns`` to delay + ``ns``; ``normal`` is truncated at four standard deviations.
    Without ``reorder`` the delay changes so slowly that frames keep their order: delays ``correlation_ns`` apart have a
    correlation of a third, twice as far none; ``None`` is 10 times ``ns``, with ``reorder`` always.
    """

    distribution: Distribution = keyed(
        kinds.choice(*REACH), "how it is drawn (normal: the value is the standard deviation)"
    )
    ns: int = keyed(
        kinds.duration(*_INTEGERS["ns"], such="500us", unit="ms", what="a jitter"),
        "size of the jitter, at most the delay, with normal a quarter of it",
        "value",
    )
    reorder: bool = keyed(
        kinds.BOOLEAN,
        "whether each frame draws a delay of its own, so that frames may overtake each other",
        default=False,
    )
    correlation_ns: int | None = keyed(
        kinds.duration(*_INTEGERS["correlation_ns"], such="10ms", unit="ms", what="a correlation time"),
        f"how slowly the delay varies without reorder, at least {LEAST_CORRELATION} times the value (10 times it)",
        "correlation",
        default=None,
    )

    @rule
    def _distribution_is_known(self) -> None:
        if self.distribution not in REACH:
            refuse("is unknown", " or ".join(REACH), "distribution")

    @rule
    def _correlation_goes_with_order(self) -> None:
        if self.correlation_ns is not None and self.reorder:
            refuse("goes with jitter that keeps order", "without reorder: each frame draws a delay", "correlation")

    @rule
    def _correlation_keeps_order(self) -> None:
        least_ns = LEAST_CORRELATION * self.ns
        if self.correlation_ns is not None and self.correlation_ns < least_ns:
            allowed = f"at least {LEAST_CORRELATION} times the value, {format_duration(least_ns)}"
            refuse("is too short to keep order", allowed, "correlation")

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


@record
class IndependentLoss(_Checked):
    """Each frame is lost with the probability ``ratio`` (0 to 1), independently of the others."""

    ratio: float
    model: Literal["independent"] = field(default="independent", init=False)

    @property
    def mean_ratio(self) -> float:
        """The share of frames that is lost in the long run."""
        return self.ratio

    @property
    def correlation(self) -> float:
        return 0.0


_TEXT = kinds.choice("gilbert-elliott")
_MODEL = replace(
    _TEXT, parse=lambda value: _TEXT.parse(value).replace("-", "_"), write=lambda model: model.replace("_", "-")
)


@record
class GilbertElliottLoss(_Checked):
    """Losses in bursts.

    There are a good and a bad state, each with a loss ratio of its own; all values are 0 to 1. A frame is lost with
    the loss ratio of the current state, then the state changes with the probability of leaving it; the first frame
    meets the good state (Elliott, Bell System Technical Journal 42, 1963).
    """

    model: Literal["gilbert_elliott"] = keyed(
        _MODEL, "model of the losses", required=True, default="gilbert_elliott", init=False
    )
    good_to_bad_ratio: float = keyed(kinds.RATIO, "probability that the state becomes bad after a frame")
    bad_to_good_ratio: float = keyed(kinds.RATIO, "probability that the state becomes good after a frame")
    good_loss_ratio: float = keyed(kinds.RATIO, "probability that a frame is lost in the good state", default=0.0)
    bad_loss_ratio: float = keyed(kinds.RATIO, "probability that a frame is lost in the bad state", default=1.0)

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


_INDEPENDENT = replace(
    kinds.RATIO,
    parse=lambda value: IndependentLoss(kinds.RATIO.parse(value)),
    form=f'{kinds.RATIO.form}, or an object with "model": "gilbert-elliott"',
    write=lambda loss: loss.ratio,
)
LOSS = Chosen(
    (_INDEPENDENT, GilbertElliottLoss), lambda value: GilbertElliottLoss if isinstance(value, dict) else _INDEPENDENT
)


_DISCIPLINE = kinds.choice("codel", "fq_codel")


@record
class CoDel(_Checked):
    """A queue that drops frames at its head once they have waited ``target_ns`` or more for ``interval_ns`` (RFC 8289).

    With ``ecn`` frames whose sender takes that are marked (CE) and not dropped.
    """

    kind: str = keyed(_DISCIPLINE, "the queue discipline", required=True, default="codel", init=False)
    target_ns: int = keyed(
        kinds.duration(*_INTEGERS["target_ns"], such="5ms", unit="ms", what="a target"),
        "how long frames may wait for good",
        "target",
        default=5_000_000,
    )
    interval_ns: int = keyed(
        kinds.duration(*_INTEGERS["interval_ns"], such="100ms", unit="ms", what="an interval"),
        "for how long they may wait longer, about the longest round trip",
        "interval",
        default=100_000_000,
    )
    ecn: bool = keyed(
        kinds.BOOLEAN, "whether frames of senders that take marks are marked and not dropped", default=False
    )

    @property
    def text(self) -> str:
        """Its name, and what of it is not the default."""
        words = [self.kind]
        for name, key in keys_of(type(self)).items():
            if (value := getattr(self, key.attribute)) != key.default:
                words += [name, format_duration(value) if key.attribute.endswith("_ns") else str(value).lower()]
        return " ".join(words)


@record
class FqCoDel(CoDel):
    """CoDel for each of ``flows`` queues, to which flows are hashed and which take turns of ``quantum_bytes``
    (RFC 8290)."""

    kind: str = keyed(_DISCIPLINE, "the queue discipline", required=True, default="fq_codel", init=False)
    ecn: bool = keyed(
        kinds.BOOLEAN, "whether frames of senders that take marks are marked and not dropped", default=True
    )
    flows: int = keyed(kinds.integer(*_INTEGERS["flows"]), "number of queues", default=1024)
    quantum_bytes: int = keyed(
        kinds.integer(*_INTEGERS["quantum_bytes"]), "bytes that a flow sends in its turn", "quantum", default=1514
    )


DISCIPLINES: dict[str, type[CoDel]] = {"codel": CoDel, "fq_codel": FqCoDel}
"""The queue disciplines by their names."""
_BY_NAME = replace(
    _DISCIPLINE,
    parse=lambda value: DISCIPLINES[_DISCIPLINE.parse(value)](),
    form=f'{_DISCIPLINE.form}, or an object with "kind": one of them',
)


def _form_of_discipline(value: Any) -> kinds.Form:
    if not isinstance(value, dict):
        return _BY_NAME
    return FqCoDel if value.get("kind") == "fq_codel" else CoDel


AQM = Chosen((_BY_NAME, CoDel, FqCoDel), _form_of_discipline)


def draw_seed() -> int:
    return secrets.randbelow(SEED_MAX + 1)


Uplink = Literal["host", "network"]
"""Where a host's frames are queued for the rate: at the host, as at a real NIC, or in the network behind it."""


@record
class DirectionSpec(_Checked):
    """One direction of a link, from the end that sends to the end that receives.

    ``delay_ns`` is added after a frame's last bit has been sent. ``rate_bps`` is of whole Ethernet frames (header
    included, no preamble or checksum); counters and queue limits do not include ``overhead_bytes``. Where both queue
    limits are ``None`` it is ``default_queue_frames``, as far as the implementation can hold it, and without that the
    implementation's documented default. ``aqm`` chooses among the frames that wait. Of the frames that are not lost,
    ``duplication_ratio`` arrive twice and ``corruption_ratio`` with one flipped bit. ``seed`` determines the random
    draws together with the names of link and direction, so that directions with the same seed draw independently.
    ``uplink`` is of a direction that a host sends on with a rate; others ignore it; with ``aqm`` it is the network.
    ``None`` leaves either to the implementation. While a scenario runs, ``trace`` takes the place of rate or delay.

    Raises ``ValueError`` for a value out of range and for a jitter that would make a delay negative, ``TypeError`` for
    one of another type.
    """

    delay_ns: int = keyed(kinds.DELAY, "one-way delay", "delay", default=0)
    rate_bps: int | None = keyed(
        kinds.BANDWIDTH, "bandwidth of the host's link in Mbit/s, each direction", "bandwidth", default=None
    )
    queue_frames: int | None = None
    queue_bytes: int | None = None
    jitter: Jitter | None = keyed(Jitter, "how the delay varies", default=None)
    loss: Loss | None = keyed(LOSS, "share of frames that is lost, or an object for losses in bursts", default=None)
    seed: int | None = keyed(
        kinds.integer(0, SEED_MAX), "fixes the random draws (drawn for each run, and recorded)", default=None
    )
    default_queue_frames: int | None = None
    overhead_bytes: int = keyed(
        kinds.integer(0, OVERHEAD_MAX_BYTES),
        "bytes that each frame takes at the bandwidth besides its own (24 for preamble, checksum and gap)",
        "overhead",
        default=0,
    )
    uplink: Uplink | None = keyed(
        kinds.choice(*get_args(Uplink)),
        "where the host's frames wait: at the host, as behind a real network card, or in the network",
        default=None,
    )
    duplication_ratio: float = keyed(kinds.RATIO, "share of frames that arrive twice", "duplication", default=0.0)
    corruption_ratio: float = keyed(
        kinds.RATIO, "share of frames that arrive with one flipped bit", "corruption", default=0.0
    )
    aqm: CoDel | None = keyed(AQM, "queue discipline, in place of first in, first out", default=None)
    trace: Traces | None = None

    @rule
    def _has_its_types(self) -> None:
        if self.uplink is not None and self.uplink not in get_args(Uplink):
            refuse("is unknown", " or ".join(get_args(Uplink)), "uplink")
        for name, value, kind in (("jitter", self.jitter, Jitter), ("loss", self.loss, Loss), ("aqm", self.aqm, CoDel)):
            if not isinstance(value, kind | None):
                raise TypeError(f"{name} must be of the class {kind}, got {value!r}")

    @rule
    def _discipline_has_the_queue(self) -> None:
        if self.aqm is not None and self.uplink == "host":
            refuse("would have frames wait before the queue discipline", "network", "uplink")

    @rule
    def _delays_stay_positive(self) -> None:
        """Truncating the distribution at zero would change it."""
        if self.jitter is not None and self.jitter.reach_ns > self.delay_ns:
            reach = REACH[self.jitter.distribution]
            part = "the delay" if reach == 1 else f"1/{reach} of the delay"
            allowed = f"at most {part}, {format_duration(self.delay_ns // reach)}"
            refuse("would make the delay negative at times", allowed, ("jitter", "value"))

    @rule
    def _trace_goes_with_the_rest(self) -> None:
        refuse_trace(self.trace, self)

    @property
    def traces(self) -> dict[str, Trace]:
        """Its traces, by the field whose place each takes."""
        return {} if self.trace is None else self.trace.fields

    @property
    def fastest(self) -> DirectionSpec:
        """The direction at the least delay and the highest rate that it may have; unlimited with opportunities."""
        if self.trace is None:
            return self
        delay_ns, rate_bps = self.delay_ns, self.rate_bps
        if (delay := self.traces.get("delay_ns")) is not None and delay.delay_ns is not None:
            delay_ns = min(delay_ns, delay.delay_ns[0])
        if (rate := self.traces.get("rate_bps")) is not None and rate_bps is not None:
            rate_bps = None if rate.rate_bps is None else max(rate_bps, rate.rate_bps[1])
        return replace(self, delay_ns=delay_ns, rate_bps=rate_bps, trace=None)

    @property
    def longest_delay_ns(self) -> int:
        """The longest delay that a frame may have, with jitter."""
        trace = self.traces.get("delay_ns")
        most_ns = trace.delay_ns[1] if trace is not None and trace.delay_ns is not None else 0
        return max(self.delay_ns, most_ns) + (self.jitter.reach_ns if self.jitter is not None else 0)

    @property
    def queue(self) -> tuple[int | None, int | None] | None:
        """The configured queue limit, in frames and in bytes; ``None`` if none is."""
        limit = self.queue_frames, self.queue_bytes
        return None if limit == (None, None) else limit

    @property
    def frame_limit(self) -> int | None:
        """The queue limit in frames, as configured, or by default where no limit is; ``None`` if there is none."""
        return self.default_queue_frames if self.queue is None else self.queue_frames

    @property
    def shares(self) -> dict[str, float]:
        """The shares of frames that arrive otherwise than sent, by their keys; of none of them nothing."""
        keys = (key for key in keys_of(DirectionSpec).values() if key.form is kinds.RATIO)
        return {key.name: share for key in keys if (share := getattr(self, key.attribute))}

    @property
    def words(self) -> dict[str, str]:
        """Each unusual property, with its unit, for people; those of frames that wait only with a rate."""
        words = {}
        if self.delay_ns:
            words["delay"] = format_duration(self.delay_ns)
        if (jitter := self.jitter) is not None:
            correlation_ns = jitter.held_correlation_ns
            order = f"correlation {format_duration(correlation_ns)}" if correlation_ns else "frames overtake"
            words["jitter"] = f"{format_duration(jitter.ns)} ({jitter.distribution}, {order})"
        if self.loss is not None and self.loss.mean_ratio:
            bursts = "" if isinstance(self.loss, IndependentLoss) else " in bursts"
            words["loss"] = f"{self.loss.mean_ratio * 100:.6g}%{bursts}"
        words |= {name: f"{ratio * 100:.6g}%" for name, ratio in self.shares.items()}
        if self.rate_bps is not None:
            words["bandwidth"] = f"{format_mbps(self.rate_bps)} Mbit/s"
            limits = [f"{self.frame_limit} frames"] if self.frame_limit is not None else []
            limits += [format_size(self.queue_bytes)] if self.queue_bytes is not None else []
            words |= {"queue": ", ".join(limits)} if limits else {}
            words |= {"overhead": f"{self.overhead_bytes} bytes"} if self.overhead_bytes else {}
            words |= {"uplink": self.uplink} if self.uplink == "network" else {}
            words |= {"aqm": self.aqm.text} if self.aqm is not None else {}
        if self.seed is not None:
            words["seed"] = str(self.seed)
        return words if self.trace is None else words | self.trace.words

    def serialization_ns(self, frame_bytes: int) -> int:
        """Nanoseconds to send a frame of ``frame_bytes`` (0 or more) at this rate, rounded up; 0 if unlimited."""
        if self.rate_bps is None:
            return 0
        bit_ns = (frame_bytes + self.overhead_bytes) * 8 * 1_000_000_000
        return -(-bit_ns // self.rate_bps)


def refuse_trace(trace: Traces | None, of: DirectionSpec) -> None:
    """Raise `Refused` where traces of a direction do not go with the rest of it."""
    if trace is None:
        return
    if trace.bandwidth is not None and of.uplink == "host":
        refuse("cannot follow a trace", 'with a trace of the bandwidth: "network"', "uplink")
    if trace.bandwidth is not None and of.aqm is not None:
        refuse("goes with a constant bandwidth only", "no trace of the bandwidth, or no aqm", "aqm")
    least = trace.delay.delay_ns if trace.delay is not None else None
    if least is not None and of.jitter is not None and of.jitter.reach_ns > least[0]:
        allowed = f"at least {format_duration(of.jitter.reach_ns)}, by which jitter shortens delays"
        raise Refused(
            "has delays that jitter would make negative", allowed, ("trace", "delay"), format_duration(least[0])
        )


_UNSHAPED = DirectionSpec()


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """Both directions of a link between its ends ``a`` and ``b``; on a host's link, ``a`` is the host."""

    a_to_b: DirectionSpec = _UNSHAPED
    b_to_a: DirectionSpec = _UNSHAPED

    @classmethod
    def symmetric(cls, delay_ns: int = 0, rate_bps: int | None = None, queue_frames: int | None = None) -> LinkSpec:
        """A link whose two directions are equal; arguments as for ``DirectionSpec``."""
        direction = DirectionSpec(delay_ns, rate_bps, queue_frames)
        return cls(a_to_b=direction, b_to_a=direction)

    @property
    def sides(self) -> tuple[DirectionSpec, DirectionSpec]:
        return self.a_to_b, self.b_to_a


@dataclass(frozen=True, slots=True)
class Hop:
    """One direction of a link on the way of a frame: the frames from ``sender`` to ``receiver``, both names of
    nodes."""

    sender: str
    receiver: str
    spec: DirectionSpec

    @property
    def name(self) -> str:
        """``sender>receiver``: unique, since two nodes share at most one link."""
        return f"{self.sender}>{self.receiver}"


@dataclass(frozen=True, slots=True)
class Link:
    """A link between the nodes named ``a`` and ``b``; on a host's link, ``a`` is the host.

    A site's name is that of its switch.
    """

    a: str
    b: str
    spec: LinkSpec

    @property
    def name(self) -> str:
        """``a-b``: unique, since two nodes share at most one link."""
        return f"{self.a}-{self.b}"

    @property
    def hops(self) -> tuple[Hop, Hop]:
        return Hop(self.a, self.b, self.spec.a_to_b), Hop(self.b, self.a, self.spec.b_to_a)
