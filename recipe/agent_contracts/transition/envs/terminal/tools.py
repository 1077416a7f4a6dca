"""The tools of the terminal environment, as schemas. Their effects are in world.py."""

from __future__ import annotations

from typing import Any

from recipe.agent_contracts.transition.env import ToolSchema


def _strings(*names: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }


TOOLS: tuple[ToolSchema, ...] = (
    ToolSchema("list_files", "List the file names.", _strings()),
    ToolSchema("read_file", "Read one file.", _strings("path")),
    ToolSchema("write_file", "Create or overwrite one file.", _strings("path", "content")),
    ToolSchema("replace_in_file", "Replace the only occurrence of a text.", _strings("path", "old", "new")),
    ToolSchema("finish", "Declare the task done.", _strings()),
    ToolSchema("abstain", "Declare that the task cannot be done.", _strings()),
)
"""Every tool, in the order the model sees them."""

TOOL_NAMES: tuple[str, ...] = tuple(tool.name for tool in TOOLS)


def parameters_by_name(tools: list[ToolSchema]) -> dict[str, dict[str, Any]]:
    """The argument schemas as the action parser takes them."""
    return {tool.name: tool.parameters for tool in tools}
