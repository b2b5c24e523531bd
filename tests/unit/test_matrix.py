"""The matrix on a testbed of fakes: every scenario leaves its row, whatever happens to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.work import Stop
from containernet_env.model.disruption import Disruption
from containernet_env.model.load_result import LoadResult
from containernet_env.model.scenario import Scenario, Warmup
from containernet_env.model.usage import LinkStatistics
from containernet_env.runs.follow import HOST_NEWS_S, WATCH_INTERVAL_S, Course, timeout_s, who_is_silent
from containernet_env.runs.load import Answer, Progress
from containernet_env.stores.cluster import NEAR, Cluster, Waits
from tests.simulated_time import World
from tests.unit.answers import closed_loop
from tests.unit.fakes import GOOD, MEMBERS, Bench, read, result_of, write

pytestmark = pytest.mark.simulated(seeds=5)


def failing(error: str) -> Answer:
    return Answer(result_of(5, 995), error)


# --- rows and the data set -------------------------------------------------------------------------------------------


def test_every_scenario_leaves_a_row_with_its_settings_and_figures() -> None:
    bench = Bench(write("w"), read("r"), read("r"))
    assert bench.run() == ["-"] * 3
    names = ("TestType", "KeySize", "Consistency", "Target", "LoadSeed", "Requests/sec", "50%", "99.9%", "Total")
    figures = ["100.5000", "0.020000", "0.020000", "10.000000"]
    assert [[row[name] for name in names] for row in bench.rows()] == [
        ["write", "8", "-", "leader", "0", *figures],
        ["read", "-", "l", "cluster", "0", *figures],
        ["read", "-", "l", "cluster", "1", *figures],
    ]
    assert [bench.rows()[0][name] for name in ("LinkDelay_ms", "Bandwidth_mbps", "Leader")] == ["3", "1000", "etcd1"]
    assert [body.get("loadSeed") for _, body in bench.server.asked] == [None, None, 1], "repetitions have own seeds"
    # The links' counters are reset before each.
    assert bench.net.asked == [True, False] * 3
    assert [outcome.network for outcome in bench.outcomes] == [LinkStatistics(bench.net.seen)] * 3
    assert bench.findings() == bench.progress.notes == bench.cluster.moves == []


def mixed(name: str) -> Scenario:
    return replace(read(name), type="mixed", put_ratio=Decimal("0.5"))


@pytest.mark.parametrize(
    ("scenarios", "asked"),
    [
        ([write("w"), read("r"), read("r2")], "write read read"),
        ([read("r"), read("r2")], "LOAD read read"),
        ([write("other", key_size=4, val_size=64), read("r"), read("r2")], "write LOAD read read"),
        ([write("few", total=999), read("r")], "write LOAD read"),
        ([write("w"), write("spoiler", val_size=64), read("r")], "write write LOAD read"),
        ([mixed("m"), mixed("m2"), read("r")], "LOAD mixed-cancelled mixed read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.simulated()
def test_the_data_set_is_loaded_once_unmeasured_where_no_write_made_it(scenarios: list[Scenario], asked: str) -> None:
    bench = Bench(*scenarios)
    bench.server.answer(*(failing("cancelled") if "cancelled" in word else GOOD for word in asked.split()))
    errors = bench.run()
    assert errors == ["cancelled" if "cancelled" in word else "-" for word in asked.split() if word != "LOAD"]
    loads = [(path, body) for path, body in bench.server.asked if body["clients"] != 10]
    assert all((body["total"], body["keySize"], body["valSize"]) == (1000, 8, 256) for _, body in loads)
    made = ["LOAD" if asked in loads else asked[0].removeprefix("/benchmark/") for asked in bench.server.asked]
    assert made == asked.replace("-cancelled", "").split()


@pytest.mark.simulated()
def test_the_deadlines_of_a_load_grow_with_its_schedule_and_with_round_trips() -> None:
    """With round trips of 4 s, 1,000 writes of one client were ended after half an hour, and no connection was opened
    in time."""
    timed = replace(write("w"), total=None, duration_ns=7200 * 10**9, warmup=Warmup(length_ns=60 * 10**9))
    slow = replace(write("slow"), rate=Decimal(1), warmup=Warmup(requests=100))
    near, far = Bench(write("w0"), timed, slow), Bench(read("r"))
    far.cluster.waits = Waits(rtt_s=4)
    names = ("runTimeout", "dialTimeout", "requestTimeout")
    asked = [[tuple(map(body.get, names)) for _, body in bench.server.asked] for bench in (near, far) if bench.run()]
    assert asked == [
        [(1800, None, 20.0), (1800 + 7260, None, 20.0), (1800 + 1100, None, 20.0)],
        [(1800 + 32 * 1000 / 100, 42, 52), (1800 + 32 * 500 / 10, 42, 20.0)],
    ]
    assert timeout_s(write("w", total=10**5), Waits(rtt_s=40)) == 86_400


@pytest.mark.simulated()
def test_the_deadlines_for_connections_and_answers_grow_with_the_dilation() -> None:
    """At dilation 10 a client with a tenth of a core takes 15 s for 300 connections with TLS."""
    bench = Bench(write("w"), dilation=10)
    waits = bench.cluster.waits = Waits.of(0.0, 10**9, 10)
    assert waits.start_s == 600
    bench.run()
    body = bench.server.asked[0][1]
    assert (body["dialTimeout"], body["dilation"]) == (108, 10)
    assert Course(write("w"), waits, 0.0).limit_s - Course(write("w"), NEAR, 0.0).limit_s == 98
    cluster = Cluster[Any]([SimpleNamespace(name="m")])
    cluster.close()
    cluster.waits = waits
    assert (cluster.query_s, cluster.patience_s) == (28, 66)


# --- what goes wrong: the first benchmark is struck, and each scenario has its error ---------------------------------

EMULATOR = "the link emulator ended"
GONE = "the Docker engine at unix:///var/run/docker.sock has ended"
LOAD = "not run: the data set could not be loaded: "
KILLED_CLIENT = "benchmark-client ended without a report (signal: killed)"


def settles(why: str, *dead: str) -> Callable[[Bench], object]:
    """The failure is known only after a while, when somebody waits for it; it takes members along."""

    def strike(bench: Bench) -> None:
        bench.target.settled_failure = lambda: bench.fail(why)
        bench.cluster.kill(*dead)

    return strike


def fails_when_asked(bench: Bench) -> None:
    bench.cluster.answers = lambda timeout_s: not bench.fail(EMULATOR)


def is_silent(bench: Bench) -> None:
    bench.matrix._members.silent = lambda for_s: ["etcd1", "etcd2"]
    bench.cluster.answering = False


def nothing(bench: Bench) -> None:
    """Beside what is answered."""


WRITES, READS = [write("w"), write("w2")], [read("r"), read("r2")]
FAILED, DEAD, SILENT = "10 requests failed", "etcd2 was OOM-killed", "etcd1, etcd2 answer nothing"
ENDED = f"{GONE}; {DEAD}; {FAILED}"
NO_ANSWER = f"not run: the cluster did not answer within 9 s: {SILENT}"
STRUCK: dict[str, tuple[list[Scenario], Callable[[Bench], object], Answer, list[str]]] = {
    "requests fail": (WRITES, nothing, failing(FAILED), [FAILED, "-"]),
    "the client is killed": (WRITES, nothing, Answer(None, KILLED_CLIENT), [KILLED_CLIENT, "-"]),
    "the data set cannot be loaded": (READS, nothing, Answer(None, FAILED), [f"{LOAD}{FAILED}"] * 2),
    "a member dies": (WRITES, lambda bench: bench.cluster.kill("etcd2"), GOOD, [DEAD, f"{DEAD} (earlier)"]),
    # Though requests succeeded.
    "the emulator dies": (WRITES, lambda bench: bench.fail(EMULATOR), GOOD, [EMULATOR, f"not run: {EMULATOR}"]),
    "it dies when the cluster is asked": (WRITES, fails_when_asked, failing(FAILED), [FAILED, f"not run: {EMULATOR}"]),
    # Requests with short deadlines fail long before the emulator is given up: the cluster was blamed.
    "it is silent": (WRITES, settles(EMULATOR), failing(FAILED), [f"{EMULATOR}; {FAILED}", f"not run: {EMULATOR}"]),
    # An engine that ends is named before the deaths that it brings and what they break.
    "the engine ends": (WRITES, settles(GONE, "etcd2"), failing(FAILED), [ENDED, f"not run: {GONE}"]),
    "it ends in the data set's load": (READS, settles(GONE, "etcd2"), failing(FAILED), [f"{LOAD}{ENDED}"] * 2),
    # A leader that was stopped: 'no put succeeded for 21s', and nothing of the leader.
    "members answer nothing": (WRITES, is_silent, failing(FAILED), [f"{SILENT}; {FAILED}", NO_ANSWER]),
}


@pytest.mark.parametrize("name", STRUCK)
def test_what_strikes_the_first_scenario_is_its_error_and_the_others_follow_from_it(name: str) -> None:
    scenarios, strike, answer, errors = STRUCK[name]
    bench = Bench(*scenarios)
    bench.server.answer(lambda: (strike(bench), answer)[1])
    assert bench.run() == errors
    # All connections break at once, so the answer is there before the next look: no member_died in events.jsonl.
    deaths = [subject for kind, subject in bench.events if kind == "member_died"]
    assert deaths == ([] if "data set" in name else list(bench.cluster.dead))
    kinds = [kind for kind, _ in bench.events if kind.startswith("scenario")]
    assert kinds == [
        kind
        for error in errors
        for kind in (["scenario_not_run"] if "not run" in error else ["scenario_began", "scenario_ended"])
    ]


def test_living_members_alone_are_asked_and_one_that_is_to_be_asked_and_dead_leaves_a_row() -> None:
    bench = Bench(write("w"), replace(read("r"), target="etcd2"), replace(read("r3"), target="etcd3"))
    bench.cluster.kill("etcd2")
    earlier = f"{DEAD} (earlier)"
    assert bench.run() == [earlier, f"{earlier}; etcd2 does not run", earlier]
    assert [body["endpoints"] for _, body in bench.server.asked] == ["etcd1:2379,etcd3:2379"] * 3
    assert [body.get("targetMember") for _, body in bench.server.asked] == [None, None, "etcd3:2379"]


QUORUM = "etcd1 was OOM-killed; etcd3 was OOM-killed"


@pytest.mark.parametrize(
    ("scenarios", "dead", "failure", "grace_s", "errors"),
    [
        (WRITES, ["etcd1", "etcd3"], None, 2.0, [f"{QUORUM}; cancelled", f"not run: {QUORUM}"]),
        ([write("w")], ["etcd1"], None, 2.0, ["etcd1 was OOM-killed; cancelled"]),  # though a quorum lives
        ([write("w")], [], EMULATOR, 0.0, [f"{EMULATOR}; cancelled"]),
        (READS, [], EMULATOR, 0.0, [f"{LOAD}{EMULATOR}; cancelled"] * 2),
    ],
    ids=["quorum", "member", "network", "network while the data set loads"],
)
@pytest.mark.parametrize("refused", [False, True], ids=["", "and it cannot be ended early"])
@pytest.mark.simulated(seeds=10)
def test_a_benchmark_that_measures_nothing_any_more_is_ended_early(
    scenarios: list[Scenario], dead: list[str], failure: str | None, grace_s: float, errors: list[str], refused: bool
) -> None:
    bench = Bench(*scenarios)
    cancel = bench.server.cancel

    def refuse() -> None:
        cancel()
        raise RunError("the server is gone")

    def strike() -> Answer:
        bench.cluster.kill(*dead)
        bench.target.failure = failure
        struck_s = clock.monotonic()
        bench.server.cancelled.wait()
        assert struck_s + grace_s <= clock.monotonic() <= struck_s + grace_s + 2 * WATCH_INTERVAL_S
        return failing("cancelled")

    bench.server.cancel = refuse if refused else cancel
    bench.server.answer(strike)
    assert bench.run() == errors
    assert bench.progress.notes == ["the benchmark could not be ended early: the server is gone"] * refused


# --- what is silent --------------------------------------------------------------------------------------------------


@pytest.mark.simulated(seeds=10)
def test_a_stopped_client_ends_its_scenario_and_the_next_one_runs() -> None:
    bench = Bench(write("w"), write("w2"))
    bench.server.progress = lambda: Progress(True, 7, 0, 0, client_silent_s=60.0)
    bench.server.answer(lambda: bench.server.cancelled.wait() and Answer(None, KILLED_CLIENT))
    who = "the benchmark client is silent (stopped?)"
    assert bench.run() == [f"no request has ended for 27 s: {who}; {KILLED_CLIENT}", "-"]
    assert bench.progress.notes == [f"no request has ended for 14 s: {who}; ended after 27 s"]


@pytest.mark.simulated(seeds=10)
@pytest.mark.parametrize("after_s", [0.1, 0.9, 1.5])
def test_a_benchmark_host_that_ended_is_named_with_its_reason_and_the_rest_is_not_run(after_s: float) -> None:
    """The row said 'Remote end closed connection', and the remaining scenarios had none."""
    bench = Bench(write("w"), write("w2"), read("r"))
    host = bench.target.client_host = SimpleNamespace(alive=True, ending=lambda: "killed by SIGKILL")
    broken = "the benchmark server did not answer: Remote end closed connection"

    def behave(path: str, body: dict[str, Any]) -> Answer:
        # The connection breaks first.
        clock.Thread(target=lambda: (clock.sleep(after_s), setattr(host, "alive", False))).start()
        return Answer(None, broken, lost=True)

    bench.server.behave = behave
    first, *others = bench.run()
    reason = "the benchmark host ended: killed by SIGKILL"
    assert first == (broken if after_s > HOST_NEWS_S else reason)
    assert set(others) <= {broken, reason, f"not run: {reason}"}
    assert after_s > HOST_NEWS_S or others == [f"not run: {reason}"] * 2


@pytest.mark.simulated()
def test_a_warm_up_is_no_standstill() -> None:
    """Of a long warm-up nothing counts as done."""
    bench, asked = Bench(write("w")), count()
    bench.server.progress = lambda: Progress(True, 0, 0, next(asked), 0.0)
    bench.server.answer(lambda: failing("ended early") if bench.server.cancelled.wait(300) else None)
    assert bench.run() == ["-"]


@pytest.mark.simulated(seeds=20)
def test_no_thread_outlives_a_matrix_also_on_a_target_without_a_network_and_hosts_of_ours() -> None:
    """The watch of members ends with it, since an open connection keeps a network namespace; the reader of progress
    ends by itself."""
    bench = Bench(write("w"), read("r"))
    bench.target.net = bench.target.client_host = None
    assert bench.run() == ["-", "-"] and {row["LinkLateness_99%_us"] for row in bench.rows()} == {"-"}
    assert "member-watch" not in World.current.threads
    clock.sleep(1)
    assert World.current.threads == []


# --- what links tell -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", [0, 1])
@pytest.mark.simulated()
def test_counters_that_are_not_known_cost_no_row(refused: int) -> None:
    note = ("could not be reset, so this scenario has none", "cannot be read")[refused]
    bench, call = Bench(write("w"), write("w2")), count()

    def link_statistics(**_: bool) -> dict[str, Any]:
        if next(call) == refused:
            raise RunError("no answer")
        return bench.net.seen

    bench.net.link_statistics = link_statistics
    assert bench.run() == ["-", "-"] and bench.progress.notes == [f"the links' counters {note}: no answer"]
    assert [outcome.network for outcome in bench.outcomes] == [None, LinkStatistics(bench.net.seen)]
    found = [(row["LinkLateness_99%_us"], row["Valid"], row["Reasons"]) for row in bench.rows()]
    assert found == [("-", "unknown", "counters"), ("20.0", "yes", "-")], "what the links did is not known"


# --- attempts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retries", "pauses_s", "attempts"),
    [
        (2, [0.2, 0.3, 0.0, 0.0], [("w", "1", "no"), ("w", "2", "no"), ("w", "3", "yes"), ("w2", "1", "yes")]),
        (1, [0.2, 0.3, 0.4, 0.0], [("w", "1", "no"), ("w", "2", "no"), ("w2", "1", "no"), ("w2", "2", "yes")]),
        (3, [0.2, None], [("w", "1", "no"), ("w", "2", "-"), ("w2", "1", "-")]),  # a network that ends
    ],
)
@pytest.mark.simulated()
def test_a_scenario_that_is_not_certainly_valid_is_measured_again_and_each_attempt_has_a_row(
    retries: int, pauses_s: list[float | None], attempts: list[tuple[str, str, str]]
) -> None:
    bench = Bench(write("w"), write("w2"), retry_invalid=retries)

    def answer(pause_s: float | None) -> Answer:
        if pause_s is None:
            return Answer(None, bench.fail(EMULATOR))
        return Answer(LoadResult.from_json(closed_loop(pause_s=pause_s)), None)

    # Not before its turn: the network ends in the middle.
    bench.server.answer(*(lambda pause_s=pause_s: answer(pause_s) for pause_s in pauses_s))
    bench.run()
    assert [(row["Scenario"], row["Attempt"], row["Valid"]) for row in bench.rows()] == attempts


# --- who leads -------------------------------------------------------------------------------------------------------


def test_a_leader_change_is_told_and_an_election_that_the_same_member_wins() -> None:
    bench = Bench(write("same"), write("w"), write("w2"), write("w3"), write("w4"))
    # At the start and at the end of each; the fourth one changed hands before it began.
    bench.cluster.leaders = iter([*["etcd1"] * 5, "etcd3", "etcd2", "etcd2", "etcd2", None])
    bench.server.answer(lambda: setattr(bench.cluster, "term", 4))
    bench.run()
    names = ("Leader", "LeaderAtStart", "TermAtStart", "TermAtEnd")
    assert [tuple(row[name] for name in names) for row in bench.rows()] == [
        ("etcd1", "etcd1", "2", "4"),
        ("etcd1", "etcd1", "4", "4"),
        ("etcd1>etcd3", "etcd1", "4", "5"),
        ("etcd2", "etcd2", "6", "6"),
        ("etcd2>none", "etcd2", "6", "-"),
    ]
    again, *changes = [finding for outcome in bench.outcomes for finding in outcome.findings]
    assert again.text == "etcd1 led at the start (term 2), etcd1 again at the end (term 4)"
    assert [(change.kind, change.effect, change.value, change.subject) for change in changes] == [
        ("leader_changed", "invalid", 1, "etcd3"),
        ("leader_changed", "invalid", None, None),
    ]


def test_leadership_is_moved_before_each_scenario_and_after_the_data_set_is_loaded() -> None:
    bench = Bench(read("r"), write("w"))
    bench.target.leader_wanted = "etcd3"
    led: list[str | None] = []
    bench.server.answer(*[lambda: led.append(bench.cluster.led_by)] * 3)
    assert bench.run() == ["-", "-"]
    assert led == ["etcd1", "etcd3", "etcd3"] and bench.cluster.moves == ["etcd3", "etcd3"]
    assert [(row["LeaderAtStart"], row["Leader"]) for row in bench.rows()] == [("etcd3", "etcd3")] * 2
    assert bench.findings() == []


@pytest.mark.parametrize("lost", [False, True])
def test_a_leader_that_cannot_be_made_leaves_a_row_that_says_so_and_a_living_cluster_goes_on(lost: bool) -> None:
    bench = Bench(write("w"), write("w2"))
    bench.target.leader_wanted, bench.cluster.answering = "etcd3", not lost
    refusals, move = iter(["etcd1 did not hand over"]), bench.cluster.move_leader

    def move_leader(*arguments: Any) -> Any:
        bench.cluster.cannot_move = next(refusals, None)
        return move(*arguments)

    bench.cluster.move_leader = move_leader
    assert bench.run() == [
        "not run: etcd3 could not be made the leader: etcd1 did not hand over",
        "not run: the cluster did not answer within 9 s" if lost else "-",
    ]
    assert len(bench.server.asked) == (0 if lost else 1) and bench.rows()[0]["LeaderAtStart"] == "-"


def test_a_scenario_begins_when_all_members_have_caught_up_or_says_which_had_not() -> None:
    bench = Bench(write("w"), write("w2"), write("w3"))
    bench.cluster.late = ["etcd3"]
    bench.server.answer(GOOD, lambda: bench.cluster.late.clear())
    assert bench.run() == ["-"] * 3
    assert [row["Valid"] for row in bench.rows()] == ["unknown", "unknown", "yes"]
    found = [item for outcome in bench.outcomes for item in outcome.findings if item.kind == "member_behind"]
    assert [item.subject for item in found] == ["etcd3"] * 2 and bench.progress.notes == []
    assert bench.cluster.waited_s == [60.0, 2.0], "a member that was behind has had its minute"
    bench = Bench(write("w"))
    bench.cluster.late, bench.cluster.catches_up_s = ["etcd3"], 12.0
    assert (bench.run(), bench.findings()) == (["-"], [])
    assert bench.progress.notes == ["w began 12 s later: members were catching up"]
    bench = Bench(read("r"))
    bench.cluster.late = ["etcd3"]
    bench.cluster.kill("etcd1", "etcd2")
    bench.run()
    assert bench.cluster.waited_s == [], "without a quorum none is waited for"


def test_the_floor_is_that_of_a_leader_and_of_members_that_stayed() -> None:
    bench = Bench(write("w"), write("w2"), write("w3"))
    asked: list[tuple[str, str | None, set[str]]] = []

    def least(scenario: Scenario, leader: str | None, living: frozenset[str], answered: None) -> float | None:
        asked.append((scenario.name, leader, set(living)))
        return 0.0185 if leader else None

    bench.target.least_median_s = least
    bench.cluster.leaders = iter(["etcd1", "etcd1", "etcd1", "etcd3"])
    bench.server.answer(GOOD, GOOD, lambda: bench.cluster.kill("etcd2"))
    bench.run()
    assert asked == [("w", "etcd1", {*MEMBERS}), ("w2", None, {*MEMBERS})]
    floors = [(row["Floor_50%_s"], row["AboveFloor_50%_s"]) for row in bench.rows()]
    assert floors == [("0.018500", "0.001500"), ("-", "-"), ("-", "-")]


def test_the_floor_is_that_of_the_requests_that_were_answered() -> None:
    """24 of the 40 good answers of a mixed load were to puts; of one without any, the configured share counts."""
    bench, seen = Bench(mixed("m"), read("r"), mixed("m2")), []
    bench.target.least_median_s = lambda scenario, leader, living, answered: seen.append(answered)
    both = {"put": {"ok": 24}, "range": {"ok": 16}}
    one, none = (LoadResult.from_json(result_of(ok).values | {"by_operation": both}) for ok in (40, 0))
    bench.server.answer(GOOD, Answer(one, None), GOOD, Answer(none, None))
    bench.run()
    assert seen == [{"": (40, 24)}, {"": (1000, None)}, None]


# --- scenarios with events: what they did is in the row, and is no failure of it --------------------------------------

MS = 1_000_000
KILL = Disruption(verb="kill", target="leader", at_ns=1 * MS)
SOME_FAILED = "40 of 1000 requests failed (40 times: unavailable)"


def answer(code: str = "Unavailable", reason: str | None = None, **changes: Any) -> Answer:
    """40 of 1000 requests failed."""
    outcomes = {"ok": 960, "failed": 40, "unknown": 0, "unsent": 0}
    made = closed_loop(ok=960, failed=40, outcomes=outcomes, codes={code: 40}, reason=reason)
    return Answer(LoadResult.from_json(made | changes), SOME_FAILED)


def failing_at(*seconds: float, interval_s: float = 0.1) -> Answer:
    """Requests of the first of these seconds failed, and none of the others."""
    row = closed_loop()["timeline"][0]
    rows = [{**row, "second": second, "failed": 40 * (number == 0)} for number, second in enumerate(seconds)]
    return answer(timeline_interval_s=interval_s, timeline=sorted(rows, key=lambda row: row["second"]))


def bench_of(
    *events: Disruption, done: int = 1, given: Answer | None = None, then: Callable[[], object] = bool, **more: Any
) -> Bench:
    """One scenario whose load goes on until so many things were done, and ``then`` something is."""
    bench = Bench(replace(write("w"), events=events, request_timeout_ns=5000 * MS), write("after"), **more)

    def load() -> Answer:
        bench.server.began_ns = clock.monotonic_ns()
        deadline_s = clock.monotonic() + 10
        while len(bench.faults.done) < done:
            assert clock.monotonic() < deadline_s, bench.faults.done
            clock.sleep(0.001)
        then()
        return given or answer()

    bench.server.answer(load)
    return bench


@pytest.mark.parametrize(
    ("verb", "value", "is_bounded"),
    [
        ("delay", 2 * MS, False),
        ("delay", 4 * MS, True),
        ("rate", None, False),
        ("rate", 10**6, True),
        ("loss", 0.1, True),
    ],
)
def test_where_an_event_lets_frames_arrive_sooner_there_is_no_floor(verb: Any, value: Any, is_bounded: bool) -> None:
    """Else the links' lateness is judged by a floor that is too high, too."""
    bench = bench_of(Disruption(verb=verb, target="etcd2", at_ns=MS, value=value))
    bench.target.least_median_s = lambda *_: 0.0185
    bench.run()
    assert [row["Floor_50%_s"] for row in bench.rows()] == ["0.018500" if is_bounded else "-", "0.018500"]


