"""Reads a configuration node into nested dataclasses and words what is wrong with it, all problems at once.

Types are checked as they are in the YAML: no string becomes a number, no bool an int. Bounds are msgspec's `Meta`;
a `Literal` lists the values that are implemented.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from recipe.agent_contracts.config.keys import Config, shown


def read_sections(record: type, node: Config, path: str) -> tuple[dict[str, Any], list[str]]:
    """One dataclass instance for each section of `record`, and the problems (then the instances are incomplete)."""
    sections, problems = {}, _names(record, node, path)
    for name, section in get_type_hints(record).items():
        key = f"{path}.{name}"
        if name not in node:
            continue
        if not isinstance(node[name], Mapping):
            problems.append(f"{shown(key, node[name])}: expected a section with the keys {', '.join(fields(section))}.")
            continue
        values, found = _read_section(section, node[name], key)
        problems += found
        if not found:
            sections[name] = section(**values)
    return sections, problems


def fields(record: type) -> list[str]:
    """Names of a dataclass's fields, in order."""
    return list(get_type_hints(record))


def _read_section(record: type, node: Config, path: str) -> tuple[dict[str, Any], list[str]]:
    values, problems = {}, _names(record, node, path)
    for name, kind in get_type_hints(record, include_extras=True).items():
        if name in node:
            try:
                values[name] = _read(kind, node[name])
            except ValueError as error:
                problems.append(f"{shown(f'{path}.{name}', node[name])}: {error}.")
    return values, problems


def _names(record: type, node: Config, path: str) -> list[str]:
    """Keys that are not part of `record`, each with the nearest that is, and keys that are absent."""
    known = fields(record)
    missing = [f"{path}.{name} is missing." for name in known if name not in node]
    return [
        f"{path}.{name} is not a key of the experiment. {_nearest(name, known)}" for name in node if name not in known
    ] + missing


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"Its keys are {', '.join(known)}."


def _read(kind: Any, value: Any) -> Any:
    """`value` as `kind`.

    Raises:
        ValueError: saying what was expected.
    """
    if get_origin(kind) is Literal:
        return _choose(get_args(kind), value)
    if kind is type(None):
        return _choose((None,), value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("expected a finite number")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _choose(implemented: tuple[Any, ...], value: Any) -> Any:
    for candidate in implemented:
        # `1 == True` in Python: the type must agree too.
        if type(candidate) is type(value) and candidate == value:
            return candidate
    names = " or ".join("null" if item is None else str(item).lower() for item in implemented)
    raise ValueError(f"not implemented in this version, which supports only {names}")
