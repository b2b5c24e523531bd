"""The columns of which measurement of a scenario a row is, and of what it found from before it."""

from __future__ import annotations

from containernet_env.results.column import Column

REPETITION_COLUMNS = (
    Column(
        "Repetition",
        "",
        "run",
        "which of `--repeat`; in a sweep, which block",
        lambda facts, outcome: outcome.scheduled.repetition,
    ),
    Column(
        "Cluster",
        "",
        "run",
        "the number of the cluster within the run: rows with the same one share it; `--fresh` makes one for each "
        "repetition; '-' where the scenario was not run",
        lambda facts, outcome: outcome.cluster,
    ),
    Column(
        "Reused",
        "",
        "run",
        "what the scenario found from before it: `nothing`, all was brought up for it; `cluster`, hosts, links and the "
        "members with what scenarios before it had written; `cluster;new-limits`, `cluster;new-links`, "
        "`cluster;new-limits;new-links`, the same, on which CPU limits, links or both were changed just before it "
        "(sweeps); '-' where it was not run",
        lambda facts, outcome: outcome.reused,
        number=False,
    ),
    Column(
        "Attempt",
        "",
        "run",
        "which one of this repetition: with `--retry-invalid` it is measured again where `Valid` is not `yes`",
        lambda facts, outcome: outcome.scheduled.attempt,
    ),
)
