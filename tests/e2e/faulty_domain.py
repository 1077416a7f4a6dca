"""A task domain that misbehaves on purpose, registered as a user's own would be: through an external module.

What goes wrong is decided by the task, so that most episodes are fine and each kind of fault occurs.
"""

from __future__ import annotations

import os
import time
from typing import Any

from fault_kinds import HANGS, NUM_KINDS, RAISES, verifier_dies

from recipe.agent_contracts.domains import DOMAINS, Domain
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.env import Transition
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv, open_task
from recipe.agent_contracts.transition.envs.terminal.task import TerminalTask
from recipe.agent_contracts.verification.layers import Verdict
from recipe.agent_contracts.verification.terminal import TerminalVerifier


class FaultyEnv(TerminalEnv):
    def step(self, action: Action) -> Transition:
        if self.task.seed % NUM_KINDS == RAISES:
            raise OSError("disk full")
        if self.task.seed % NUM_KINDS == HANGS:
            time.sleep(8.0)
        return super().step(action)


class FaultyVerifier(TerminalVerifier):
    def verify(self, grader: dict[str, Any], final_state: bytes) -> Verdict:
        if verifier_dies(grader["task_id"]):
            os._exit(3)
        return super().verify(grader, final_state)


def open_faulty(task_json: str) -> tuple[FaultyEnv, TerminalTask]:
    _, task = open_task(task_json)
    return FaultyEnv({task.task_id: task}), task


DOMAINS["faulty"] = Domain(
    environment="faulty_domain:open_faulty",
    verifier="faulty_domain:FaultyVerifier",
    environment_class="faulty_domain:FaultyEnv",
)
