"""Dotted keys of a resolved configuration, and how a problem with them is worded.

A configuration here is plain dicts and lists. Every message names its keys with their values in the spelling of an
override, so that it can be pasted back into a command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recipe.agent_contracts.errors import ConfigContradiction

Config = Mapping[str, Any]

ACTOR = "actor_rollout_ref.actor"
REF = "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"


def lookup(config: Config, key: str, default: Any = None) -> Any:
    """The value at a dotted key, or `default` when any part of the way is missing."""
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return default
        node = node[part]
    return node


def shown(key: str, value: Any) -> str:
    """`key=value`, as in an override."""
    return f"{key}={value if isinstance(value, str) else json.dumps(value, default=str)}"


def clash(config: Config, first: str, second: str, why: str, fix: str) -> str:
    """One line on two keys that contradict each other: both keys, both values, the reason and the fix."""
    left, right = (shown(key, lookup(config, key)) for key in (first, second))
    return f"{left} contradicts {right}: {why}. {fix}."


def refuse(problems: Sequence[str]) -> None:
    """Raise one error that lists every problem; return when there is none.

    Raises:
        ConfigContradiction: when `problems` is not empty.
    """
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ConfigContradiction("\n- ".join([f"{count} in the configuration; nothing was started:", *problems]))
