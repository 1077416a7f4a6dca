"""The world state of one terminal episode and the pure function that applies an action to it.

`World` is one value that is replaced and never mutated, so a snapshot is a reference to it, and a write costs the
directories on its path. A refused action (odd file name, no such file, ambiguous replacement, oversized content, bad
arguments) gives back the very same value with an observation `error: <reason>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jsonschema
import msgspec

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.envs.terminal.tools import TOOLS
from recipe.agent_contracts.transition.tree import Directory, File

MAX_NAME_BYTES = 255
MAX_FILE_BYTES = 4096


class World(msgspec.Struct, frozen=True):
    """Everything that a step can change."""

    files: Directory
    declared: Literal["finish", "abstain"] | None = None
    """How the agent ended the episode, if it did."""
    tool_calls: int = 0
    """Calls that were executed. Refused calls, invalid turns, finish and abstain do not count."""

    @classmethod
    def of(cls, files: Mapping[str, str]) -> World:
        """The world in which an episode starts."""
        return cls(Directory.from_files({path: content.encode() for path, content in files.items()}))

    @classmethod
    def from_tree(cls, tree: Directory) -> World:
        """The world that `tree` gave."""
        progress = msgspec.json.decode(tree.files[_PROGRESS].data, type=_Progress)
        return cls(tree.directories[_FILES], progress.declared, progress.tool_calls)

    def tree(self) -> Directory:
        """The agent's files below `files`, what else there is beside them."""
        progress = File(msgspec.json.encode(_Progress(self.declared, self.tool_calls)))
        return Directory({_PROGRESS: progress}, {_FILES: self.files})

    def export(self) -> bytes:
        """Canonical JSON `{"declared": ..., "files": {path: content}, "tool_calls": n}`."""
        files = {path: file.data.decode() for path, file in self.files.walk()}
        return canonical_json({"files": files, "declared": self.declared, "tool_calls": self.tool_calls})


class _Progress(msgspec.Struct, frozen=True):
    declared: Literal["finish", "abstain"] | None
    tool_calls: int


_FILES, _PROGRESS = "files", "progress.json"


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


def _list_files(files: Directory, args: dict[str, Any]) -> tuple[Directory, str]:
    return files, "\n".join(sorted(path for path, _ in files.walk()))


def _read_file(files: Directory, args: dict[str, Any]) -> tuple[Directory, str]:
    return files, _content(files, args["path"])


def _write_file(files: Directory, args: dict[str, Any]) -> tuple[Directory, str]:
    _check_name(args["path"])
    return files.set(args["path"], File(_checked_content(args["content"]))), "ok"


def _replace_in_file(files: Directory, args: dict[str, Any]) -> tuple[Directory, str]:
    before, old = _content(files, args["path"]), args["old"]
    matches = _count_overlapping(before, old)
    if matches != 1:
        raise Refusal("no_match" if matches == 0 else "several_matches")
    after = before.replace(old, args["new"])
    return files.set(args["path"], File(_checked_content(after))), "ok"


_EFFECTS: dict[str, Callable[[Directory, dict[str, Any]], tuple[Directory, str]]] = {
    "list_files": _list_files,
    "read_file": _read_file,
    "write_file": _write_file,
    "replace_in_file": _replace_in_file,
}


def _content(files: Directory, path: str) -> str:
    _check_name(path)
    file = files.get(path)
    if file is None:
        raise Refusal("no_file")
    return file.data.decode()


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


def _checked_content(content: str) -> bytes:
    encoded = _utf8(content)
    if len(encoded) > MAX_FILE_BYTES:
        raise Refusal("too_large")
    return encoded


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # JSON can spell a lone surrogate; no file name, content or canonical JSON can hold it.
        raise Refusal("bad_text") from None
