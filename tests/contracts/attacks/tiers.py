"""The users and machines that the attacks are run as: root, an ordinary user, and both without namespaces.

Root becomes the others: an ordinary user by giving its identity away, an unprivileged container by a filter. Where the
interpreter lies below a private home, as root's often does, it is mounted at its own path in a home that can be passed.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
ORDINARY_UID = 61000


@dataclass(frozen=True)
class Tier:
    """One backend as one user."""

    name: str
    backend: str
    as_root: bool
    locked: bool = False
    grades: bool = True
    """Whether the dishonest artifacts are graded too: once for each kind of box is enough."""


UNCONFINED = Tier("unconfined", "canonical", as_root=False, grades=False)
"""No box at all: here the attacks must succeed."""
TIERS = (
    Tier("bubblewrap_uid", "bubblewrap_uid", as_root=True),
    Tier("bubblewrap", "bubblewrap", as_root=False),
    Tier("landlock", "landlock", as_root=False),
    Tier("landlock_from_root", "landlock", as_root=True, grades=False),
    Tier("landlock_in_a_locked_container", "landlock", as_root=False, locked=True, grades=False),
)


def outcome(tier: Tier) -> dict[str, Any] | str:
    """What the harness printed, or why this tier cannot be run here. The first call starts all, two at a time."""
    return _all()[tier].result()


@functools.cache
def _all() -> dict[Tier, Future[dict[str, Any] | str]]:
    pool = ThreadPoolExecutor(2)
    return {tier: pool.submit(_outcome, tier) for tier in (*TIERS, UNCONFINED)}


def _outcome(tier: Tier) -> dict[str, Any] | str:
    if tier.as_root and os.geteuid() != 0:
        return "needs root"
    command = [sys.executable, "-m", "tests.contracts.attacks.harness", tier.backend]
    command += ["locked"] * tier.locked + ["grade"] * tier.grades
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
    if os.geteuid() != 0 or tier.backend == "bubblewrap_uid":
        return []
    passable = ["bwrap", "--cap-add", "ALL", "--dev-bind", "/", "/"]
    base = Path(os.path.realpath(sys.base_prefix))
    private = next((place for place in reversed(base.parents) if not place.stat().st_mode & 0o001), None)
    if private is not None:
        passable += ["--perms", "0755", "--tmpfs", str(private)]
        for place in reversed(base.parents):
            if place.is_relative_to(private) and place != private:
                passable += ["--perms", "0755", "--dir", str(place)]
        passable += ["--ro-bind", str(base), str(base)]
    uid = str(ORDINARY_UID)
    return passable if tier.as_root else [*passable, "setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"]
