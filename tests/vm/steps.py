"""The steps of jobs: what every machine begins with, and what the ring has it do."""

from __future__ import annotations

from tests.vm.machine import ORIGINAL, Step

_OVS = "/var/lib/openvswitch"
SERVICES = (
    Step(
        "modules",
        "modprobe sch_netem && modprobe openvswitch && modprobe fuse && lsmod && uname -a && tc -V && ip -V",
        120,
    ),
    Step(
        "openvswitch",
        f"mkdir -p {_OVS} /var/log/openvswitch && rm -f {_OVS}/conf.db && "
        f"ovsdb-tool create {_OVS}/conf.db /usr/share/openvswitch/vswitch.ovsschema && "
        f"ovsdb-server {_OVS}/conf.db --remote=punix:/run/openvswitch/db.sock --detach --pidfile --log-file && "
        "ovs-vsctl --no-wait init && ovs-vswitchd --detach --pidfile --log-file && "
        "ovs-vsctl --timeout=30 show && ovs-vsctl get Open_vSwitch . datapath_types",
        180,
    ),
    Step("engine", "python3 -m tests.vm.inside.engine", 300),
)

_LINKS = ("links_contract", "links_switches", "live_links", "links_chance", "ovs")
FILES = (
    *(f"tests/root/test_{name}.py" for name in (*_LINKS, "disk")),
    "tests/docker/test_containernet_hosts.py",
    "tests/vm/inside/test_recorded.py",
)
# What another kernel may lack: netem, Open vSwitch, the classifier of partitions, cgroup v2, FUSE passthrough. The
# rest, such as HTB and bridges alone, is the same on each, and the root ring tests it natively.
_KERNELS = (
    "not (mistakes or shell or topology or stopping or sysctls) and ("
    "netem or ovs or (bridge and (rtts or partition)) or bring_up or limits "
    # How a first process ended: it, or another one in its container, was killed for its memory.
    "or (process_ended and (exec or client)) or recorded or disk)"
)
_PYTEST = "CONTAINERNET_ENV_COARSE_TIMES=1 python3 -m pytest -v -rs -p no:cacheprovider --durations=10"


def _pytest(name: str, arguments: str, limit_s: float, environment: str = "") -> Step:
    command = f"{_PYTEST} -o junit_family=xunit1 --junitxml=out/{name}.xml {arguments}"
    return Step(name, f"{environment} {command}".strip(), limit_s)


RING = (
    *SERVICES,
    _pytest("kernel", f"{' '.join(FILES)} -k '{_KERNELS}'", 1200),
    _pytest("runs", "tests/vm/inside/test_runs.py", 1200),
)
"""What the ring has its machine do. The tests wait for as long as here, and judge times coarsely there."""

_HERE = f"PYTHONPATH=/job/{ORIGINAL}"
_ENGINES = (
    "tests/docker/test_network_engines.py -k '(containernet-bridge or containernet-ovs) and "
    "(hosts_have or links_hold or delay_and_loss or cables)'"
)
RING_ORIGINAL = (
    _pytest("original-networks", _ENGINES, 1200, _HERE),
    _pytest("original-runs", "tests/vm/inside/test_original.py", 1200, _HERE),
)
"""What comes after it where there is a checkout of the original Containernet."""
