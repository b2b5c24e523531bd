"""The keys of a load in a scenario file, and of the search that may stand in its place."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from containernet_env.base.units import format_duration, format_number, parse_duration
from containernet_env.config import hints
from containernet_env.config.fields import checked, choice, decimal, duration, integer, refuse
from containernet_env.config.link_schema import LEFT_OUT
from containernet_env.config.validation import Length, StrictModel, rule
from containernet_env.model import load_contract as contract
from containernet_env.model.scenario import REQUEST_TIMEOUT_NS, Arrival, Warmup
from containernet_env.model.search import (
    HIGH_PER_S,
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

# What the benchmark server takes: a file that passes here is never refused there.
REQUESTS_MAX = contract.TOTAL_MAX
RATE_MIN, RATE_MAX = Decimal(str(contract.RATE_MIN_PER_S)), Decimal(contract.RATE_MAX_PER_S)
LENGTH_MIN_NS = round(contract.DURATION_MIN_S * 10**9)
# Half of what the server lets a benchmark take leaves the warm-up and the end their time.
LENGTH_MAX_NS = contract.RUN_TIMEOUT_MAX_S // 2 * 10**9
TIMEOUT_MAX_NS = contract.REQUEST_TIMEOUT_MAX_S * 10**9
STALL_TIMEOUT_MAX_NS = contract.STALL_TIMEOUT_MAX_S * 10**9
# Less than the server takes.
WARMUP_MAX_NS = 3_600 * 10**9
# What the server takes leaves room for the seeds of later repetitions.
SEED_MAX = 2**32 - 1
# An objective below this is met by no network; probes and repeats that take a night are a mistake.
OBJECTIVE_MIN_NS = 1_000
STEP_MIN_NS, STEP_MAX_NS = 100 * 10**6, 600 * 10**9
PROBE_MAX_NS = 1_200 * 10**9
WITHIN_MIN, WITHIN_MAX = Decimal("0.01"), Decimal("0.5")
REPEATS_MIN, REPEATS_MAX = 3, 20


class OneOrMore:
    """In a file, ``x`` stands for ``[x]``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: value if isinstance(value, list) else [value], handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        array = handler(schema)
        return {"anyOf": [array["items"], array]}


AXIS = (Length(1, MAX_SCENARIOS), OneOrMore())


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


_WARMUP = (
    checked(_parse_warmup, _WARMUP_FORM, hints.warmups),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer", "minimum": 1, "maximum": REQUESTS_MAX}, {"type": "string"}],
            "description": _WARMUP_FORM,
        }
    ),
)


def means(text: str) -> dict[str, JsonValue]:
    """What a key means, for its ``json_schema_extra``; of keys that are read in one place only (see ``meanings``)."""
    return {"meaning": text}


_OBJECTIVE = Annotated[int | None, *duration(OBJECTIVE_MIN_NS, TIMEOUT_MAX_NS)]


def _objective(percentile: str) -> Any:
    text = f"the response time that the {percentile}th percentile of a probe may have at most"
    return Field(default=None, alias=f"p{percentile}", json_schema_extra=means(text))


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
    low: Annotated[Decimal | None, *decimal(RATE_MIN, RATE_MAX)] = Field(default=None, alias="from")
    high: Annotated[Decimal | None, *decimal(RATE_MIN, RATE_MAX)] = Field(default=None, alias="to")
    step_ns: Annotated[int | None, *duration(STEP_MIN_NS, STEP_MAX_NS)] = Field(
        default=None,
        alias="step",
        json_schema_extra=means(
            f"how long each probe sends requests, longer where a percentile needs it ({format_duration(STEP_NS)})"
        ),
    )
    within: Annotated[Decimal | None, *decimal(WITHIN_MIN, WITHIN_MAX)] = Field(
        default=None, json_schema_extra=means(f"how far neighbouring rates are apart, as a ratio ({WITHIN})")
    )
    repeats: Annotated[int, *integer(REPEATS_MIN, REPEATS_MAX)] = Field(
        default=REPEATS, json_schema_extra=means("how many probes have to agree at each end of the interval")
    )

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Those that are given, by percentile."""
        limits = (self.p50_ns, self.p90_ns, self.p95_ns, self.p99_ns, self.p99_9_ns)
        pairs = zip(PERCENTILES, limits, strict=True)
        return tuple(Objective(percentile, limit_ns) for percentile, limit_ns in pairs if limit_ns is not None)

    @property
    def value(self) -> Search:
        """What is searched."""
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

    total: Annotated[int | None, *integer(1, REQUESTS_MAX)] = Field(
        default=None, json_schema_extra=means("number of requests")
    )
    duration_ns: Annotated[int | None, *duration(LENGTH_MIN_NS, LENGTH_MAX_NS)] = Field(
        default=None,
        alias="duration",
        json_schema_extra=means("as many requests as start within this time, in place of total"),
    )
    rate: Annotated[list[Annotated[Decimal, *decimal(RATE_MIN, RATE_MAX)]], *AXIS] = Field(
        default=[], json_schema_extra=means("requests/s over all clients, which makes an open loop; may be a list")
    )
    arrival: Annotated[Arrival | None, *choice("constant", "poisson")] = Field(
        default=None, json_schema_extra=means("evenly spaced requests or Poisson arrivals, with a rate")
    )
    clients: Annotated[list[Annotated[int, *integer(1, contract.CLIENTS_MAX)]], *AXIS] = Field(
        json_schema_extra=means("clients that each have one request at a time; may be a list")
    )
    conns: Annotated[int, *integer(1, contract.CONNS_MAX)] = Field(
        json_schema_extra=means("TCP connections that the clients share")
    )
    warmup: Annotated[Warmup | None, *_WARMUP] = Field(
        default=None, json_schema_extra=means("what runs ahead and is in no figure")
    )
    request_timeout_ns: Annotated[int | None, *duration(LENGTH_MIN_NS, TIMEOUT_MAX_NS)] = Field(
        default=None, alias="timeout", json_schema_extra=means("deadline of each request")
    )
    stall_timeout_ns: Annotated[int | None, *duration(0, STALL_TIMEOUT_MAX_NS)] = Field(
        default=None,
        alias="stallTimeout",
        json_schema_extra=means("how long without a success before the scenario is ended"),
    )
    seed: Annotated[int | None, *integer(0, SEED_MAX)] = None
    search: RawSearch = LEFT_OUT

    @property
    def _searches(self) -> bool:
        return "search" in self.model_fields_set

    @rule
    def _has_a_length(self) -> None:
        if self.total is None and self.duration_ns is None and not self._searches:
            refuse("is missing", "total, a number of requests, or duration, or search", key="total")

    @rule
    def _search_has_no_total(self) -> None:
        self._refuse_beside_search(self.total, "total")

    @rule
    def _search_has_no_duration(self) -> None:
        self._refuse_beside_search(self.duration_ns, "duration")

    @rule
    def _search_has_no_rate(self) -> None:
        self._refuse_beside_search(self.rate or None, "rate")

    def _refuse_beside_search(self, value: object, key: str) -> None:
        if value is not None and self._searches:
            refuse(
                "is given beside search", "search alone, which chooses the rate and the length of each probe", key=key
            )

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
    def _has_one_length(self) -> None:
        if self.total is not None and self.duration_ns is not None:
            refuse("is given beside total", "either total or duration", key="duration")

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
