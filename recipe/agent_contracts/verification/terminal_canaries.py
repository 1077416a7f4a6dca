"""Canaries of the domain `terminal`: a right final state for one task of each split, and wrong ones by one change."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.transition.envs.terminal.generator import make_scenario
from recipe.agent_contracts.transition.envs.terminal.task import SPLITS, Grader
from recipe.agent_contracts.verification.canaries import Canary

SEED = 0


def canaries() -> list[Canary]:
    """A right one and four wrong ones a split."""
    return [canary for split in SPLITS for canary in _of_task(split, make_scenario(split, SEED).grader)]


def _of_task(split: str, grader: Grader) -> Iterator[Canary]:
    right, hidden = {**grader.untouched, **grader.expected}, msgspec.to_builtins(grader)
    path = min(grader.expected)

    def canary(name: str, files: dict[str, str], declared: str | None = "finish") -> Canary:
        state = canonical_json({"files": files, "declared": declared, "tool_calls": 3})
        return Canary(f"{split}: {name}", hidden, state, right=name == "right")

    yield canary("right", right)
    yield canary("one more byte", {**right, path: right[path] + " "})
    yield canary("file missing", {name: content for name, content in right.items() if name != path})
    yield canary("abstained", right, declared="abstain")
    yield canary("never finished", right, declared=None)
