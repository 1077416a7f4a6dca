"""What an action changed: two exported states compared value by value."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

_ABSENT = object()


def state_diff(before: bytes, after: bytes) -> list[str]:
    """Lines that say what differs between two exported states.

    Args:
        before, after: Canonical JSON, as `AgentEnv.export_state` gives it.

    Returns:
        One line a changed value (`+` added, `-` removed, `~` changed, named by its JSON pointer), with a line diff
        below where a text of several lines changed. Empty when nothing did.
    """
    old, new = dict(_leaves(json.loads(before))), dict(_leaves(json.loads(after)))
    lines: list[str] = []
    for pointer in sorted(old.keys() | new.keys()):
        lines += _change(pointer, old.get(pointer, _ABSENT), new.get(pointer, _ABSENT))
    return lines


def _leaves(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict | list) or not value:
        yield pointer, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(inner, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")


def _change(pointer: str, old: Any, new: Any) -> list[str]:
    # 1 == True in Python, and the two are different JSON.
    if old is not _ABSENT and new is not _ABSENT and json.dumps(old) == json.dumps(new):
        return []
    if old is _ABSENT:
        return [f"+ {pointer} = {json.dumps(new, ensure_ascii=False)}"]
    if new is _ABSENT:
        return [f"- {pointer} = {json.dumps(old, ensure_ascii=False)}"]
    if isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        diff = list(difflib.unified_diff(old.split("\n"), new.split("\n"), lineterm="", n=1))[2:]
        return [f"~ {pointer}", *(f"    {line}" for line in diff)]
    return [f"~ {pointer}: {json.dumps(old, ensure_ascii=False)} -> {json.dumps(new, ensure_ascii=False)}"]
