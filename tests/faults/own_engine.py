"""A Docker engine of the tests' own, to be killed: its own socket, data folder and containerd.

It runs in a network namespace of its own, where it finds no bridge of the machine's engine: dockerd without a bridge
removes docker0 where it starts. Its containers are processes of this machine like any others.
"""

from __future__ import annotations

import hashlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import docker
import requests.exceptions
from docker.errors import DockerException

from containernet_env.hosts import engine
from containernet_env.setup import dockerd, images
from tests.deadline import HANG_S, eventually
from tests.processes import below, children, processes, program_of, words_of

# containerd 1.6, runtime/v2/shim/util_unix.go: where the sockets of shims are, whatever the engine's own folders.
_SHIM_SOCKETS = Path("/run/containerd/s")
# An engine writes an image to its disk before it sends the first byte, which a busy machine has kept it from for 30 s.
_COPY_S = 600


class OwnEngine:
    """An engine with the images that a run needs; a context manager, whose end leaves nothing on the machine.

    ``address`` is for ``DOCKER_HOST``; ``environment`` is this process's with it. ``start`` brings an engine that has
    ended back on the same data.
    """

    def __init__(self) -> None:
        # A short path: that of a Unix socket has 107 bytes, and containerd makes some below it. On a disk.
        self.folder = Path(tempfile.mkdtemp(prefix="own-engine-", dir="/var/tmp"))
        self.address = f"unix://{self.folder}/docker.sock"
        self.log = self.folder / "dockerd.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OwnEngine:
        try:
            self.start()
            self._load_images()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start dockerd, also again after its end, and wait until it answers. Nothing where it runs."""
        if self.runs:
            return
        binary = dockerd.find()
        assert binary is not None, "no Docker engine is installed"
        folder = self.folder
        # Where nothing reaps orphans, dockerd takes the zombie of the containerd that died with it for a living one.
        (folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)
        command = [binary, "--host", self.address, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
        # So that its end finds those of containers, too, that it has forgotten.
        command += ["--cgroup-parent", f"/{folder.name}"]
        command += ["--pidfile", f"{folder}/docker.pid", "--bridge=none", "--iptables=false", "--ip6tables=false"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        eventually(lambda: not self.runs or self._answers(), "the test's own engine answers")
        assert self.runs, f"the test's own engine did not start:\n{self.log.read_text()[-3000:]}"

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None and self.runs, "the test's own engine does not run"
        return self._process.pid

    def terminate(self) -> None:
        """SIGTERM to dockerd, which ends its containers first; returns when it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to dockerd, which takes its containerd with it; its containers run on."""
        self._end(signal.SIGKILL)

    def _end(self, signum: int) -> None:
        os.kill(self.pid, signum)
        assert self._process is not None
        self._process.wait(HANG_S)

    def kill_containerd(self) -> None:
        """SIGKILL to containerd; dockerd 20.10 starts another one 10 s later."""
        (containerd,) = (pid for pid in children(self.pid) if program_of(pid) == "containerd")
        os.kill(containerd, signal.SIGKILL)

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with this engine as the one to use."""
        return {**os.environ, "DOCKER_HOST": self.address}

    def client(self, timeout_s: float = HANG_S) -> docker.DockerClient:
        """A new client of it; the caller closes it."""
        return docker.DockerClient(base_url=self.address, version="auto", timeout=timeout_s)

    def containers(self) -> set[str]:
        with closing(self.client()) as client:
            return {name.lstrip("/") for row in client.api.containers(all=True) for name in row["Names"]}

    def network_namespace(self) -> str:
        """The inode of its dockerd's, another one after each start."""
        return str(os.stat(f"/proc/{self.pid}/ns/net").st_ino)

    def shims(self) -> list[int]:
        """The processes of this machine that are its shims: one beside each container that runs."""
        place = f"{self.folder}/exec/containerd/containerd.sock"
        return [pid for pid in processes() if place in words_of(pid).split() and "shim" in program_of(pid)]

    def remove_containers(self) -> None:
        with closing(self.client()) as client:
            for row in client.api.containers(all=True):
                client.api.remove_container(row["Id"], force=True, v=True)

    def _answers(self) -> bool:
        # Not by the SDK, which leaves its sockets open where nobody answers.
        try:
            with socket.socket(socket.AF_UNIX) as caller:
                caller.settimeout(HANG_S)
                caller.connect(self.address.removeprefix("unix://"))
                caller.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in caller.recv(64)
        except OSError:
            return False

    def _load_images(self) -> None:
        needed = images.required_images()
        with closing(self.client(_COPY_S)) as client, closing(engine.connect(_COPY_S)) as source:
            for tag in (needed.member, needed.benchmark):
                client.api.load_image(source.api.get_image(tag))

    def close(self) -> None:
        """End it, whatever state it is in, and remove every process, mount, cgroup and folder of it. Idempotent."""
        if not self.folder.exists():
            return
        if self._process is not None and self.runs:
            with suppress(DockerException, requests.exceptions.RequestException, OSError):
                self.remove_containers()
            with suppress(subprocess.TimeoutExpired):
                self.terminate()
            if self.runs:
                self.kill()
        for shim in self.shims():
            for pid in (*reversed(below(shim)), shim):
                _kill(pid)
        folder = str(self.folder)
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=True, timeout=HANG_S)
        for container in (path.name for path in self.folder.glob("data/containers/*")):
            # containerd 1.6, runtime/v2/shim/util_unix.go: SocketAddress.
            place = f"{self.folder}/exec/containerd/containerd.sock/moby/{container}"
            (_SHIM_SOCKETS / hashlib.sha256(place.encode()).hexdigest()).unlink(missing_ok=True)
        # On cgroup v1 one for each controller.
        for parent in Path("/sys/fs/cgroup").glob(f"**/{self.folder.name}"):
            for group, _, _ in os.walk(parent, topdown=False):
                os.rmdir(group)
        shutil.rmtree(self.folder)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        held = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(held, signal.SIGKILL)
            select.select([held], [], [], HANG_S)
        finally:
            os.close(held)
