"""Replicas (replicas_image) as processes on loopback, as somebody else may run them; ended by process id."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load.cluster import free_ports
from containernet_env.base import programs
from containernet_env.base.sources import replicas_module
from containernet_env.runs.progress import Silent
from containernet_env.setup import binaries, go
from containernet_env.setup.steps import Steps

COUNT = 3


@dataclass(frozen=True)
class Replicas:
    """Where they are."""

    ports: list[int]

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def status(self, key: str) -> int:
        """Of a GET of a key, at the first replica, with the newest version of all."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=5)
        try:
            connection.request("GET", f"/v0/entity?id={key.replace('/', '%2F')}&from={COUNT}")
            return connection.getresponse().status
        finally:
            connection.close()


def built(folder: Path) -> Path | None:
    """The program, built where it is not there yet; ``None`` where there is no Go to build it with."""
    module = replicas_module()
    if (found := programs.find(module)) is None and (toolchain := go.find()) is not None:
        steps = Steps(Silent(), folder)
        with steps.step("replicas") as step:
            found = binaries.build(module, toolchain, steps.commands, step.log)
    return None if found is None else found / "replicas"


@contextmanager
def replicas(program: Path, folder: Path) -> Iterator[Replicas]:
    """Three of them, up within the block; they die with this process, however it ends."""
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    found, running = Replicas(free_ports(COUNT)), []
    try:
        for number, port in enumerate(found.ports):
            own = folder / f"r{number}"
            own.mkdir()
            peers = ",".join(f"127.0.0.1:{peer}" for peer in found.ports)
            argv = [setpriv, "--pdeathsig", "KILL", program, f"--listen=127.0.0.1:{port}", f"--id={number}"]
            argv += [f"--peers={peers}", f"--data={own}", "--unsafe-no-fsync"]
            with (folder / f"r{number}.log").open("wb") as log:
                running.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        deadline = time.monotonic() + 20
        while not _answers(found):
            assert time.monotonic() < deadline, "the replicas did not start"
            time.sleep(0.02)
        yield found
    finally:
        for process in running:
            process.kill()
            process.wait()


def _answers(found: Replicas) -> bool:
    try:
        return found.status("x") == http.client.NOT_FOUND
    except OSError:
        return False
