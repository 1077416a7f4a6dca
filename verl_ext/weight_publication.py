"""vLLM worker extension: puts the trainer's weights into the serving engine, whole or not at all.

On a CPU stack vLLM has already repacked its weights for the CPU kernels, so verl's per-bucket `load_weights` fails;
here every tensor is staged first and then loaded in one reload. On a GPU stack verl's own path runs unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from verl_ext import platform_cpu, plugin


class ContractWorkerExtension(vLLMColocateWorkerExtension):
    """Named by `rollout.engine_kwargs.vllm.worker_extension_cls`; vLLM's worker inherits from it."""

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receive one set of weights and serve it. A LoRA adapter after the base takes verl's own path."""
        plugin.assert_registered()
        if not platform_cpu.is_cpu_stack() or (peft_config and base_sync_done):
            super().update_weights_from_ipc(peft_config, base_sync_done, use_shm)
            return
        staged: dict[str, torch.Tensor] = {}

        def stage(bucket: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            # The bucket's buffer is reused for the next one, so a view of it would be overwritten.
            staged.update((name, tensor.clone()) for name, tensor in bucket)

        receiver = BucketedWeightReceiver(self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm)
        receiver.receive_weights(stage)
        with _separate_head_is_loaded(self.model_runner.model, staged):
            self.model_runner.reload_weights(weights_iterator=iter(staged.items()))


@contextmanager
def _separate_head_is_loaded(model: torch.nn.Module, staged: dict[str, torch.Tensor]) -> Iterator[None]:
    """Load a tied output head that vLLM keeps as a tensor of its own (its Llama does).

    With `tie_word_embeddings` set, the loader skips `lm_head.*` and a reload leaves the head on dummy values: rollouts
    become random words and only a log line says so.
    """
    config: Any = model.config
    embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
    head = getattr(model, "lm_head", None)
    if not getattr(config, "tie_word_embeddings", False) or head is None or head is embedding:
        yield
        return
    staged["lm_head.weight"] = staged["model.embed_tokens.weight"]
    config.tie_word_embeddings = False
    try:
        yield
    finally:
        config.tie_word_embeddings = True
