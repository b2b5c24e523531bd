"""Events on a real cluster: members are killed, frozen and cut off, and it is all put back; a core is kept."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from containernet_env import measure
from containernet_env.results.run_result import RunResult
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import CONFIG

pytestmark = pytest.mark.docker

MS = 1_000_000
KILLED = [{"at": "1s", "kill": "leader", "for": "2s"}]
AT_ONCE = [
    {"at": "1s", "freeze": "etcd2", "for": "500ms"},
    {"at": "1s", "link": "down", "of": "etcd3", "for": "300ms"},
    {"at": "2s", "partition": "leader", "for": "1500ms"},
    {"at": "2s", "delay": "20ms", "of": "followers"},
    {"at": "2s", "freeze": "etcd1", "for": "100ms"},
]
CORES = os.sched_getaffinity(0)
# A core for the links needs a second one for the rest.
CORE = max(CORES) if len(CORES) > 1 else None


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A mixed load with a leader that is killed, one with several events at once, and one without any after them."""
    folder, before = tmp_path_factory.mktemp("events"), snapshot()
    load = {"rate": 100, "duration": "6s", "clients": 60, "conns": 6, "timeout": "3s"}
    mixed = {"type": "mixed", "load": load, "ratio": 0.5, "consistency": "l"}
    blocks = [mixed | {"events": KILLED}, mixed | {"events": AT_ONCE}, mixed | {"load": load | {"duration": "1s"}}]
    scenarios = folder / "events.json"
    dataset = {"keySize": 8, "valSize": 64, "keys": 50}
    scenarios.write_text(json.dumps({"dataset": dataset, "scenarios": blocks}))
    found = measure(CONFIG, scenarios, folder / "out.csv", port=18080, links_cpu=CORE)
    assert left_over(before) == {}
    return found


def lines_of(result: RunResult, number: int) -> list[dict[str, Any]]:
    """The lines of disruptions.jsonl of the scenario with this number."""
    lines = [json.loads(line) for line in (result.directory / "disruptions.jsonl").read_text().splitlines()]
    name = result.outcomes[number].scheduled.scenario.name
    return [line for line in lines if line["scenario"] == name]


def test_what_events_did_ends_with_their_scenario(result: RunResult) -> None:
    last = result.outcomes[-1]
    assert [outcome.error for outcome in result.outcomes] == [None] * 3 and not result.failed
    assert last.disruptions is None and lines_of(result, 2) == []
    # The gate after the last scenario: links, also those that were made anew, are as the topology says.
    assert result.network_held


def test_a_killed_leader_comes_back_on_its_data_and_is_no_failure(result: RunResult) -> None:
    outcome, lines = result.outcomes[0], lines_of(result, 0)
    assert [(line["verb"], line["cause"]) for line in lines] == [("kill", "event"), ("restart", "for")]
    kill, restart = lines
    assert kill["members"] == restart["members"] == [kill["leader"]]
    # Never before the time that is configured, and the restart never sooner after the kill.
    assert kill["since_start_ns"] >= 1000 * MS
    assert restart["since_start_ns"] >= restart["asked_ns"] >= kill["asked_ns"] + 2000 * MS
    assert restart["answered_ns"] > restart["at_ns"] > kill["at_ns"]
    assert outcome.verdict is not None
    assert not {"member_died", "leader_changed", "event_missed", "frames_lost"} & set(outcome.verdict.reasons)
    effects = {finding.kind: finding.effect for finding in outcome.findings}
    assert effects["event"] == effects["leader_changed"] == "told"
    assert outcome.term_at_start is not None and outcome.term_at_end is not None
    assert outcome.term_at_end > outcome.term_at_start
    # A member without its data would have failed: the others have it in their log as one that has some.
    assert outcome.store is not None and outcome.load is not None and outcome.load.ok > 0
    assert set(outcome.store.members) == {"etcd1", "etcd2", "etcd3"}


def test_link_and_process_faults_of_one_moment_are_all_carried_out(result: RunResult) -> None:
    lines = lines_of(result, 1)
    events = [line for line in lines if line["cause"] == "event"]
    assert sorted(line["verb"] for line in events) == ["delay", "freeze", "freeze", "link_down", "partition"], lines
    for line in events:
        assert line["since_start_ns"] >= line["asked_ns"] in (1000 * MS, 2000 * MS), line
    assert [line["problem"] for line in lines] == [None] * len(lines)
    assert [line["verb"] for line in lines if line["cause"] == "end"] == ["reset"]


@pytest.mark.skipif(CORE is None, reason="a core for the links needs a second one for the rest")
def test_a_core_is_kept_for_the_links(result: RunResult) -> None:
    assert {row["LinksCore"] for row in result.rows} == {str(CORE)}
    manifest = json.loads((result.directory / "manifest.json").read_text())
    assert manifest["flags"]["links_cpu"] == CORE and manifest["links"]["link_emulator"]["core"] == CORE
    for name, host in manifest["hosts"].items():
        held = host["limits"]["cpuset"]
        assert held and str(CORE) not in held.replace("-", ",").split(","), (name, held)
    assert os.sched_getaffinity(0) == CORES
