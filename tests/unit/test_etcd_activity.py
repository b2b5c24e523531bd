"""What members count while something is measured, and profiles of etcd."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.model.usage import Durations, MemberActivity
from containernet_env.stores import cluster, etcd
from containernet_env.stores.cluster import Counters, LogPart, MemberPlace, Observation, prometheus_samples
from containernet_env.stores.etcd import EtcdMember
from containernet_env.stores.profiling import Profiling
from tests.simulated_time import START_NS, World, simulated
from tests.unit.fake_servers import FakeHost
from tests.unit.test_store_logs import ETCD as LOG

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "etcd"
SYNCS, COMMITS = "etcd_disk_wal_fsync_duration_seconds", "etcd_disk_backend_commit_duration_seconds"


def answer(syncs: Mapping[str, int], sum_s: float, changes: int = 1, failed: int = 0, size: float = 20480) -> str:
    """An answer of a member; ``syncs`` are cumulative, as Prometheus has them."""
    lines = [
        "# TYPE etcd_server_leader_changes_seen_total counter",
        f"etcd_server_leader_changes_seen_total {changes}",
        f"etcd_server_proposals_failed_total {failed}",
        'etcd_server_version{server_version="3.7.3"} 1',
        f"etcd_mvcc_db_total_size_in_bytes {size:.6e}",
        "process_start_time_seconds 1500000000.0",
    ]
    for name in (SYNCS, COMMITS):
        lines += [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in syncs.items()]
        lines += [f"{name}_sum {sum_s}", f"{name}_count {syncs['+Inf']}"]
    return "\n".join(lines) + "\n"


def counted(text: str) -> Counters:
    return prometheus_samples(text, etcd.METRICS)


BEFORE = answer({"0.001": 5, "0.002": 9, "8.192": 9, "+Inf": 10}, 9.0)
AFTER = answer({"0.001": 103, "0.002": 109, "8.192": 109, "+Inf": 112}, 9.51, changes=3, failed=4, size=1.048576e06)


def test_what_a_member_counted_between_two_looks() -> None:
    buckets = ((0.001, 98), (0.002, 2), (None, 2))
    syncs = Durations(count=102, mean_s=pytest.approx(0.005), p99_at_most_s=None, buckets=buckets)
    assert EtcdMember.activity(counted(BEFORE), counted(AFTER), LogPart((), {"slow fdatasync": 2})) == MemberActivity(
        leader_changes=2,
        log_syncs=syncs,
        commits=syncs,
        failed_proposals=4,
        data_bytes=1048576,
        data_grown_bytes=1048576 - 20480,
        warnings={"slow fdatasync": 2},
    )
    # Of etcd 3.7.3, which took puts by four clients for two seconds; other families are left out.
    looks = (counted((RECORDED / f"metrics-{when}.txt").read_text()) for when in ("before", "after"))
    found = EtcdMember.activity(*looks, None)
    assert (found.leader_changes, found.failed_proposals, found.data_bytes) == (0, 0, 798720)
    assert found.log_syncs is not None and found.commits is not None and found.log_syncs.mean_s is not None
    assert sum(times for _, times in found.log_syncs.buckets) == found.log_syncs.count > 1000
    assert 0.0005 < found.log_syncs.mean_s < 0.002 and (found.data_grown_bytes or 0) > 500_000
    assert (found.log_syncs.p99_at_most_s, found.commits.p99_at_most_s) == (0.008, 0.008)
    # An answer of another form has no figures.
    for text in ("", "<html>404</html>", "etcd_server_leader_changes_seen_total x\n\x00"):
        assert counted(text) == {}


def test_what_one_look_lacks_is_not_known() -> None:
    before, after = counted(BEFORE), counted(AFTER)
    assert EtcdMember.activity({}, after, None) == MemberActivity(data_bytes=1048576)
    assert EtcdMember.activity(before, {}, LogPart((), {})) == MemberActivity(warnings={})
    restarted = counted(AFTER.replace("seconds 1500000000.0", "seconds 2e9"))
    assert EtcdMember.activity(before, restarted, None) == MemberActivity(data_bytes=1048576), "it counts from 0 again"
    lacking = counted("\n".join(line for line in AFTER.splitlines() if "wal_fsync" not in line))
    found = EtcdMember.activity(before, lacking, None)
    assert found.log_syncs is None and found.commits is not None and found.leader_changes == 2
    other = counted(AFTER.replace('le="0.002"', 'le="0.003"'))
    assert EtcdMember.activity(before, other, None).log_syncs is None, "other buckets cannot be compared"
    nothing = Durations.of(1.0, ((0.001, 0), (None, 0)))
    assert (nothing.mean_s, nothing.p99_at_most_s) == (None, None)


class Answers:
    """Answers GETs one after the other, the last one again; an exception is raised, a number is how many s it takes."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.queried: list[tuple[int, str]] = []

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        self.queried.append((port, path))
        answer = self.answers.pop(0) if self.answers[1:] else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            clock.sleep(answer)
            raise RunError("too late")
        return bytes(answer)

    def open(self, port: int, *, timeout_s: float) -> Any:
        raise RunError("nobody listens")


def observed(*members: tuple[Answers, str | None]) -> dict[str, MemberActivity]:
    places: list[Any] = [
        MemberPlace(FakeHost(f"etcd{n}", log=log), "10.0.0.1", answers)  # type: ignore[arg-type]
        for n, (answers, log) in enumerate(members, 1)
    ]
    return dict(Observation([EtcdMember(place) for place in places]).end().members)


@simulated(seeds=5)
def test_members_are_queried_before_and_after_and_a_silent_one_delays_no_other(world: World) -> None:
    good = Answers(BEFORE.encode(), AFTER.encode())
    late = LOG.replace("2026-11-22", "2999-11-22")
    found = observed(
        (good, late),
        (Answers(60.0, AFTER.encode()), ""),
        (Answers(BEFORE.encode(), 60.0), None),
        (Answers(RunError("HTTP 503"), BEFORE.encode(), RunError("HTTP 503"), AFTER.encode()), late),
    )
    assert (world.now_ns - START_NS) / 1e9 <= cluster.LOOK_S * 3, "two looks and the logs"
    assert list(found) == ["etcd1", "etcd2", "etcd3", "etcd4"]
    assert found["etcd4"] == found["etcd1"], "a query that is not answered once is repeated"
    assert found["etcd1"].leader_changes == 2 and found["etcd1"].warnings == {}
    assert found["etcd2"] == MemberActivity(data_bytes=1048576, warnings={})
    assert found["etcd3"] == MemberActivity()
    assert good.queried == [(2379, "/metrics")] * 2


def test_a_warning_while_it_is_observed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member writes UTC with microseconds, the driver notes moments with milliseconds."""
    moments = iter(["2026-11-22T02:18:20.000Z", "2026-11-22T02:18:21.500Z"])
    answers = Answers(BEFORE.encode(), AFTER.encode())

    def now() -> str:
        assert len(answers.queried) == 1, "between the two looks: what they make it warn of is not the load's"
        return next(moments)

    monkeypatch.setattr(cluster, "utc_now", now)
    found = observed((answers, LOG))
    assert found["etcd1"].warnings == {"apply request took too long": 2}


@simulated()
def test_a_member_that_gives_no_profile_says_why() -> None:
    made = Profiling(Answers(RunError("refused")), etcd.CLIENT_PORT, ("cpu", "mutex"))  # type: ignore[arg-type]
    made.begin()
    made.end()
    cpu, mutex = made.profiles()
    made.close()
    assert (cpu.problem, mutex.problem, mutex.data) == ("nobody listens", "refused", b"")
