"""The matrix on a testbed of fakes: every scenario leaves its row, whatever happens to it."""

from __future__ import annotations

import signal
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.stop import Stop
from containernet_env.load.server import Answer
from containernet_env.model.link_statistics import LinkStatistics
from containernet_env.model.load_result import LoadResult
from containernet_env.model.scenario import Scenario, Warmup
from containernet_env.runs.follow import WATCH_INTERVAL_S
from tests.simulated_time import World
from tests.unit.answers import closed_loop, open_loop
from tests.unit.matrix_fakes import Bench, read, result_of, write

pytestmark = pytest.mark.simulated(seeds=10)


def answering(bench: Bench, *answers: Answer) -> None:
    """Each benchmark after the other has such an answer, and those after them an answer without errors."""
    rest = iter(answers)
    bench.server.behave = lambda path, body: next(rest, Answer(result_of(), None))


def test_every_scenario_leaves_a_row_with_its_settings_and_figures() -> None:
    bench = Bench(write("w"), read("r"))
    bench.matrix.run()
    first, second = bench.rows()
    names = ("TestType", "KeySize", "Consistency", "Target")
    assert [first[name] for name in names] == ["write", "8", "-", "leader"]
    assert [second[name] for name in names] == ["read", "-", "l", "cluster"]
    figures = ("Total", "Requests/sec", "50%", "99.9%")
    assert [first[name] for name in figures] == ["10.000000", "100.5000", "0.020000", "0.020000"]
    names = ("LinkDelay_ms", "Bandwidth_mbps", "Leader", "Error")
    assert [first[name] for name in names] == ["3", "1000", "etcd1", "-"]
    assert bench.errors() == ["-", "-"]


def test_each_repetition_has_a_seed_of_its_own_and_all_have_one_data_set() -> None:
    bench = Bench(read("r"), read("r"))
    bench.matrix.run()
    assert [body.get("loadSeed") for _, body in bench.server.asked] == [None, None, 1]
    assert [row["LoadSeed"] for row in bench.rows()] == ["0", "1"]


def test_reads_need_no_load_where_a_write_made_their_keys() -> None:
    bench = Bench(write("w"), read("r"), read("r2"))
    bench.matrix.run()
    assert [path for path, _ in bench.server.asked] == ["/benchmark/write", "/benchmark/read", "/benchmark/read"]


@pytest.mark.parametrize("before", [[], [write("other", key_size=4, val_size=64)], [write("few", total=999)]])
def test_the_data_set_is_loaded_once_unmeasured_where_no_write_made_it(before: list[Scenario]) -> None:
    bench = Bench(*before, read("r"), read("r2"))
    bench.matrix.run()
    loads = bench.server.asked[len(before) :]
    assert [path for path, _ in loads] == ["/benchmark/write", "/benchmark/read", "/benchmark/read"]
    assert (loads[0][1]["total"], loads[0][1]["keySize"], loads[0][1]["valSize"]) == (1000, 8, 256)
    assert len(bench.rows()) == len(before) + 2


def test_a_write_of_the_same_keys_with_other_values_spoils_the_data_set() -> None:
    bench = Bench(write("w"), write("spoiler", val_size=64), read("r"))
    bench.matrix.run()
    assert [path for path, _ in bench.server.asked][-2:] == ["/benchmark/write", "/benchmark/read"]
    assert len(bench.server.asked) == 4


def test_a_failed_scenario_leaves_its_reason_and_the_matrix_goes_on() -> None:
    bench = Bench(write("w"), write("w2"))
    answering(bench, Answer(result_of(ok=990, failed=10), "10 of 1000 requests failed"))
    bench.matrix.run()
    assert bench.errors() == ["10 of 1000 requests failed", "-"]
    assert bench.rows()[0]["Errors"] == "10"


def test_a_member_that_dies_is_named_and_left_out_of_later_scenarios() -> None:
    bench = Bench(write("w"), write("w2"))

    def behave(path: str, body: dict[str, Any]) -> Answer:
        bench.cluster.dead["etcd2"] = "etcd2 was OOM-killed"
        return Answer(result_of(), None)

    bench.server.behave = behave
    bench.matrix.run()
    assert bench.errors() == ["etcd2 was OOM-killed", "etcd2 was OOM-killed (earlier)"]
    assert bench.server.asked[1][1]["endpoints"] == "etcd1:2379,etcd3:2379"


def killed(*names: str) -> dict[str, str]:
    return {name: f"{name} was OOM-killed" for name in names}


QUORUM = "etcd1 was OOM-killed; etcd3 was OOM-killed"
LINKS = "the link emulator ended"


