"""Canaries: final states whose verdict is known, scored before the first episode is.

A verifier that fails a right canary or passes a wrong one is broken on this machine, whatever it did elsewhere: the run
does not start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from recipe.agent_contracts.domains import Domain, load
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.verification.verifier import Score


class Canary(msgspec.Struct, frozen=True):
    """One final state and whether it solves its task."""

    name: str
    grader: dict[str, Any]
    """Hidden part of the task as JSON builtins."""
    final_state: bytes
    right: bool


def require_canaries(domain: Domain, score: Callable[[dict[str, Any], bytes], Score]) -> int:
    """Score a domain's canaries.

    Returns:
        How many there were. 0: the domain has none.

    Raises:
        ContractViolation: ``verification.canary`` when a verdict is not what it must be.
        VerifierFailure: when there is no verdict.
    """
    known: list[Canary] = load(domain.canaries)() if domain.canaries else []
    wrong = [canary for canary in known if (score(canary.grader, canary.final_state).task_success > 0) != canary.right]
    if wrong:
        raise ContractViolation(
            "verification.canary",
            expected=f"task_success {'above 0' if wrong[0].right else '0'} for the canary {wrong[0].name!r}",
            found=f"the opposite, for {len(wrong)} of {len(known)} canaries",
            evidence=domain.verifier,
            remedy="the verifier is broken here: no episode was scored",
        )
    return len(known)
