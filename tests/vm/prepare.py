"""Makes this machine ready for the vm ring: QEMU and what makes a root file system, then both disks, into the cache.

Where the programs cannot be had it says so and ends with 0: the ring then skips itself with that reason.
"""

from __future__ import annotations

import sys

from rich.console import Console

from containernet_env.base.assets import logs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.cli.machine import ConsoleReport
from containernet_env.cli.terminal import StopSignals
from containernet_env.setup import packages
from containernet_env.setup.commands import Steps
from tests.vm import image_disk, machine, root_disk


def main() -> int:
    """0, also where the ring cannot be run here; 1 where a disk could not be made."""
    steps = Steps(ConsoleReport(Console(highlight=False, soft_wrap=True)), logs())

    def install() -> None:
        with steps.step("vm packages") as step:
            absent = machine.absent()
            packages.install(sorted(set(absent.values())), steps.commands, step.log, step.note)
            step.done(f"installed for {', '.join(absent)}")

    def root() -> None:
        with steps.step("vm root") as step:
            step.done(str(root_disk.get()))

    def images() -> None:
        with steps.step("vm images") as step:
            step.done(str(image_disk.get()))

    with StopSignals():
        if machine.absent():
            try:
                steps.run(install)
            except MissingRequirementError as error:
                print(error)
        if (reason := machine.missing()) is not None:
            print(f"no virtual machine can be run here: {reason}")
            return 0
        steps.run(root)
        steps.run(images)
    return 0


if __name__ == "__main__":
    sys.exit(main())
