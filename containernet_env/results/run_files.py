"""The form of the files in a run directory and what they must hold; docs/run-*.schema.json are their JSON Schemas."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, create_model

from containernet_env.model.disruption import Cause, Verb
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.usage import Consumption
from containernet_env.results.provenance import (
    Flags,
    ImageFacts,
    Inputs,
    LinkFacts,
    MachineFacts,
    ProgramFacts,
    Repeats,
    StoreFacts,
)

# What an int64 holds: larger ones are no times, and leave what a float can hold.
_Nanoseconds = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _Part(BaseModel):
    """What the program itself reads of an object that others wrote; any other key may be there, too."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class SourceFile(_Part):
    """A file of the user's."""

    path: str
    sha256: str


class _Host(_Part):
    role: str


class PlanFiles(_Part):
    """What is read of the plan in a manifest."""

    config: SourceFile
    scenario_file: SourceFile | None
    hosts: list[_Host]


class _Pair(_Part):
    a: str
    b: str
    expected_ns: _Nanoseconds
    measured_ns: _Nanoseconds | None


class _Check(_Part):
    verdict: str


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


def _with(part: type[_Part]) -> AfterValidator:
    """An object of any keys; where it is read from a file, those of ``part`` have to be as that says."""

    def check(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if info.mode == "json":
            part.model_validate(value)
        return value

    return AfterValidator(check)


class RunFile(BaseModel):
    """What all of them have."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, json_schema_serialization_defaults_required=True
    )

    schema_version: Literal[1] = Field(default=1, alias="schema", description="version of this form")


class Sync(BaseModel):
    """What appending 512 bytes and an fdatasync took, before the cluster started."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    samples: int
    median_ns: int
    slowest_ns: int


class ClusterRecord(BaseModel):
    """One cluster of a run: with --fresh there is one for each repetition."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int = Field(description="from 1; the CSV's Cluster")
    at: str = Field(description="when it was up, UTC")
    leader_at_start: str | None
    term_at_start: int | None
    sync: dict[str, Sync] = Field(description="by member, where its data lies; the floor counts the median")


class Manifest(RunFile):
    """manifest.json: what the run is, known before the load."""

    run_id: str
    began: str = Field(description="when the run began, UTC, ISO 8601")
    began_ns: int = Field(description="the same moment on the monotonic clock, ns")
    command: list[str] = Field(description="the command line, or the caller's")
    program: ProgramFacts
    machine: MachineFacts
    images: dict[str, ImageFacts] = Field(description="by the role of the hosts")
    flags: Flags
    inputs: Inputs
    config_hash: str = Field(description="hash of everything configured but the load; the CSV's ConfigHash")
    tolerances: dict[str, Any] = Field(
        default={},
        description="what the gate allows links of each kind (ns, shares and bit/s) and the chance that its tests err, "
        "and the thresholds by which a row is judged, by kind of finding (docs/fidelity.md)",
    )
    plan: Annotated[dict[str, Any], _with(PlanFiles)] = Field(
        description="the resolved plan, as `run --dry-run` works it out"
    )
    repeats: Repeats | None = Field(default=None, description="the run that `rerun` repeats here")
    links: LinkFacts | None = Field(default=None, description="known when the testbed is up, as what follows")
    hosts: dict[str, Any] = Field(
        default_factory=dict, description="limits and TCP settings, read back from each host, by its name"
    )
    store: StoreFacts | None = None
    clusters: list[ClusterRecord] = Field(default_factory=list, description="every cluster that was brought up")


class Proof(BaseModel):
    """One proof of the network: what a gate found, with its samples."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at: str = Field(description="when it was made, UTC")
    at_ns: int
    moment: Literal["before", "after", "change"] = Field(
        default="before", description="before the first scenario, after the last, or after links were changed"
    )
    passed: bool
    problems: list[str] = Field(description="what is not as configured, a line each")
    unproved: list[str] = Field(description="what the samples cannot tell, a line each")
    checks: list[Annotated[dict[str, Any], _with(_Check)]] = Field(
        default=[],
        description="each property (kind) of each direction of a link (subject): verdict, what was asked, measured and "
        "allowed, why, and the figures behind it",
    )
    pairs: list[Annotated[dict[str, Any], _with(_Pair)]] = Field(
        description="expected and measured RTT of each pair of hosts, in ns"
    )
    paths: list[dict[str, Any]] = Field(
        default=[], description="each way between two hosts: frames sent and lost, and every one-way delay in ns"
    )


class NetworkFile(RunFile):
    """network.json: the proofs that the network is the one that was configured, also those that failed."""

    run_id: str
    proofs: list[Proof]


def _described(value: type[ScenarioOutcome]) -> dict[str, Any]:
    """The fields of a value that are annotated with a description; one with another default than None must be there."""
    types = get_type_hints(value, include_extras=True)
    found = {field.name: field for field in fields(value) if get_origin(types[field.name]) is Annotated}
    return {
        name: (
            types[name],
            Field(default=None if field.default is None else ..., description=types[name].__metadata__[0]),
        )
        for name, field in found.items()
    }


OF_OUTCOME = _described(ScenarioOutcome)
_OutcomeLine: Any = create_model("_OutcomeLine", __base__=RunFile, **OF_OUTCOME)


class ScenarioLine(_OutcomeLine):  # type: ignore[misc]
    """A line of scenarios.jsonl: one scenario, ended."""

    scenario: str
    repetition: int
    attempt: int = Field(default=1, description="the CSV's Attempt")
    identity: str | None = Field(description="hash of scenario and data set; the CSV's ScenarioHash")
    valid: Literal["yes", "no", "unknown"] | None = Field(
        description="whether the figures are those of the store under what was configured; null without figures"
    )
    findings: list[Annotated[dict[str, Any], _with(_Finding)]] = Field(
        description="what a reader of the figures has to know"
    )
    load: Annotated[dict[str, Any], _with(_Load)] | None = Field(
        description="the benchmark server's whole result (benchmark-result.schema.json)"
    )
    network: dict[str, Any] | None = Field(description="what every link, port and switch saw, with whole histograms")
    search: dict[str, Any] | None = Field(
        default=None, description="what a saturation search found; the figures are those of one of its probes"
    )
    history: bool = Field(default=False, description="whether it was to keep a history (docs/verify.md)")


class ProbeLine(ScenarioLine):
    """A line of probes.jsonl: one probe of a saturation search, with what a scenario of its rate would leave."""

    probe: dict[str, Any] = Field(description="its number, purpose, rate, seed, verdict and why")


class DisruptionLine(RunFile):
    """A line of disruptions.jsonl: something that an event of a scenario did to members, or should have done.

    The lines of a scenario are in the order in which it happened; there is one for each end of an event, too.
    """

    scenario: str
    repetition: int
    attempt: int
    began_ns: int | None = Field(description="when the load began; null where it did not")
    seed: str = Field(description="what random members were drawn from: the run's seed, scenario, repetition, attempt")
    number: int = Field(description="of the event in the scenario, from 1; 0 for what was undone at the end")
    occurrence: int = Field(description="how often the event had been due by then, from 1")
    cause: Cause = Field(description="the event itself, the end of its length, or the end of the scenario")
    verb: Verb = Field(description="what was done; reset: delay, loss or rate are as in the topology again")
    target: str = Field(description="as configured")
    value: int | float | None = Field(description="of delay (ns), loss (ratio) or rate (bit/s; null is unlimited)")
    members: list[str] = Field(description="to whom it was done")
    leader: str | None = Field(description="who led right before; null where nobody did, or nobody asked")
    asked_ns: int | None = Field(description="when it was due, since the load began; null at the end of the scenario")
    since_start_ns: int | None = Field(description="when it took effect, since the load began")
    at_ns: int | None = Field(description="when it took effect; null where it did not happen")
    answered_ns: int | None = Field(description="when a member that was started again answered")
    first_success_s: float | None = Field(description="how long after it the first request succeeded")
    problem: str | None = Field(description="why it did not happen, or not as configured")


class UsageLine(RunFile):
    """A line of usage.jsonl: what each consumer has used since it exists; a counter that nobody keeps is absent.

    There is one each second while the matrix runs, and one at each edge of a scenario.
    """

    at_ns: int
    edge: Literal["begin", "end"] | None = Field(description="whether a scenario begins or ends with it")
    members: dict[str, Consumption] = Field(description="by name, those that live")
    client: Consumption | None = Field(description="the host that makes the load")
    links: Consumption | None = Field(description="the link emulator; null where the kernel carries the links")
    driver: Consumption | None = Field(description="containernet-env itself")
    machine: Consumption | None


class EventLine(RunFile):
    """A line of events.jsonl: something that happened."""

    at: str
    at_ns: int
    kind: str = Field(
        description="run_began, hosts_up, network_proved, network_wrong, network_unproved, cluster_up, matrix_began, "
        "dataset_loaded, scenario_began, probe_ended, scenario_ended, scenario_not_run, event (a configured one was "
        "carried out), profiled, member_died, leader_changed, "
        "leader_moved, port_down, emulator_died, testbed_failed, progress_failed, run_failed, run_interrupted, "
        "tear_down_began, run_ended; in a sweep also testbed_reused, testbed_not_reused, limits_changed, "
        "links_changed, testbed_left (to the next run), testbed_not_left"
    )
    text: str = Field(description="one line for people")
    subject: str | None = Field(default=None, description="the host, link or scenario that it is about")


FILES: dict[str, type[RunFile]] = {
    "manifest": Manifest,
    "network": NetworkFile,
    "scenario": ScenarioLine,
    "probe": ProbeLine,
    "event": EventLine,
    "usage": UsageLine,
    "disruption": DisruptionLine,
}


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one of ``FILES``."""
    schema = FILES[name].model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
