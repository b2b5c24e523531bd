"""Texts of files, such as keys and names of scenarios, that become the names of files: never paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containernet_env.base.files import NAME_MAX, file_name
from containernet_env.config.scenarios import load_scenarios
from containernet_env.results.run_directory import (
    CLIENT_SUFFIX,
    STORE_SUFFIX,
    KeptHistory,
    RunDirectory,
    histories_of,
    history_name,
    missing_histories,
)
from containernet_env.results.run_files import ScenarioLine
from tests.unit.blocks import reads, write

# What keys in a scenario file may hold, and what is not checked before: names of hosts and scenarios of a script.
TEXTS = st.text(alphabet="a./_:-\\\0\n ä", max_size=12) | st.text(max_size=300)


@given(TEXTS, TEXTS)
def test_any_two_texts_are_two_names_in_one_folder(one: str, other: str) -> None:
    name = file_name(one)
    assert name.isascii() and 0 < len(name) <= NAME_MAX
    assert "/" not in name and not name.startswith(("-", ".")) and name.isprintable()
    assert (file_name(other) == name) == (one == other)


def test_a_name_is_readable() -> None:
    for text, name in {
        "write-cut:etcd1~etcd2@5s": "write-cut:etcd1-etcd2@5s-",
        "a" * (NAME_MAX + 1): "a" * (NAME_MAX - 11) + "-",
        "read-l-10x1x1-prefix:../../../../tmp/x": "read-l-10x1x1-prefix:..-..-..-..-tmp-x-",
        "..": "",
        "": "",
        "-rf": "rf-",
    }.items():
        assert file_name(text)[:-10] == name
    for text in ("read-leader-l-1000x1x1-a..b-limit10", "a" * NAME_MAX):
        assert file_name(text) == text


@pytest.mark.parametrize("prefix", ["../../../../../../tmp/leaving", "/etc/cron.d/x", "a/b/c/", "x:" * 100])
def test_the_prefix_of_a_scenario_leads_nowhere_but_to_its_run_directory(tmp_path: Path, prefix: str) -> None:
    file = write(tmp_path, {"dataset": {"keyPrefix": prefix, "keys": 10}, "scenarios": [reads(prefix=prefix)]})
    (scenario,) = load_scenarios(file).scenarios
    assert prefix in scenario.name
    directory = RunDirectory(tmp_path / "kept/out.csv", "1-a")
    name = history_name(1, scenario.name, 1)
    line = ScenarioLine.model_construct(scenario=scenario.name, repetition=1, history=True, load=None)
    assert missing_histories([line], histories_of(directory.path)) == [scenario.name]
    directory.write_profile(name, "etcd1-cpu.pb.gz", b"profile")
    directory.write_history(name + CLIENT_SUFFIX, [b"done"])
    directory.write_history(name + STORE_SUFFIX, [b"final"])
    directory.write_log(scenario.name, "log")
    found = sorted(path.relative_to(directory.path) for path in tmp_path.rglob("*") if path.is_file() and path != file)
    parts = [(path.parts[0], len(path.parts)) for path in found]
    assert parts == [("history", 2), ("history", 2), ("logs", 2), ("profiles", 3)]
    (kept,) = histories_of(directory.path)
    ends = (directory.path / "history" / f"{name}{end}" for end in (CLIENT_SUFFIX, STORE_SUFFIX))
    assert kept == KeptHistory(name, *ends) and missing_histories([line], [kept]) == []
