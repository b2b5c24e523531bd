"""The shell: commands with their exit status, the seed's calls from outside, a clean end; and a Containernet script."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.deadline import HANG_S, eventually
from tests.docker.runs import CONFIG, PROJECT, SEED_READ, SEED_WRITE, call

pytestmark = pytest.mark.docker


def shell(*commands: str) -> subprocess.CompletedProcess[str]:
    return call("shell", CONFIG, "--port", 18080, *(word for command in commands for word in ("-c", command)))


def test_commands_run_in_their_hosts_and_measure_and_record_without_programs_there(tmp_path: Path) -> None:
    recording = tmp_path / "etcd1.pcap"
    done = shell(
        "etcd1 etcdctl member list",
        "pingall",
        "etcd1 bash -c '! (exec 3<>/dev/tcp/10.0.0.254/8080)'",  # no member reaches the benchmark server
        "iperf etcd1 etcd2 1",
        f"capture etcd1 {recording}",
        "etcd1 ping -c 3 -i 0.2 etcd2",
        "capture stop",
        "jitter etcd1 s1 500us",
        "links",
        "pingpair",
        "dump",
        "leader",
        "kill etcd3",
        "restart etcd3",
        "etcd3 etcdctl endpoint health",
        "freeze etcd1",
        "thaw etcd1",
        "help capture",
        f"capture etcd2 {tmp_path / 'short.pcap'} 0.5",
        "etcd2 exit 7",
        "etcd1 echo not reached",
    )
    assert done.returncode == 7, done.stdout + done.stderr
    assert "not reached" not in done.stdout
    assert len(re.findall(r"started, etcd[123], http://10\.0\.0\.25[123]:2380", done.stdout)) == 3
    assert all(rtt >= 12.0 for rtt in rtts_in(done.stdout)), done.stdout
    assert "0% dropped" in done.stdout
    assert re.search(r"etcd1 -> etcd2: [0-9.]+ Mbit/s over 1\.\d s \(TCP cubic\)", done.stdout), done.stdout
    frames = re.search(rf"etcd1: (\d+) frames in {recording}", done.stdout)
    assert frames is not None, done.stdout
    assert int(frames[1]) >= 6
    assert recording.stat().st_size > 24 + 6 * (16 + 98)
    first = next(line for line in done.stdout.splitlines() if line.startswith("etcd1-eth0 <-> s1-eth"))
    words = "  up  both ways: delay 3ms, jitter 500us (uniform, correlation 5ms), bandwidth 1000 Mbit/s"
    assert words in first, first
    assert "Without SECONDS it continues until" in done.stdout
    assert re.search(r"<NetworkSwitch s1: s1-eth1:None,", done.stdout), done.stdout
    for said in (r"etcd[123] leads, in term \d+", "etcd3: killed", "etcd3: started again, and answers",
                 "is healthy: successfully committed", "etcd1: frozen", "etcd1: going on"):  # fmt: skip
        assert re.search(said, done.stdout), done.stdout


def rtts_in(output: str) -> list[float]:
    """The RTTs that ping printed (ms)."""
    return [float(value) for value in re.findall(r"time=([0-9.]+) ms", output)]


def test_a_link_emulator_that_is_killed_ends_it() -> None:
    kill = "sh E=$(pgrep -P $PPID -x link-emulator); kill -9 $E; while kill -0 $E 2>/dev/null; do :; done"
    # Whether the second command begins is open: the emulator can be reaped before its end is known.
    done = shell(kill, "etcd1 true")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "error: the link emulator ended: killed by SIGKILL; the network is gone" in done.stderr


class Session:
    """The interactive shell on a terminal of its own."""

    def __init__(self, *argv: str) -> None:
        self._terminal, inside = pty.openpty()
        # The terminal has to be the controlling one, or its Ctrl-C would reach nobody.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *argv], stdin=inside, stdout=inside, stderr=inside, start_new_session=True
        )
        os.close(inside)
        self.seen, self.taken = "", 0

    def wait_for(self, text: str) -> str:
        """Read until `text` appears; what was read since the end of what was last waited for."""
        begin = self.taken

        def seen() -> bool:
            assert text in self.seen[begin:] or self.read(), f"it ended without {text!r}: {self.seen[begin:]}"
            return text in self.seen[begin:]

        eventually(seen, f"{text!r} on the terminal")
        self.taken = self.seen.index(text, begin) + len(text)
        return self.seen[begin : self.taken]

    def type(self, line: str) -> None:
        os.write(self._terminal, line.encode() + b"\n")

    def close(self) -> None:
        """End it, politely first; drain the terminal so that it is not blocked on its own output."""
        try:
            eventually(lambda: not self.read() or self.process.poll() is not None, "its end")
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(HANG_S)
            os.close(self._terminal)

    def read(self) -> bool:
        """Take in what is there; False once the other side has closed."""
        if select.select([self._terminal], [], [], 0)[0]:
            try:
                self.seen += os.read(self._terminal, 4096).decode(errors="replace")
            except OSError:  # EIO: the other side is closed
                return False
        return True


def post(path: str, body: str) -> tuple[int, dict[str, object]]:
    """Send it as curl -d does, with curl's content type."""
    request = urllib.request.Request(f"http://127.0.0.1:8080{path}", data=body.encode())
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.usefixtures("unchanged_machine")
def test_the_documents_calls_work_from_outside_and_ctrl_c_does_not_end_the_session() -> None:
    # The document's own way in, with a Python that has none of our packages.
    session = Session(sys.executable, str(PROJECT / "containernet_env" / "main.py"), "-c", str(CONFIG))
    try:
        session.wait_for("containernet> ")
        calls_from_outside()
        session.type("etcd1 ping etcd2")
        session.wait_for("time=")
        os.write(session._terminal, b"\x03")  # Ctrl-C ends the command, not the session
        session.wait_for("containernet> ")
        session.type("exit")
    finally:
        session.close()
    assert session.process.returncode == 0, session.seen


