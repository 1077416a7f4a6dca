"""Typed actions and the strict, versioned parser that turns a model turn into exactly one of them.

A turn is one tool call in the Hermes format, or it is invalid: nothing is repaired, nothing is dropped in silence.
An invalid action is data (it costs a step and the model is told why), never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import jsonschema
import msgspec


class InvalidReason(StrEnum):
    """Why a turn is not an action. The value is the record field, the metric key and what the model reads."""

    NO_CALL = "no_call"
    SEVERAL_CALLS = "several_calls"
    TEXT_AROUND_CALL = "text_around_call"
    UNCLOSED_THINKING = "unclosed_thinking"
    BAD_JSON = "bad_json"
    BAD_SHAPE = "bad_shape"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"


class Action(msgspec.Struct, frozen=True):
    """One decision of the policy."""

    kind: Literal["tool", "finish", "abstain", "invalid"]
    name: str | None = None
    args: dict[str, Any] | None = None
    invalid_reason: InvalidReason | None = None
    ignored_in_thinking: int = 0
    """Calls that were only mused about inside a thinking block. They are never executed."""


_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_TERMINAL_KINDS: dict[str, Literal["finish", "abstain"]] = {"finish": "finish", "abstain": "abstain"}


class HermesParser:
    """Parser `hermes-strict-v1`: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, alone in its turn."""

    version = "hermes-strict-v1"

    def parse(self, text: str, tools: Mapping[str, dict[str, Any]]) -> Action:
        """Parse one model turn.

        Args:
            text: The decoded turn, without the end-of-turn token.
            tools: JSON Schema of the arguments, by the name of each tool the task allows.

        Returns:
            The action; `kind == "invalid"` with its reason when the turn is not exactly one valid call.
        """
        spoken = _THINKING.sub("", text)
        ignored = sum(len(_CALL.findall(block)) for block in _THINKING.findall(text))
        if "<think>" in spoken:
            return Action("invalid", invalid_reason=InvalidReason.UNCLOSED_THINKING, ignored_in_thinking=ignored)
        calls = list(_CALL.finditer(spoken))
        reason = _shape_error(spoken, calls)
        if reason is not None:
            return Action("invalid", invalid_reason=reason, ignored_in_thinking=ignored)
        return _typed_call(calls[0].group(1), tools, ignored)


def _shape_error(spoken: str, calls: list[re.Match[str]]) -> InvalidReason | None:
    if not calls:
        return InvalidReason.NO_CALL
    if len(calls) > 1 or spoken.count("<tool_call>") > 1:
        return InvalidReason.SEVERAL_CALLS
    if _CALL.sub("", spoken).strip():
        return InvalidReason.TEXT_AROUND_CALL
    return None


def _typed_call(body: str, tools: Mapping[str, dict[str, Any]], ignored: int) -> Action:
    def invalid(reason: InvalidReason, name: str | None = None) -> Action:
        return Action("invalid", name=name, invalid_reason=reason, ignored_in_thinking=ignored)

    try:
        call = strict_json(body)
    except ValueError:
        return invalid(InvalidReason.BAD_JSON)
    if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
        return invalid(InvalidReason.BAD_SHAPE)
    name, args = call["name"], call["arguments"]
    if not isinstance(name, str) or not isinstance(args, dict):
        return invalid(InvalidReason.BAD_SHAPE)
    if name not in tools:
        return invalid(InvalidReason.UNKNOWN_TOOL, name)
    if next(jsonschema.Draft202012Validator(tools[name]).iter_errors(args), None) is not None:
        return invalid(InvalidReason.BAD_ARGUMENTS, name)
    return Action(_TERMINAL_KINDS.get(name, "tool"), name, args, ignored_in_thinking=ignored)


def strict_json(text: str) -> Any:
    """`json.loads` that refuses duplicate keys, NaN, infinities and integers beyond 2**53.

    Raises:
        ValueError: for any of these and for text that is not JSON.
    """
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            raise ValueError(f"duplicate keys in {keys}")
        return dict(pairs)

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    def bounded(digits: str) -> int:
        # RFC 8785 hashing is exact only up to 2**53; more digits than that are refused before int() sees them.
        if len(digits) > 17 or abs(int(digits)) > 2**53:
            raise ValueError("integer beyond 2**53")
        return int(digits)

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_int=bounded)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
