"""A plain process with a clean environment and rlimits, for trusted code that reads sealed bytes.

It confines nothing, so no agent code may run in it: `run` refuses. What the agent left reaches a verifier here only as
data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from recipe.agent_contracts.errors import GuaranteeUnavailable
from recipe.agent_contracts.verification.boxes.base import ENTER, Box, Limits, rlimits
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee
from recipe.agent_contracts.verification.boxes.spawner import Launch

_HERE = Path(__file__).parent


class Canonical(Box):
    """The box of last resort: works everywhere, guarantees least."""

    name = "canonical"
    guarantees = frozenset({Guarantee.ENV_CLEAN, Guarantee.RESULT_PRIVATE, Guarantee.MEMORY_QUOTA})

    def run(
        self,
        argv: Sequence[str],
        files: Mapping[str, bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits | None = None,
        *,
        writable: bool = False,
        readable: Sequence[Path] = (),
    ) -> NoReturn:
        """Refuse.

        Raises:
            GuaranteeUnavailable: always.
        """
        found = "a plain process: agent code in it would run as its grader"
        raise GuaranteeUnavailable("verification.box", Guarantee.AGENT_CODE, found, self.name)

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
        del bounds["RLIMIT_NPROC"]  # it would count every process of the user
        orders = {
            "argv": argv,
            "cwd": str(folder),
            "copy": None,
            "uid": None,
            "rlimits": bounds,
            "landlock": None,
            "seccomp": False,
            "supervise": False,
        }
        return Launch((), (*ENTER, str(_HERE.parent)), orders)
