"""Makes our weight sender verl's adapter for `rollout.name=vllm`.

Named by `actor_rollout_ref.model.external_lib`, which verl imports before a training worker looks its adapter up. verl
0.9.1 has no function for it: its registry is this dictionary of import paths. Without it no envelope is sent, and the
receiving engine refuses the weights.
"""

from __future__ import annotations

from verl.workers.rollout.base import _ROLLOUT_REGISTRY

_ROLLOUT_REGISTRY[("vllm", "async")] = "verl_ext.weight_sender.ContractServerAdapter"
