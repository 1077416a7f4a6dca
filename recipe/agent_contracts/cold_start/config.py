"""Every number of the cold start. Importable without torch; its hash is part of the cache key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ColdStartConfig:
    """Model, warm-up and imitation settings."""

    seed: int = 1
    num_threads: int = 2

    hidden_size: int = 128
    intermediate_size: int = 256
    num_layers: int = 3
    num_heads: int = 4
    """head_dim = hidden_size / num_heads = 32, the smallest that vLLM's CPU attention takes."""
    num_previous_token_heads: int = 2
    max_position_embeddings: int = 1024

    warmup_steps: int = 300
    warmup_batch_size: int = 32
    warmup_learning_rate: float = 4e-3

    imitation_steps: int = 1800
    imitation_batch_size: int = 24
    imitation_learning_rate: float = 2e-3
    imitation_weight_decay: float = 0.05

    num_eval_tasks: int = 200
    num_eval_attempts: int = 3


TRAIN_STREAM = 900
"""Base seed of the demonstrations' tasks: far from the small seeds that data sets are written with."""
EVAL_STREAM = 901
"""Base seed of the cold start's own held-out tasks: not those of the data sets either."""
