"""What a link of the emulator takes back of itself, whenever its making was cut short."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import Interrupted, RunError
from containernet_env.model.link import LinkSpec
from containernet_env.network.emulator.link import EmulatedLink
from containernet_env.network.interface import Interface, SwitchPort


class FakeEmulator:
    """Ports and links by name, refused as the emulator does; ``fail`` raises before or after a request is done."""

    pid = 7

    def __init__(self) -> None:
        self.ports: set[str] = set()
        self.links: dict[str, str] = {}
        self.fail: tuple[str, bool, BaseException] | None = None

    def ask(self, op: str, **fields: Any) -> Any:
        self._strike(op, done=False)
        match op:
            case "add_port":
                self.ports.add(fields["name"])
            case "add_link":
                self.links[fields["name"]] = fields["a"]["port"]
            case "remove_link":
                if self.links.pop(fields["name"], None) is None:
                    raise RunError("there is no such link")
            case "remove_port":
                if fields["name"] in self.links.values():
                    raise RunError("remove the link first")
                if fields["name"] not in self.ports:
                    raise RunError("there is no such port")
                self.ports.discard(fields["name"])
        self._strike(op, done=True)
        return SimpleNamespace(at_ns=1, result={})

    def call(self, op: str, **fields: Any) -> Any:
        return self.ask(op, **fields).result

    def _strike(self, op: str, done: bool) -> None:
        if self.fail is not None and self.fail[:2] == (op, done):
            raise self.fail[2]


@pytest.mark.parametrize("error", [Interrupted(2), RunError("no answer after 5 s")])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("op", ["add_port", "add_link"])
def test_a_making_that_is_cut_short_leaves_nothing_and_raises_nothing_else(
    op: str, done: bool, error: BaseException
) -> None:
    """Ctrl-C in bring-up: `remove_port: port "benchmark-eth0" carries link "benchmark-s1"`, exit status 1."""
    emulator: Any = FakeEmulator()
    emulator.fail = (op, done, error)
    ends = (Interface(1, "a1e1", "02:00:00:00:00:01", "etcd1-eth0"), SwitchPort("a1e2", "s1"))
    link = EmulatedLink(emulator, "etcd1-s1", ends, LinkSpec.symmetric())
    with pytest.raises(type(error)):
        link.make()
        link.apply(link.spec)
    link.clear()
    assert (emulator.ports, emulator.links) == (set(), {})


def test_what_the_emulator_has_and_does_not_take_back_is_told() -> None:
    emulator: Any = FakeEmulator()
    ends = (Interface(1, "a1e1", "02:00:00:00:00:01", "etcd1-eth0"), SwitchPort("a1e2", "s1"))
    link = EmulatedLink(emulator, "etcd1-s1", ends, LinkSpec.symmetric())
    link.make()
    emulator.fail = ("remove_port", False, RunError("it has ended"))
    with pytest.raises(RunError, match="it has ended"):
        link.clear()
