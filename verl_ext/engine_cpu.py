"""verl's FSDP engines registered for device cpu (language model and value model).

Loaded in the training workers through `actor_rollout_ref.model.external_lib`, so that importing the plugin stays
light. On a GPU stack importing this module registers engines that nothing there selects.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead


class _NoPinnedOffload:
    """A forward-only engine (the reference policy) stays where it is: verl 0.9.1 would wrap it in
    CPUOffloadPolicy(pin_memory=True), and pinning memory needs an accelerator."""

    engine_config: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        config = self.engine_config
        if config.forward_only:
            self.engine_config = dataclasses.replace(config, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)  # type: ignore[misc]
        finally:
            self.engine_config = config


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuFSDPEngineWithLMHead(_NoPinnedOffload, FSDPEngineWithLMHead):
    """FSDP over gloo for the actor and the reference policy."""


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuFSDPEngineWithValueHead(_NoPinnedOffload, FSDPEngineWithValueHead):
    """FSDP over gloo for the critic."""
