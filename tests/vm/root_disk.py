"""The kernel and the root file system of the virtual machine: Debian with its cloud kernel, from its packages.

That kernel has what many others lack: netem and Open vSwitch, as modules. Nothing of the project is on the disk but the
Python packages that it needs: the job brings the rest, fresh each time.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from containernet_env.base import assets
from containernet_env.setup import images, packages
from tests.vm import cache

KERNEL = "linux-image-cloud-amd64"
PACKAGES = (
    *("mount", "hostname", "kmod", "bash", "procps", "util-linux", "busybox-static"),
    *("iproute2", "iputils-ping", "iptables", "ethtool"),
    *("docker.io", "openvswitch-switch", "mininet", "bridge-utils", "python3", "ca-certificates"),
)
CONSTRAINTS = assets.ROOT / "constraints.txt"
# Where the guest has the project's Python environment.
VENV = "opt/containernet-env"
# Needed to reach the root file system; the rest is loaded from there.
_BOOT_MODULES = ("virtio_pci", "virtio_blk", "ext4")
_SUITE = "bookworm"
_SIZE = "3G"
_UNUSED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
_GLIBC_TAGS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64")
_TIMEOUT_S = 600.0

_INIT = """#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t devtmpfs dev /dev
for module in $($B cat /modules/order); do $B insmod /modules/$module; done
n=0
while [ ! -b /dev/vdd ] && [ $n -lt 300 ]; do $B sleep 0.1; n=$((n + 1)); done
$B mount -t ext4 -o noatime /dev/vda /mnt && $B mkdir -p /mnt/job && $B mount -t tmpfs -o size=1g job /mnt/job &&
    $B tar x -f /dev/vdb -C /mnt/job && $B umount /proc && exec $B switch_root /mnt /job/tests/vm/inside/boot
