"""The program that measures round trips, and the link emulator, as processes that hang, crash or take their time."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from containernet_env.base.errors import Interrupted, RunError
from containernet_env.fidelity import prober as prober_module
from containernet_env.fidelity.rtt import ProbeHost, measure
from containernet_env.model.topology import RttExpectation
from containernet_env.network.emulator import process
from containernet_env.network.emulator.process import LinkEmulator

DIED = "the link emulator ended: killed by SIGKILL"


def test_nobody_waits_for_round_trips_on_a_dead_network(tmp_path: Path) -> None:
    prober = tmp_path / "prober"
    prober.write_text("#!/bin/sh\nexec sleep 600\n")
    prober.chmod(0o755)
    news = iter([None, None, DIED])
    with pytest.raises(RunError, match=DIED):
        measure(
            [ProbeHost("a", 1, "10.0.0.1"), ProbeHost("b", 1, "10.0.0.2")],
            [RttExpectation("a", "b", 0, 0)],
            binary=prober,
            broken=lambda: next(news),
        )


def test_the_prober_gets_its_request_and_is_waited_for_over_several_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prober_module, "_LOOK_S", 0.01)
    prober = tmp_path / "prober"
    answer = '{"pairs":[{"a":"a","b":"b","sent":1,"lost":0,"samples_ns":[5]}]}'
    prober.write_text(f"#!/bin/sh\nsleep 0.1\ngrep -q '\"ip\": \"10.0.0.2\"' && echo '{answer}'\n")
    prober.chmod(0o755)
    hosts = [ProbeHost("a", 1, "10.0.0.1"), ProbeHost("b", 1, "10.0.0.2")]
    table = measure(hosts, [RttExpectation("a", "b", 0, 0)], binary=prober)
    assert table.pairs[0].measured_ns == 5


def test_a_crash_of_the_prober_is_told_by_its_first_line(tmp_path: Path) -> None:
    prober = tmp_path / "prober"
    prober.write_text("#!/bin/sh\ncat >&2 <<.\npanic: no room\n\ngoroutine 1 [running]:\nmain.main()\n.\nexit 2\n")
    prober.chmod(0o755)
    hosts = [ProbeHost("a", 1, "10.0.0.1"), ProbeHost("b", 1, "10.0.0.2")]
    with pytest.raises(RunError, match=r"^the RTT measurement failed: exit status 2: panic: no room$"):
        measure(hosts, [RttExpectation("a", "b", 0, 0)], binary=prober)


def test_a_prober_ends_where_its_run_is_interrupted(tmp_path: Path) -> None:
    """Ctrl-C during the network's proof: the tear-down waited for the prober to end by itself."""
    binary = tmp_path / "prober"
    binary.write_text("#!/bin/sh\nexec sleep 6000\n")
    binary.chmod(0o755)

    def interrupt() -> None:
        raise Interrupted(signal.SIGINT)

    with pytest.raises(Interrupted):
        prober_module.ask("probe", {}, 60.0, interrupt, binary)


def test_a_stopped_link_emulator_is_killed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not see its control connection close."""
    monkeypatch.setattr(process, "_END_DEADLINE_S", 0.2)
    emulator = LinkEmulator("/bin/true", lambda kind, text: None)
    emulator._process = stopped = subprocess.Popen(["sleep", "600"])  # type: ignore[assignment]
    stopped.send_signal(signal.SIGSTOP)
    try:
        emulator.stop()
        assert stopped.poll() == -signal.SIGKILL
    finally:
        stopped.kill()
        stopped.wait()
