"""Ctrl-C, SIGTERM, SIGHUP and SIGQUIT: the first one ends the work, none ever ends the tear-down."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from containernet_env.base.errors import ContainernetEnvError, Interrupted
from containernet_env.base.stop import Stop, stop_behind

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_pressed = False


def hear_ctrl_c() -> None:
    """From now on Ctrl-C is ``interrupt``, and Python does not print where it was dropped."""
    sys.unraisablehook = tell_unraisable
    signal.signal(signal.SIGINT, interrupt)


def tell_unraisable(dropped: UnraisableHookArgs) -> None:
    """Print an error that nothing can catch, unless it is a stop, which is remembered and needs no word."""
    if not issubclass(dropped.exc_type, (KeyboardInterrupt, Interrupted)):
        sys.__unraisablehook__(dropped)


def interrupt(_signum: int, _frame: FrameType | None) -> None:
    """The handler of Ctrl-C before any work: KeyboardInterrupt, which is not forgotten where nobody hears of it.

    An extension written in another language may drop what is raised while it calls back, as pydantic's does while it
    builds a schema; ``StopSignals`` would then begin work that nobody wants.
    """
    global _pressed
    _pressed = True
    raise KeyboardInterrupt


class StopSignals(Stop):
    """A stop token that turns the first stop signal into `Interrupted`, raised once in the main thread.

    Every later one, and every one after `shield`, is only recorded (and told through `on_ignored`), so that
    a tear-down that has begun is carried to its end. ``resume`` says how to go on: the stop has that as a note.
    Under nohup a SIGHUP stays ignored; the handlers found at entry are put back at exit.

    Use it so, since a signal may strike between two lines::

        with StopSignals() as stop:
            try:
                try:
                    work()
                finally:
                    stop.shield()
            finally:          # reached also if the signal struck before the inner shield
                stop.shield()
                tear_down()
    """

    def __init__(
        self, on_ignored: Callable[[int], None] | None = None, resume: Callable[[], str] | None = None
    ) -> None:
        super().__init__()
        self._deferring = False
        self._on_ignored = on_ignored
        self._resume = resume
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        """Raises KeyboardInterrupt where Ctrl-C was pressed before, see ``interrupt``."""
        if _pressed:
            raise KeyboardInterrupt
        for signum in STOP_SIGNALS:
            # nohup ignores hang-ups; the others a shell ignores for each command that a script starts with `&`.
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
                self._previous[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        if error is not None and self._resume is not None and (stop := stop_behind(error)) is not None:
            with suppress(ContainernetEnvError):
                stop.add_note(self._resume())

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within this block a first signal waits; it raises when the outermost such block ends."""
        if self._deferring:
            yield
            return
        before = self.received
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if before is None and self.received is not None and not self._shielded:
            raise Interrupted(self.received)

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        first = self.received is None
        if first:
            self.received = signum
        if first and self._deferring:
            return
        if first and not self._shielded:
            raise Interrupted(signum)
        if self._on_ignored is not None:
            self._on_ignored(signum)
