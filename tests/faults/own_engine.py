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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import docker
import requests.exceptions
from docker.errors import DockerException

from containernet_env.hosts import engine
from containernet_env.setup import dockerd, images
from tests.deadline import HANG_S, eventually

# containerd 1.6, runtime/v2/shim/util_unix.go: where the sockets of shims are, whatever the engine's own folders.
_SHIM_SOCKETS = Path("/run/containerd/s")


class OwnEngine:
    """An engine with the images that a run needs; a context manager, whose end leaves nothing on the machine.

    ``address`` is for ``DOCKER_HOST``; ``environment`` is this process's with it. Signals go to ``pid`` and
    ``containerd_pid``; ``start`` brings an engine that has ended back on the same data.
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # --- its life ----------------------------------------------------------------------------------------------

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
        """Whether its dockerd lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of its dockerd."""
        assert self._process is not None and self.runs, "the test's own engine does not run"
        return self._process.pid

    @property
    def containerd_pid(self) -> int:
        """Of its containerd. After its end, see ``wait_containerd``."""
        (pid,) = self._containerd()
        return pid

    def _containerd(self) -> list[int]:
        children = (pid for pid in _processes() if _parent_of(pid) == self.pid)
        return [pid for pid in children if os.path.basename(_words_of(pid)[0]) == "containerd"]

    def terminate(self) -> None:
        """SIGTERM to dockerd, which ends its containers first; returns when it has ended."""
        os.kill(self.pid, signal.SIGTERM)
        self.wait_ended()

    def kill(self) -> None:
        """SIGKILL to dockerd, which takes its containerd with it; its containers run on."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_ended()

    def kill_containerd(self) -> None:
        """SIGKILL to containerd; see ``wait_containerd``."""
        os.kill(self.containerd_pid, signal.SIGKILL)

    def wait_containerd(self) -> None:
        """Return once there is a containerd (again: dockerd 20.10 starts one 10 s after the end of its last)."""
        eventually(self._containerd, "dockerd has started a containerd")

    def pause(self) -> None:
        """SIGSTOP to dockerd: it accepts connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End what ``pause`` began."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_ended(self) -> None:
        """Return when dockerd has ended, by whatever signal."""
        assert self._process is not None
        self._process.wait(HANG_S)

    # --- using it ----------------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with this engine as the one to use."""
        return {**os.environ, "DOCKER_HOST": self.address}

    def client(self) -> docker.DockerClient:
        """A new client of it; the caller closes it."""
        return docker.DockerClient(base_url=self.address, version="auto", timeout=HANG_S)

    def containers(self) -> set[str]:
        """The names of all its containers, in any state."""
        client = self.client()
        try:
            return {name.lstrip("/") for row in client.api.containers(all=True) for name in row["Names"]}
        finally:
            client.close()

    def network_namespace(self) -> str:
        """The inode of its dockerd's, another one after each start."""
        return str(os.stat(f"/proc/{self.pid}/ns/net").st_ino)

    def shims(self) -> list[int]:
        """The processes of this machine that are its shims: one beside each container that runs."""
        place = f"{self.folder}/exec/containerd/containerd.sock"
        return [pid for pid in _processes() if place in (words := _words_of(pid)) and "shim" in words[0]]

    def remove_containers(self) -> None:
        """Remove every container that it has."""
        client = self.client()
        try:
            for row in client.api.containers(all=True):
                client.api.remove_container(row["Id"], force=True, v=True)
        finally:
            client.close()

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
        needed, client = images.required_images(), self.client()
        try:
            for tag in (needed.member, needed.benchmark):
                client.api.load_image(engine.client().api.get_image(tag))
        finally:
            client.close()

    # --- its end -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End it, whatever state it is in, and remove every process, mount, cgroup and folder of it. Idempotent."""
        if not self.folder.exists():
            return
        if self._process is not None and self.runs:
            self.resume()
            with suppress(DockerException, requests.exceptions.RequestException, OSError):
                self.remove_containers()
            with suppress(subprocess.TimeoutExpired):
                self.terminate()
            if self.runs:
                self.kill()
        for shim in self.shims():
            for pid in (*_below(shim), shim):
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


def _processes() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def _words_of(pid: int) -> list[str]:
    """The command line of a process; one empty word where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]


def _parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _below(ancestor: int) -> list[int]:
    """Children of a process and theirs, the deepest first."""
    children = [pid for pid in _processes() if _parent_of(pid) == ancestor]
    return [pid for child in children for pid in (*_below(child), child)]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        held = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(held, signal.SIGKILL)
            select.select([held], [], [], HANG_S)
        finally:
            os.close(held)
