"""Runs that are repeated from their directories on this machine, checked with sha256sum, and handed on."""

from __future__ import annotations

import csv
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from containernet_env.results.run_directory import MANIFEST, find_run
from tests.docker.conftest import TINY_SCENARIOS
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import call, rows, run, topology

pytestmark = pytest.mark.docker


def manifest_in(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / MANIFEST).read_text())
    return found


def verified(directory: Path) -> bool:
    command = ["sha256sum", "--strict", "--quiet", "--check", "checksums.sha256"]
    return subprocess.run(command, cwd=directory, timeout=60, check=False).returncode == 0


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run whose files are gone."""
    folder = tmp_path_factory.mktemp("first")
    config, scenarios = topology(folder / "three.json"), folder / "tiny.json"
    scenarios.write_text(json.dumps(TINY_SCENARIOS))
    options = ("--repeat", 2, "--only", "read", "--congestion-control", "reno", "--rtt-tolerance", "1ms,15%")
    done = run(config, folder / "out.csv", "--scenarios", scenarios, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    config.unlink()
    scenarios.unlink()
    return find_run(folder / "out.csv")


def test_the_same_machine_repeats_a_run(first: Path) -> None:
    out = first.parent.with_suffix(".csv")
    before = snapshot()
    done = call("rerun", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"repeats {first.name}" in done.stdout
    assert left_over(before) == {}
    (second,) = set(first.parent.iterdir()) - {first}
    old, new = manifest_in(first), manifest_in(second)
    for name in ("flags", "inputs", "config_hash", "images", "program"):
        assert old[name] == new[name], name
    assert [item for item in new["repeats"]["differences"] if item["matters"]] == []
    found = rows(out)
    assert len(found) == 8 and {row["Error"] for row in found} == {"-"}
    columns = ("Scenario", "Repetition", "ConfigHash", "ScenarioHash", "Config", "CongestionControl", "Links", "Commit")
    assert [[row[name] for name in columns] for row in found[:4]] == [
        [row[name] for name in columns] for row in found[4:]
    ]
    assert verified(first) and verified(second)


def test_an_edited_manifest_is_refused_and_says_what(first: Path, tmp_path: Path) -> None:
    path = first / MANIFEST
    whole = path.read_text()
    changed = json.loads(whole)
    changed["plan"]["links"][0]["a_to_b"]["delay_ns"] = 5_000_000
    changed["machine"]["cpu_model"] = "Other CPU"
    try:
        path.write_text(json.dumps(changed))
        assert not verified(first)
        done = call("rerun", first, tmp_path / "again.csv")
        assert done.returncode == 2, done.stdout + done.stderr
        for words in (
            "manifest.json: was as the run left it, is changed",
            "CPU model: was Other CPU, is ",
            "plan links[0].a_to_b.delay_ns: was 5000000, is 3000000",
        ):
            assert words in done.stderr, done.stderr
        assert list(tmp_path.iterdir()) == []
        assert call("rerun", first, tmp_path / "again.csv", "--anyway", "--dry-run").returncode == 0
    finally:
        path.write_text(whole)


def test_a_run_is_handed_on_with_its_rows(first: Path, tmp_path: Path) -> None:
    done = call("export", first, tmp_path / "run.zip", "--license", "CC-BY-4.0")
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    assert verified(tmp_path / "unpacked")
    assert "all as the run left them" in call("show", tmp_path / "unpacked").stdout
    found = list(csv.DictReader((tmp_path / "unpacked" / "rows.csv").read_text().splitlines()))
    assert {row["RunId"] for row in found} == {first.name} and len(found) == 4
