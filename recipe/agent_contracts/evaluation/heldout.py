"""The held-out table: success before and after training, by half and by decoding, from the run's own records."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from recipe.agent_contracts.evaluation.statistics import Estimate, bootstrap_mean, paired_difference
from recipe.agent_contracts.transition.trajectory import episodes

ALL = "all held-out"


class HeldOutRow(msgspec.Struct, frozen=True):
    """Success of one slice of the held-out tasks."""

    decoding: str
    suite: str
    num_attempts: int
    before: Estimate
    after: Estimate
    difference: Estimate
    unverified: int
    """Attempts, before and after, without a verdict: censored or verifier failure. They are in no mean."""


def heldout_rows(run: Path) -> list[HeldOutRow]:
    """Rows for each decoding, each held-out half and all together.

    Raises:
        ValueError: when the run has fewer than two evaluations, or they cover different tasks.
    """
    # (decoding, suite) -> step -> task -> rewards of its attempts
    scores: dict[tuple[str, str], dict[int, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    unverified: dict[tuple[str, str], int] = defaultdict(int)
    for turns in episodes(run):
        identity, reward = turns[-1].episode, turns[-1].reward_components
        if identity.partition != "val":
            continue
        for suite in (ALL, identity.data_source):
            if reward is None:
                unverified[identity.decoding, suite] += 1
            else:
                attempts = scores[identity.decoding, suite][identity.trainer_step][identity.task_id]
                attempts.append(reward["task_success"])
    if not scores:
        raise ValueError(f"{run} holds no held-out episode")
    return [_row(key, scores[key], unverified[key]) for key in sorted(scores)]


def _row(key: tuple[str, str], by_step: dict[int, dict[str, list[float]]], unverified: int) -> HeldOutRow:
    if len(by_step) < 2:
        raise ValueError(f"{key}: one evaluation only (step {next(iter(by_step))}); a comparison needs two")
    first, last = by_step[min(by_step)], by_step[max(by_step)]
    before, after = _task_means(first), _task_means(last)
    return HeldOutRow(
        decoding=key[0],
        suite=key[1],
        num_attempts=sum(len(attempts) for attempts in last.values()),
        before=bootstrap_mean(list(before.values())),
        after=bootstrap_mean(list(after.values())),
        difference=paired_difference(before, after),
        unverified=unverified,
    )


def _task_means(attempts: dict[str, list[float]]) -> dict[str, float]:
    return {task: sum(values) / len(values) for task, values in attempts.items()}


def heldout_table(rows: list[HeldOutRow]) -> Table:
    """For the terminal: 95% intervals by bootstrap over tasks."""
    table = Table(title="held-out success, 95% bootstrap intervals over tasks", box=SIMPLE_HEAD, title_justify="left")
    for column in ("decoding", "suite", "tasks", "attempts", "before", "after", "after - before", "no verdict"):
        table.add_column(column, justify="right" if column in ("tasks", "attempts", "no verdict") else "left")
    for row in rows:
        table.add_row(
            row.decoding,
            row.suite.rpartition("/")[2].removeprefix("heldout_"),
            str(row.before.num_tasks),
            str(row.num_attempts),
            row.before.text(),
            row.after.text(),
            row.difference.text("+"),
            str(row.unverified),
        )
    return table
