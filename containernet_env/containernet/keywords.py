"""Mininet's link keywords (``bw``, ``delay``, ...), read strictly: what cannot be carried out is an error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from containernet_env.base.errors import UsageError
from containernet_env.base.units import parse_bandwidth, parse_duration
from containernet_env.model.chance import IndependentLoss, Jitter
from containernet_env.model.link import DirectionSpec, LinkSpec

SHAPING = frozenset({"bw", "delay", "max_queue_size", "jitter", "loss"})
# Refused unless they ask for nothing.
_NEVER = frozenset({"use_hfsc", "use_tbf", "latency_ms", "enable_ecn", "enable_red", "speedup"})
# These choose means, not behaviour; frames are never merged or checked by hardware on these links.
_MEANINGLESS = frozenset({"use_htb", "gro", "disable_gro", "txo", "rxo", "fast", "intf", "cls1", "cls2"})
_INTERFACE = frozenset({"ip", "mac", "up"})


def shaping(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of ``DirectionSpec`` that ``given`` asks for; raises ``UsageError`` that names ``where``."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in _MEANINGLESS or (key in _NEVER and value in (None, 0, False, "0", "0ms")):
            continue
        if key in _NEVER:
            raise UsageError(f"{where}: {key}={value!r} is not offered; bw is an exact rate limit")
        if key not in SHAPING:
            near = difflib.get_close_matches(key, SHAPING | _INTERFACE | {"params1", "params2", "port1", "port2"}, n=1)
            raise UsageError(f"{where}: unknown keyword {key}{f' (did you mean {near[0]}?)' if near else ''}")
        if value is not None:
            found.update(_field(key, value, where))
    return found


def _field(key: str, value: Any, where: str) -> dict[str, Any]:
    try:
        if key == "delay":
            return {"delay_ns": parse_duration(value)}
        if key == "bw":
            rate = parse_bandwidth(value)
            if rate == 0:
                raise ValueError("more than 0")
            return {"rate_bps": rate}
        if key == "jitter":
            # tc's, which Mininet asks for: uniform, and frames may overtake each other.
            jitter_ns = 0 if value in (0, "0") else parse_duration(value)
            return {"jitter": Jitter("uniform", jitter_ns, reorder=True) if jitter_ns else None}
        if key == "loss":
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 100:
                raise ValueError("a number of percent, 0 to 100")
            return {"loss": IndependentLoss(value / 100) if value else None}
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError("a whole number of frames, 1 or more")
        return {"queue_frames": value}
    except ValueError as error:
        raise UsageError(f"{where}: {key}={value!r}; allowed: {error}") from error


def split(given: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """An end's ``params1`` or ``params2`` as (its address keywords, everything else)."""
    given = dict(given or {})
    return {key: given.pop(key) for key in _INTERFACE & set(given)}, given


def link_spec(common: Mapping[str, Any], end1: Mapping[str, Any], end2: Mapping[str, Any], where: str) -> LinkSpec:
    """The spec that link keywords ask for: ``common`` for both directions, each end's for what that end sends."""
    both = shaping(common, where)
    try:
        directions = [DirectionSpec(**{**both, **shaping(end, where)}) for end in (end1, end2)]
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error
    return LinkSpec(a_to_b=directions[0], b_to_a=directions[1])
