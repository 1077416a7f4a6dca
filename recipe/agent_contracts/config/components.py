"""The components of verl_ext without which a contract is not enforced, and which contract each one enforces.

verl replaces any of them through one key without a word; here that is refused, with what would be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recipe.agent_contracts.config.keys import MODEL, ROLLOUT, Config, lookup, shown


@dataclass(frozen=True)
class Component:
    """A verl key that must name ours."""

    key: str
    ours: Any
    keeps: str
    """The contract, as `contract.<key>`, and what it guarantees through this component."""


COMPONENTS = (
    Component(
        "trainer.use_v1",
        True,
        "contract.rollout.require_one_behavior_version_per_group: all our adapters are for verl's V1 trainer",
    ),
    Component(
        f"{ROLLOUT}.agent.agent_loop_manager_class",
        "verl_ext.rollout_worker.ContractAgentLoopManager",
        "contract.rollout.require_termination_reason: the recorder of episodes, their records and their traces",
    ),
    Component(
        "trainer.v1.sampler.custom_sampler.path",
        "pkg://verl_ext.replay_buffer",
        "contract.rollout.group_size: stock verl trains incomplete groups and pads them with synthetic rows",
    ),
    Component(
        "trainer.v1.sampler.custom_sampler.name",
        "LeasedReplayBuffer",
        "contract.rollout.group_size: stock verl trains incomplete groups and pads them with synthetic rows",
    ),
    Component(
        "trainer.v1.sampler.sync_refill_failed_groups",
        True,
        "contract.rollout.max_failed_groups_per_step: a discarded group is replaced by a fresh one",
    ),
    Component(
        "reward.reward_manager.source",
        "importlib",
        "contract.verification: the verifier in its own process, and a failure that is not a reward of 0",
    ),
    Component(
        "reward.reward_manager.name",
        "ContractRewardManager",
        "contract.verification: the verifier in its own process, and a failure that is not a reward of 0",
    ),
    Component(
        "reward.reward_manager.module.path",
        "pkg://verl_ext.reward_manager",
        "contract.verification: the verifier in its own process, and a failure that is not a reward of 0",
    ),
    Component(
        f"{ROLLOUT}.engine_kwargs.vllm.worker_extension_cls",
        "verl_ext.weight_publication.ContractWorkerExtension",
        "contract.weight_sync: what the engine does with the weights it is sent",
    ),
    Component(
        f"{ROLLOUT}.name",
        "vllm",
        "contract.weight_sync.require_all_worker_checksums: no other engine has a sender that collects them",
    ),
)
LIBRARIES = {
    "verl_ext.losses": "registers the loss of contract.update.objective",
    "verl_ext.rollouts": "makes the sender of contract.weight_sync.require_all_worker_checksums verl's adapter",
}
"""What `model.external_lib` must load, and what each is for."""


def replaced_components(config: Config) -> list[str]:
    """One line for each component that is not ours."""
    problems = [
        f"{shown(component.key, lookup(config, component.key))} must be "
        f"{shown(component.key, component.ours).partition('=')[2]}, or this is lost: {component.keeps}. "
        f"Remove the override of {component.key}."
        for component in COMPONENTS
        if lookup(config, component.key) != component.ours
    ]
    return problems + _missing_libraries(config)


def _missing_libraries(config: Config) -> list[str]:
    named = lookup(config, f"{MODEL}.external_lib")
    loaded = named if isinstance(named, list) else [named]
    return [
        f"{shown(f'{MODEL}.external_lib', named)} does not load {library}, which {what_for}. Add {library} to the list."
        for library, what_for in LIBRARIES.items()
        if library not in loaded
    ]
