"""The trainer's side of a weight publication, as verl's rollout adapter: announce, send, collect ACKs, then switch.

    registry: built -> (bytes and envelope) -> every rank acknowledges -> staged -> label switched -> active

Registered for `rollout.name=vllm` by `verl_ext.rollouts`. The engine's version label moves only after every rank has
acknowledged the digest that this process computed; a failure leaves the old label and stops the run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import torch
from verl.workers.rollout.utils import ensure_async_iterator
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.fingerprint import tensor_digest, weight_checksum
from recipe.agent_contracts.policy.manifest import PolicyManifest
from recipe.agent_contracts.policy.publication import ENVELOPE_NAME, Envelope
from recipe.agent_contracts.policy.registry import Part, Registry, lora_checksum
from recipe.agent_contracts.policy.scaffold_lock import read_lock
from verl_ext import plugin
from verl_ext.scaffold import run_folder

_SCALING = ("r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern")


class ContractServerAdapter(ServerAdapter):
    """verl's vLLM adapter with fingerprints, ACKs and a registry. One in each trainer rank; the first rank of each
    replica keeps the books."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        plugin.assert_registered()
        super().__init__(*args, **kwargs)
        self._run = run_folder()
        self._registry = Registry(self._run)
        self._lock = read_lock(self._run)
        self._num_ranks = (
            self.config.tensor_model_parallel_size
            * self.config.pipeline_model_parallel_size
            * self.config.data_parallel_size
        )
        self._publication: int | None = None
        self._base_checksum: str | None = None

    @torch.no_grad()
    async def update_weights(
        self, weights: Any, global_steps: int | None = None, wire_format: str = "named_tensors", **kwargs: Any
    ) -> None:
        """Publish one set of weights as version `global_steps`.

        Raises:
            ContractViolation: ``publication.ack`` when a rank did not acknowledge; whatever a rank raised.
        """
        if global_steps is None:
            raise ContractViolation("publication.version", "a policy version with every set of weights", global_steps)
        part = _part(kwargs.get("peft_config"), kwargs.get("base_sync_done", False))
        if self._publication is None and self._has_server:
            self._publication = self._registry.build(global_steps, self.replica_rank, self._num_ranks)
        digests: dict[str, str] = {}
        try:
            # Without a step verl resets the caches and leaves the engine's version label as it is.
            await super().update_weights(
                _sealed(weights, digests, global_steps, part), global_steps=None, wire_format=wire_format, **kwargs
            )
            if self._publication is not None:
                config = kwargs.get("peft_config")
                await self._finish(self._publication, part, weight_checksum(digests), global_steps, config)
        except Exception as error:  # written down here and raised on: the run stops, the old label stays
            if self._publication is not None:
                self._registry.fail(self._publication, f"{type(error).__name__}: {error}")
            raise

    async def _finish(
        self, publication: int, part: Part, checksum: str, version: int, peft_config: dict[str, Any] | None
    ) -> None:
        self._registry.require_acknowledged(publication, part, checksum)
        if part is Part.BASE:
            # The adapter of the same version follows; only both together are a policy.
            self._base_checksum = checksum
            return
        adapter = _adapter_revision(checksum, peft_config) if peft_config else None
        whole = checksum if adapter is None else lora_checksum(self._base_checksum or self._lock.base_revision, adapter)
        manifests = [
            PolicyManifest.of(
                scaffold,
                policy_version=version,
                weight_checksum=whole,
                base_revision=self._lock.base_revision,
                adapter_revision=adapter,
            ).write(self._run / "manifests")
            for scaffold in self._lock.decodings["train"]
        ]
        self._registry.stage(
            publication, checksum=whole, manifest_hash=manifests[0], base=self._base_checksum, adapter=adapter
        )
        await self.server_handle.set_global_steps.remote(version)
        self._registry.activate(publication)
        self._publication = None


def _part(peft_config: Any, base_sync_done: bool) -> Part:
    if not peft_config:
        return Part.FULL
    return Part.ADAPTER if base_sync_done else Part.BASE


def _adapter_revision(checksum: str, peft_config: dict[str, Any]) -> str:
    """The adapter's tensors and how the engine scales them: the same tensors with another alpha are another policy."""
    return sha256_json({"tensors": checksum, "scaling": {name: peft_config.get(name) for name in _SCALING}})


async def _sealed(
    weights: Any, digests: dict[str, str], version: int, part: Part
) -> AsyncIterator[tuple[str, torch.Tensor]]:
    """The tensors as they come, each digested into `digests`, and the envelope after the last."""
    async for name, tensor in ensure_async_iterator(weights):
        digests[name] = tensor_digest(name, tensor)
        yield name, tensor
    yield ENVELOPE_NAME, Envelope(version, part, digests).as_tensor()
