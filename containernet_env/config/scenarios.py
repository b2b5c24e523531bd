"""Scenario files: compact blocks of settings whose lists multiply, expanded into the scenarios of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter, create_model

from containernet_env.base import assets
from containernet_env.base.units import format_duration, format_number, parse_duration
from containernet_env.config import hints
from containernet_env.config.fields import (
    BANDWIDTH,
    DELAY,
    LEFT_OUT,
    Boolean,
    Chosen,
    Kind,
    Length,
    StrictModel,
    as_far_as_good,
    choice,
    decimal,
    duration,
    integer,
    not_beside,
    one_of_or_name,
    refuse,
    rule,
    text,
    type_of,
    validate,
    written_value,
)
from containernet_env.config.reader import Document, Finding, Location, json_path, read_document, render, value_at
from containernet_env.model import load_contract as contract
from containernet_env.model.disruption import AFFECTED, DRAWN_TARGETS, UNDOING, Disruption, Verb, name_of
from containernet_env.model.scenario import (
    ALPHABET,
    ANY_MEMBER,
    CONSISTENCY_NAMES,
    NO_WARMUP,
    ONE_KEY,
    REQUEST_TIMEOUT_NS,
    ZIPF_EXPONENT,
    Answer,
    Arrival,
    BlockPlace,
    Consistency,
    Dataset,
    EventPlace,
    KeyOrder,
    Keys,
    Load,
    MemberTarget,
    Scenario,
    ScenarioSet,
    ScenarioType,
    SearchPlace,
    Span,
    Warmup,
    after_prefix,
    new_keys,
)
from containernet_env.model.search import (
    HIGH_PER_S,
    KEY_SPACE,
    LOW_PER_S,
    PERCENTILES,
    REPEATS,
    STEP_NS,
    WITHIN,
    Objective,
    Search,
)

MAX_SCENARIOS = 1000
"""A file that multiplies out to more than this is a mistake, not a run."""

# The limits of the benchmark server: a file that passes here is never refused there.
REQUESTS_MAX = contract.TOTAL_MAX
RATE_MIN, RATE_MAX = Decimal(str(contract.RATE_MIN_PER_S)), Decimal(contract.RATE_MAX_PER_S)
LENGTH_MIN_NS = round(contract.DURATION_MIN_S * 10**9)
# Half of the server's limit for a benchmark leaves the warm-up and the end their time.
LENGTH_MAX_NS = contract.RUN_TIMEOUT_MAX_S // 2 * 10**9
TIMEOUT_MAX_NS = contract.REQUEST_TIMEOUT_MAX_S * 10**9
STALL_TIMEOUT_MAX_NS = contract.STALL_TIMEOUT_MAX_S * 10**9
# Less than the server takes.
WARMUP_MAX_NS = 3_600 * 10**9
# The server's limit leaves room for the seeds of later repetitions.
SEED_MAX = 2**32 - 1
# An objective below this is met by no network; probes and repeats that take a night are a mistake.
OBJECTIVE_MIN_NS = 1_000
STEP_MIN_NS, STEP_MAX_NS = 100 * 10**6, 600 * 10**9
PROBE_MAX_NS = 1_200 * 10**9
WITHIN_MIN, WITHIN_MAX = Decimal("0.01"), Decimal("0.5")
REPEATS_MIN, REPEATS_MAX = 3, 20


AXIS = Length(1, MAX_SCENARIOS, alone=True)
"""A list of alternatives, or one of them alone."""


_WARMUP_FORM = (
    f'a number of requests from 1 to {REQUESTS_MAX}, or a duration such as "2s", from '
    f"{format_duration(LENGTH_MIN_NS)} to {format_duration(WARMUP_MAX_NS)}"
)


def _parse_warmup(value: object) -> Warmup:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= REQUESTS_MAX:
            raise ValueError("is out of range")
        return Warmup(requests=value)
    try:
        length_ns = parse_duration(value)
    except ValueError as error:
        raise ValueError("is neither a number of requests nor a duration") from error
    if not LENGTH_MIN_NS <= length_ns <= WARMUP_MAX_NS:
        raise ValueError("is out of range")
    return Warmup(length_ns=length_ns)


def _written_warmup(warmup: Warmup) -> Any:
    return warmup.requests or format_duration(warmup.length_ns)


_WARMUP = Kind(
    _parse_warmup,
    _WARMUP_FORM,
    {"anyOf": [{"type": "integer", "minimum": 1, "maximum": REQUESTS_MAX}, {"type": "string"}]},
    hints.warmups,
    _written_warmup,
    "duration",
)
_OBJECTIVE = Annotated[int | None, duration(OBJECTIVE_MIN_NS, TIMEOUT_MAX_NS)]


def _objective(percentile: str) -> Any:
    meaning = f"the response time that the {percentile}th percentile of a probe may have at most"
    return Field(default=None, alias=f"p{percentile}", description=meaning)


class RawSearch(StrictModel):
    """The objectives of a search for the highest rate that holds them, and how it is searched."""

    model_config = ConfigDict(
        title="Search", json_schema_extra={"anyOf": [{"required": [f"p{percentile}"]} for percentile in PERCENTILES]}
    )

    p50_ns: _OBJECTIVE = _objective("50")
    p90_ns: _OBJECTIVE = _objective("90")
    p95_ns: _OBJECTIVE = _objective("95")
    p99_ns: _OBJECTIVE = _objective("99")
    p99_9_ns: _OBJECTIVE = _objective("99.9")
    low: Annotated[Decimal | None, decimal(RATE_MIN, RATE_MAX)] = Field(
        default=None, alias="from", description="the lowest rate that is probed, in requests/s (10)"
    )
    high: Annotated[Decimal | None, decimal(RATE_MIN, RATE_MAX)] = Field(
        default=None,
        alias="to",
        description="the highest rate that is probed (the highest that the benchmark server takes)",
    )
    step_ns: Annotated[int | None, duration(STEP_MIN_NS, STEP_MAX_NS)] = Field(
        default=None,
        alias="step",
        description="how long each probe sends requests, longer where a percentile needs it "
        f"({format_duration(STEP_NS)})",
    )
    within: Annotated[Decimal | None, decimal(WITHIN_MIN, WITHIN_MAX)] = Field(
        default=None, description=f"how far neighbouring rates are apart, as a ratio ({WITHIN})"
    )
    repeats: Annotated[int, integer(REPEATS_MIN, REPEATS_MAX)] = Field(
        default=REPEATS, description="how many probes have to agree at each end of the interval"
    )

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Those that are given, by percentile."""
        limits = (self.p50_ns, self.p90_ns, self.p95_ns, self.p99_ns, self.p99_9_ns)
        pairs = zip(PERCENTILES, limits, strict=True)
        return tuple(Objective(percentile, limit_ns) for percentile, limit_ns in pairs if limit_ns is not None)

    @classmethod
    def written(cls, value: Search, always: Collection[str] = ()) -> dict[str, Any]:
        """See ``StrictModel``: each objective is a key."""
        objectives = {f"p{item.percentile}": format_duration(item.limit_ns) for item in value.objectives}
        return {**objectives, **super().written(value, always)}

    @property
    def value(self) -> Search:
        """The search as a value."""
        low, step_ns, within = (
            given if given is not None else default
            for given, default in ((self.low, LOW_PER_S), (self.step_ns, STEP_NS), (self.within, WITHIN))
        )
        high = HIGH_PER_S if self.high is None else self.high
        return Search(self.objectives, Decimal(low), high, int(step_ns), Decimal(within), self.repeats)

    @rule
    def _has_an_objective(self) -> None:
        if not self.objectives:
            refuse("is missing", "a response time for p50, p90, p95, p99 or p99.9, at least one", key="p99")

    @rule
    def _objectives_rise(self) -> None:
        for one, other in pairwise(self.objectives):
            if one.limit_ns >= other.limit_ns:
                allowed = f"less than p{other.percentile}, {format_duration(other.limit_ns)}"
                refuse(f"follows from p{other.percentile}", allowed, key=f"p{one.percentile}")

    @rule
    def _ends_above_its_start(self) -> None:
        if self.value.high <= self.value.low:
            key, allowed = "to", f"more than from, {format_number(self.value.low)}"
            if self.high is None:
                key, allowed = "from", f"less than {format_number(self.value.high)}"
            refuse("leaves no rates to search", allowed, key=key)

    @rule
    def _lowest_rate_has_enough_requests(self) -> None:
        if not self.objectives:
            return
        samples = self.value.samples(poisson=False)
        if samples * 10**9 > self.value.low * PROBE_MAX_NS:
            least = Decimal(samples * 10**9) / PROBE_MAX_NS
            message = f"is too low: p{self.objectives[-1].percentile} needs {samples} requests in each probe"
            allowed = f"at least {format_number(round(least, 3))}, at which that takes {format_duration(PROBE_MAX_NS)}"
            refuse(message, allowed, key="from")


