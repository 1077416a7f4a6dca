"""Copy warm-up: random segments that come back in random order; the loss is on the repeats only.

Without it imitation alone does not find the copying circuit in any affordable number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import torch

from recipe.agent_contracts.cold_start.config import ColdStartConfig
from recipe.agent_contracts.cold_start.model import descend

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

_NUM_SEGMENTS = 3
_NUM_REPEATS = 4


def warm_up(model: Qwen2ForCausalLM, config: ColdStartConfig, report: Callable[[str, float], None]) -> None:
    """Train in place. `report("warm-up", loss)` is called once a step."""
    rng, generator = Random(config.seed), torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.warmup_learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    for step in range(config.warmup_steps):
        factor = min(1.0, (step + 1) / 50) * (1 - 0.7 * step / config.warmup_steps)
        ids, is_target = _copy_batch(config.warmup_batch_size, model.config.vocab_size, rng, generator)
        loss = descend(model, optimizer, config.warmup_learning_rate * factor, ids, is_target)
        report("warm-up", loss)


def _copy_batch(
    batch_size: int, vocabulary: int, rng: Random, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, T] ids and targets. The first token of a repeat is not a target: which segment comes is random."""
    length = rng.randint(5, 10)
    segments = torch.randint(0, vocabulary, (batch_size, _NUM_SEGMENTS, length), generator=generator)
    order = [*range(_NUM_SEGMENTS), *(rng.randrange(_NUM_SEGMENTS) for _ in range(_NUM_REPEATS))]
    ids = torch.cat([segments[:, index] for index in order], dim=1)
    is_target = torch.zeros_like(ids, dtype=torch.bool)
    is_target[:, _NUM_SEGMENTS * length :] = True
    is_target[:, _NUM_SEGMENTS * length :: length] = False
    return ids, is_target
