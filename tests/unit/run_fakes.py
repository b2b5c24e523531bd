"""A run on a testbed of fakes, and what it left."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts.container import SyncTimes
from containernet_env.model.proof import NetworkProof
from containernet_env.results.run_files import LinkFacts
from containernet_env.runs import machine
from containernet_env.runs import manifest as manifest_module
from containernet_env.runs import measure as measure_module
from containernet_env.runs.load import Answer
from containernet_env.runs.measure import measure
from containernet_env.runs.reuse import Change
from containernet_env.setup.images import Images
from tests.unit.manifests import LINKS, MACHINE, PROGRAM
from tests.unit.matrix_fakes import GOOD, FakeTarget

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
CONFIG, QUICK = CONFIGS / "3node-3ms.json", CONFIGS / "scenarios" / "quick.json"


def raising(error: BaseException) -> Callable[..., Any]:
    """Raises it whenever it is called."""

    def call(*arguments: object, **named: object) -> Any:
        raise error

    return call


class Beds(list["FakeTestbed"]):
    """The testbeds that were made, in order.

    ``at`` is what happens in a call of one, by the call's name. ``special`` is what a benchmark has, by its number from
    1: an answer, an error, or a call that may give one; all others have no errors. ``asked`` is how many there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[str, Callable[[FakeTestbed], object]] = {}
        self.special: dict[int, Any] = {}
        self.asked = 0

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        self.asked += 1
        found = self.special.get(self.asked)
        if isinstance(found, BaseException):
            raise found
        found = found() if callable(found) else found
        return found if isinstance(found, Answer) else GOOD


class FakeTestbed(FakeTarget):
    """Comes up and goes down; ``downs`` counts the latter."""

    beds = Beds()
    proved_again: NetworkProof | RunError = NetworkProof("after", ())

    def __init__(self, plan: Any, images: Any, progress: Any, **others: Any) -> None:
        super().__init__()
        self.plan, self.turned, self.rests = plan, list[Change](), 0
        self.images: dict[str, str] = {}
        self.on_proof = others["on_proof"]
        self.ups = self.downs = 0
        self.sync = {"etcd1": SyncTimes(100, 500_000, 900_000)}
        self.server.behave = self.beds.answer
        self.cluster.version = lambda: "3.7.3"
        self.unproved: str | None = "not proved"
        self.beds.append(self)

    def _at(self, call: str) -> None:
        if (happens := self.beds.at.get(call)) is not None:
            happens(self)

    def up(self) -> None:
        self.ups += 1
        self._at("up")

    @contextmanager
    def told_why(self) -> Iterator[None]:
        try:
            yield
        except RunError as error:
            raise RunError("etcd2 ended before the first scenario: killed by SIGKILL") from error

    def prove_again(self, moment: str) -> NetworkProof:
        self._at("prove_again")
        if isinstance(self.proved_again, RunError):
            raise self.proved_again
        self.unproved = None if self.proved_again.passed else "its network is wrong"
        return self.proved_again

    @property
    def why_unfit(self) -> str | None:
        return self.failure or self.unproved

    def rest(self, loaded: bool) -> None:
        self.loaded = loaded
        self.rests += 1
        self._at("rest")

    def turn_to(self, plan: Any, change: Change, progress: Any, on_event: Any, on_proof: Any) -> None:
        self._at("turn_to")
        self.turned.append(change)
        if self.failure is not None:
            raise RunError(self.failure)
        self.plan, self.reused, self.on_proof = plan, change.reused, on_proof

    def down(self) -> None:
        self.downs += 1
        self._at("down")

    def link_facts(self) -> LinkFacts:
        return LINKS

    def host_facts(self) -> dict[str, Any]:
        self._at("host_facts")
        return {}


def on_fakes(monkeypatch: pytest.MonkeyPatch) -> Beds:
    """Runs have fakes for testbeds, root, the lock and the engine from here on; gives the testbeds that are made."""
    beds = Beds()
    monkeypatch.setattr(measure_module, "require_root", lambda: None)
    monkeypatch.setattr(measure_module, "lock_for", lambda plan: nullcontext())
    monkeypatch.setattr(measure_module, "ready_images", lambda *of: Images(member="e", benchmark="b"))
    monkeypatch.setattr(measure_module.clean, "remove_leftovers", lambda: SimpleNamespace(removed=()))
    monkeypatch.setattr(measure_module.clean, "others_up", lambda: 0)
    monkeypatch.setattr(measure_module, "keep_costs", lambda *_: None)  # this machine's own file stays as it is
    # How busy this machine is decides no verdict.
    monkeypatch.setattr(measure_module, "AllUse", lambda *_: None)
    monkeypatch.setattr(measure_module, "Sampler", lambda *_: None)
    monkeypatch.setattr(machine, "facts", lambda: MACHINE)
    monkeypatch.setattr(manifest_module.images, "digest", lambda tag: f"sha256:{tag}")
    monkeypatch.setattr(manifest_module, "program_facts", lambda: PROGRAM)
    monkeypatch.setattr(measure_module, "Testbed", FakeTestbed)
    monkeypatch.setattr(FakeTestbed, "beds", beds)
    return beds


def run(out: Path, **arguments: Any) -> Any:
    return measure(CONFIG, QUICK, out, only=["write-leader-50x1x1-4B-64B"], **arguments)


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(out.read_text().splitlines()))


def events(out: Path) -> list[dict[str, Any]]:
    path = next(out.with_suffix(".runs").iterdir()) / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
