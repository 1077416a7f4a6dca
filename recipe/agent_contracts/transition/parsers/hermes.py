"""Hermes: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes 2 and 3, Qwen 2.5 and Qwen 3)."""

from __future__ import annotations

from recipe.agent_contracts.transition.actions import InvalidReason
from recipe.agent_contracts.transition.parsers.base import Call, Malformed, StrictParser, Tools, read_json


class HermesParser(StrictParser):
    """The shipped default. A closing marker inside an argument ends the call there, which makes it `bad_json`."""

    format = "hermes"
    version = "hermes-strict-v1"
    markers = ("<tool_call>", "</tool_call>")
    prompt_may_open_thinking = False

    def read(self, body: str, tools: Tools) -> Call:
        call = read_json(body)
        if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
            raise Malformed(InvalidReason.BAD_SHAPE)
        if not isinstance(call["name"], str) or not isinstance(call["arguments"], dict):
            raise Malformed(InvalidReason.BAD_SHAPE)
        return Call(call["name"], call["arguments"])
