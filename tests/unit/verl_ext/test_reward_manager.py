"""The reward manager as verl calls it: the vector, the declared reward, the verdict, and failures that are typed."""

import asyncio
import json

import msgspec
import numpy as np
import pytest
from tensordict import TensorDict
from verl import DataProto

from recipe.agent_contracts.errors import InvalidMeasurement, VerifierFailure
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.verification.layers import LayerKind, Verdict
from recipe.agent_contracts.verification.terminal_canaries import canaries
from recipe.agent_contracts.verification.verifier import Score
from verl_ext import launch, scaffold
from verl_ext.reward_manager import VERDICT, ContractRewardManager

FILES = ["data.train_files=a", "data.val_files=b", "actor_rollout_ref.model.path=c"]


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """Makes managers of a configuration, without the run's scaffold, which tests of `scaffold` check."""
    monkeypatch.setattr(scaffold, "attest_process", lambda *_: None)
    made = []

    def make(*overrides):
        config = launch.compose_config([*FILES, f"contract.run.folder={tmp_path}", *overrides])
        made.append(ContractRewardManager(config, tokenizer=None, compute_score=None))
        return made[-1]

    yield make
    for manager in made:
        for pool in manager._pools.values():
            pool.close()


def episode(manager, canary, data_source="terminal/train"):
    """One episode's row as the agent loop sends it, its final state in the run's blobs."""
    columns = {
        "reward_model": {"ground_truth": json.dumps(canary.grader)},
        "tool_extra_fields": {"final_state_hash": manager._blobs.put(canary.final_state)},
        "extra_info": {"task": "{}"},
        "data_source": data_source,
    }
    arrays = {name: np.array([value], dtype=object) for name, value in columns.items()}
    return DataProto(batch=TensorDict({}, batch_size=1), non_tensor_batch=arrays)


def score(manager, canary):
    return asyncio.run(manager.run_single(episode(manager, canary)))


def test_right_and_wrong_states_get_the_vector_and_a_verdict_that_says_where_it_was_given(manager, tmp_path):
    served = manager()
    for canary in canaries()[:5]:
        answer = score(served, canary)
        vector = answer["reward_extra_info"]
        assert answer["reward_score"] == vector["task_success"] == float(canary.right)
        verdict = msgspec.json.decode(BlobStore(tmp_path / "blobs").get(vector.pop(VERDICT)), type=Verdict)
        assert verdict.score.vector() == vector
        assert [layer.kind for layer in verdict.layers] == [LayerKind.STATE_CHECK, LayerKind.RULES]
        assert {"env_clean", "result_private"} <= set(verdict.guarantees)


def test_the_declared_objective_decides_what_verl_is_given(manager):
    gated = manager("contract.verification.objective.gates=[collateral_damage]")
    right = canaries()[0]
    state = json.loads(right.final_state)
    state["files"]["stray.txt"] = "left behind"
    littered = msgspec.structs.replace(right, final_state=json.dumps(state).encode())
    # A stray file is a wrong one to no gate of the verifier, and a reason to withhold to this experiment.
    answer = score(gated, littered)
    assert (answer["reward_score"], answer["reward_extra_info"]["collateral_damage"]) == (0.0, 1.0)


def test_a_final_state_that_is_not_in_the_run_is_a_failure_and_no_reward(manager):
    served = manager()
    row = episode(served, canaries()[0])
    row.non_tensor_batch["tool_extra_fields"][0]["final_state_hash"] = "sha256:" + "0" * 64
    with pytest.raises(VerifierFailure, match=r"verification\.artifact"):
        asyncio.run(served.run_single(row))


def test_tampering_is_never_scored(manager, monkeypatch):
    served = manager()
    tampered = Verdict(score=Score(1.0, tamper_detected=1.0), verifier_version="v")
    monkeypatch.setattr(served, "_verdict", lambda *_: tampered)
    with pytest.raises(InvalidMeasurement):
        score(served, canaries()[0])
