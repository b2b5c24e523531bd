"""The files that the vm ring proves, and the record of the last pass: the ring runs when one of them has changed.

.venv/bin/python -m tests.vm.proved             # the reason why it need not run; status 1 where it has to
.venv/bin/python -m tests.vm.proved --record    # after a pass: proved.json, which is committed
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from containernet_env.base import assets
from containernet_env.base.assets import ROOT
from containernet_env.base.clock import utc_now
from tests.vm import steps

RECORD = Path(__file__).with_name("proved.json")
PROVES = (
    "containernet_env/network",
    "containernet_env/hosts",
    "containernet_env/containernet",
    "containernet_env/setup/dockerd.py",
    "disk_emulator",
    "etcd_image/wait-at-gate",
    "tests/recorded/tc.json",
    "tests/root/network.py",
    "tests/vm",
    *steps.FILES,
)
"""Links by netem and HTB, switches, containers, their limits under cgroup v2 and their disks on a kernel without FUSE
passthrough; the tests of them that run there."""
ELSEWHERE = (
    *(
        f"containernet_env/network/{name}.py"
        for name in ("emulator", "gate", "gate_plan", "gate_trains", "gate_verdict", "rtt")
    ),
    "containernet_env/network/chance.py",
    "containernet_env/network/measure.py",
    str(RECORD.relative_to(ROOT)),
)
"""Below these folders, but proved by the exact and root rings; and the record itself."""
_SUFFIXES = {".py", ".go", ".mod", ".sum", ".json", ""}


def inputs() -> list[Path]:
    """Every file that the ring proves."""
    found: set[Path] = set()
    for name in PROVES:
        path = ROOT / name
        found |= set(path.rglob("*")) if path.is_dir() else {path}
    apart = [ROOT / name for name in ELSEWHERE]
    return sorted(
        path
        for path in found
        if path.suffix in _SUFFIXES
        and (path.is_file() or not path.exists())
        and not any(path == other or other in path.parents for other in apart)
    )


def digest() -> str:
    """Their hash, by contents and paths. FileNotFoundError where a file that is named above is missing."""
    return assets.hash_files(ROOT, inputs())


def reason() -> str | None:
    """Why the ring need not run; None where it has to."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if record.get("digest") != digest():
        return None
    return f"its files have not changed since it passed, {record['at'][:10]}, Linux {record['kernel']} in the machine"


def main() -> int:
    """0 with the reason; 1 where the ring has to run."""
    if sys.argv[1:] == ["--record"]:
        from tests.vm import root_disk

        kernel = json.loads((root_disk.get() / "versions.json").read_text())["kernel"]
        RECORD.write_text(json.dumps({"digest": digest(), "at": utc_now(), "kernel": kernel}, indent=1) + "\n")
        return 0
    why = reason()
    print(why or "its files have changed since it passed")
    return 1 if why is None else 0


if __name__ == "__main__":
    sys.exit(main())
