"""Names of shipped files, --version and shell completion, as a shell asks for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete, get_completion_class
from click.testing import CliRunner

from containernet_env.base import assets
from containernet_env.base.errors import ContainernetEnvError, UsageError
from containernet_env.cli import group, main
from containernet_env.cli.files import CONFIG, SCENARIOS
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.results.csv_file import ResultsFile
from containernet_env.runs import version

COMPLETE = "_CONTAINERNET_ENV_COMPLETE"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def completions(*arguments: str, incomplete: str = "") -> list[tuple[str, str]]:
    """Type and value of what is offered after ``containernet-env ARGUMENTS``."""
    found = ShellComplete(group, {}, "containernet-env", COMPLETE).get_completions(list(arguments), incomplete)
    return [(item.type, str(item.value)) for item in found]


def names(path: Path) -> list[tuple[str, str]]:
    return [("plain", scenario.name) for scenario in load_scenarios(path).scenarios]


def test_name_of_a_shipped_config_needs_no_path() -> None:
    result = CliRunner().invoke(group, ["check", "3node-3ms"], standalone_mode=False)
    assert result.exception is None
    assert result.output.startswith(f"{assets.ROOT}/configs/3node-3ms.json: 3 members")


@pytest.mark.parametrize("given", ["1node", "1node.json"])
def test_shipped_file_is_found_by_its_name(given: str) -> None:
    assert CONFIG.convert(given, None, None) == assets.ROOT / "configs" / "1node.json"
    assert SCENARIOS.convert("quick", None, None) == QUICK_SCENARIOS


@pytest.mark.parametrize("given", ["none", "./1node", "other/1node.json", "scenarios", "default"])
def test_what_is_not_the_name_of_a_shipped_config_stays_a_path(given: str) -> None:
    assert CONFIG.convert(given, None, None) == Path(given)


def test_the_users_own_file_comes_first(folder: Path) -> None:
    (folder / "1node.json").write_text("[]")
    assert CONFIG.convert("1node.json", None, None) == Path("1node.json")


@pytest.mark.parametrize("command", [("check",), ("run", "--quick", "--dry-run")])
def test_brackets_in_a_files_name_are_shown(folder: Path, command: tuple[str, ...]) -> None:
    """Only a name in brackets: a console would take it for a colour."""
    (folder / "[red]").mkdir()
    shipped = Path(assets.__file__).parents[2] / "configs" / "3node-3ms.json"
    own = folder / "[red]" / "lan.json"
    own.write_text(shipped.read_text())
    done = CliRunner().invoke(group, [command[0], str(own), *command[1:]])
    assert "[red]/lan.json" in done.output


def test_version_has_the_commit() -> None:
    result = CliRunner().invoke(group, ["--version"])
    assert (result.exit_code, result.output) == (0, f"containernet-env {version.text()}\n")


def test_verbs_are_completed() -> None:
    assert completions(incomplete="che") == [("plain", "check")]


def test_only_completes_types_and_names_of_the_default_scenarios() -> None:
    offered = completions("run", "3node-3ms", "out.csv", "--only")
    assert offered == [("plain", "write"), ("plain", "read"), *names(DEFAULT_SCENARIOS)]
    assert completions("run", "--only", incomplete="read-lin")[0][1].startswith("read-linearizable-")


def test_only_knows_quick_scenarios_and_those_of_a_file() -> None:
    assert completions("run", "--quick", "--only")[2:] == names(QUICK_SCENARIOS)
    assert completions("run", "--scenarios", "open-loop", "--only", incomplete="write-") == [
        item for item in names(DEFAULT_SCENARIOS.with_name("open-loop.json")) if item[1].startswith("write-")
    ]


def test_only_knows_the_scenario_file_that_a_config_names(folder: Path) -> None:
    node = {"name": "etcd1", "ip": "10.0.0.2", "mem": "512m", "cpus": 1, "bandwidth": 100, "link_delay": "1ms"}
    (folder / "own.json").write_text(json.dumps({"nodes": [node], "scenarios": "quick.json"}))
    (folder / "quick.json").write_bytes(QUICK_SCENARIOS.read_bytes())
    assert completions("run", "own.json", "--only", incomplete="write-") == [
        item for item in names(QUICK_SCENARIOS) if item[1].startswith("write-")
    ]


def test_only_offers_nothing_where_the_files_are_wrong(folder: Path) -> None:
    (folder / "bad.json").write_text("{")
    assert completions("run", "bad.json", "--only") == []
    assert completions("run", "--scenarios", "absent.json", "--only") == []


def test_config_and_out_complete_files_and_configs_by_name_where_there_is_no_file(folder: Path) -> None:
    assert completions("run", incomplete="3node") == [("plain", "3node"), ("plain", "3node-3ms")]
    assert ("plain", "wan-50ms") in completions("check")
    assert completions("check", incomplete="no-such") == [("file", "no-such")]
    assert completions("check", incomplete="./3") == [("file", "./3")]
    (folder / "3node-own.json").write_text("[]")
    assert completions("shell", incomplete="3node") == [("file", "3node")]
    assert completions("run", "3node-3ms", incomplete="o") == [("file", "o")]
    assert completions("results", incomplete="o") == [("file", "o")]
    assert completions("run", "--scenarios", incomplete="open") == [("plain", "open-loop")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    found = get_completion_class(shell)
    assert found is not None
    assert COMPLETE in found(group, {}, "containernet-env", COMPLETE).source_template % {
        "complete_func": "f",
        "complete_var": COMPLETE,
        "prog_name": "containernet-env",
    }


def test_completion_of_verbs_imports_none_of_them() -> None:
    code = (
        "import sys; from click.shell_completion import ShellComplete; from containernet_env.cli import group; "
        f"ShellComplete(group, {{}}, 'containernet-env', '{COMPLETE}').get_completions([], ''); "
        "print({'docker', 'pandas', 'pydantic', 'mininet.node', 'containernet_env.cli.run'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=assets.ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize("words", [["check", "x" * 300], ["run", "3node-3ms", "x" * 300, "--dry-run"]])
def test_a_name_that_is_too_long_for_a_file_is_refused(words: list[str]) -> None:
    """OSError, with a traceback."""
    result = CliRunner().invoke(group, words, standalone_mode=False)
    assert isinstance(result.exception, ContainernetEnvError) and "File name too long" in str(result.exception)


def test_rows_for_a_file_whose_name_is_too_long_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="File name too long"):
        ResultsFile(folder / ("x" * 300)).open()


@pytest.mark.parametrize("command", [["results"], ["show"], ["check"], ["run", "3node-3ms", "--dry-run"]])
def test_a_name_that_is_too_long_for_the_disk_is_said_so(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`results` ended with the system's own words and no command's."""
    name = "x" * 300
    with pytest.raises(SystemExit) as ended:
        main([*command, name])
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert "File name too long" in said, said
    assert "[Errno" not in said


def test_the_scenarios_of_a_thousand_repetitions_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """18,000 lines took 15 s."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "3node-3ms", "--quick", "--dry-run", "--repeat", "1000"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert said.count("write-leader-50x1x1-4B-64B") == 1 and "1000 repetitions of these" in said
    assert "18000 scenarios from" in said
