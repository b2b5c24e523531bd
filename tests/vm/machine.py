"""A virtual machine that carries out one job under QEMU's software emulation and brings its results out."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from containernet_env.base import assets, programs
from tests.vm import image_disk, root_disk

QEMU = "qemu-system-x86_64"
# Each program that the ring needs here, and the Debian package that brings it.
PROGRAMS = {QEMU: "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
MEMORY_MB = 4096
LOOK_S = 5.0
"""Between two looks at a machine's console."""
SILENT_LOOKS = 36
"""A machine whose job said nothing for so many looks has hung: it says something every 10 s."""
_RESULTS_BYTES = 256 << 20
_SECTOR_BYTES = 512
SOURCE = "CONTAINERNET_SOURCE"
"""The environment variable that may name a checkout of the original Containernet, to be tested in the machine too."""
ORIGINAL = "containernet"
"""Where that is in the job's folder then: a folder for ``PYTHONPATH``."""
HUNG = f"it hung: its job said nothing for {LOOK_S * SILENT_LOOKS:.0f} s"
_KERNEL_LINE = re.compile(rb"\[ *\d+\.\d+\] ")
# What the package, its set-up's hashes and the tests read goes in. What can be made again stays here.
_LEFT_OUT = {".git", ".venv", ".build", "build", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules"}
_RESULTS = "./results"


@dataclass(frozen=True)
class Step:
    """One command of a job, run by ``sh`` in the project's folder; what comes after it runs all the same.

    ``limit_s`` bounds it; its output is ``<name>.log`` among the results. ``told`` is whether the console is told every
    few seconds how far it is.
    """

    name: str
    command: str
    limit_s: float
    told: bool = True


@dataclass(frozen=True)
class Outcome:
    """What came out: ``results`` is the folder of files, ``statuses`` the exit status of each step that ended.

    ``finished`` is whether every step came to an end in time; ``console`` what the machine wrote there, and QEMU after
    it. ``hung`` is whether its job was silent for so long that nothing can have run in it any more.
    """

    results: Path
    statuses: dict[str, int]
    seconds: dict[str, float]
    finished: bool
    hung: bool
    console: str = field(repr=False)
    wall_s: float

    def log(self, step: str, lines: int = 40) -> str:
        """The last lines that a step wrote; of the console where there is no such file."""
        path = self.results / f"{step}.log"
        text = path.read_text(errors="replace") if path.exists() else f"(no {path.name}) {self.console}"
        return "\n".join(text.splitlines()[-lines:])

    def last_progress(self) -> str:
        """The last line in which the job reported how far it was."""
        return (re.findall(r"^\w+: \d+ s, .*", self.console, re.MULTILINE) or ["no progress was reported"])[-1]


def absent() -> dict[str, str]:
    """The programs that the ring needs and this machine lacks, with their packages."""
    return {name: package for name, package in PROGRAMS.items() if programs.which(name) is None}


def missing() -> str | None:
    """Why no machine can be run here; ``None`` where one can."""
    if platform.machine() != "x86_64":
        return f"the guest is an x86_64 one with this machine's programs, and this is {platform.machine()}"
    if os.geteuid() != 0:
        return "not root"
    lacking = absent()
    return f"not installed: {', '.join(lacking)}" if lacking else None


def original() -> Path | None:
    """The checkout that ``SOURCE`` names, ``None`` without it. Raises ``ValueError`` where it is none."""
    if not (named := os.environ.get(SOURCE)):
        return None
    package = Path(named) / "mininet"
    if "CONTAINERNET_VERSION" not in ((package / "net.py").read_text() if (package / "net.py").exists() else ""):
        raise ValueError(f"{SOURCE}={named}: no checkout of the original Containernet (mininet/net.py) is there")
    return Path(named)


def fresh_folder() -> Path:
    """An empty folder in .build for a machine's files, in place of the one before."""
    folder = assets.ROOT / ".build" / "vm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def run(steps: Sequence[Step], work: Path, limit_s: float, *, interactive: bool = False) -> Outcome:
    """Boot, carry out the steps, power off; ``work`` is an empty folder for this machine's files.

    ``interactive`` gives the guest's shell to this terminal. The machine is ended after ``limit_s`` seconds, or when
    it has hung.
    """
    root, docker_image = root_disk.get(), image_disk.get()
    began = time.monotonic()
    job, results = work / "job.tar", work / "results.raw"
    _pack(job, steps)
    with results.open("wb") as file:
        file.truncate(_RESULTS_BYTES)
    console = work / "console.log"
    drives = [
        *_drive(root / "root.img", "snapshot=on"),
        *_drive(job, "readonly=on"),
        *_drive(docker_image, "snapshot=on"),
        *_drive(results, "cache=unsafe"),
    ]
    command = [
        *("setpriv", "--pdeathsig", "KILL"),  # it ends with us
        # Never KVM: what is proved has to hold where there is none.
        *(
            QEMU,
            "-accel",
            "tcg,thread=multi,tb-size=1024",
            "-M",
            "q35",
            "-cpu",
            "max",
            "-smp",
            str(os.cpu_count() or 1),
        ),
        *("-m", str(MEMORY_MB), "-display", "none", "-nic", "none", "-no-reboot"),
        *("-monitor", "none"),
        # signal=off: Ctrl-C is for the guest.
        *("-chardev", "stdio,id=console,signal=off" if interactive else f"file,id=console,path={console}"),
        *("-serial", "chardev:console"),
        *("-kernel", str(root / "vmlinuz"), "-initrd", str(root / "initrd.gz")),
        *("-append", "console=ttyS0 quiet loglevel=4 mitigations=off panic=-1 tsc=reliable"),
        *drives,
    ]
    said = work / "qemu.log"
    with (
        said.open("wb") as log,
        subprocess.Popen(
            command,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=None if interactive else log,
            stderr=None if interactive else log,
            # Changes to the disks go to files that have no name, and end with the machine.
            env={**os.environ, "TMPDIR": str(work)},
        ) as process,
    ):
        try:
            why = _ended(process, None if interactive else console, limit_s)
        finally:
            process.kill()
    with console.open("ab") as file:
        file.write(said.read_bytes())
        file.write(f"ended: {why}\n".encode() if why else b"")
    return _collect(work, results, console, [step.name for step in steps], time.monotonic() - began, why == HUNG)


def _ended(process: subprocess.Popen[bytes], console: Path | None, limit_s: float) -> str:
    """Waits until the machine is off, or has to be ended; why it has, nothing where it is off."""
    deadline = time.monotonic() + limit_s
    silent = said = 0  # of looks, and not of time, which goes on where this machine stands still
    while silent < SILENT_LOOKS:
        try:
            process.wait(LOOK_S)
            return ""
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                return f"it ran for more than {limit_s:.0f} s"
        if console is not None:
            before, said = said, _said(console)
            silent = silent + 1 if said == before else 0
    return HUNG


def _said(console: Path) -> int:
    """How many lines the job wrote: a kernel whose processors are stuck goes on to say so."""
    lines = console.read_bytes().split(b"\n")[:-1] if console.exists() else []
    return sum(_KERNEL_LINE.match(line) is None for line in lines)


def _drive(path: Path, options: str) -> tuple[str, str]:
    return "-drive", f"file={path},if=virtio,format=raw,{options}"


def _pack(path: Path, steps: Sequence[Step]) -> None:
    """The project as it stands here, the original Containernet where there is one, and the steps."""
    compile_all = [assets.ROOT / name for name in ("containernet_env", "tests")]
    # Where the guest has this Python, it needs not compile: emulated, that takes seconds.
    subprocess.run([sys.executable, "-m", "compileall", "-q", *map(str, compile_all)], check=True, timeout=300)

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if entry.name == _RESULTS or _LEFT_OUT & set(Path(entry.name).parts) else entry

    steps_file = path.with_name("steps.json")
    steps_file.write_text(json.dumps([asdict(step) for step in steps]))
    with tarfile.open(path, "w") as archive:
        archive.add(assets.ROOT, ".", filter=wanted)
        archive.add(steps_file, "steps.json")
        # The cache's own mode comes too: what others could write to is not trusted there either.
        archive.add(assets.make(), ".cache", recursive=False)
        for module in assets.modules():
            folder = programs.find(module)
            assert folder is not None, "./build.sh has built it"
            archive.add(folder, f".cache/bin/{folder.name}")
        if (source := original()) is not None:
            archive.add(source / "mininet", f"{ORIGINAL}/mininet", filter=wanted)
    with path.open("ab") as file:
        file.truncate(-(-file.tell() // _SECTOR_BYTES) * _SECTOR_BYTES)


def _collect(work: Path, results: Path, console: Path, asked: Sequence[str], wall_s: float, hung: bool) -> Outcome:
    folder = work / "results"
    folder.mkdir()
    try:
        # Never taken for a compressed one: to find out that 256 MiB of zeros are none takes 20 s.
        with tarfile.open(results, "r:") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
            archive.extractall(folder)
    except tarfile.ReadError as error:
        with console.open("a") as file:
            file.write(f"no results: {error}\n")
    steps = folder / "steps.json"
    done = json.loads(steps.read_text()) if steps.exists() else []
    return Outcome(
        results=folder,
        statuses={entry["name"]: entry["status"] for entry in done},
        seconds={entry["name"]: entry["seconds"] for entry in done},
        finished=[entry["name"] for entry in done] == list(asked),
        hung=hung,
        console=console.read_text(errors="replace") if console.exists() else "",
        wall_s=wall_s,
    )
