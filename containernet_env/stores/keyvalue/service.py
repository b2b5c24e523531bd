"""How a service is spoken to, by the templates of its URLs: requests of loads, and those of the driver."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from containernet_env.model.config import HttpService
from containernet_env.stores.protocol import LoadTerms


def target(template: str, key: str) -> str:
    """The target of a request about a key; encoded as in loads (benchmark_image/internal/http1/conn.go)."""
    return template.replace("{key}", quote(key, safe=""))


def answers_a_read(service: HttpService, status: int) -> bool:
    """Whether a get with this status has found its key, or has told that there is none."""
    return status in service.get_codes or status in service.missing_codes


def load_terms(service: HttpService) -> LoadTerms:
    """The fields of requests to the benchmark server."""
    return LoadTerms(
        {"store": "http"},
        {"putPath": service.put, "putCodes": listed(service.put_codes)},
        {
            "getPath": service.get,
            "getCodes": listed(service.get_codes),
            "absentCodes": listed(service.missing_codes),
        },
        leaderless=True,
    )


def listed(codes: Iterable[int]) -> str:
    """As text, such as ``200,204``."""
    return ",".join(map(str, codes))
