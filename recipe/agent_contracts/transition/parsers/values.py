"""Argument values from text: strict JSON, and text that a tool's schema says how to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 64
"""Deepest nesting of arrays and objects. A fixed bound: Python's own depends on how deep the caller stands."""


def strict_json(text: str) -> Any:
    """`json.loads` that refuses what cannot be recorded and hashed exactly.

    Raises:
        ValueError: for duplicate keys, NaN, infinities, integers beyond 2**53, escapes of lone surrogates, nesting
            beyond `MAX_DEPTH`, and text that is not JSON.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            raise ValueError(f"duplicate keys in {keys}")
        return dict(pairs)

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    def bounded(digits: str) -> int:
        # RFC 8785 hashing is exact only up to 2**53; more digits than that are refused before int() sees them.
        if len(digits) > 17 or abs(int(digits)) > 2**53:
            raise ValueError("integer beyond 2**53")
        return int(digits)

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_int=bounded)
        # An escape can spell half a character, which no UTF-8 record can hold: encoding it is a ValueError.
        json.dumps(value, ensure_ascii=False).encode()
        too_deep = _depth(value) > MAX_DEPTH
    except RecursionError:
        too_deep = True
    if too_deep:
        raise ValueError(f"JSON nested too deeply, more than {MAX_DEPTH} levels")
    return value


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def by_schema(text: str, parameter: str, schema: Mapping[str, Any]) -> Any:
    """A value of a format that does not say whether it is text or JSON.

    Args:
        text: The value as the model wrote it.
        parameter: Its name.
        schema: JSON Schema of the tool's arguments object.

    Returns:
        The text itself when the parameter is a string, may be one, or has no declared type; else the JSON it spells.

    Raises:
        ValueError: when it should spell JSON and does not.
    """
    declared = schema.get("properties", {}).get(parameter)
    kind = declared.get("type", "string") if isinstance(declared, Mapping) else "string"
    return text if "string" in ([kind] if isinstance(kind, str) else kind) else strict_json(text)
