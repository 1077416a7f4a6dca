"""Labelled final states: what the error rates of a verifier are measured on, and who says what is right.

A label lists faults, and a state without any is right. Each fault has the entry of the reward vector that must show
it. So a verifier errs on a wrong state when any fault stays unseen, which may reinforce wrong behaviour, and on a right
state when it does not accept it, which teaches nothing. Where two sources disagree about a state, the whole set is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.verification.verifier import Score


class LabelSource(StrEnum):
    """Where a label comes from."""

    CONSTRUCTED = "constructed"
    """The state was made right, or made wrong by one named corruption of the right one."""
    SECOND_PROGRAM = "second_program"
    """A program that shares no code with verifier, grader or task generator, from the task's text and first files."""
    HUMAN = "human"
    """A named person, by `agent-contracts audit label`."""


class Fault(StrEnum):
    """One way in which a final state is not right."""

    NOT_DONE = "not_done"
    """What the task asked for is not there, or completion was not declared."""
    SIDE_EFFECT = "side_effect"
    """Something was changed, added or removed that the task did not ask for."""
    BROKEN_RULE = "broken_rule"
    """A declared rule was broken."""
    WRONG = "wrong"
    """A person calls it wrong and does not say which of the others it is."""


_UNSEEN: dict[Fault, Callable[[Score], bool]] = {
    Fault.NOT_DONE: lambda score: score.task_success > 0,
    Fault.SIDE_EFFECT: lambda score: score.collateral_damage == 0,
    Fault.BROKEN_RULE: lambda score: score.policy_violation == 0,
    Fault.WRONG: lambda score: accepts(score),
}


class Label(msgspec.Struct, frozen=True):
    """What one source says of one state."""

    source: LabelSource
    by: str
    """The corruption, the program with its version, or the person."""
    faults: list[Fault]
    """Sorted. Empty: the state is right."""


class LabelledState(msgspec.Struct, frozen=True, kw_only=True):
    """One final state and everything that is said of it."""

    name: str
    """What the state is, unique within its task."""
    family: str
    task_id: str
    grader: dict[str, Any]
    """Hidden part of the task as JSON builtins."""
    final_state: bytes
    labels: list[Label]
    """At least one, and all agree."""
    is_whitespace_only: bool = False
    """Whether white space is all that keeps the state from being right: what a less strict verifier could accept."""

    @property
    def faults(self) -> list[Fault]:
        return self.labels[0].faults

    @property
    def is_right(self) -> bool:
        return not self.faults


def accepts(score: Score) -> bool:
    """Whether a score finds nothing wrong: success, no side effect, no broken rule, no tampering."""
    found = score.policy_violation + score.collateral_damage + score.tamper_detected
    return score.task_success > 0 and found == 0


def is_wrong_about(score: Score, state: LabelledState) -> bool:
    """Whether a score errs: it overlooks a fault of a wrong state, or does not accept a right one."""
    return not accepts(score) if state.is_right else any(_UNSEEN[fault](score) for fault in state.faults)


def require_agreement(states: Sequence[LabelledState]) -> None:
    """Refuse a set in which two sources disagree about a state.

    Raises:
        ContractViolation: ``verification.labels``, naming the first such state and what each source says.
    """
    split = [state for state in states if any(label.faults != state.faults for label in state.labels)]
    if split:
        said = "; ".join(f"{label.source}: {', '.join(label.faults) or 'right'}" for label in split[0].labels)
        raise ContractViolation(
            "verification.labels",
            expected="labels that agree",
            found=f"{said}, for {split[0].name!r} ({len(split)} of {len(states)} states)",
            evidence=split[0].task_id,
            remedy="one of the sources is wrong: no error rate is measured on such a set",
        )


def hash_of(states: Sequence[LabelledState]) -> str:
    """`sha256:<hex>` of the states and their labels, in their order, as msgspec writes them."""
    return sha256_bytes(msgspec.json.encode(states))