class RawLoad(StrictModel):
    """How many requests or for how long, at which rate, by how many clients, over how many connections."""

    model_config = ConfigDict(
        title="Load",
        json_schema_extra={
            "oneOf": [{"required": [length]} for length in ("total", "duration", "search")],
            "not": {"required": ["rate", "search"]},
            "dependentSchemas": {"arrival": {"anyOf": [{"required": ["rate"]}, {"required": ["search"]}]}},
        },
    )

    total: Annotated[int | None, integer(1, REQUESTS_MAX)] = Field(default=None, description="number of requests")
    duration_ns: Annotated[int | None, duration(LENGTH_MIN_NS, LENGTH_MAX_NS)] = Field(
        default=None,
        alias="duration",
        description="as many requests as start within this time, in place of total",
    )
    rate: Annotated[list[Annotated[Decimal, decimal(RATE_MIN, RATE_MAX)]], AXIS] = Field(
        default=[], description="requests/s over all clients, which makes an open loop; may be a list"
    )
    arrival: Annotated[Arrival | None, choice("constant", "poisson")] = Field(
        default=None, description="evenly spaced requests or Poisson arrivals, with a rate"
    )
    clients: Annotated[list[Annotated[int, integer(1, contract.CLIENTS_MAX)]], AXIS] = Field(
        description="clients that each have one request at a time; may be a list"
    )
    conns: Annotated[int, integer(1, contract.CONNS_MAX)] = Field(description="TCP connections that the clients share")
    warmup: Annotated[Warmup | None, _WARMUP] = Field(default=None, description="what runs ahead and is in no figure")
    request_timeout_ns: Annotated[int | None, duration(LENGTH_MIN_NS, TIMEOUT_MAX_NS)] = Field(
        default=None, alias="timeout", description="deadline of each request"
    )
    stall_timeout_ns: Annotated[int | None, duration(0, STALL_TIMEOUT_MAX_NS)] = Field(
        default=None,
        alias="stallTimeout",
        description="how long without a success before the scenario is ended",
    )
    seed: Annotated[int | None, integer(0, SEED_MAX)] = Field(
        default=None, description="what schedule, order of keys and kinds of requests are drawn from (0)"
    )
    search: RawSearch = Field(
        default=LEFT_OUT,
        description="the highest rate whose response times hold, in place of total or duration, and of rate",
    )

    @property
    def _searches(self) -> bool:
        return "search" in self.model_fields_set

    @rule
    def _has_a_length(self) -> None:
        if self.total is None and self.duration_ns is None and not self._searches:
            refuse("is missing", "total, a number of requests, or duration, or search", key="total")

    _search_has_no_total, _search_has_no_duration, _search_has_no_rate = (
        not_beside(key, "search", "search alone, which chooses the rate and the length of each probe")
        for key in ("total", "duration", "rate")
    )
    _has_one_length = not_beside("duration", "total", "either total or duration")

    @rule
    def _search_has_no_warmup_in_requests(self) -> None:
        if self._searches and self.warmup is not None and self.warmup.requests:
            refuse("is no time", 'a duration such as "1s" beside search, whose rate is not known', key="warmup")

    @rule
    def _objectives_are_below_the_deadline(self) -> None:
        timeout_ns = REQUEST_TIMEOUT_NS if self.request_timeout_ns is None else self.request_timeout_ns
        if self.search is not None:
            for item in self.search.objectives:
                if item.limit_ns >= timeout_ns:
                    # Whatever takes longer has failed: no answered request could miss it.
                    message = f"has an objective that no answer can miss, {item.text}"
                    refuse(
                        message, f"less than the deadline of each request, {format_duration(timeout_ns)}", key="search"
                    )

    @rule
    def _clients_have_requests(self) -> None:
        if self.total is not None and max(self.clients) > self.total:
            # The row would claim a concurrency that never was.
            refuse("is more than there are requests", f"at most total, {self.total}", key="clients")

    @rule
    def _stall_is_never_or_long_enough(self) -> None:
        if self.stall_timeout_ns is not None and 0 < self.stall_timeout_ns < LENGTH_MIN_NS:
            allowed = f'"0s", which is never, or at least {format_duration(LENGTH_MIN_NS)}'
            refuse("is too short", allowed, key="stallTimeout")

    @rule
    def _arrivals_have_a_rate(self) -> None:
        if self.arrival is not None and not self.rate and not self._searches:
            allowed = "only beside rate or search: a closed loop has no arrivals"
            refuse("is given without a rate", allowed, key="arrival")

    @rule
    def _takes_no_longer_than_the_server_lets_it(self) -> None:
        if self.rate and self.total is not None and self.total * 10**9 > min(self.rate) * LENGTH_MAX_NS:
            most = f"{format_duration(LENGTH_MAX_NS)} in all"
            refuse(f"is too low for {self.total} requests", f"a rate at which they take at most {most}", key="rate")

    @rule
    def _warmup_keeps_the_servers_limits(self) -> None:
        if self.warmup is None or not self.rate:
            return
        if self.warmup.requests * 10**9 > min(self.rate) * WARMUP_MAX_NS:
            refuse("is too long", f"at most {format_duration(WARMUP_MAX_NS)} at this rate", key="warmup")


