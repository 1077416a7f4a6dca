"""The held-out table from records."""

import pytest

from recipe.agent_contracts.evaluation.heldout import ALL, heldout_rows
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter
from tests.records import identity, turn_record


def episode(name, step, task, success, source="terminal/heldout_known_style"):
    named = identity(name, partition="val", trainer_step=step, task_id=task, data_source=source)
    reward = None if success is None else {"task_success": success}
    return turn_record(episode=named, reward_components=reward)


def write(run, records):
    TrajectoryWriter(run / "trajectories", "a").append(records)


def test_attempts_are_averaged_over_tasks_before_and_after(tmp_path):
    records = [episode(f"b_{i}", 0, "t1", 0.0) for i in range(2)] + [episode("b_2", 0, "t2", 1.0)]
    records += [episode(f"a_{i}", 40, "t1", 1.0) for i in range(2)] + [episode("a_2", 40, "t2", 1.0)]
    write(tmp_path, records)
    row = next(row for row in heldout_rows(tmp_path) if row.suite == ALL)
    # Before: task means 0 and 1; after: 1 and 1.
    assert (row.before.mean, row.after.mean, row.difference.mean) == (0.5, 1.0, 0.5)


def test_an_episode_without_a_verdict_is_counted_and_is_in_no_mean(tmp_path):
    write(tmp_path, [episode("b_0", 0, "t", 1.0), episode("b_1", 0, "t", None), episode("a_0", 9, "t", 1.0)])
    row = next(row for row in heldout_rows(tmp_path) if row.suite == ALL)
    assert row.before.mean == 1.0
    assert row.unverified == 1


def test_one_evaluation_is_no_comparison(tmp_path):
    write(tmp_path, [episode("b_0", 0, "t", 1.0)])
    with pytest.raises(ValueError, match="needs two"):
        heldout_rows(tmp_path)


def test_training_episodes_are_not_held_out(tmp_path):
    write(tmp_path, [turn_record()])
    with pytest.raises(ValueError, match="no held-out episode"):
        heldout_rows(tmp_path)
