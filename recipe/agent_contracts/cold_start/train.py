"""Cold-start training: copy warm-up, then imitation of scripted demonstrations of mixed quality.

Deterministic for a seed and a number of threads. Every demonstration is fresh, so there is nothing to overfit to;
the decay of the learning rate matters more than anything else here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import torch

from recipe.agent_contracts.cold_start.config import TRAIN_STREAM, ColdStartConfig
from recipe.agent_contracts.cold_start.episodes import TokenSequence, demonstration
from recipe.agent_contracts.cold_start.model import build_model, descend
from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.cold_start.warmup import warm_up
from recipe.agent_contracts.transition.envs.terminal.generator import SEEDS_PER_STREAM, make_scenario
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

_BATCHES_PER_BUCKET = 8


def train(
    config: ColdStartConfig, report: Callable[[str, float], None]
) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """Build and train the policy.

    Args:
        report: Called once a step with the stage ("warm-up" or "imitation") and the loss.
    """
    torch.set_num_threads(config.num_threads)
    tokenizer = build_tokenizer()
    model = build_model(config, tokenizer)
    model.train()
    warm_up(model, config, report)
    imitate(model, tokenizer, config, report)
    return model, tokenizer


def imitate(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    config: ColdStartConfig,
    report: Callable[[str, float], None],
) -> None:
    """Supervised training in place on the policy's tokens of fresh demonstrations."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": config.imitation_weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=config.imitation_learning_rate,
        betas=(0.9, 0.98),
    )
    batches = _demonstration_batches(ChatTemplateRenderer(tokenizer), config)
    for step in range(config.imitation_steps):
        learning_rate = config.imitation_learning_rate * _schedule(step, config.imitation_steps)
        loss = descend(model, optimizer, learning_rate, *pad(next(batches)))
        report("imitation", loss)


def _schedule(step: int, num_steps: int) -> float:
    """Linear over 50 steps, constant to the half, then a cosine down to 5 percent."""
    progress = step / num_steps
    decay = 1.0 if progress < 0.5 else 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (progress - 0.5) / 0.5))
    return min(1.0, (step + 1) / 50) * decay


def _demonstration_batches(renderer: ChatTemplateRenderer, config: ColdStartConfig) -> Iterator[list[TokenSequence]]:
    """Endless batches of sequences of similar length, so that little is spent on padding.

    The next bucket is written by a thread while torch, which gives the interpreter away, trains on this one. There is
    one such thread, so the order and with it the weights stay those of the seed.
    """
    rng = Random(config.seed)
    size = config.imitation_batch_size

    def bucket(first_seed: int) -> list[list[TokenSequence]]:
        seeds = range(first_seed, first_seed + size * _BATCHES_PER_BUCKET)
        sequences = [demonstration(make_scenario("train", seed), renderer, rng) for seed in seeds]
        sequences.sort(key=lambda sequence: len(sequence.ids))
        batches = [sequences[start : start + size] for start in range(0, len(sequences), size)]
        rng.shuffle(batches)
        return batches

    first_seeds = count(TRAIN_STREAM * SEEDS_PER_STREAM, size * _BATCHES_PER_BUCKET)
    with ThreadPoolExecutor(max_workers=1) as writer:
        upcoming = writer.submit(bucket, next(first_seeds))
        while True:
            batches = upcoming.result()
            upcoming = writer.submit(bucket, next(first_seeds))
            yield from batches


def pad(sequences: list[TokenSequence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded [B, T] ids and action flags."""
    width = max(len(sequence.ids) for sequence in sequences)
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    is_action = torch.zeros(len(sequences), width, dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence.ids)] = torch.tensor(sequence.ids)
        is_action[row, : len(sequence.ids)] = torch.tensor(sequence.is_action)
    return ids, is_action
