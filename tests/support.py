"""Hand-written fakes and the handed cases, shared by the tests."""

import json
from pathlib import Path
from typing import Any

from recipe.agent_contracts.canonical import canonical_json, sha256_bytes
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.env import ToolSchema, Transition
from recipe.agent_contracts.transition.episode import Limits
from recipe.agent_contracts.transition.termination import Termination

_CASES = json.loads((Path(__file__).parent / "cases" / "cases.json").read_text())


def case(identifier: str) -> dict[str, Any]:
    """One of the failures seen in public bug reports, with its right value."""
    return next(entry for entry in _CASES if entry["id"] == identifier)


class CounterEnv:
    """An environment whose state is a counter: `add` raises it, `finish` ends the episode."""

    env_version = "counter-v1"

    def __init__(self) -> None:
        self.value = 0

    def reset(self, task_id: str, seed: int) -> str:
        self.value = seed
        return f"count {task_id}"

    def step(self, action: Action) -> Transition:
        if action.kind == "tool":
            self.value += 1
        ended = Termination.AGENT_FINISH if action.kind in ("finish", "abstain") else None
        observation = f"error: {action.invalid_reason}" if action.kind == "invalid" else str(self.value)
        return Transition(observation, sha256_bytes(self.export_state()), ended)

    def export_state(self) -> bytes:
        return canonical_json({"value": self.value})

    def tools(self) -> list[ToolSchema]:
        nothing = {"type": "object", "properties": {}, "additionalProperties": False}
        return [ToolSchema("add", "Add one.", nothing), ToolSchema("finish", "End.", nothing)]


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
