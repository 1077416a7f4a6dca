"""Hand-written fakes and the handed cases, shared by the tests."""

import json
from pathlib import Path
from typing import Any

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.canonical_state import CanonicalStateEnv
from recipe.agent_contracts.transition.env import ToolSchema
from recipe.agent_contracts.transition.episode import Limits
from recipe.agent_contracts.transition.state import Entropy
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.tree import Directory

_CASES = json.loads((Path(__file__).parent / "cases" / "cases.json").read_text())


def case(identifier: str) -> dict[str, Any]:
    """One of the failures seen in public bug reports, with its right value."""
    return next(entry for entry in _CASES if entry["id"] == identifier)


class CounterEnv(CanonicalStateEnv[int]):
    """An environment whose state is a counter: `add` raises it, `finish` ends the episode. It knows the task `t`."""

    env_version = "counter-v1"

    def __init__(self) -> None:
        super().__init__({"t": None})

    def tools(self) -> list[ToolSchema]:
        nothing = {"type": "object", "properties": {}, "additionalProperties": False}
        return [ToolSchema("add", "Add one.", nothing), ToolSchema("finish", "End.", nothing)]

    def _initial(self, task_id: str, seed: int) -> tuple[str, int]:
        return f"count {task_id}", seed

    def _apply(self, world: int, action: Action) -> tuple[int, str, Termination | None]:
        if action.kind == "invalid":
            return world, f"error: {action.invalid_reason}", None
        if action.kind == "tool":
            return world + 1, str(world + 1), None
        return world, str(world), Termination.AGENT_FINISH

    def _tree(self, world: int) -> Directory:
        return Directory.from_files({"value": str(world).encode()})

    def _load(self, tree: Directory, entropy: Entropy) -> int:
        return int(tree.files["value"].data)

    def _export(self, world: int) -> bytes:
        return canonical_json({"value": world})


class ByteRenderer:
    """A renderer with one token a byte: 0 ends a turn, and an observation is its own bytes."""

    end_of_turn_id = 0

    def initial(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[int]:
        return list(messages[-1]["content"].encode())

    def observation(self, text: str, tools: list[dict[str, Any]]) -> list[int]:
        return list(text.encode())

    def decode_turn(self, token_ids: list[int]) -> str:
        return bytes(token for token in token_ids if token != self.end_of_turn_id).decode()


ADD = [*list(b'<tool_call>{"name": "add", "arguments": {}}</tool_call>'), 0]
FINISH = [*list(b'<tool_call>{"name": "finish", "arguments": {}}</tool_call>'), 0]
NONSENSE = [*b"hello", 0]


def limits(**changes: Any) -> Limits:
    """Roomy limits, with changes."""
    values: dict[str, Any] = {
        "step_budget": 8,
        "token_budget": 10_000,
        "max_prompt_tokens": 100,
        "max_response_tokens": 20_000,
        "max_context_tokens": 30_000,
    }
    return Limits(**{**values, **changes})
