"""A testbed on a network that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from containernet_env.config.plan import PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.topologies import load_config
from containernet_env.results.run_files import Proof
from containernet_env.runs import testbed as testbed_module
from containernet_env.runs.testbed import Testbed
from containernet_env.setup.images import Images
from tests.unit.matrix_fakes import CONFIG, Notes


class FakeNet:
    """Takes the place of the network; `hear` is what it tells events."""

    def __init__(self) -> None:
        self.hello: dict[str, Any] = {}
        self.links_kind = "emulator"
        self.link_backend, self.hosts_kind = "the emulator", "docker"
        self.switches_kind = "emulator"
        self.backend_name, self.backend_version, self.backend_commit = "containernet", "3.0", "c0ffee"

    def link_backend_facts(self) -> dict[str, Any]:
        return self.hello

    def link_statistics(self, *, reset: bool = False, buckets: bool = False) -> dict[str, Any]:
        return {}

    def link_backend_answers(self, timeout_s: float) -> bool:
        return True

    def on_event(self, handler: Any) -> None:
        self.hear = handler


def make_bed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A testbed on a fake network, and what it told of failures in `told`."""
    monkeypatch.setattr(testbed_module.engines, "create", lambda plan: FakeNet())
    plan = build_plan(load_config(CONFIG), None, PlanOptions(machine_cores=2))
    told: list[str] = []
    proofs: list[Proof] = []
    made: Any = Testbed(
        plan,
        Images(member="e", benchmark="b"),
        Notes(),
        on_proof=proofs.append,
        on_event=lambda kind, text, subject=None: told.append(text) if kind == "testbed_failed" else None,
    )
    made.told, made.proofs = told, proofs
    return made
