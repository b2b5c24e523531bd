"""The floor of scenarios, against cases worked by hand (docs/floor.md has them in words)."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from random import Random
from typing import Any

import pytest

from containernet_env.model.config import Config, EtcdSettings, Node
from containernet_env.model.link import DirectionSpec, Jitter, LinkSpec
from containernet_env.model.scenario import Scenario, Span
from containernet_env.model.topology import UnloadedNetwork, frames_of, network_of, serialization_ns
from containernet_env.results.floor import Floor
from containernet_env.results.floor import weighted_median as median
from containernet_env.stores import etcd as messages
from containernet_env.stores import zookeeper
from containernet_env.stores.etcd import Etcd
from containernet_env.stores.proxied import Cetcd, Zetcd
from tests.unit.fakes import write
from tests.unit.store_files import planned, scenario

MS = 10**6
ETCD = Etcd.default()
WRITE = replace(write("w"), clients=1, conns=1)
READ = replace(WRITE, type="read", consistency="l")
LOCAL = replace(READ, consistency="s")


def link(delay_ms: float, rate_mbps: float | None = None, back_ms: float | None = None) -> LinkSpec:
    """A link of that delay to the switch; ``back_ms`` from it, where that differs."""
    rate_bps = None if rate_mbps is None else round(rate_mbps * 10**6)
    to_switch = DirectionSpec(round(delay_ms * MS), rate_bps)
    return LinkSpec(to_switch, to_switch if back_ms is None else DirectionSpec(round(back_ms * MS), rate_bps))


def floor_of(*links: LinkSpec, client: LinkSpec | None = None, sync_ms: dict[str, float] | float = 1.0) -> Floor:
    """A floor for members m1, m2, ... on these links; an fdatasync takes 1 ms on each unless said otherwise."""
    links = (*links, client or link(0))
    nodes = [
        Node(f"m{number}", IPv4Address(167772160 + number), None, None, spec) for number, spec in enumerate(links, 1)
    ]
    (*members, client_node), network = nodes, IPv4Network("10.0.0.0/24")
    benchmark = replace(client_node, name="benchmark")
    config = Config(Path("c.json"), "", network, tuple(members), (benchmark,), EtcdSettings(), None)
    times = {node.name: sync_ms if isinstance(sync_ms, float) else sync_ms.get(node.name, 1.0) for node in members}
    return Floor(ETCD, network_of(config), {name: time * MS for name, time in times.items()})


def ms(floor: Floor, scenario: Scenario, leader: str | None = "m1", dead: tuple[str, ...] = ()) -> float | None:
    living = {f"m{number}" for number in range(1, 10)} - set(dead)
    seconds = floor.median_s(scenario, leader, living & set(floor._members))
    return None if seconds is None else round(seconds * 1000, 6)


def to(member: str, scenario: Scenario, **changes: Any) -> Scenario:
    return replace(scenario, target=member, **changes)


TXN = replace(WRITE, type="txn")
MIXED = replace(LOCAL, type="mixed", put_ratio=Decimal("0.3"))
AGREED = replace(MIXED, consistency="l", target="cluster", put_ratio=Decimal("0.4"))
HUNDRED = to("cluster", WRITE, clients=100, conns=10)
MORE: tuple[dict[str, Any], ...] = ({"rate": Decimal(100)}, {"clients": 3, "conns": 3}, {"clients": 2})
LOADS = (HUNDRED, *(replace(HUNDRED, **more) for more in MORE))

TWO, THREE = floor_of(link(3), link(3)), floor_of(link(3), link(3), link(3))
FIVE = floor_of(link(1), link(1), link(5), link(40), link(40))
LOPSIDED = floor_of(link(3), link(30, back_ms=10), link(100))
SLOW_LEADER, SLOW_FOLLOWER = (floor_of(*[link(3)] * 3, sync_ms={name: 50.0}) for name in ("m1", "m2"))
ALL_READ, ALL_WRITE, ALL_LOCAL = (to("cluster", scenario) for scenario in (READ, WRITE, LOCAL))
OF_TWO = {HUNDRED: 19, replace(HUNDRED, clients=1, conns=2): 19, ALL_READ: 18}
OF_MIXED = {replace(MIXED, put_ratio=Decimal(ratio)): ms for ratio, ms in (("0.3", 6), ("0.5", 6), ("0.6", 19))}
EACH_OF_FIVE = {to(f"m{n}", READ): ms for n, ms in enumerate((14, 18, 34, 174, 174), 1)}
FREE = {to("cluster", LOCAL, clients=9, conns=9): 0, ALL_WRITE: 1}


def test_floors_are_those_worked_by_hand() -> None:
    cases: list[tuple[Floor, str | None, tuple[str, ...], dict[Scenario, Any]]] = [
        # One member answers after its own sync. Client 1 ms, member 3 ms: 8 ms there and back.
        (floor_of(link(3), client=link(1), sync_ms=2.0), "m1", (), {WRITE: 8 + 2, READ: 8, LOCAL: 8}),
        # 3 ms each, client without delay: 6 ms to a member, 12 ms between two; the leader's sync hides in the quorum's.
        (THREE, "m1", (), {WRITE: 6 + 12 + 1, READ: 6 + 12, LOCAL: 6, TXN: 19}),
        (THREE, "m1", (), {to("m2", WRITE): 6 + 12 + (12 + 1), to("m3", READ): 6 + 12 + 12, to("m2", LOCAL): 6}),
        # Two of three requests go to followers.
        (THREE, "m1", (), {ALL_WRITE: 31, ALL_READ: 30, ALL_LOCAL: 6}),
        # A mixed load has the median of its parts. Asked in turn: writes 19, 31, 31, reads 18, 30, 30.
        (THREE, "m1", (), OF_MIXED | {AGREED: 30}),
        # Request k goes to member k mod n: in a closed loop, too, the leader gets no more than a follower.
        *((THREE, leader, (), dict.fromkeys(LOADS, 31)) for leader in ("m1", "m2", "m3")),
        # Half of the requests meet the leader of two, and rank n/2 is the last of these.
        *((TWO, leader, (), OF_TWO) for leader in ("m1", "m2")),
        # m1: client 2 ms; followers at 4, 12, 82, 82 ms: the second completes the majority of five.
        (FIVE, "m1", (), {WRITE: 2 + 12 + 1, READ: 2 + 12}),
        # m3: client 10 ms; followers at 12, 12, 90, 90.
        (FIVE, "m3", (), {WRITE: 10 + 12 + 1, READ: 10 + 12}),
        # m4: client 80 ms; followers at 82, 82, 90, 160.
        (FIVE, "m4", (), {WRITE: 80 + 82 + 1, READ: 80 + 82}),
        # Leader m1, agreed after 12 ms: at m1 2 + 12; m2 2 + 4 + 12; m3 10 + 12 + 12; m4 and m5 80 + 82 + 12.
        (FIVE, "m1", (), EACH_OF_FIVE | {ALL_READ: 34}),
        # Each of the living ones is asked as often; the lower of two halves counts.
        (FIVE, "m1", ("m5",), {ALL_READ: 18}),
        # Two of five gone: the far one is needed, and the agreement takes 82 ms.
        (FIVE, "m1", ("m2", "m5"), {READ: 2 + 82}),
        # m2 sends over 30 ms and receives over 10: to it 3 + 10, from it 30 + 3.
        (LOPSIDED, "m1", (), {READ: 6 + (13 + 33), to("m2", READ): (10 + 30) + (33 + 13) + (13 + 33)}),
        (LOPSIDED, "m1", ("m3",), {READ: 6 + 46}),
        # It takes longer than the agreement of the others; the loop that would hand out the commit waits for it.
        (SLOW_LEADER, "m1", (), {WRITE: 6 + 50}),
        # A slow follower is not needed for the majority, unless it is the one that was asked: 6 + 6, then its copy
        # after 6 ms and 50 ms for its sync, where the commit would have reached it after 13 + 6.
        (SLOW_FOLLOWER, "m1", (), {WRITE: 6 + 12 + 1, to("m2", WRITE): 6 + 6 + (6 + 50), to("m2", READ): 30}),
        # Links without delay and rate have no floor but the sync.
        (floor_of(link(0), link(0), link(0)), "m1", (), FREE),
        # What is not known has none: the leader was asked, whoever that was.
        (THREE, None, (), {WRITE: None, to("m2", READ): None, LOCAL: None, ALL_LOCAL: 6}),
        (THREE, "m1", ("m1",), {WRITE: None}),
        (THREE, "m1", ("m2", "m3"), {WRITE: None}),
        (TWO, "m1", ("m2",), {WRITE: None}),
        (THREE, "m1", ("m2",), {to("m2", WRITE): None}),
        (Floor(ETCD, THREE._topology, {}), "m1", (), {WRITE: None, READ: 18}),
    ]
    for floor, leader, dead, wanted in cases:
        assert {scenario: ms(floor, scenario, leader, dead) for scenario in wanted} == wanted, (leader, dead)


def test_a_mixed_load_has_the_floor_of_the_kinds_that_were_answered() -> None:
    """52 puts of 100 are configured; drawn were 49: the median is a read's."""
    mixed, living = replace(MIXED, put_ratio=Decimal("0.52")), ("m1", "m2", "m3")
    for puts, floor_s in ((None, 0.019), (51, 0.019), (49, 0.006), (0, 0.006)):
        assert THREE.median_s(mixed, "m1", living, {"": (100, puts)}) == floor_s