EVENTS_MAX = 50
"""More than these in one scenario are a mistake."""
MORE_EVENTS = '; one with "every" repeats, and the others can be of further scenarios'
"""The advice if there are more."""
EVENT_MIN_NS = 200_000_000
"""The generator reports its start within 100 ms, and the leader is queried right before an event."""
FOR_MIN_NS = 10_000_000
_LONGEST_NS = contract.RUN_TIMEOUT_MAX_S // 2 * 10**9
_WHEN, _LENGTH = duration(EVENT_MIN_NS, _LONGEST_NS), duration(FOR_MIN_NS, _LONGEST_NS)
_CHOSEN, _KILLED, _FROZEN, _PARTITIONED = (
    one_of_or_name(*words) for words in (DRAWN_TARGETS, ("killed",), ("frozen",), ("partitioned",))
)
_TARGETED = ("kill", "restart", "freeze", "thaw", "partition", "heal")
_OF_LINKS = ("link", "delay", "loss", "rate")
_ACTIONS = (*_TARGETED, *_OF_LINKS)
_VERBS: dict[str, Verb] = {verb: verb for verb in get_args(Verb)}


class RawEvent(StrictModel):
    """Once or every so often, one thing is done to members, or to the links of members."""

    model_config = ConfigDict(
        title="Event",
        json_schema_extra={
            "oneOf": [{"required": ["at"]}, {"required": ["every"]}],
            "anyOf": [{"required": [key]} for key in _ACTIONS],
            "dependentRequired": {key: ["of"] for key in _OF_LINKS},
        },
    )

    at_ns: Annotated[int | None, _WHEN] = Field(
        default=None, alias="at", description="how long after the start of the load it happens, once"
    )
    every_ns: Annotated[int | None, _WHEN] = Field(
        default=None, alias="every", description="how often it happens, the first time after so long"
    )
    for_ns: Annotated[int | None, _LENGTH] = Field(
        default=None, alias="for", description="how long after that it is undone (at the end of the scenario)"
    )
    kill: Annotated[str | None, _CHOSEN] = Field(default=None, description="which members are killed (SIGKILL)")
    restart: Annotated[str | None, _KILLED] = Field(
        default=None, description="which members are started again, on their data"
    )
    freeze: Annotated[str | None, _CHOSEN] = Field(default=None, description="which members are stopped (SIGSTOP)")
    thaw: Annotated[str | None, _FROZEN] = Field(default=None, description="which members go on")
    partition: Annotated[str | None, _CHOSEN] = Field(
        default=None, description="which members are cut off from the other members; clients still reach all"
    )
    heal: Annotated[str | None, _PARTITIONED] = Field(default=None, description="which members reach the others again")
    link: Annotated[Literal["down", "up"] | None, choice("down", "up")] = Field(
        default=None, description="the members' links are unplugged or plugged in"
    )
    delay: Annotated[int, DELAY] = Field(
        default=LEFT_OUT, description="one-way delay of the members' links, each direction"
    )
    loss: Annotated[Decimal | None, decimal(Decimal(0), Decimal(1))] = Field(
        default=None, description="share of frames that is lost on the members' links, each direction"
    )
    rate: Annotated[int | None, BANDWIDTH] = Field(
        default=LEFT_OUT, description="bandwidth of the members' links in Mbit/s, each direction"
    )
    of: Annotated[str | None, one_of_or_name(*DRAWN_TARGETS, "down")] = Field(default=None, description="whose links")

    @property
    def _actions(self) -> list[str]:
        return [key for key in _ACTIONS if key in self.model_fields_set]

    @property
    def verb(self) -> Verb:
        """The action."""
        action = self._actions[0]
        return _VERBS[f"link_{self.link}" if action == "link" else action]

    @property
    def target_key(self) -> str:
        """The key that has its target."""
        return "of" if self._actions[0] in _OF_LINKS else self._actions[0]

    @property
    def disruption(self) -> Disruption:
        """It as a value."""
        value = getattr(self, self.verb, None) if self.target_key == "of" else None
        return Disruption(
            verb=self.verb,
            target=getattr(self, self.target_key),
            at_ns=self.at_ns,
            every_ns=self.every_ns,
            for_ns=self.for_ns,
            value=float(value) if isinstance(value, Decimal) else value,
        )

    @classmethod
    def written(cls, value: Disruption, always: Collection[str] = ()) -> dict[str, Any]:
        """See ``StrictModel``: the action is a key."""
        times, verb = super().written(value, always), value.verb
        if verb.startswith("link_"):
            return {**times, "link": verb.removeprefix("link_"), "of": value.target}
        if verb in _OF_LINKS:
            return {**times, verb: written_value(cls, verb, value.value), "of": value.target}
        return {**times, verb: value.target}

    @rule
    def _has_a_time(self) -> None:
        if self.at_ns is None and self.every_ns is None:
            refuse("is missing", "at, a time after the start of the load, or every", key="at")

    _has_one_time = not_beside("every", "at", "either at or every")

    @rule
    def _does_one_thing(self) -> None:
        if not self._actions:
            refuse("does nothing", f"one of the keys {', '.join(_ACTIONS)}")
        if len(self._actions) > 1:
            refuse(f"is given beside {self._actions[0]}", "one action in each event", key=self._actions[1])

    @rule
    def _links_have_an_owner(self) -> None:
        links = [key for key in self._actions if key in _OF_LINKS]
        if links and self.of is None:
            refuse("is missing", f"whose link: {', '.join(DRAWN_TARGETS)} or a member's name", key="of")
        if self._actions and not links and self.of is not None:
            refuse(f"is given beside {self._actions[0]}", f"only beside {', '.join(_OF_LINKS)}", key="of")

    @rule
    def _what_is_down_goes_up(self) -> None:
        if not self._actions or self.of is None:
            return
        if self.link == "up" and self.of in DRAWN_TARGETS:
            refuse("is not known to be down", '"down", which is all that are, or a member\'s name', key="of")
        if self.link != "up" and self.of == "down":
            refuse("is given without link up", f"{', '.join(DRAWN_TARGETS)} or a member's name", key="of")

    @rule
    def _only_what_is_done_can_be_undone(self) -> None:
        if self.for_ns is not None and self._actions and self.verb in AFFECTED:
            undoing = ", ".join(verb.replace("_", " ") for verb in AFFECTED)
            refuse("is given for what ends something", f"not beside {undoing}", key="for")

    @rule
    def _ends_before_it_comes_again(self) -> None:
        if self.for_ns is not None and self.every_ns is not None and self.for_ns >= self.every_ns:
            refuse("is not over when it comes again", f"less than every, {format_duration(self.every_ns)}", key="for")


