"""Typed actions: what a model turn is, once a parser of `transition.parsers` has read it.

A turn is exactly one action. What is not one valid call is an `invalid` action with one reason: it is data (it costs a
step and the model is told why), never an exception, and nothing repairs it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

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
