"""What counts as an arm: finished, credited as declared, and different from the normal one in its control only."""

import msgspec
import pytest

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.arms import read_arms
from recipe.agent_contracts.update.record import read_update
from tests.unit.evaluation.control_runs import STEPS, make_arm, successes, update

SCORES = successes(3, [1.0, 0.0, 0.0])


def shuffled_arm(folder, **changes):
    make_arm(folder / "normal", SCORES)
    return make_arm(folder / "shuffled", SCORES, control="shuffled_rewards", shuffle_seed=5, **changes)


def test_an_arm_is_read_by_what_it_declares_and_not_by_its_folders_name(tmp_path):
    make_arm(tmp_path / "a", SCORES)
    make_arm(tmp_path / "b", SCORES, control="shuffled_rewards", shuffle_seed=5)
    make_arm(tmp_path / "c", SCORES, control="frozen")
    arms, unfinished = read_arms(tmp_path)
    assert [(arm.control, arm.shuffle_seed, arm.num_steps) for arm in arms.values()] == [
        ("none", None, STEPS),
        ("shuffled_rewards", 5, STEPS),
        ("frozen", None, 0),
    ]
    assert arms["b"].scores["temperature_1"] == SCORES
    assert unfinished == []


def test_a_run_without_its_last_evaluation_is_named_and_left_out(tmp_path):
    shuffled_arm(tmp_path, finished=False)
    arms, unfinished = read_arms(tmp_path)
    assert list(arms) == ["normal"]
    assert unfinished == [f"shuffled: not finished; no evaluation at step {STEPS}"]


def test_an_earlier_evaluation_of_the_same_run_is_not_the_arms_result(tmp_path):
    make_arm(tmp_path / "normal", SCORES)
    make_arm(tmp_path / "frozen", successes(3, [1.0]), control="frozen")
    (part,) = (tmp_path / "frozen" / "trajectories").iterdir()
    part.rename(tmp_path / "normal" / "trajectories" / "before.jsonl")  # its step is 0
    make_arm(tmp_path / "again" / "frozen", SCORES, control="frozen")
    assert read_arms(tmp_path)[0]["normal"].scores["temperature_1"] == SCORES


def test_a_shuffled_run_that_declares_to_be_normal_is_refused(tmp_path):
    """A control must not pass for the normal arm."""
    run = make_arm(tmp_path / "normal", SCORES)
    names = [row.trajectory_id for row in read_update(run, 1).rows]
    honest = update(names, 1, "shuffled_rewards", 5)
    honest.write(run)
    with pytest.raises(ContractViolation, match="control none with shuffle seed None"):
        read_arms(tmp_path)
    assert any(row.return_of != row.trajectory_id for row in honest.rows)
    msgspec.structs.replace(honest, control="none", shuffle_seed=None).write(run)
    with pytest.raises(ContractViolation, match="of its own, found"):
        read_arms(tmp_path)


def test_a_control_that_shuffled_nothing_is_refused(tmp_path):
    run = shuffled_arm(tmp_path)
    record = read_update(run, 2)
    own = update([row.trajectory_id for row in record.rows], 2, "none", None)
    msgspec.structs.replace(own, control="shuffled_rewards", shuffle_seed=5).write(run)
    with pytest.raises(ContractViolation, match="step 2"):
        read_arms(tmp_path)


def test_a_return_that_the_verifier_did_not_give_is_refused(tmp_path):
    run = make_arm(tmp_path / "normal", SCORES)
    record = read_update(run, 1)
    rows = [msgspec.structs.replace(record.rows[0], episode_return=0.5), *record.rows[1:]]
    msgspec.structs.replace(record, rows=rows).write(run)
    with pytest.raises(ContractViolation, match=r"credited with 1\.0 of its own, found 0\.5 of its own"):
        read_arms(tmp_path)


def test_arms_that_differ_in_more_than_the_control_are_refused_with_the_key(tmp_path):
    shuffled_arm(tmp_path, kl_beta=0.0)
    with pytest.raises(ContractViolation, match=r"contract\.update\.kl_beta=0\.02 as in normal, found 0\.0"):
        read_arms(tmp_path)


def test_only_a_frozen_arm_may_have_another_engine_seed(tmp_path):
    make_arm(tmp_path / "normal", SCORES)
    make_arm(tmp_path / "frozen", SCORES, control="frozen", engine_seed=7)
    assert read_arms(tmp_path)[0]["frozen"].engine_seed == 7
    make_arm(tmp_path / "shuffled", SCORES, control="shuffled_rewards", shuffle_seed=1, engine_seed=7)
    with pytest.raises(ContractViolation, match=r"rollout\.seed"):
        read_arms(tmp_path)


def test_no_normal_run_is_no_comparison(tmp_path):
    make_arm(tmp_path / "frozen", SCORES, control="frozen")
    with pytest.raises(ContractViolation, match="a finished run with control=none"):
        read_arms(tmp_path)
