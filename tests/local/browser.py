"""A headless Chromium, driven over the pipe of its DevTools protocol: nothing but the standard library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.deadline import HANG_S, eventually

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _pipe() -> tuple[int, int]:
    """Both ends, as descriptors from 10 on."""
    ends = os.pipe()
    first, second = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return first, second


class Browser:
    """One tab. ``messages`` are errors and warnings of its console, exceptions and what its policy refused."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        self.messages: list[str] = []
        self.requested: list[str] = []
        self._number = 0
        self._rest = b""
        # The protocol is on descriptors 3 and 4; other numbers than these, so that none replaces the other.
        (to_read, self._write), (self._read, to_write) = _pipe(), _pipe()
        command = ["bash", "-c", f'exec 3<&{to_read} 4>&{to_write}; exec "$@"', "bash", CHROMIUM]
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--mute-audio"]
        self._process = subprocess.Popen(
            [*command, *options, "--no-first-run", "--disable-extensions", f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._session: str | None = None

    def __enter__(self) -> Self:
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End Chromium with all of its processes, so that none still writes into its profile."""
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(HANG_S)
        finally:
            self._process.kill()
            self._process.wait(HANG_S)
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer.get("method"), answer.get("params", {}))

    def _next(self) -> dict[str, Any]:
        readable = select.poll()  # select() takes no descriptor above 1023
        readable.register(self._read, select.POLLIN)
        while b"\0" not in self._rest:
            assert readable.poll(1000 * HANG_S), "Chromium is silent"
            piece = os.read(self._read, 1 << 20)
            assert piece, "Chromium has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: str | None, what: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.messages.append(" ".join(str(item.get("value", item.get("description"))) for item in what["args"]))
        elif event == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.messages.append(what["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requested.append(what["request"]["url"])

    def open(self, page: Path, **how: Any) -> None:
        """Load a file as ``go`` does a page."""
        self.go(page.resolve().as_uri(), **how)

    def go(self, url: str, width: int = 1280, dark: bool = False) -> None:
        """Load a page, and wait until it says that it is drawn."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        wanted = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[wanted])
        self.call("Page.navigate", url=url)
        drawn = "document.readyState === 'complete' && document.documentElement.dataset.drawn"
        eventually(lambda: self.js(drawn), "the page is not drawn")

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def pdf(self, path: Path) -> None:
        """The page as it prints."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
