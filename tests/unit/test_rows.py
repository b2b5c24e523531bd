"""What the columns of a row hold for each kind of load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from containernet_env.config import load_config
from containernet_env.load.server import lateness_of
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter
from containernet_env.model.keys import ONE_KEY, Span
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.scenario import Scenario, ScheduledScenario
from containernet_env.results.csv_file import COLUMNS
from containernet_env.results.rows import RunFacts, figures_of, row_of
from tests.unit.answers import closed_loop, open_loop, results, schema, without_answers

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "3node-3ms.json"
FACTS = RunFacts(load_config(CONFIG), None, None, "docker", "emulator", "3.7.3", "run-1")
READ = Scenario(
    name="r", type="read", total=500, clients=10, conns=2, key_size=8, val_size=256, key_space=1000, consistency="l"
)
NEW = ("Rate_offered", "Rate_achieved", "Unsent", "Unknown", "Behind")
SERVICE = ("Service_50%", "Service_95%", "Service_99%", "Service_99.9%")


def row(scenario: Scenario, result: Mapping[str, Any] | None, error: str | None = None) -> dict[str, str]:
    made = row_of(FACTS, ScheduledScenario(scenario, 1), timestamp="t", result=result, error=error, leader=None)
    assert set(made) <= set(COLUMNS)
    return dict.fromkeys(COLUMNS, "-") | made


def values(made: dict[str, str], *columns: str) -> list[str]:
    return [made[column] for column in columns]


def test_a_closed_loop_has_no_schedule() -> None:
    made = row(READ, closed_loop(ok=998, failed=2, outcomes={"ok": 998, "failed": 0, "unknown": 2, "unsent": 0}))
    assert values(made, *NEW) == ["-", "-", "-", "2", "-"]
    assert values(made, *SERVICE) == ["-"] * 4
    assert values(made, "Errors", "Left_out", "Late_own") == ["2", "2", "-"]


def test_an_open_loop_shows_its_rate_and_both_times() -> None:
    result = open_loop(
        schedule__behind=True,
        schedule__unsent=4,
        rate_offered_per_s=500.0,
        rate_achieved_per_s=499.87654,
        outcomes__unknown=2,
        outcomes__unsent=4,
        schedule__late_own=3,
        service_time__percentiles_s__50=0.001,
        service_time__percentiles_s__95=0.0012345678,
        service_time__percentiles_s__99=0.003,
    )
    made = row(replace(READ, rate=Decimal(500)), result)
    assert values(made, *NEW) == ["500.0000", "499.8765", "4", "2", "yes"]
    assert values(made, *SERVICE) == ["0.001000", "0.001235", "0.003000", "-"]
    assert values(made, "Late_own", "Left_out") == ["3", "6"]
    assert values(row(replace(READ, rate=Decimal(500)), open_loop()), "Behind", "Unsent", "Error") == ["no", "0", "-"]


def test_a_load_in_which_nothing_succeeded_has_no_times() -> None:
    made = row(replace(READ, rate=Decimal(500)), without_answers(open_loop(), 50), "all failed")
    assert values(made, *SERVICE, "50%", "99%", "Slowest", "Requests/sec") == ["-"] * 8
    assert made["Errors"] == "50"


def test_a_row_not_run_says_what_was_asked() -> None:
    made = row(replace(READ, rate=Decimal("0.5")), None, "not run: x")
    assert values(made, "Rate_offered", "Rate_achieved", "RequestCount") == ["0.5000", "-", "500"]


def test_the_request_count_of_a_duration_follows_from_its_rate() -> None:
    timed = replace(READ, total=None, duration_ns=10**10)
    assert row(timed, None, "not run: x")["RequestCount"] == "-"
    assert row(replace(timed, rate=Decimal(500)), None)["RequestCount"] == "5000"


def test_the_requests_of_a_duration_without_a_rate_are_those_that_were_sent() -> None:
    timed = replace(READ, total=None, duration_ns=10**10)
    assert row(timed, closed_loop(requests=1000))["RequestCount"] == "1000"
    # Poisson arrivals make the rate's number of requests on average only.
    poisson = replace(timed, rate=Decimal(5), arrival="poisson")
    assert row(poisson, open_loop(requests=50))["RequestCount"] == "50"


def test_a_percentile_that_cannot_be_told_from_the_slowest_is_left_out() -> None:
    few = open_loop()
    assert few["ok"] == 50 and few["percentiles_s"]["99"] == few["slowest_s"]
    made = row(replace(READ, rate=Decimal(100)), few)
    assert values(made, "99%", "99.9%", "Service_99%", "Service_99.9%") == ["-"] * 4
    # The seed's own columns keep its meaning.
    assert made["95%"] == f"{few['percentiles_s']['95']:.6f}"
    many = closed_loop()
    assert many["ok"] == 1000 and values(row(READ, many), "99%", "99.9%") == [
        f"{many['response_time']['percentiles_s'][p]:.6f}" for p in ("99", "99.9")
    ]


def test_a_mixed_load_has_what_writes_and_reads_have() -> None:
    made = row(replace(READ, type="mixed", put_ratio=Decimal("0.2")), None)
    assert values(made, "TestType", "KeySize", "ValueSize", "Consistency") == ["mixed", "8", "256", "l"]


def test_a_row_says_what_a_read_asks_for() -> None:
    columns = ("ReadSpan", "ReadLimit", "ReadAnswer")
    for span, shown in (
        (ONE_KEY, ["1 key", "-", "values"]),
        (Span(keys=100, limit=10), ["100 keys", "10", "values"]),
        (Span(prefix="d/0", answer="keys"), ["prefix d/0", "-", "keys"]),
        (Span(start="a", end="b", limit=7, answer="count"), ["a to b", "7", "count"]),
    ):
        assert values(row(replace(READ, span=span), None), *columns) == shown
    for writes in (replace(READ, type="write", consistency=None), replace(READ, type="txn", consistency=None)):
        made = row(writes, None)
        assert values(made, *columns, "Consistency", "KeySize", "ValueSize") == ["-"] * 4 + ["8", "256"]


@pytest.mark.parametrize(("realtime", "shown"), [(True, "yes"), (False, "no"), (None, "-")])
def test_a_row_says_whether_the_links_had_real_time_priority(realtime: bool | None, shown: str) -> None:
    facts = replace(FACTS, realtime=realtime)
    made = row_of(facts, ScheduledScenario(READ, 1), timestamp="t", result=None, error=None, leader=None)
    assert made["Realtime"] == shown


@pytest.mark.parametrize(
    ("network", "shown"),
    [
        (None, ["-", "-"]),
        ({"lateness": None, "read_gap": None}, ["-", "-"]),
        ({"lateness": {"count": 0, "p99_ns": 0}, "read_gap": {"count": 5, "p99_ns": 0}}, ["-", "0.0"]),
        ({"lateness": {"count": 5, "p99_ns": 1_234_567}, "read_gap": {"count": 5, "p99_ns": 50}}, ["1234.6", "0.1"]),
    ],
)
def test_a_row_says_how_late_its_frames_were(network: dict[str, Any] | None, shown: list[str]) -> None:
    scheduled = ScheduledScenario(READ, 1)
    made = row_of(FACTS, scheduled, timestamp="t", result=None, error=None, leader=None, network=network)
    assert values(made, "LinkLateness_99%_us", "LinkReadGap_99%_us") == shown


MS = 1_000_000
PLAIN = LinkSpec.symmetric(3 * MS, 10**9)


@pytest.mark.parametrize(
    ("links", "jitter", "loss"),
    [
        ([PLAIN, PLAIN], "0", "0"),
        ([LinkSpec.symmetric()] * 2, "0", "0"),
        (
            [LinkSpec(DirectionSpec(3 * MS, jitter=Jitter("normal", 500_000)), DirectionSpec(3 * MS))] * 2,
            "normal 0.5/0",
            "0",
        ),
        (
            [LinkSpec(*[DirectionSpec(3 * MS, jitter=Jitter("uniform", MS, reorder=True))] * 2), PLAIN],
            "uniform 1 reordering;0",
            "0",
        ),
        ([LinkSpec(*[DirectionSpec(loss=IndependentLoss(1e-7))] * 2)] * 2, "0", "0.0000001"),
        ([LinkSpec(DirectionSpec(loss=GilbertElliottLoss(0.01, 0.03)), DirectionSpec())], "0", "0.25 in bursts/0"),
    ],
)
def test_a_row_tells_jitter_and_loss_of_the_members_links(links: list[LinkSpec], jitter: str, loss: str) -> None:
    nodes = tuple(replace(FACTS.config.nodes[0], link=link) for link in links)
    facts = replace(FACTS, config=replace(FACTS.config, nodes=nodes))
    made = row_of(facts, ScheduledScenario(READ, 1), timestamp="t", result=None, error=None, leader=None)
    assert values(made, "LinkJitter_ms", "LinkLoss_ratio") == [jitter, loss]


class Recorder(dict[str, Any]):
    """A JSON object that notes in ``read`` the path of every field that somebody asks it for."""

    def __init__(self, fields: dict[str, Any], path: tuple[str, ...], read: set[tuple[str, ...]]) -> None:
        super().__init__(fields)
        self._path, self._read = path, read

    def __getitem__(self, name: str) -> Any:
        self._read.add((*self._path, name))
        value = super().__getitem__(name)
        return Recorder(value, (*self._path, name), self._read) if isinstance(value, dict) else value

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def required_at(path: tuple[str, ...]) -> set[str]:
    """The fields that the schema requires of the object at ``path`` of a result."""
    place = schema()
    for name in (*path, None):
        if "anyOf" in place:
            place = next(form for form in place["anyOf"] if form.get("type") != "null")
        if "$ref" in place:
            place = schema()["$defs"][place["$ref"].rpartition("/")[2]]
        if name is not None:
            place = place["properties"][name]
    return set(place["required"])


@pytest.mark.parametrize("asked", results())
def test_every_example_makes_a_row_of_fields_that_every_result_has(asked: str) -> None:
    read: set[tuple[str, ...]] = set()
    result = Recorder(results()[asked], (), read)
    figures = figures_of(result)
    lateness_of(result)
    assert ("outcomes", "unknown") in read, "nothing was recorded"
    for *parents, name in read:
        assert name in required_at(tuple(parents)), f"{'.'.join((*parents, name))} is read and not required"
    assert figures["Errors"] == str(result["failed"])