# "More than 0" to the server; less than this is uniform for any data set.
ZIPF_MIN, ZIPF_MAX = Decimal("0.01"), Decimal(contract.ZIPF_EXPONENT_MAX)
KEY_TEXT_MAX = 200
LIMIT_MAX = 1_000_000_000


# Part of the names of scenarios, where it must not be a glob, and of a column of the CSV.
_KEY_PATTERN = f"[0-9A-Za-z/._:-]{{1,{KEY_TEXT_MAX}}}"
_KEY_FORM = f"1 to {KEY_TEXT_MAX} of 0-9, A-Z, a-z, / . _ : and -"
_KEY = text("is not a key or the beginning of one", _KEY_FORM, _KEY_PATTERN)
_PREFIX = text(
    "does not keep the data set's keys apart from those that are written",
    f"{_KEY_FORM}, at least one of them / . _ : or -",
    f"(?=.*[/._:-]){_KEY_PATTERN}",  # a character that no generated key has: keys of writes never start with it
)


class RawDataset(StrictModel):
    """The data set that the reads read."""

    model_config = ConfigDict(title="Data set")

    key_prefix: Annotated[str | None, _PREFIX] = Field(
        default=None,
        alias="keyPrefix",
        description="what the keys of the data set begin with, and those of writes do not",
    )
    key_size: Annotated[int, integer(1, contract.KEY_SIZE_MAX_BYTES)] = Field(
        default=8, alias="keySize", description="bytes of a key"
    )
    val_size: Annotated[int, integer(1, contract.VAL_SIZE_MAX_BYTES)] = Field(
        default=256, alias="valSize", description="bytes of a value"
    )
    keys: Annotated[int, integer(1, contract.KEY_SPACE_MAX)] = Field(
        default=10_000, description="how many keys the data set has"
    )


class RawData(StrictModel):
    """Sizes in bytes of the keys and values that are written."""

    model_config = ConfigDict(title="Data")

    key_size: Annotated[int, integer(1, contract.KEY_SIZE_MAX_BYTES)] = Field(
        alias="keySize", description="bytes of a key"
    )
    val_size: Annotated[int, integer(1, contract.VAL_SIZE_MAX_BYTES)] = Field(
        alias="valSize", description="bytes of a value"
    )


_TARGETS = Annotated[
    list[Annotated[str, one_of_or_name(*ANY_MEMBER)]],
    AXIS,
    Field(description="to whom requests are sent: the leader alone, all members in turn, or one member; may be a list"),
]
_TYPE = "what the requests are"


