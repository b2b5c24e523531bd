"""The images on a real engine: what is in them, and their gate."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from containernet_env import setup
from containernet_env.base import assets
from containernet_env.hosts import engine
from containernet_env.setup import images
from tests.deadline import eventually

Start = Callable[..., Any]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts containers of an image, without a network; they are removed at the end."""
    started: list[str] = []

    def run(image: str, *arguments: str) -> Any:
        name = f"cnenv-test-{secrets.token_hex(3)}"
        started.append(name)
        return engine.client().containers.run(
            image, list(arguments), name=name, detach=True, network_mode="none", labels=engine.labels()
        )

    yield run
    engine.remove_containers(started)


def ended(container: Any) -> bool:
    container.reload()
    return bool(container.status == "exited")


def test_each_container_has_a_gate_of_its_own_and_etcd_starts_behind_it(start: Start) -> None:
    image = setup.ready_images().member
    first, second = start(image, "--version"), start(image, "--version")
    gate = ["sh", "-c", "test -p /run/gate && echo go >/run/gate"]
    eventually(lambda: first.exec_run(gate).exit_code == 0, "the container reads its gate")
    eventually(lambda: ended(first), "etcd --version ends")
    assert f"etcd Version: {assets.etcd_version()}" in first.logs().decode()
    assert not ended(second), "opening one gate opened another"
    second.stop(timeout=60)
    second.reload()
    assert second.attrs["State"]["ExitCode"] == 143, "the waiting first process does not hear SIGTERM"


def test_images_carry_the_hash_of_their_sources(start: Start) -> None:
    required = setup.ready_images()
    for tag in (required.member, required.benchmark, images.base_tag()):
        labels = engine.client().images.get(tag).labels
        assert labels[engine.LABEL] == "1"
        assert labels[engine.LABEL_SOURCE].startswith(tag.partition(":")[2])
    for program in ("benchmark-client", "benchmark-client-tls"):
        assert start(required.benchmark, program, "--version").wait(timeout=60)["StatusCode"] == 0
