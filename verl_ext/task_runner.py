"""verl's task runner with a locked start and an orderly end.

Before the first prompt is handed out, the trainer has computed the scaffold itself and every rollout and reward worker
has done so too. At the end, what the rollout workers still hold is written before Ray ends them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray
from verl.trainer.main_ppo import TaskRunnerV1

import verl_ext.trainer  # noqa: F401  (takes verl's place under the name `sync`)
from recipe.agent_contracts.policy.registry import Registry
from verl_ext import plugin, scaffold
from verl_ext.rollout_worker import python_class_of


class ContractTaskRunner(python_class_of(TaskRunnerV1)):  # type: ignore[misc]
    """Runs the trainer in an actor of its own, as verl does."""

    def run(self, config: Any) -> None:
        plugin.assert_registered()
        registry = Registry(Path(config.contract.run.folder))
        registry.retire_all()  # of an attempt that was killed
        try:
            super().run(config)
        finally:
            registry.retire_all()
            if self.agent_loop_manager is not None:
                self.agent_loop_manager.flush()

    def init_agent_loop_manager(self) -> None:
        """verl's step between start-up and training.

        Raises:
            ContractViolation, ray.exceptions.ActorDiedError: when any process found another scaffold.
        """
        scaffold.attest_process(self.config, self.trainer.tokenizer, {"trainer": ("train", "heldout/")})
        super().init_agent_loop_manager()
        ray.get([worker.__ray_ready__.remote() for worker in self.trainer.get_reward_handles()])
        self.agent_loop_manager.wait_until_ready()
