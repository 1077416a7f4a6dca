"""The environment's side of the transition contract: `AgentEnv`, its tools, and what a step returns.

An environment is a state machine, not a prompt wrapper: reset gives the same state hash every time, a step is
a pure function of (state, action), an invalid action consumes the step and changes nothing else, and the state
can be exported for a verifier that the agent cannot reach.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.termination import Termination


class ToolSchema(msgspec.Struct, frozen=True):
    """One tool as the model sees it (OpenAI function schema, flattened)."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments object."""

    def as_openai(self) -> dict[str, Any]:
        """The `{"type": "function", "function": {...}}` form that chat templates expect."""
        return {"type": "function", "function": msgspec.to_builtins(self)}


class Transition(msgspec.Struct, frozen=True):
    """Result of one step."""

    observation: str
    state_version: str
    """`sha256:` of the exported state after the step."""
    termination: Termination | None = None
    """Set when the environment (not the harness) ended the episode."""

    @property
    def done(self) -> bool:
        return self.termination is not None


class AgentEnv(Protocol):
    """What the agent loop needs of an environment. One instance serves one episode at a time."""

    env_version: str
    """Changes whenever the same task and actions could give another observation or state."""

    def reset(self, task_id: str, seed: int) -> str:
        """Return to the task's initial state and give the first observation (the user message)."""
        ...

    def step(self, action: Action) -> Transition:
        """Apply one action. `Action.kind == "invalid"` must change no world state."""
        ...

    def export_state(self) -> bytes:
        """Canonical JSON of the whole world state, for the verifier and for hashing."""
        ...

    def tools(self) -> list[ToolSchema]:
        """The tools this task allows, in the order the model sees them."""
        ...
