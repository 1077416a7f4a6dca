"""Scripted demonstrations of mixed quality: what the cold start imitates.

Four in ten are wrong on purpose, as the logs of a weak agent would be. The policy that imitates them finds the right
behaviour sometimes, which leaves reinforcement learning something to select.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from random import Random

import msgspec

from recipe.agent_contracts.transition.envs.terminal.generator import Scenario
from recipe.agent_contracts.transition.envs.terminal.operations import Blueprint


class Quality(StrEnum):
    """What a demonstration does right or wrong."""

    CORRECT = "correct"
    RECOVERED = "recovered"
    """A malformed call first, then right."""
    PREMATURE = "premature"
    """Reads, then declares completion without having written."""
    WRONG_KEY = "wrong_key"
    WRONG_FILE = "wrong_file"
    SKIP_READ = "skip_read"
    MALFORMED = "malformed"
    """A malformed call, then completion declared."""
    ABSTAIN = "abstain"

    @property
    def succeeds(self) -> bool:
        """Whether the verifier must accept the result."""
        return self in (Quality.CORRECT, Quality.RECOVERED)


class Demonstration(msgspec.Struct, frozen=True):
    """One scripted episode: the texts of the model's turns, without the end-of-turn token."""

    quality: Quality
    turns: tuple[str, ...]


DEFAULT_MIX: dict[Quality, float] = {
    Quality.CORRECT: 0.56,
    Quality.RECOVERED: 0.03,
    Quality.PREMATURE: 0.16,
    Quality.WRONG_KEY: 0.07,
    Quality.WRONG_FILE: 0.07,
    Quality.SKIP_READ: 0.06,
    Quality.MALFORMED: 0.03,
    Quality.ABSTAIN: 0.02,
}
LIST_FILES_SHARE = 0.04
"""Share of demonstrations that list the files first, although the prompt names them."""
REPLACE_SHARE = 0.08
"""Share of right edits made with replace_in_file, where one line tells the whole difference."""


def call(name: str, **arguments: str) -> str:
    """One tool call in the Hermes format."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def demonstrate(scenario: Scenario, rng: Random, mix: Mapping[Quality, float] | None = None) -> Demonstration:
    """Script one demonstration whose quality is drawn from `mix`."""
    shares = DEFAULT_MIX if mix is None else mix
    quality = rng.choices(list(shares), list(shares.values()))[0]
    turns = _turns(quality, scenario.blueprint, rng)
    if rng.random() < LIST_FILES_SHARE:
        turns.insert(0, call("list_files"))
    return Demonstration(quality, tuple(turns))


def _turns(quality: Quality, plan: Blueprint, rng: Random) -> list[str]:
    match quality:
        case Quality.CORRECT:
            return _correct(plan, rng)
        case Quality.RECOVERED:
            return [_malformed(plan, rng), *_correct(plan, rng)]
        case Quality.PREMATURE:
            return [*_read_all(plan.reads), call("finish")]
        case Quality.WRONG_KEY:
            return [*_read_all(plan.reads), *_write_and_finish(plan.target, plan.near_miss)]
        case Quality.WRONG_FILE:
            return [*_read_all(plan.misdirected_reads), *_write_and_finish(plan.distractor, plan.misdirected)]
        case Quality.SKIP_READ:
            return _write_and_finish(plan.target, plan.guess)
        case Quality.MALFORMED:
            return [_malformed(plan, rng), call("finish")]
        case Quality.ABSTAIN:
            return [*_read_all(plan.reads), call("abstain")]


def _correct(plan: Blueprint, rng: Random) -> list[str]:
    edit = _line_edit(plan.files[plan.target], plan.expected)
    if edit is not None and plan.target in plan.reads and rng.random() < REPLACE_SHARE:
        replace = call("replace_in_file", path=plan.target, old=edit[0], new=edit[1])
        return [*_read_all(plan.reads), replace, call("finish")]
    return [*_read_all(plan.reads), *_write_and_finish(plan.target, plan.expected)]


def _line_edit(before: str, after: str) -> tuple[str, str] | None:
    """The one line that differs, when it is one of several and occurs once; else nothing."""
    old, new = before.split("\n"), after.split("\n")
    if len(old) != len(new) or len(old) == 1:
        return None
    changed = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    return changed[0] if len(changed) == 1 and before.count(changed[0][0]) == 1 else None


def _read_all(paths: tuple[str, ...]) -> list[str]:
    return [call("read_file", path=path) for path in paths]


def _write_and_finish(path: str, content: str) -> list[str]:
    return [call("write_file", path=path, content=content), call("finish")]


def _malformed(plan: Blueprint, rng: Random) -> str:
    """An unknown tool, an unbalanced brace, or a wrong field name."""
    read = call("read_file", path=plan.reads[0])
    variants = (
        call("open_file", path=plan.reads[0]),
        read.replace("}}", "}"),
        read.replace('"arguments": ', '"args": '),
    )
    return rng.choice(variants)
