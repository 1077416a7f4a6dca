"""Bubblewrap as an ordinary user: every namespace new, the caller's own user id.

From root it would be root on the host, whatever id it shows inside, so root gets `bubblewrap_uid` or nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from recipe.agent_contracts.errors import VerifierFailure
from recipe.agent_contracts.verification.boxes import namespaces
from recipe.agent_contracts.verification.boxes.base import ENTER, Box, Limits, is_root, rlimits
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee
from recipe.agent_contracts.verification.boxes.spawner import Launch

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Bubblewrap(Box):
    """The box of an ordinary user where unprivileged user namespaces are allowed (bubblewrap 0.8 or later)."""

    name = "bubblewrap"
    guarantees = frozenset(Guarantee) - {Guarantee.INDEPENDENT_UID, Guarantee.INODE_QUOTA}
    user_namespace: tuple[str, ...] = ("--unshare-user", "--disable-userns")

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
        self._check_caller()
        prefix = [_program(), *namespaces.unshared(), *self.user_namespace]
        prefix += [*namespaces.mounts(folder, writable, readable, limits.file_bytes), "--chdir", "/", "--"]
        orders = {
            "argv": argv,
            "cwd": namespaces.WORK,
            "copy": namespaces.STAGED if writable else None,
            "uid": uid,
            "rlimits": rlimits(limits, one_shot),
            "landlock": None,
            "seccomp": True,
            "supervise": False,
        }
        return Launch(tuple(prefix), (*ENTER, namespaces.LAUNCHER), orders, has_pid_namespace=True)

    def _check_caller(self) -> None:
        if is_root():
            raise VerifierFailure("verification.box", "an ordinary user", "root, which would be root on the host")


def _program() -> str:
    program = shutil.which("bwrap", path=SYSTEM_PATH)
    if program is None:
        expected = "the program bwrap"
        raise VerifierFailure("verification.box", expected, "ENOENT", SYSTEM_PATH, "apt-get install bubblewrap")
    return program