@pytest.mark.parametrize(
    ("scenarios", "dead", "failure", "grace_s", "errors"),
    [
        ([write("w")] * 2, killed("etcd1", "etcd3"), None, 2.0, [f"{QUORUM}; cancelled", f"not run: {QUORUM}"]),
        ([write("w")], killed("etcd1"), None, 2.0, ["etcd1 was OOM-killed; cancelled"]),  # though a quorum lives
        ([write("w")], {}, LINKS, 0.0, [f"{LINKS}; cancelled"]),
        ([read("r")] * 2, {}, LINKS, 0.0, [f"not run: the data set could not be loaded: {LINKS}; cancelled"] * 2),
    ],
    ids=["quorum", "member", "network", "network while the data set loads"],
)
@pytest.mark.parametrize("refused", [False, True], ids=["", "and it cannot be ended early"])
def test_a_benchmark_that_measures_nothing_any_more_is_ended_early(
    scenarios: list[Scenario],
    dead: dict[str, str],
    failure: str | None,
    grace_s: float,
    errors: list[str],
    refused: bool,
) -> None:
    bench = Bench(*scenarios)
    cancel = bench.server.cancel

    def refuse() -> None:
        cancel()
        raise RunError("the server is gone")

    def behave(path: str, body: dict[str, Any]) -> Answer:
        bench.cluster.dead, bench.target.failure = dead, failure
        struck_s = clock.monotonic()
        bench.server.cancelled.wait()
        assert struck_s + grace_s <= clock.monotonic() <= struck_s + grace_s + 2 * WATCH_INTERVAL_S
        return Answer(result_of(ok=5), "cancelled")

    bench.server.cancel = refuse if refused else cancel  # type: ignore[method-assign]
    bench.server.behave = behave
    bench.matrix.run()
    assert bench.errors() == errors
    assert bench.progress.notes == ["the benchmark could not be ended early: the server is gone"] * refused


def test_a_dead_link_emulator_stops_the_run_even_if_requests_succeeded() -> None:
    bench = Bench(write("w"), write("w2"))

    def behave(path: str, body: dict[str, Any]) -> Answer:
        bench.target.failure = "the link emulator ended"
        return Answer(result_of(), None)

    bench.server.behave = behave
    bench.matrix.run()
    assert bench.errors()[1] == "not run: the link emulator ended"
    assert "the link emulator ended" in bench.errors()[0]


GONE = "the Docker engine at unix:///var/run/docker.sock has ended"


@pytest.mark.parametrize("first", [write("w"), read("r")])
def test_an_engine_that_ends_is_named_before_the_deaths_that_it_brings_and_what_they_break(first: Scenario) -> None:
    bench = Bench(first, write("w2"))

    def settle() -> str:
        bench.target.failure = GONE  # known just after its containers have ended
        return GONE

    def behave(path: str, body: dict[str, Any]) -> Answer:
        bench.cluster.dead["etcd1"] = "etcd1 ended with exit code 0"
        return Answer(result_of(ok=5), "cancelled")

    bench.target.settled_failure = settle
    bench.server.behave = behave
    bench.matrix.run()
    failed, waiting = bench.errors()
    assert failed.removeprefix("not run: the data set could not be loaded: ") == (
        f"{GONE}; etcd1 ended with exit code 0; cancelled"
    )
    assert waiting.startswith("not run: ") and GONE in waiting


def test_nothing_is_begun_on_a_dead_network() -> None:
    bench = Bench(read("r"), write("w"))
    bench.target.failure = "the link emulator ended"
    bench.matrix.run()
    assert bench.errors() == ["not run: the link emulator ended"] * 2
    assert bench.server.asked == []


def test_a_network_that_dies_while_the_cluster_is_asked_for_an_answer_is_the_reason() -> None:
    bench = Bench(write("w"), write("w2"))
    bench.server.behave = lambda path, body: Answer(result_of(ok=5), "5 of 10 requests failed")

    def answers(timeout_s: float) -> bool:
        bench.target.failure = "the link emulator ended"
        return False

    bench.cluster.answers = answers  # type: ignore[method-assign]
    bench.matrix.run()
    assert bench.errors() == ["5 of 10 requests failed", "not run: the link emulator ended"]


def test_a_data_set_that_cannot_be_loaded_leaves_rows_not_run() -> None:
    bench = Bench(read("r"), read("r2"))
    bench.server.behave = lambda path, body: Answer(None, "no leader")
    bench.matrix.run()
    assert bench.errors() == ["not run: the data set could not be loaded: no leader"] * 2


def mixed(name: str) -> Scenario:
    return replace(read(name), type="mixed", put_ratio=Decimal("0.5"))