echo "the root file system or the job could not be read"
$B poweroff -f
"""


def requirements() -> list[str]:
    """The Python packages that the package and its tests need, in the versions of constraints.txt."""
    found = [line for line in importlib.metadata.requires("containernet-env") or [] if "python_version" not in line]
    wanted = [line for line in found if "extra" not in line or line.startswith("pytest")]
    names = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted}
    pins = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return [pin for pin in pins if pin.partition("==")[0] in names]


def get() -> Path:
    """The folder with ``vmlinuz``, ``initrd.gz``, ``root.img`` and ``versions.json``; made in a minute or two.

    Raises ``CalledProcessError``, whose output tells why it could not be made.
    """
    suite, lines = _suite()
    digest = assets.combine("vm root", Path(__file__).read_text(), suite, *lines, *requirements())[:12]
    return cache.entry("root", digest, lambda folder: _make(folder, suite, lines))


def _suite() -> tuple[str, list[str]]:
    distribution, suite, lines = images.apt_sources()
    return (suite, lines) if distribution == "debian" else (_SUITE, [])


def _make(folder: Path, suite: str, lines: Sequence[str]) -> None:
    root, kernel = folder / "root", folder / "kernel"
    kernel.mkdir()
    # The newest kernel of that suite, whatever this machine's own packages are.
    fetch = (
        'export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"; cd "$1/../kernel" && apt-get -q download '
        f"$(apt-cache depends {KERNEL} | sed -n 's/.*Depends: *\\(linux-image-[0-9][^ ]*\\).*/\\1/p' | head -n 1)"
    )
    _run(
        *("mmdebstrap", "--mode=root", "--variant=apt", "--components=main", f"--include={','.join(PACKAGES)}"),
        *("--aptopt=APT::Install-Recommends false", "--aptopt=APT::Sandbox::User root"),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _UNUSED),
        f"--customize-hook={fetch}",
        *(suite, str(root), *lines),
        env=packages.environment(),
    )
    (archive,) = kernel.glob("*.deb")
    _run("dpkg-deb", "-x", str(archive), str(kernel))
    (image,) = kernel.glob("boot/vmlinuz-*")
    version = image.name.removeprefix("vmlinuz-")
    (modules,) = kernel.glob("**/lib/modules")
    shutil.copytree(modules, root / "usr/lib/modules", symlinks=True)
    _run("chroot", str(root), "depmod", "-a", version)
    _install_python(root)
    shutil.copy(image, folder / "vmlinuz")
    _make_initrd(folder, root, version)
    for unused in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(root / unused)
    _run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", str(root), f"{folder}/root.img", _SIZE)
    (folder / "versions.json").write_text(json.dumps(_versions(root, version), indent=1))
    shutil.rmtree(root)
    shutil.rmtree(kernel)


def _install_python(root: Path) -> None:
    """The environment with what the package needs, installed from here: the guest has no network."""
    wheels = root.parent / "wheels"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
    _run("chroot", str(root), "python3", "-m", "venv", "--without-pip", f"/{VENV}")
    (site,) = root.glob(f"{VENV}/lib/python3*/site-packages")
    version = site.parent.name.removeprefix("python")
    wanted = requirements()
    # Mininet is published as source only.
    mininet = [line for line in wanted if line.startswith("mininet")]
    _run(*pip, "wheel", "-q", "--no-deps", "-w", str(wheels), *mininet)
    tags = [word for tag in _GLIBC_TAGS for word in ("--platform", tag)]
    _run(
        *(*pip, "install", "-q", "--no-compile", "--only-binary=:all:", "--find-links", str(wheels)),
        *("--python-version", version, "--implementation", "cp", *tags, "--target", str(site)),
        *("--constraint", str(CONSTRAINTS), *wanted),
    )
    shutil.rmtree(wheels)
    (site / "job.pth").write_text("/job\n")
    command = root / VENV / "bin" / "containernet-env"
    main = "import sys\nfrom containernet_env.__main__ import main\nsys.exit(main())\n"
    command.write_text(f"#!/{VENV}/bin/python3\n{main}")
    command.chmod(0o755)
    # Emulated, this would cost more than all that it saves.
    _run("chroot", str(root), f"/{VENV}/bin/python3", "-m", "compileall", "-q", f"/{site.relative_to(root)}")


def _make_initrd(folder: Path, root: Path, version: str) -> None:
    tree = folder / "initrd"
    for name in ("bin", "dev", "proc", "mnt", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy(root / "bin/busybox", tree / "bin")
    order: list[str] = []
    for module in _BOOT_MODULES:
        shown = _run("chroot", str(root), "modprobe", "-S", version, "--show-depends", module)
        for path in re.findall(r"^insmod (\S+)", shown, re.MULTILINE):
            name = Path(path).name.removesuffix(".xz")
            if name not in order:
                data = (root / path.lstrip("/")).resolve().read_bytes()
                (tree / "modules" / name).write_bytes(lzma.decompress(data) if path.endswith(".xz") else data)
                order.append(name)
    (tree / "modules" / "order").write_text("\n".join(order) + "\n")
    (tree / "init").write_text(_INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    packed = subprocess.run(
        [str(tree / "bin/busybox"), "cpio", "-o", "-H", "newc"],
        input=names.encode(),
        cwd=tree,
        check=True,
        capture_output=True,
        timeout=_TIMEOUT_S,
    )
    (folder / "initrd.gz").write_bytes(gzip.compress(packed.stdout, 1))
    shutil.rmtree(tree)


def _versions(root: Path, kernel: str) -> dict[str, str]:
    shown = _run("dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Package} ${Version}\\n")
    held = dict(line.split(" ", 1) for line in shown.splitlines())
    return {"kernel": kernel, **{name: held[name] for name in PACKAGES}}


def _run(*argv: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_TIMEOUT_S, env=env or os.environ
    )
    if done.returncode != 0:
        print(done.stdout)  # pytest shows it with the error
        raise subprocess.CalledProcessError(done.returncode, argv, done.stdout)
    return done.stdout
