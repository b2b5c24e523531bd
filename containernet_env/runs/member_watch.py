"""How long each member answers nothing: a thread pings them, over connections that cross no emulated link."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
from collections.abc import Callable, Mapping
from math import inf

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.stores.protocol import Ping

# How often each member is pinged: a silence is measured so much too short at most. A ping costs 0.8 ms of idle members,
# which it wakes (those under load are awake), and 0.15 ms of the driver: for three members 0.4 % of a core together.
PING_INTERVAL_S = 0.7
# Of pings to all members together: with more than eight members, each is pinged less often.
PINGS_PER_S = 12
# A connection inside the member's own namespace is made at once, or never.
OPEN_TIMEOUT_S = 0.25
# The thread itself may come so late; what is more is the driver's silence, and not that of members.
LATE_S = 0.1
_ANSWER_BYTES = 64 * 1024
# So often `settle` looks whether the answers are there.
_SETTLE_POLL_S = 0.02


class Silence:
    """How long one member has answered nothing. Pure: the moments are arguments, in seconds.

    It counts from the first ping that was not answered, so it is never longer than the member was silent.
    """

    def __init__(self) -> None:
        self.asked_s: float | None = None
        self.answered_s = -inf
        self._longest_s = 0.0

    def ask(self, now_s: float) -> None:
        """A ping was sent; one that follows an unanswered one changes nothing."""
        if self.asked_s is None:
            self.asked_s = now_s

    def answer(self, now_s: float) -> None:
        """Something came back."""
        self._longest_s = self.longest_s(now_s)
        self.asked_s, self.answered_s = None, now_s

    def excuse(self, late_s: float, now_s: float) -> None:
        """For so long until now nobody looked whether there was an answer."""
        if self.asked_s is not None:
            self.asked_s = min(self.asked_s + late_s, now_s)

    def reset(self) -> None:
        """Forget every silence that is over; one that goes on counts from where it began."""
        self._longest_s = 0.0

    def now_s(self, now_s: float) -> float:
        """How long it has been silent now; 0 where it answers."""
        return 0.0 if self.asked_s is None else now_s - self.asked_s

    def longest_s(self, now_s: float) -> float:
        """The longest silence since the last reset, one that goes on included."""
        return max(self._longest_s, self.now_s(now_s))


class MemberWatch:
    """Pings the members that ``pings`` names, between ``start`` and ``close``; may be asked from any thread."""

    def __init__(self, pings: Callable[[], Mapping[str, Ping]]) -> None:
        self._pings = pings
        self._silences: dict[str, Silence] = {}
        self._sockets: dict[str, socket.socket] = {}
        self._selector: selectors.BaseSelector  # from start to the end of the thread
        self._lock = clock.Lock()
        self._over = clock.Event()
        self._at_once = clock.Event()
        self._last_round_s = -inf  # when it began
        self._wake: int | None = None  # an eventfd: ends what the thread waits for
        self._thread = clock.Thread(target=self._run, name="member-watch", daemon=True)

    def start(self) -> None:
        """Begin to ping; nothing stays open where that fails, as where no thread can be had."""
        self._selector = selectors.DefaultSelector()
        try:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._selector.register(self._wake, selectors.EVENT_READ)
            self._thread.start()
        except BaseException:
            self.close()
            if not self._thread.is_alive():  # one that begins only now ends at once
                self._release()
            raise

    def close(self) -> None:
        """Stop, and close every connection: one that is open keeps a network namespace. Idempotent."""
        self._over.set()
        self._wake_up()
        if self._thread.is_alive():
            self._thread.join()

    def _wake_up(self) -> None:
        with self._lock:
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)

    def reset(self) -> None:
        """Forget every silence that is over.

        One that goes on counts from where it began: else a silence that several short scenarios share were in none.
        """
        with self._lock:
            for silence in self._silences.values():
                silence.reset()

    def longest_s(self) -> dict[str, float]:
        """By member: the longest time for which it answered nothing, of silences that went on since the last reset."""
        with self._lock:
            return {name: silence.longest_s(clock.monotonic()) for name, silence in self._silences.items()}

    def silent(self, for_s: float) -> list[str]:
        """The members that have answered nothing for so long, and still do not."""
        with self._lock:
            return [name for name, silence in self._silences.items() if silence.now_s(clock.monotonic()) >= for_s]

    def settle(self, for_s: float) -> None:
        """Return once each member has answered a new ping, or is one of those that are ``silent(for_s)``.

        ``for_s``, in seconds, bounds the wait, but for what a round of pings takes. Without it nobody would be to
        blame for what fails sooner than a silence is noticed.
        """
        began_s = clock.monotonic()
        deadline_s = began_s + for_s + PING_INTERVAL_S
        self._at_once.set()
        self._wake_up()
        while self._thread.is_alive() and not self._over.is_set() and clock.monotonic() < deadline_s:
            if self._is_settled(began_s, for_s):
                return
            self._over.wait(_SETTLE_POLL_S)

    def _is_settled(self, since_s: float, for_s: float) -> bool:
        with self._lock:
            now_s = clock.monotonic()
            return self._last_round_s >= since_s and all(
                silence.answered_s >= since_s or silence.now_s(now_s) >= for_s for silence in self._silences.values()
            )

    def _run(self) -> None:
        try:
            due_s = clock.monotonic()
            while not self._over.is_set():
                now_s = clock.monotonic()
                if now_s >= due_s or self._at_once.is_set():
                    self._at_once.clear()
                    due_s = now_s + self._ask()
                self._listen(due_s - clock.monotonic())
        finally:
            for name in list(self._sockets):
                self._drop(name)
            self._release()

    def _release(self) -> None:
        """Close what is not a connection. Idempotent."""
        self._selector.close()
        with self._lock:
            if self._wake is not None:
                os.close(self._wake)
                self._wake = None

    def _ask(self) -> float:
        """Ping every living member that has answered its last ping; how long it is to the next round."""
        began_s = clock.monotonic()
        pings = self._pings()
        now_s = clock.monotonic()
        self._excuse(now_s - began_s, now_s)  # how one has died may take the engine a while to tell
        with self._lock:
            for name in self._silences.keys() - pings.keys():
                del self._silences[name]
            for name in pings:
                self._silences.setdefault(name, Silence())
            self._last_round_s = began_s
        for name in self._sockets.keys() - pings.keys():
            self._drop(name)
        for name, ping in pings.items():
            waits = self._silences[name].asked_s is not None and name in self._sockets
            if not waits:
                self._send(name, ping)
        return max(PING_INTERVAL_S, len(pings) / PINGS_PER_S)

    def _send(self, name: str, ping: Ping) -> None:
        with self._lock:
            self._silences[name].ask(clock.monotonic())  # also where the connection cannot be made
        try:
            if name not in self._sockets:
                made = ping.connection.open(ping.port, timeout_s=OPEN_TIMEOUT_S)
                made.setblocking(False)
                self._selector.register(made, selectors.EVENT_READ, name)
                self._sockets[name] = made
            self._sockets[name].send(ping.request)
        except RunError:
            pass
        except OSError:
            if name in self._sockets:
                self._drop(name)
            else:  # it is the driver that lacks descriptors
                with self._lock:
                    self._silences[name].excuse(inf, clock.monotonic())

    def _listen(self, timeout_s: float) -> None:
        began_s = clock.monotonic()
        ready = clock.select(self._selector, max(0.0, timeout_s))
        now_s = clock.monotonic()
        self._excuse(now_s - began_s - max(0.0, timeout_s), now_s)
        for key, _ in ready:
            if key.fd == self._wake:
                os.eventfd_read(key.fd)
            else:
                self._take(key.data, now_s)

    def _excuse(self, late_s: float, now_s: float) -> None:
        """For so long until now nobody looked whether there are answers."""
        if late_s > LATE_S:
            with self._lock:
                for silence in self._silences.values():
                    silence.excuse(late_s, now_s)

    def _take(self, name: str, now_s: float) -> None:
        try:
            answer = self._sockets[name].recv(_ANSWER_BYTES)
        except ssl.SSLWantReadError:
            return  # a part of a record, or something that TLS says for itself
        except OSError:
            answer = b""
        if not answer:
            self._drop(name)  # it goes on being silent, until a new connection brings an answer
        elif name in self._silences:
            with self._lock:
                self._silences[name].answer(now_s)

    def _drop(self, name: str) -> None:
        dropped = self._sockets.pop(name)
        self._selector.unregister(dropped)
        dropped.close()
