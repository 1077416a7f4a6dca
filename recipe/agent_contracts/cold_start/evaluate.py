"""Success of a policy on terminal scenarios, played with plain transformers and scored by the verifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from recipe.agent_contracts.cold_start.episodes import open_scenario
from recipe.agent_contracts.generation import HuggingFacePolicy, play
from recipe.agent_contracts.transition.envs.terminal.generator import Scenario
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from recipe.agent_contracts.verification.verifier import Score

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

_BATCH_SIZE = 200


class Outcome(msgspec.Struct, frozen=True):
    """One finished episode."""

    split: str
    score: Score
    termination: Termination
    num_response_tokens: int
    """Policy and observation tokens."""


def evaluate(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    scenarios: Sequence[Scenario],
    *,
    temperature: float,
    num_attempts: int = 1,
    seed: int = 0,
) -> list[Outcome]:
    """Play every scenario `num_attempts` times and score the final states.

    Args:
        temperature: 0 is greedy decoding.

    Returns:
        Outcomes in the order of the scenarios, attempts of one task side by side.
    """
    renderer, verifier = ChatTemplateRenderer(tokenizer), TerminalVerifier()
    policy = HuggingFacePolicy(model.eval(), renderer.end_of_turn_id, tokenizer.pad_token_id, temperature, seed)
    planned = [scenario for scenario in scenarios for _ in range(num_attempts)]
    outcomes = []
    for start in range(0, len(planned), _BATCH_SIZE):
        batch = planned[start : start + _BATCH_SIZE]
        episodes = [open_scenario(scenario, renderer) for scenario in batch]
        play(episodes, policy)
        for scenario, episode in zip(batch, episodes, strict=True):
            assert episode.termination is not None, "play ends every episode"
            grader = msgspec.to_builtins(scenario.grader)
            score = verifier.score(grader, episode.env.export_state())
            outcomes.append(Outcome(scenario.task.split, score, episode.termination, len(episode.response_ids)))
    return outcomes