def test_small_messages_at_low_rates_and_many_keys_take_their_time() -> None:
    """64 B at 0.1 Mbit/s: request 168 + answer 128 bytes of frame, 23.7 ms; and the quorum's round.

    1000 keys of 8 B with 256 B each are 280 KB: 0.235 s at 10 Mbit/s, and nothing where only their count is sent. Scans
    for 1000 keys of a data set of as many end with its last key: the median one finds 500.
    """
    write = replace(WRITE, key_size=4, val_size=64)
    assert ms(floor_of(link(0, 0.1)), write) == pytest.approx((66 + 102 + 66 + 62) * 8 / 100 + 1)
    # The key is twice in a transaction.
    put, txn = ETCD.write_sizes(WRITE), ETCD.write_sizes(TXN)
    assert txn.request - put.request == pytest.approx(8 + 16, abs=5) and txn.answer > put.answer
    three = floor_of(*[link(1, 10)] * 3)
    many = replace(LOCAL, span=Span(keys=1000), key_space=2000)
    size = ETCD.read_sizes(many)[1]
    assert size == pytest.approx(1000 * (8 + 256 + 18), rel=0.01)
    whole, count = ms(three, many), ms(three, replace(LOCAL, span=Span(keys=1000, answer="count")))
    assert whole == pytest.approx(2 + frames_ms(size, 10), abs=0.3)
    assert ms(three, replace(many, key_space=1000)) == ms(three, replace(many, span=Span(keys=500)))
    assert count == pytest.approx(2, abs=0.4)
    # Of equal halves the median is the lower.
    assert [median([(0.5, 6.0), (0.5, 18.0)]), median([(0.49, 6.0), (0.51, 18.0)])] == [6, 18]
    assert median([(1 / 3, 30.0), (1 / 3, 18.0), (1 / 3, 30.0)]) == 30


