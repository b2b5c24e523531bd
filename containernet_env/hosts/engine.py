"""The Docker engine: one client, our labels and names, and finding and removing what carries them.

A container is ours by its labels, its name and its owner together; nothing else is listed or removed here.
Raises ``MissingRequirementError`` where the engine cannot be reached, ``EngineGoneError`` where it no longer can, and
``RunError`` where it refuses.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import requests.exceptions
import urllib3.exceptions
from docker.errors import APIError, DockerException, NotFound, StreamParseError

from containernet_env.base import assets, clock
from containernet_env.base.errors import MissingRequirementError, RunError, shortage
from containernet_env.base.work import side_by_side
from containernet_env.hosts import owner

# containerd-shim-runc-v2, as the kernel cuts it (TASK_COMM_LEN in linux/sched.h).
_SHIM = "containerd-shim"


class HeldProcess:
    """A process, held by a pidfd, so that a reused pid is never mistaken for it."""

    def __init__(self, pid: int) -> None:
        """Raises ``OSError`` where there is no such process."""
        self.pid = pid
        self._fd: int | None = os.pidfd_open(pid)

    def has_ended(self, timeout_s: float = 0.0) -> bool:
        """Whether it has ended, or does within ``timeout_s``; true once it was let go."""
        if self._fd is None:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def signal(self, signum: int) -> None:
        """Send it a signal. Raises ``ProcessLookupError`` where it has ended."""
        # The kernel accepts a signal for a process that has ended and has not been waited for.
        fd = self._fd
        if fd is None or self.has_ended():
            raise ProcessLookupError
        signal.pidfd_send_signal(fd, signum)

    def close(self) -> None:
        """Let it go. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def shim_of(pid: int, proc: Path = Path("/proc")) -> HeldProcess | None:
    """The engine's shim of the container whose first process is ``pid``; ``None`` where it cannot be seen from here.

    That is so where the engine is in another pid namespace, the process has ended, or its parent is no shim.
    """
    shim = None
    with suppress(OSError):
        parent = int(owner.stat_field(pid, 4, proc))
        if parent != 0:
            shim = HeldProcess(parent)
            # Read while the pidfd is held: it cannot have become another process.
            if (proc / str(parent) / "comm").read_text().strip() == _SHIM:
                return shim
    if shim is not None:
        shim.close()
    return None


SDK_VERSION: str = docker.__version__

LABEL = "containernet-env"
LABEL_VALUE = "1"
LABEL_RUN = "containernet-env.run"
LABEL_HOST = "containernet-env.host"
LABEL_SOURCE = "containernet-env.source"

# Four at a time is where the engine's own locks stop gaining from more on a two-core machine.
PARALLEL = 4
# The longest call, the removal of a container whose end containerd has lost, takes 10 s.
_CALL_TIMEOUT_S = 30
_PING_TIMEOUT_S = 5
_LISTEN_TIMEOUT_S = 2.0
_REMOVAL_DEADLINE_S = 60.0
# An engine whose containerd was killed fails (status 5xx) until it has started another one, after 10 s.
_REFUSAL_DEADLINE_S = 30.0
# The engine's shims end up to a second after their containers were removed, and later on a busy machine.
SHIM_DEADLINE_S = 10.0

# What the SDK raises: refusals of the engine, and what it lets through if nothing listens, the socket is gone, or the
# engine stops answering (of a stream, which it reads from the connection itself); ImportError of DOCKER_HOST=ssh://.
_SDK_ERRORS = (
    DockerException,
    StreamParseError,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
    ImportError,
)
_SILENT = "does not answer"
_DEFAULT_ADDRESS = "unix:///var/run/docker.sock"

_POLL_S = 0.1


@dataclass(frozen=True)
class OurContainer:
    """One container of ours."""

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


def container_name(run: str, host: str) -> str:
    """The name of the container of a host of a run."""
    return f"cnenv-{run}-{host}"


def address() -> str:
    """Where the engine is looked for: ``DOCKER_HOST``, else the usual Unix socket."""
    return os.environ.get("DOCKER_HOST") or _DEFAULT_ADDRESS


def _named() -> str:
    return f"DOCKER_HOST={os.environ['DOCKER_HOST']}" if os.environ.get("DOCKER_HOST") else address()


class EngineGoneError(RunError):
    """The engine that was in use has ended, or answers no more; the text ends with the remedy.

    ``state`` follows the engine's name ("has ended"); ``besides`` is about its containers.
    """

    def __init__(self, state: str, besides: str = "") -> None:
        self.state = state
        start = "Start the engine"
        if state.startswith(_SILENT):
            start = "Restart the engine"
        elif not os.environ.get("DOCKER_HOST"):
            hint = assets.set_up_hint().rstrip(".")
            start += f" ({hint[0].lower()}{hint[1:]})"
        super().__init__(
            f"the Docker engine at {address()} {state}{'; ' if besides else ''}{besides}. "
            f"{start}, then run `containernet-env clean`"
        )