def test_a_mixed_load_needs_the_data_set_and_leaves_it_as_it_is() -> None:
    bench = Bench(mixed("m"), mixed("m2"), read("r"))
    answering(bench, Answer(result_of(), None), Answer(result_of(ok=5), "cancelled"))
    bench.matrix.run()
    paths = [path.removeprefix("/benchmark/") for path, _ in bench.server.asked]
    assert paths == ["write", "mixed", "mixed", "read"]
    assert bench.errors() == ["cancelled", "-", "-"]


def test_the_time_of_a_schedule_is_not_counted_as_taking_too_long() -> None:
    timed = replace(write("w"), total=None, duration_ns=7200 * 10**9, warmup=Warmup(length_ns=60 * 10**9))
    slow = replace(write("slow"), rate=Decimal(1), warmup=Warmup(requests=100))
    bench = Bench(write("w0"), timed, slow)
    bench.matrix.run()
    assert [body["runTimeout"] for _, body in bench.server.asked] == [1800, 1800 + 7260, 1800 + 1100]


def test_a_member_that_is_to_be_asked_and_is_dead_leaves_a_row_that_says_so() -> None:
    bench = Bench(replace(read("r"), target="etcd2"), replace(read("r3"), target="etcd3"))
    bench.cluster.dead["etcd2"] = "etcd2 was OOM-killed"
    bench.matrix.run()
    assert bench.errors() == [
        "etcd2 was OOM-killed (earlier); there is no etcd2 to ask",
        "etcd2 was OOM-killed (earlier)",
    ]
    assert [body.get("targetMember") for _, body in bench.server.asked] == [None, "etcd3:2379"]


def test_an_open_loop_that_fell_behind_is_no_error_but_is_told() -> None:
    bench = Bench(replace(write("w"), rate=Decimal(500)), write("w2"))
    schedule = {"fell_behind": True, "worst_lag_s": 0.8, "late": 9, "clients_short": True}
    late = {f"schedule__{name}": value for name, value in schedule.items()}
    answering(bench, Answer(LoadResult.from_json(open_loop(**late, rate_achieved_per_s=400.0)), None))
    bench.matrix.run()
    assert [(row["FellBehind"], row["Error"]) for row in bench.rows()] == [("yes", "-"), ("-", "-")]
    assert bench.findings() == ["behind its schedule: 9 requests started late, by up to 0.800 s; all clients were busy"]


@pytest.mark.parametrize("off_main", [False, True], ids=["a signal", "a stop token, off the main thread"])
def test_a_stop_leaves_a_row_interrupted_for_the_running_scenario_only(off_main: bool) -> None:
    bench = Bench(write("w"), write("w2"), write("w3"), stop=Stop() if off_main else None)

    def behave(path: str, body: dict[str, Any]) -> Answer:
        if len(bench.server.asked) == 2:
            bench.stop.request() if off_main else World.current.send_signal(signal.SIGINT)
            clock.sleep(60)
        return Answer(result_of(), None)

    def work() -> None:
        with pytest.raises(Interrupted):
            bench.matrix.run()
        ended_s.append(clock.monotonic())

    bench.server.behave, ended_s = behave, list[float]()
    if off_main:
        thread = clock.Thread(target=work)
        thread.start()
        thread.join()
    else:
        with bench.stop:  # type: ignore[attr-defined]
            work()
    assert ended_s[0] < 1001
    assert [(row["Scenario"], row["Error"]) for row in bench.rows()] == [("w", "-"), ("w2", "interrupted")]


def test_an_unexpected_failure_leaves_a_row_too() -> None:
    bench = Bench(write("w"))

    def behave(path: str, body: dict[str, Any]) -> Answer:
        raise RunError("the namespace is gone")

    bench.server.behave = behave
    with pytest.raises(RunError):
        bench.matrix.run()
    assert bench.errors() == ["the namespace is gone"]


def test_what_the_links_saw_is_in_the_outcome_of_each_scenario() -> None:
    bench = Bench(write("w"), write("w2"))
    bench.matrix.run()
    assert bench.net.asked == [True, False] * 2  # reset before each
    assert [outcome.network for outcome in bench.outcomes] == [LinkStatistics(bench.net.seen)] * 2
    assert bench.findings() == bench.progress.notes == []


def test_frames_that_the_emulator_itself_lost_are_told() -> None:
    bench = Bench(write("w"))
    none, some = {"drops": {"queue": 9, "buffers": 0}}, {"drops": {"queue": 0, "buffers": 3}}
    ports = {"etcd1-eth0": {"tap_drops": {"queue": 7, "receive": 0}}, "etcd2-eth0": {"tap_drops": None}}
    bench.net.seen = {"links": {"etcd1-s1": {"a_to_b": none, "b_to_a": some}}, "ports": ports}
    bench.matrix.run()
    (memory, tap) = bench.findings()
    assert memory == "link etcd1-s1: 3 frames to its first node lost, since the emulator had no memory left"
    assert tap == "etcd1-eth0: 7 frames lost before the link, since the emulator could not keep up"
    assert bench.errors() == ["-"]


