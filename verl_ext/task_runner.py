"""verl's task runner with an orderly end: what the rollout workers still hold is written before Ray ends them."""

from __future__ import annotations

from typing import Any

from verl.trainer.main_ppo import TaskRunnerV1

from verl_ext import plugin
from verl_ext.rollout_worker import python_class_of


class ContractTaskRunner(python_class_of(TaskRunnerV1)):  # type: ignore[misc]
    """Runs the trainer in an actor of its own, as verl does."""

    def run(self, config: Any) -> None:
        plugin.assert_registered()
        try:
            super().run(config)
        finally:
            if self.agent_loop_manager is not None:
                self.agent_loop_manager.flush()