UNREACHABLE = (EngineGoneError, *_SDK_ERRORS)
"""What a call that is not made within ``refusals`` may raise."""


class _Api(docker.APIClient):  # type: ignore[misc]
    """The SDK's calls; once it has found an engine, all that can go wrong on the way is ``EngineGoneError``.

    An engine that was silent once gets little time for the next answer, so that many calls do not wait long each.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._found = self._silent = False
        super().__init__(*args, **options)
        self._found = True

    def send(self, request: Any, **options: Any) -> Any:
        """See ``requests.Session``: every call of the SDK comes through here."""
        if not self._found:
            return super().send(request, **options)
        if self._silent:
            options["timeout"] = _PING_TIMEOUT_S
        try:
            answer = super().send(request, **options)
        except requests.exceptions.Timeout as error:
            self._silent = True
            raise EngineGoneError(f"{_SILENT} (waited {options['timeout']} s)") from error
        except (requests.exceptions.RequestException, OSError) as error:
            if (own := shortage(error)) is not None:
                raise own from error
            raise EngineGoneError(f"broke the connection ({error})" if listens() else "has ended") from error
        self._silent = False
        return answer

    def create_container(self, *args: Any, **options: Any) -> Any:
        """See the SDK, without the proxies of the user's ~/.docker/config.json, as ``build``."""
        return super().create_container(*args, **{"use_config_proxy": False, **options})

    def build(self, *args: Any, **options: Any) -> Any:
        """See the SDK; ``use_config_proxy`` has to be given where those proxies are wanted."""
        return super().build(*args, **{"use_config_proxy": False, **options})


class _Client(docker.DockerClient):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        self.api = _Api(*args, **options)


def connect(timeout_s: int = _CALL_TIMEOUT_S) -> docker.DockerClient:
    """A new client with a negotiated API version and calls bounded by ``timeout_s``; raises ``UNREACHABLE``."""
    # Without the contexts of the user's Docker command line: only ``address`` is reported and probed.
    return _Client.from_env(version="auto", timeout=timeout_s, max_pool_size=4 * PARALLEL, use_context=False)


class EngineUnusableError(MissingRequirementError):
    """Something listens at the engine's address that cannot be used as an engine.

    ``late``: it is silent, or came or went just now, as an engine does that starts; else it will not be better later.
    """

    def __init__(self, error: BaseException) -> None:
        self.late = _is_late(error)
        super().__init__(
            f"the Docker SDK ({SDK_VERSION}) cannot use what listens at {_named()}: {error}",
            "Containers may be running there, so no other engine is started. If an engine is just starting, wait; "
            "if this is not its address, mend or unset DOCKER_HOST; else reinstall the Docker SDK that setup.py pins: "
            "`.venv/bin/python -m pip install --editable .`.",
        )


def no_engine() -> MissingRequirementError:
    """That nothing listens at ``address``, and the remedy."""
    if os.environ.get("DOCKER_HOST"):
        remedy = "Start that engine, or unset DOCKER_HOST so that the local one is used."
        return MissingRequirementError(f"no Docker engine answers at {_named()}", remedy)
    return MissingRequirementError(f"no Docker engine runs: nothing listens at {address()}", assets.set_up_hint())


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
        return True  # not an address at all; the SDK has the better message
    return True


def is_reachable() -> bool:
    """Whether an engine answers now; false where nothing listens. Never starts one.

    Raises ``EngineUnusableError`` where something listens that cannot be used: containers of ours may live there; and
    ``MissingRequirementError`` where nothing listens at the address that the user gave: no other engine will do.
    """
    if not listens():
        if os.environ.get("DOCKER_HOST"):
            raise no_engine()
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
        raise no_engine()
    try:
        return connect()
    except UNREACHABLE as error:
        raise EngineUnusableError(error) from error


@contextmanager
def refusals(what: str, *passed: type[DockerException]) -> Iterator[None]:
    """Raise as ``RunError``, after ``what`` and a colon, whatever the SDK raises in this block but ``passed``."""
    try:
        yield
    except passed:
        raise
    except _SDK_ERRORS as error:
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


def facts() -> dict[str, Any]:
    """The engine's own description of itself."""
    with refusals("the engine does not describe itself"):
        return dict(client().info())


def list_ours(run: str | None = None) -> list[OurContainer]:
    """Our containers in any state, of one run if ``run`` is given, in the engine's order (newest first)."""
    # By the run's label and not by LABEL: a user's container of one of our images inherits that one.
    wanted = [LABEL_RUN if run is None else f"{LABEL_RUN}={run}"]
    with refusals("the engine does not list its containers"):
        rows = client().api.containers(all=True, filters={"label": wanted})
    return [found for row in rows if (found := _ours(row)) is not None]


