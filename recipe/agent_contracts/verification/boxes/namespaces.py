"""The bubblewrap command line that both bubblewrap backends share: what is mounted, and which namespaces are new.

Everything is absent unless bound: programs, libraries and the interpreter read-only, installed packages masked, /tmp,
/dev/shm and the writable working folder as small file systems of their own, nothing else writable. Parents of what is
bound are made readable, so that an interpreter below a private home is found at its own path.
"""

from __future__ import annotations

from pathlib import Path

from recipe.agent_contracts.verification.boxes import interpreter

WORK = "/box"
"""The working folder."""
STAGED = "/.box-files"
LAUNCHER = "/.box-launcher"
_HERE = Path(__file__).parent


def mounts(folder: Path, writable: bool, readable: tuple[Path, ...], tmpfs_bytes: int) -> list[str]:
    """Options that lay out the file system of a box."""
    options = [option for root in interpreter.roots() for option in _bound(root)]
    for target, link in interpreter.links():
        options += ["--symlink", target, link]
    for packages in interpreter.installed_packages():
        options += ["--tmpfs", str(packages)]
    options += ["--proc", "/proc", "--dev", "/dev", *_tmpfs("/dev/shm", tmpfs_bytes), *_tmpfs("/tmp", tmpfs_bytes)]
    for path in readable:
        options += _bound(path)
    for name in ("__init__.py", "enter.py", "kernel.py"):
        options += ["--ro-bind", str(_HERE / name), f"{LAUNCHER}/{_HERE.name}/{name}"]
    if writable:
        options += ["--ro-bind", str(folder), STAGED, *_tmpfs(WORK, tmpfs_bytes)]
    else:
        options += ["--ro-bind", str(folder), WORK]
    for unbounded in ("/dev", *map(str, interpreter.installed_packages()), "/"):  # an ordinary user owns these
        options += ["--remount-ro", unbounded]
    return options


def unshared() -> list[str]:
    """Options of every bubblewrap box besides its user namespace."""
    return [
        *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    ]


def _tmpfs(path: str, size_bytes: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size_bytes), "--tmpfs", path]


def _bound(path: Path) -> list[str]:
    parents = [option for parent in reversed(path.parents[:-1]) for option in ("--perms", "0755", "--dir", str(parent))]
    return [*parents, "--ro-bind", str(path), str(path)]
