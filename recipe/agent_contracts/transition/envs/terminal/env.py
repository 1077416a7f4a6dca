"""TerminalEnv: the AgentEnv over a set of terminal tasks.

A step is a pure function of (exported state, action). The environment ends an episode only when the agent
declares `finish` or `abstain`; the task's step and token budgets are counted by the agent loop, which sees the
tokens, and end in `task_budget_exhausted_terminal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.canonical_state import CanonicalStateEnv
from recipe.agent_contracts.transition.env import ToolSchema
from recipe.agent_contracts.transition.envs.terminal.task import TerminalTask, task_from_json, user_message
from recipe.agent_contracts.transition.envs.terminal.tools import TOOLS
from recipe.agent_contracts.transition.envs.terminal.world import World, apply
from recipe.agent_contracts.transition.state import Entropy
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.tree import Directory

if TYPE_CHECKING:
    from recipe.agent_contracts.transition.conformance import ContractCase


class TerminalEnv(CanonicalStateEnv[World]):
    """One episode at a time over `tasks`. The world is deterministic: a seed changes nothing.

    Example:
        env = TerminalEnv({task.task_id: task})
        first_message = env.reset(task.task_id, seed=0)
        transition = env.step(parser.parse(turn, parameters_by_name(env.tools())))
        final_state = env.export_state()
    """

    env_version = "terminal-v2"

    def __init__(self, tasks: Mapping[str, TerminalTask]) -> None:
        super().__init__(tasks)
        self._first: dict[str, tuple[str, World]] = {}

    @property
    def task(self) -> TerminalTask:
        """The task of the running episode."""
        task: TerminalTask = self._tasks[self._episode().origin.task_id]
        return task

    def tools(self) -> list[ToolSchema]:
        """The tools that the running task allows."""
        return [tool for tool in TOOLS if tool.name in self.task.allowed_tools]

    @classmethod
    def contract_cases(cls) -> list[ContractCase]:
        """A few generated tasks with scripted episodes of each quality."""
        from recipe.agent_contracts.transition.envs.terminal.contract_cases import contract_cases

        return contract_cases(cls)

    def _initial(self, task_id: str, seed: int) -> tuple[str, World]:
        if task_id not in self._first:
            task = self._tasks[task_id]
            self._first[task_id] = (user_message(task), World.of(task.files))
        return self._first[task_id]

    def _apply(self, world: World, action: Action) -> tuple[World, str, Termination | None]:
        if world.declared is not None:
            raise ContractViolation("transition.step", "a running episode", f"declared {world.declared}")
        after, observation = apply(world, action, frozenset(self.task.allowed_tools))
        return after, observation, Termination.AGENT_FINISH if after.declared is not None else None

    def _tree(self, world: World) -> Directory:
        return world.tree()

    def _load(self, tree: Directory, entropy: Entropy) -> World:
        return World.from_tree(tree)

    def _export(self, world: World) -> bytes:
        return world.export()


def open_task(task_json: str) -> tuple[TerminalEnv, TerminalTask]:
    """An environment that holds one task, as an episode needs it.

    Raises:
        msgspec.DecodeError: when the text is not a terminal task.
    """
    task = task_from_json(task_json)
    return TerminalEnv({task.task_id: task}), task
