"""Landlock, seccomp and rlimits: the box where no namespace can be made, as in an unprivileged container.

Nothing is hidden by absence: file content is refused by Landlock, sockets and metadata changes by seccomp, and a
supervisor outside the confinement ends what is left. Root drops to a user of its own first, like `bubblewrap_uid`.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from recipe.agent_contracts.verification.boxes import interpreter
from recipe.agent_contracts.verification.boxes.base import ENTER, Box, Limits, is_root, rlimits
from recipe.agent_contracts.verification.boxes.bubblewrap_uid import FIRST_UID, LAST_UID
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee
from recipe.agent_contracts.verification.boxes.spawner import Launch

_HERE = Path(__file__).parent
_DEVICES = ("/dev/urandom", "/dev/random", "/dev/zero")
_OF_ROOT = {Guarantee.INDEPENDENT_UID, Guarantee.PROCESS_QUOTA}


class Landlock(Box):
    """Confinement without privileges (Linux 6.12 or later, x86_64)."""

    name = "landlock"
    grace_seconds = 5.0

    def __init__(self) -> None:
        absent = {
            Guarantee.FS_METADATA_CONFINED,
            Guarantee.PIDS_HIDDEN,
            Guarantee.PRIVATE_TMP,
            Guarantee.BYTE_QUOTA,
            Guarantee.INODE_QUOTA,
        }
        self.guarantees = frozenset(Guarantee) - absent - (set() if is_root() else _OF_ROOT)

    def new_uid(self) -> int | None:
        return FIRST_UID + secrets.randbelow(LAST_UID - FIRST_UID + 1) if is_root() else None

    def launch(
        self,
        argv: tuple[str, ...],
        folder: Path,
        limits: Limits,
        writable: bool,
        readable: tuple[Path, ...],
        one_shot: bool,
        uid: int | None,
    ) -> Launch:
        bounds = rlimits(limits, one_shot)
        if uid is None:
            bounds["RLIMIT_NPROC"] += _tasks_of_this_user()  # the kernel counts them all
        split = [interpreter.without_packages(root) for root in interpreter.roots()]
        granted = [*(str(part) for parts, _ in split for part in parts), *map(str, readable), *_DEVICES]
        orders = {
            "argv": argv,
            "cwd": str(folder),
            "copy": None,
            "uid": uid,
            "rlimits": bounds,
            "landlock": {
                "read": granted if writable else [*granted, str(folder)],
                "listed": [str(place) for _, above in split for place in above],
                "write": ["/dev/null", *([str(folder)] if writable else [])],
            },
            "seccomp": True,
            "supervise": True,
        }
        return Launch((), (*ENTER, str(_HERE.parent)), orders)


def _tasks_of_this_user() -> int:
    """Threads that run as this user now."""
    own, tasks = os.getuid(), 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if process.stat().st_uid == own:
                    tasks += sum(1 for _ in (process / "task").iterdir())
            except OSError:
                continue  # it has ended meanwhile
    return tasks