def calls_from_outside() -> None:
    status, answer = post("/benchmark/read", SEED_READ)
    assert status == 200, answer
    assert answer["ok"] == 1000
    status, answer = post("/benchmark/write", SEED_WRITE)
    assert status == 200, answer
    assert answer["ok"] == 1000
    status, answer = post("/benchmark/read", SEED_WRITE)
    assert status == 400
    assert "/benchmark/write" in str(answer["error"])
    status, answer = post("/benchmark/read", SEED_READ.replace("10.0.0.251", "10.0.0.254"))  # no member
    assert status == 403
    assert "--allow=" in str(answer["error"])


SCRIPT = Path(__file__).with_name("containernet_script.py")
COMMANDS = (
    "nodes", "net", "dump", "links", "pingall", "pingallfull", "iperf d1 d2", "iperfudp 1M d1 d2",
    "d1 ping -c 5 -i 0.3 d2", "link d1 s1 down", "pingall 1", "link d1 s1 up",
    "pingall", "link d1 s2 up", "s1 echo from the switch", "d1 exit 3", "d1 echo a new shell",
    "c0 echo from the controller", "nosuch", "exit",
)  # fmt: skip
SAID = (
    "c0 d1 d2 s1 s2", "<Docker d1: ", " d1->d2: 1/1, rtt ", "*** iperf by UDP is not offered",
    "10.0.0.251 pid=", "there is no link between d1 and s2", "from the switch",
    "a new shell", "from the controller", "Unknown command: nosuch",
)  # fmt: skip


def run_script(image: str, commands: str, *more: str) -> subprocess.CompletedProcess[str]:
    argv, environment = [sys.executable, str(SCRIPT), image, *more], {**os.environ, "PYTHONPATH": str(PROJECT)}
    output: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(argv, input=commands, env=environment, timeout=HANG_S, check=False, **output)


@pytest.mark.usefixtures("unchanged_machine")
def test_a_script_runs_and_leaves_nothing(image: str) -> None:
    done = run_script(image, "".join(f"{command}\n" for command in COMMANDS))
    said = done.stdout
    assert done.returncode == 0 and all(words in said for words in SAID), said
    assert re.search(r"\bd1 d1-eth0:s1-eth1$", said, re.MULTILINE), said
    assert said.count("(OK OK)") == 3
    assert re.search(r"^\*\*\* Results: \['[\d.]+ [KM]bits/sec', ", said, re.MULTILINE), said
    assert said.count("0% dropped (2/2 received)") == 3
    assert said.count("100% dropped (0/2 received)") == 1
    # Each way crosses the slow link once: 100 ms and 0.784 ms of sending 98 bytes at 1 Mbit/s, and never sooner.
    times = rtts_in(said)
    assert len(times) == 5 and min(times) >= 201, said


@pytest.mark.usefixtures("unchanged_machine")
def test_a_script_that_forgets_to_stop_leaves_nothing_either(image: str) -> None:
    done = run_script(image, "exit\n", "fail")
    assert done.returncode == 5, done.stdout
