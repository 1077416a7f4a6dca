"""The users and machines that the attacks are run as: root, an ordinary user, and both without namespaces.

Root becomes the others: an ordinary user by giving its identity away, an unprivileged container by a filter. Where the
interpreter lies below a private home, as root's often does, it is mounted at its own path in a home that can be passed.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
FIRST_UID = 61000
"""A user for each tier: the kernel counts the processes of one user together."""
PACKAGE = {"bwrap": "bubblewrap", "setpriv": "util-linux"}
"""Where the programs come from that make root another user."""


@dataclass(frozen=True)
class Tier:
    """One backend as one user."""

    name: str
    backend: str
    as_root: bool
    locked: bool = False
    is_variant: bool = False
    """Whether another tier has the same backend: then the attacks are left to the nightly run."""

    @property
    def does(self) -> tuple[str, ...]:
        """What the harness runs beyond the probe."""
        return ("attack",) if self.is_variant or self.backend == "canonical" else ("attack", "grade")


UNCONFINED = Tier("unconfined", "canonical", as_root=False)
"""No box at all: here the attacks must succeed."""
TIERS = (
    Tier("bubblewrap_uid", "bubblewrap_uid", as_root=True),
    Tier("bubblewrap", "bubblewrap", as_root=False),
    Tier("landlock", "landlock", as_root=False),
    Tier("landlock_from_root", "landlock", as_root=True, is_variant=True),
    Tier("landlock_in_a_locked_container", "landlock", as_root=False, locked=True, is_variant=True),
)


def outcome(tier: Tier) -> dict[str, Any] | str:
    """What came of the attacks, or why this tier cannot be run here. The first call starts all, two at a time."""
    return _run(tier, tier.does) if tier.is_variant else _all()[tier].result()


def probed(tier: Tier) -> dict[str, Any] | str:
    """The same of a tier whose attacks need not be run."""
    return _run(tier, ()) if tier.is_variant else outcome(tier)


@functools.cache
def _all() -> dict[Tier, Future[dict[str, Any] | str]]:
    pool = ThreadPoolExecutor(2)
    return {tier: pool.submit(_run, tier, tier.does) for tier in (*TIERS, UNCONFINED) if not tier.is_variant}


@functools.cache
def _run(tier: Tier, does: tuple[str, ...]) -> dict[str, Any] | str:
    if tier.as_root and os.geteuid() != 0:
        return "needs root"
    if missing := [name for name in _as_user(tier) if name in PACKAGE and not shutil.which(name)]:
        return f"needs {missing[0]} (Debian: {PACKAGE[missing[0]]}) to run as this user from root"
    command = [sys.executable, "-m", "tests.contracts.attacks.harness", tier.backend, *["locked"] * tier.locked, *does]
    done = subprocess.run(
        [*_as_user(tier), *command],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def _as_user(tier: Tier) -> list[str]:
    """What goes before a command so that it runs as the tier's user."""
    if os.geteuid() != 0 or tier.backend == "bubblewrap_uid":
        return []
    uid = str(FIRST_UID + [*TIERS, UNCONFINED].index(tier))
    user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"]
    return [*_passable(Path(os.path.realpath(sys.base_prefix))), *([] if tier.as_root else user)]


def _passable(base: Path) -> list[str]:
    """What gives every user the interpreter at `base`: nothing, or a home of its own around it where it is private."""
    private = next((place for place in reversed(base.parents) if not place.stat().st_mode & 0o001), None)
    if private is None:
        return []
    prefix = ["bwrap", "--cap-add", "ALL", "--dev-bind", "/", "/", "--perms", "0755", "--tmpfs", str(private)]
    for place in reversed(base.parents):
        if place.is_relative_to(private) and place != private:
            prefix += ["--perms", "0755", "--dir", str(place)]
    return [*prefix, "--ro-bind", str(base), str(base)]
