"""What is said of an interface, without a kernel."""

from __future__ import annotations

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts import netns
from containernet_env.network.interface import delete_interface


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        ('Cannot find device "e0"', True),
        # Its host ended between the look for its name and its removal: the tear-down of a run failed once.
        ("RTNETLINK answers: No such device; Command failed -:1", True),
        ("RTNETLINK answers: Operation not permitted", False),
    ],
)
def test_an_interface_that_goes_by_itself_has_gone(monkeypatch: pytest.MonkeyPatch, said: str, gone: bool) -> None:
    def refuse(pid: int, lines: object) -> None:
        raise RunError(f"'ip -batch -' failed with status 1: {said}")

    monkeypatch.setattr(netns, "ip_batch", refuse)
    if gone:
        assert delete_interface(1, "e0") is False
    else:
        with pytest.raises(RunError, match="not permitted"):
            delete_interface(1, "e0")
