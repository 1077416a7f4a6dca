"""TerminalEnv: the AgentEnv over a set of terminal tasks.

A step is a pure function of (exported state, action). The environment ends an episode only when the agent
declares `finish` or `abstain`; the task's step and token budgets are counted by the agent loop, which sees the
tokens, and end in `task_budget_exhausted_terminal`.
"""

from __future__ import annotations

from collections.abc import Mapping

from recipe.agent_contracts.canonical import canonical_json, sha256_bytes
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.env import ToolSchema, Transition
from recipe.agent_contracts.transition.envs.terminal.task import TerminalTask, task_from_json, user_message
from recipe.agent_contracts.transition.envs.terminal.tools import TOOLS
from recipe.agent_contracts.transition.envs.terminal.world import World, apply
from recipe.agent_contracts.transition.termination import Termination


class TerminalEnv:
    """One episode at a time over `tasks`.

    Example:
        env = TerminalEnv({task.task_id: task})
        first_message = env.reset(task.task_id, seed=0)
        transition = env.step(parser.parse(turn, parameters_by_name(env.tools())))
        final_state = env.export_state()
    """

    env_version = "terminal-v1"

    def __init__(self, tasks: Mapping[str, TerminalTask]) -> None:
        self._tasks = tasks
        self._task: TerminalTask | None = None
        self._world = World({})

    @property
    def task(self) -> TerminalTask:
        """The task of the running episode."""
        if self._task is None:
            raise ContractViolation("transition.reset", "reset before the first step", "no task", "TerminalEnv")
        return self._task

    def reset(self, task_id: str, seed: int) -> str:
        """Start `task_id` afresh and give the user message. The world is deterministic: `seed` changes nothing.

        Raises:
            ContractViolation: for an unknown task.
        """
        if task_id not in self._tasks:
            raise ContractViolation("transition.reset", f"one of {len(self._tasks)} known tasks", task_id)
        self._task = self._tasks[task_id]
        self._world = World(dict(self._task.files))
        return user_message(self._task)

    def step(self, action: Action) -> Transition:
        """Apply one action. An invalid or refused one leaves the exported state, and so its hash, as it was.

        Raises:
            ContractViolation: when the episode has ended already.
        """
        task = self.task
        if self._world.declared is not None:
            raise ContractViolation("transition.step", "a running episode", f"declared {self._world.declared}")
        self._world, observation = apply(self._world, action, frozenset(task.allowed_tools))
        ended = Termination.AGENT_FINISH if self._world.declared is not None else None
        return Transition(observation, sha256_bytes(self.export_state()), ended)

    def export_state(self) -> bytes:
        """Canonical JSON `{"declared": ..., "files": {name: content}, "tool_calls": n}`."""
        return canonical_json(self._world)

    def tools(self) -> list[ToolSchema]:
        """The tools that the running task allows."""
        return [tool for tool in TOOLS if tool.name in self.task.allowed_tools]


def open_task(task_json: str) -> tuple[TerminalEnv, TerminalTask]:
    """An environment that holds one task, as an episode needs it.

    Raises:
        msgspec.DecodeError: when the text is not a terminal task.
    """
    task = task_from_json(task_json)
    return TerminalEnv({task.task_id: task}), task
