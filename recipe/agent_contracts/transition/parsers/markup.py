"""Formats that write a call as markup, one element a parameter: Qwen3-Coder, Seed, MiniMax, GLM.

None says whether a value is text or JSON: the tool's schema decides (`values.by_schema`). Values are taken as they
stand; entities are not decoded. A parameter's own closing marker cannot be part of its value.
"""

from __future__ import annotations

import re
from typing import ClassVar

from recipe.agent_contracts.transition.actions import InvalidReason
from recipe.agent_contracts.transition.parsers.base import Call, Malformed, StrictParser, Tools, read_parameters, whole
from recipe.agent_contracts.transition.parsers.values import by_schema


class MarkupParser(StrictParser):
    """A call element with a name, around parameter elements."""

    element: ClassVar[re.Pattern[str]]
    """The whole text between the call markers: groups are the tool's name and the parameters."""
    parameter: ClassVar[re.Pattern[str]]
    """One parameter: groups are its name and its value."""
    next_call: ClassVar[str]
    """What would begin a second call between the same markers."""

    def read(self, body: str, tools: Tools) -> Call:
        match = whole(self.element, body)
        name = match[1]
        pairs = read_parameters(match[2], self.parameter, self.next_call)
        if name not in tools:
            raise Malformed(InvalidReason.UNKNOWN_TOOL, name)
        try:
            return Call(name, {key: by_schema(self.value(text), key, tools[name]) for key, text in pairs})
        except ValueError:
            raise Malformed(InvalidReason.BAD_JSON) from None

    def value(self, text: str) -> str:
        """A value without the white space that the format itself writes around it; by default it writes none."""
        return text


class Qwen3CoderParser(MarkupParser):
    """Qwen3-Coder and Qwen 3.5: `<function=NAME><parameter=KEY>` with one line break on each side of a value."""

    format = "qwen3_coder"
    version = "qwen3_coder-strict-v1"
    markers = ("<tool_call>", "</tool_call>")
    element = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
    parameter = re.compile(r"<parameter=([^>\n]+)>(.*?)</parameter>", re.DOTALL)
    next_call = "<function="

    def value(self, text: str) -> str:
        return text.removeprefix("\n").removesuffix("\n")


class SeedParser(MarkupParser):
    """Seed: as Qwen3-Coder inside `<seed:tool_call>`, values without line breaks of the format's own."""

    format = "seed"
    version = "seed-strict-v1"
    markers = ("<seed:tool_call>", "</seed:tool_call>")
    thinking = ("<seed:think>", "</seed:think>")
    element = Qwen3CoderParser.element
    parameter = Qwen3CoderParser.parameter
    next_call = Qwen3CoderParser.next_call


class MiniMaxParser(MarkupParser):
    """MiniMax M2: `<invoke name="NAME"><parameter name="KEY">`."""

    format = "minimax"
    version = "minimax-strict-v1"
    markers = ("<minimax:tool_call>", "</minimax:tool_call>")
    element = re.compile(r'\s*<invoke name="([^"\n]+)">(.*)</invoke>\s*', re.DOTALL)
    parameter = re.compile(r'<parameter name="([^"\n]+)">(.*?)</parameter>', re.DOTALL)
    next_call = "<invoke name="


class GlmParser(MarkupParser):
    """GLM 4.5 and later: the bare name, then `<arg_key>`, `<arg_value>` pairs."""

    format = "glm"
    version = "glm-strict-v1"
    markers = ("<tool_call>", "</tool_call>")
    element = re.compile(r"\s*([^<>\s]+)\s*((?:<arg_key>.*)?)", re.DOTALL)
    parameter = re.compile(r"<arg_key>([^<>\n]+)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
    next_call = "<tool_call>"
