"""Topologies and scenario files that are right, built from what docs/config.md and docs/scenarios.md allow."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.unit.blocks import mixed, reads, txns, writes

_SIZES = st.integers(16, 4096).map(lambda size: f"{size}m") | st.just("unlimited") | st.just("1.5g")
_CPUS = st.sampled_from([1, 0.5, "2", "unlimited", 0.01, 1024, "0.25"])
_RATES = st.sampled_from([1000, 0.01, 100000, "unlimited"]) | st.integers(10_000, 10**11).map(lambda bps: bps / 1e6)
_RATIOS = st.sampled_from([0, 1, 1e-9, 0.999999]) | st.floats(0, 1)
_ORDERS = st.lists(st.sampled_from(["sequential", "shuffled", "uniform", "zipfian"]), min_size=1, unique=True)
_TARGETS = st.lists(st.sampled_from(["leader", "cluster", "etcd1"]), min_size=1, unique=True)


def _some(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    """These keys, and any of the optional ones; what is no strategy is the value."""

    def strategies(values: dict[str, Any]) -> dict[str, st.SearchStrategy[Any]]:
        return {key: item if isinstance(item, st.SearchStrategy) else st.just(item) for key, item in values.items()}

    return st.fixed_dictionaries(strategies(required), optional=strategies(optional))


_DELAYS_MS = st.integers(0, 1000)
_BURSTS = _some({"model": "gilbert-elliott", "good_to_bad_ratio": 0.01, "bad_to_good_ratio": _RATIOS})


@st.composite
def _directions(draw: st.DrawFn, delay_ms: int | None, rate: Any) -> dict[str, Any]:
    """One direction; ``None`` where the host's own key says it."""
    made: dict[str, Any] = {}
    if delay_ms is None:
        delay_ms = draw(_DELAYS_MS)
        made["delay"] = f"{delay_ms}ms"
    if rate is None:
        rate = made["bandwidth"] = draw(_RATES)
    if delay_ms and draw(st.booleans()):
        kind, most_us = draw(st.sampled_from([("uniform", 1000), ("normal", 250)]))
        jitter = {"distribution": kind, "value": f"{delay_ms * most_us}us"}
        made["jitter"] = draw(_some(jitter, reorder=st.booleans()))
    if rate != "unlimited" and draw(st.booleans()):
        made["queue"] = draw(st.sampled_from([1, 100, "64k", "1500b"]))
    if rate != "unlimited" and draw(st.booleans()):
        made["aqm"] = draw(st.sampled_from(["codel", "fq_codel", {"kind": "codel", "target": "1ms"}]))
    return made | draw(
        _some({}, loss=_RATIOS | _BURSTS, duplication=_RATIOS, corruption=_RATIOS, seed=st.integers(0, 2**53 - 1))
    )


@st.composite
def _link(draw: st.DrawFn, host: dict[str, Any]) -> dict[str, Any]:
    """A host's keys for its link, in one of their forms."""
    kind = draw(st.sampled_from(["own keys", "both", "mixed", "apart"]))
    delay_ms, rate = (None, None) if kind in ("both", "apart") else (draw(_DELAYS_MS), draw(_RATES))
    if delay_ms is not None:
        host |= {"link_delay": f"{delay_ms}ms", "bandwidth": rate}
    if kind == "apart":
        host["link"] = {"to_switch": draw(_directions(None, None)), "from_switch": draw(_directions(None, None))}
    elif kind != "own keys":
        host["link"] = draw(_directions(delay_ms, rate))
    return host


_TIMING = {"heartbeat_interval": "100ms", "election_timeout": st.sampled_from(["50s", "40s"])}
_DATA = {"data": st.sampled_from(["disk", "tmpfs"])}
_ETCD = _some(_DATA, leader="etcd1") | _some(_DATA | _TIMING, leader="etcd1")
_SUBNETS = st.sampled_from(["10.1.2.0/24", "10.1.0.0/16", "10.0.0.0/8"])


@st.composite
def topologies(draw: st.DrawFn) -> Any:
    """A topology in one of its two forms."""
    last = draw(st.lists(st.integers(1, 253), min_size=1, max_size=7, unique=True))
    nodes = [{"ip": f"10.1.2.{number}", "mem": draw(_SIZES), "cpus": draw(_CPUS)} for number in last]
    if draw(st.booleans()):
        return [node | {"bandwidth": draw(_RATES), "link_delay": f"{draw(_DELAYS_MS)}ms"} for node in nodes]
    made = {"nodes": [draw(_link(node)) for node in nodes], **draw(_some({}, subnet=_SUBNETS, etcd=_ETCD))}
    if draw(st.booleans()):
        made["client"] = draw(_link({"cpus": draw(_CPUS), "mem": draw(_SIZES)}))
    if draw(st.booleans()):
        made["nodes"][0]["name"] = "etcd1"
    return made


def _loads(number: int) -> st.SearchStrategy[dict[str, Any]]:
    own = {"clients": st.sampled_from([1, 7, [1, 10]]), "conns": st.integers(1, 100)}
    rate = {"rate": st.sampled_from([100, 0.5, [10, 1000.25]])}
    shared = {"warmup": st.sampled_from([1, 100, "2s", "0.5s"]), "timeout": "5s", "seed": st.integers(0, 2**32 - 1)}
    shared["stallTimeout"] = st.sampled_from(["0s", "30s"])
    arrival = st.sampled_from(["constant", "poisson"])
    length = st.sampled_from([{"total": 1000 + number}, {"duration": f"{1 + number}s"}])
    loads = _some(own, **shared) | _some(own | rate, arrival=arrival, **shared)
    return st.builds(lambda load, length: load | length, loads, length)


