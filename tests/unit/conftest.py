"""Tests in simulated time, see ``tests.simulated_time.simulated``, and generated inputs, of which no time is judged.

``CONTAINERNET_ENV_SEED``, by default 0, makes other inputs; many more where ``CONTAINERNET_ENV_SEEDS`` is ``long``.
"""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, core, settings

from tests.simulated_time import LONG, simulated

settings.register_profile(
    "exact",
    deadline=None,
    database=None,
    max_examples=5000 if LONG else 60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("exact")
core.global_force_seed = int(os.environ.get("CONTAINERNET_ENV_SEED") or 0)


gc.set_threshold(50_000, 20, 100)  # collecting as often as by default takes a tenth of the CPU time


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "simulated(seeds, preempt): runs in simulated time, once for each seed")


def pytest_collection_finish() -> None:
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    if (mark := pyfuncitem.get_closest_marker("simulated")) is not None:
        pyfuncitem.obj = simulated(*mark.args, **mark.kwargs)(pyfuncitem.obj)
