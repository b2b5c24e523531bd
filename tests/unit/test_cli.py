"""What a user reads who mistypes a command or names a file that is none: one message, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from containernet_env import cli
from containernet_env.config.reader import MAX_FILE_BYTES

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "1node.json"
HELP = "Usage: containernet-env [OPTIONS] COMMAND [ARGS]...\nTry 'containernet-env --help' for help.\n\nError: "


def told(capsys, *arguments, status=2):
    """What stands on standard error of a command that is refused."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (status, "")
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (["Check", "x"], "No such command 'Check'. Did you mean 'check'?"),
        (
            ["frobnicate"],
            f"No such command 'frobnicate'. The commands are {', '.join(cli.COMMANDS)}.",
        ),
        (
            ["mine.json", "out.csv"],
            "No such command 'mine.json'. Did you mean: containernet-env run mine.json?",
        ),
        (
            ["--quik", "mine.json"],
            "No such option '--quik'. Options stand after the command: containernet-env run --quick ...",
        ),
        (["--xyz"], "No such option '--xyz'."),
        (["--versio"], "No such option '--versio'. Did you mean '--version'?"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(capsys, arguments, message):
    assert told(capsys, *arguments) == f"{HELP}{message}\n"


def test_an_unknown_option_of_a_command_gets_a_suggestion(capsys):
    assert "No such option '--quik'. (Did you mean one of: '--links', '--quick'?)" in told(capsys, "run", "--quik")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "cpu,heap"], "Invalid value for '--profile': got 'heap', allowed: cpu, allocs, mutex, with"),
        (["--profile", ""], "Invalid value for '--profile': got '', allowed: cpu, allocs, mutex, with commas between"),
        (["--profile-member", "etcd1"], "profile_member='etcd1' without profile: say which profiles are taken"),
        (["--profile", "cpu", "--profile-member", "x"], "profile_member='x' is no member of"),
        (["--links-cpu", "-1"], "Invalid value for '--links-cpu': -1 is not in the range x>=0."),
        (["--links-cpu", "4096"], "links_cpu=4096 is no core that this process may use; allowed: 0"),
    ],
)
def test_what_is_profiled_and_which_core_is_kept_is_checked_before_anything_exists(capsys, arguments, message):
    assert message in told(capsys, "run", str(CONFIG), "--dry-run", *arguments)


@pytest.mark.parametrize(
    ("command", "form", "example"),
    [
        ("run", "[OPTIONS] CONFIG [OUT]", "run configs/3node-3ms.json results/mine.csv"),
        ("check", "[OPTIONS] CONFIG", "check configs/3node-3ms.json"),
        ("shell", "[OPTIONS] CONFIG", "shell configs/3node-3ms.json"),
    ],
)
def test_a_missing_argument_comes_with_an_example(capsys, command, form, example):
    assert told(capsys, command) == (
        f"Usage: containernet-env {command} {form}\n"
        f"Try 'containernet-env {command} --help' for help.\n\n"
        "Error: Missing argument 'CONFIG'.\n"
        f"For example: containernet-env {example}\n"
    )


def test_every_command_is_a_module_and_listed_in_the_help(capsys):
    err = told(capsys)
    listed = err[err.index("\nCommands:\n") :]
    for name in cli.COMMANDS:
        assert f"\n  {name} " in listed
        with pytest.raises(SystemExit) as ended:
            cli.main([name, "--help"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"Usage: containernet-env {name} ")
    assert "verb" not in err.lower()


@pytest.mark.parametrize("command", [["check"], ["run", "--dry-run"]])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "  file: cannot be read: No such file or directory\n"),
        (b"", "  file: is empty; got 0 bytes; allowed: one JSON value\n"),
        (b"\x7fELF\x02\x01\x01\x00\xc0", "  line 1, column 9: is not UTF-8 text; got 0xc0\n"),
        (b"\x00\x00", "  line 1, column 1: is not JSON: expecting value; got \\x00\\x00\n"),
        (b" " * (5 << 20), f"  file: is too large; got more than {MAX_FILE_BYTES} bytes; allowed: 1048576 bytes\n"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", b"\xff.json"])
def test_a_file_that_is_no_config(capsys, tmp_path, command, content, message, name):
    path = tmp_path / os.fsdecode(name)
    if content is not None:
        path.write_bytes(content)
    assert told(capsys, *command, str(path)).endswith(f".json is refused:\n{message}")


def test_standard_input_is_not_read(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told(capsys, "check", "-") == (
        "Error: - is refused:\n  file: cannot be read: No such file or directory (standard input is not read)\n"
    )


def test_a_directory_is_no_config(capsys, tmp_path):
    for command in ("check", "run"):
        assert f"File '{tmp_path}' is a directory." in told(capsys, command, str(tmp_path))


def test_a_file_that_may_not_be_read(capsys, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # to root every file is readable
    assert told(capsys, "check", "x.json").endswith("  file: cannot be read: Permission denied\n")


@pytest.mark.parametrize("command", [["check"], ["run", "--dry-run"]])
def test_a_good_file_may_have_any_name(tmp_path, command):
    path = os.fsencode(tmp_path) + b"/\xff.json"
    Path(os.fsdecode(path)).write_bytes(CONFIG.read_bytes())
    program = "from containernet_env.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *command, path], capture_output=True, cwd=ROOT, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\udcff.json" in done.stdout
