"""Makes this machine ready for rings of tests beyond what runs need: packages, ZooKeeper's image, the vm ring's disks.

    sudo .venv/bin/python -m tests.prepare local docker vm

What is there already takes no time. Where a package or image cannot be had, the reason is printed and the exit status
is 0: the tests that need it skip themselves with that reason.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console

from containernet_env import setup
from containernet_env.base.assets import logs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.cli.machine import ConsoleReport
from containernet_env.cli.terminal import StopSignals
from containernet_env.setup import packages
from containernet_env.setup.commands import Steps
from containernet_env.stores.kinds import KINDS
from tests.local.browser import CHROMIUM
from tests.vm import image_disk, machine, root_disk

REPORT = ConsoleReport(Console(highlight=False, soft_wrap=True))
STEPS = Steps(REPORT, logs())


@contextmanager
def where_possible() -> Iterator[None]:
    try:
        yield
    except MissingRequirementError as error:
        print(error)


def install(absent: Mapping[str, str]) -> None:
    """Install the packages of what is missing, by its name."""

    def work() -> None:
        with STEPS.step("packages of tests") as step:
            packages.install(sorted({*absent.values()}), STEPS.commands, step.log, step.note)
            step.done(f"installed for {', '.join(absent)}")

    if absent:
        with where_possible():
            STEPS.run(work)


def local() -> None:
    install({"busybox": "busybox-static"} if shutil.which("busybox") is None else {})
    install({"the pages": "chromium"} if CHROMIUM is None else {})


def docker() -> None:
    """Consul takes minutes to build: its tests run where it has been set up."""
    with where_possible():
        setup.set_up(REPORT, KINDS["zookeeper"].default())


def vm() -> None:
    """Also fails where a disk cannot be made."""
    install(machine.absent())
    if (reason := machine.missing()) is not None:
        print(f"no virtual machine can be run here: {reason}")
        return

    def root() -> None:
        with STEPS.step("vm root") as step:
            step.done(str(root_disk.get()))

    def images() -> None:
        with STEPS.step("vm images") as step:
            step.done(str(image_disk.get()))

    STEPS.run(root)
    STEPS.run(images)


RINGS: Mapping[str, Callable[[], None]] = {"local": local, "docker": docker, "vm": vm}

if __name__ == "__main__":
    with StopSignals():
        for ring in sys.argv[1:]:
            RINGS[ring]()
