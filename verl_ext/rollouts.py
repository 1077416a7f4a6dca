"""Makes our weight sender and our server verl's own for `rollout.name=vllm`.

Named by `actor_rollout_ref.model.external_lib`, which verl imports before it looks either up. For the sender verl 0.9.1
has no function to register with: its registry is this dictionary of import paths. Without it no envelope is sent, and
the receiving engine refuses the weights.
"""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load_replica() -> Any:
    from verl_ext.rollout_server import ContractReplica

    return ContractReplica


_ROLLOUT_REGISTRY[("vllm", "async")] = "verl_ext.weight_sender.ContractServerAdapter"
RolloutReplicaRegistry.register("vllm", _load_replica)
