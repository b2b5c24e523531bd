"""The Docker engine: one client, our labels, and finding and removing what carries them.

Everything of ours that lives in the engine carries ``LABEL``; nothing without it is listed or removed here.
Raises ``MissingRequirementError`` where the engine cannot be reached, ``RunError`` where it refuses.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import docker
import requests.exceptions
from docker.errors import APIError, DockerException, NotFound

from containernet_env.base import assets
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.hosts import owner
from containernet_env.hosts.shim import Shim, shim_of

SDK_VERSION: str = docker.__version__

LABEL = "containernet-env"
LABEL_VALUE = "1"
LABEL_RUN = "containernet-env.run"
LABEL_HOST = "containernet-env.host"
LABEL_SOURCE = "containernet-env.source"

# Four at a time is where the engine's own locks stop gaining from more on a two-core machine.
PARALLEL = 4
_CALL_TIMEOUT_S = 60
_PING_TIMEOUT_S = 5
_LISTEN_TIMEOUT_S = 2.0
_REMOVAL_DEADLINE_S = 60.0
# The engine's shims end up to a second after their containers were removed, and later on a busy machine.
SHIM_DEADLINE_S = 10.0

# What the SDK raises: refusals of the engine, and what it lets through when nobody listens, the socket is gone, or the
# engine stops answering.
UNREACHABLE = (DockerException, requests.exceptions.RequestException, OSError)

# How long the engine may take to notice that a container's first process has ended.
_EXIT_DEADLINE_S = 10.0
_POLL_S = 0.02


@dataclass
class ExitState:
    """How a container's first process ended; ``exit_code`` is ``None`` while it runs.

    ``oom_killed`` is the engine's flag: some process in the container has been OOM-killed, at any time.
    """

    exit_code: int | None
    oom_killed: bool
    finished_at: str = ""
    """When, as the engine writes it (RFC 3339, nanoseconds, UTC)."""


@dataclass(frozen=True)
class OurContainer:
    """One container with our label. ``run``, ``host``, ``owner`` are empty where their label is missing."""

    id: str
    name: str
    run: str
    host: str
    owner: str
    state: str
    image: str


def labels(run: str | None = None, host: str | None = None) -> dict[str, str]:
    """The labels of something of ours; of one run (of this process) and one of its hosts where given."""
    found = {LABEL: LABEL_VALUE}
    if run is not None:
        found[LABEL_RUN] = run
        found[owner.LABEL] = owner.current()
    if host is not None:
        found[LABEL_HOST] = host
    return found


def address() -> str:
    """Where the engine is looked for: ``DOCKER_HOST``, else the usual Unix socket."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def connect(timeout_s: int = _CALL_TIMEOUT_S) -> docker.DockerClient:
    """A new client with a negotiated API version and calls bounded by ``timeout_s``; raises ``UNREACHABLE``."""
    return docker.DockerClient.from_env(version="auto", timeout=timeout_s, max_pool_size=4 * PARALLEL)


class EngineUnusableError(MissingRequirementError):
    """Something listens where the engine is looked for, but cannot be used as one.

    ``late``: it is silent, or came or went just now, as an engine does that starts; else it will not be better later.
    """

    def __init__(self, error: BaseException) -> None:
        self.late = _is_late(error)
        where = address()
        super().__init__(
            f"something listens at {where}, but the Docker SDK ({SDK_VERSION}) cannot use it: {error}",
            "Containers may be running there, so no other engine is started. If an engine is just starting, wait; "
            "if this is not its address, mend or unset DOCKER_HOST; else reinstall the Docker SDK that setup.py pins: "
            "`.venv/bin/python -m pip install --editable .`.",
        )


def _is_late(error: BaseException | None) -> bool:
    # The SDK wraps what happened two or three times.
    late = (requests.exceptions.Timeout, ConnectionRefusedError, ConnectionResetError, FileNotFoundError)
    while error is not None:
        if isinstance(error, late):
            return True
        error = error.__cause__ or error.__context__
    return False


