"""A run on a testbed of fakes, and what it left."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts.data_sync import SyncTimes
from containernet_env.model.leadership import Leadership
from containernet_env.model.machine_findings import Capacity
from containernet_env.model.outcome import Reused
from containernet_env.model.proof import NetworkProof
from containernet_env.results.provenance import LinkFacts
from containernet_env.runs import manifest as manifest_module
from containernet_env.runs import measure as measure_module
from containernet_env.runs.change import Change
from containernet_env.runs.measure import measure
from containernet_env.setup.images import Images
from containernet_env.stores.protocol import LoadTerms
from containernet_env.usage.consumers import Pids
from tests.unit.manifests import LINKS, MACHINE, PROGRAM
from tests.unit.matrix_fakes import FakeCluster, FakeNet, FakeServer

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
CONFIG, QUICK = CONFIGS / "3node-3ms.json", CONFIGS / "scenarios" / "quick.json"


class FakeTestbed:
    """Comes up and goes down; ``downs`` counts the latter."""

    proved_again: NetworkProof | RunError = NetworkProof("after", ())
    key_prefix, unseen, after_down = "", None, "nothing is left"
    hosts_kind, links_kind = "docker", "emulator"

    def __init__(self, plan: Any, images: Any, progress: Any, **others: Any) -> None:
        self.plan, self.turned, self.rests = plan, list[Change](), 0
        self.reused: Reused = "nothing"
        self.loaded = False
        self.images: dict[str, str] = {}
        self.on_proof = others["on_proof"]
        self.ups = self.downs = 0
        self.led_at_start, self.leader_at_start = Leadership("etcd1", 2), "etcd1"
        self.sync = {"etcd1": SyncTimes(100, 500_000, 900_000)}
        self.leader_wanted = plan.config.etcd.leader
        self.capacity = Capacity(2)
        self.least_median_s = lambda scenario, leader, living: None
        self.client_rtts_ns = dict
        self.failure: str | None = None
        self.network = FakeNet()
        self.settled_failure = lambda: self.failure
        self.member_timeout_s, self.load_terms = 1.0, LoadTerms()
        self.client_host = SimpleNamespace(alive=True, ending=lambda: None)
        self.server, self.cluster = FakeServer(), FakeCluster()
        self.cluster.version = lambda: "3.7.3"  # type: ignore[attr-defined]
        self.gate = self.realtime = self.faults = None
        self.fail: BaseException | None = None
        self.unproved: str | None = "not proved"

    def up(self) -> None:
        self.ups += 1
        if self.fail is not None:
            raise self.fail

    @contextmanager
    def told_why(self) -> Iterator[None]:
        try:
            yield
        except RunError as error:
            raise RunError("etcd2 ended before the first scenario: killed by SIGKILL") from error

    def prove_again(self, moment: str) -> NetworkProof:
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

    def turn_to(self, plan: Any, change: Change, progress: Any, on_event: Any, on_proof: Any) -> None:
        self.turned.append(change)
        if self.failure is not None:
            raise RunError(self.failure)
        self.plan, self.reused, self.on_proof = plan, change.reused, on_proof

    def down(self) -> None:
        self.downs += 1

    def link_facts(self) -> LinkFacts:
        return LINKS

    def pids(self) -> Pids:
        return Pids({"etcd1": os.getpid()}, None, None, os.getpid())

    def host_facts(self) -> dict[str, Any]:
        return {}

    def logs(self) -> Iterator[tuple[str, str]]:
        yield "etcd1", "ready\n"


def on_fakes(monkeypatch: pytest.MonkeyPatch) -> list[FakeTestbed]:
    """Runs have fakes for testbeds, root, the lock and the engine from here on; gives the testbeds that are made."""
    beds: list[FakeTestbed] = []

    def create(*arguments: Any, **named: Any) -> FakeTestbed:
        beds.append(FakeTestbed(*arguments, **named))
        return beds[-1]

    monkeypatch.setattr(measure_module, "require_root", lambda: None)
    monkeypatch.setattr(measure_module, "lock_for", lambda plan: nullcontext())
    monkeypatch.setattr(measure_module, "ready_images", lambda *of: Images(member="e", benchmark="b"))
    monkeypatch.setattr(measure_module.clean, "remove_leftovers", lambda: SimpleNamespace(removed=()))
    monkeypatch.setattr(measure_module.labs, "others_up", lambda: 0)
    monkeypatch.setattr(measure_module, "keep_costs", lambda *_: None)  # this machine's own file stays as it is
    monkeypatch.setattr(manifest_module.machine, "facts", lambda: MACHINE)
    monkeypatch.setattr(manifest_module.images, "digest", lambda tag: f"sha256:{tag}")
    monkeypatch.setattr(manifest_module, "program_facts", lambda: PROGRAM)
    monkeypatch.setattr(measure_module, "StandingTestbed", create)
    return beds


def run(out: Path, **arguments: Any) -> Any:
    return measure(CONFIG, QUICK, out, only=["write-leader-50x1x1-4B-64B"], **arguments)


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(out.read_text().splitlines()))


def events(out: Path) -> list[dict[str, Any]]:
    path = next(out.with_suffix(".runs").iterdir()) / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
