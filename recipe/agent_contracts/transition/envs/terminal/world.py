"""The world state of one terminal episode and the pure function that applies an action to it.

`World` is one value that is replaced and never mutated, so a snapshot is a reference to it. A refused action
(odd file name, no such file, ambiguous replacement, oversized content, bad arguments) gives back the very same
value with an observation `error: <reason>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jsonschema
import msgspec

from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.envs.terminal.tools import TOOLS

MAX_NAME_BYTES = 255
MAX_FILE_BYTES = 4096


class World(msgspec.Struct, frozen=True):
    """Everything that export_state exports."""

    files: Mapping[str, str]
    declared: Literal["finish", "abstain"] | None = None
    """How the agent ended the episode, if it did."""
    tool_calls: int = 0
    """Calls that were executed. Refused calls, invalid turns, finish and abstain do not count."""


class Refusal(Exception):
    """An action that has no effect; the message is the reason that the policy reads."""


_VALIDATORS = {tool.name: jsonschema.Draft202012Validator(tool.parameters) for tool in TOOLS}


def apply(world: World, action: Action, allowed: frozenset[str]) -> tuple[World, str]:
    """Apply one action.

    Args:
        world: The state before.
        action: A parsed action of any kind.
        allowed: Names of the tools that the task allows.

    Returns:
        The state after (the same object when the action was refused) and the observation.
    """
    if action.kind == "invalid":
        return world, f"error: {action.invalid_reason or 'invalid'}"
    try:
        return _execute(world, action, allowed)
    except Refusal as refusal:
        return world, f"error: {refusal}"


def _execute(world: World, action: Action, allowed: frozenset[str]) -> tuple[World, str]:
    name, args = action.name or action.kind, action.args or {}
    if name not in allowed or name not in _VALIDATORS:
        raise Refusal("unknown_tool")
    # The environment does not trust its caller to have used the strict parser.
    if not _VALIDATORS[name].is_valid(args):
        raise Refusal("bad_arguments")
    if name == "finish" or name == "abstain":
        return msgspec.structs.replace(world, declared=name), ""
    files, observation = _EFFECTS[name](world.files, args)
    return World(files, world.declared, world.tool_calls + 1), observation


def _list_files(files: Mapping[str, str], args: dict[str, Any]) -> tuple[Mapping[str, str], str]:
    return files, "\n".join(sorted(files))


def _read_file(files: Mapping[str, str], args: dict[str, Any]) -> tuple[Mapping[str, str], str]:
    return files, _content(files, args["path"])


def _write_file(files: Mapping[str, str], args: dict[str, Any]) -> tuple[Mapping[str, str], str]:
    _check_name(args["path"])
    _check_content(args["content"])
    return {**files, args["path"]: args["content"]}, "ok"


def _replace_in_file(files: Mapping[str, str], args: dict[str, Any]) -> tuple[Mapping[str, str], str]:
    before, old = _content(files, args["path"]), args["old"]
    matches = _count_overlapping(before, old)
    if matches != 1:
        raise Refusal("no_match" if matches == 0 else "several_matches")
    after = before.replace(old, args["new"])
    _check_content(after)
    return {**files, args["path"]: after}, "ok"


_EFFECTS: dict[str, Callable[[Mapping[str, str], dict[str, Any]], tuple[Mapping[str, str], str]]] = {
    "list_files": _list_files,
    "read_file": _read_file,
    "write_file": _write_file,
    "replace_in_file": _replace_in_file,
}


def _content(files: Mapping[str, str], path: str) -> str:
    _check_name(path)
    if path not in files:
        raise Refusal("no_file")
    return files[path]


def _count_overlapping(text: str, part: str) -> int:
    """Occurrences of `part`, overlapping ones included ("aa" is twice in "aaa"); none for an empty part."""
    if not part:
        return 0
    return sum(text.startswith(part, start) for start in range(len(text) - len(part) + 1))


def _check_name(path: str) -> None:
    if len(_utf8(path)) > MAX_NAME_BYTES or any(not char.isprintable() for char in path):
        raise Refusal("bad_path")
    # An empty part is an empty name, an absolute path, or a doubled or trailing slash.
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise Refusal("bad_path")


def _check_content(content: str) -> None:
    if len(_utf8(content)) > MAX_FILE_BYTES:
        raise Refusal("too_large")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # JSON can spell a lone surrogate; no file name, content or canonical JSON can hold it.
        raise Refusal("bad_text") from None
