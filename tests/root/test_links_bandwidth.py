"""HTB alone, on this machine's kernel: what TCP gets of the bandwidth that was asked for."""

from __future__ import annotations

import pytest

from containernet_env.model.link import LinkSpec
from tests.root.network import ADDRESSES, COARSE, needs_root, veth
from tests.root.pump import goodput_bps

pytestmark = [pytest.mark.root, needs_root]

# Payload of a full frame: 1500 bytes less the headers of IPv4 and TCP with timestamps; and the frame itself.
PAYLOAD_RATIO = 1448 / 1514


# An emulated processor carries some ten Mbit/s at its worst, in fits and starts.
RATES = [10] if COARSE else [100, 1000, 2500]
LEAST, MOST = (0.6, 1.1) if COARSE else (0.85, 1.02)


@pytest.mark.parametrize("mbps", RATES)
def test_goodput_is_what_the_bandwidth_allows(mbps: int) -> None:
    with veth(LinkSpec.symmetric(0)) as (_, pids):
        free = goodput_bps(*pids, ADDRESSES[1]) / 1e6
    with veth(LinkSpec.symmetric(0, mbps * 10**6)) as (_, pids):
        # A busy machine slows some windows down, so the best of three medians counts for the lower bound.
        medians = [goodput_bps(*pids, ADDRESSES[1]) / 1e6 for _ in range(3)]
    theory = mbps * PAYLOAD_RATIO
    figures = (
        f"asked {mbps} Mbit/s, theory {theory:.0f}, medians {[round(median) for median in medians]}, free {free:.0f}"
    )
    assert max(medians) <= theory * MOST, figures
    # What this machine's hosts cannot carry now without a limit, a limit does not add.
    assert max(medians) >= min(theory, free) * LEAST, figures


def test_the_other_direction_has_its_own_bandwidth() -> None:
    mbps = 5 if COARSE else 100
    spec = LinkSpec.symmetric(0, mbps * 10**6)
    with veth(LinkSpec(a_to_b=spec.a_to_b)) as (_, pids):
        limited = goodput_bps(*pids, ADDRESSES[1]) / 1e6
        free = goodput_bps(pids[1], pids[0], ADDRESSES[0]) / 1e6
    assert limited <= mbps, f"{limited:.0f} Mbit/s"
    assert free >= 3 * mbps, f"{free:.0f} Mbit/s"