def _ours(row: dict[str, Any]) -> OurContainer | None:
    """A container that the engine lists, if it is ours.

    Labels alone are not enough: a user's container with copies of them has another name.
    """
    held = row.get("Labels") or {}
    run, host, owned = held.get(LABEL_RUN, ""), held.get(LABEL_HOST, ""), held.get(owner.LABEL, "")
    # With a dot it is the original Containernet's.
    names = {container_name(run, host), f"cnenv-{run}.{host}"} & {name.lstrip("/") for name in row.get("Names") or ()}
    if held.get(LABEL) != LABEL_VALUE or not run or not host or not names or not owner.is_owner(owned):
        return None
    return OurContainer(row["Id"], names.pop(), run, host, owned, row.get("State", ""), row.get("Image", ""))


def remove_containers(ids: Iterable[str]) -> None:
    """Remove containers, running or not, with their anonymous volumes, ``PARALLEL`` at a time.

    Returns when all are gone, and the engine's shims of those that ran. Only 'already gone' is tolerated; every other
    refusal is collected, the rest is still removed, then ``RunError`` names each of them.
    """
    wanted = list(ids)
    if not wanted:
        return
    shims = [shim for shim in side_by_side(_shim_of, wanted, PARALLEL) if shim is not None]
    try:
        refused = [problem for problem in side_by_side(_remove, wanted, PARALLEL) if problem]
        refused += [problem for problem in map(wait_shim, shims) if problem]
    finally:
        for shim in shims:
            shim.close()
    if refused:
        raise RunError("containers that could not be removed:\n" + "\n".join(f"  {line}" for line in refused))


def remove_container(container: str) -> None:
    """Remove one container, as ``remove_containers`` does, without a thread; its shim is left to end by itself."""
    if problem := _remove(container):
        raise RunError(f"a container could not be removed: {problem}")


def wait_shim(shim: HeldProcess) -> str | None:
    """Wait until a shim whose container is gone has ended, and let it go; the reason as one line where it does not."""
    try:
        if shim.has_ended(SHIM_DEADLINE_S):
            return None
        return f"the engine's shim, process {shim.pid}, has not ended {SHIM_DEADLINE_S:.0f} s after its container"
    finally:
        shim.close()


def _shim_of(container: str) -> HeldProcess | None:
    try:
        pid = client().api.inspect_container(container)["State"]["Pid"]
    except UNREACHABLE:
        return None  # its removal reports it
    return shim_of(pid) if pid else None


def _remove(container: str) -> str | None:
    """Remove one container; the reason as one line where the engine refuses."""
    began_s = clock.monotonic()
    while True:
        try:
            client().api.remove_container(container, force=True, v=True)
            return None
        except NotFound:
            return None
        except APIError as error:
            problem = f"{container}: {error.explanation or error}"
            # 409 while another caller's removal is on its way: that one counts, once it is done.
            removing = error.status_code == 409 and "already in progress" in problem
            within_s = _REMOVAL_DEADLINE_S if removing else _REFUSAL_DEADLINE_S if error.is_server_error() else 0.0
            if clock.monotonic() > began_s + within_s or not within_s:
                return problem
        except _SDK_ERRORS as error:
            return f"{container}: {error}"
        clock.sleep(_POLL_S)


_ENDED = "has ended"
# If a service manager holds the socket, an engine that ends looks like one that stops the containers on request.
_ENDING = "has stopped all containers of this run, as it does when it ends"


class EngineWatch:
    """Calls ``on_end``, once and from a thread of its own, when the engine ends or stops all containers of a run.

    ``on_end`` gets the ``state`` of an ``EngineGoneError``. On SIGTERM an engine stops listening, ends its
    containers, and its connections last; when it is killed, the kernel ends those. ``running`` returns the number of
    the run's containers. An engine that is silent, as one that was stopped, is not noticed.
    """

    def __init__(self, run: str, running: Callable[[], int], on_end: Callable[[str], None]) -> None:
        self._run = run
        self._running = running
        self._on_end = on_end
        self._events: Any = None
        self._closing = False

    def start(self) -> None:
        """Begin. Raises ``RunError`` if the engine does not send its events."""
        wanted = {"type": ["container"], "event": ["kill"], "label": [f"{LABEL_RUN}={self._run}"]}
        with refusals("the engine does not send its events"):
            self._events = client().api.events(filters=wanted, decode=True)
        clock.Thread(target=self._follow, name="engine-watch", daemon=True).start()

    def _follow(self) -> None:
        stopped: set[str] = set()
        state = _ENDED
        with suppress(*UNREACHABLE):  # an event that was cut short
            for event in self._events:
                attributes = event.get("Actor", {}).get("Attributes", {})
                if attributes.get("signal") == "9":
                    continue  # an engine that ends sends SIGTERM first
                if not listens():
                    break
                stopped.add(event["Actor"]["ID"])
                if len(stopped) >= self._running():
                    state = _ENDING
                    break
        if not self._closing:
            self._on_end(state)

    def close(self) -> None:
        """End, without calling ``on_end``. Idempotent."""
        self._closing = True
        if self._events is not None:
            # The SDK's closing looks for a socket that is gone where the engine is.
            with suppress(AttributeError, OSError):
                self._events.close()