@pytest.mark.parametrize(
    ("late_ns", "note"),
    [
        (300_000, None),
        (1_310_719, "the latest 1 % of the frames reached their hosts 1.31 ms after their time, or later"),
    ],
)
def test_links_that_are_late_under_a_load_are_told(late_ns: int, note: str | None) -> None:
    bench = Bench(write("w"))
    bench.net.seen |= {"lateness": {"count": 9, "p99_ns": late_ns, "max_ns": late_ns}}
    bench.matrix.run()
    assert bench.findings() == ([] if note is None else [note])
    assert bench.rows()[0]["LinkLateness_99%_us"] == f"{late_ns / 1000:.1f}"
    assert bench.errors() == ["-"]


def test_a_scenario_whose_counters_were_not_reset_has_none() -> None:
    bench = Bench(write("w"), write("w2"))
    refuse = iter([True, False, False])

    def link_statistics(*, reset: bool = False, buckets: bool = False) -> dict[str, Any]:
        if next(refuse):
            raise RunError("no answer")
        return bench.net.seen

    bench.net.link_statistics = link_statistics  # type: ignore[method-assign]
    bench.matrix.run()
    assert [outcome.network for outcome in bench.outcomes] == [None, LinkStatistics(bench.net.seen)]
    assert bench.progress.notes == ["the links' counters could not be reset, so this scenario has none: no answer"]
    assert bench.rows()[0]["LinkLateness_99%_us"] == "-"
    assert bench.errors() == ["-", "-"]
    verdicts = [(row["Valid"], row["Reasons"]) for row in bench.rows()]
    assert verdicts == [("unknown", "counters"), ("yes", "-")], "what the links did is not known"


def test_counters_that_cannot_be_read_cost_no_row() -> None:
    bench = Bench(write("w"))
    bench.net.seen = {"error": "no answer"}
    bench.matrix.run()
    assert bench.errors() == ["-"]
    assert bench.outcomes[0].network is None
    assert "no answer" in bench.progress.notes[0]


def test_a_target_without_a_network_and_hosts_of_ours_is_measured_too() -> None:
    bench = Bench(write("w"), read("r"))
    bench.target.network = bench.target.client_host = None
    bench.matrix.run()
    assert bench.errors() == ["-", "-"]
    assert [row["LinkLateness_99%_us"] for row in bench.rows()] == ["-", "-"]


def pauses(bench: Bench, *pauses_s: float) -> None:
    """Each benchmark after the other answers with such a pause of the generator."""
    answers = iter(pauses_s)
    bench.server.behave = lambda path, body: Answer(LoadResult.from_json(closed_loop(pause_s=next(answers))), None)


def attempts(bench: Bench) -> list[tuple[str, str, str]]:
    return [(row["Scenario"], row["Attempt"], row["Valid"]) for row in bench.rows()]


def test_a_scenario_that_is_not_certainly_valid_is_measured_again_and_each_attempt_has_a_row() -> None:
    bench = Bench(write("w"), write("w2"), retries=2)
    pauses(bench, 0.2, 0.3, 0.0, 0.0)
    bench.matrix.run()
    assert attempts(bench) == [("w", "1", "no"), ("w", "2", "no"), ("w", "3", "yes"), ("w2", "1", "yes")]


def test_a_scenario_is_not_measured_more_often_than_was_wanted() -> None:
    bench = Bench(write("w"), write("w2"), retries=1)
    pauses(bench, 0.2, 0.3, 0.4, 0.0)
    bench.matrix.run()
    assert attempts(bench) == [("w", "1", "no"), ("w", "2", "no"), ("w2", "1", "no"), ("w2", "2", "yes")]


def test_what_was_not_run_is_told_once_after_attempts() -> None:
    bench = Bench(write("w"), write("w2"), write("w3"), retries=3)
    pauses(bench, 0.2)
    behave = bench.server.behave

    def end(path: str, body: dict[str, Any]) -> Answer:
        if bench.outcomes:
            bench.target.failure = "the link emulator has ended"
            return Answer(None, "no answer")
        return behave(path, body)

    bench.server.behave = end
    bench.matrix.run()
    assert attempts(bench) == [("w", "1", "no"), ("w", "2", "-"), ("w2", "1", "-"), ("w3", "1", "-")]
    assert bench.errors()[2:] == ["not run: the link emulator has ended"] * 2