def frames_ms(payload_bytes: int, mbps: float) -> float:
    """What all frames of a message take at a rate, each with 66 bytes around at most 1448."""
    frames = -(-payload_bytes // 1448)
    return (payload_bytes + frames * 66) * 8 / mbps / 1000


def test_a_value_of_1_mb_at_10_mbit_per_s() -> None:
    """It crosses the leader's link twice, frame by frame over two hops; with five members a second copy follows."""
    write = replace(WRITE, val_size=1_000_000)
    sizes = ETCD.write_sizes(write)
    assert 1_000_500 < sizes.request < 1_001_000 and 1_000_040 < sizes.copied < 1_000_100
    hop = 1514 * 8 / 10_000
    there, copy = frames_ms(sizes.request, 10), frames_ms(sizes.copied, 10)
    three = ms(floor_of(*[link(1, 10)] * 3), write)
    answers = (66 + sizes.answer) * 8 / 10_000 + 2 * (66 + 43) * 8 / 10_000
    assert three == pytest.approx(there + 2 + (copy + hop + 4 + 1) + answers, abs=0.05)
    assert there == pytest.approx(837, abs=1)
    five = ms(floor_of(*[link(1, 10)] * 5), write)
    # Where copies take turns, the last frame of the second copy has no full frame before it at the second hop.
    shorter = hop - (sizes.copied % 1448 + 66) * 8 / 10_000
    assert five is not None and three is not None and five - three == pytest.approx(copy - shorter, abs=0.001)
    # The far one of the two that are needed gets the first copy, which travels while the second one is sent.
    uneven = ms(floor_of(*[link(1, 10)] * 2, link(100, 10), *[link(200, 10)] * 2), write)
    assert uneven == pytest.approx(five, abs=0.001)
    # A follower that was asked sends it on: three times over a link of 10 Mbit/s.
    follower = ms(floor_of(*[link(1, 10)] * 3), replace(write, target="m2"))
    assert follower == pytest.approx(3 * there, rel=0.02)


def test_copies_that_take_turns_wait_for_no_whole_copy() -> None:
    """1 MB to followers at 100 Mbit/s takes 83.7 ms each, beside which the other copies take 8.4 ms at 1000 Mbit/s.

    One after the other, the second of the copies that five members need would be complete 8.4 ms later.
    """
    write, followers = replace(WRITE, val_size=1_000_000), [link(0.1, 100)] * 6
    three, five, seven = (ms(floor_of(link(0.1, 1000), *followers[:count]), write) for count in (2, 4, 6))
    assert three == five == seven and three == pytest.approx(frames_ms(1_001_000, 100) + 8.4 + 0.6 + 1, abs=0.5)
    # Nothing but the leader's link takes time: each copy that is needed waits for those before it.
    three, five, seven = (ms(floor_of(link(0.1, 100), *[link(0.1)] * count), write) for count in (2, 4, 6))
    copy = frames_ms(ETCD.write_sizes(write).copied, 100)
    assert (five - three, seven - five) == pytest.approx((copy, copy), abs=1e-5)


def jittery(ms: int, reorder: bool = False) -> LinkSpec:
    """Uniform between 0 and twice as long."""
    side = DirectionSpec(ms * MS, jitter=Jitter("uniform", ms * MS, reorder))
    return LinkSpec(side, side)


def test_jitter_makes_the_fastest_of_two_faster_and_a_closed_loop_send_more_while_delays_are_short() -> None:
    """In the comments: medians of closed and open loops that were simulated on the paths of model/chance.go."""
    slow, rate = jittery(3), {"rate": Decimal(10)}
    three, single = floor_of(slow, slow, slow), floor_of(slow, client=slow)
    far, fresh = floor_of(jittery(25), client=jittery(25)), floor_of(*[jittery(3, True)] * 3)
    cases: list[tuple[Floor, Scenario, float]] = [
        (single, LOCAL, 10.7),  # 10.7 to 10.8
        (single, replace(LOCAL, **rate), 12),
        (far, LOCAL, 89),  # 88 to 90
        (three, READ, 14.4),  # 14.4 to 14.6; 18 without jitter
        (three, replace(READ, **rate), 16.6),  # 16.5 to 16.6
        (three, ALL_READ, 22.1),  # 22.1 to 22.7
        (fresh, READ, 16),
        (fresh, replace(READ, **rate), 16),
    ]
    found = [ms(floor, scenario) for floor, scenario, _ in cases]
    assert found == pytest.approx([median_ms for _, _, median_ms in cases], rel=0.01)


def test_messages_of_a_request_share_the_delay_of_a_direction_whose_jitter_keeps_order() -> None:
    for reorder in (False, True):
        network = UnloadedNetwork(floor_of(jittery(3, reorder), link(1), link(1))._topology, Random(1))
        first, second = (network.one_way_ns("m1", member, 9) for member in ("m2", "m3"))
        network.redraw()
        assert (first == second) is not reorder and network.one_way_ns("m1", "m2", 9) not in (first, second)


def test_serialization_is_that_of_every_frame_at_every_hop() -> None:
    """Against the recurrence itself, frame by frame."""
    random, rates = Random(7), [None, 10**5, 10**6, 3 * 10**6, 10**7]
    for _ in range(300):
        hops = [DirectionSpec(0, random.choice(rates)) for _ in range(random.randint(1, 4))]
        payload = random.choice([0, 1, 1447, 1448, 1449, 2896, random.randint(1, 40_000)])
        count, last = frames_of(payload)
        left = [0] * len(hops)
        for size in [1514] * (count - 1) + [last]:
            before = 0
            for number, hop in enumerate(hops):
                before = left[number] = max(before, left[number]) + hop.serialization_ns(size)
        assert serialization_ns(hops, payload) == left[-1]
        assert count == max(1, -(-payload // 1448)) and (count - 1) * 1448 + last - 66 == payload


def test_sizes_are_those_that_were_seen_on_the_wire() -> None:
    """Numbers that grow during a run take a byte or two more."""
    seen = json.loads((Path(__file__).resolve().parents[1] / "recorded" / "etcd" / "message_sizes.json").read_text())
    put = dict(zip(("request", "answer", "proposal", "append"), ETCD.write_sizes(WRITE), strict=True))
    put |= {"append_answer": messages.APPEND_ANSWER, "commit": messages.COMMIT}
    names = ("heartbeat", "heartbeat_answer", "read_index", "read_index_answer")
    read = dict(zip(("request", "answer"), ETCD.read_sizes(READ), strict=True))
    read |= {name: getattr(messages, name.upper()) for name in names}
    for expected, found in ((put, seen["put"]), (read, seen["range"])):
        assert expected.keys() == found.keys()
        for name, size in expected.items():
            assert 0 <= found[name] - size <= 2, name


# --- of each other store ----------------------------------------------------------------------------------------------
# Between a member and the client, and between two members, lies the sum of both links, there and back; the client's own
# link has no delay.

EQUAL, NEAR_AND_FAR = (3, 3, 3), (1, 2, 4)
WAL = {"kind": "consul", "flags": {"raft_logstore": "wal"}}
PROXIED = {"kind": "zetcd", "binary": "/bin/true"}
SERVICE = {"kind": "http", "binary": "/bin/true", "port": 80, "put": "/{key}", "get": "/{key}"}


def replicas(quorum: int) -> dict[str, Any]:
    return {"kind": "replicas", "flags": {"ack": quorum, "from": quorum}}


ONES = (1, 1, 1)
NO_FORCE = {"kind": "zookeeper", "flags": {"forceSync": "no"}}


def test_the_floor_is_what_the_protocol_waits_for(tmp_path: Path) -> None:
    """``syncs`` are in ms, ``None`` of the dead; targets are members' numbers. The first member leads."""
    cases: list[tuple[Any, tuple[int, ...], tuple[float | None, ...], dict[tuple[str, Any], float]]] = [
        # 6 ms to the client, 12 ms between members; two syncs of 1 ms at each of two members. Heartbeats that are under
        # way already may tell that it leads, so a read waits for none.
        ("consul", EQUAL, ONES, {
            ("write", 1): 6 + 2 + 12 + 2, ("write", 2): 6 + 12 + 2 + 12 + 2, ("txn", 1): 6 + 2 + 12 + 2,
            ("read l", 1): 6, ("read l", 2): 6 + 12, ("read s", 2): 6,
            ("read default", 1): 6, ("read default", 2): 6 + 12, ("read default", "cluster"): 6 + 12,
        }),
        (WAL, EQUAL, ONES, {("write", 1): 6 + 1 + 12 + 1}),
        # The client's RTT of 6; a follower's RTT of 12 and its sync.
        ("zookeeper", EQUAL, ONES, {
            ("write", "leader"): 6 + 12 + 1, ("write", 2): 6 + 12 + (12 + 1), ("read l", "leader"): 6,
            ("read l", 2): 6 + 12, ("read s", 2): 6,
        }),
        # The leader's own sync does not count where two followers are a majority; with one of them dead it does.
        ("zookeeper", EQUAL, (50, 1, 1), {("write", "leader"): 6 + 13}),
        ("zookeeper", EQUAL, (50, 1, None), {("write", "leader"): 6 + 50}),
        # Nor does that of the follower that is queried.
        ("zookeeper", EQUAL, (1, 50, 1), {("write", 2): 6 + 12 + 13}),
        ("zookeeper", EQUAL, (1, 50, 40), {("write", "leader"): 6 + 12 + 40}),
        ("zookeeper", (3,), (1,), {("write", "leader"): 6 + 1}),
        ("zookeeper", (1, 1, 5, 40, 40), (1,) * 5, {("write", "leader"): 2 + 12 + 1}),
        (NO_FORCE, EQUAL, (9e3,) * 3, {("write", 1): 6 + 12}),
        # To the client 2, 4, 8 ms; between members 6 ms (1-2), 10 ms (1-3), 12 ms (2-3). A write needs as many as are
        # the fastest, a read those that come next.
        (replicas(1), NEAR_AND_FAR, (1, 2, 3), {("write", 1): 2 + 1, ("read l", 3): 8}),
        (replicas(2), NEAR_AND_FAR, (1, 2, 3), {("write", 1): 2 + 6 + 2, ("read l", 1): 2 + 6, ("read l", 2): 4 + 12}),
        (replicas(3), NEAR_AND_FAR, (1, 2, 3), {("write", 1): 2 + 10 + 3, ("read l", 3): 8 + 12}),
        ("replicas", NEAR_AND_FAR, (1, 2, 3), {("write", 2): 4 + 6 + 1}),
        # Of a service only the client's own way is known.
        (SERVICE, NEAR_AND_FAR, (9e3,) * 3, {("write", 2): 4, ("read l", 2): 4}),
        # Of a proxy it is etcd's.
        (PROXIED, NEAR_AND_FAR, (1, 2, 3), {
            ("write", 1): 2 + 6 + 2, ("read l", 1): 2 + 6, ("read s", 3): 8, ("write", 2): 4 + 6 + 6 + 2,
        }),
    ]  # fmt: skip
    for store, delays, syncs, expected in cases:
        plan = planned(tmp_path, store, [f"{delay}ms" for delay in delays])
        names = [node.name for node in plan.config.nodes]
        times = {name: 1e6 * (sync or 1) for name, sync in zip(names, syncs, strict=True)}
        living = [name for name, sync in zip(names, syncs, strict=True) if sync is not None]
        floor, found = Floor(plan.store, plan.topology, times), {}
        for kind, target in expected:
            queried = scenario(kind, target=target if isinstance(target, str) else names[target - 1])
            found[kind, target] = (floor.median_s(queried, names[0], living) or -1) * 1e3
        assert found == pytest.approx(expected, abs=1e-6), (store, delays, syncs)


def test_sizes_are_those_of_the_protocol() -> None:
    write, read = scenario("write"), scenario("read l")
    # setData of /00000001 with 64 bytes: length, xid, type, path, data, version; its answer has a Stat of 68 bytes.
    sizes = zookeeper.write_sizes(write)
    assert sizes.request == 4 + 8 + (4 + 9) + (4 + 64) + 4 and sizes.answer == 4 + 16 + 68
    # A transaction has three headers of 9 bytes, and a check of that path and its version.
    assert zookeeper.write_sizes(scenario("txn")).request == sizes.request + 3 * 9 + (4 + 9) + 4
    # A linearizable read has a sync of "/" before it.
    assert zookeeper.read_sizes(read)[0] == zookeeper.read_sizes(scenario("read s"))[0] + 4 + 8 + 5
    for proxy in (Zetcd, Cetcd):
        sizes = proxy.default().write_sizes(write)
        assert sizes.request > 8 + 64 > sizes.answer - 64
