"""Link and process faults of one moment take effect together, on the link emulator and a real process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from containernet_env.containernet.network import Containernet
from containernet_env.runs.at_once import at_once
from tests.root.network import keywords_of, machine_interfaces, needs_emulator, needs_root

pytestmark = [
    pytest.mark.root,
    needs_root,
    needs_emulator,
    pytest.mark.skipif(not shutil.which("mnexec"), reason="mnexec is not installed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

MS = 1_000_000
ROUNDS = 15


def test_link_and_process_faults_take_effect_within_10_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each change of a link is read back from tc, which takes longer than that."""
    before = machine_interfaces()
    with (
        Containernet(controller=None, **keywords_of("emulator", monkeypatch)) as net,
        subprocess.Popen(["sleep", "600"]) as process,
    ):
        net.addSwitch("s1")
        for name in ("h1", "h2", "h3"):
            net.addHost(name)
            net.addLink(name, "s1", bw=100)
        net.start()
        spreads, latenesses = [], []
        try:
            for number in range(ROUNDS):
                times: list[int] = []

                def kept(change: Callable[[], int], times: list[int] = times) -> Callable[[], None]:
                    return lambda: times.append(change())

                def stop() -> int:
                    os.kill(process.pid, signal.SIGSTOP)
                    return time.monotonic_ns()

                due_ns = time.monotonic_ns() + 50 * MS
                links = [
                    kept(lambda: net.link_down("h1", "s1")),
                    kept(lambda number=number: net.set_delay("h2", "s1", f"{10 + number}ms")),
                    kept(lambda number=number: net.set_rate("h3", "s1", 50 + number)),
                    kept(lambda: net.partition([["h1"], ["h2", "h3"]])),
                ]
                at_once(links, [kept(stop)], True, due_ns)
                assert len(times) == 5
                spreads.append(max(times) - min(times))
                latenesses.append(max(times) - due_ns)
                os.kill(process.pid, signal.SIGCONT)
                net.heal()
                net.link_up("h1", "s1")
        finally:
            process.kill()
        text = f"spread {sorted(spreads)} ns, late {sorted(latenesses)} ns"
        print(text)
        assert sorted(spreads)[ROUNDS // 2] < 10 * MS, text
        assert sorted(latenesses)[ROUNDS // 2] < 10 * MS, text
    assert machine_interfaces() == before
