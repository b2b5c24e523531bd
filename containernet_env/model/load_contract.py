"""The bounds and paths of the benchmark server's API, by the names of its parameters and benchmarks.

`go generate ./...` in benchmark_image writes load_contract.json from the table of parameters in
benchmark_image/internal/spec.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CONTRACT: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="ascii"))

LEAST: Mapping[str, float] = _CONTRACT["least"]
MOST: Mapping[str, int] = _CONTRACT["most"]
"""Sizes are in bytes, times in seconds, rates in requests/s."""
PATHS: Mapping[str, str] = _CONTRACT["paths"]
KEY_SPACE_OF_DURATION: int = _CONTRACT["keySpaceOfDuration"]
UNIQUE_VAL_SIZE_MIN_BYTES: int = _CONTRACT["uniqueValSizeMin"]
