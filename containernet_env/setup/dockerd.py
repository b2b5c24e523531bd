"""Starts the installed Docker engine if none answers.

By a running service manager, else ``dockerd`` is started directly, in a session of its own and without inherited
descriptors, so that neither Ctrl-C nor a closed pipe nor the end of this program affects it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from containernet_env.base import assets, clock, programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import engine

LOG = Path("/var/log/containernet-env/dockerd.log")
_PID_FILE = Path("/var/run/docker.pid")
_DAEMON_CONFIG = Path("/etc/docker/daemon.json")
_START_DEADLINE_S = 60.0
_SERVICE_TIMEOUT_S = 120.0
_POLL_S = 0.05
_LOG_TAIL_LINES = 12

# Our networks need neither the engine's bridge nor its firewall rules: on kernels without the modules that
# these need (nat tables, bridge netfilter), the engine is started without them.
_WITHOUT_NETWORK = {
    "iptables": "--iptables=false",
    "ip6tables": "--ip6tables=false",
    "bridge": "--bridge=none",
}
_NETWORK_FAILURE = re.compile(r"network controller|iptables|ip6tables|\bbridge\b|netfilter", re.IGNORECASE)


# Kept to avoid Python's warning at exit about a process that is meant to keep running.
_started: list[subprocess.Popen[bytes]] = []


def ensure_running(report: Callable[[str], None] | None = None) -> str:
    """Make sure that an engine on this machine answers, starting the installed one if needed; returns how.

    ``report`` gets one line per notable event. Returns a short text such as
    "already running". Raises ``MissingRequirementError`` when none is installed, none comes up, the one
    that answers runs somewhere else, or an unusable program listens at its address.
    """
    if _answers():
        how = "already running"
    else:
        how = start(report or (lambda line: None))
        engine.client.cache_clear()
    engine.require_local(engine.facts())
    return how


def start(report: Callable[[str], None]) -> str:
    """Start the installed engine and wait until it answers; returns how it was started.

    ``report`` gets one line per problem. Raises ``MissingRequirementError`` when
    none is installed, ``DOCKER_HOST`` selects another one, or none answers in time. If a dockerd is running or a
    program listens at the engine's address, this waits for it and starts no other one.
    """
    if os.environ.get("DOCKER_HOST"):
        raise engine.no_engine()
    if os.geteuid() != 0:
        raise MissingRequirementError("the Docker engine is not running and only root can start it", "Run with sudo.")
    if _wait_for_starting_engine():
        return "just started by another process"
    binary = find()
    if binary is None:
        raise MissingRequirementError("no Docker engine is installed", assets.set_up_hint())
    for command in service_commands():
        problem = _run_service_manager(command)
        if problem is None:
            return f"started by '{' '.join(command)}'"
        report(f"'{' '.join(command)}' did not start the engine ({problem}); starting dockerd itself")
    return _start_dockerd(binary, report)


def find() -> str | None:
    """The path of dockerd, also where PATH has no sbin directories; None if it is not installed."""
    return programs.which("dockerd")


def service_commands(run_dir: Path = Path("/run"), init_comm: Path = Path("/proc/1/comm")) -> list[list[str]]:
    """The service manager's command that starts the engine; empty if no service manager runs.

    Their programs are also installed on machines where they do not run; the checks are systemd's run directory, or
    an init as process 1.
    """
    if (run_dir / "systemd" / "system").is_dir() and programs.which("systemctl"):
        return [["systemctl", "start", "docker"]]
    if (run_dir / "openrc").is_dir() and programs.which("rc-service"):
        return [["rc-service", "docker", "start"]]
    if init_comm.read_text(encoding="ascii").strip() == "init" and programs.which("service"):
        return [["service", "docker", "start"]]
    return []


def _run_service_manager(command: list[str]) -> str | None:
    """Run it and wait for the engine; the reason as one line if that failed."""
    try:
        done = subprocess.run(
            [programs.require(command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SERVICE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode != 0:
        return (done.stdout.strip().splitlines() or [f"exit {done.returncode}"])[0]
    deadline = clock.monotonic() + _START_DEADLINE_S
    while not (there := _answers()) and clock.monotonic() <= deadline:
        clock.sleep(_POLL_S)
    return None if there else f"no answer within {_START_DEADLINE_S:.0f} s"


def _start_dockerd(binary: str, report: Callable[[str], None]) -> str:
    # A failed service manager may still have started one.
    if _wait_for_starting_engine():
        return "just started by another process"
    LOG.parent.mkdir(parents=True, exist_ok=True)
    LOG.write_bytes(b"")
    if (reason := _launch([binary])) is None:
        return f"started dockerd, log {LOG}"
    if not _NETWORK_FAILURE.search(reason):
        raise _not_started(reason)
    flags = [flag for key, flag in _WITHOUT_NETWORK.items() if key not in _configured()]
    report("this kernel does not support the engine's own bridge and firewall rules; starting it without them")
    if (reason := _launch([binary, *flags])) is not None:
        raise _not_started(reason)
    return f"started dockerd {' '.join(flags)}, log {LOG}"


def _answers() -> bool:
    """Whether an engine answers; false while one that is starting listens without answering."""
    try:
        return engine.is_reachable()
    except engine.EngineUnusableError as error:
        if not error.late:
            raise
        return False


def _wait_for_starting_engine() -> bool:
    """Wait for an engine that is already starting (by an installation or the boot); whether one answers.

    Raises ``MissingRequirementError`` if it runs and does not answer in time: there must never be two.
    """
    deadline = clock.monotonic() + _START_DEADLINE_S
    while _runs(_PID_FILE) or engine.listens():
        if _answers():
            return True
        if clock.monotonic() > deadline:
            raise MissingRequirementError(
                f"a Docker engine exists but does not answer within {_START_DEADLINE_S:.0f} s: "
                f"{_PID_FILE} names a running dockerd, or a program listens at {engine.address()}",
                "End it, or wait until it answers; no second one is started beside it.",
            )
        clock.sleep(_POLL_S)
    return _answers()


def _runs(pid_file: Path) -> bool:
    """Whether the process that ``pid_file`` names is a running dockerd."""
    try:
        pid = int(pid_file.read_text(encoding="ascii"))
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "dockerd"
    except (OSError, ValueError):
        return False


def _configured() -> set[str]:
    """The keys of the engine's configuration file: a flag beside the same key would stop it from starting."""
    try:
        return set(json.loads(_DAEMON_CONFIG.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return set()
    except ValueError as error:
        raise MissingRequirementError(f"{_DAEMON_CONFIG} is not valid JSON: {error}", "Fix that file.") from error


def _launch(command: list[str]) -> str | None:
    """Start dockerd detached and wait for its answer; its last log lines if it ends before.

    Raises ``MissingRequirementError`` if it is late.
    """
    begin = LOG.stat().st_size
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            close_fds=True,
            start_new_session=True,
            cwd="/",
            umask=0o022,
            env=programs.environment(),
        )
    _started.append(process)
    deadline = clock.monotonic() + _START_DEADLINE_S
    while not _answers():
        try:
            process.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            if clock.monotonic() > deadline:
                process.terminate()
                raise _not_started(f"no answer within {_START_DEADLINE_S:.0f} s; {_tail(begin)}") from None
            continue
        return _tail(begin)
    return None


def _tail(begin: int) -> str:
    """The last lines that dockerd logged after offset ``begin``."""
    text = LOG.read_bytes()[begin:].decode(errors="replace")
    return "its last log lines:\n" + "\n".join(f"    {line}" for line in text.splitlines()[-_LOG_TAIL_LINES:])


def _not_started(reason: str) -> MissingRequirementError:
    return MissingRequirementError(
        f"the Docker engine did not start: {reason}",
        f"See {LOG}; fix the errors in it, or start an engine yourself, then run again.",
    )
