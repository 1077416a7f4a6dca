"""Rollouts of a policy over terminal tasks with plain transformers, and the success that the verifier gives them.

All episodes of a batch advance one token at a time, sampled or taken from an observation. The task's own budgets end
an episode as `task_budget_exhausted_terminal`, which is an outcome and is scored like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from recipe.agent_contracts.cold_start.episodes import EpisodeEncoder
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.envs.terminal.generator import Scenario
from recipe.agent_contracts.transition.envs.terminal.tools import parameters_by_name
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from recipe.agent_contracts.verification.verifier import Score

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM


class Outcome(msgspec.Struct, frozen=True):
    """One finished episode."""

    family: str
    split: str
    score: Score
    termination: Termination
    num_turns: int
    num_invalid: int
    num_prompt_tokens: int
    num_response_tokens: int
    """Policy and observation tokens."""


class _Episode:
    """One running episode: feeds tokens to the environment and says which token is forced next."""

    def __init__(self, scenario: Scenario, encoder: EpisodeEncoder, tokenizer: PreTrainedTokenizerFast) -> None:
        self.scenario = scenario
        self.prompt = encoder.prompt(scenario.task)
        self._encoder, self._tokenizer, self._parser = encoder, tokenizer, HermesParser()
        self._env = TerminalEnv({scenario.task.task_id: scenario.task})
        self._env.reset(scenario.task.task_id, seed=0)
        self._schemas = parameters_by_name(self._env.tools())
        self._turn: list[int] = []
        self._forced: list[int] = []
        self._num_turns = self._num_invalid = self._num_response_tokens = 0
        self.termination: Termination | None = None

    def advance(self, sampled: int) -> int:
        """Take the observation's next token, or else the sampled one; returns the token that was taken."""
        self._num_response_tokens += 1
        if self._forced:
            token = self._forced.pop()
        else:
            token = sampled
            self._turn.append(token)
            if token == self._tokenizer.eos_token_id:
                self._end_turn()
        if self.termination is None and self._num_response_tokens >= self.scenario.task.token_budget:
            self.termination = Termination.TASK_BUDGET_EXHAUSTED
        return token

    def _end_turn(self) -> None:
        text = str(self._tokenizer.decode(self._turn[:-1], skip_special_tokens=False))
        self._turn = []
        action = self._parser.parse(text, self._schemas)
        transition = self._env.step(action)
        self._num_turns += 1
        self._num_invalid += action.kind == "invalid"
        self.termination = transition.termination
        if self.termination is None and self._num_turns >= self.scenario.task.step_budget:
            self.termination = Termination.TASK_BUDGET_EXHAUSTED
        self._forced = self._encoder.observation(transition.observation)[::-1]

    def outcome(self, verifier: TerminalVerifier) -> Outcome:
        assert self.termination is not None
        return Outcome(
            family=self.scenario.task.family,
            split=self.scenario.task.split,
            score=verifier.score(msgspec.to_builtins(self.scenario.grader), self._env.export_state()),
            termination=self.termination,
            num_turns=self._num_turns,
            num_invalid=self._num_invalid,
            num_prompt_tokens=len(self.prompt),
            num_response_tokens=self._num_response_tokens,
        )


def evaluate(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    scenarios: Sequence[Scenario],
    *,
    temperature: float,
    num_attempts: int = 1,
    seed: int = 0,
    batch_size: int = 200,
) -> list[Outcome]:
    """Roll out every scenario `num_attempts` times and score the final states.

    Args:
        temperature: 0 is greedy decoding.

    Returns:
        Outcomes in the order of the scenarios, attempts of one task side by side.
    """
    encoder, verifier = EpisodeEncoder(tokenizer), TerminalVerifier()
    generator = torch.Generator().manual_seed(seed)
    episodes = [_Episode(scenario, encoder, tokenizer) for scenario in scenarios for _ in range(num_attempts)]
    model.eval()
    for start in range(0, len(episodes), batch_size):
        with torch.no_grad():
            _roll_out(model, episodes[start : start + batch_size], temperature, generator)
    return [episode.outcome(verifier) for episode in episodes]


def _roll_out(
    model: Qwen2ForCausalLM, episodes: list[_Episode], temperature: float, generator: torch.Generator
) -> None:
    """Run a batch to its end. Prompts are padded on the left, so that all episodes share the column they are at."""
    width = max(len(episode.prompt) for episode in episodes)
    ids = torch.tensor([[0] * (width - len(e.prompt)) + e.prompt for e in episodes])
    mask = torch.tensor([[0] * (width - len(e.prompt)) + [1] * len(e.prompt) for e in episodes])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    running, cache = episodes, None
    while running:
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        output = model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        sampled = _sample(output.logits[:, -1], temperature, generator)
        taken = [episode.advance(token) for episode, token in zip(running, sampled, strict=True)]
        alive = [row for row, episode in enumerate(running) if episode.termination is None]
        cache = output.past_key_values
        if len(alive) < len(running):
            rows = torch.tensor(alive, dtype=torch.long)
            running = [running[row] for row in alive]
            if not running:
                return
            cache.batch_select_indices(rows)
            mask, positions = mask[rows], positions[rows]
        ids = torch.tensor([[taken[row]] for row in alive])
        mask = torch.cat((mask, torch.ones_like(ids)), dim=1)
        positions = positions[:, -1:] + 1


def _sample(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> list[int]:
    """One token a row from logits [B, V]."""
    if temperature == 0:
        chosen = logits.argmax(dim=-1)
    else:
        chosen = torch.multinomial(torch.softmax(logits / temperature, dim=-1), 1, generator=generator)[:, 0]
    return [int(token) for token in chosen]
