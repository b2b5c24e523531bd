"""The shell: commands with their exit status, the seed's calls from outside, a clean end."""

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
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadline import HANG_S, eventually
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import CONFIG, PORT, PROJECT, call

pytestmark = pytest.mark.docker

# The two calls of the document, literally; the second has the wrong path.
SEED_READ = (
    '{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, '
    '"key": "foo", "endRange": "foo3", "consistency": "l"}'
)
SEED_WRITE = (
    '{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, '
    '"keySize": 4, "valSize": 64, "targetLeader": true, "sequentialKeys": true}'
)


def shell(*commands: str) -> subprocess.CompletedProcess[str]:
    return call("shell", CONFIG, "--port", PORT, *(word for command in commands for word in ("-c", command)))


def test_commands_run_in_their_hosts_and_measure_and_record_without_programs_there(tmp_path: Path) -> None:
    recording = tmp_path / "etcd1.pcap"
    done = shell(
        "etcd1 etcdctl member list",
        "pingall",
        "iperf etcd1 etcd2 1",
        f"capture etcd1 {recording}",
        "etcd1 ping -c 3 -i 0.2 etcd2",
        "capture stop",
        "jitter etcd1 s1 500us",
        "links",
        "pingpair",
        "dump",
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
    words = "  up  both ways: delay 3ms, jitter 500us (uniform, correlation 5ms), rate 1000 Mbit/s"
    assert words in first, first
    assert "Without SECONDS it goes on until" in done.stdout


def rtts_in(output: str) -> list[float]:
    """The RTTs that ping printed (ms)."""
    return [float(value) for value in re.findall(r"time=([0-9.]+) ms", output)]


def test_links_change_while_it_runs() -> None:
    unreached = "etcd1 sh -c '! ping -c 1 -W 1 10.0.0.252'"
    done = shell(
        "link etcd1 s1 down",
        unreached,
        "link etcd1 s1 up",
        "delay etcd1 s1 20ms",
        "etcd1 ping -c 3 -i 0.2 etcd2",
        "delay s1 etcd1 3ms one-way",
        "rate etcd1 s1 100",
        "etcd1 ping -c 1 etcd2",
        "loss etcd1 s1 100%",
        unreached,
        "loss etcd1 s1 0%",
        "partition etcd1 | etcd2 etcd3",
        unreached,
        "etcd2 ping -c 1 etcd3",
        "heal",
        "etcd1 ping -c 1 etcd2",
        "help delay",
        "delay etcd1 s1 10",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "with its unit" in done.stderr
    assert "delay 20ms between etcd1 and s1, both ways (at " in done.stdout
    assert "both ways or as the first sends" in done.stdout
    # Never sooner than the delays that are configured: 20 ms twice and 3 ms twice, one of them 3 ms again, all 3 ms.
    for rtt, least in zip(rtts_in(done.stdout), (46, 46, 46, 29, 12, 29), strict=True):
        assert rtt >= least, done.stdout


def test_a_link_emulator_that_is_killed_ends_it() -> None:
    kill = "sh E=$(pgrep -P $PPID -x link-emulator); kill -9 $E; while kill -0 $E 2>/dev/null; do :; done"
    done = shell(kill, "etcd1 echo not reached")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "error: the link emulator ended: killed by SIGKILL; the network is gone" in done.stderr
    assert "not reached" not in done.stdout


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


@pytest.fixture
def session() -> Iterator[Session]:
    before = snapshot()
    # The document's own way in, with a Python that has none of our packages.
    opened = Session(sys.executable, str(PROJECT / "containernet_env" / "main.py"), "-c", str(CONFIG))
    try:
        opened.wait_for("containernet> ")
        yield opened
        opened.type("exit")
    finally:
        opened.close()
    assert opened.process.returncode == 0, opened.seen
    assert left_over(before) == {}


def post(path: str, body: str) -> tuple[int, dict[str, object]]:
    """Send it as curl -d does, with curl's content type."""
    request = urllib.request.Request(f"http://127.0.0.1:8080{path}", data=body.encode())
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_documents_calls_work_from_outside(session: Session) -> None:
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
    session.type("etcd1 etcdctl member list")
    assert "etcd3" in session.wait_for("10.0.0.253:2379")
    session.wait_for("containernet> ")
    session.type("etcd1 ping etcd2")
    session.wait_for("time=")
    os.write(session._terminal, b"\x03")  # Ctrl-C ends the command, not the session
    session.wait_for("containernet> ")


def test_no_command_ends_the_session(session: Session) -> None:
    for line, said in (
        ("iperf etcd1 etcd2 1", "Mbit/s over 1."),
        ("iperf etcd1 nobody", "*** 'nobody' is no host"),
        ("iperfudp", "*** iperfudp is not offered"),
        ("delay etcd1 s1 10", "*** "),
        ("switch nosuch stop", "invalid switch"),
        ("x nobody", "*** KeyError: 'nobody'"),
        ("pingpair", "0% dropped"),
        ("help jitter", "let a link's delay vary"),
        ("links", "benchmark-eth0 <-> s1-eth"),
        ("xterm etcd1", ""),
    ):
        session.type(line)
        assert said in session.wait_for("containernet> "), line
