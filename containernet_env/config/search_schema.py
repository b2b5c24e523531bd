"""The keys of a saturation search in a scenario file."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any

from pydantic import ConfigDict, Field, JsonValue

from containernet_env.base.units import format_duration, format_number
from containernet_env.config.fields import decimal, duration, integer, refuse
from containernet_env.config.validation import StrictModel, rule
from containernet_env.model import load_contract as contract
from containernet_env.model.scenario import REQUEST_TIMEOUT_NS
from containernet_env.model.search import (
    LOW_PER_S,
    PERCENTILES,
    REPEATS,
    STEP_NS,
    WITHIN,
    Objective,
    Search,
    highest_per_s,
)

RATE_MIN, RATE_MAX = Decimal(str(contract.RATE_MIN_PER_S)), Decimal(contract.RATE_MAX_PER_S)
TIMEOUT_MAX_NS = contract.REQUEST_TIMEOUT_MAX_S * 10**9
# An objective below this is met by no network; probes and repeats that take a night are a mistake.
OBJECTIVE_MIN_NS = 1_000
STEP_MIN_NS, STEP_MAX_NS = 100 * 10**6, 600 * 10**9
PROBE_MAX_NS = 1_200 * 10**9
WITHIN_MIN, WITHIN_MAX = Decimal("0.01"), Decimal("0.5")
REPEATS_MIN, REPEATS_MAX = 3, 20


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
        high = highest_per_s(int(step_ns)) if self.high is None else self.high
        return Search(self.objectives, Decimal(low), high, int(step_ns), Decimal(within), self.repeats)

    def check_deadline(self, timeout_ns: int | None) -> None:
        """Refuse objectives of a load whose requests have that deadline in ns; ``None``: the default."""
        timeout_ns = REQUEST_TIMEOUT_NS if timeout_ns is None else timeout_ns
        for item in self.objectives:
            if item.limit_ns >= timeout_ns:
                # Whatever takes longer has failed: no answered request could miss it.
                message = f"has an objective that no answer can miss, {item.text}"
                refuse(message, f"less than the deadline of each request, {format_duration(timeout_ns)}", key="search")

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

    @rule
    def _makes_no_more_requests_than_the_server_takes(self) -> None:
        step_ns = self.value.step_ns
        if self.high is not None and self.high > highest_per_s(step_ns):
            message = f"makes too many requests in {format_duration(step_ns)}"
            refuse(message, f"at most {format_number(highest_per_s(step_ns))}", key="to")