class RawBlock(StrictModel):
    """What every block has."""

    type: Annotated[ScenarioType, choice("write", "read", "mixed", "txn")] = Field(description=_TYPE)
    load: Annotated[list[RawLoad], AXIS] = Field(
        description="how many requests or for how long, at which rate, by how many clients; may be a list"
    )
    target: _TARGETS = Field(default=["cluster"])
    keys: Annotated[list[Annotated[KeyOrder, choice("sequential", "shuffled", "uniform", "zipfian")]], AXIS] = Field(
        default=["sequential"], description="in which order keys are used; may be a list"
    )
    zipf_exponent: Annotated[Decimal | None, decimal(ZIPF_MIN, ZIPF_MAX)] = Field(
        default=None,
        alias="zipfExponent",
        description="with zipfian, key i is drawn in proportion to 1/(i+1) to this power",
    )
    history: Boolean = Field(
        default=False, description="whether what each operation did and returned is kept, for the command `verify`"
    )
    events: Annotated[list[RawEvent], Length(1, EVENTS_MAX, MORE_EVENTS, alone=True)] = Field(
        default=[], description="actions on members and their links while the load runs"
    )

    @classmethod
    def known_keys(cls) -> list[str]:
        """See ``StrictModel``: events come after the load."""
        return [*(key for key in super().known_keys() if key != "events"), "events"]

    @rule
    def _exponent_has_its_order(self) -> None:
        if self.zipf_exponent is not None and "zipfian" not in self.keys:
            refuse("is given without zipfian keys", 'only beside keys "zipfian"', key="zipfExponent")


class RawWrite(RawBlock):
    """Writes: for each load, for each data, for each target, for each order of keys."""

    model_config = ConfigDict(title="Writes")

    type: Literal["write"] = Field(description=_TYPE)
    data: Annotated[list[RawData], AXIS] = Field(description="sizes in bytes of keys and values; may be a list")
    target: _TARGETS
    key_space: Annotated[int | None, integer(1, contract.KEY_SPACE_MAX)] = Field(
        default=None, alias="keySpace", description="how many different keys are written (as many as requests)"
    )

    @rule
    def _drawn_keys_have_a_space(self) -> None:
        drawn = [order for order in self.keys if order in ("uniform", "zipfian")]
        if drawn and self.key_space is None and any(load.total is None and load.search is None for load in self.load):
            refuse(
                "is missing", f"how many keys {drawn[0]} ones are drawn from, where there is no total", key="keySpace"
            )


class RawReading(RawBlock):
    """The common part of blocks with reads."""

    consistency: Annotated[list[Annotated[Consistency, choice("l", "s", "default")]], AXIS] = Field(
        description="linearizable (l), a quorum agrees; serializable (s), the member that is queried answers alone; "
        "or default, of Consul alone: the leader answers by its lease"
    )
    span_keys: Annotated[list[Annotated[int, integer(1, contract.SPAN_KEYS_MAX)]], AXIS] = Field(
        default=[], alias="spanKeys", description="range scans of so many consecutive keys; may be a list"
    )
    verify: Boolean = Field(
        default=True, description="whether an answer must hold exactly what was written, or only something"
    )


class RawSpan(StrictModel):
    """All keys from one on to before another one."""

    model_config = ConfigDict(title="Span")

    start: Annotated[str, _KEY] = Field(alias="from", description="first key")
    end: Annotated[str, _KEY] = Field(alias="to", description="the key before which the span ends")

    @rule
    def _ends_after_its_start(self) -> None:
        if self.end <= self.start:
            refuse("is not after the start", f"a key that sorts after from, {self.start}", key="to")


_EXTENTS = ("prefix", "span", "spanKeys")
_NOT_BESIDE_A_NAME = ("span", "spanKeys", "keys", "zipfExponent")


class RawRead(RawReading):
    """Reads of the data set: for each load, target, number of keys at once, order of keys, and consistency."""

    model_config = ConfigDict(
        title="Reads",
        json_schema_extra={
            "not": {
                "anyOf": [
                    {"required": [one, two]}
                    for one, others in (("prefix", _NOT_BESIDE_A_NAME), ("span", _NOT_BESIDE_A_NAME[1:]))
                    for two in others
                ]
            },
            "dependentSchemas": {"limit": {"anyOf": [{"required": [extent]} for extent in _EXTENTS]}},
        },
    )

    type: Literal["read"] = Field(description=_TYPE)
    prefix: Annotated[str | None, _KEY] = Field(
        default=None, description="each read requests all keys that begin with this"
    )
    span: RawSpan = Field(default=LEFT_OUT, description="each read requests all keys from one to before another")
    limit: Annotated[int | None, integer(1, LIMIT_MAX)] = Field(
        default=None, description="an answer holds at most so many keys"
    )
    keys_only: Boolean = Field(default=False, alias="keysOnly", description="whether answers hold keys without values")
    count_only: Boolean = Field(
        default=False, alias="countOnly", description="whether answers hold only how many keys there are"
    )

    @property
    def _extents(self) -> list[str]:
        fields = zip(_EXTENTS, ("prefix", "span", "span_keys"), strict=True)
        return [key for key, field in fields if field in self.model_fields_set]

    @rule
    def _asks_for_one_extent(self) -> None:
        if len(self._extents) > 1:
            refuse(f"is given beside {self._extents[0]}", "one of prefix, span and spanKeys", key=self._extents[1])

    @rule
    def _limit_has_an_extent(self) -> None:
        if self.limit is not None and not self._extents:
            refuse("is given for single keys", "only beside prefix, span or spanKeys", key="limit")

    @rule
    def _leaves_one_thing_out(self) -> None:
        if self.keys_only and self.count_only:
            refuse("is given beside keysOnly", "one of keysOnly and countOnly", key="countOnly")

    @rule
    def _named_keys_have_no_order(self) -> None:
        self._refuse_beside_a_name("keys", "keys")

    @rule
    def _named_keys_have_no_exponent(self) -> None:
        self._refuse_beside_a_name("zipf_exponent", "zipfExponent")

    def _refuse_beside_a_name(self, field: str, key: str) -> None:
        extents = self._extents
        if extents and extents[0] != "spanKeys" and field in self.model_fields_set:
            refuse(f"is given beside {extents[0]}", "only where reads begin at the data set's keys", key=key)


