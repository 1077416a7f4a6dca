"""A trainer that is killed in a real run, and the run that goes on: each group is trained once, or not at all.

One point is tried for every change; the others are nightly.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from recipe.agent_contracts.transition.trajectory import episodes
from recipe.agent_contracts.update.commit import newest_committed, read_commit
from recipe.agent_contracts.update.ledger import Ledger, State
from recipe.agent_contracts.update.problems import find_problems
from recipe.agent_contracts.update.record import read_updates
from tests.e2e.conftest import GROUP_SIZE, REPOSITORY, TASKS_PER_BATCH, read_tail, run_limited, train_like
from tests.e2e.kill_trainer import POINTS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

FOR_EVERY_CHANGE = "during_the_checkpoint"
STEPS, KILLED_AT = 3, 2
COST, LEARNING_RATE = "collateral_damage", 0.5


@pytest.fixture(
    scope="module",
    params=[pytest.param(point, marks=[] if point == FOR_EVERY_CHANGE else pytest.mark.nightly) for point in POINTS],
)
def killed(request, smoke_run: Path, logs: Path) -> tuple[str, Path, dict[State, int]]:
    """The point, the run after it was resumed, and the ledger's counts as the kill left them."""
    point = request.param
    run, log = smoke_run.parent / f"{smoke_run.name}-{point}", logs / f"{point}.log"
    print(f"\nlogs: {log} and {run}/train.log")
    command = [*train_like(smoke_run, run), f"trainer.total_training_steps={STEPS}", "trainer.save_freq=1"]
    command += [f"+contract.verification.objective.costs.{COST}={{budget: 0.0, learning_rate: {LEARNING_RATE}}}"]
    modules = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        "VERL_USE_EXTERNAL_MODULES": "verl_ext.plugin,kill_trainer",
    }
    assert run_limited(command, 400, log, **modules, KILL_TRAINER_AT=f"{point}:{KILLED_AT}") not in (0, 2), read_tail(
        log
    )
    left = Ledger(run).counts()
    resume = [str(REPOSITORY / ".venv/bin/agent-contracts"), "resume", str(run)]
    assert run_limited(resume, 400, log) == 0, read_tail(log)
    return point, run, left


def test_the_kill_left_what_that_point_leaves(killed):
    point, _, left = killed
    expected = {
        "before_the_step": {State.COMMITTED: 1, State.ADMITTED: 1},
        "between_step_and_checkpoint": {State.COMMITTED: 1, State.APPLIED: 1},
        "during_the_checkpoint": {State.COMMITTED: 1, State.APPLIED: 1},
        "after_the_commit_file": {State.COMMITTED: 1, State.APPLIED: 1},
    }[point]
    assert {state: count / TASKS_PER_BATCH for state, count in left.items() if count} == expected


def test_what_was_trained_is_what_is_committed_and_each_group_once(killed):
    _, run, _ = killed
    ledger = Ledger(run)
    committed = {row.group_id for row in ledger.groups(State.COMMITTED)}
    trained = [group for update in read_updates(run) for group in {row.group_id for row in update.rows}]
    assert sorted(trained) == sorted(committed)
    assert len(trained) == STEPS * TASKS_PER_BATCH
    assert find_problems(run, ledger) == []


def test_what_was_undone_is_rolled_back_and_its_tasks_are_drawn_again(killed):
    point, run, _ = killed
    ledger = Ledger(run)
    undone = list(ledger.groups(State.ROLLED_BACK))
    assert len(undone) == (0 if point == "after_the_commit_file" else TASKS_PER_BATCH)
    again = Counter(row.lease.task_id for row in ledger.groups(State.COMMITTED) if row.applied_step == KILLED_AT)
    if undone:
        assert Counter(row.lease.task_id for row in undone) == again
    assert not {row.group_id for row in undone} & {row.group_id for row in ledger.groups(State.COMMITTED)}


def test_the_last_checkpoint_is_committed_and_names_its_groups(killed):
    _, run, _ = killed
    newest = newest_committed(run / "checkpoints")
    commit = read_commit(newest)
    assert commit.step == STEPS
    assert len(commit.group_ids) == TASKS_PER_BATCH


def test_the_multiplier_of_a_constraint_survives_the_kill_and_prices_the_returns(killed):
    """lambda rises by 0.5 times the batch's mean cost; a return is success less lambda times the episode's cost."""
    _, run, _ = killed
    vectors = {turns[0].episode.trajectory_id: turns[-1].reward_components for turns in episodes(run)}
    multiplier = 0.0
    for update in read_updates(run):
        constraint = update.constraints[COST]
        assert constraint.multiplier == multiplier
        costs = [vectors[row.trajectory_id][COST] for row in update.rows]
        assert constraint.mean_cost == pytest.approx(sum(costs) / len(costs))
        multiplier = constraint.next_multiplier
        assert multiplier == pytest.approx(constraint.multiplier + LEARNING_RATE * constraint.mean_cost)
        for row in update.rows:
            vector = vectors[row.trajectory_id]
            assert row.episode_return == pytest.approx(vector["task_success"] - constraint.multiplier * vector[COST])
    assert multiplier > 0, "some episode of three batches left damage"


def test_the_records_hold_every_sibling_of_every_trained_group(killed):
    _, run, _ = killed
    sizes = Counter(turns[0].episode.group_id for turns in episodes(run))
    assert all(sizes[row.group_id] == GROUP_SIZE for update in read_updates(run) for row in update.rows)
