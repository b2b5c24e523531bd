"""The proof of a network whose links stood still while it was measured."""

from __future__ import annotations

from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.fidelity.rtt import MeasuredPair, RttTable
from containernet_env.runs import testbed as testbed_module
from tests.unit.testbed_fakes import make_bed


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """See ``make_bed``."""
    return make_bed(monkeypatch)


class Proofs:
    """Measurements of the network, one after the other: by how much each was late, and how long the emulator stood."""

    def __init__(self, bed: Any, monkeypatch: pytest.MonkeyPatch, *measured: tuple[int, int]) -> None:
        self.left = list(measured)
        self.bed = bed
        self.paused_ns = 0
        monkeypatch.setattr(testbed_module, "measure_rtt", self.measure)
        bed.net.link_statistics = self.statistics
        bed.net.link_backend = "the emulator"

    def measure(self, *arguments: Any, **named: Any) -> RttTable:
        late_ns, self.paused_ns = self.left.pop(0)
        rtt_ns = 2_000_000 + late_ns
        return RttTable((MeasuredPair("etcd1", "etcd2", 2_000_000, 2_000_000, rtt_ns, 25, 0, (rtt_ns,)),))

    def statistics(self, *, reset: bool = False, buckets: bool = False) -> dict[str, Any]:
        delay = {"count": 9, "p99_ns": 5, "max_ns": self.paused_ns}
        return {"links": {}, "lateness": delay, "ingress_poll_delay": None}


def test_a_network_whose_emulator_stood_still_is_measured_anew(bed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped for 3 s during the proof: the network was 'not the one that was configured'."""
    proofs = Proofs(bed, monkeypatch, (1_500_000_000, 3_000_000_000), (10_000, 20_000))
    assert "1 RTTs as configured" in bed._prove_network()
    assert proofs.left == []
    stood = "the link emulator stood still for 3.0 s while the network was proved"
    assert bed._progress.notes == [f"{stood}: it is proved anew"]


def test_an_emulator_that_stands_still_again_and_again_is_what_is_wrong(
    bed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Proofs(bed, monkeypatch, *[(400_000_000, 900_000_000)] * 3)
    with pytest.raises(RunError, match=r"^the link emulator stood still for 0.9 s .*, 3 times in a row"):
        bed._prove_network()


def test_a_network_that_is_off_by_itself_is_measured_once(bed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Proofs(bed, monkeypatch, (1_500_000_000, 50_000))
    with pytest.raises(RunError, match=r"^the network is not the one that was configured"):
        bed._prove_network()
