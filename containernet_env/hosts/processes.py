"""Processes inside a container, started from outside: single programs, and the shell behind ``cmd()``.

Both go through ``nsexec`` and not through the engine: a command costs about 20 ms instead of about 50, it is a real
child process (exit status, signals, descriptors), and it runs in the container's cgroups with the container's
capabilities, so limits hold for it as for everything else there.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from containernet_env.base import clock, programs
from containernet_env.base.errors import RunError
from containernet_env.base.files import open_file, root_of
from containernet_env.hosts.limits import cgroups_of

_HELPER = Path(__file__).with_name("nsexec.py")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_START_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 2.0
# Of /etc/passwd and /etc/group.
_ACCOUNTS_MAX = 1 << 20

# Ends the output of each command; the same character as in Mininet, whose CLI looks for it.
SENTINEL = "\x7f"

# Commands come over descriptor 3, so that standard input, the terminal, is the running command's own and no
# length limit of terminal lines applies; exit statuses leave over descriptor 4. Each command is answered once, at
# the top of the loop. `command` keeps sh alive after a syntax error. Ctrl-C reaches sh and the program it waits for:
# the trap then leaves whatever loops and lists the command line consists of, as an interactive shell would. (break
# does not cross a function, which is why the loop is one; in busybox it leaves loops only, also those of callers,
# which is why none calls it; a `read` of bash goes on, and so meets the end of /dev/null.) Programs do not inherit
# the trap. An interrupt between commands is answered too, since it may have lost one that was being read. The counter
# ends the shell when no process holds descriptor 3. Where it is bash it is interactive, as Mininet's: it reports no
# ended jobs, and an error of an expansion does not end it.
_LOOP = r"""
if [ -n "$BASH_VERSION" ]; then
  set +m
  unset HISTFILE TMOUT
  eval 'exit() { builtin exit "$@" 2>/dev/null; }'
