"""The form of the files in a run directory; docs/run-*.schema.json are their JSON Schemas.

Every object carries ``schema``, the version of its form. Times that end in ``_ns`` are on the monotonic clock, so that
events, timelines and results of one run can be laid over each other.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class RunFile(BaseModel):
    """What all of them have."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_serialization_defaults_required=True)

    schema_version: Literal[1] = Field(default=1, alias="schema", description="version of this form")


class Manifest(RunFile):
    """manifest.json: what the run is, known before the load."""

    run_id: str
    began: str = Field(description="when the run began, UTC, ISO 8601")
    began_ns: int = Field(description="the same moment on the monotonic clock, ns")
    program: dict[str, Any] = Field(description="version and commit of containernet-env")
    command: list[str] = Field(description="the command line, or the caller")
    config_hash: str = Field(description="hash of everything configured but the load; the CSV's ConfigHash")
    plan: dict[str, Any] = Field(description="the resolved plan, as `run --dry-run` works it out")
    machine: dict[str, Any] = Field(default_factory=dict, description="kernel, cores, CPU model, Docker engine")
    images: dict[str, str] = Field(default_factory=dict, description="image of each role")
    links: dict[str, Any] = Field(
        default_factory=dict,
        description="what makes hosts and links: kind, versions, commit, and what it said of itself at its start",
    )
    hosts: dict[str, Any] = Field(
        default_factory=dict, description="limits and TCP settings, read back from each host, by its name"
    )
    store: dict[str, Any] = Field(default_factory=dict, description="kind, version, leader at the start")


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
    checks: list[dict[str, Any]] = Field(
        default=[],
        description="each property (kind) of each direction of a link (subject): verdict, what was asked, measured and "
        "allowed, why, and the figures behind it",
    )
    pairs: list[dict[str, Any]] = Field(description="expected and measured RTT of each pair of hosts, in ns")
    paths: list[dict[str, Any]] = Field(
        default=[], description="each way between two hosts: frames sent and lost, and every one-way delay in ns"
    )


class NetworkFile(RunFile):
    """network.json: the proofs that the network is the one that was configured, also those that failed."""

    run_id: str
    proofs: list[Proof]


class ScenarioLine(RunFile):
    """A line of scenarios.jsonl: one scenario, ended."""

    scenario: str
    repetition: int
    identity: str | None = Field(description="hash of scenario and data set; the CSV's ScenarioHash")
    began: str
    began_ns: int
    seconds: float
    leader: str | None
    error: str | None
    findings: list[dict[str, Any]] = Field(description="what a reader of the figures has to know")
    load: dict[str, Any] | None = Field(
        description="the benchmark server's whole result (benchmark-result.schema.json)"
    )
    network: dict[str, Any] | None = Field(description="what every link, port and switch saw, with whole histograms")
    machine: dict[str, Any] | None = Field(description="what the machine and the hosts used")


class EventLine(RunFile):
    """A line of events.jsonl: something that happened."""

    at: str
    at_ns: int
    kind: str = Field(
        description="run_began, hosts_up, network_proved, network_wrong, network_unproved, cluster_up, matrix_began, "
        "dataset_loaded, "
        "scenario_began, scenario_ended, scenario_not_run, member_died, leader_changed, port_down, emulator_died, "
        "testbed_failed, progress_failed, run_failed, run_interrupted, tear_down_began, run_ended"
    )
    text: str = Field(description="one line for people")
    subject: str | None = Field(default=None, description="the host, link or scenario that it is about")


FILES: dict[str, type[RunFile]] = {
    "manifest": Manifest,
    "network": NetworkFile,
    "scenario": ScenarioLine,
    "event": EventLine,
}


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one of ``FILES``."""
    schema = FILES[name].model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
