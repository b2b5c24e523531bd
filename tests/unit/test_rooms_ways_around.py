"""Ways around the rules of the rooms."""

from __future__ import annotations

import pytest

from tests.unit.test_rooms import problems


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("model", "import importlib\nimportlib.import_module('mininet.net')"),
        ("plan", "import importlib\nimportlib.import_module('containernet_env.cli.run')"),
        ("base", "__import__('docker')"),
        ("model", "from os import system\nsystem('tc qdisc')"),
        ("plan", "import os\nos.execvp('tc', ['tc'])"),
        ("base", "import containernet_env as c\nc.measure"),
        ("base", "from containernet_env import measure"),
        ("config", "from containernet_env import *"),
        ("results", "import asyncio\nasyncio.create_subprocess_exec('tc')"),
        ("results", "from asyncio import create_subprocess_shell as run"),
        ("model", "import os as o\no.posix_spawn('/sbin/tc', [], {})"),
        ("config", "from os import spawnv, popen as p"),
        ("plan", "from importlib import import_module\nimport_module('docker')"),
    ],
)
def test_a_way_around_the_rules_is_found(room: str, text: str) -> None:
    assert list(problems(room, text))


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("base", "from containernet_env.cli import run as x"),
        ("base", "import containernet_env.cli.run as x"),
        ("base", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import containernet_env.cli"),
        ("plan", "from containernet_env.config import *"),
        ("plan", "from containernet_env import config as c"),
        ("base", "try:\n    import docker.errors as d\nexcept ImportError: pass"),
        ("base", "class A:\n    def f(self):\n        import rich.console"),
    ],
)
def test_what_held(room: str, text: str) -> None:
    assert list(problems(room, text))
