"""Rendering, breaking and sampling the small files that terminal tasks are made of.

An entry table is a list of (key, value). Every value is one word or one two-digit number: small enough for a
0.6M-parameter policy to copy, and still enough for millions of different files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random

Entry = tuple[str, str]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KEYS = _words(
    "port host mode level retries timeout owner region limit depth theme color proxy queue shard title unit stage cache"
    " batch"
)
WORDS = _words(
    "alpha beta gamma delta omega red blue green amber fast slow east west north south cedar maple birch iron zinc"
    " lunar solar tiger eagle coral ivory pearl onyx ruby opal"
)
STEMS = _words("app base core data edge flow grid home item job main node prod site task user")
LEVELS = _words("error warn debug")

_LINES: dict[str, Callable[[Entry], str]] = {
    "ini": lambda entry: f"{entry[0]}={entry[1]}",
    "csv": lambda entry: f"{entry[0]},{entry[1]}",
    "txt": lambda entry: f"{entry[0]}: {entry[1]}",
    "log": lambda entry: f"{entry[0]} {entry[1]}",
}
_BROKEN_LINES: dict[str, Callable[[Entry], str]] = {
    "ini": lambda entry: f"{entry[0]}:{entry[1]}",
    "csv": lambda entry: f"{entry[0]};{entry[1]}",
    "txt": lambda entry: f"{entry[0]} {entry[1]}",
    "log": lambda entry: f"{entry[0]}={entry[1]}",
}
_CSV_HEADER = "key,value"


def render(fmt: str, entries: Sequence[Entry]) -> str:
    """The content of a file. In a log the value is `code place` and the key is the level."""
    if fmt == "json":
        return json.dumps(dict(entries))
    return _join(fmt, [_LINES[fmt](entry) for entry in entries])


def render_broken(fmt: str, entries: Sequence[Entry], rng: Random) -> str:
    """The same content with one syntax error."""
    broken = rng.randrange(len(entries))
    if fmt != "json":
        return _join(fmt, [(_BROKEN_LINES if i == broken else _LINES)[fmt](e) for i, e in enumerate(entries)])
    if rng.random() < 0.5:
        return render(fmt, entries).removesuffix("}")
    pairs = [f'"{key}" "{value}"' if i == broken else f'"{key}": "{value}"' for i, (key, value) in enumerate(entries)]
    return "{" + ", ".join(pairs) + "}"


def render_schema(defaults: Sequence[Entry]) -> str:
    """One line `key:type=default` for each key; the type is `int` or `word`."""
    return "\n".join(f"{key}:{type_of(value)}={value}" for key, value in defaults)


def type_of(value: str) -> str:
    """The schema type that a value satisfies."""
    return "int" if value.isdigit() else "word"


def sample_value(rng: Random, other_than: str | None = None) -> str:
    """A word or a two-digit number that differs from `other_than`."""
    while True:
        value = rng.choice(WORDS) if rng.random() < 0.6 else str(rng.randint(10, 99))
        if value != other_than:
            return value


def sample_entries(rng: Random, fmt: str, must_have: str | None = None) -> list[Entry]:
    """Two or three entries (two in three of four files), with the key `must_have` among them."""
    pool = LEVELS if fmt == "log" else KEYS
    keys = rng.sample(pool, rng.choice((2, 2, 2, 3)))
    if must_have is not None and must_have not in keys:
        keys[rng.randrange(len(keys))] = must_have
    if fmt == "log":
        return [(key, f"{rng.randint(10, 99)} {rng.choice(STEMS)}") for key in keys]
    return [(key, sample_value(rng)) for key in keys]


def with_value(entries: Sequence[Entry], key: str, value: str) -> list[Entry]:
    """The entries with the value of `key` replaced."""
    return [(name, value if name == key else old) for name, old in entries]


def without(entries: Sequence[Entry], key: str) -> list[Entry]:
    """The entries without `key`."""
    return [entry for entry in entries if entry[0] != key]


def _join(fmt: str, lines: list[str]) -> str:
    return "\n".join([_CSV_HEADER, *lines] if fmt == "csv" else lines)
