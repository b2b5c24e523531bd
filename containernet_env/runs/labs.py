"""Labs: testbeds that stay up for the shell, and the shell's actions on their members, the same as those of events."""

from __future__ import annotations

from collections.abc import Sequence

from containernet_env.base import clock
from containernet_env.base.errors import ContainernetEnvError, RunError
from containernet_env.containernet.shell import Crashes
from containernet_env.model.usage import Leadership
from containernet_env.runs.testbed import Testbed

_REJOIN_S = 20.0
"""How long the shell waits for members that were started again; without a quorum they cannot answer."""


class Lab(Crashes):
    """See ``Crashes``; members join their cluster again."""

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed.net)
        self._testbed = testbed
        self.net.dilation = testbed.emulated.dilation

    @property
    def names(self) -> Sequence[str]:
        return self._testbed.faults.targets.members

    def leadership(self) -> Leadership | None:
        return self._testbed.cluster.leadership()

    def kill(self, name: str) -> int:
        self._testbed.cluster.expect_death(name)
        return self._testbed.faults.signal("kill", name)

    def restart(self, names: Sequence[str]) -> str:
        """See ``Crashes``: side by side, since without a quorum none of them answers."""
        self.end(names)
        answered: list[str] = []
        problems: list[str] = []

        def restart(name: str) -> None:
            try:
                self._testbed.cluster.expect_death(name)
                self._testbed.faults.restart(name, lambda: None, lambda: self._testbed.failure)
                answered.append(name)
            except ContainernetEnvError as error:
                problems.append(f"{name}: {error}")

        threads = [clock.Thread(target=restart, args=(name,), daemon=True) for name in names]
        deadline_s = clock.monotonic() + _REJOIN_S * self.net.dilation
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline_s - clock.monotonic()))
        said = [f"{name}: started again, and answers" for name in answered]
        waited = [name for name, thread in zip(names, threads, strict=True) if thread.is_alive()]
        said += [f"{name}: started again; it answers once it knows a leader" for name in waited]
        if problems:
            raise RunError("\n".join([*problems, *said]))
        return "\n".join(said)
