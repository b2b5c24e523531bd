"""The recorded output of ``tc`` is what this kernel and iproute2 print today."""

from __future__ import annotations

import json
import platform

import pytest

from containernet_env.hosts import netns
from tests.docker.runs import PROJECT
from tests.recorded import specs

pytestmark = pytest.mark.root


def test_tc_prints_what_was_recorded() -> None:
    version = netns.run(1, ["tc", "-V"]).stdout.strip()
    recorded = {"recorded with": f"{version}, Linux {platform.release()}", **specs.record()}
    # Copied over the old one (tests/recorded/tc.json) by whoever has found that a difference is right.
    (PROJECT / "out" / "tc.json").write_text(specs.render(recorded))
    before = json.loads(specs.FILE.read_text())
    assert {name: recorded[name] for name in specs.SPECS} == {name: before.get(name) for name in specs.SPECS}
