"""The verifiers under test: the shipped one, two scripted stand-ins for semantic judges, and the hybrid.

A stand-in is no model: it reads the transcript by a rule and errs at declared rates, so that the protocol has errors to
measure. A real judge joins by giving `judge`. None sees the script or the label.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

import msgspec

from recipe.agent_contracts.evaluation.horizon.design import Design
from recipe.agent_contracts.evaluation.horizon.playing import Evidence, SeenTurn
from recipe.agent_contracts.evaluation.horizon.workspace import CLAIM, KEY
from recipe.agent_contracts.verification.objective import Objective
from recipe.agent_contracts.verification.process import VerifierProcess

REWARD = Objective(
    reward=["task_success"], gates=["policy_violation", "collateral_damage"], costs={}, process_reward_arm=None
)
"""How the shipped verifier's vector becomes a decision: success, and nothing broken."""


class Judgement(msgspec.Struct, frozen=True):
    """One verifier on one episode."""

    accepted: bool
    probability: float | None = None
    """That the episode is right, where the verifier states one."""


class HorizonVerifier(Protocol):
    """What the experiment needs of a verifier."""

    name: str

    def judge(self, evidence: Evidence) -> Judgement:
        """Accept or reject one episode."""
        ...


class StateVerifier:
    """The shipped verifier in its own process: it sees the sealed final state and the hidden grader, no transcript."""

    name = "state"

    def __init__(self, process: VerifierProcess) -> None:
        self._process = process

    def judge(self, evidence: Evidence) -> Judgement:
        """Accept what `REWARD` pays for.

        Raises:
            VerifierFailure: when there is no verdict.
        """
        hidden: dict[str, Any] = msgspec.to_builtins(evidence.grader)
        return Judgement(REWARD.reward_of(self._process.score(hidden, evidence.final_state).vector()) > 0)


class SemanticStandIn:
    """Stand-in for a judge that reads the whole transcript and believes what it is told.

    It believes the final claim, so it misses what was never written; it takes a written value for right when a line of
    the item's document has its words, so it shares the actor's confusions and knows no paths; it sees values that no
    document states and forbidden reads; and it misreads each turn at `misread_rate`.
    """

    name = "semantic stand-in"

    def __init__(self, misread_rate: float) -> None:
        self._misread_rate = misread_rate

    def judge(self, evidence: Evidence) -> Judgement:
        """Accept when the work is claimed and no turn looks wrong."""
        rng = Random(f"{self.name}/{evidence.episode_id}")
        checked = self._chosen(evidence, rng)
        # A list, so that what is drawn for a turn does not depend on what the turns before it showed.
        looks_wrong = [rng.random() < self._misread_rate or _is_flawed(turn, evidence) for turn in checked]
        accepted = CLAIM in evidence.turns[-1].text and not any(looks_wrong)
        return Judgement(accepted, self._probability(accepted, len(checked), len(evidence.turns)))

    def _chosen(self, evidence: Evidence, rng: Random) -> Sequence[SeenTurn]:
        return evidence.turns

    def _probability(self, accepted: bool, num_checked: int, num_turns: int) -> float | None:
        return None


class SamplingStandIn(SemanticStandIn):
    """The same judge with a fixed reading budget: it checks `num_turns` turns drawn at random, at every horizon.

    Its stated probability is 0 for what it rejects; else the share of turns checked, and half of the rest on trust.
    """

    name = "sampling stand-in"

    def __init__(self, misread_rate: float, num_turns: int) -> None:
        super().__init__(misread_rate)
        self._num_turns = num_turns

    def _chosen(self, evidence: Evidence, rng: Random) -> Sequence[SeenTurn]:
        return rng.sample(evidence.turns, min(self._num_turns, len(evidence.turns)))

    def _probability(self, accepted: bool, num_checked: int, num_turns: int) -> float | None:
        return (num_checked + 0.5 * (num_turns - num_checked)) / num_turns if accepted else 0.0


class HybridVerifier:
    """A hard gate, then a judge that can withhold what the gate granted and grant nothing."""

    name = "hybrid"

    def __init__(self, gate: HorizonVerifier, judge: HorizonVerifier) -> None:
        self._gate = gate
        self._judge = judge

    def judge(self, evidence: Evidence) -> Judgement:
        """Ask the judge only when the gate passed."""
        return Judgement(self._gate.judge(evidence).accepted and self._judge.judge(evidence).accepted)


def verifiers_of(design: Design, process: VerifierProcess) -> list[HorizonVerifier]:
    """The verifiers of the preregistered experiment."""
    state, semantic = StateVerifier(process), SemanticStandIn(design.misread_rate)
    return [
        state,
        semantic,
        SamplingStandIn(design.misread_rate, design.sampled_turns),
        HybridVerifier(state, semantic),
    ]


def _is_flawed(turn: SeenTurn, evidence: Evidence) -> bool:
    """Whether a turn looks wrong to a careful reader of the transcript."""
    args = turn.action.args or {}
    if turn.action.name == "read_file":
        return bool(args["path"] == KEY)
    return turn.action.name == "write_file" and not _is_supported(args["path"], args["content"], evidence)


def _is_supported(path: str, content: str, evidence: Evidence) -> bool:
    """Whether a line of the item's document, as it was read, has every word of what was written."""
    document = f"doc/{path.rpartition('/')[2]}"
    read = [turn.observation for turn in evidence.turns if (turn.action.args or {}).get("path") == document]
    lines = [set(line.split()) for text in read for line in text.splitlines()]
    return any(set(content.split()) <= line for line in lines)
