"""What the update contract costs: our losses beside verl's vanilla loss, and all monitors beside a model's own work.

A batch is 64 episodes of 2,048 tokens, forward and backward of the loss alone; the best of interleaved rounds. The
model is of SmolLM2-135M's shape with random weights; its forward and backward on a few tokens is scaled to the batch,
linearly, which leaves out its attention's quadratic part and makes the monitors' share look larger than it is.

Usage: .venv/bin/python benchmarks/update.py [--episodes 64] [--tokens 2048] [--rounds 9]
"""

from __future__ import annotations

import argparse
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.workers.config import FSDPActorConfig

from recipe.agent_contracts.update.objectives import OBJECTIVES
from recipe.agent_contracts.update.record import UpdateRecord, UpdateRow
from verl_ext import advantages
from verl_ext.agent_loop import TURN_ANCHORS
from verl_ext.losses import policy_loss

TARGET_LOSS, TARGET_SHARE, TARGET_TENSORS = 1.3, 0.02, 2
MODEL_TOKENS = 256
VANILLA = "verl's vanilla"


class Peak(TorchDispatchMode):
    """The most bytes of new tensors that were alive at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = self.most = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._watch(tensor.untyped_storage())
        return result

    def _watch(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self.alive += size
        self.most = max(self.most, self.alive)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.alive -= size


def main() -> None:
    """Measure, print, and fail when a target is missed."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--episodes", type=int, default=64)
    options.add_argument("--tokens", type=int, default=2048)
    options.add_argument("--rounds", type=int, default=9)
    chosen = options.parse_args()
    shape = (chosen.episodes, chosen.tokens)
    losses = _losses(shape)
    times: dict[str, list[float]] = {name: [] for name in losses}
    for loss in losses.values():
        loss()
    for _ in range(chosen.rounds):
        for name, loss in losses.items():
            times[name].append(_timed(loss))
    vanilla, missed = min(times[VANILLA]), []
    tensors = {name: _peak_tensors(loss, shape) for name, loss in losses.items()}
    for name, values in times.items():
        ratio, extra = min(values) / vanilla, tensors[name] - tensors[VANILLA]
        milliseconds = min(values) * 1e3
        print(f"{name:20} {milliseconds:8.1f} ms, {ratio:5.2f} of vanilla, {extra:+5.1f} tensors at peak")
        if ratio > TARGET_LOSS or extra > TARGET_TENSORS:
            missed.append(f"{name}: {ratio:.2f} of vanilla, {extra:+.1f} tensors")
    monitors = min(_timed(_monitors(shape)) for _ in range(chosen.rounds))
    model = min(_timed(_model()) for _ in range(2)) * shape[0] * shape[1] / MODEL_TOKENS
    share = (monitors + min(times["reinforce_with_kl"])) / model
    print(f"loss and monitors {monitors * 1e3:.0f} ms, forward and backward {model:.0f} s (scaled): share {share:.3%}")
    if share > TARGET_SHARE:
        missed.append(f"share {share:.3%}")
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


def _losses(shape: tuple[int, int]) -> dict[str, Callable[[], Any]]:
    """Each loss with its backward pass, on the same batch."""
    torch.manual_seed(0)
    log_prob = -torch.rand(shape)
    batch = {
        "old_log_prob": log_prob.clone(),
        "advantages": torch.randn(shape[0], 1).expand(shape).contiguous(),
        "response_mask": _mask(shape),
    }
    config = FSDPActorConfig(strategy="fsdp2", rollout_n=8, ppo_micro_batch_size_per_gpu=1, clip_ratio_low=0.2)
    config.global_batch_info.update(
        dp_size=1, batch_num_tokens=batch["response_mask"].sum(), global_batch_size=shape[0], loss_scale_factor=None
    )

    def of(function: Callable[..., Any], mode: str, **more: Any) -> Callable[[], Any]:
        def call() -> Any:
            leaf = log_prob.clone().requires_grad_()
            loss, _ = function(log_prob=leaf, loss_agg_mode=mode, config=config, **batch, **more)
            loss.backward()

        return call

    ours: dict[str, Callable[[], Any]] = {}
    for name, objective in OBJECTIVES.items():
        weights = {"rollout_is_weights": torch.ones(shape)} if objective.off_policy else {}
        ours[name] = of(lambda _name=name, **kwargs: policy_loss(_name, **kwargs), "token-mean", **weights)
    return {VANILLA: of(compute_policy_loss_vanilla, "token-mean"), **ours}


def _mask(shape: tuple[int, int]) -> torch.Tensor:
    """Eight turns an episode, three quarters of their tokens sampled."""
    return (torch.arange(shape[1]) % (shape[1] // 8) < shape[1] // 8 * 3 // 4).float().expand(shape).contiguous()


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _peak_tensors(call: Callable[[], Any], shape: tuple[int, int]) -> float:
    with Peak() as peak:
        call()
    return peak.most / (shape[0] * shape[1] * 4)


def _monitors(shape: tuple[int, int]) -> Callable[[], Any]:
    """Every figure that the trainer computes of a batch besides the loss, as it does in a step."""
    mask = _mask(shape)
    generator = -torch.rand(shape)
    tensors = {
        "response_mask": mask,
        "old_log_probs": generator + 1e-6 * torch.randn(shape),
        "rollout_log_probs": generator,
        "rm_scores": torch.zeros(shape),
    }
    rows = [
        UpdateRow(
            trajectory_id=f"g{index // 8}_{index % 8}",
            group_id=f"g{index // 8}",
            episode_return=float(index % 2),
            advantages=[0.5],
            num_action_tokens=int(mask[0].sum()),
            weight=1 / shape[0],
        )
        for index in range(shape[0])
    ]
    labels = {
        "extra_fields": [{TURN_ANCHORS: ["a"] * 8}] * shape[0],
        "extra_info": [{"family": f"f{index % 4}"} for index in range(shape[0])],
    }
    record = UpdateRecord(
        step=1,
        input_policy_version=0,
        output_policy_version=1,
        estimator="rloo",
        group_reward_scale="none",
        reduction="episode_sum",
        objective="reinforce_with_kl",
        kl_beta=0.0,
        rows=rows,
    )
    return lambda: advantages._monitor(record, labels, tensors)


def _model() -> Callable[[], Any]:
    """Forward and backward of a model of SmolLM2-135M's shape."""
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    model, ids = LlamaForCausalLM(config), torch.arange(MODEL_TOKENS)[None]

    def call() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        model.zero_grad(set_to_none=True)

    return call


if __name__ == "__main__":
    main()
