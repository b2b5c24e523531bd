"""Events on a real cluster: members are killed, frozen and cut off, and all of it is put back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from containernet_env import measure
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.results.run_result import RunResult
from tests.docker.conftest import PROJECT
from tests.docker.machine_state import left_over, snapshot

pytestmark = pytest.mark.docker

CONFIG = PROJECT / "configs" / "3node-3ms.json"
MS = 1_000_000


def scenarios(folder: Path, *events: dict[str, Any]) -> Path:
    """A mixed load with these events, and one without any after it."""
    load = {"rate": 100, "duration": "7s", "clients": 60, "conns": 6, "timeout": "3s"}
    mixed = {"type": "mixed", "load": load, "ratio": 0.5, "consistency": "l"}
    blocks = [mixed | {"events": list(events)}, mixed | {"load": load | {"duration": "1s"}}]
    path = folder / "events.json"
    path.write_text(json.dumps({"dataset": {"keySize": 8, "valSize": 64, "keys": 50}, "scenarios": blocks}))
    return path


def measured(folder: Path, *events: dict[str, Any]) -> tuple[RunResult, ScenarioOutcome, list[dict[str, Any]]]:
    """The run, its outcome with events, and the lines of disruptions.jsonl."""
    before = snapshot()
    result = measure(CONFIG, scenarios(folder, *events), folder / "out.csv")
    assert left_over(before) == {}
    lines = [json.loads(line) for line in (result.directory / "disruptions.jsonl").read_text().splitlines()]
    first, second = result.outcomes
    for line in lines:
        print(line["verb"], line["members"], line["since_start_ns"], line["problem"])
    print(first.error, first.verdict, [finding.text for finding in first.findings])
    assert second.error is None
    assert second.disruptions is None
    # The gate after the last scenario: links, also those that were made anew, are as the topology says.
    assert result.network_held
    return result, first, lines


def test_a_killed_leader_comes_back_on_its_data_and_is_no_failure(tmp_path: Path) -> None:
    event = {"at": "1s", "kill": "leader", "for": "2s"}
    result, outcome, lines = measured(tmp_path, event)
    assert [(line["verb"], line["cause"]) for line in lines] == [("kill", "event"), ("restart", "for")]
    kill, restart = lines
    assert kill["members"] == restart["members"] == [kill["leader"]]
    assert kill["since_start_ns"] - 1000 * MS < 100 * MS
    assert restart["answered_ns"] > restart["at_ns"] > kill["at_ns"] + 1900 * MS
    assert outcome.error is None
    assert not result.failed
    assert outcome.verdict is not None
    assert not {"member_died", "leader_changed", "event_missed", "frames_lost"} & set(outcome.verdict.reasons)
    told = {finding.kind: finding.effect for finding in outcome.findings}
    assert told["event"] == told["leader_changed"] == "told"
    assert outcome.term_at_end is not None
    assert outcome.term_at_start is not None
    assert outcome.term_at_end > outcome.term_at_start
    # A member without its data would have failed: the others have it in their log as one that has some.
    assert outcome.store is not None
    assert set(outcome.store.members) == {"etcd1", "etcd2", "etcd3"}
    assert outcome.load is not None
    assert outcome.load.ok > 300


def test_link_and_process_faults_of_one_moment_come_within_10_ms(tmp_path: Path) -> None:
    events = [
        {"at": "1s", "freeze": "etcd2", "for": "500ms"},
        {"at": "1s", "link": "down", "of": "etcd3", "for": "300ms"},
        {"at": "2s", "partition": "leader", "for": "1500ms"},
        {"at": "2s", "delay": "20ms", "of": "followers"},
        {"at": "2s", "freeze": "etcd1", "for": "100ms"},
    ]
    _, outcome, lines = measured(tmp_path, *events)
    for asked_ns in (1000 * MS, 2000 * MS):
        times = [line["at_ns"] for line in lines if line["asked_ns"] == asked_ns and line["cause"] == "event"]
        assert max(times) - min(times) < 10 * MS, lines
    assert [line["problem"] for line in lines] == [None] * len(lines)
    assert [line["verb"] for line in lines if line["cause"] == "end"] == ["reset"]
    assert outcome.error is None
