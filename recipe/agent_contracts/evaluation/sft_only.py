"""The SFT-only control: the run's initial policy, imitating as many tokens as reinforcement learning trained.

Matched are the tokens that carry a loss, i.e. the policy's own: in an update those of every episode, in imitation those
of fresh demonstrations of the same mixed quality that the policy was cold-started on. Learning rate and warm-up are the
run's. Not matched are optimizer steps and compute: `sft.json` says how many there were.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from recipe.agent_contracts.cold_start.config import ColdStartConfig
from recipe.agent_contracts.cold_start.episodes import TokenSequence, demonstration
from recipe.agent_contracts.cold_start.tokenizer import load_tokenizer
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.gates.base import Run
from recipe.agent_contracts.policy.scaffold_lock import read_lock
from recipe.agent_contracts.transition.envs.terminal.generator import scenarios
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

REPORT = "sft.json"
_STREAM = 902
"""Base seed of the demonstrations' tasks: neither the cold start's (900, 901) nor those of data sets."""


class SftReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the control was made of, beside its model."""

    base_revision: str
    """Checksum of the files that the matched run, and this control, started from."""
    matched_tokens: int
    """Action tokens that the updates of the matched run used."""
    trained_tokens: int
    """Action tokens that imitation had a loss on: the first whole batch at or past `matched_tokens`."""
    sequence_tokens: int
    """With prompts and observations."""
    num_steps: int
    learning_rate: float
    seed: int


def make_sft_only(run: Path, out: Path, seed: int, report: Callable[[int, int, float], None]) -> SftReport:
    """Train the control of a run and write `model/` and `sft.json` into a new folder.

    Args:
        run: Folder of the run whose initial policy and number of trained tokens are taken.
        out: A folder that does not exist; nothing is left of an interrupted training.
        seed: Of the demonstrations' quality and order.
        report: Called once a step with tokens so far, tokens wanted and loss.

    Raises:
        ContractViolation: ``evaluation.sft_only`` when the run made no update, or `out` exists.
    """
    from transformers import Qwen2ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    source = Run(run)
    wanted = sum(row.num_action_tokens for update in source.updates for row in update.rows)
    if wanted == 0:
        raise ContractViolation("evaluation.sft_only", "a run that made updates", "none", str(run))
    if out.exists():
        raise ContractViolation("evaluation.sft_only", "a new folder", "one that exists", str(out))
    actor, files = source.experiment["actor_rollout_ref"]["actor"], source.experiment["actor_rollout_ref"]["model"]
    model = Qwen2ForCausalLM.from_pretrained(files["path"])
    renderer = ChatTemplateRenderer(load_tokenizer(Path(files["tokenizer_path"])))
    rate, warm_up = actor["optim"]["lr"], actor["optim"]["lr_warmup_steps"]
    counts = imitate_tokens(
        model, _demonstrations(renderer, seed), wanted, lambda step: rate * min(1.0, (step + 1) / warm_up), report
    )
    made = SftReport(
        base_revision=read_lock(run).base_revision,
        matched_tokens=wanted,
        trained_tokens=counts[0],
        sequence_tokens=counts[1],
        num_steps=counts[2],
        learning_rate=rate,
        seed=seed,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix="unfinished-") as unfinished:
        built = Path(unfinished) / "policy"
        model.save_pretrained(built / "model")
        (built / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(made)))
        built.rename(out)
    return made


def imitate_tokens(
    model: Qwen2ForCausalLM,
    sequences: Iterator[TokenSequence],
    num_tokens: int,
    learning_rate: Callable[[int], float],
    report: Callable[[int, int, float], None],
) -> tuple[int, int, int]:
    """Train in place until the batches so far hold `num_tokens` action tokens.

    Returns:
        Action tokens, all tokens and optimizer steps.
    """
    import torch

    from recipe.agent_contracts.cold_start.model import descend
    from recipe.agent_contracts.cold_start.train import pad

    config = ColdStartConfig()
    torch.set_num_threads(config.num_threads)
    # The optimizer of the run: no weight decay.
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.0)
    model.train()
    trained = seen = step = 0
    while trained < num_tokens:
        batch = list(islice(sequences, config.imitation_batch_size))
        loss = descend(model, optimizer, learning_rate(step), *pad(batch))
        trained += sum(sum(sequence.is_action) for sequence in batch)
        seen += sum(len(sequence.ids) for sequence in batch)
        step += 1
        report(trained, num_tokens, loss)
    return trained, seen, step


def _demonstrations(renderer: ChatTemplateRenderer, seed: int) -> Iterator[TokenSequence]:
    rng = Random(seed)
    return (demonstration(scenario, renderer, rng) for scenario in scenarios("train", _STREAM))
