from pathlib import Path
import pytest
from containernet_env.base.stop import Stop
from tests.simulated_time import World, simulated
from tests.unit.simulated_dask import *
from tests.unit.sweep_fakes import Notes, lines, measured
from tests.unit.run_fakes import rows

@simulated()
def test_a(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    simulate(world, tmp_path, monkeypatch, "node1", "node2")
    counts = sweep_on(out, notes, repeat=2).carry_out(notes, Stop())
    print(counts, notes.notes, world.now_ns, world.steps)
    print([r["Machine"]+r["Repetition"] for r in rows(out)])
