"""Scenario files: compact blocks of settings whose lists multiply, expanded into the scenarios of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from decimal import Decimal
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Any, ClassVar, get_args

from containernet_env.base import assets
from containernet_env.base.units import format_duration, format_number
from containernet_env.config.fields import validate, written, written_value
from containernet_env.config.reader import Document, json_path, read_document, value_at
from containernet_env.model import kinds
from containernet_env.model import load_contract as contract
from containernet_env.model.disruption import (
    AFFECTED,
    DRAWN_TARGETS,
    SHAPING,
    UNDOING,
    Disruption,
    Target,
    Verb,
    name_of,
)
from containernet_env.model.kinds import (
    Chosen,
    Form,
    Listed,
    Location,
    Named,
    Refused,
    Section,
    keyed,
    keys_of,
    not_beside,
    refuse,
    rule,
    section,
)
from containernet_env.model.scenario import (
    ANY_MEMBER,
    CONSISTENCY_NAMES,
    KEY_COUNT,
    KEY_SIZE,
    KEY_TEXT,
    LENGTH_MAX_NS,
    LENGTH_MIN_NS,
    MAX_CLIENTS,
    MAX_SCENARIOS,
    ONE_KEY,
    VAL_SIZE,
    WARMUP_MAX_NS,
    ZIPF_EXPONENT,
    Answer,
    Consistency,
    Dataset,
    KeyOrder,
    Keys,
    Load,
    Scenario,
    ScenarioType,
    Sender,
    Span,
    after_prefix,
    axis,
    keys_refused,
)
from containernet_env.model.search import RATE_MAX, RATE_MIN


@section
class RawLoad(Section, Load):
    """How many requests or for how long, at which rate, by how many clients, over how many connections."""

    SCHEMA: ClassVar = {
        "oneOf": [{"required": [length]} for length in ("total", "duration", "search")],
        "not": {"required": ["rate", "search"]},
        "dependentSchemas": {"arrival": {"anyOf": [{"required": ["rate"]}, {"required": ["search"]}]}},
    }

    rate: tuple[Decimal, ...] = keyed(  # type: ignore[assignment]  # several loads
        axis(kinds.decimal(RATE_MIN, RATE_MAX)),
        "requests/s over all clients, which makes an open loop; may be a list",
        default=(),
    )
    clients: tuple[int, ...] = keyed(  # type: ignore[assignment]
        axis(kinds.integer(1, contract.MOST["clients"])), "clients that each have one request at a time; may be a list"
    )

    @property
    def loads(self) -> Iterator[Load]:
        """The loads, one for each of its rates and clients."""
        shared = {item.name: getattr(self, item.name) for item in fields(Load)}
        for rate, clients in product(self.rate or (None,), self.clients):
            yield Load(**{**shared, "rate": rate, "clients": clients})

    @property
    def shortest_ns(self) -> int | None:
        """How long it takes at its highest rate; ``None`` if the store decides."""
        if self.duration_ns is not None:
            return self.duration_ns
        return int(self.total * 10**9 / max(self.rate)) if self.rate and self.total is not None else None

    @rule
    def _has_a_length(self) -> None:
        if self.total is None and self.duration_ns is None and "search" not in self.given:
            refuse("is missing", "total, a number of requests, or duration, or search", "total")

    _search_has_no_total, _search_has_no_duration, _search_has_no_rate = (
        not_beside(key, "search", "search alone, which chooses the rate and the length of each probe")
        for key in ("total", "duration", "rate")
    )
    _has_one_length = not_beside("duration", "total", "either total or duration")

    @rule
    def _search_has_no_warmup_in_requests(self) -> None:
        if "search" in self.given and self.warmup.requests:
            refuse("is no time", 'a duration such as "1s" beside search, whose rate is not known', "warmup")

    @rule
    def _objectives_are_below_the_deadline(self) -> None:
        for item in self.search.objectives if self.search is not None else ():
            if item.limit_ns >= self.request_timeout_ns:
                # Whatever takes longer has failed: no answered request could miss it.
                allowed = f"less than the deadline of each request, {format_duration(self.request_timeout_ns)}"
                refuse(f"has an objective that no answer can miss, {item.text}", allowed, "search")

    @rule
    def _clients_have_requests(self) -> None:
        if self.total is not None and max(self.clients) > self.total:
            # The row would claim a concurrency that never was.
            refuse("is more than there are requests", f"at most total, {self.total}", "clients")

    @rule
    def _stall_is_never_or_long_enough(self) -> None:
        if self.stall_timeout_ns is not None and 0 < self.stall_timeout_ns < LENGTH_MIN_NS:
            allowed = f'"0s", which is never, or at least {format_duration(LENGTH_MIN_NS)}'
            refuse("is too short", allowed, "stallTimeout")

    @rule
    def _arrivals_have_a_rate(self) -> None:
        if "arrival" in self.given and not self.rate and "search" not in self.given:
            allowed = "only beside rate or search: a closed loop has no arrivals"
            refuse("is given without a rate", allowed, "arrival")

    @rule
    def _takes_no_longer_than_the_server_lets_it(self) -> None:
        if self.rate and self.total is not None and self.total * 10**9 > min(self.rate) * LENGTH_MAX_NS:
            most = f"{format_duration(LENGTH_MAX_NS)} in all"
            refuse(f"is too low for {self.total} requests", f"a rate at which they take at most {most}", "rate")

    @rule
    def _warmup_keeps_the_servers_limits(self) -> None:
        if self.rate and self.warmup.requests * 10**9 > min(self.rate) * WARMUP_MAX_NS:
            refuse("is too long", f"at most {format_duration(WARMUP_MAX_NS)} at this rate", "warmup")


EVENTS_MAX = 50
"""More than these in one scenario are a mistake."""
MORE_EVENTS = '; one with "every" repeats, and the others can be of further scenarios'
"""The advice if there are more."""
EVENT_MIN_NS = 200_000_000
"""The generator reports its start within 100 ms, and the leader is queried right before an event."""
FOR_MIN_NS = 10_000_000
_LONGEST_NS = contract.MOST["runTimeout"] // 2 * 10**9
_WHEN, _LENGTH = kinds.duration(EVENT_MIN_NS, _LONGEST_NS), kinds.duration(FOR_MIN_NS, _LONGEST_NS)
_NAMES = "the name of a member, or of a site or switch, which is its members"
_CHOSEN, _KILLED, _FROZEN, _PARTITIONED = (
    kinds.one_of_or_name(*words, of=_NAMES) for words in (DRAWN_TARGETS, ("killed",), ("frozen",), ("partitioned",))
)
_SETS = Listed(Listed(kinds.one_of_or_name(of=_NAMES), 1, kinds.MAX_NODES, unique=True), 2, kinds.MAX_NODES)
_PARTED = Chosen(
    (_CHOSEN, _SETS),
    lambda value: _SETS if isinstance(value, list) else _CHOSEN,
    write=lambda target: target if isinstance(target, str) else [[*group] for group in target],
)
_OF = kinds.one_of_or_name(
    *DRAWN_TARGETS,
    "down",
    of=f'{_NAMES}; or the link between two sites or switches such as "eu-us", or one way "eu>us"',
    also=f"{kinds.NAME_PATTERN}[->]{kinds.NAME_PATTERN}",
)
_TARGETED = ("kill", "restart", "freeze", "thaw", "partition", "heal")
_OF_LINKS = ("link", *SHAPING)
_ACTIONS = (*_TARGETED, *_OF_LINKS)
_VERBS: dict[str, Verb] = {verb: verb for verb in get_args(Verb)}


@section
class RawEvent(Section):
    """Once or every so often, one thing is done to members, or to the links of members."""

    SCHEMA: ClassVar = {
        "oneOf": [{"required": ["at"]}, {"required": ["every"]}],
        "anyOf": [{"required": [key]} for key in _ACTIONS],
        "dependentRequired": {key: ["of"] for key in _OF_LINKS},
    }

    at_ns: int | None = keyed(_WHEN, "how long after the start of the load it happens, once", "at", default=None)
    every_ns: int | None = keyed(_WHEN, "how often it happens, the first time after so long", "every", default=None)
    for_ns: int | None = keyed(
        _LENGTH, "how long after that it is undone (at the end of the scenario)", "for", default=None
    )
    kill: str | None = keyed(_CHOSEN, "which members are killed (SIGKILL)", default=None)
    restart: str | None = keyed(_KILLED, "which members are started again, on their data", default=None)
    freeze: str | None = keyed(_CHOSEN, "which members are stopped (SIGSTOP)", default=None)
    thaw: str | None = keyed(_FROZEN, "which members go on", default=None)
    partition: Target | None = keyed(
        _PARTED,
        "which members are cut off from the other members, or a list of sets of members that are kept apart, others "
        "being one more set; clients still reach all",
        default=None,
    )
    heal: str | None = keyed(_PARTITIONED, "which members reach the others again", default=None)
    link: str | None = keyed(kinds.choice("down", "up"), "the members' links are unplugged or plugged in", default=None)
    delay: int | None = keyed(kinds.DELAY, "one-way delay of the members' links, each direction", default=None)
    loss: Decimal | None = keyed(
        kinds.decimal(Decimal(0), Decimal(1)),
        "share of frames that is lost on the members' links, each direction",
        default=None,
    )
    rate: int | None = keyed(kinds.BANDWIDTH, "bandwidth of the members' links in Mbit/s, each direction", default=None)
    of: str | None = keyed(_OF, "whose links, or which link between switches", default=None)

    @property
    def _actions(self) -> list[str]:
        return [key for key in _ACTIONS if key in self.given]

    @property
    def verb(self) -> Verb:
        action = self._actions[0]
        return _VERBS[f"link_{self.link}" if action == "link" else action]

    @property
    def target_key(self) -> str:
        return "of" if self._actions[0] in _OF_LINKS else self._actions[0]

    @property
    def disruption(self) -> Disruption:
        value = getattr(self, self.verb, None) if self.target_key == "of" else None
        return Disruption(
            verb=self.verb,
            target=getattr(self, self.target_key),
            at_ns=self.at_ns,
            every_ns=self.every_ns,
            for_ns=self.for_ns,
            value=float(value) if isinstance(value, Decimal) else value,
        )

    @rule
    def _has_a_time(self) -> None:
        if self.at_ns is None and self.every_ns is None:
            refuse("is missing", "at, a time after the start of the load, or every", "at")

    _has_one_time = not_beside("every", "at", "either at or every")

    @rule
    def _does_one_thing(self) -> None:
        if not self._actions:
            refuse("does nothing", f"one of the keys {', '.join(_ACTIONS)}")
        if len(self._actions) > 1:
            refuse(f"is given beside {self._actions[0]}", "one action in each event", self._actions[1])

    @rule
    def _links_have_an_owner(self) -> None:
        links = [key for key in self._actions if key in _OF_LINKS]
        if links and self.of is None:
            refuse("is missing", f"whose link: {', '.join(DRAWN_TARGETS)} or a name", "of")
        if self._actions and not links and self.of is not None:
            refuse(f"is given beside {self._actions[0]}", f"only beside {', '.join(_OF_LINKS)}", "of")

    @rule
    def _what_is_down_goes_up(self) -> None:
        if not self._actions or self.of is None:
            return
        if self.link == "up" and self.of in DRAWN_TARGETS:
            refuse("is not known to be down", '"down", which is all that are, or a name', "of")
        if self.link != "up" and self.of == "down":
            refuse("is given without link up", f"{', '.join(DRAWN_TARGETS)} or a name", "of")

    @rule
    def _only_what_is_done_can_be_undone(self) -> None:
        if self.for_ns is not None and self._actions and self.verb in AFFECTED:
            undoing = ", ".join(verb.replace("_", " ") for verb in AFFECTED)
            refuse("is given for what ends something", f"not beside {undoing}", "for")

    @rule
    def _ends_before_it_comes_again(self) -> None:
        if self.for_ns is not None and self.every_ns is not None and self.for_ns >= self.every_ns:
            refuse("is not over when it comes again", f"less than every, {format_duration(self.every_ns)}", "for")


def written_event(event: Disruption) -> dict[str, Any]:
    """The object of a file from which the same event is read: the action is a key."""
    times, verb = written(RawEvent, event), event.verb
    if verb.startswith("link_"):
        return {**times, "link": verb.removeprefix("link_"), "of": event.target}
    if verb in _OF_LINKS:
        return {**times, verb: written_value(keys_of(RawEvent)[verb].form, event.value), "of": event.target}
    return {**times, verb: written_value(keys_of(RawEvent)[verb].form, event.target)}


# "More than 0" to the server; less than this is uniform for any data set.
ZIPF_MIN, ZIPF_MAX = Decimal("0.01"), Decimal(contract.MOST["zipfExponent"])
LIMIT_MAX = 1_000_000_000


@section
class RawData(Section):
    """Sizes in bytes of the keys and values that are written."""

    key_size: int = keyed(KEY_SIZE, "bytes of a key", "keySize")
    val_size: int = keyed(VAL_SIZE, "bytes of a value", "valSize")


@section
class RawSender(Section, Sender):
    """What a client sends otherwise than the block says."""

    who: str = ""

    _has_one_length = not_beside("duration", "total", "either total or duration")


_SENDERS = Listed(kinds.CLIENT, 1, MAX_CLIENTS, alone=True)
_BY_SENDER = Named(kinds.CLIENT, RawSender)
BY = Chosen((_SENDERS, _BY_SENDER), lambda value: _BY_SENDER if isinstance(value, dict) else _SENDERS)

_TARGET = (
    axis(kinds.one_of_or_name(*ANY_MEMBER)),
    "to whom requests are sent: the leader alone, all members in turn, the one nearest to the client, or one by its "
    "name; may be a list",
)
_TYPE = "what the requests are"


@section
class RawBlock(Section):
    """What every block has."""

    LAST: ClassVar = ("events",)

    type: ScenarioType = keyed(kinds.choice(*get_args(ScenarioType)), _TYPE)
    load: tuple[RawLoad, ...] = keyed(
        axis(RawLoad), "how many requests or for how long, at which rate, by how many clients; may be a list"
    )
    target: tuple[str, ...] = keyed(*_TARGET, default=("cluster",))
    keys: tuple[KeyOrder, ...] = keyed(
        axis(kinds.choice(*get_args(KeyOrder))), "in which order keys are used; may be a list", default=("sequential",)
    )
    zipf_exponent: Decimal = keyed(
        kinds.decimal(ZIPF_MIN, ZIPF_MAX),
        "with zipfian, key i is drawn in proportion to 1/(i+1) to this power",
        "zipfExponent",
        default=ZIPF_EXPONENT,
    )
    history: bool = keyed(
        kinds.BOOLEAN, "whether what each operation did and returned is kept, for the command `verify`", default=False
    )
    by: Any = keyed(
        BY,
        "where a topology has several clients: which of them send it (all), by their names or sites; or an object with "
        "what each of these sends otherwise",
        "clients",
        default=None,
    )
    events: tuple[RawEvent, ...] = keyed(
        Listed(RawEvent, 1, EVENTS_MAX, MORE_EVENTS, alone=True),
        "actions on members and their links while the load runs",
        default=(),
    )

    # What only some types have.
    data: tuple[RawData | None, ...] = (None,)
    put_ratio: tuple[Decimal | None, ...] = (None,)
    consistency: tuple[Consistency | None, ...] = (None,)
    verify: bool = False

    @property
    def spans(self) -> list[Span]:
        """The requests of its reads, one for each number of keys at once."""
        return [ONE_KEY]

    @property
    def axes(self) -> tuple[Sequence[Any], ...]:
        """The dimensions that multiply besides loads."""
        return self.put_ratio, self.data, self.target, self.spans, self.keys, self.consistency

    @property
    def senders(self) -> tuple[Sender, ...]:
        """The clients that send it; none where all do."""
        named = self.by if isinstance(self.by, dict) else dict.fromkeys(self.by or ())
        return tuple(Sender(who, **({} if own is None else own.changes)) for who, own in named.items())

    def refused(self, key: str, message: str, allowed: str | None = None) -> Refused:
        """The refusal of a key, at the block itself where that leaves the key out."""
        if key in self.given:
            return Refused(message, allowed, (*self.at, key))
        return Refused(f"its {key} {message}", allowed, self.at)

    @property
    def size(self) -> int:
        loads = sum(max(1, len(load.rate)) * len(load.clients) for load in self.load)
        return loads * prod(map(len, self.axes))

    @rule
    def _a_history_is_of_one_load(self) -> None:
        if self.history and any(load.search is not None for load in self.load):
            refuse("is given for a search, of which no single load is judged", "false", "history")

    @rule
    def _senders_have_requests(self) -> Iterator[Refused]:
        for sender in self.senders:
            for load in self.load:
                if load.search is not None:
                    yield Refused("is given for a search", "only beside total or duration", "clients")
                    return
                for one in load.loads:
                    own = replace(one, **sender.changes)
                    if own.total is not None and own.clients > own.total:
                        message = f"makes {own.clients} clients of {sender.who} for {own.total} requests"
                        yield Refused(message, "at most as many clients as requests", "clients")
                        return
                    if own.total is not None and (own.scheduled_s or 0.0) * 1e9 > LENGTH_MAX_NS:
                        message = f"makes the rate of {sender.who} too low for {own.total} requests"
                        allowed = f"a rate at which they take at most {format_duration(LENGTH_MAX_NS)}"
                        yield Refused(message, allowed, "clients")
                        return
                    if own.warmup.requests and (own.warmup_s or 0.0) * 1e9 > WARMUP_MAX_NS:
                        message = f"makes the warm-up of {sender.who} too long"
                        yield Refused(message, f"at most {format_duration(WARMUP_MAX_NS)}", "clients")
                        return

    @rule
    def _exponent_has_its_order(self) -> None:
        if "zipfExponent" in self.given and "zipfian" not in self.keys:
            refuse("is given without zipfian keys", 'only beside keys "zipfian"', "zipfExponent")

    @rule
    def _events_happen(self) -> Iterator[Refused]:
        """Before the load ends, and none ends an event that never begins."""
        if self.events and any(load.search is not None for load in self.load):
            yield Refused("would spoil the probes of a search", "only beside total or duration", "events")
        lengths = [length for load in self.load if (length := load.shortest_ns) is not None]
        begun = {event.verb for event in self.events}
        in_part = any(isinstance(event.partition, str) for event in self.events)
        for event in self.events:
            key, first_ns = ("at", event.at_ns) if event.at_ns is not None else ("every", event.every_ns or 0)
            if lengths and first_ns >= min(lengths):
                allowed = f"less than the load takes, {format_duration(min(lengths))}"
                yield Refused("is not before the end of the load", allowed, self.below(event, key))
            undone = next((verb for verb, undoing in UNDOING.items() if undoing == event.verb), None)
            if undone is not None and undone not in begun:
                allowed = f"only beside an event that does: {undone.replace('_', ' ')}"
                yield Refused("ends what no event begins", allowed, self.below(event, event.target_key))
            elif event.heal not in (None, AFFECTED["heal"]) and not in_part:
                allowed = f'"{AFFECTED["heal"]}": sets are kept apart until all of them are healed'
                yield Refused("ends a part of a partition", allowed, self.below(event, "heal"))


@section
class RawWrite(RawBlock):
    """Writes: for each load, for each data, for each target, for each order of keys."""

    type: ScenarioType = keyed(kinds.choice("write"), _TYPE)
    data: tuple[RawData, ...] = keyed(axis(RawData), "sizes in bytes of keys and values; may be a list")
    target: tuple[str, ...] = keyed(*_TARGET)
    key_space: int | None = keyed(
        KEY_COUNT, "how many different keys are written (as many as requests)", "keySpace", default=None
    )

    @rule
    def _drawn_keys_have_a_space(self) -> None:
        drawn = [order for order in self.keys if order in ("uniform", "zipfian")]
        if drawn and self.key_space is None and any(load.total is None and load.search is None for load in self.load):
            allowed = f"how many keys {drawn[0]} ones are drawn from, where there is no total"
            refuse("is missing", allowed, "keySpace")

    @rule
    def _keys_are_different(self) -> Iterator[Refused]:
        for data in self.data:
            yield from keys_refused(data.key_size, self._most_keys, self.below(data, "keySize"))

    @property
    def _most_keys(self) -> int:
        if self.key_space is not None:
            return self.key_space
        most = max(load.default_keys(order) or load.most_keys for load in self.load for order in self.keys)
        return min(most, contract.MOST["keySpace"])


@section
class RawReading(RawBlock):
    """The common part of blocks with reads."""

    consistency: tuple[Consistency, ...] = keyed(
        axis(kinds.choice(*get_args(Consistency))),
        "linearizable (l), a quorum agrees; serializable (s), the member that is queried answers alone; "
        "or default, of Consul alone: the leader answers by its lease",
    )
    span_keys: tuple[int, ...] = keyed(
        axis(kinds.integer(1, contract.MOST["spanKeys"])),
        "range scans of so many consecutive keys; may be a list",
        "spanKeys",
        default=(),
    )
    verify: bool = keyed(
        kinds.BOOLEAN, "whether an answer must hold exactly what was written, or only something", default=True
    )

    @property
    def spans(self) -> list[Span]:
        return [Span(keys=number) for number in self.span_keys or (None,)]

    @rule
    def _a_history_is_of_single_keys_that_are_verified(self) -> None:
        if self.history and self.spans != [ONE_KEY]:
            refuse("is given for more than single keys and their values", "false", "history")
        if self.history and not self.verify:
            refuse("is given without verify, which checks what reads have found", "false", "history")


@section
class RawSpan(Section):
    """All keys from one on to before another one."""

    start: str = keyed(KEY_TEXT, "first key", "from")
    end: str = keyed(KEY_TEXT, "the key before which the span ends", "to")

    @rule
    def _ends_after_its_start(self) -> None:
        if self.end <= self.start:
            refuse("is not after the start", f"a key that sorts after from, {self.start}", "to")


_EXTENTS = ("prefix", "span", "spanKeys")
_NOT_BESIDE_A_NAME = ("span", "spanKeys", "keys", "zipfExponent")


@section
class RawRead(RawReading):
    """Reads of the data set: for each load, target, number of keys at once, order of keys, and consistency."""

    SCHEMA: ClassVar = {
        "not": {
            "anyOf": [
                {"required": [one, two]}
                for one, others in (("prefix", _NOT_BESIDE_A_NAME), ("span", _NOT_BESIDE_A_NAME[1:]))
                for two in others
            ]
        },
        "dependentSchemas": {"limit": {"anyOf": [{"required": [extent]} for extent in _EXTENTS]}},
    }

    type: ScenarioType = keyed(kinds.choice("read"), _TYPE)
    prefix: str | None = keyed(KEY_TEXT, "each read requests all keys that begin with this", default=None)
    span: RawSpan | None = keyed(RawSpan, "each read requests all keys from one to before another", default=None)
    limit: int | None = keyed(kinds.integer(1, LIMIT_MAX), "an answer holds at most so many keys", default=None)
    keys_only: bool = keyed(kinds.BOOLEAN, "whether answers hold keys without values", "keysOnly", default=False)
    count_only: bool = keyed(
        kinds.BOOLEAN, "whether answers hold only how many keys there are", "countOnly", default=False
    )

    @property
    def spans(self) -> list[Span]:
        answer: Answer = "keys" if self.keys_only else "count" if self.count_only else "values"
        start, end = (self.span.start, self.span.end) if self.span is not None else (None, None)
        return [Span(self.prefix, start, end, one, self.limit, answer) for one in self.span_keys or (None,)]

    @property
    def _extents(self) -> list[str]:
        return [key for key in _EXTENTS if key in self.given]

    @rule
    def _asks_for_one_extent(self) -> None:
        if len(self._extents) > 1:
            refuse(f"is given beside {self._extents[0]}", "one of prefix, span and spanKeys", self._extents[1])

    @rule
    def _limit_has_an_extent(self) -> None:
        if self.limit is not None and not self._extents:
            refuse("is given for single keys", "only beside prefix, span or spanKeys", "limit")

    @rule
    def _leaves_one_thing_out(self) -> None:
        if self.keys_only and self.count_only:
            refuse("is given beside keysOnly", "one of keysOnly and countOnly", "countOnly")

    @rule
    def _named_keys_have_no_order(self) -> Iterator[Refused]:
        for extent in self._extents[:1]:
            for key in self.given & {"keys", "zipfExponent"} if extent != "spanKeys" else ():
                yield Refused(f"is given beside {extent}", "only where reads begin at the data set's keys", key)


@section
class RawMixed(RawReading):
    """Writes and reads of the data set: as reads, for each ratio."""

    type: ScenarioType = keyed(kinds.choice("mixed"), _TYPE)
    put_ratio: tuple[Decimal, ...] = keyed(
        axis(kinds.decimal(Decimal(0), Decimal(1))), "share of the writes; may be a list", "ratio"
    )


@section
class RawTxn(RawBlock):
    """Transactions on the data set: for each load, for each target, for each order of keys."""

    type: ScenarioType = keyed(kinds.choice("txn"), _TYPE)


BLOCKS: dict[str, type[RawBlock]] = {"write": RawWrite, "read": RawRead, "mixed": RawMixed, "txn": RawTxn}
"""The form of a block by its type."""
# A block whose type is wrong: keys of any type are checked, and the rest is unknown.
_UNTYPED = make_dataclass(
    "RawUntyped",
    [
        (item.attribute, Any, keyed(item.form, item.meaning, name, default=None))
        for name, item in {name: item for kind in BLOCKS.values() for name, item in keys_of(kind).items()}.items()
        if name not in keys_of(RawBlock)
    ],
    bases=(RawBlock,),
    namespace={"__module__": __name__},
    frozen=True,
    slots=True,
    kw_only=True,
)


def _form_of_block(block: object) -> Form:
    kind = block.get("type") if isinstance(block, dict) else None
    return BLOCKS.get(kind, _UNTYPED) if isinstance(kind, str) else _UNTYPED


_DATASET = Dataset()


@section
class RawScenarios(Section):
    """A scenario file."""

    dataset: Dataset = keyed(Dataset, "the data set that all but writes use", default=_DATASET)
    scenarios: tuple[RawBlock, ...] = keyed(
        Listed(Chosen(tuple(BLOCKS.values()), _form_of_block), 1, MAX_SCENARIOS),
        f"1 to {MAX_SCENARIOS} blocks, run in this order; in each the lists multiply",
    )


def _span_refusals(block: RawReading, dataset: Keys, blocks: Iterable[RawBlock]) -> Iterator[Refused]:
    """Problems of reads of several keys at once, given the blocks of the file that are good."""
    span = block.spans[0]
    if span == ONE_KEY or (span.keys is None and not span.named):
        return
    key = "prefix" if span.prefix is not None else "span" if span.start is not None else "spanKeys"
    place = (*block.at, key)
    if max(block.span_keys, default=0) > dataset.count:
        # The row would claim spans that never were.
        yield Refused("is more than the data set has", f"at most dataset.keys, {dataset.count}", place)
        return
    start, end = span.bounds(dataset)
    if not dataset.within(start, end):
        between = f"{dataset.name(0)} to {dataset.name(dataset.count - 1)}"
        yield Refused("holds no key of the data set", f"some of its keys, {between}", place)
        return
    if not block.verify:
        return
    prefix = dataset.prefix
    if prefix and not (start.startswith(prefix) and end <= after_prefix(prefix)):
        allowed = f"keys that all start with dataset.keyPrefix, {prefix}, or verify false"
        yield Refused("reaches beyond the data set, where it is not known what is there", allowed, place)
        return
    writing = next((other for other in blocks if isinstance(other, RawWrite)), None)
    if not prefix and writing is not None:
        message = f"may hold keys beside the data set, which {json_path(writing.at)} writes"
        allowed = "a dataset.keyPrefix, which keeps the data set apart from what is written, or verify false"
        yield Refused(message, allowed, place)


def _unique_refusals(block: RawBlock, dataset: Dataset) -> Iterator[Refused]:
    """Values without room for the name of their writer, where that is needed."""
    if block.type == "read" or not (block.history or (block.type == "mixed" and block.verify)):
        return
    key, least = "history" if block.history else "verify", contract.UNIQUE_VAL_SIZE_MIN_BYTES
    size = min((data or dataset).val_size for data in block.data)
    if size < least:
        problem = f"needs unique values, and {size} bytes have no room for the name of their writer"
        what = "a valSize" if block.type == "write" else "a dataset.valSize"
        yield Refused(problem, f"{what} of at least {least}, or {key} false", (*block.at, key), "true")


_SHIPPED = assets.ROOT / "configs" / "scenarios"
DEFAULT_SCENARIOS = _SHIPPED / "default.json"
QUICK_SCENARIOS = _SHIPPED / "quick.json"


@dataclass(frozen=True, slots=True)
class ScenarioSet:
    """The scenarios of one file, the ``document``, in their order, names unique.

    ``block_of`` has the block of each scenario by the scenario's name: whether its members, features and objectives
    are possible depends on the topology.
    """

    document: Document = field(compare=False, repr=False)
    dataset: Dataset
    scenarios: tuple[Scenario, ...]
    block_of: Mapping[str, RawBlock] = field(default_factory=dict, compare=False, repr=False)

    @property
    def blocks(self) -> list[RawBlock]:
        return [*{block.at: block for block in self.block_of.values()}.values()]

    @property
    def events(self) -> Iterator[tuple[Location, Disruption]]:
        """Each event of the file, and the place of its target."""
        for event in chain.from_iterable(block.events for block in self.blocks):
            yield (*event.at, event.target_key), event.disruption

    def search_of(self, scenario: Scenario) -> Location:
        loads = self.block_of[scenario.name].load
        return next((*load.at, "search") for load in loads if load.search == scenario.search)

    def entry(self, location: Location, index: int) -> Location:
        """The place of an entry of a list, or of the one that is short for a list."""
        return (*location, index) if isinstance(value_at(self.document.value, location), list) else location


def load_scenarios(path: Path | str) -> ScenarioSet:
    """The scenarios of a file, blocks and lists in its order; ``ConfigError`` with every problem of it.

    In a block the lists multiply, the loads being the outer loop and a load's rates and clients the next ones.
    """
    return scenarios_of(read_document(Path(path)))


def scenarios_of(document: Document) -> ScenarioSet:
    validated = validate(RawScenarios, document)
    refusals = [*validated.refusals]
    dataset = getattr(validated.value, "dataset", None) if validated.is_good(("dataset",)) else None
    listed = getattr(validated.value, "scenarios", ())
    blocks = [block for block in listed if validated.is_good(block.at)]
    count = sum(block.size for block in blocks)
    if count > MAX_SCENARIOS:
        refusals.append(Refused("multiply to too many", f"at most {MAX_SCENARIOS}", ("scenarios",), f"{count}"))
    scenarios: dict[str, Scenario] = {}
    block_of: dict[str, RawBlock] = {}
    for block in blocks:
        if dataset is not None:
            if isinstance(block, RawReading):
                refusals += _span_refusals(block, dataset.all_keys, blocks)
            refusals += _unique_refusals(block, dataset)
        for scenario in _expand(block, dataset or Dataset()) if count <= MAX_SCENARIOS else ():
            if (first := block_of.setdefault(scenario.name, block)) is block and scenario.name not in scenarios:
                scenarios[scenario.name] = scenario
            else:
                message = f"repeats a scenario of {json_path(first.at)}"
                allowed = "each scenario once; --repeat repeats all"
                refusals.append(Refused(message, allowed, block.at, scenario.name))
    document.refuse(refusals)
    assert dataset is not None  # refused otherwise
    return ScenarioSet(document, dataset, tuple(scenarios.values()), block_of)


def _expand(block: RawBlock, dataset: Dataset) -> Iterator[Scenario]:
    events = tuple(event.disruption for event in block.events)
    loads = chain.from_iterable(raw.loads for raw in block.load)
    is_write = isinstance(block, RawWrite)
    for load, ratio, own_data, target, span, order, consistency in product(loads, *block.axes):
        data = own_data or dataset
        exponent = block.zipf_exponent if order == "zipfian" else ZIPF_EXPONENT
        key_space, sizes, given_space = dataset.keys, "", ""
        if isinstance(block, RawWrite):
            default = load.default_keys(order)
            key_space = default if block.key_space is None else block.key_space
            sizes = f"{data.key_size}B-{data.val_size}B"
            given_space = f"of{key_space}" if key_space != default else ""
        # Keys that a file leaves out are left out of the name.
        parts = [
            block.type,
            f"w{format_number(ratio)}" if ratio is not None else "",
            target if target != "cluster" or is_write else "",
            CONSISTENCY_NAMES[consistency] if consistency is not None else "",
            load.load_name,
            sizes,
            given_space,
            span.label,
            order if order != "sequential" else "",
            f"e{format_number(exponent)}" if exponent != ZIPF_EXPONENT else "",
            "" if block.verify or consistency is None else "unverified",
            "history" if block.history else "",
            "by-" + "+".join(sender.label for sender in block.senders) if block.senders else "",
            name_of(events),
        ]
        yield Scenario(
            name="-".join(filter(None, parts)),
            type=block.type,
            key_size=data.key_size,
            val_size=data.val_size,
            key_space=key_space,
            target=target,
            consistency=consistency,
            keys=order,
            zipf_exponent=exponent,
            verify=block.verify,
            put_ratio=ratio,
            key_prefix="" if is_write else dataset.key_prefix,
            span=span,
            history=block.history,
            events=events,
            senders=block.senders,
            **{item.name: getattr(load, item.name) for item in fields(Load)},
        )