@st.composite
def _blocks(draw: st.DrawFn, number: int) -> dict[str, Any]:
    kind = draw(st.sampled_from(["write", "read", "mixed", "txn"]))
    made: dict[str, Any] = {"type": kind, "load": draw(_loads(number)), "target": draw(_TARGETS)}
    if kind == "read" and draw(st.booleans()):
        made |= draw(st.sampled_from([{"prefix": "0"}, {"span": {"from": "0", "to": "z"}, "limit": 5}]))
        made["verify"] = False
    elif draw(st.booleans()):
        made["keys"] = draw(_ORDERS)
        if "zipfian" in made["keys"] and draw(st.booleans()):
            made["zipfExponent"] = draw(st.sampled_from([0.01, 1, 1.5]))
    if kind == "write":
        made |= {"data": {"keySize": 8, "valSize": draw(st.integers(1, 2048))}, "keySpace": draw(st.integers(1, 10**6))}
    if kind in ("read", "mixed"):
        made["consistency"] = draw(st.sampled_from(["l", "s", ["l", "s"]]))
    if kind == "mixed":
        made["ratio"] = draw(st.sampled_from([0, 1, 0.5, [0.1, 0.9]]))
    return made


@st.composite
def scenario_files(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario file; each block has a total or a duration of its own, so that none repeats another."""
    blocks = [draw(_blocks(number)) for number in range(draw(st.integers(1, 4)))]
    dataset = _some({"keySize": 8, "valSize": st.integers(20, 1024), "keys": st.integers(1, 10**6)})
    return {"scenarios": blocks, **draw(_some({}, dataset=dataset))}


_GILBERT_ELLIOTT = {"model": "gilbert-elliott", "good_to_bad_ratio": 0.01, "bad_to_good_ratio": 0.5} | {
    "good_loss_ratio": 0.001,
    "bad_loss_ratio": 0.9,
}
_AQM = {"kind": "fq_codel", "target": "1ms", "interval": "20ms", "ecn": False, "flows": 64, "quantum": 300}
_EFFECTS = {"duplication": 0.1, "corruption": 0.01, "aqm": _AQM, "loss": _GILBERT_ELLIOTT} | {
    "jitter": {"distribution": "normal", "value": "500us", "reorder": True},
}
_TO_SWITCH = _EFFECTS | {
    "delay": "3ms",
    "bandwidth": 10,
    "queue": "64k",
    "overhead": 24,
    "uplink": "network",
    "seed": 7,
}
_CORRELATED = {"distribution": "uniform", "value": "100us", "correlation": "2ms"}
_FROM_SWITCH = {"delay": "1ms", "bandwidth": 5, "loss": 0.01, "jitter": _CORRELATED}
_LINK = {"to_switch": _TO_SWITCH, "from_switch": _FROM_SWITCH}
RICH_TOPOLOGY: dict[str, Any] = {
    "dilation": 2,
    "store": {"kind": "etcd", "version": "3.6.8", "flags": {"quota-backend-bytes": "4g", "snapshot-count": 1000}},
    "subnet": "10.0.0.0/16",
    "nodes": [{"name": "a", "ip": "10.0.0.1", "mem": "512m", "cpus": 0.5, "fsync": "1.5ms", "link": _LINK}],
    "client": {"ip": "10.0.9.9", "mem": "1g", "cpus": 2, "link": {"delay": "1ms", "queue": 100, "bandwidth": 5}},
    "etcd": {"heartbeat_interval": "100ms", "election_timeout": "2s", "data": "tmpfs", "leader": "a", "tls": True},
}
"""A topology with every key that goes together."""

_SEARCH = {"p50": "4ms", "p90": "5ms", "p95": "6ms", "p99": "7ms", "p99.9": "8ms"}
_SEARCH |= {"from": 20, "to": 2000, "step": "2s", "within": 0.1, "repeats": 5}
_POISSON = {"duration": "2s", "rate": 20.5, "arrival": "poisson", "clients": 2, "conns": 1, "warmup": "1s"}
_SEEDED = {"total": 10, "clients": 1, "conns": 1, "timeout": "2s", "stallTimeout": "5s", "seed": 3}
_SHAPES = {"delay": "5ms", "loss": 0.1, "rate": 0.5}
RICH_SCENARIOS: dict[str, Any] = {
    "dataset": {"keySize": 9, "valSize": 20, "keys": 1000, "keyPrefix": "data/"},
    "scenarios": [
        writes(load=_POISSON, keys="zipfian", zipfExponent=1.2, keySpace=100),
        reads(load=_SEEDED, span={"from": "data/0", "to": "data/z"}, keysOnly=True),
        reads(prefix="data/0", limit=3, countOnly=True, verify=False),
        mixed(spanKeys=2),
        txns(load={"search": _SEARCH, "clients": 2, "conns": 1}),
        txns(
            events=[
                {"at": "2s", "kill": "leader", "for": "1s"},
                {"at": "4s", "restart": "killed"},
                {"every": "5s", "freeze": "random"},
                {"at": "6s", "thaw": "frozen"},
                {"at": "6s", "partition": "followers"},
                {"at": "7s", "heal": "partitioned"},
                {"at": "7s", "link": "down", "of": "etcd2"},
                *({"at": "7s", verb: to, "of": "etcd2"} for verb, to in _SHAPES.items()),
            ]
        ),
        txns(history=True),
    ],
}
"""Scenarios with every key."""
