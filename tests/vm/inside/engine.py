"""Starts the engine as the set-up does, and says what the guest then has."""

from __future__ import annotations

from containernet_env import setup
from containernet_env.hosts import engine
from containernet_env.setup import dockerd

if __name__ == "__main__":
    print(dockerd.ensure_running(print))
    info = engine.client().info()
    print({key: info.get(key) for key in ("ServerVersion", "Driver", "CgroupDriver", "CgroupVersion")})
    found = setup.detect()
    print(f"missing: {found}")
    raise SystemExit(bool(found))
