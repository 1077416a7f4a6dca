"""What every strict parser does: cut thinking blocks, demand exactly one call alone in its turn, check the arguments.

A format adds its markup and how to read the text between its call markers. The order of the checks is the order of
`InvalidReason`'s table in docs/actions.md, so that a turn with several faults still has one documented reason.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import jsonschema

from recipe.agent_contracts.transition.actions import Action, InvalidReason
from recipe.agent_contracts.transition.parsers.values import strict_json

Tools = Mapping[str, dict[str, Any]]
"""JSON Schema of the arguments, by the name of each tool that the task allows."""

_TERMINAL_KINDS: dict[str, Literal["finish", "abstain"]] = {"finish": "finish", "abstain": "abstain"}


class Malformed(Exception):
    """The text between the call markers is not a call of an allowed tool."""

    def __init__(self, reason: InvalidReason, name: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.name = name


class Call(NamedTuple):
    """A call before its arguments are checked."""

    name: str
    args: dict[str, Any]


class StrictParser(ABC):
    """One tool-call format, strictly read. Behaviour never changes under one `version`."""

    format: ClassVar[str]
    """The format's name in verl's own registry of tool parsers."""
    version: ClassVar[str]
    """What manifests and experiments call this parser."""
    markers: ClassVar[tuple[str, str]]
    """What opens and closes a call."""
    thinking: ClassVar[tuple[str, str]] = ("<think>", "</think>")
    prompt_may_open_thinking: ClassVar[bool] = True
    """Whether a chat template may write the opening marker, so that a turn begins inside a thinking block."""

    def __init__(self) -> None:
        opening, closing = map(re.escape, self.markers)
        self._call = re.compile(f"{opening}(.*?){closing}", re.DOTALL)
        opening, closing = map(re.escape, self.thinking)
        self._thinking = re.compile(f"{opening}.*?{closing}", re.DOTALL)

    def parse(self, text: str, tools: Tools) -> Action:
        """Parse one model turn.

        Args:
            text: The decoded turn, special tokens kept, without the end-of-turn token.
            tools: JSON Schema of the arguments, by the name of each tool the task allows.

        Returns:
            The action; `kind == "invalid"` with its reason when the turn is not exactly one valid call.
        """
        text = self._opened(text)
        spoken = self._thinking.sub("", text)
        ignored = sum(len(self._call.findall(block)) for block in self._thinking.findall(text))
        try:
            call = self._read_turn(spoken, tools)
            _check_arguments(call, tools)
        except Malformed as fault:
            return Action("invalid", name=fault.name, invalid_reason=fault.reason, ignored_in_thinking=ignored)
        return Action(_TERMINAL_KINDS.get(call.name, "tool"), call.name, call.args, ignored_in_thinking=ignored)

    @abstractmethod
    def read(self, body: str, tools: Tools) -> Call:
        """Read the text between the call markers.

        Raises:
            Malformed: when it is not one call, or the values of an allowed tool cannot be read.
        """

    def unframed(self, spoken: str) -> str:
        """The turn without what the format writes around every call."""
        return spoken

    def _opened(self, text: str) -> str:
        opening, closing = self.thinking
        begins_inside = self.prompt_may_open_thinking and closing in text.partition(opening)[0]
        return opening + text if begins_inside else text

    def _read_turn(self, spoken: str, tools: Tools) -> Call:
        if self.thinking[0] in spoken:
            raise Malformed(InvalidReason.UNCLOSED_THINKING)
        bodies = self._call.findall(spoken)
        if not bodies:
            raise Malformed(InvalidReason.NO_CALL)
        if len(bodies) > 1 or spoken.count(self.markers[0]) > 1:
            raise Malformed(InvalidReason.SEVERAL_CALLS)
        if self.unframed(self._call.sub("", spoken)).strip():
            raise Malformed(InvalidReason.TEXT_AROUND_CALL)
        return self.read(bodies[0], tools)


def _check_arguments(call: Call, tools: Tools) -> None:
    if call.name not in tools:
        raise Malformed(InvalidReason.UNKNOWN_TOOL, call.name)
    if next(jsonschema.Draft202012Validator(tools[call.name]).iter_errors(call.args), None) is not None:
        raise Malformed(InvalidReason.BAD_ARGUMENTS, call.name)
    try:
        json.dumps(call.args, allow_nan=False)
    except ValueError:  # 1e400 is a JSON number, but no double holds it: its record could not be read back
        raise Malformed(InvalidReason.BAD_ARGUMENTS, call.name) from None


def whole(element: re.Pattern[str], body: str) -> re.Match[str]:
    """The match of a call that has its format's shape from end to end.

    Raises:
        Malformed: ``bad_shape`` when it has not.
    """
    match = element.fullmatch(body)
    if match is None:
        raise Malformed(InvalidReason.BAD_SHAPE)
    return match


def read_json(text: str) -> Any:
    """The value that a text spells in strict JSON.

    Raises:
        Malformed: ``bad_json`` when it spells none.
    """
    try:
        return strict_json(text)
    except ValueError:
        raise Malformed(InvalidReason.BAD_JSON) from None


def read_parameters(text: str, parameter: re.Pattern[str], next_call: str) -> list[tuple[str, ...]]:
    """The groups of each parameter of a call that is written as markup, its name first.

    Args:
        text: What stands between the call's name and its end: parameters and white space only.
        parameter: One whole parameter.
        next_call: What would begin a second call in the same block.

    Raises:
        Malformed: for anything else in between, and for a parameter that is given twice.
    """
    rest = parameter.sub("", text)
    if rest.strip():
        raise Malformed(InvalidReason.SEVERAL_CALLS if next_call in rest else InvalidReason.BAD_SHAPE)
    found = [match.groups() for match in parameter.finditer(text)]
    if len({groups[0] for groups in found}) != len(found):
        raise Malformed(InvalidReason.BAD_SHAPE)
    return found
