"""The engine's data in the virtual machine: the hosts' images as they stand in this machine's engine.

An engine of its own loads them here, natively, which takes seconds; emulated it would take minutes.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import docker

from containernet_env.base import assets
from containernet_env.hosts import engine
from containernet_env.setup import dockerd, images
from tests.vm import cache

_SIZE = "3G"
_START_DEADLINE_S = 60.0
_STOP_DEADLINE_S = 30.0
_CALL_TIMEOUT_S = 300


def get() -> Path:
    """The file system image with the images that the sources demand now; they must be in this machine's engine."""
    required = images.required_images()
    tags = (images.base_tag(), required.member, required.benchmark)
    ids = [str(engine.client().images.get(tag).id) for tag in tags]
    digest = assets.combine("vm images", Path(__file__).read_text(), *tags, *ids)[:12]
    return cache.entry("images", digest, lambda folder: _make(folder, tags)) / "docker.img"


def _make(folder: Path, tags: tuple[str, ...]) -> None:
    data = folder / "data"
    with _engine(folder, data) as client:
        driver = client.info()["Driver"]
        if driver != "overlay2":
            raise RuntimeError(f"this machine's engine keeps images by {driver}; the guest's reads overlay2 only")
        for tag in tags:
            client.images.load(engine.client().images.get(tag).save(named=tag))
    # -O ^has_journal: it lives as long as one machine does.
    subprocess.run(
        [
            "mke2fs",
            "-q",
            "-t",
            "ext4",
            "-O",
            "^has_journal",
            "-m",
            "0",
            "-d",
            str(data),
            str(folder / "docker.img"),
            _SIZE,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=_CALL_TIMEOUT_S,
    )
    shutil.rmtree(data)


@contextmanager
def _engine(folder: Path, data: Path) -> Iterator[docker.DockerClient]:
    """An engine beside this machine's own, without networks; it ends with the context."""
    binary, address, log = dockerd.find(), folder / "engine.sock", folder / "engine.log"
    assert binary is not None, "the set-up installs it"
    options = {
        "data-root": data,
        "exec-root": folder / "exec",
        "pidfile": folder / "engine.pid",
        "host": f"unix://{address}",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    with log.open("wb") as output:
        process = subprocess.Popen(
            # It ends with us, however we end. In a network of its own: --bridge=none removes docker0 where it runs.
            [
                *("setpriv", "--pdeathsig", "TERM", "unshare", "--net"),
                binary,
                *words,
                "--bridge=none",
                "--iptables=false",
                "--ip6tables=false",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with closing(_connect(process, address, log)) as client:
            yield client
    finally:
        process.terminate()
        try:
            process.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder / "exec", ignore_errors=True)


def _connect(process: subprocess.Popen[bytes], address: Path, log: Path) -> docker.DockerClient:
    deadline = time.monotonic() + _START_DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        # A client whose first call fails leaves its socket open.
        with socket.socket(socket.AF_UNIX) as attempt:
            listening = attempt.connect_ex(str(address)) == 0
        if listening:
            return docker.DockerClient(f"unix://{address}", version="auto", timeout=_CALL_TIMEOUT_S)
        time.sleep(0.1)
    raise RuntimeError(f"the engine that prepares the guest's images did not start:\n{log.read_text()[-2000:]}")
