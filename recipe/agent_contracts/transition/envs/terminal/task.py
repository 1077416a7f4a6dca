"""A terminal task in two parts: what the policy may see, and what only the verifier may see.

The two travel as two JSON strings. The public part never holds the expected result; the hidden part is never
rendered into a prompt. Both are frozen and hashed over their canonical JSON.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from recipe.agent_contracts.canonical import canonical_json, sha256_json

Split = Literal["train", "heldout_known_style", "heldout_unseen_wording"]
SPLITS: tuple[Split, ...] = ("train", "heldout_known_style", "heldout_unseen_wording")
HELDOUT_SPLITS: tuple[Split, ...] = ("heldout_known_style", "heldout_unseen_wording")


class TerminalTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The public part of a task."""

    task_id: str
    """Stable and unique: derived from the content below."""
    family: str
    """`operation:source format->target format`; the unit in which train and held-out are disjoint."""
    operation: str
    template: str
    """Id of the wording of the objective; train and held-out share none."""
    split: Split
    seed: int
    objective: str
    files: dict[str, str]
    """Initial content by file name."""
    allowed_tools: list[str]
    step_budget: int
    """Model turns, invalid ones included, after which the episode ends as `task_budget_exhausted_terminal`."""
    token_budget: int
    """Response tokens (policy and observations together) of the whole episode."""


class Grader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hidden part of a task, read by the verifier only."""

    task_id: str
    expected: dict[str, str]
    """Exact final content of the files that the task asks to change."""
    untouched: dict[str, str]
    """Initial content of every other file: what collateral damage is measured against."""
    invariants: list[str]
    """Files that must not change. Breaking one is a policy violation."""
    must_finish: bool = True
    """Whether success needs the agent to declare completion with `finish`."""


def task_hash(task: TerminalTask) -> str:
    """`sha256:<hex>` of the public part."""
    return sha256_json(task)


def to_json(part: TerminalTask | Grader) -> str:
    """Canonical JSON text of one part of a task."""
    return canonical_json(part).decode()


def task_from_json(text: str) -> TerminalTask:
    """Read the public part back.

    Raises:
        msgspec.DecodeError: when the text is not a terminal task.
    """
    return msgspec.json.decode(text, type=TerminalTask)


def user_message(task: TerminalTask) -> str:
    """The first observation: the names of the files, sorted, and the objective."""
    return f"Files: {' '.join(sorted(task.files))}\n{task.objective}"


def messages(task: TerminalTask) -> list[dict[str, str]]:
    """The prompt of a task as chat messages. The budgets are part of the task, so the policy is told both."""
    budget = f"Budget: {task.step_budget} steps, {task.token_budget} tokens."
    return [
        {"role": "system", "content": f"Fix files with tools. {budget}"},
        {"role": "user", "content": user_message(task)},
    ]
