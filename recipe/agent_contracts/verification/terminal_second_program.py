"""An independent answer to terminal tasks: what the text asks for, worked out from the text and the first files alone.

It shares no code with the task generator, the hidden grader or the verifier, so that a mistake of theirs is not
repeated here. It reads the objective as a person would (which files and which key it names, what is left over) and
holds the files to their own conventions: `key=value` in ini, `key,value` below a header in csv, `key: value` in txt,
`level code place` in log, one line of `{"key": "value"}` in json; no newline at the end; `none` alone is a file yet to
be filled. A file that the text does not ask to change stays as it is, and completion must be declared with `finish`.
It raises ValueError for a text that it cannot read, and never guesses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from recipe.agent_contracts.verification.labels import Fault

VERSION = "terminal-second-program-v1"

_SEPARATORS = {"ini": "=", "csv": ",", "txt": ": ", "log": " "}
_REPAIR_WORDS = {"repair", "fix", "broken", "valid", "syntax"}
_FILLING = (
    "a and as be change for has in is it make must of one please put right set should take the to update use wrong"
)
"""Words that stand around what a text names."""


class Answer(NamedTuple):
    """The one file that a task asks to change, and its right content."""

    path: str
    content: str


class Asked(NamedTuple):
    """What the text names."""

    text: str
    """In lower case, with the named files replaced by `#0`, `#1` in the order in which they are named first."""
    paths: list[str]
    words: list[str]
    """Every other word."""


def answer(objective: str, files: Mapping[str, str]) -> Answer:
    """What the objective asks for.

    Args:
        objective: The task's text.
        files: Initial content by path.

    Raises:
        ValueError: when the text cannot be read.
    """
    asked = _asked(objective, files)
    is_broken = len(asked.paths) == 1 and bool(_REPAIR_WORDS & set(asked.words))
    key = None if is_broken else _key(asked, files)
    match len(asked.paths), key:
        case 1, None:
            return Answer(asked.paths[0], _repaired(_kind(asked.paths[0]), files[asked.paths[0]]))
        case 1, str():
            return _set_or_drop(asked, key, files)
        case 2, None:
            return _converted(asked, files)
        case 2, str():
            return _taken_over(asked, key, files)
    raise ValueError(f"cannot tell what is asked: {objective!r}")


def faults(wanted: Answer, files: Mapping[str, str], final_state: bytes) -> list[Fault]:
    """What is wrong with a final state, sorted; nothing when it is right.

    Args:
        wanted: Of `answer`.
        files: Initial content by path.
        final_state: Exported state.
    """
    state = json.loads(final_state)
    after: dict[str, str] = state["files"]
    paths = (files.keys() | after.keys()) - {wanted.path}
    changed = {path for path in paths if files.get(path) != after.get(path)}
    found = []
    if changed & files.keys():
        found.append(Fault.BROKEN_RULE)
    if after.get(wanted.path) != wanted.content or state["declared"] != "finish":
        found.append(Fault.NOT_DONE)
    if changed:
        found.append(Fault.SIDE_EFFECT)
    return found


def is_whitespace_only(wanted: Answer, files: Mapping[str, str], final_state: bytes) -> bool:
    """Whether a state is wrong for white space alone: at the ends of lines or the file, or within JSON."""
    state = json.loads(final_state)
    found = state["files"].get(wanted.path)
    if found in (None, wanted.content) or _loosely(wanted.path, found) != _loosely(*wanted):
        return False
    state["files"][wanted.path] = wanted.content
    return not faults(wanted, files, json.dumps(state).encode())


def _loosely(path: str, content: str) -> str:
    stripped = "\n".join(line.strip() for line in content.strip().splitlines())
    if _kind(path) != "json":
        return stripped
    try:
        return json.dumps(json.loads(stripped))
    except ValueError:
        return stripped


def _asked(objective: str, files: Mapping[str, str]) -> Asked:
    text = objective.lower()
    paths = sorted((path for path in files if path in text), key=text.index)
    for index, path in enumerate(paths):
        text = text.replace(path, f"#{index}")
    return Asked(text, paths, re.findall(r"(?<![#\w])\w+", text))


def _kind(path: str) -> str:
    return path.rpartition(".")[2]


def _key(asked: Asked, files: Mapping[str, str]) -> str | None:
    """The one word that is a key of a named file."""
    known = {key for path in asked.paths if _kind(path) != "schema" for key in _entries(_kind(path), files[path])}
    named = {word for word in asked.words if word in known}
    if len(named) > 1:
        raise ValueError(f"several keys are named: {sorted(named)}")
    return named.pop() if named else None


def _entries(kind: str, content: str) -> dict[str, str]:
    """Keys and values in their order. What is no entry is left out."""
    if content == "none":
        return {}
    if kind == "json":
        parsed: dict[str, Any] = json.loads(content)
        return parsed
    lines = content.split("\n")[1:] if kind == "csv" else content.split("\n")
    pairs = [line.partition(_SEPARATORS[kind]) for line in lines]
    return {key: value for key, separator, value in pairs if separator}


def _written(kind: str, entries: Mapping[str, str]) -> str:
    if kind == "json":
        return "{" + ", ".join(f'"{key}": "{value}"' for key, value in entries.items()) + "}"
    lines = [f"{key}{_SEPARATORS[kind]}{value}" for key, value in entries.items()]
    return "\n".join(["key,value", *lines] if kind == "csv" else lines)


def _repaired(kind: str, content: str) -> str:
    """The words of a broken file are whole; only what stands between them is not."""
    if kind == "json":
        words = re.findall(r'"(\w+)"', content)
        return _written(kind, dict(zip(words[::2], words[1::2], strict=True)))
    lines = [re.findall(r"\w+", line) for line in content.split("\n")]
    return "\n".join(f"{first}{_SEPARATORS[kind]}{' '.join(rest)}" for first, *rest in lines)


def _set_or_drop(asked: Asked, key: str, files: Mapping[str, str]) -> Answer:
    (path,) = asked.paths
    entries = _entries(_kind(path), files[path])
    if {"remove", "delete", "drop"} & set(asked.words) or "should not have" in asked.text:
        return Answer(path, _written(_kind(path), {name: entries[name] for name in entries if name != key}))
    values = set(asked.words) - {key, *_FILLING.split()}
    if len(values) != 1:
        raise ValueError(f"not one value is named: {sorted(values)}")
    return Answer(path, _written(_kind(path), {**entries, key: values.pop()}))


def _taken_over(asked: Asked, key: str, files: Mapping[str, str]) -> Answer:
    """One entry of one file goes into another: as an entry, or alone into a text file."""
    first, second = asked.paths
    if "txt" in (_kind(first), _kind(second)):
        source, target = (second, first) if _kind(first) == "txt" else (first, second)
        # In a log the value is the code; the place after it is not.
        return Answer(target, _entries(_kind(source), files[source])[key].split()[0])
    is_first_the_source = re.search(r"(from|of) #0|#0 has the right|in #0 is right", asked.text)
    source, target = (first, second) if is_first_the_source else (second, first)
    value = _entries(_kind(source), files[source])[key]
    return Answer(target, _written(_kind(target), {**_entries(_kind(target), files[target]), key: value}))


def _converted(asked: Asked, files: Mapping[str, str]) -> Answer:
    """A file made valid for a schema, or command output written in another format."""
    kinds = {_kind(path): path for path in asked.paths}
    source = kinds.pop("schema", None) or kinds.pop("txt")
    ((kind, target),) = kinds.items()
    if _kind(source) == "txt":
        return Answer(target, _written(kind, _entries("txt", files[source])))
    given, right = _entries(kind, files[target]), {}
    for key, wanted, default in re.findall(r"^(\w+):(\w+)=(\w+)$", files[source], re.MULTILINE):
        is_valid = key in given and given[key].isdigit() == (wanted == "int")
        right[key] = given[key] if is_valid else default
    return Answer(target, _written(kind, right))