BRIEF, THIRD = replace(KILL, for_ns=10 * MS), replace(KILL, target="etcd3")
FREEZE, NO_LOSS = replace(KILL, verb="freeze"), replace(KILL, verb="loss", target="etcd2", value=0.0)
LATER, AT_LAST = replace(KILL, at_ns=20 * MS), replace(KILL, at_ns=60_000 * MS)


def others_die(bench: Bench) -> None:
    bench.cluster.kill("etcd2")
    bench.server.cancelled.wait()


def frames_get_lost(bench: Bench) -> None:
    bench.net.seen["ports"] = {"etcd1-eth0": {"tap_drops": {"receive": 1}}}


def another_leads(bench: Bench) -> None:
    bench.cluster.leaders = iter(["etcd2"])


EVENTS: dict[str, tuple[Disruption, int, Answer | None, Callable[[Bench], object], str | None, dict[str, str]]] = {
    "the configured kill alone": (KILL, 1, None, another_leads, None, {"leader_changed": "info"}),
    "wrong answers": (KILL, 1, answer(code="Check"), nothing, SOME_FAILED, {}),
    "cut short": (KILL, 1, answer(reason="5 s without"), nothing, SOME_FAILED, {"cut_short": "unknown"}),
    "failed before it": (LATER, 1, failing_at(0.0, 0.1, interval_s=0.001), nothing, SOME_FAILED, {}),
    "how long it takes to recover is the store's": (BRIEF, 2, failing_at(20.0, 0.0), nothing, None, {}),
    "it cannot cause it": (NO_LOSS, 1, failing_at(0.0), nothing, SOME_FAILED, {}),
    "no event struck": (AT_LAST, 0, None, nothing, SOME_FAILED, {"event_missed": "invalid"}),
    "no event explains an election": (THIRD, 1, None, another_leads, None, {"leader_changed": "invalid"}),
    "another death": (THIRD, 1, None, others_die, "etcd2 was OOM-killed", {"member_died": "invalid"}),
    "frames that a killed one did not take": (KILL, 1, None, frames_get_lost, None, {"frames_lost": "info"}),
    "frames that a frozen one did not take": (FREEZE, 1, None, frames_get_lost, None, {"frames_lost": "invalid"}),
}


