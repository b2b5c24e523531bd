"""What has to be in the files of a run directory so that the run can be shown: they may have been edited since.

The forms that a run writes (``run_files``) leave the inside of plan and results open; here is what of it is read. Keys
that are not read are of no concern.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from containernet_env.results.run_files import (
    DisruptionLine,
    EventLine,
    Manifest,
    NetworkFile,
    RunFile,
    ScenarioLine,
    UsageLine,
)

# What an int64 holds: larger ones are no times, and leave what a float can hold.
_Nanoseconds = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class SourceFile(_Part):
    """A file of the user's."""

    path: str
    sha256: str


class _Host(_Part):
    role: str


class _Plan(_Part):
    config: SourceFile
    scenario_file: SourceFile | None
    hosts: list[_Host]


class ShownManifest(_Part):
    """manifest.json."""

    plan: _Plan


class _Pair(_Part):
    a: str
    b: str
    expected_ns: _Nanoseconds
    measured_ns: _Nanoseconds | None


class _Check(_Part):
    verdict: str


class _Proof(_Part):
    moment: Literal["before", "after", "change"] = "before"
    passed: bool
    problems: list[str]
    unproved: list[str]
    pairs: list[_Pair]
    checks: list[_Check] = []


class ShownNetwork(_Part):
    """network.json."""

    proofs: list[_Proof]


class _Times(_Part):
    percentiles_s: dict[str, float | None] = {}
    histogram: str | None = None


class _Step(_Part):
    second: float
    ok: int
    failed: int
    unknown: int
    p50_s: float | None
    p99_s: float | None


class _Load(_Part):
    began_ns: _Nanoseconds | None = None
    ok: int = 0
    failed: int = 0
    requests_per_s: float | None = None
    response_time: _Times | None = None
    timeline_interval_s: Annotated[float, Field(gt=0)] | None = None
    timeline: list[_Step] = []


class _Finding(_Part):
    text: str


class ShownScenario(_Part):
    """A line of scenarios.jsonl."""

    scenario: str
    repetition: int
    attempt: int = 1
    seconds: float
    leader: str | None
    error: str | None
    valid: str | None = None
    findings: list[_Finding]
    advice: str | None = None
    load: _Load | None


class ShownEvent(_Part):
    """A line of events.jsonl."""

    at_ns: _Nanoseconds
    kind: str
    text: str


class ShownDisruption(_Part):
    """A line of disruptions.jsonl."""

    scenario: str
    repetition: int
    attempt: int
    cause: str
    verb: str
    members: list[str]
    since_start_ns: _Nanoseconds | None


SHOWN: dict[type[RunFile], type[Any]] = {
    Manifest: ShownManifest,
    NetworkFile: ShownNetwork,
    ScenarioLine: ShownScenario,
    EventLine: ShownEvent,
    DisruptionLine: ShownDisruption,
    UsageLine: UsageLine,
}
"""The form of a file as a run writes it -> what is read of it."""
