"""Update records: what is written is read back, and what is missing or broken is named."""

import msgspec
import pytest
import zstandard

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.update.record import (
    UpdateRecord,
    UpdateRow,
    multipliers_at,
    read_update,
    read_updates,
    update_path,
)
from recipe.agent_contracts.verification.constraints import Cost, constrain


def row(**changes):
    values = {
        "trajectory_id": "g_0",
        "group_id": "g",
        "episode_return": 1.0,
        "advantages": [0.5],
        "num_action_tokens": 3,
        "weight": 0.25,
    }
    return UpdateRow(**{**values, **changes})


def record(step, rows=None):
    return UpdateRecord(
        step=step,
        input_policy_version=step - 1,
        output_policy_version=step,
        estimator="rloo",
        group_reward_scale="none",
        reduction="episode_sum",
        objective="reinforce_with_kl",
        kl_beta=0.02,
        rows=rows or [row()],
    )


def test_what_was_written_is_read_back_in_the_order_of_steps(tmp_path):
    for step in (10, 2, 1):
        record(step).write(tmp_path)
    assert [found.step for found in read_updates(tmp_path)] == [1, 2, 10]
    assert read_update(tmp_path, 2) == record(2)


def test_a_coefficient_is_advantage_times_weight_of_that_token():
    assert row().coefficient(2) == 0.125  # one advantage for all tokens: 0.5 * 0.25
    each = row(advantages=[1.0, -2.0, 0.0])
    assert [each.coefficient(token) for token in range(3)] == [0.25, -0.5, 0.0]


@pytest.mark.parametrize("token", [-1, 3])
def test_a_token_that_the_episode_does_not_have_is_an_error(token):
    with pytest.raises(IndexError, match=f"3 action tokens, not token {token}"):
        row().coefficient(token)


def test_a_missing_step_names_those_that_are_there(tmp_path):
    record(4).write(tmp_path)
    with pytest.raises(ContractViolation, match="a record of step 5, found records of steps: 4"):
        read_update(tmp_path, 5)


def test_a_damaged_record_is_named_and_never_half_read(tmp_path):
    path = record(1).write(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ContractViolation, match="step-000001"):
        read_update(tmp_path, 1)


def test_a_record_from_before_there_were_controls_is_read_as_none(tmp_path):
    old = msgspec.to_builtins(msgspec.structs.replace(record(1), schema_version="update-v1"))
    for owner, added in ((old, ("control", "shuffle_seed", "constraints")), (old["rows"][0], ("return_of",))):
        for name in added:
            del owner[name]
    path = record(1).write(tmp_path)
    path.write_bytes(zstandard.ZstdCompressor().compress(msgspec.json.encode(old)))
    found = read_update(tmp_path, 1)
    assert (found.control, found.shuffle_seed, found.rows[0].return_of) == ("none", None, None)
    assert found.constraints == {}


def test_a_multiplier_comes_back_from_the_step_before(tmp_path):
    """0.5 is declared; the batch costs 2 on average over a budget of 1, so the next is 0.5 + 0.1 * (2 - 1)."""
    costs = {"collateral_damage": Cost(budget=1.0, learning_rate=0.1, initial_multiplier=0.5)}
    assert multipliers_at(tmp_path, 1, costs) == {"collateral_damage": 0.5}
    vectors = [{"collateral_damage": 4.0}, {"collateral_damage": 0.0}]
    constraints = constrain(costs, multipliers_at(tmp_path, 1, costs), vectors)
    msgspec.structs.replace(record(1), constraints=constraints).write(tmp_path)
    assert multipliers_at(tmp_path, 2, costs) == {"collateral_damage": pytest.approx(0.6)}
    with pytest.raises(ContractViolation, match="a record of step 2"):
        multipliers_at(tmp_path, 3, costs)


def test_a_record_of_another_schema_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("recipe.agent_contracts.update.record.UPDATE_SCHEMA", "update-v0")
    record(1).write(tmp_path)
    assert update_path(tmp_path, 1).exists()
    with pytest.raises(ContractViolation, match="expected update-v0, found update-v3"):
        read_update(tmp_path, 1)
