"""Stores other than etcd, on a real network. Each is left out where nobody has set it up yet: that takes minutes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from containernet_env.model.config import StoreChoice
from containernet_env.results.histories import histories_of
from containernet_env.results.run_directory import find_run
from containernet_env.runs.verify import judge
from containernet_env.setup import missing
from containernet_env.stores.kinds import KINDS
from tests.docker.conftest import TINY_SCENARIOS
from tests.docker.test_endings import unchanged_machine
from tests.docker.test_failures import rows, run

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("unchanged_machine")]
__all__ = ["unchanged_machine"]

NODE = {"mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"}


def topology(folder: Path, kind: str) -> Path:
    if lacking := missing.look(KINDS[kind].make(StoreChoice(kind))):
        pytest.skip(f"{kind} is not set up here: {lacking}")
    path = folder / f"{kind}.json"
    nodes = [{"name": f"m{number}", "ip": f"10.0.0.{number}", **NODE} for number in (1, 2, 3)]
    path.write_text(json.dumps({"store": kind, "nodes": nodes}))
    return path


TINY: Any = TINY_SCENARIOS["scenarios"]
MIXED = {
    "type": "mixed",
    "load": {"total": 300, "clients": 20, "conns": 4},
    "ratio": 0.5,
    "consistency": "l",
    "verify": True,
    "history": True,
}


def measured(folder: Path, kind: str, *before: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of scenarios, and of a mixed load after them, whose history the final state of the store agrees with."""
    topology_file, out, scenarios = topology(folder, kind), folder / "out.csv", folder / "scenarios.json"
    scenarios.write_text(json.dumps({**TINY_SCENARIOS, "scenarios": [*before, MIXED]}))
    done = run(topology_file, out, "--scenarios", str(scenarios))
    assert done.returncode == 0, done.stdout + done.stderr
    (history,) = histories_of(find_run(out))
    judgement = judge(history, folder / "verify", time_s=60, memory_bytes=1 << 30)
    assert (judgement.verdict, judgement.values["compared"]) == ("ok", "final state"), judgement
    assert judgement.values["judged"] == judgement.values["operations"] == 300, judgement
    # Each key has a last write of its own.
    assert history.store is not None
    *held, last = [json.loads(line) for line in gzip.decompress(history.store.read_bytes()).splitlines()]
    assert last == {"whole": False, "final": True} and len({write["revision"] for write in held}) == len(held) > 50
    found = rows(out)
    assert found.pop()["Error"] == "-"
    return found


def test_what_consul_holds_agrees_with_what_it_acknowledged(tmp_path: Path) -> None:
    assert measured(tmp_path, "consul") == []


def test_requests_to_zookeeper_wait_for_what_its_protocol_waits_for(tmp_path: Path) -> None:
    found = {row["Scenario"].rsplit("-", 1)[0]: row for row in measured(tmp_path, "zookeeper", *TINY)}
    assert {(row["Store"], row["StoreVersion"]) for row in found.values()} == {("zookeeper", "3.8.0")}
    # There and back in ms: the client 6, a member 12. Two of three requests of a cluster meet a follower.
    least_ms = {"write-leader": 6 + 12, "write-cluster": 6 + 12 + 12, "read-linear": 6 + 12, "read-serial": 6}
    for name, row in found.items():
        (expected,) = (ms for beginning, ms in least_ms.items() if name.startswith(beginning))
        floor, above = float(row["Floor_50%_s"]) * 1000, float(row["AboveFloor_50%_s"]) * 1000
        assert expected <= floor < expected + 5 and 0 < above < 10, (name, floor, above)
        assert row["Consistency"] == {"read-linear": "sync+read", "read-serial": "s"}.get(name[:11], "-")
        assert row["Error"] == "-" and row["Leader"] in ("m1", "m2", "m3") and row["TermAtEnd"] == "1"
