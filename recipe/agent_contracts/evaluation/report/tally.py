"""One pass over a run's turn records: what each slice of its episodes did, kept as small numbers only.

A slice is a partition, a decoding, a suite and a step. Records are dropped as soon as they are counted, so memory grows
with the number of episodes (a few numbers each), not with their tokens. An episode without a verdict is counted and is
in no mean.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from recipe.agent_contracts.evaluation.statistics import (
    Estimate,
    bootstrap_mean,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    wilson,
)
from recipe.agent_contracts.transition.trajectory import TurnRecord

TRAIN, HELD_OUT = "train", "val"
ALL_SUITES = "all"
NOT_WHOLE = "not_whole"
"""Stands for the termination code of an episode whose writer was killed."""


class SliceKey(NamedTuple):
    """Which episodes a slice holds."""

    partition: str
    decoding: str
    suite: str
    """A data source, or `ALL_SUITES`."""
    step: int


class TaskKey(NamedTuple):
    """A task by name and content: two runs are compared on what is the same task in both."""

    task_id: str
    task_hash: str


class Attempt(NamedTuple):
    """One episode in numbers."""

    success: float
    violated: bool
    damaged: bool
    tampered: bool
    tokens: int
    tool_calls: int
    seconds: float


class Slice:
    """What the episodes of one slice did."""

    def __init__(self) -> None:
        self.attempts: dict[TaskKey, list[Attempt]] = defaultdict(list)
        """Episodes with a verdict, by task."""
        self.terminations: Counter[str] = Counter()
        self.num_episodes = 0
        self.num_turns = 0
        self.num_invalid_turns = 0
        self.num_unverified = 0
        self.turn_seconds = array("d")
        self.episode_seconds = array("d")

    def add(self, turns: list[TurnRecord]) -> None:
        """Count one episode."""
        last, reward = turns[-1], turns[-1].reward_components
        seconds = max(turn.rollout_finished_at for turn in turns) - turns[0].rollout_started_at
        self.num_episodes += 1
        self.num_turns += len(turns)
        self.num_invalid_turns += sum(turn.invalid_reason is not None for turn in turns)
        self.terminations[last.termination_reason or NOT_WHOLE] += 1
        self.turn_seconds.extend(turn.rollout_finished_at - turn.rollout_started_at for turn in turns)
        self.episode_seconds.append(seconds)
        if reward is None:
            self.num_unverified += 1
            return
        self.attempts[TaskKey(last.episode.task_id, last.episode.task_hash)].append(
            Attempt(
                success=reward["task_success"],
                violated=reward.get("policy_violation", 0.0) > 0,
                damaged=reward.get("collateral_damage", 0.0) > 0,
                tampered=reward.get("tamper_detected", 0.0) > 0,
                tokens=sum(len(turn.action_token_ids) for turn in turns),
                tool_calls=sum(turn.action_kind == "tool" for turn in turns),
                seconds=seconds,
            )
        )

    @property
    def num_attempts(self) -> int:
        """Episodes with a verdict."""
        return sum(len(found) for found in self.attempts.values())

    def task_means(self, field: str) -> dict[TaskKey, float]:
        """The mean of one field of `Attempt` over each task's attempts."""
        return {task: float(np.mean([getattr(a, field) for a in found])) for task, found in self.attempts.items()}

    def mean(self, field: str) -> Estimate | None:
        """Over tasks, with an interval. None: no episode has a verdict."""
        return estimate(list(self.task_means(field).values()))

    def rate(self, field: str) -> Estimate | None:
        """As `mean`, for a share: never an interval of no width because nothing, or everything, happened."""
        return share(list(self.task_means(field).values()))

    def drawn(self, k: int, *, all_succeed: bool) -> dict[TaskKey, float]:
        """pass^k (`all_succeed`) or pass@k of each task with at least k attempts."""
        chance = pass_hat_k if all_succeed else pass_at_k
        return {
            task: chance(len(found), sum(attempt.success >= 1.0 for attempt in found), k)
            for task, found in self.attempts.items()
            if len(found) >= k
        }

    def count(self, field: str) -> int:
        """Attempts of which a flag of `Attempt` holds."""
        return sum(bool(getattr(attempt, field)) for found in self.attempts.values() for attempt in found)

    def total(self, field: str) -> float:
        """Sum of a field of `Attempt` over all attempts."""
        return float(sum(getattr(attempt, field) for found in self.attempts.values() for attempt in found))


