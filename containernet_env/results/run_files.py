"""The form of the files in a run directory; docs/run-*.schema.json are their JSON Schemas.

Every object carries ``schema``, the version of its form. Times that end in ``_ns`` are on the monotonic clock, so that
events, timelines and results of one run can be laid over each other.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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


class RunFile(BaseModel):
    """What all of them have."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_serialization_defaults_required=True)

    schema_version: Literal[1] = Field(default=1, alias="schema", description="version of this form")


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
    plan: dict[str, Any] = Field(description="the resolved plan, as `run --dry-run` works it out")
    repeats: Repeats | None = Field(default=None, description="the run that `rerun` repeats here")
    links: LinkFacts | None = Field(default=None, description="known when the testbed is up, as what follows")
    hosts: dict[str, Any] = Field(
        default_factory=dict, description="limits and TCP settings, read back from each host, by its name"
    )
    store: StoreFacts | None = None


class Proof(BaseModel):
    """One proof of the network: every pair of hosts with its samples."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at: str = Field(description="when it was made, UTC")
    at_ns: int
    passed: bool
    problems: list[str] = Field(description="what is not as configured, a line each")
    unproved: list[str] = Field(description="what the samples cannot tell, a line each")
    pairs: list[dict[str, Any]] = Field(description="expected and measured RTT in ns, and every sample")


class NetworkFile(RunFile):
    """network.json: the proof that the network is the one that was configured, also where it failed."""

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
        description="run_began, hosts_up, network_proved, cluster_up, matrix_began, dataset_loaded, "
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
