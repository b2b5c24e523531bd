"""Marks a test of something that is wrong today: the mend takes the mark away."""

from __future__ import annotations

import pytest

finding = pytest.mark.xfail(strict=True, reason="found in a review; not mended yet")
