"""What the benchmark server takes: bounds, paths and the bodies of its requests.

Made from the table in benchmark_image/internal/spec by `go generate ./...` in benchmark_image: do not edit.
"""

from __future__ import annotations

from typing import Literal, Required, TypedDict

CLIENTS_MIN, CLIENTS_MAX = 1, 10_000
CONNS_MIN, CONNS_MAX = 1, 10_000
TOTAL_MIN, TOTAL_MAX = 1, 86_400_000_000
DURATION_MIN_S, DURATION_MAX_S = 0.001, 86_400
RATE_MIN_PER_S, RATE_MAX_PER_S = 0.1, 1_000_000
WARMUP_REQUESTS_MIN, WARMUP_REQUESTS_MAX = 0, 86_400_000_000
WARMUP_DURATION_MIN_S, WARMUP_DURATION_MAX_S = 0.001, 86_400
SEED_MIN, SEED_MAX = 0, 9_007_199_254_740_991
LOAD_SEED_MIN, LOAD_SEED_MAX = 1, 9_007_199_254_740_991
KEY_SIZE_MIN_BYTES, KEY_SIZE_MAX_BYTES = 1, 1_024
KEY_SPACE_MIN, KEY_SPACE_MAX = 1, 1_000_000_000
ZIPF_EXPONENT_MIN, ZIPF_EXPONENT_MAX = 0, 10
VAL_SIZE_MIN_BYTES, VAL_SIZE_MAX_BYTES = 0, 1_048_576
REQUEST_TIMEOUT_MIN_S, REQUEST_TIMEOUT_MAX_S = 0.001, 3_600
DIAL_TIMEOUT_MIN_S, DIAL_TIMEOUT_MAX_S = 0.001, 600
RUN_TIMEOUT_MIN_S, RUN_TIMEOUT_MAX_S = 0.001, 86_400
STALL_TIMEOUT_MIN_S, STALL_TIMEOUT_MAX_S = 0.001, 86_400
TIMELINE_INTERVAL_MIN_S, TIMELINE_INTERVAL_MAX_S = 0.1, 1
RATIO_MIN, RATIO_MAX = 0, 1
SPAN_KEYS_MIN, SPAN_KEYS_MAX = 1, 1_000_000_000
KEY_SPACE_OF_DURATION = 10_000_000
UNIQUE_VAL_SIZE_MIN_BYTES = 20

WRITE_PATH = "/benchmark/write"
READ_PATH = "/benchmark/read"
MIXED_PATH = "/benchmark/mixed"
TXN_PATH = "/benchmark/txn"
RESULT_PATH = "/benchmark/result/"


class LoadBody(TypedDict, total=False):
    """What every benchmark takes."""

    # members of the cluster, in member order
    endpoints: Required[str]

    # clients, each with at most one request in flight
    clients: int

    # TCP connections; connection j leads to member j mod n, at least one to each; request k goes to member k mod n
    conns: int

    # number of requests
    total: int

    # send requests for this long, instead of a total number (s); not together with `total`
    duration: float

    # open loop: intended starts per second over all clients; latency counts from them
    rate: float

    # how the intended starts of an open loop are spaced; only together with a rate
    arrival: Literal["constant", "poisson"]

    # requests ahead of the measurement, excluded from all figures
    warmupRequests: int

    # duration of a load ahead of the measurement, excluded from all figures (s); not together with `warmupRequests`
    warmupDuration: float

    # send everything to the leader, also when the leader changes
    targetLeader: bool

    # send everything to this member, whoever leads; not together with `targetLeader`
    targetMember: str

    # ask no member who leads, as where a proxy serves clients that does not know it; not together with `targetLeader`
    leaderless: bool

    # seed of the schedule, the key order and the values
    seed: int

    # another seed of all but the values: of the schedule, the key order and which requests of a mixed load are writes
    loadSeed: int

    # file with the certificates of the CAs that sign the members' certificates: connections are secured with TLS
    caFile: str

    # file with the client's own certificate; only together with `caFile` and `keyFile`
    certFile: str

    # file with the private key of the client's certificate; only together with `certFile`
    keyFile: str

    # user to log in as; the password is in `passwordFile`, or in the environment variable BENCHMARK_PASSWORD
    user: str

    # file with the user's password on its first line; only together with `user`
    passwordFile: str

    # of the store consul: file with the token (ACLs) on its first line; only with the store consul
    tokenFile: str

    # size of each generated key, without its prefix; with a key to read, of the keys that verify expects (bytes);
    # enough for `keySpace` different keys
    keySize: int

    # number of different generated keys
    keySpace: int

    # order of the generated keys; shuffled: each key once before any is repeated
    keyOrder: Literal["sequential", "shuffled", "uniform", "zipfian"]

    # exponent of the key order zipfian; only together with the key order zipfian
    zipfExponent: float

    # prefix of each generated key
    keyPrefix: str

    # size of each value; of reads, of the values that were written (bytes); of reads only together with `verify`
    valSize: int

    # deadline of each request (s)
    requestTimeout: float

    # deadline for opening the connections and finding the leader (s)
    dialTimeout: float

    # end the run early after this time (s)
    runTimeout: float

    # end the run when no request, or none of a kind, has succeeded for this long (s)
    stallTimeout: float

    # length of an interval of the timeline (s)
    timelineInterval: float

    # of the store zookeeper: the znode below which the keys are, which has to be there; else the root; only with the
    # store zookeeper
    chroot: str

    # keep what each operation did and was told, for a check of linearizability; only with single generated keys; of
    # writes only with a `valSize` of 20 or more, of reads only together with `verify`
    history: bool

    # kind of store that the members are of
    store: Literal["etcd", "zookeeper", "consul", "http"]


