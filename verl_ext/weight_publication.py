"""vLLM worker extension: takes the trainer's weights into the serving engine, and proves what it then serves.

Every tensor is digested as it arrives and compared with the sender's envelope; after the load the weights in use are
compared with the received ones, and the rank's finding goes into the run's registry. Any difference raises, and the
trainer stops. On a CPU stack vLLM has already repacked its weights for the CPU kernels, so verl's per-bucket load
fails; there every tensor is staged first and loaded in one reload, after its digest was checked. Elsewhere
verl loads each bucket as it comes: the digest is checked at the end, before a token is sampled.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, vLLMColocateWorkerExtension

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.publication import Arrival, Envelope
from recipe.agent_contracts.policy.registry import Registry
from verl_ext import platform_cpu, plugin, scaffold
from verl_ext.active_weights import ActiveWeights, Comparison, compare_adapter

_IN_PLACE = "verl loads each bucket in place"


class ContractWorkerExtension(vLLMColocateWorkerExtension):
    """Named by `rollout.engine_kwargs.vllm.worker_extension_cls`; vLLM's worker inherits from it."""

    _arrival: Arrival
    _adapter: dict[str, torch.Tensor]
    _attested = False

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receive one set of weights, serve it, and acknowledge what is now in use.

        Raises:
            ContractViolation: ``policy.engine`` for an engine that is not the locked one, ``publication.received`` or
                ``publication.active`` for weights that are not what was sent. Nothing raises before everything was
                received: the sender would wait for its answer for ever.
        """
        self._arrival = Arrival()
        is_adapter = bool(peft_config and base_sync_done)
        if platform_cpu.is_cpu_stack() and not is_adapter:
            compared = self._stage_and_reload(use_shm)
        else:
            super().update_weights_from_ipc(peft_config, base_sync_done, use_shm)
            self._require_as_sent()
            compared = self._compare_adapter(peft_config) if peft_config and base_sync_done else (0, _IN_PLACE)
        self._acknowledge(self._arrival.verified(), *compared)

    def _update_weights(
        self, weights: list[tuple[str, torch.Tensor]], peft_config: dict[str, Any], base_sync_done: bool
    ) -> None:
        """verl's method for one bucket (for an adapter: for all of it), without the envelope."""
        received = self._arrival.take(weights)
        if peft_config and base_sync_done:
            self._adapter = dict(received)
        super()._update_weights(received, peft_config, base_sync_done)

    def _stage_and_reload(self, use_shm: bool) -> tuple[int, str | None]:
        staged: dict[str, torch.Tensor] = {}

        def stage(bucket: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            # The bucket's buffer is reused for the next one, so a view of it would be overwritten.
            staged.update((name, tensor.clone()) for name, tensor in self._arrival.take(bucket))

        receiver = BucketedWeightReceiver(self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm)
        receiver.receive_weights(stage)
        self._require_as_sent()
        model = self.model_runner.model
        with _separate_head_is_loaded(model, staged):
            self.model_runner.reload_weights(weights_iterator=iter(staged.items()))
        return self._compare_active(model, staged)

    def _compare_active(self, model: torch.nn.Module, received: Mapping[str, torch.Tensor]) -> tuple[int, str | None]:
        """How many received tensors are in use as they are, and why not all were compared (None: all were)."""
        parallel = self.model_runner.vllm_config.parallel_config
        if parallel.tensor_parallel_size * parallel.pipeline_parallel_size > 1:
            return 0, "the rank holds a part of each tensor"
        if self.model_runner.vllm_config.quant_config is not None:
            return 0, "quantized weights have other values by design"
        return self._require_in_use(ActiveWeights(model).compare(received))

    def _compare_adapter(self, peft_config: dict[str, Any]) -> tuple[int, str | None]:
        """As `_compare_active`, for an adapter: an engine that does not list it would sample with the base alone."""
        listed = sorted(self.list_loras())
        if VLLM_LORA_INT_ID not in listed:
            raise ContractViolation("publication.active", f"adapter {VLLM_LORA_INT_ID} in the engine", listed)
        if not platform_cpu.is_cpu_stack():
            return 0, "the engine lists the adapter; its values are compared on the CPU stack only"
        rank = peft_config["r"]
        scaling = peft_config["lora_alpha"] / (math.sqrt(rank) if peft_config.get("use_rslora") else rank)
        manager = self.model_runner.lora_manager._adapter_manager
        found = compare_adapter(manager, VLLM_LORA_INT_ID, scaling, self._adapter)
        self._adapter = {}
        return self._require_in_use(found)

    def _require_in_use(self, found: Comparison) -> tuple[int, str | None]:
        """
        Raises:
            ContractViolation: ``publication.active``, naming what has other values and what was never loaded.
        """
        if found.different or (found.uncovered and not found.unplaced):
            raise ContractViolation(
                "publication.active",
                expected="every received tensor in use, and nothing else",
                found=f"other values in {found.different[:5]}, never loaded {found.uncovered[:5]}",
                evidence=f"replica {self._replica}, rank {self._rank_in_replica}",
                remedy="the engine's loader skipped or changed tensors; its log names the layers that it did not load",
            )
        return found.num_compared, f"no known place for {found.unplaced[:5]}" if found.unplaced else None

    def _acknowledge(self, envelope: Envelope, num_compared: int, not_compared: str | None) -> None:
        Registry(scaffold.run_folder()).acknowledge(
            envelope.policy_version,
            self._replica,
            envelope.part,
            self._rank_in_replica,
            envelope.checksum,
            num_compared,
            not_compared,
        )

    @property
    def _replica(self) -> int:
        return int(os.environ["VERL_REPLICA_RANK"])  # verl's server sets it before the engine starts

    @property
    def _rank_in_replica(self) -> int:
        parallel = self.model_runner.vllm_config.parallel_config
        return int(parallel.data_parallel_rank * parallel.world_size + self.rank)

    def _require_as_sent(self) -> None:
        """The engine is the locked one (asked once, so before it can sample), and what arrived is what was sent."""
        plugin.assert_registered()
        if not self._attested:
            scaffold.attest_engine(scaffold.run_folder(), self.model_runner.vllm_config)
            self._attested = True
        self._arrival.verified()


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
