"""What the events of a scenario can have caused: elections and failed requests (docs/events.md). Pure.

Times are ns since the start of the load. ``election_ns`` is the members' election timeout.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from containernet_env.model.disruption import UNDOING, Carried, Disruptions
from containernet_env.model.load_result import LoadResult
from containernet_env.model.queues import FULL_FRAME_BYTES, USUAL_MAX_FRAMES

_BACKOFF = 2
"""TCP doubles the time after which it sends again (RFC 6298, 5.5), so what was cut off may stay silent for so many
times as long."""
_LINKS, _ROUND_TRIPS = 2, 5
"""Two members are so many links apart; so many round trips over a link a request takes at most: one of the client, two
of its member and the leader, two of the leader and another member."""


@dataclass(frozen=True, slots=True)
class Outage:
    """One ``member`` from ``began_ns`` until ``ended_ns`` (infinite where nothing ended it).

    ``leader`` led right before. ``wait_ns`` is how much longer an answer over the member's link may take: infinite
    where none may come.
    """

    member: str
    leader: str | None
    killed: bool
    began_ns: int
    ended_ns: float
    wait_ns: float


def explains_election(done: Disruptions, size: int, election_ns: int) -> bool:
    """Whether a leader of ``size`` members was killed, or kept from a majority for long enough to lose its lead."""
    outages = list(_outages(done))
    return any(_ends_lead(outage, outages, size, election_ns) for outage in outages)


def failures_explained(load: LoadResult | None, done: Disruptions | None, election_ns: int, timeout_ns: int) -> bool:
    """Whether events can have caused every failed request of a load that ran to its end.

    Requests that have ``timeout_ns`` may fail from the begin of the first outage on. How long the store takes to
    recover is its own: an etcd member that was started again has left reads unanswered until the next election. Answers
    that do not hold what they must are explained by nothing.
    """
    if done is None or load is None or load.reason is not None or load.wrong_answers or not load.ok:
        return False
    begins_ns = [
        outage.began_ns
        for outage in _outages(done)
        if _LINKS * outage.wait_ns >= election_ns or _ROUND_TRIPS * outage.wait_ns >= timeout_ns
    ]
    return bool(begins_ns) and not load.bad_before(min(begins_ns))


def _ends_lead(new: Outage, outages: Sequence[Outage], size: int, election_ns: int) -> bool:
    """Whether the one who led when an outage began can have lost its lead by that, and by those that held already."""
    leader = new.member if new.leader is None else new.leader
    if new.killed and new.member == leader:
        return True
    until_ns = new.began_ns + election_ns / _BACKOFF
    waits_ns: dict[str, float] = defaultdict(float)
    for outage in outages:
        if outage.began_ns <= new.began_ns and outage.ended_ns >= until_ns:
            waits_ns[outage.member] += outage.wait_ns
    own_ns = waits_ns.pop(leader, 0.0)
    if own_ns >= election_ns:
        reached = 1
    else:
        reached = size - sum(own_ns + wait_ns >= election_ns for wait_ns in waits_ns.values())
    return 2 * reached <= size


def _outages(done: Disruptions) -> Iterator[Outage]:
    items = sorted(
        ((item.since_start_ns, item) for item in done.carried if item.since_start_ns is not None), key=lambda x: x[0]
    )
    for index, (began_ns, item) in enumerate(items):
        if item.strikes:
            for name in item.members:
                ends = (_end_ns(item, name, at_ns, later) for at_ns, later in items[index + 1 :])
                ended_ns = next((end_ns for end_ns in ends if end_ns is not None), math.inf)
                yield Outage(name, item.leader, item.verb == "kill", began_ns, ended_ns, _wait_ns(item))


def _end_ns(item: Carried, member: str, at_ns: int, later: Carried) -> int | None:
    """When ``later`` ended what ``item`` did to a member; ``None`` where it did not."""
    if member not in later.members or later.at_ns is None or later.problem:
        return None
    if later.verb == item.verb or (item.verb, later.verb) == ("freeze", "kill"):
        return at_ns  # from then on it is what that one did
    if later.verb != UNDOING[item.verb]:
        return None
    own = (later.number, later.occurrence) == (item.number, item.occurrence)
    if later.verb == "reset" and later.cause != "end" and not own:
        return None
    return at_ns if later.answered_ns is None else at_ns + later.answered_ns - later.at_ns


def _wait_ns(item: Carried) -> float:
    """A delay counts there and back; a rate as a queue that is full and as long as one is by default at most; a loss,
    however small, may strike again and again."""
    value = item.value or 0
    if item.verb == "delay":
        return 2.0 * value
    if item.verb == "loss":
        return math.inf if value else 0.0
    if item.verb == "rate":
        return USUAL_MAX_FRAMES * FULL_FRAME_BYTES * 8 * 1e9 / value if value else 0.0
    return math.inf
