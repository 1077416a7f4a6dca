"""Counting episodes: attempts by task, intervals, and what is in no mean."""

import pytest

from recipe.agent_contracts.evaluation.report.tally import ALL_SUITES, TaskKey, paired, share, tally_of
from tests.records import identity, turn_record


def episode(name, task, success, step=0, source="terminal/heldout_known_style", **changes):
    named = identity(name, partition="val", trainer_step=step, task_id=task, data_source=source)
    reward = None if success is None else {"task_success": success, **changes}
    return [turn_record(episode=named, reward_components=reward)]


def counted(*episodes, suite=ALL_SUITES, step=0):
    return tally_of(episodes).at("val", "temperature_1", step, suite)


def test_attempts_are_averaged_over_tasks_and_not_over_episodes():
    found = counted(episode("a_0", "t1", 1.0), episode("a_1", "t1", 1.0), episode("a_2", "t2", 0.0))
    assert found.mean("success").mean == 0.5
    assert found.num_attempts == 3


def test_an_attempt_without_a_verdict_is_counted_and_in_no_mean():
    found = counted(episode("a_0", "t1", 1.0), episode("a_1", "t1", None))
    assert (found.num_episodes, found.num_attempts, found.num_unverified) == (2, 1, 1)
    assert found.mean("success").mean == 1.0


def test_pass_hat_k_is_unbiased_and_leaves_out_tasks_with_fewer_attempts():
    tries = [episode(f"a_{i}", "t1", float(i < 2)) for i in range(3)] + [episode("b_0", "t2", 1.0)]
    found = counted(*tries)
    # Two of three succeed: C(2,2)/C(3,2) that both of two do, 1 - C(1,2)/C(3,2) that any does.
    assert found.drawn(2, all_succeed=True) == {TaskKey("t1", "sha256:0"): pytest.approx(1 / 3)}
    assert found.drawn(2, all_succeed=False) == {TaskKey("t1", "sha256:0"): 1.0}


def test_a_retain_suite_is_no_part_of_all_held_out():
    kept = episode("a_0", "t1", 1.0, source="terminal/retain_safety")
    assert counted(kept).num_episodes == 0
    assert counted(kept, suite="terminal/retain_safety").num_episodes == 1


def test_harm_is_counted_apart_from_success():
    found = counted(episode("a_0", "t1", 1.0, collateral_damage=2.0, policy_violation=1.0), episode("a_1", "t2", 1.0))
    assert (found.count("damaged"), found.count("violated"), found.mean("success").mean) == (1, 1, 1.0)


def test_nothing_seen_is_no_interval_without_width():
    # Wilson's upper bound for 0 of 20 is z^2 / (20 + z^2).
    found = share([0.0] * 20)
    assert (found.mean, found.low) == (0.0, pytest.approx(0.0, abs=1e-12))
    assert found.high == pytest.approx(1.959964**2 / (20 + 1.959964**2))


def test_runs_are_paired_on_tasks_of_the_same_content():
    same, other = TaskKey("t", "sha256:1"), TaskKey("t", "sha256:2")
    assert paired({same: 0.0}, {other: 1.0}) is None
    assert paired({same: 0.0, other: 0.5}, {same: 1.0}).mean == 1.0