class WriteBody(LoadBody, total=False):
    """The body of POST /benchmark/write."""

    # the same as the key order sequential
    sequentialKeys: bool

    # of the store http: where a value is put, with {key} for the key, such as /v0/entity?id={key}&ack=2; required of
    # the store http, and only with it
    putPath: str

    # of the store http: HTTP status codes of a put that succeeded; only of the store http
    putCodes: str


class ReadBody(LoadBody, total=False):
    """The body of POST /benchmark/read."""

    # the key to read, or the first key of a range scan; together with `keySize` only for `verify`
    key: str

    # end of the range scan, exclusive
    endRange: str

    # read all keys that start with the key, which may then be empty
    prefix: bool

    # largest number of keys in an answer
    limit: int

    # request only the number of keys
    countOnly: bool

    # request only the keys; not together with `countOnly`
    keysOnly: bool

    # consistency of the reads
    consistency: Literal["l", "s", "default"]

    # a read that finds no key is a failed request
    requireFound: bool

    # a read is a failed request if its answer holds another key or value than a load with the same seed and sizes
    # wrote; for range, also if a key is missing; for mixed, also if a linearizable read finds less than was
    # acknowledged before it began; of ranges only together with `keySize`; with `key` also with `keySpace`; of mixed
    # only with a `valSize` of 20 or more
    verify: bool

    # each read is a range scan of this many consecutive generated keys, from the next key on; only with `keySize`, and
    # without `key`
    spanKeys: int

    # of the store http: where a value is read, with {key} for the key; required of the store http, and only with it
    getPath: str

    # of the store http: HTTP status codes of a read that found its key; only of the store http
    getCodes: str

    # of the store http: HTTP status codes of a read of a key that does not exist; only of the store http
    absentCodes: str


class MixedBody(LoadBody, total=False):
    """The body of POST /benchmark/mixed."""

    # the same as the key order sequential
    sequentialKeys: bool

    # share of the puts
    ratio: float

    # consistency of the reads
    consistency: Literal["l", "s", "default"]

    # a read that finds no key is a failed request
    requireFound: bool

    # a read is a failed request if its answer holds another key or value than a load with the same seed and sizes
    # wrote; for range, also if a key is missing; for mixed, also if a linearizable read finds less than was
    # acknowledged before it began; of ranges only together with `keySize`; with `key` also with `keySpace`; of mixed
    # only with a `valSize` of 20 or more
    verify: bool

    # each read is a range scan of this many consecutive generated keys, from the next key on; only with `keySize`, and
    # without `key`
    spanKeys: int

    # of the store http: where a value is put, with {key} for the key, such as /v0/entity?id={key}&ack=2; required of
    # the store http, and only with it
    putPath: str

    # of the store http: where a value is read, with {key} for the key; required of the store http, and only with it
    getPath: str

    # of the store http: HTTP status codes of a put that succeeded; only of the store http
    putCodes: str

    # of the store http: HTTP status codes of a read that found its key; only of the store http
    getCodes: str

    # of the store http: HTTP status codes of a read of a key that does not exist; only of the store http
    absentCodes: str


class TxnBody(LoadBody, total=False):
    """The body of POST /benchmark/txn."""

    # the same as the key order sequential
    sequentialKeys: bool
