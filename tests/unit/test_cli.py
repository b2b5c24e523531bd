"""What a user reads who mistypes a command or names a file that is none, names of shipped files, and completion.

The messages are in the snapshot: pytest tests/unit/test_cli.py --snapshot-update.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click import BadParameter
from click.shell_completion import ShellComplete
from syrupy.assertion import SnapshotAssertion

from containernet_env import cli
from containernet_env.base import assets
from containernet_env.cli.arguments import CONFIG, SCENARIOS
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.runs import version
from tests.unit.commands import answer

COMPLETE = "_CONTAINERNET_ENV_COMPLETE"
SHIPPED = assets.ROOT / "configs" / "1node.json"
LONG = "x" * 300


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    return tmp_path


MISTAKES = [
    *("rnu", "Check x", "frobnicate", "mine.json out.csv", "--quik mine.json", "--xyz", "--versio", "run --quik"),
    *("run", "check", "shell", "check -", "check FOLDER", "run FOLDER"),
    *(f"run 1node --dry-run --profile {value}" for value in ("cpu,heap", "''", "cpu --profile-member x")),
    *(f"run 1node --dry-run {options}" for options in ("--profile-member etcd1", "--links-cpu -1", "--links-cpu 4096")),
    *(f"run 3node-3ms out.csv --links {links}" for links in ("emulator --switches ovs", "auto --switches bridge")),
    *("sweep put-client", "sweep DBTESTER-write.json", "run 3nod-3ms", "run 3node-3ms --scenarios failovr"),
    *("check something", "check SHIPPED/3node-3m.json"),
    *(f"{command} LONG" for command in ("results", "show", "check", "run 3node-3ms --dry-run", "run --dry-run")),
]


def test_a_command_that_cannot_be_meant_is_answered(folder: Path, snapshot: SnapshotAssertion) -> None:
    told = {}
    for line in MISTAKES:
        known = {"FOLDER": str(folder), "LONG": LONG, "''": ""}
        words = [known.get(word, word.replace("SHIPPED", str(SHIPPED.parent))) for word in line.split()]
        told[line] = answer(*words, folder=folder).replace(LONG, "LONG")
    assert all(text.startswith("exit status 2\n") and "[Errno" not in text for text in told.values())
    assert told == snapshot


def test_every_command_is_a_module_and_listed_in_the_help(snapshot: SnapshotAssertion) -> None:
    listed = answer()
    for name in cli.COMMANDS:
        assert f"\n  {name} " in listed
        assert answer(name, "--help").startswith(f"exit status 0\nUsage: containernet-env {name} ")
    assert listed == snapshot


def test_a_file_that_is_no_config(folder: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    told = {}
    for content in (None, b"\x7fELF\x02\x01\x01\x00\xc0"):
        for path in (folder / "config.json", folder / os.fsdecode(b"\xff.json")):
            if content is not None:
                path.write_bytes(content)
            told[str(content)[:40]] = answer("check", path, folder=folder)
            assert answer("run", "--dry-run", path, folder=folder) == told[str(content)[:40]]
    assert told == snapshot
    monkeypatch.setattr(Path, "open", refuse)  # to root every file is readable
    assert answer("check", "x.json").endswith("  file: cannot be read: Permission denied\n")


@pytest.mark.parametrize("name", [b"\xff.json", b"[red]/lan.json"])
def test_a_good_file_may_have_any_name(folder: Path, name: bytes) -> None:
    """In brackets a console would take it for a colour."""
    path = folder / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(SHIPPED.read_bytes())
    for command in (["check"], ["run", "--quick", "--dry-run"]):
        shown = answer(*command, path).replace("\\udcff", "\\xff")
        assert shown.startswith("exit status 0\n") and name.decode(errors="backslashreplace")[-14:] in shown


def test_the_scenarios_of_many_repetitions_are_shown_once(folder: Path) -> None:
    """18,000 lines took 15 s."""
    said = answer("run", "3node-3ms", "--quick", "--dry-run", "--repeat", "100")
    assert said.count("write-leader-50x1x1-4B-64B") == 1 and "100 repetitions of these" in said
    assert "1800 scenarios from" in said
    assert answer("--version") == f"exit status 0\ncontainernet-env {version.text()}\n"


# --- names of shipped files -------------------------------------------------------------------------------------------


def test_a_shipped_file_is_found_by_its_name_and_the_users_own_comes_first(folder: Path) -> None:
    for given in ("1node", "1node.json"):
        assert CONFIG.convert(given, None, None) == SHIPPED
    assert SCENARIOS.convert("quick", None, None) == QUICK_SCENARIOS
    for given in ("./1node", "other/1node.json"):
        assert CONFIG.convert(given, None, None) == Path(given)
    for given in ("elsewhere", "scenarios", "default"):
        with pytest.raises(BadParameter, match=f"there is no file '{given}'; allowed: a file, or one of 1node"):
            CONFIG.convert(given, None, None)
    (folder / "1node.json").write_text("[]")
    assert CONFIG.convert("1node.json", None, None) == Path("1node.json")


# --- completion, as a shell asks for it -------------------------------------------------------------------------------


def completions(line: str) -> list[tuple[str, str]]:
    """Type and value of what is offered for the last word of a line, which may be empty."""
    *words, last = line.split(" ")
    found = ShellComplete(cli.group, {}, "containernet-env", COMPLETE).get_completions(words, last)
    return [(item.type, str(item.value)) for item in found]


def names(path: Path, start: str = "") -> list[tuple[str, str]]:
    return [("plain", one.name) for one in load_scenarios(path).scenarios if one.name.startswith(start)]


def test_only_completes_types_and_names_of_the_scenarios_that_are_chosen(folder: Path) -> None:
    types = [("plain", "write"), ("plain", "read")]
    assert completions("run 3node-3ms out.csv --only ") == [*types, *names(DEFAULT_SCENARIOS)]
    assert completions("run --quick --only ")[2:] == names(QUICK_SCENARIOS)
    open_loop = DEFAULT_SCENARIOS.with_name("open-loop.json")
    assert completions("run --scenarios open-loop --only write-") == names(open_loop, "write-")
    node = {"name": "etcd1", "ip": "10.0.0.2", "mem": "512m", "cpus": 1, "bandwidth": 100, "link_delay": "1ms"}
    (folder / "own.json").write_text(json.dumps({"nodes": [node], "scenarios": "quick.json"}))
    (folder / "quick.json").write_bytes(QUICK_SCENARIOS.read_bytes())
    assert completions("run own.json --only write-") == names(QUICK_SCENARIOS, "write-")
    (folder / "bad.json").write_text("{")
    assert completions("run bad.json --only ") == completions("run --scenarios absent.json --only ") == []


def test_configs_complete_by_name_where_there_is_no_file(folder: Path) -> None:
    assert completions("che") == [("plain", "check")]
    assert completions("run 3node-") == [("plain", "3node-3ms"), ("plain", "3node-traces")]
    assert ("plain", "wan-50ms") in completions("check ")
    assert completions("run --scenarios open") == [("plain", "open-loop")]
    (folder / "3node-own.json").write_text("[]")
    for line in ("check no-such", "check ./3", "shell 3node", "run 3node-3ms o", "results o"):
        assert completions(line) == [("file", line.split(" ")[-1])]
