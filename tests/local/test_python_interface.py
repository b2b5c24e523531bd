"""The package's own names, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import containernet_env

ROOT = Path(__file__).resolve().parents[2]
HEAVY = "{'docker', 'mininet', 'pandas', 'pydantic', 'click', 'rich'}"


def loaded_after(statement: str) -> str:
    program = f"import sys; {statement}; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import containernet_env") == "[]"


def test_files_are_read_without_the_engines_sdk_and_mininet() -> None:
    assert loaded_after("from containernet_env import load_topology, load_scenarios") == "['pydantic']"


def test_a_run_can_be_called_without_the_command_line() -> None:
    assert "click" not in loaded_after("from containernet_env import measure")


def test_the_names_are_those_that_are_documented() -> None:
    assert set(containernet_env.__all__) == {"__version__", "load_scenarios", "load_topology", "measure", "rerun"}
    for name in containernet_env.__all__:
        assert getattr(containernet_env, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = containernet_env.nothing


def test_what_it_cannot_do_is_known_without_mininet_and_the_engines_sdk() -> None:
    """Plans are made by `check` too, which has to be quick."""
    program = (
        "import sys, containernet_env.plan.build; print({'mininet.node', 'mininet.link', 'docker'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "set()\n"
