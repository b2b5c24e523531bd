"""The shell's commands on a network that dies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.cli import shell
from containernet_env.containernet import command_line as commandline


def test_no_command_is_begun_on_a_network_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed: Any = SimpleNamespace(net=None, failure=None)
    ran: list[str] = []

    def run_command(net: Any, line: str) -> int:
        ran.append(line)
        testbed.failure = "the link emulator ended" if line == "second" else None
        return 0

    monkeypatch.setattr(commandline, "run_command", run_command)
    assert shell._run_commands(testbed, ("first", "second", "third")) == 0
    assert ran == ["first", "second"]


def test_the_end_of_the_network_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    shell._tell_failure("testbed_failed", "the link emulator ended: killed by SIGKILL")
    assert "the link emulator ended: killed by SIGKILL; the network is gone" in capsys.readouterr().err