fi
exec 5<&0
_cn_answer() { printf '%d\n' "$1" >&4; printf '\177'; }
_cn_status() { return "$_cn_s"; }
_cn_loop() {
  while :; do
    if [ $_cn_int = 1 ]; then _cn_s=130 _cn_int=0; exec <&5; fi
    _cn_answer $_cn_s
    _cn_busy=0 _cn_n=0
    until IFS= read -r _cn_c <&3; do _cn_n=$((_cn_n + 1)); [ $_cn_n -lt 16 ] || exit 0; done
    _cn_busy=1
    _cn_status
    command eval "$_cn_c" 3<&- 4>&- 5<&-
    _cn_s=$?
  done
}
_cn_s=0 _cn_int=0 _cn_busy=1
trap 'if [ $_cn_busy = 1 ]; then _cn_int=1; exec </dev/null; break 99; else _cn_n=0; _cn_answer 130; fi' INT
_cn_main() { _cn_loop; _cn_main; }
_cn_main
"""


def shell_argv(script: str, options: str = "") -> list[str]:
    """The command that runs a script in a container, by bash with ``options``, as in Mininet, or else by sh."""
    choose = f'command -v bash >/dev/null 2>&1 && exec bash {options} -c "$1" bash; exec sh -c "$1" sh'
    return ["sh", "-c", choose, "sh", script]


def one_line(command: str) -> str:
    """A command as one line that ``read -r`` and ``eval`` turn back into it."""
    command = command.rstrip("\n")
    if "\n" not in command:
        return command
    quoted = command.replace("\\", "\\\\").replace("\n", "\\n").replace("'", "'\\''")
    # The x keeps the command substitution from dropping final newlines that belong to a here-document.
    return f"_cn_m=$(printf '%bx' '{quoted}\\n'); eval \"${{_cn_m%x}}\""


@dataclass(frozen=True)
class User:
    """The user that a program runs as in a container."""

    uid: int = 0
    gid: int = 0
    home: str = "/root"
    groups: tuple[int, ...] = (0,)


def find_user(configured: str, passwd: str, group: str) -> User:
    """Resolve an image's ``USER`` (``name|uid[:group|gid]``, empty is root) by the container's own files.

    ``passwd`` and ``group`` are the texts of /etc/passwd and /etc/group (empty where missing). Raises ``RunError``
    for an unknown name.
    """
    name, _, group_name = configured.partition(":")
    accounts = [fields for line in passwd.splitlines() if len(fields := line.split(":")) >= 7]
    groups = [fields for line in group.splitlines() if len(fields := line.split(":")) >= 4]
    account = next((fields for fields in accounts if (name or "0") in (fields[0], fields[2])), None)
    if account is None and name and not name.isdigit():
        raise RunError(f"the image runs as user {name!r}, which its /etc/passwd does not know")
    uid = int(account[2]) if account else int(name or 0)
    gid = int(account[3]) if account else 0
    home = account[5] if account else ("/root" if uid == 0 else "/")
    others = tuple(int(fields[2]) for fields in groups if account and account[0] in fields[3].split(","))
    if group_name:
        entry = next((fields for fields in groups if group_name in (fields[0], fields[2])), None)
        if entry is None and not group_name.isdigit():
            raise RunError(f"the image runs as group {group_name!r}, which its /etc/group does not know")
        gid = int(entry[2]) if entry else int(group_name)
    return User(uid, gid, home, tuple(dict.fromkeys((gid, *others))))


class ContainerProcesses:
    """Starts programs in one running container.

    ``pid`` is its first process on this machine; ``config`` the ``Config`` part of the engine's description
    (environment, working directory and user are taken from it).
    """

    def __init__(self, pid: int, config: Mapping[str, Any], name: str) -> None:
        self._pid = pid
        self._name = name
        self._directory = config.get("WorkingDir") or "/"
        passwd, group = (account_text(root_of(pid), name, path) for path in ("/etc/passwd", "/etc/group"))
        self._user = find_user(config.get("User") or "", passwd, group)
        self._environment = {
            "PATH": _DEFAULT_PATH,
            "HOME": self._user.home,
            "HOSTNAME": config.get("Hostname") or name,
            "TERM": "xterm",  # as in containers with a terminal; the driver's own would be the caller's
        }
        for entry in config.get("Env") or ():
            key, _, value = entry.partition("=")
            self._environment[key] = value
        self._join = [str(path) for path in cgroups_of(pid).procs_files()]

    def argv(
        self,
        argv: Sequence[str],
        *,
        tty: bool = False,
        descriptors: Mapping[int, int] | None = None,
        directory: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The command of the machine that runs ``argv`` inside; ``descriptors`` maps its numbers to ours.

        It has to be given ``life.descriptor()`` besides.
        """
        options = {
            "pid": self._pid,
            "join": self._join,
            "life": programs.descriptor(),
            "tty": tty,
            "fds": list((descriptors or {}).items()),
            "env": {key: str(value) for key, value in {**self._environment, **(environment or {})}.items()},
            "uid": self._user.uid,
            "gid": self._user.gid,
            "groups": self._user.groups,
            "directory": str(directory or self._directory),
        }
        return [sys.executable, "-I", "-S", str(_HELPER), json.dumps(options), *argv]

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start ``argv`` inside; ``options`` as for ``subprocess.Popen``, ``cwd`` and ``env`` meaning inside.

        Signals sent to the returned process reach the program; its exit status is the program's.
        """
        command = self.argv(argv, directory=options.pop("cwd", None), environment=options.pop("env", None))
        options.setdefault("start_new_session", True)
        passed = (*options.pop("pass_fds", ()), programs.descriptor())
        return subprocess.Popen(command, env={}, pass_fds=passed, **options)


def account_text(root: Path, host: str, path: str) -> str:
    """A file of accounts of ``host``, whose files are below ``root``; empty where the image has none.

    Raises ``RunError`` where it cannot be read.
    """
    try:
        with open(open_file(root, path, os.O_RDONLY), errors="replace") as file:
            text = file.read(_ACCOUNTS_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise RunError(f"host {host}: {path} of its image could not be read: {error.strerror}") from error
    if len(text) > _ACCOUNTS_MAX:
        raise RunError(f"host {host}: {path} of its image has more than {_ACCOUNTS_MAX} characters")
    return text


def is_readable(descriptor: int, timeout_s: float) -> bool:
    poll = select.poll()  # select takes no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * timeout_s))


class Shell:
    """One bash, or sh where there is none, inside a container, on a terminal of its own: a command at a time.

    ``terminal`` is our end of its terminal: the output of commands is read there (ended by ``SENTINEL``), and
    writes go to the running command. Raises ``RunError`` where the container has no sh.
    """

    def __init__(self, processes: ContainerProcesses, name: str) -> None:
        self._name = name
        self.terminal, theirs = pty.openpty()
        commands, self._commands = os.pipe()
        self._statuses, statuses = os.pipe()
        _no_echo(theirs)
        try:
            argv = shell_argv(_LOOP, "--norc --noprofile -i")
            self.process = subprocess.Popen(
                processes.argv(argv, tty=True, descriptors={3: commands, 4: statuses}),
                env={},
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                pass_fds=(commands, statuses, programs.descriptor()),
                start_new_session=True,
            )
        except BaseException:
            for descriptor in (self.terminal, self._commands, self._statuses, theirs):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (commands, statuses):
                os.close(descriptor)
        self._status_text = b""
        self._closed = False
        clock.Thread(target=self._mark_end, args=(theirs,), name=f"shell-{name}", daemon=True).start()
        try:
            self._wait_ready()
        except BaseException:
            self.close()
            raise

    def _mark_end(self, theirs: int) -> None:
        """End the output with the sentinel also when it is the shell that ended.

        Mininet's CLI waits for something to read: the mere hang-up of the terminal would keep it waiting for ever,
        so their end is held open here until then.
        """
        self.process.wait()
        with suppress(OSError):  # our end is closed already
            os.write(theirs, SENTINEL.encode())
        os.close(theirs)

    def _wait_ready(self) -> None:
        deadline = clock.monotonic() + _START_TIMEOUT_S
        output = b""
        while clock.monotonic() < deadline:
            if not is_readable(self.terminal, max(0.0, deadline - clock.monotonic())):
                break
            data = self.read()
            if not data:
                break
            output += data
            if output.endswith(SENTINEL.encode()):
                self.status()
                if self.alive:
                    return
                break
        text = output.decode(errors="replace").strip(SENTINEL).strip() or "no answer"
        raise RunError(f"{self._name}: no shell could be started in the container: {text}")

    def send(self, command: str) -> None:
        """Hand over one command (several lines are allowed). Raises ``RunError`` where the shell has ended."""
        self._drop_stale_answers()
        data = f"{one_line(command)}\n".encode()
        try:
            while data:
                data = data[os.write(self._commands, data) :]
        except BrokenPipeError as error:
            raise RunError(f"{self._name}: the shell has ended") from error

    def _drop_stale_answers(self) -> None:
        """Drop the second answer to a command that ended just when it was interrupted."""
        while is_readable(self._statuses, 0) and os.read(self._statuses, 64):
            output = b""
            while not output.endswith(SENTINEL.encode()) and is_readable(self.terminal, 1):
                output += self.read()

    def read(self, size: int = 4096) -> bytes:
        """What was printed, blocking until there is some; empty when the shell and its terminal are gone."""
        try:
            return os.read(self.terminal, size)
        except OSError:
            return b""  # EIO: no process holds the other end of the terminal any more

    def status(self) -> int:
        """The exit status of the command that just ended (its sentinel has been read), or of the shell itself."""
        while b"\n" not in self._status_text:
            data = os.read(self._statuses, 64)
            if not data:
                return self._ended()
            self._status_text += data
        line, _, self._status_text = self._status_text.partition(b"\n")
        return int(line)

    def _ended(self) -> int:
        try:
            return self.process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    @property
    def alive(self) -> bool:
        """Whether the shell can take commands."""
        return not self._closed and self.process.poll() is None

    def close(self) -> None:
        """End the shell and what runs in its foreground; idempotent."""
        if self._closed:
            return
        self._closed = True
        for descriptor in (self._commands, self._statuses, self.terminal):
            os.close(descriptor)  # the terminal's end sends SIGHUP
        try:
            self.process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def _no_echo(terminal: int) -> None:
    attributes = termios.tcgetattr(terminal)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
