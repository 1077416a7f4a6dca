"""Plays episodes with a Hugging Face model: no trainer, no server. For debugging an environment and for the cold start.

All episodes that wait for a token are sampled in one batch; each keeps its own exact ids and log probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from recipe.agent_contracts.transition.episode import Episode


class HuggingFacePolicy:
    """A causal language model that samples whole turns.

    Args:
        model: A transformers causal language model.
        end_of_turn_id: The token that ends a turn.
        pad_id: Padding token, on the left.
        temperature: 0 for greedy decoding; else the model's distribution at this temperature, never truncated.
        seed: Seed of the sampling.
    """

    def __init__(self, model: Any, end_of_turn_id: int, pad_id: int, temperature: float, seed: int) -> None:
        self.model = model
        self.end_of_turn_id = end_of_turn_id
        self.pad_id = pad_id
        self.temperature = temperature
        self._random = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def sample(
        self, contexts: Sequence[list[int]], max_new_tokens: Sequence[int]
    ) -> list[tuple[list[int], list[float]]]:
        """Sample one turn a context.

        Returns:
            For each context the sampled ids (with the end-of-turn token unless the turn was cut) and their log
            probabilities under the distribution that sampled them.
        """
        width = max(len(context) for context in contexts)
        ids = torch.tensor([[self.pad_id] * (width - len(context)) + list(context) for context in contexts])
        mask = torch.tensor([[0] * (width - len(context)) + [1] * len(context) for context in contexts])
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        turns: list[tuple[list[int], list[float]]] = [([], []) for _ in contexts]
        running = list(range(len(contexts)))
        cache = None
        while running:
            inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, "past_key_values": cache}
            output = self.model(**inputs, use_cache=True, logits_to_keep=1)
            tokens, logprobs = self._draw(output.logits[:, -1].float())
            for row, token, logprob in zip(running, tokens.tolist(), logprobs.tolist(), strict=True):
                turns[row][0].append(token)
                turns[row][1].append(logprob)
            alive = [
                index
                for index, row in enumerate(running)
                if turns[row][0][-1] != self.end_of_turn_id and len(turns[row][0]) < max_new_tokens[row]
            ]
            cache = output.past_key_values
            if len(alive) < len(running):
                cache.batch_select_indices(torch.tensor(alive, dtype=torch.long))
                running = [running[index] for index in alive]
            ids, positions = tokens[alive, None], positions[alive, -1:] + 1
            mask = torch.cat([mask[alive], torch.ones_like(ids)], dim=1)
        return turns

    def _draw(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One token a row of logits (B, V), and its log probability, both (B,)."""
        logprobs = torch.log_softmax(logits / (self.temperature or 1.0), dim=-1)
        if self.temperature == 0:
            tokens = logits.argmax(-1)
        else:
            tokens = torch.multinomial(logprobs.exp(), 1, generator=self._random)[:, 0]
        return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def play(episodes: Sequence[Episode], policy: HuggingFacePolicy) -> None:
    """Play every episode to its end, in place."""
    while waiting := [episode for episode in episodes if episode.termination is None]:
        turns = policy.sample(
            [episode.context_ids for episode in waiting], [episode.max_new_tokens for episode in waiting]
        )
        for episode, (ids, logprobs) in zip(waiting, turns, strict=True):
            action = episode.sampled(ids, logprobs, policy_version=0)
            if action is not None:
                episode.stepped(episode.env.step(action))
