"""A run directory as a run leaves it, to be changed."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from containernet_env.runs.manifest import inputs_of
from tests.unit.manifests import manifest, plan_of
from tests.unit.test_run_directory import OBSERVED, written

_CONFIGS = Path(__file__).resolve().parents[2] / "configs"
_PLAN = plan_of(_CONFIGS / "2node.json")


def _files() -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        directory = written(Path(folder))
        directory.write("manifest.json", manifest(_PLAN))
        directory.add_scenario(OBSERVED)
        paths = [path for path in directory.path.iterdir() if path.suffix in (".json", ".jsonl")]
        texts = {path.name: path.read_text() for path in sorted(paths)}
    return {name: json.loads(text.splitlines()[-1] if name.endswith("l") else text) for name, text in texts.items()}


FILES: dict[str, Any] = _files()
"""The files, by name; of those of lines, one line."""

INPUTS: dict[str, Any] = {name: json.loads(text) for name, text in inputs_of(_PLAN).items()}
"""The files of the folder ``inputs``, which `rerun` reads, and `report` the topology."""

CHECKSUMS = "".join(f"{'0' * 64}  {name}\n" for name in (*FILES, *INPUTS))
"""The lines of checksums.sha256."""
