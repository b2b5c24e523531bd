"""What netem can do faithfully of a link's jitter, loss and queue limit, and why it is refused the rest.

The kernel's side is net/sched/sch_netem.c, tc's is tc/q_netem.c of iproute2. Pure functions of argument lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from containernet_env.base.errors import RunError
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter, Loss
from containernet_env.model.link import DirectionSpec

_UNASKED = frozenset({"loss-state", "duplicate", "corrupt", "reorder", "rate", "slot"})


def options(direction: DirectionSpec) -> list[str]:
    """netem's options but its limit, as ``tc`` takes them."""
    words: list[str] = []
    jitter, loss = direction.jitter, direction.loss
    if direction.delay_ns:
        words += ["delay", f"{direction.delay_ns / 1000:.3f}us"]
    if jitter is not None:
        words.append(f"{jitter.ns / 1000:.3f}us")
        # Without a table the kernel draws uniformly; a table of tc's is cut at four standard deviations, as asked.
        words += ["distribution", "normal"] if jitter.distribution == "normal" else []
    if isinstance(loss, GilbertElliottLoss):
        ratios = (loss.good_to_bad_ratio, loss.bad_to_good_ratio, loss.bad_loss_ratio, loss.good_loss_ratio)
        words += ["loss", "gemodel", *(_percent(ratio) for ratio in ratios)]
    elif loss is not None and loss.ratio > 0:
        words += ["loss", "random", _percent(loss.ratio)]
    return words


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.10f}".rstrip("0").rstrip(".") + "%"


def held(options: Mapping[str, Any], asked: Jitter | None) -> tuple[int, Jitter | None, Loss | None]:
    """Delay (ns), jitter and loss in what ``tc -j`` prints of a netem qdisc.

    The kernel does not tell which distribution it holds: that of ``asked`` is taken over. Raises ``RunError`` for
    anything that is never asked of netem.
    """
    delay = options.get("delay", {"delay": 0, "jitter": 0})
    random, chain = options.get("loss-random"), options.get("loss-gemodel")
    if _UNASKED & set(options) or delay.get("correlation") or (random or {}).get("correlation"):
        raise RunError(f"netem holds more than was asked: {dict(options)}")
    jitter: Jitter | None = None
    loss: Loss | None = None
    jitter_ns = round(float(delay.get("jitter", 0)) * 1e9)  # tc prints seconds
    if jitter_ns:
        if asked is None:
            raise RunError(f"netem holds more than was asked: {dict(options)}")
        jitter = Jitter(asked.distribution, jitter_ns, reorder=True)
    if random is not None:
        loss = IndependentLoss(float(random["loss"]))
    elif chain is not None:
        loss = GilbertElliottLoss(*(float(chain[key]) for key in ("p", "r", "1-k", "1-h")))
    return round(float(delay["delay"]) * 1e9), jitter, loss


def in_place(old: Sequence[Sequence[str]], new: Sequence[Sequence[str]]) -> list[list[str]] | None:
    """The commands that turn what ``old`` (commands of ``tc ... add``) made into what ``new`` would make.

    A bandwidth that both have holds all the while. What waits or travels is lost only where netem takes the place of
    a plain queue or the other way round. ``None`` where the root is another and everything has to be rebuilt.
    """
    if not old or not new or _shape(old[0]) != _shape(new[0]):
        return None
    commands: list[list[str]] = []
    for before, after in zip_longest(old, new):
        if after is None:
            break  # went with what was below it
        if before is None or (commands and "replace" in commands[-1]):
            commands.append(list(after))  # what was here went with what was below it
        elif list(before) != list(after):
            verb = "change" if _shape(before) == _shape(after) else "replace"
            commands.append([verb if word == "add" else word for word in after])
    return commands


def _shape(command: Sequence[str]) -> tuple[object, ...]:
    """What of a command cannot be changed later: where it is, its kind, and netem's table, which stays once loaded."""
    return (*[word for word in command if word in ("qdisc", "class", *_KINDS)], "distribution" in command)


_KINDS = ("htb", "netem", "pfifo", "bfifo")