class RawMixed(RawReading):
    """Writes and reads of the data set: as reads, for each ratio."""

    model_config = ConfigDict(title="Mixed")

    type: Literal["mixed"] = Field(description=_TYPE)
    ratio: Annotated[list[Annotated[Decimal, decimal(Decimal(0), Decimal(1))]], AXIS] = Field(
        description="share of the writes; may be a list"
    )


class RawTxn(RawBlock):
    """Transactions on the data set: for each load, for each target, for each order of keys."""

    model_config = ConfigDict(title="Transactions")

    type: Literal["txn"] = Field(description=_TYPE)


def _block_model(block: object) -> Any:
    kind = block.get("type") if isinstance(block, dict) else None
    return BLOCKS.get(kind, _UNTYPED) if isinstance(kind, str) else _UNTYPED


_BLOCK: Any = Annotated[RawWrite | RawRead | RawMixed | RawTxn, Chosen(_block_model)]


class RawScenarioFile(StrictModel):
    """A scenario file."""

    model_config = ConfigDict(title="Scenarios")

    dataset: RawDataset = Field(default=RawDataset(), description="the data set that all but writes use")
    scenarios: Annotated[list[_BLOCK], Length(1, MAX_SCENARIOS)] = Field(
        description=f"1 to {MAX_SCENARIOS} blocks, run in this order; in each the lists multiply"
    )


def _every_key() -> dict[str, Any]:
    """The keys that a block of some type has beside those of every block, all of them optional."""
    fields = {name: field for kind in BLOCKS.values() for name, field in kind.model_fields.items()}
    return {
        name: (type_of(field), Field(default=None, alias=field.alias))
        for name, field in fields.items()
        if name not in RawBlock.model_fields
    }


BLOCKS: dict[str, type[RawBlock]] = {"write": RawWrite, "read": RawRead, "mixed": RawMixed, "txn": RawTxn}
"""The model of a block by its type."""
# A block whose type is wrong: keys of any type are checked, and the rest is unknown.
_UNTYPED: type[StrictModel] = create_model("RawUntyped", __base__=RawBlock, **_every_key())

BLOCK: TypeAdapter[RawBlock] = TypeAdapter(_BLOCK)
DATASET: TypeAdapter[RawDataset] = TypeAdapter(RawDataset)
SCENARIO_FILE: TypeAdapter[RawScenarioFile] = TypeAdapter(RawScenarioFile)


def _entry(document: Document, location: Location, index: int) -> Location:
    """The place of an entry of a list, or of the one that is short for a list."""
    return (*location, index) if isinstance(value_at(document.value, location), list) else location


def spans_of(block: RawBlock) -> list[Span]:
    """The requests of a block's reads, one for each number of keys at once."""
    if not isinstance(block, RawReading):
        return [ONE_KEY]
    numbers: list[int | None] = [*block.span_keys] or [None]
    if not isinstance(block, RawRead):
        return [Span(keys=number) for number in numbers]
    answer: Answer = "keys" if block.keys_only else "count" if block.count_only else "values"
    start, end = (block.span.start, block.span.end) if block.span is not None else (None, None)
    return [Span(block.prefix, start, end, number, block.limit, answer) for number in numbers]


def keys_fit(key_size: int, keys: int) -> bool:
    """Whether so many keys of that size are all different."""
    # From 6 bytes on there are more keys than a file may request: no need for large powers.
    return key_size > 5 or len(ALPHABET) ** key_size >= keys


def key_too_small(location: Location, key_size: int, keys: int) -> Finding:
    """That they are not."""
    least = next(size for size in range(1, 7) if keys_fit(size, keys))
    return Finding(location, f"is too small for {keys} different keys", f"{key_size}", f"at least {least}")


def key_findings(document: Document, location: Location, block: RawWrite) -> Iterator[Finding]:
    """Sizes of a block at which its keys are not all different."""
    most = _most_keys(block)
    for index, data in enumerate(block.data):
        if not keys_fit(data.key_size, most):
            place = _entry(document, (*location, "data"), index)
            yield key_too_small((*place, "keySize"), data.key_size, most)


def span_findings(
    location: Location, block: RawReading, dataset: Keys, blocks: Mapping[int, RawBlock]
) -> Iterator[Finding]:
    """Problems of reads of several keys at once, given the writes of the file.

    ``blocks`` are the good ones, by their place in the file.
    """
    span = spans_of(block)[0]
    if span == ONE_KEY or (span.keys is None and not span.named):
        return
    key = "prefix" if span.prefix is not None else "span" if span.start is not None else "spanKeys"
    place = (*location, key)
    if max(block.span_keys, default=0) > dataset.count:
        # The row would claim spans that never were.
        yield Finding(place, "is more than the data set has", allowed=f"at most dataset.keys, {dataset.count}")
        return
    start, end = span.bounds(dataset)
    if not dataset.within(start, end):
        between = f"{dataset.name(0)} to {dataset.name(dataset.count - 1)}"
        yield Finding(place, "holds no key of the data set", allowed=f"some of its keys, {between}")
        return
    if not block.verify:
        return
    prefix = dataset.prefix
    if prefix and not (start.startswith(prefix) and end <= after_prefix(prefix)):
        allowed = f"keys that all start with dataset.keyPrefix, {prefix}, or verify false"
        yield Finding(place, "reaches beyond the data set, where it is not known what is there", allowed=allowed)
        return
    written = next((index for index, other in blocks.items() if isinstance(other, RawWrite)), None)
    if not prefix and written is not None:
        where = json_path(("scenarios", written))
        allowed = "a dataset.keyPrefix, which keeps the data set apart from what is written, or verify false"
        yield Finding(place, f"may hold keys beside the data set, which {where} writes", allowed=allowed)