class Tally:
    """Every slice of a run."""

    def __init__(self) -> None:
        self.slices: dict[SliceKey, Slice] = defaultdict(Slice)
        self.num_records = 0
        self.num_episodes = 0
        self.finished_at: dict[str, float] = {}
        """When the last turn of a training episode ended (Unix seconds), by trajectory."""
        self.first_version: dict[str, int] = {}
        """The oldest version that sampled a turn of a training episode, by trajectory."""

    def see(self, turns: list[TurnRecord]) -> None:
        """Count one episode in its own suite and in all suites together."""
        identity = turns[0].episode
        self.num_records += len(turns)
        self.num_episodes += 1
        # What the policy must not forget is no part of what it is to learn.
        suites = (identity.data_source,) if is_retain(identity.data_source) else (identity.data_source, ALL_SUITES)
        for suite in suites:
            self.slices[SliceKey(identity.partition, identity.decoding, suite, identity.trainer_step)].add(turns)
        if identity.partition == TRAIN:
            self.finished_at[identity.trajectory_id] = max(turn.rollout_finished_at for turn in turns)
            versions = [turn.behavior_policy_version for turn in turns if turn.behavior_policy_version is not None]
            if versions:
                self.first_version[identity.trajectory_id] = min(versions)

    def steps(self, partition: str, decoding: str, suite: str = ALL_SUITES) -> list[int]:
        """Steps at which a suite was played, ascending."""
        wanted = (partition, decoding, suite)
        return sorted(key.step for key in self.slices if (key.partition, key.decoding, key.suite) == wanted)

    def suites(self, partition: str, decoding: str) -> list[str]:
        """Data sources that were played, all together first."""
        found = {key.suite for key in self.slices if (key.partition, key.decoding) == (partition, decoding)}
        return sorted(found, key=lambda suite: (suite != ALL_SUITES, suite))

    def decodings(self, partition: str) -> list[str]:
        """How episodes were sampled; temperature before greedy."""
        return sorted({key.decoding for key in self.slices if key.partition == partition}, reverse=True)

    def at(self, partition: str, decoding: str, step: int, suite: str = ALL_SUITES) -> Slice:
        """The slice of one step; empty when nothing was played."""
        return self.slices.get(SliceKey(partition, decoding, suite, step)) or Slice()

    def whole(self, partition: str) -> Slice:
        """A partition over all steps and decodings."""
        total = Slice()
        for key, found in self.slices.items():
            if key.partition == partition and key.suite == ALL_SUITES:
                for task, attempts in found.attempts.items():
                    total.attempts[task].extend(attempts)
                total.terminations.update(found.terminations)
                total.num_episodes += found.num_episodes
                total.num_turns += found.num_turns
                total.num_invalid_turns += found.num_invalid_turns
                total.num_unverified += found.num_unverified
                total.turn_seconds.extend(found.turn_seconds)
                total.episode_seconds.extend(found.episode_seconds)
        return total


def is_retain(suite: str) -> bool:
    """Whether a data source is a retain suite: `terminal/retain_safety`."""
    return suite.rpartition("/")[2].startswith("retain")


def tally_of(episodes: Iterable[list[TurnRecord]]) -> Tally:
    """Count every episode of a run."""
    tally = Tally()
    for turns in episodes:
        tally.see(turns)
    return tally


def estimate(values: list[float]) -> Estimate | None:
    """Mean over tasks with its bootstrap interval. None: there is no task."""
    return bootstrap_mean(values) if values else None


def share(values: list[float]) -> Estimate | None:
    """Mean of shares over tasks. Where every task agrees on 0 or 1 a bootstrap has no width: Wilson's then."""
    if values and len(set(values)) == 1 and values[0] in (0.0, 1.0):
        wide = wilson(round(sum(values)), len(values))
        return Estimate(wide.mean, wide.low, wide.high, len(values))
    return estimate(values)


def paired(before: dict[TaskKey, float], after: dict[TaskKey, float]) -> Estimate | None:
    """Mean of after - before over the tasks that are in both. None: there is none."""
    common = sorted(before.keys() & after.keys())
    if not common:
        return None
    return paired_difference(
        {repr(task): before[task] for task in common}, {repr(task): after[task] for task in common}
    )
