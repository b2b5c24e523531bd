"""What the links of a topology can take of the link emulator's frame memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from containernet_env.model.chance import Jitter
from containernet_env.model.frame_memory import FRAME_MEMORY_BYTES, frame_memory_note, most_held_bytes
from containernet_env.model.link import DirectionSpec
from containernet_env.model.queues import default_frames

GO = Path(__file__).resolve().parents[2] / "link_emulator"
MS = 10**6
PLACE = 2048


def test_the_emulators_own_numbers() -> None:
    pool = (GO / "framepool" / "framepool.go").read_text()
    emulator = (GO / "emulator" / "emulator.go").read_text()
    shares, (sizes,) = re.search(r"shares = (\d+)", pool), re.findall(r"chunkShift int \}\{(.*)\}$", pool, re.MULTILINE)
    limit = re.search(r"DefaultBufferBytes = int64\((\d+) << 20\)", emulator)
    assert shares is not None and limit is not None
    kinds = sizes.count("{")
    assert f"{{{PLACE}, " in sizes
    assert int(limit[1]) * 2**20 * (int(shares[1]) - kinds + 1) // int(shares[1]) == FRAME_MEMORY_BYTES


def test_the_default_queue_is_the_emulators() -> None:
    # Both from examples in its README, which its own tests keep true.
    text = (GO / "README.md").read_text()
    assert '"delay_ns":50000000,"rate_bps":1000000000,"overhead_bytes":0,"queue_frames":16513' in text
    assert default_frames(4 * 50 * MS, 10**9) == 16513
    assert '"delay_ns":3000000,"rate_bps":1000000000,"overhead_bytes":0,"queue_frames":2000' in text
    assert default_frames(4 * 3 * MS, 10**9) == 2000


@pytest.mark.parametrize(
    ("direction", "frames"),
    [
        (DirectionSpec(100 * MS), 0),
        (DirectionSpec(0, 10**9), 2001),
        (DirectionSpec(0, 10**9, 50), 51),
        (DirectionSpec(0, 10**9, 50, 15140), 11),
        (DirectionSpec(1_211_200, 10**9, 1), 102),  # a hundred frames on the wire
        (DirectionSpec(1_211_200, 10**9, 1, jitter=Jitter("uniform", 1_211_200)), 202),
        (DirectionSpec(0, 10**9, default_queue_frames=4500), 4501),
        (DirectionSpec(0, 10**9, 7, default_queue_frames=4000), 8),
    ],
)
def test_what_waits_and_what_travels(direction: DirectionSpec, frames: int) -> None:
    assert most_held_bytes(direction) == frames * PLACE


def test_a_warning_only_where_it_cannot_fit() -> None:
    assert frame_memory_note([DirectionSpec(3 * MS, 10**9)] * 94) is None  # 47 hosts
    assert frame_memory_note([DirectionSpec(3 * MS, 10**9)] * 96) is not None
    note = frame_memory_note([DirectionSpec(100 * MS, 10**9)] * 100)
    assert note is not None and "8063 MiB" in note and "416 MiB" in note
