"""The set-up as a whole: quick when nothing is missing, clear when it cannot be done."""

from __future__ import annotations

import fcntl
import io
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from containernet_env import setup
from containernet_env.base import assets, clock, sources
from containernet_env.base.errors import Interrupted, MissingRequirementError
from containernet_env.base.stop import Stop
from containernet_env.cli import setup as cli_setup
from containernet_env.cli.setup import ConsoleReport
from containernet_env.model.config import StoreChoice
from containernet_env.runs.progress import Silent
from containernet_env.setup import missing
from containernet_env.setup.commands import Stopped
from containernet_env.setup.images import Images
from containernet_env.setup.missing import Missing
from containernet_env.setup.steps import Steps
from containernet_env.stores.kinds import DEFAULT, KINDS
from containernet_env.stores.protocol import Store
from tests.simulated_time import START_NS, World, simulated

ROOT = assets.ROOT
IMAGES = Images("containernet-env/etcd:1", "containernet-env/benchmark:1")


def lacking(monkeypatch: pytest.MonkeyPatch, found: Missing) -> None:
    monkeypatch.setattr(missing, "look", lambda *of: found)


def test_nothing_missing_is_ready_and_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(required=IMAGES))
    monkeypatch.setattr(setup, "_Work", None)
    assert setup.is_ready()
    assert setup.ready_images() == IMAGES
    assert setup.set_up(Silent()) is False


def test_everything_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Missing(("mininet",), True, sources.modules()[:1], ("base", "etcd"), IMAGES)
    lacking(monkeypatch, found)
    assert not setup.is_ready()
    with pytest.raises(MissingRequirementError) as caught:
        setup.ready_images()
    for text in ("mininet", "running Docker engine", "etcdctl", "base image", "./build.sh"):
        assert text in str(caught.value)


def test_set_up_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(packages=("mininet",)))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingRequirementError, match=r"needs root\n.*sudo"):
        setup.set_up(Silent())


def test_disk_is_only_asked_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing, "engine_data", lambda: Path("/var/lib/docker"))
    assert Missing(engine=True).disk_needs() == []
    some = Missing(images=("etcd",)).disk_needs()
    everything = Missing(("docker.io", "mininet"), True, sources.modules(), ("base", "etcd", "benchmark"))
    assert sum(need.size for need in some) < 100_000_000
    assert 1_000_000_000 < sum(need.size for need in everything.disk_needs()) < 4_000_000_000


@pytest.fixture
def held(tmp_path: Path) -> Iterator[int]:
    """The lock of the machine, which another set-up holds until its descriptor is closed."""
    first = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(first, fcntl.LOCK_EX)
    yield first
    with suppress(OSError):
        os.close(first)


@simulated()
def test_second_set_up_waits_for_the_first_and_says_so(world: World, tmp_path: Path, held: int) -> None:
    told: list[str] = []

    def note(text: str) -> None:
        told.append(text)

        def end() -> None:
            clock.sleep(30)
            os.close(held)

        clock.Thread(target=end).start()

    with setup.only_one(note, tmp_path / "lock"):
        assert told == ["waiting for another set-up on this machine to end"]
        assert 30 <= (world.now_ns - START_NS) / 1e9 < 31


@simulated()
def test_waiting_for_another_set_up_ends_by_a_stop_token_or_its_deadline(
    world: World, tmp_path: Path, held: int
) -> None:
    stop = Stop()
    with (
        pytest.raises(Interrupted),
        setup.only_one(lambda text: stop.request(), tmp_path / "lock", deadline_s=20, stop=stop),
    ):
        pass
    with (
        pytest.raises(MissingRequirementError, match=r"another set-up holds .* for more than 20 s"),
        setup.only_one(lambda text: None, tmp_path / "lock", deadline_s=20),
    ):
        pass
    assert 20 < (world.now_ns - START_NS) / 1e9 < 21


def test_nothing_to_do_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(required=IMAGES))
    result = CliRunner().invoke(cli_setup.command, [], standalone_mode=False)
    assert result.exception is None
    assert result.output.count("\n") == 1
    assert result.output.startswith("Set-up: nothing to do (")


def test_the_command_that_follows_replaces_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(required=IMAGES))
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, argv: became.append(argv))
    result = CliRunner().invoke(cli_setup.command, ["--", "run", "a.json", "out.csv", "--quick"], standalone_mode=False)
    assert result.exception is None
    assert result.output == ""
    assert [argv[1:] for argv in became] == [["run", "a.json", "out.csv", "--quick"]]


def test_another_store_is_set_up_when_a_run_of_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who measures etcd waits for it, and nobody has to set it up by a command of its own."""
    zookeeper = KINDS["zookeeper"].make(StoreChoice("zookeeper"))
    there: list[Store] = []
    lacks = Missing(images=("zookeeper",), required=IMAGES, store=zookeeper)

    def look(store: Store = DEFAULT) -> Missing:
        return lacks if store == zookeeper and not there else Missing(required=IMAGES)

    def set_up(report: object, store: Store, stop: object) -> bool:
        there.append(store)
        return True

    monkeypatch.setattr(missing, "look", look)
    monkeypatch.setattr(setup, "set_up", set_up)
    assert setup.is_ready() and setup.ready_images(DEFAULT, Silent()) == IMAGES and there == []
    with pytest.raises(MissingRequirementError, match="the zookeeper image"):
        setup.ready_images(zookeeper)
    assert setup.ready_images(zookeeper, Silent()) == IMAGES and there == [zookeeper]


def test_a_run_that_lacks_more_than_its_store_is_not_set_up_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(("mininet",), images=("zookeeper",)))
    monkeypatch.setattr(setup, "set_up", None)
    with pytest.raises(MissingRequirementError, match="mininet"):
        setup.ready_images(KINDS["zookeeper"].make(StoreChoice("zookeeper")), Silent())


def test_a_step_is_one_line_and_the_first_error_is_raised_without_one(tmp_path: Path) -> None:
    output = io.StringIO()
    steps = Steps(ConsoleReport(Console(file=output, highlight=False, soft_wrap=True)), tmp_path / "logs")

    def made() -> None:
        with steps.step("base image") as step:
            step.done("made")

    def broken() -> None:
        with steps.step("etcd"):
            raise MissingRequirementError("no network", "Check it.")

    steps.run(made)
    assert output.getvalue().startswith("  base image      made")
    with pytest.raises(MissingRequirementError, match="no network"):
        steps.run(broken, made)
    assert "etcd" not in output.getvalue() and steps.commands.stopping.is_set()
    with pytest.raises(Stopped):
        steps.commands.run(["true"], tmp_path / "log", timeout_s=60)


@simulated()
def test_a_step_says_how_long_it_took(tmp_path: Path) -> None:
    output = io.StringIO()
    steps = Steps(ConsoleReport(Console(file=output, highlight=False, soft_wrap=True)), tmp_path / "logs")
    with steps.step("base image") as step:
        clock.sleep(5)
        step.done("made")
    assert output.getvalue() == "  base image      made  (5.0 s)\n"
