"""Named corruptions: from the right final state of a terminal task to one that is wrong in one known way.

Each says which faults it makes. A corruption that a task leaves no room for (no letter whose case could change, no
second line) gives nothing, and never a state that is still right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal

import msgspec

from recipe.agent_contracts.transition.envs.terminal.generator import Scenario
from recipe.agent_contracts.verification.labels import Fault

Declared = Literal["finish", "abstain"] | None

_LOOKALIKES = {"a": "\N{CYRILLIC SMALL LETTER A}", "e": "\N{CYRILLIC SMALL LETTER IE}", "1": "l", "0": "O"}


class Outcome(msgspec.Struct, frozen=True):
    """How an episode ended, before it is exported."""

    files: dict[str, str]
    declared: Declared = "finish"


class Corruption(msgspec.Struct, frozen=True):
    """One way to make a right state wrong."""

    name: str
    faults: list[Fault]
    """Sorted."""
    apply: Callable[[Scenario], Outcome | None]
    """From a task to the corrupted state. None: the task leaves no room for it."""


def right_outcome(scenario: Scenario) -> Outcome:
    """The state that solves a task and touches nothing else."""
    return Outcome({**scenario.task.files, **scenario.grader.expected})


def _in_content(name: str, change: Callable[[str], str | None]) -> Corruption:
    """Another content of the file that the task asks to change."""

    def apply(scenario: Scenario) -> Outcome | None:
        plan = scenario.blueprint
        changed = change(plan.expected)
        return None if changed is None else Outcome({**scenario.task.files, plan.target: changed})

    return Corruption(name, [Fault.NOT_DONE], apply)


def _instead(name: str, wrong: Callable[[Scenario], str]) -> Corruption:
    """A wrong result instead of the right one."""
    return Corruption(
        name,
        [Fault.NOT_DONE],
        lambda scenario: Outcome({**scenario.task.files, scenario.blueprint.target: wrong(scenario)}),
    )


def _in_files(name: str, faults: list[Fault], change: Callable[[Scenario, dict[str, str]], object]) -> Corruption:
    """Another file tree; `change` edits the right one in place, and gives False where it cannot."""

    def apply(scenario: Scenario) -> Outcome | None:
        files = right_outcome(scenario).files
        return None if change(scenario, files) is False else Outcome(files)

    return Corruption(name, faults, apply)


def _declared(name: str, declared: Declared) -> Corruption:
    return Corruption(
        name, [Fault.NOT_DONE], lambda scenario: msgspec.structs.replace(right_outcome(scenario), declared=declared)
    )


def _last(text: str, is_wanted: Callable[[str], bool], other: Callable[[str], str]) -> str | None:
    """The text with the last wanted character replaced."""
    place = max((index for index, char in enumerate(text) if is_wanted(char)), default=None)
    return None if place is None else text[:place] + other(text[place]) + text[place + 1 :]


def _next(char: str) -> str:
    return {"9": "0", "z": "a"}.get(char) or chr(ord(char) + 1)


def _reordered(text: str) -> str | None:
    *head, one, two = ["", *text.split("\n")]
    return "\n".join([*head[1:], two, one]) if head else None


def _respaced(text: str) -> str | None:
    return json.dumps(json.loads(text), separators=(",", ":")) if text.startswith("{") else None


def _move(scenario: Scenario, files: dict[str, str], path: str) -> None:
    """The right content lies at another path, and the target is as it was."""
    target = scenario.blueprint.target
    files[path], files[target] = files[target], scenario.task.files[target]


def _swap(scenario: Scenario, files: dict[str, str]) -> None:
    one, two = scenario.blueprint.target, scenario.blueprint.distractor
    files[one], files[two] = files[two], files[one]


def _change_source(scenario: Scenario, files: dict[str, str]) -> bool:
    source = scenario.blueprint.source
    if source:
        files[source] = files[source].replace("\n", " ")[:-1]
    return bool(source)


_TOUCHED = [Fault.BROKEN_RULE, Fault.SIDE_EFFECT]
_MISPLACED = [Fault.BROKEN_RULE, Fault.NOT_DONE, Fault.SIDE_EFFECT]
_ADDED = [Fault.NOT_DONE, Fault.SIDE_EFFECT]

CORRUPTIONS: tuple[Corruption, ...] = (
    _in_content("newline added at the end", lambda text: text + "\n"),
    _in_content("space added at the end", lambda text: text + " "),
    _in_content("space added at the start", lambda text: " " + text),
    _in_content("newline missing", lambda text: text.replace("\n", "", 1) if "\n" in text else None),
    _in_content("newlines of another system", lambda text: text.replace("\n", "\r\n") if "\n" in text else None),
    _in_content("json without spaces", _respaced),
    _in_content("byte order mark", lambda text: "\N{ZERO WIDTH NO-BREAK SPACE}" + text),
    _in_content("truncated", lambda text: text[:-1]),
    _in_content("emptied", lambda text: ""),
    _in_content("last line twice", lambda text: text + "\n" + text.rpartition("\n")[2]),
    _in_content("last lines in another order", _reordered),
    _in_content("one value wrong", lambda text: _last(text, lambda char: char.isascii() and char.isalnum(), _next)),
    _in_content("case changed", lambda text: _last(text, str.isalpha, str.swapcase)),
    _in_content("lookalike letter", lambda text: _last(text, _LOOKALIKES.__contains__, _LOOKALIKES.__getitem__)),
    _instead("right change of the wrong entry", lambda scenario: scenario.blueprint.near_miss),
    _instead("guessed without reading", lambda scenario: scenario.blueprint.guess),
    _instead("left as it was", lambda scenario: scenario.task.files[scenario.blueprint.target]),
    _in_files("file removed", [Fault.NOT_DONE], lambda scenario, files: files.pop(scenario.blueprint.target)),
    _in_files("right content in the other file", _MISPLACED, lambda s, files: _move(s, files, s.blueprint.distractor)),
    _in_files("right content in a new file", _ADDED, lambda s, files: _move(s, files, f"{s.blueprint.target}.new")),
    _in_files(
        "file name in capitals",
        _ADDED,
        lambda s, files: files.update({s.blueprint.target.upper(): files.pop(s.blueprint.target)}),
    ),
    _in_files("files swapped", _MISPLACED, _swap),
    _in_files("extra file", [Fault.SIDE_EFFECT], lambda scenario, files: files.update({"notes.md": "done"})),
    _in_files("empty extra file", [Fault.SIDE_EFFECT], lambda scenario, files: files.update({"tmp/.keep": ""})),
    _in_files("other file changed", _TOUCHED, lambda s, files: files.update({s.blueprint.distractor: "changed"})),
    _in_files(
        "newline added to the other file",
        _TOUCHED,
        lambda s, files: files.update({s.blueprint.distractor: files[s.blueprint.distractor] + "\n"}),
    ),
    _in_files("other file removed", _TOUCHED, lambda s, files: files.pop(s.blueprint.distractor)),
    _in_files("source file changed", _TOUCHED, _change_source),
    _declared("abstained", "abstain"),
    _declared("completion not declared", None),
)