@pytest.mark.parametrize("case", EVENTS)
def test_what_a_configured_event_explains_is_no_failure_and_what_it_does_not_is_a_reason(case: str) -> None:
    event, done, given, strike, error, effects = EVENTS[case]
    bench = bench_of(event, done=done, given=given, then=lambda: strike(bench))
    bench.run()
    first, second = bench.outcomes
    assert first.error == error and second.disruptions is None and bench.faults.as_before
    assert {finding.kind: finding.effect for finding in first.findings if finding.kind != "event"} == effects


def test_a_killed_member_is_back_for_the_next_scenario_and_its_row_has_what_was_done() -> None:
    bench = bench_of(KILL)
    bench.cluster.leaders = iter(["etcd1", "etcd2"])
    assert bench.run() == ["-", "-"] and bench.faults.done == [("kill", "etcd1"), ("restart", "etcd1")]
    row, finding = bench.rows()[0], bench.outcomes[0].findings[0]
    assert (row["Errors"], row["Leader"], row["EventSeed"]) == ("40", "etcd1>etcd2", "0/w/1.1")
    assert row["EventsDone"].startswith("kill etcd1 at ") and (finding.kind, finding.effect) == ("event", "info")


def test_an_interrupted_run_undoes_what_is_in_force_and_what_stays_ends_the_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, stop = (replace(KILL, verb="freeze"), replace(KILL, verb="link_down", target="etcd2")), Stop()
    bench = bench_of(*events, done=2, then=lambda: (stop.request(), clock.sleep(60)), stop=stop)
    with pytest.raises(Interrupted):
        bench.matrix.run()
    assert bench.faults.as_before
    assert bench.outcomes[0].error is not None
    bench = bench_of(events[0])
    bench.faults.refused["thaw"] = "it stays frozen"
    monkeypatch.setattr(bench.faults, "give_up", bench.fail)
    first, second = bench.run()
    assert "it stays frozen" in first and second.startswith("not run: ")
    bench = bench_of(KILL, done=0)
    bench.target.faults = None
    assert bench.run()[0] == "nothing here can carry out its events"