def unique_findings(location: Location, block: RawBlock, dataset: Dataset) -> Iterator[Finding]:
    """Values without room for the name of their writer, where that is needed, and reads that a history cannot have."""
    if not block.history and not (isinstance(block, RawMixed) and block.verify):
        return
    key = "history" if block.history else "verify"
    if block.history and any(load.search is not None for load in block.load):
        yield Finding((*location, key), "is given for a search, of which no single load is judged", "true", "false")
        return
    if isinstance(block, RawReading) and block.history:
        if spans_of(block)[0] != ONE_KEY:
            yield Finding((*location, key), "is given for more than single keys and their values", "true", "false")
            return
        if not block.verify:
            yield Finding(
                (*location, key), "is given without verify, which checks what reads have found", "true", "false"
            )
            return
    if isinstance(block, RawRead):
        return
    least = contract.UNIQUE_VAL_SIZE_MIN_BYTES
    sizes = [data.val_size for data in block.data] if isinstance(block, RawWrite) else [dataset.val_size]
    if min(sizes) < least:
        problem = f"needs unique values, and {min(sizes)} bytes have no room for the name of their writer"
        what = "a valSize" if isinstance(block, RawWrite) else "a dataset.valSize"
        yield Finding((*location, key), problem, "true", f"{what} of at least {least}, or {key} false")


def _most_keys(block: RawWrite) -> int:
    """How many different keys a block may write, by the server's defaults: a duration leaves their number open."""
    if block.key_space is not None:
        return block.key_space
    return min(max(_new_keys(load, order) for load in block.load for order in block.keys), contract.KEY_SPACE_MAX)


def _new_keys(load: RawLoad, order: KeyOrder) -> int:
    warmup = load.warmup or NO_WARMUP
    made = new_keys(load.total, warmup, order) or (load.total or 0) + contract.KEY_SPACE_OF_DURATION + warmup.requests
    return KEY_SPACE if load.search is not None else made


def event_findings(document: Document, location: Location, block: RawBlock) -> Iterator[Finding]:
    """Events of a block that never happen, or that end an event that never begins."""
    if block.events and any(load.search is not None for load in block.load):
        allowed = "only beside total or duration"
        yield Finding((*location, "events"), "would spoil the probes of a search", allowed=allowed)
    lengths = [length for load in block.load if (length := _shortest_ns(load)) is not None]
    begun = {event.verb for event in block.events}
    for place, event in _placed(document, location, block):
        key, first_ns = ("at", event.at_ns) if event.at_ns is not None else ("every", event.every_ns or 0)
        if lengths and first_ns >= min(lengths):
            allowed = f"less than the load takes, {format_duration(min(lengths))}"
            yield Finding((*place, key), "is not before the end of the load", allowed=allowed)
        undone = next((verb for verb, undoing in UNDOING.items() if undoing == event.verb), None)
        if undone is not None and undone not in begun:
            allowed = f"only beside an event that does: {undone.replace('_', ' ')}"
            yield Finding((*place, event.target_key), "ends what no event begins", allowed=allowed)


def event_places(document: Document, location: Location, block: RawBlock) -> Iterator[EventPlace]:
    """The place of each event of a block: its target."""
    for place, event in _placed(document, location, block):
        target = (*place, event.target_key)
        yield EventPlace(json_path(target), event.disruption, *document.line_and_column(target))


def _placed(document: Document, location: Location, block: RawBlock) -> Iterator[tuple[Location, RawEvent]]:
    for index, event in enumerate(block.events):
        yield _entry(document, (*location, "events"), index), event


def _shortest_ns(load: RawLoad) -> int | None:
    """How long it takes at its highest rate; ``None`` if the store decides."""
    if load.duration_ns is not None:
        return load.duration_ns
    return int(load.total * 10**9 / max(load.rate)) if load.rate and load.total is not None else None


# The operations of a block: not every store supports all.
_DOING = ("type", "consistency", "spanKeys", "prefix", "span", "limit", "keysOnly", "countOnly", "history", "data")
_SHIPPED = assets.ROOT / "configs" / "scenarios"
DEFAULT_SCENARIOS = _SHIPPED / "default.json"
QUICK_SCENARIOS = _SHIPPED / "quick.json"


def load_scenarios(path: Path | str) -> ScenarioSet:
    """The scenarios of a file, blocks and lists in its order; ``ConfigError`` with every problem of it.

    In a block the lists multiply, the loads being the outer loop and a load's rates and clients the next ones.
    """
    return scenarios_of(read_document(Path(path)))


def scenarios_of(document: Document) -> ScenarioSet:
    """The scenarios in a document; see `load_scenarios`."""
    validated = validate(SCENARIO_FILE, document)
    raw, findings = validated.value, validated.findings
    if raw is not None:
        raw_dataset: RawDataset | None = raw.dataset
        blocks = dict(enumerate(raw.scenarios))
    else:
        raw_dataset, blocks = _as_far_as_good(document.value)
    dataset = Dataset()
    if raw_dataset is not None:
        given = raw_dataset
        dataset = Dataset(given.key_size, given.val_size, given.keys, given.key_prefix or "")
        if not keys_fit(dataset.key_size, dataset.keys):
            findings.append(key_too_small(("dataset", "keySize"), dataset.key_size, dataset.keys))
    count = sum(_size(block, dataset) for block in blocks.values())
    if count > MAX_SCENARIOS:
        findings.append(Finding(("scenarios",), "multiply to too many", f"{count}", f"at most {MAX_SCENARIOS}"))
    scenarios: list[Scenario] = []
    first_at: dict[str, Location] = {}
    search_places: list[SearchPlace] = []
    for index, block in blocks.items():
        location = ("scenarios", index)
        if isinstance(block, RawWrite):
            findings.extend(key_findings(document, location, block))
        elif isinstance(block, RawReading) and raw_dataset is not None:
            findings.extend(span_findings(location, block, dataset.all_keys, blocks))
        findings.extend(event_findings(document, location, block))
        if raw_dataset is not None:
            findings.extend(unique_findings(location, block, dataset))
        for scenario in _expand(block, dataset) if count <= MAX_SCENARIOS else ():
            if scenario.name in first_at:
                where = json_path(first_at[scenario.name])
                allowed = "each scenario once; --repeat repeats all"
                findings.append(Finding(location, f"repeats a scenario of {where}", scenario.name, allowed))
            else:
                first_at[scenario.name] = location
                scenarios.append(scenario)
                if scenario.search is not None:
                    search_places.append(_search_place(document, location, block, scenario))
    document.refuse(findings)
    return ScenarioSet(
        document.path,
        document.sha256,
        dataset,
        tuple(scenarios),
        tuple(_member_targets(document, blocks.values())),
        tuple(search_places),
        tuple(
            place for index, block in blocks.items() for place in event_places(document, ("scenarios", index), block)
        ),
        tuple(_block_places(document, scenarios, first_at)),
    )


