"""Bubblewrap from root: it lays out the box, then the code runs as a user that exists nowhere else.

Bubblewrap keeps only the right to change user, `enter.py` uses it and loses it, before any file of the agent is opened.
Each box has a user id of its own, so two boxes cannot reach each other and the process limit counts one box alone.
"""

from __future__ import annotations

import secrets

from recipe.agent_contracts.errors import VerifierFailure
from recipe.agent_contracts.verification.boxes.base import is_root
from recipe.agent_contracts.verification.boxes.bubblewrap import Bubblewrap
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee

FIRST_UID, LAST_UID = 61184, 65519
"""systemd's range for users that exist only while a service runs."""


class BubblewrapUid(Bubblewrap):
    """The strongest box. Needs root with the right to mount (not an unprivileged container)."""

    name = "bubblewrap_uid"
    guarantees = frozenset(Guarantee) - {Guarantee.INODE_QUOTA}
    user_namespace = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")

    def new_uid(self) -> int:
        return FIRST_UID + secrets.randbelow(LAST_UID - FIRST_UID + 1)

    def _check_caller(self) -> None:
        if not is_root():
            raise VerifierFailure("verification.box", "root", "an ordinary user")