# --- how a running benchmark is followed, with a clock that is given --------------------------------------------------

LOAD = write("w")
"""Its first request may take 37 s to end, and each later one 27 s."""


def drive(course: Course, ended: int | None, seconds: float, from_s: float = 0.0, **seen: bool) -> tuple[str, float]:
    """Look periodically until something is to be done: what, and when."""
    now_s = from_s
    while now_s < from_s + seconds:
        now_s += 0.25
        if (action := course.look(now_s, ended, **seen)) != "go on":
            return action, now_s
    return "go on", now_s


def test_how_long_nothing_may_end_follows_from_the_deadlines() -> None:
    for load, first_s, later_s in (
        (write("w"), 37.0, 27.0),
        (replace(write("w"), request_timeout_ns=10**9), 18.0, 8.0),
        (replace(write("w"), rate=Decimal("0.1")), 47.0, 37.0),
        (replace(write("w"), rate=Decimal("0.5"), arrival="poisson"), 77.0, 67.0),
        (replace(write("w"), warmup=Warmup(length_ns=3600 * 10**9)), 37.0, 27.0),  # its requests are counted
    ):
        course, far = Course(load, NEAR, 0.0), Course(load, Waits(rtt_s=4), 0.0)
        assert (course.limit_s, far.limit_s) == (first_s, first_s + 32), load
        for one in (course, far):
            assert one.look(0.25, 1) == "go on" and one.limit_s == pytest.approx(later_s, abs=1e-4), load


