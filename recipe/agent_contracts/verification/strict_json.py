"""JSON from a process that is not trusted: refused when it is odd, never repaired.

Python's own decoder takes the last of two equal keys, NaN, 1e999 as infinity and lone surrogates, and ends in a
RecursionError when brackets nest deep enough. Each of these has been a way to a reward, or to a crash of the grader.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_DIGITS = 4300
"""Of one number; more cost quadratic time."""
# Possessive, and without its closing quote where that is missing: each character is looked at once.
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def decode(data: bytes, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """The one JSON value in `data`, built of dict, list, str, int, float, bool and None only.

    Raises:
        ValueError: for anything else than one strict JSON text within the bounds.
    """
    if len(data) > max_bytes:
        raise ValueError(f"{len(data)} bytes, more than {max_bytes}")
    text = data.decode("utf-8")
    if text.startswith("\ufeff"):
        raise ValueError("a byte order mark")
    _check_depth(text, max_depth)
    value = json.loads(
        text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_finite, parse_int=_integer
    )
    # A lone surrogate, which only an escape can spell, cannot be written as UTF-8.
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def same(left: Any, right: Any) -> bool:
    """Whether two decoded values are equal in type and value: True is not 1, and 1 is not 1.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _check_depth(text: str, max_depth: int) -> None:
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        if found[0] in "[{":
            depth += 1
            if depth > max_depth:
                raise ValueError(f"nested deeper than {max_depth}")
        elif found[0] in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key that occurs twice")
    return value


def _constant(name: str) -> None:
    raise ValueError(f"{name}, which is not JSON")


def _finite(digits: str) -> float:
    value = float(_short(digits))
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]}, which is out of range")
    return value


def _integer(digits: str) -> int:
    return int(_short(digits))


def _short(digits: str) -> str:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return digits
