"""Formats whose markup is special tokens around typed arguments: Kimi, gpt-oss, DeepSeek V4, Gemma 4."""

from __future__ import annotations

import json
import re
from typing import Any

from recipe.agent_contracts.transition.actions import InvalidReason
from recipe.agent_contracts.transition.parsers.base import (
    Call,
    Malformed,
    StrictParser,
    Tools,
    read_json,
    read_parameters,
    whole,
)

_DSML = "\uff5cDSML\uff5c"
"""With full-width bars, as the model writes it."""


def _json_object(text: str) -> dict[str, Any]:
    value = read_json(text)
    if not isinstance(value, dict):
        raise Malformed(InvalidReason.BAD_SHAPE)
    return value


class KimiParser(StrictParser):
    """Kimi K2: a section of calls, each a JSON object under an id `functions.NAME:INDEX`. No other id names a tool."""

    format = "kimi"
    version = "kimi-strict-v1"
    markers = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
    _element = re.compile(
        r"\s*<\|tool_call_begin\|>\s*functions\.([^\s<>]+):\d+\s*"
        r"<\|tool_call_argument_begin\|>(.*)<\|tool_call_end\|>\s*",
        re.DOTALL,
    )

    def read(self, body: str, tools: Tools) -> Call:
        if body.count("<|tool_call_begin|>") > 1:
            raise Malformed(InvalidReason.SEVERAL_CALLS)
        match = whole(self._element, body)
        return Call(match[1], _json_object(match[2]))


class GptOssParser(StrictParser):
    """gpt-oss (harmony): a commentary message to `functions.NAME`; the analysis channel is the thinking block."""

    format = "gpt-oss"
    version = "gpt-oss-strict-v1"
    markers = ("<|channel|>commentary to=functions.", "<|call|>")
    thinking = ("<|channel|>analysis<|message|>", "<|end|>")
    prompt_may_open_thinking = False
    _element = re.compile(r"([^\s<>]+) <\|constrain\|>json<\|message\|>(.*)", re.DOTALL)

    def read(self, body: str, tools: Tools) -> Call:
        match = whole(self._element, body)
        return Call(match[1], _json_object(match[2]))

    def unframed(self, spoken: str) -> str:
        return spoken.replace("<|start|>assistant", "")


class DeepSeekV4Parser(StrictParser):
    """DeepSeek V4 (DSML): parameters that say themselves whether they are text or JSON."""

    format = "deepseek_v4"
    version = "deepseek_v4-strict-v1"
    markers = (f"<{_DSML}tool_calls>", f"</{_DSML}tool_calls>")
    _element = re.compile(rf'\s*<{_DSML}invoke name="([^"\n]+)">(.*)</{_DSML}invoke>\s*', re.DOTALL)
    _parameter = re.compile(
        rf'<{_DSML}parameter name="([^"\n]+)" string="(true|false)">(.*?)</{_DSML}parameter>', re.DOTALL
    )

    def read(self, body: str, tools: Tools) -> Call:
        match = whole(self._element, body)
        found = read_parameters(match[2], self._parameter, f"<{_DSML}invoke name=")
        return Call(match[1], {key: text if is_text == "true" else read_json(text) for key, is_text, text in found})


class Gemma4Parser(StrictParser):
    """Gemma 4: `call:NAME{key:<|"|>text<|"|>,other:3}`, that is JSON with bare keys and a quote token of its own."""

    format = "gemma4"
    version = "gemma4-strict-v1"
    markers = ("<|tool_call>", "<tool_call|>")
    thinking = ("<|channel>thought", "<channel|>")
    prompt_may_open_thinking = False
    _element = re.compile(r"\s*call:([^\s{}]+)(\{.*\})\s*", re.DOTALL)
    _key = re.compile(r"([{,]\s*)([A-Za-z_]\w*)\s*:")

    def read(self, body: str, tools: Tools) -> Call:
        match = whole(self._element, body)
        return Call(match[1], _json_object(self._as_json(match[2])))

    def _as_json(self, arguments: str) -> str:
        """The arguments with JSON's own quotes: between quote tokens stands text, elsewhere structure."""
        parts = arguments.split('<|"|>')
        if len(parts) % 2 == 0 or any('"' in part for part in parts[::2]):
            raise Malformed(InvalidReason.BAD_JSON)
        structure = [self._key.sub(r'\1"\2":', part) for part in parts[::2]]
        texts = [json.dumps(part) for part in parts[1::2]]
        return "".join(piece for pair in zip(structure, [*texts, ""], strict=True) for piece in pair)
