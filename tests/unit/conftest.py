"""Tests in simulated time: those that are marked ``simulated``, see ``tests.simulated_time.simulated``."""

from __future__ import annotations

import pytest

from tests.simulated_time import simulated


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "simulated(seeds, preempt): runs in simulated time, once for each seed")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    if (mark := pyfuncitem.get_closest_marker("simulated")) is not None:
        pyfuncitem.obj = simulated(*mark.args, **mark.kwargs)(pyfuncitem.obj)
