"""Which environment and which verifier a task domain names. One entry a domain; both sides are import paths.

The environment and its verifier never import each other: they meet only in the exported state.
"""

from __future__ import annotations

import importlib
from typing import Any

import msgspec


class Domain(msgspec.Struct, frozen=True):
    """One task domain."""

    environment: str
    """`module:function` that opens an environment for one task: f(task_json) -> (AgentEnv, task)."""
    verifier: str
    """`module:Class` of the verifier."""
    find_row: str | None = None
    """`module:function` that gives one task by name, for playing without a data file: f(split, index, seed) -> row."""


DOMAINS = {
    "terminal": Domain(
        environment="recipe.agent_contracts.transition.envs.terminal.env:open_task",
        verifier="recipe.agent_contracts.verification.terminal:TerminalVerifier",
        find_row="recipe.agent_contracts.transition.envs.terminal.dataset:find_row",
    ),
}


def domain_of(data_source: str) -> Domain:
    """The domain of a dataset row (`terminal/train` -> terminal).

    Raises:
        ValueError: naming the domains that exist.
    """
    name = data_source.split("/", 1)[0]
    if name not in DOMAINS:
        raise ValueError(f"data_source={data_source!r} names no task domain; known: {sorted(DOMAINS)}")
    return DOMAINS[name]


def load(path: str) -> Any:
    """Import `module:attribute`.

    Raises:
        ValueError: when the path has no such form or names nothing.
    """
    module_name, separator, attribute = path.partition(":")
    if not separator:
        raise ValueError(f"{path!r} is not of the form module:attribute")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path!r} cannot be loaded: {error}") from error
