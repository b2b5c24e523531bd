"""The record of a run, as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from containernet_env.results.record import RunRecord, text_of


def test_a_record_is_read_back_as_it_was_written_a_line_for_each_scenario() -> None:
    content: dict[str, Any] = {
        "schema": 1,
        "rtt": [{"a": "etcd1", "samples_ns": [1, 2, 3]}, {"a": "etcd2", "samples_ns": []}],
        "scenarios": [],
        "plan": {"hosts": [{"name": "\u00e9"}], "estimated_s": 1.5, "none": None},
    }
    text = text_of(content)
    assert json.loads(text) == content
    assert text.splitlines()[2:5] == [
        ' "rtt": [',
        '  {"a":"etcd1","samples_ns":[1,2,3]},',
        '  {"a":"etcd2","samples_ns":[]}',
    ]
    assert text.endswith("}\n")


def test_a_record_grows_and_can_be_read_at_any_time(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "out.csv", "run-1")
    record.update(etcd="3.7.3")
    record.add_scenario({"scenario": "w"})
    held = json.loads((tmp_path / "out.runs" / "run-1.json").read_text())
    assert (held["etcd"], held["scenarios"]) == ("3.7.3", [{"scenario": "w"}])
    assert [path.name for path in record.path.parent.iterdir()] == ["run-1.json"]
