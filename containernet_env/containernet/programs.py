"""Running programs in a Docker host: Mininet's ``cmd`` family, with exit statuses."""

from __future__ import annotations

import os
import select
import subprocess
from typing import Any

from mininet.node import Host

from containernet_env.base.errors import RunError
from containernet_env.hosts.processes import SENTINEL, ContainerProcesses, Shell, shell_argv

CANNOT_RUN = 126
"""The status of a command that could not be started, as in sh."""


class ContainerPrograms(Host):  # type: ignore[misc]
    """The part of a Docker host that runs programs: a shell that is started by the first command, and ``popen``.

    Subclasses give ``processes``, which raises ``RunError`` where the container does not run.
    """

    def __init__(self, name: str, **parameters: Any) -> None:
        self._shell: Shell | None = None
        self._children: list[subprocess.Popen[Any]] = []
        self.last_status: int | None = None
        # Mininet's own, which its constructor sets to None.
        self.stdin: Any
        self.stdout: Any
        self.shell: Any
        self.lastCmd: str | None
        self.lastPid: int | None
        super().__init__(name, **parameters)

    @property
    def processes(self) -> ContainerProcesses:
        """What starts programs in the container. Raises ``RunError`` where it does not run."""
        raise NotImplementedError

    def startShell(self, *_args: Any, **_options: Any) -> None:
        """Nothing: the shell is started by the first command that needs it."""

    def mountPrivateDirs(self) -> None:
        """Nothing: a container's files are private; ``tmpfs`` and ``volumes`` mount."""

    unmountPrivateDirs = mountPrivateDirs

    def _ensure_shell(self) -> Shell:
        processes = self.processes
        if self._shell is None or not self._shell.alive:
            self._close_shell()
            self._shell = Shell(processes, self.name)
            self._poll(os.fdopen(os.dup(self._shell.terminal), "rb", buffering=0))
            self.shell = self._shell.process
            self.waiting = False
        return self._shell

    def _close_shell(self) -> None:
        if self.stdout is not None:
            self.outToNode.pop(self.stdout.fileno(), None)
            self.inToNode.pop(self.stdout.fileno(), None)
            self.stdout.close()
            self.stdout = self.stdin = None
        if self._shell is not None:
            self._shell.close()
        self._shell = None
        self.shell = None

    def sendCmd(self, *args: Any, **_options: Any) -> None:
        """Start a command in the shell; ``monitor``, ``waitOutput`` read what it prints.

        Where the container has ended they read that instead, and the status is ``CANNOT_RUN``.
        """
        try:
            shell = self._ensure_shell()
        except RunError as error:
            self._say(f"*** {error}\n")
            return
        if self.waiting:
            raise RunError(f"host {self.name}: {self.lastCmd!r} still runs; waitOutput() or sendInt() first")
        words = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        command = " ".join(map(str, words)) or ":"
        self.lastCmd, self.lastPid = command, None
        if command.rstrip().endswith("&") and not command.rstrip().endswith("&&"):
            # Mininet's marker, from which monitor() learns lastPid.
            command = f"{command} printf '\\001%d\\012' $!"
        shell.send(command)
        self.last_status = None
        self.waiting = True

    def _say(self, text: str) -> None:
        """Have ``text`` read as the output of a command: Mininet's CLI would end over an exception of ``sendCmd``."""
        self._close_shell()
        ours, theirs = os.pipe()
        os.write(theirs, f"{text}{SENTINEL}".encode())
        os.close(theirs)
        self._poll(os.fdopen(ours, "rb", buffering=0))
        self.last_status = CANNOT_RUN
        self.waiting = True

    def _poll(self, stream: Any) -> None:
        """Make ``stream`` what Mininet's CLI and ``monitor`` wait for."""
        self.stdout = self.stdin = stream
        self.pollOut = select.poll()
        # Not by default, as Mininet does: a terminal can always be written to, so monitor() would keep no time limit.
        self.pollOut.register(stream, select.POLLIN)
        self.outToNode[stream.fileno()] = self
        self.inToNode[stream.fileno()] = self
        self.readbuf = ""

    def read(self, size: int = 1024) -> str:
        """Mininet's buffered read; the end of the shell reads as the end of its command."""
        if not self.readbuf and self.stdout is not None:
            try:
                data = os.read(self.stdout.fileno(), max(1, size))
            except OSError:
                data = b""  # EIO: no process holds the other end of the terminal any more
            self.readbuf = self.decoder.decode(data) if data else SENTINEL
        found, self.readbuf = self.readbuf[:size], self.readbuf[size:]
        return str(found)

    def write(self, data: str) -> None:
        """Type into the running command."""
        if self._shell is not None:
            os.write(self._shell.terminal, data.encode())

    def sendInt(self, intr: str = "\x03") -> None:
        """Interrupt the running command; nothing where none runs."""
        if self.waiting:
            self.write(intr)

    def monitor(self, timeoutms: int | None = None, findPid: bool = True) -> str:
        """What the running command printed since; ``waiting`` is false once it has ended."""
        if not self.waiting:
            return ""
        data = str(super().monitor(timeoutms, findPid=findPid))
        self._note_end()
        return data

    def _note_end(self) -> None:
        if not self.waiting and self._shell is not None:
            self.last_status = self._shell.status()

    def cmd(self, *args: Any, **options: Any) -> str:
        """Run a command in the shell, return what it printed. Raises ``RunError`` where the container has ended."""
        self._ensure_shell()
        self.sendCmd(*args)
        return str(self.waitOutput(bool(options.get("verbose", False))))

    def run(self, *args: Any) -> tuple[int, str]:
        """Run a command in the shell; its exit status, and what it printed with plain line ends."""
        output = self.cmd(*args).replace("\r\n", "\n")
        assert self.last_status is not None
        return self.last_status, output

    def popen(self, *args: Any, **options: Any) -> subprocess.Popen[Any]:
        """Start a program beside the shell; arguments as in Mininet (list, words, or text), ``Popen`` keywords."""
        words = args[0] if len(args) == 1 else args
        shell = options.pop("shell", False)
        options.pop("mncmd", None)
        argv = words.split() if isinstance(words, str) and not shell else [words] if isinstance(words, str) else words
        argv = list(map(str, argv))
        if shell:
            argv = shell_argv(" ".join(argv))
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process = self.processes.popen(argv, **options)
        self._children.append(process)
        return process

    def release(self) -> None:
        """End the shell and programs started from here; the container stays. Idempotent."""
        self._close_shell()
        for process in self._children:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._children.clear()