def _block_places(
    document: Document, scenarios: Iterable[Scenario], first_at: Mapping[str, Location]
) -> Iterator[BlockPlace]:
    names: dict[Location, list[str]] = {}
    for scenario in scenarios:
        names.setdefault(first_at[scenario.name], []).append(scenario.name)
    for location, of_block in names.items():
        given = value_at(document.value, location)
        keys = {
            key: (render(value), *document.line_and_column((*location, key)))
            for key, value in given.items()
            if key in _DOING
        }
        yield BlockPlace(json_path(location), *document.line_and_column(location), tuple(of_block), keys)


def _as_far_as_good(value: Any) -> tuple[RawDataset | None, dict[int, RawBlock]]:
    """The data set and the blocks of a file that is refused, those that are good."""
    top = value if isinstance(value, dict) else {}
    listed = top.get("scenarios")
    blocks = [as_far_as_good(BLOCK, block) for block in listed[:MAX_SCENARIOS]] if isinstance(listed, list) else []
    good = {index: block for index, block in enumerate(blocks) if block is not None}
    return as_far_as_good(DATASET, top.get("dataset", {})), good


def _size(block: RawBlock, dataset: Dataset) -> int:
    loads = sum(max(1, len(load.rate)) * len(load.clients) for load in block.load)
    return loads * prod(map(len, _axes(block, dataset)))


def _loads(raw: RawLoad) -> Iterator[Load]:
    """The loads of one entry in a file, its rates and clients separated; missing keys have their defaults."""
    given = {item.name: value for item in fields(Load) if (value := getattr(raw, item.name, None)) not in (None, [])}
    if raw.search is not None:
        given["search"] = raw.search.value
    rates: list[Decimal | None] = [*raw.rate] or [None]
    for rate, clients in product(rates, raw.clients):
        yield Load(**{**given, "rate": rate, "clients": clients})


def _axes(block: RawBlock, dataset: Dataset) -> tuple[Sequence[Any], ...]:
    """The other dimensions that multiply besides loads: shares of writes, sizes of data, targets, spans, orders,
    consistencies."""
    return (
        block.ratio if isinstance(block, RawMixed) else [None],
        block.data if isinstance(block, RawWrite) else [dataset],
        block.target,
        spans_of(block),
        block.keys,
        block.consistency if isinstance(block, RawReading) else [None],
    )


def _expand(block: RawBlock, dataset: Dataset) -> Iterator[Scenario]:
    events = tuple(event.disruption for event in block.events)
    loads = [load for raw in block.load for load in _loads(raw)]
    verify = isinstance(block, RawReading) and block.verify
    for load, ratio, data, target, span, order, consistency in product(loads, *_axes(block, dataset)):
        exponent = ZIPF_EXPONENT if block.zipf_exponent is None or order != "zipfian" else block.zipf_exponent
        key_space, sizes, given_space = dataset.keys, "", ""
        if isinstance(block, RawWrite):
            default = load.default_keys(order)
            key_space = default if block.key_space is None else block.key_space
            sizes = f"{data.key_size}B-{data.val_size}B"
            given_space = f"of{key_space}" if key_space != default else ""
        # Keys that a file leaves out are left out of the name.
        parts = [
            block.type,
            f"w{format_number(ratio)}" if ratio is not None else "",
            target if target != "cluster" or isinstance(block, RawWrite) else "",
            CONSISTENCY_NAMES[consistency] if consistency is not None else "",
            load.load_name,
            sizes,
            given_space,
            span.label,
            order if order != "sequential" else "",
            f"e{format_number(exponent)}" if exponent != ZIPF_EXPONENT else "",
            "" if verify or not isinstance(block, RawReading) else "unverified",
            "history" if block.history else "",
            name_of(events),
        ]
        yield Scenario(
            name="-".join(filter(None, parts)),
            type=block.type,
            key_size=data.key_size,
            val_size=data.val_size,
            key_space=key_space,
            target=target,
            consistency=consistency,
            keys=order,
            zipf_exponent=exponent,
            verify=verify,
            put_ratio=ratio,
            key_prefix="" if isinstance(block, RawWrite) else dataset.key_prefix,
            span=span,
            history=block.history,
            events=events,
            **{item.name: getattr(load, item.name) for item in fields(Load)},
        )


def _search_place(document: Document, block_at: Location, block: RawBlock, scenario: Scenario) -> SearchPlace:
    index = next(i for i, load in enumerate(block.load) if load.search and load.search.value == scenario.search)
    place = (*_entry(document, (*block_at, "load"), index), "search")
    return SearchPlace(json_path(place), scenario.name, *document.line_and_column(place))


def _member_targets(document: Document, blocks: Iterable[RawBlock]) -> Iterator[MemberTarget]:
    for number, block in enumerate(blocks):
        for index, target in enumerate(block.target):
            if target not in ANY_MEMBER:
                place = _entry(document, ("scenarios", number, "target"), index)
                yield MemberTarget(json_path(place), target, *document.line_and_column(place))