def listens() -> bool:
    """Whether something accepts connections at ``address``; false only where it is certain that nothing does."""
    where = address()
    url = urlsplit(where if "://" in where else f"tcp://{where}")
    try:
        if url.scheme in ("unix", "http+unix"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(_LISTEN_TIMEOUT_S)
                probe.connect("/" + f"{url.netloc}{url.path}".lstrip("/"))
        elif url.scheme in ("tcp", "http", "https") and url.hostname and url.port:
            socket.create_connection((url.hostname, url.port), _LISTEN_TIMEOUT_S).close()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        return False
    except OSError:
        # Of a Unix socket: there is one that we may not use, or its queue is full.
        return url.scheme in ("unix", "http+unix")
    except ValueError:
        return True  # not an address at all; the SDK says so better
    return True


def is_reachable() -> bool:
    """Whether an engine answers now; false where nothing listens. Never starts one.

    Raises ``EngineUnusableError`` where something listens that cannot be used: containers of ours may live there.
    """
    if not listens():
        return False
    try:
        connect(_PING_TIMEOUT_S).close()
    except UNREACHABLE as error:
        raise EngineUnusableError(error) from error
    return True


@lru_cache(maxsize=1)
def client() -> docker.DockerClient:
    """The client that the whole process shares (its connection pool is safe to use from threads).

    Raises ``MissingRequirementError`` where nothing listens, ``EngineUnusableError`` where what listens is of no use.
    """
    if not listens():
        raise MissingRequirementError(
            f"no Docker engine runs: nothing listens at {address()}",
            assets.set_up_hint(),
        )
    try:
        return connect()
    except UNREACHABLE as error:
        raise EngineUnusableError(error) from error


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Raise as ``RunError``, after ``what`` and a colon, whatever the SDK raises in this block."""
    try:
        yield
    except UNREACHABLE as error:
        raise RunError(f"{what}: {getattr(error, 'explanation', None) or error}") from error


def require_local(info: dict[str, Any]) -> None:
    """Refuse an engine whose containers are not processes here: links are made in their namespaces.

    ``info`` is the engine's own description of itself. Raises ``MissingRequirementError``.
    """
    here = os.uname().release
    root = info.get("DockerRootDir", "")
    if info.get("KernelVersion") == here and os.path.isdir(root):
        return
    raise MissingRequirementError(
        f"the Docker engine at {address()} runs on another machine or in a virtual one "
        f"(its kernel {info.get('KernelVersion')}, ours {here}; its data in {root or 'an unknown place'})",
        "Unset DOCKER_HOST, or run on that engine's machine: links are made in its containers' namespaces.",
    )


def list_ours(run: str | None = None) -> list[OurContainer]:
    """Our containers in any state, of one run if ``run`` is given, in the engine's order (newest first)."""
    # By the run's label and not by LABEL: a container that somebody makes from an image of ours inherits that one.
    wanted = [LABEL_RUN if run is None else f"{LABEL_RUN}={run}"]
    rows = client().api.containers(all=True, filters={"label": wanted})
    return [
        OurContainer(
            id=row["Id"],
            name=(row.get("Names") or ["/"])[0].lstrip("/"),
            run=row["Labels"].get(LABEL_RUN, ""),
            host=row["Labels"].get(LABEL_HOST, ""),
            owner=row["Labels"].get(owner.LABEL, ""),
            state=row.get("State", ""),
            image=row.get("Image", ""),
        )
        for row in rows
    ]


def wait_ended(container: str, host: str) -> ExitState:
    """How the first process of a container ended, once the engine has noticed (at most 10 s).

    ``host`` names it in errors. Raises ``RunError`` where the container is gone or is said to run on.
    """
    deadline = time.monotonic() + _EXIT_DEADLINE_S
    while True:
        try:
            state = client().api.inspect_container(container)["State"]
        except NotFound as error:
            raise RunError(f"host {host}: its container has been removed") from error
        if not state["Running"]:
            return ExitState(int(state["ExitCode"]), bool(state["OOMKilled"]), str(state.get("FinishedAt", "")))
        if time.monotonic() > deadline:
            raise RunError(f"host {host}: the engine has not noticed the end of its first process")
        time.sleep(_POLL_S)


def logs_of(container: str, host: str, tail: int) -> str:
    """The last ``tail`` lines that a container's first process wrote, with plain line ends.

    Raises ``RunError`` where they are gone.
    """
    with refusals(f"host {host}: no logs"):
        data: bytes = client().api.logs(container, stdout=True, stderr=True, tail=tail)
    return data.decode(errors="replace").replace("\r\n", "\n")


def remove_containers(ids: Iterable[str]) -> None:
    """Remove containers, running or not, with their anonymous volumes, ``PARALLEL`` at a time.

    Returns when all are gone, and the engine's shims of those that ran. Only 'already gone' is tolerated; every other
    refusal is collected, the rest is still removed, then ``RunError`` names each of them.
    """
    wanted = list(ids)
    if not wanted:
        return
    with ThreadPoolExecutor(min(PARALLEL, len(wanted))) as pool:
        shims = [shim for shim in pool.map(_shim_of, wanted) if shim is not None]
        refused = [problem for problem in pool.map(_remove, wanted) if problem]
    refused += [problem for problem in map(wait_shim, shims) if problem]
    if refused:
        raise RunError("containers that could not be removed:\n" + "\n".join(f"  {line}" for line in refused))


def remove_container(container: str) -> None:
    """Remove one container, as ``remove_containers`` does, without a thread; its shim is left to end by itself."""
    if problem := _remove(container):
        raise RunError(f"a container could not be removed: {problem}")


def wait_shim(shim: Shim) -> str | None:
    """Wait until a shim whose container is gone has ended, and let it go; the reason as one line where it does not."""
    try:
        if shim.has_ended(SHIM_DEADLINE_S):
            return None
        return f"the engine's shim, process {shim.pid}, has not ended {SHIM_DEADLINE_S:.0f} s after its container"
    finally:
        shim.close()


def _shim_of(container: str) -> Shim | None:
    try:
        pid = client().api.inspect_container(container)["State"]["Pid"]
    except UNREACHABLE:
        return None  # whoever removes it hears of it
    return shim_of(pid) if pid else None


def _remove(container: str) -> str | None:
    """Remove one container; the reason as one line where the engine refuses."""
    api = client().api
    try:
        api.remove_container(container, force=True, v=True)
    except NotFound:
        return None
    except APIError as error:
        # 409 while another caller's removal is on its way: that one counts, once it is done.
        if error.status_code == 409 and "already in progress" in str(error.explanation):
            return _wait_gone(container)
        return f"{container}: {error.explanation or error}"
    except UNREACHABLE as error:
        return f"{container}: {error}"
    return None


def _wait_gone(container: str) -> str | None:
    deadline = time.monotonic() + _REMOVAL_DEADLINE_S
    while time.monotonic() < deadline:
        try:
            client().api.inspect_container(container)
        except NotFound:
            return None
        time.sleep(0.02)
    return f"{container}: its removal, begun by another process, has not ended after {_REMOVAL_DEADLINE_S:.0f} s"
