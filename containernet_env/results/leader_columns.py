"""The columns of who led, and of the floor that follows from it."""

from __future__ import annotations

from containernet_env.results.column import Column

LEADER_COLUMNS = (
    Column(
        "Leader",
        "",
        "measured",
        "who led when the scenario ended; `etcd1>etcd3` where another one did at its start",
        lambda facts, outcome: outcome.leader,
        number=False,
    ),
    Column(
        "LeaderAtStart",
        "",
        "measured",
        "who led when it began; where the topology names a leader, every living member agreed",
        lambda facts, outcome: outcome.leader_at_start,
        number=False,
    ),
    Column(
        "TermAtStart",
        "",
        "measured",
        "the term of that leadership: every election begins a new one; '-' where the store has no leader",
        lambda facts, outcome: outcome.term_at_start,
    ),
    Column(
        "TermAtEnd",
        "",
        "measured",
        "the term when it ended: a larger one means an election, also where the same member leads",
        lambda facts, outcome: outcome.term_at_end,
    ),
    Column(
        "LeaderConfigured",
        "",
        "configured",
        "who is made the leader before every scenario; '-' leaves that to elections",
        lambda facts, outcome: facts.config.etcd.leader,
        number=False,
    ),
    Column(
        "Floor_50%_s",
        "s",
        "measured",
        "[the least median latency](../docs/floor.md) that links, disks and the store's protocol allow under that "
        "leader, in an unloaded system; '-' where it is not known, as where the leader changed",
        lambda facts, outcome: outcome.floor_s,
        6,
    ),
    Column(
        "AboveFloor_50%_s",
        "s",
        "measured",
        "what is left of the median (`50%`) above it: CPU time, waiting, windows of TCP and HTTP/2, losses",
        lambda facts, outcome: outcome.above_floor_s,
        6,
    ),
)
