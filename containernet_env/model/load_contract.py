"""The bounds and paths of the benchmark server's API.

`go generate ./...` in benchmark_image writes load_contract.json from the table of parameters in
benchmark_image/internal/spec.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CONTRACT: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="ascii"))
_LEAST, _MOST = _CONTRACT["least"], _CONTRACT["most"]

CLIENTS_MAX: int = _MOST["clients"]
CONNS_MAX: int = _MOST["conns"]
TOTAL_MAX: int = _MOST["total"]
DURATION_MIN_S: float = _LEAST["duration"]
RATE_MIN_PER_S: float = _LEAST["rate"]
RATE_MAX_PER_S: int = _MOST["rate"]
KEY_SIZE_MAX_BYTES: int = _MOST["keySize"]
KEY_SPACE_MAX: int = _MOST["keySpace"]
ZIPF_EXPONENT_MAX: int = _MOST["zipfExponent"]
VAL_SIZE_MAX_BYTES: int = _MOST["valSize"]
SPAN_KEYS_MAX: int = _MOST["spanKeys"]
REQUEST_TIMEOUT_MAX_S: int = _MOST["requestTimeout"]
DIAL_TIMEOUT_MAX_S: int = _MOST["dialTimeout"]
RUN_TIMEOUT_MAX_S: int = _MOST["runTimeout"]
STALL_TIMEOUT_MAX_S: int = _MOST["stallTimeout"]
KEY_SPACE_OF_DURATION: int = _CONTRACT["keySpaceOfDuration"]
UNIQUE_VAL_SIZE_MIN_BYTES: int = _CONTRACT["uniqueValSizeMin"]

WRITE_PATH: str = _CONTRACT["paths"]["write"]
READ_PATH: str = _CONTRACT["paths"]["read"]
MIXED_PATH: str = _CONTRACT["paths"]["mixed"]
TXN_PATH: str = _CONTRACT["paths"]["txn"]
RESULT_PATH: str = _CONTRACT["paths"]["result"]
