"""The vm ring: tests/vm/inside is for the guest alone."""

from __future__ import annotations

import os

collect_ignore = [] if "CONTAINERNET_ENV_COARSE_TIMES" in os.environ else ["inside"]
