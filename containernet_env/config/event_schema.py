"""The keys of an event in a scenario file: what is done to members and their links while a load runs."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from containernet_env.base.units import format_duration
from containernet_env.config.fields import Bandwidth, Delay, choice, decimal, duration, one_of_or_name, refuse
from containernet_env.config.link_schema import LEFT_OUT
from containernet_env.config.validation import StrictModel, rule
from containernet_env.model import load_contract as contract
from containernet_env.model.disruption import DRAWN_TARGETS, STRUCK, Disruption, Verb

EVENTS_MAX = 50
"""More than these in one scenario are a mistake."""
MORE_EVENTS = '; one with "every" repeats, and the others can be of further scenarios'
"""What to do with more of them."""
EVENT_MIN_NS = 200_000_000
"""The generator tells of its start within 100 ms, and who leads is asked right before an event."""
FOR_MIN_NS = 10_000_000
_LONGEST_NS = contract.RUN_TIMEOUT_MAX_S // 2 * 10**9
_WHEN, _LENGTH = duration(EVENT_MIN_NS, _LONGEST_NS), duration(FOR_MIN_NS, _LONGEST_NS)
_CHOSEN, _KILLED, _FROZEN, _PARTITIONED = (
    one_of_or_name(*words) for words in (DRAWN_TARGETS, ("killed",), ("frozen",), ("partitioned",))
)
_TARGETED = ("kill", "restart", "freeze", "thaw", "partition", "heal")
_OF_LINKS = ("link", "delay", "loss", "rate")
_ACTIONS = (*_TARGETED, *_OF_LINKS)
_VERBS: dict[str, Verb] = {verb: verb for verb in get_args(Verb)}


class RawEvent(StrictModel):
    """Once or every so often, one thing is done to members, or to the links of members."""

    model_config = ConfigDict(
        title="Event",
        json_schema_extra={
            "oneOf": [{"required": ["at"]}, {"required": ["every"]}],
            "anyOf": [{"required": [key]} for key in _ACTIONS],
            "dependentRequired": {key: ["of"] for key in _OF_LINKS},
        },
    )

    at_ns: Annotated[int | None, *_WHEN] = Field(default=None, alias="at")
    every_ns: Annotated[int | None, *_WHEN] = Field(default=None, alias="every")
    for_ns: Annotated[int | None, *_LENGTH] = Field(default=None, alias="for")
    kill: Annotated[str | None, *_CHOSEN] = None
    restart: Annotated[str | None, *_KILLED] = None
    freeze: Annotated[str | None, *_CHOSEN] = None
    thaw: Annotated[str | None, *_FROZEN] = None
    partition: Annotated[str | None, *_CHOSEN] = None
    heal: Annotated[str | None, *_PARTITIONED] = None
    link: Annotated[Literal["down", "up"] | None, *choice("down", "up")] = None
    delay: Delay = LEFT_OUT
    loss: Annotated[Decimal | None, *decimal(Decimal(0), Decimal(1))] = None
    rate: Bandwidth = LEFT_OUT
    of: Annotated[str | None, *one_of_or_name(*DRAWN_TARGETS, "down")] = None

    @property
    def _actions(self) -> list[str]:
        return [key for key in _ACTIONS if key in self.model_fields_set]

    @property
    def verb(self) -> Verb:
        """What it does."""
        action = self._actions[0]
        return _VERBS[f"link_{self.link}" if action == "link" else action]

    @property
    def target_key(self) -> str:
        """The key that has its target."""
        return "of" if self._actions[0] in _OF_LINKS else self._actions[0]

    @property
    def disruption(self) -> Disruption:
        """It as a value."""
        verb = self.verb
        value: int | float | None = None
        if verb in ("delay", "rate"):
            value = getattr(self, verb)
        elif verb == "loss" and self.loss is not None:
            value = float(self.loss)
        return Disruption(
            verb=verb,
            target=getattr(self, self.target_key),
            at_ns=self.at_ns,
            every_ns=self.every_ns,
            for_ns=self.for_ns,
            value=value,
        )

    @rule
    def _has_one_time(self) -> None:
        if self.at_ns is None and self.every_ns is None:
            refuse("is missing", "at, a time after the start of the load, or every", key="at")
        if self.at_ns is not None and self.every_ns is not None:
            refuse("is given beside at", "either at or every", key="every")

    @rule
    def _does_one_thing(self) -> None:
        if not self._actions:
            refuse("does nothing", f"one of the keys {', '.join(_ACTIONS)}")
        if len(self._actions) > 1:
            refuse(f"is given beside {self._actions[0]}", "one action in each event", key=self._actions[1])

    @rule
    def _links_have_an_owner(self) -> None:
        links = [key for key in self._actions if key in _OF_LINKS]
        if links and self.of is None:
            refuse("is missing", f"whose link: {', '.join(DRAWN_TARGETS)} or a member's name", key="of")
        if self._actions and not links and self.of is not None:
            refuse(f"is given beside {self._actions[0]}", f"only beside {', '.join(_OF_LINKS)}", key="of")

    @rule
    def _what_is_down_goes_up(self) -> None:
        if not self._actions or self.of is None:
            return
        if self.link == "up" and self.of in DRAWN_TARGETS:
            refuse("is not known to be down", '"down", which is all that are, or a member\'s name', key="of")
        if self.link != "up" and self.of == "down":
            refuse("is given without link up", f"{', '.join(DRAWN_TARGETS)} or a member's name", key="of")

    @rule
    def _only_what_is_done_can_be_undone(self) -> None:
        if self.for_ns is not None and self._actions and self.verb in STRUCK:
            undoing = ", ".join(verb.replace("_", " ") for verb in STRUCK)
            refuse("is given for what ends something", f"not beside {undoing}", key="for")

    @rule
    def _ends_before_it_comes_again(self) -> None:
        if self.for_ns is not None and self.every_ns is not None and self.for_ns >= self.every_ns:
            refuse("is not over when it comes again", f"less than every, {format_duration(self.every_ns)}", key="for")
