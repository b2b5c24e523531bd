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
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.conftest import COMMAND, PROJECT
from tests.docker.machine_state import left_over, snapshot

pytestmark = pytest.mark.docker

CONFIG = str(PROJECT / "configs" / "3node-3ms.json")
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
    options = [word for command in commands for word in ("-c", command)]
    argv = [str(COMMAND), "shell", CONFIG, "--port", "18080", *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False)


def test_commands_run_in_their_hosts_with_addresses_for_names() -> None:
    done = shell(
        "etcd1 etcdctl member list",
        "etcd1 ping -c 2 -i 0.2 etcd2",
        "pingall",
        "link etcd1 s1 down",
        "etcd1 sh -c '! ping -c 1 -W 1 10.0.0.252'",
        "link etcd1 s1 up",
        "etcd1 ping -c 1 -W 2 etcd2",
        "dump",
        "etcd2 exit 7",
    )
    assert done.returncode == 7, done.stdout + done.stderr
    assert len(re.findall(r"started, etcd[123], http://10\.0\.0\.25[123]:2380", done.stdout)) == 3
    rtts = [float(value) for value in re.findall(r"time=([0-9.]+) ms", done.stdout)]
    assert len(rtts) >= 3
    assert all(12.0 <= rtt < 20 for rtt in rtts), rtts
    assert "0% dropped" in done.stdout


def test_the_first_failing_command_ends_it_with_its_status() -> None:
    done = shell("etcd1 false", "etcd1 echo not reached")
    assert done.returncode == 1
    assert "not reached" not in done.stdout


def test_links_change_while_it_runs() -> None:
    done = shell(
        "delay etcd1 s1 20ms",
        "etcd1 ping -c 3 -i 0.2 etcd2",
        "delay s1 etcd1 3ms one-way",
        "rate etcd1 s1 100",
        "etcd1 ping -c 1 etcd2",
        "loss etcd1 s1 100%",
        "etcd1 sh -c '! ping -c 1 -W 1 10.0.0.252'",
        "loss etcd1 s1 0%",
        "partition etcd1 | etcd2 etcd3",
        "etcd1 sh -c '! ping -c 1 -W 1 10.0.0.252'",
        "etcd2 ping -c 1 -W 2 etcd3",
        "heal",
        "etcd1 ping -c 1 -W 2 etcd2",
        "help delay",
        "delay etcd1 s1 10",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "with its unit" in done.stderr
    assert "delay 20ms between etcd1 and s1, both ways (at " in done.stdout
    assert "both ways or as the first sends" in done.stdout
    rtts = [float(value) for value in re.findall(r"time=([0-9.]+) ms", done.stdout)]
    slow, less_slow, others, healed = rtts[:3], rtts[3], rtts[4], rtts[5]
    assert all(46.0 <= rtt < 54 for rtt in slow), rtts
    assert 29.0 <= less_slow < 37, rtts
    assert 12.0 <= others < 20, rtts
    assert 29.0 <= healed < 37, rtts


def test_a_refused_change_of_a_link_ends_it_with_a_status() -> None:
    for line in ("link etcd1 s9 down", "partition etcd1 | s1", "rate etcd1 s1 fast"):
        done = shell(line, "etcd1 echo not reached")
        assert done.returncode == 2, done.stdout + done.stderr
        assert "not reached" not in done.stdout


def test_it_measures_and_records_without_programs_in_the_hosts(tmp_path: Path) -> None:
    recording = tmp_path / "etcd1.pcap"
    done = shell(
        "iperf etcd1 etcd2 1",
        f"capture etcd1 {recording}",
        "etcd1 ping -c 3 -i 0.2 etcd2",
        "capture stop",
        "jitter etcd1 s1 500us",
        "links",
        "pingpair",
        "help capture",
        f"capture etcd2 {tmp_path / 'short.pcap'} 0.5",
        "iperfudp 10M etcd1 etcd2",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "iperfudp is not offered" in done.stderr
    goodput = re.search(r"etcd1 -> etcd2: ([0-9.]+) Mbit/s over 1\.\d s \(TCP cubic\)", done.stdout)
    assert goodput is not None, done.stdout
    assert 50 < float(goodput[1]) < 1100, done.stdout
    frames = re.search(rf"etcd1: (\d+) frames in {recording}", done.stdout)
    assert frames is not None, done.stdout
    assert int(frames[1]) >= 6
    assert recording.stat().st_size > 24 + 6 * (16 + 98)
    first = next(line for line in done.stdout.splitlines() if line.startswith("etcd1-eth0 <-> s1-eth"))
    words = "  up  both ways: delay 3ms, jitter 500us (uniform, correlation 5ms), rate 1000 Mbit/s"
    assert words in first, first
    assert "Without SECONDS it goes on until" in done.stdout


class Session:
    """The interactive shell on a terminal of its own."""

    def __init__(self, *argv: str) -> None:
        self._terminal, inside = pty.openpty()
        # The terminal has to be the controlling one, or its Ctrl-C would reach nobody.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *argv], stdin=inside, stdout=inside, stderr=inside, start_new_session=True
        )
        os.close(inside)
        self.seen = ""

    def wait_for(self, text: str, timeout_s: float = 40) -> str:
        """Read until `text` appears; what was read since the last call."""
        deadline, begin = time.monotonic() + timeout_s, len(self.seen)
        while text not in self.seen[begin:]:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} within {timeout_s} s in: {self.seen[begin:]}"
            assert self.read(left), f"it ended without {text!r}: {self.seen[begin:]}"
        return self.seen[begin:]

    def type(self, line: str) -> None:
        os.write(self._terminal, line.encode() + b"\n")

    def close(self) -> None:
        """End it, politely first; drain the terminal so that it is not blocked on its own output."""
        deadline = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline:
            if not self.read(0.1):
                break
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(20)
        os.close(self._terminal)

    def read(self, timeout_s: float) -> bool:
        """Take in what is there within `timeout_s`; False once the other side has closed."""
        if select.select([self._terminal], [], [], timeout_s)[0]:
            try:
                self.seen += os.read(self._terminal, 4096).decode(errors="replace")
            except OSError:  # EIO: nobody has the other side open any more
                return False
        return True


@pytest.fixture
def session() -> Iterator[Session]:
    before = snapshot()
    # The document's own way in, with a Python that has none of our packages.
    opened = Session(sys.executable, str(PROJECT / "containernet_env" / "main.py"), "-c", CONFIG)
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
        with urllib.request.urlopen(request, timeout=30) as answer:
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
    session.wait_for("time=12")
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
