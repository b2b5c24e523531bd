"""Standard output and standard error that neither end the work nor delay it.

A pipe without a reader, a full disk, a closed or stopped terminal: from its first error on a stream accepts and drops
all output, and the work continues to its own end and exit status.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue
from typing import TextIO

import click

from containernet_env.base import clock

# The number of bytes that may wait for a stopped terminal; more is dropped. A run prints less than a kilobyte per
# second.
MAX_WAITING_BYTES = 16 << 20
STDOUT = "standard output"


class Output(io.RawIOBase):
    """One of the standard streams; ``error`` is why it ended. ``_queue`` holds its pending output."""

    def __init__(self, fd: int, name: str) -> None:
        self.name = name
        self.error: OSError | None = None
        self._fd = fd
        self._queue: SimpleQueue[bytes | None] | None = None
        self._waiting = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def write(self, data: bytes) -> int:  # type: ignore[override]
        chunk = bytes(data)
        if self._queue is None:
            self.write_now(chunk)
        elif self._waiting <= MAX_WAITING_BYTES:
            self._waiting += len(chunk)
            self._queue.put(chunk)
        return len(chunk)

    def write_now(self, chunk: bytes) -> None:
        """Write, waiting for the reader; output that cannot be written is dropped."""
        while chunk and self.error is None:
            try:
                chunk = chunk[os.write(self._fd, chunk) :]
            except BlockingIOError:  # another process made the terminal or pipe so
                writable = select.poll()  # select takes no descriptor above 1023
                writable.register(self._fd, select.POLLOUT)
                writable.poll(1000)
            except OSError as error:
                self.error = error
                _tell_end(self, working=self._queue is not None)

    @contextmanager
    def unblocked(self) -> Iterator[None]:
        """Within it a thread writes, so that `write` never waits; leaving it waits until all has been written."""
        queue: SimpleQueue[bytes | None] = SimpleQueue()

        def write() -> None:
            while (chunk := queue.get()) is not None:
                self.write_now(chunk)
                self._waiting -= len(chunk)

        thread = clock.Thread(target=write, name=f"{self.name}", daemon=True)
        thread.start()
        self._queue = queue
        try:
            yield
        finally:
            self._queue = None
            queue.put(None)
            thread.join()


def plain(text: str) -> str:
    """Text of a file or of another program, without characters that move a terminal's cursor or reverse its text."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def note(text: str) -> None:
    """Print a note that is no part of the output, on standard error."""
    click.echo(plain(text), err=True)


_outputs: list[Output] = []


@contextmanager
def guarded() -> Iterator[None]:
    """Put an `Output` in the place of sys.stdout and sys.stderr, as far as these lead to a descriptor.

    Descriptors that the process was started without are opened on /dev/null, so that no file gets their number.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _guard(sys.stdout, 1, STDOUT), _guard(sys.stderr, 2, "standard error")
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        _outputs.clear()


@contextmanager
def unblocked() -> Iterator[None]:
    """For work that has more to do than to print: a thread for each stream writes, so that none holds the work up."""
    with ExitStack() as stack:
        for output in _outputs:
            stack.enter_context(output.unblocked())
        yield


def is_cut() -> bool:
    """Whether something that was printed is missing where it was to go; a reader who has had enough is none."""
    return any(output.error is not None and output.error.errno != errno.EPIPE for output in _outputs)


def _tell_end(ended: Output, working: bool) -> None:
    """Report on standard error that standard output ended, unless the reader of a command that only prints has closed
    it."""
    assert ended.error is not None
    if ended.name != STDOUT or (ended.error.errno == errno.EPIPE and not working):
        return
    text = f"standard output ended: {ended.error.strerror}"
    text = f"{text}; the run goes on without it" if working else f"Error: {text}"
    for output in _outputs:
        if output is not ended:
            output.write(f"{text}\n".encode())


def _guard(stream: TextIO | None, fd: int, name: str) -> TextIO:
    """The stream itself where it leads elsewhere, as in a test. A path may hold any bytes: they are shown escaped."""
    try:
        fd = stream.fileno() if stream is not None else fd
    except (OSError, ValueError):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        assert stream is not None
        return stream
    if stream is not None:
        with suppress(OSError):
            stream.flush()
    output = Output(fd, name)
    _outputs.append(output)
    encoding = (stream.encoding if stream is not None else None) or "utf-8"
    return io.TextIOWrapper(output, encoding=encoding, errors="backslashreplace", write_through=True)
