"""The declared objective: which entries of the reward vector are reward, which are hard gates, which are costs.

    reward = sum(reward terms), or 0 when a gate term is not 0        return = reward - sum(lambda_i * cost_i)

An entry has one role at most; one without a role is recorded and moves nothing. By default task_success alone is
reward. A violation can only be a gate or a cost, so that it never cancels against success unless declared as a cost; a
judge can only withhold; a reward that a tool returned (`tool_reward`) and tampering are no terms at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.verification.constraints import Cost, penalty
from recipe.agent_contracts.verification.verifier import EXTRA, TERMS

JUDGE = "extra.judge"
"""1.0 when the judge was asked and accepted, else 0.0. An annotation: it has no role."""
JUDGE_REJECTED = "extra.judge_rejected"
"""1.0 when the judge was asked and rejected, else 0.0. The one form in which its word can enter."""


class Objective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`contract.verification.objective`.

    Raises:
        ValueError: naming the term that cannot have its role, and why.
    """

    reward: list[str]
    gates: list[str]
    """Terms that must be 0 for the episode to keep its reward. The vector stays as it is."""
    costs: dict[str, Cost]
    process_reward_arm: None
    """Not in this version: process rewards would need an outcome-only arm beside them."""

    def __post_init__(self) -> None:
        problem = next(_problems(self), None)
        if problem is not None:
            raise ValueError(problem)

    @property
    def is_gated_by_judge(self) -> bool:
        return JUDGE_REJECTED in self.gates

    @property
    def terms(self) -> list[str]:
        """Every entry that has a role."""
        return [*self.reward, *self.gates, *self.costs]

    def reward_of(self, vector: Mapping[str, float]) -> float:
        """The reward of one episode: 0 behind a gate that is not 0.

        Raises:
            ContractViolation: ``verification.objective`` when the vector lacks a declared term.
        """
        absent = [term for term in self.terms if term not in vector]
        if absent:
            raise ContractViolation(
                "verification.objective",
                expected=f"a reward vector with {', '.join(absent)}",
                found=f"entries {', '.join(vector)}",
                remedy="declare only what the task's verifier measures (contract.verification.objective)",
            )
        if any(vector[gate] != 0 for gate in self.gates):
            return 0.0
        return sum(vector[term] for term in self.reward)

    def return_of(self, vector: Mapping[str, float], multipliers: Mapping[str, float]) -> float:
        """What credit is given for: the reward less the priced costs.

        Raises:
            ContractViolation: as `reward_of`.
        """
        return self.reward_of(vector) - penalty(vector, multipliers)


def _problems(objective: Objective) -> Iterator[str]:
    if not objective.reward:
        yield "reward needs at least one term"
    for term in objective.terms:
        if term == "tool_reward":
            yield "tool_reward is what a tool said of itself: it is recorded and never enters the objective"
        elif term == "tamper_detected":
            yield "tamper_detected invalidates the measurement: such an episode is quarantined, never scored"
        elif term == JUDGE:
            yield f"{JUDGE} is an annotation; to let the judge withhold reward, declare {JUDGE_REJECTED} as a gate"
        elif term not in TERMS and not (term.startswith(EXTRA) and len(term) > len(EXTRA)):
            yield f"{term} is no entry of the reward vector: {', '.join(TERMS)} or {EXTRA}<name>"
        elif objective.terms.count(term) > 1:
            yield f"{term} has more than one role"
    for term in objective.reward:
        if term == JUDGE_REJECTED or (term in TERMS and term != "task_success"):
            yield f"{term} cannot be reward, where it would cancel against success: declare it as a gate or a cost"
    if "task_success" in (*objective.gates, *objective.costs):
        yield "task_success can only be reward"