@pytest.mark.parametrize(
    ("ended", "seen", "actions"),
    [
        (0, [], [("cancel", 37.0), ("abandon", 47.0)]),
        (1_000_000, [], [("cancel", 37.25), ("abandon", 57.25)]),  # the report of many requests takes long
        (5, ["failed"], [("cancel", 0.25)]),
        (5, ["died"], [("cancel", 2.25)]),
        (5, ["host_ended"], [("abandon", 0.25)]),
    ],
)
def test_a_benchmark_is_cancelled_once_and_given_up(ended: int, seen: list[str], actions: list[Any]) -> None:
    course, found = Course(LOAD, NEAR, 0.0), [("", 0.0)]
    for _ in actions:
        found.append(drive(course, ended, 100, from_s=found[-1][1], **dict.fromkeys(seen, True)))
    assert found[1:] == actions and course.stands_still == (not seen)


def test_what_is_no_standstill_and_what_is() -> None:
    course = Course(LOAD, NEAR, 0.0)
    for turn in range(100):  # requests that end badly
        assert drive(course, turn, 20, from_s=turn * 20.0)[0] == "go on"
    # Ctrl-Z, and an hour later fg: each look after it is the first that anybody could take.
    assert course.look(2000.25, 5) == course.look(5600.0, 5) == "go on"
    assert course.silent_s == 1.0
    course.look(5600.25, 10_000_000_000)
    assert course.limit_s == 27.0 + 20.0, "the report is bounded"
    # A server that tells nothing is as one where nothing ends.
    course = Course(LOAD, NEAR, 0.0)
    assert course.look(1.0, 700) == "go on"
    assert drive(course, None, 100, from_s=1.0)[1] == pytest.approx(28.0, abs=0.3)


def test_who_is_silent_is_named() -> None:
    server, client = "the benchmark server answers nothing", "the benchmark client is silent (stopped?)"
    assert [who_is_silent(12.0, 99.0, []), who_is_silent(0.2, 12.0, [])] == [server, client]
    assert who_is_silent(0.2, 0.1, ["etcd1"]) == "etcd1 answers nothing"
    assert who_is_silent(9.0, 0.1, ["etcd1", "etcd2"]) == f"{server}; etcd1, etcd2 answer nothing"
    assert who_is_silent(0.2, 0.1, []) == "server, client and members answer"
