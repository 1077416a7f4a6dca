"""The audit queue: what is queued, in which order, always the same; and labels that a named person gave."""

from pathlib import Path

import pytest

from recipe.agent_contracts.errors import ContractViolation, RecordCorrupt
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter
from recipe.agent_contracts.verification.audit_queue import (
    LABELS,
    Risk,
    append_label,
    audit_queue,
    read_labels,
)
from tests.records import turn_record

CLEAN = {"task_success": 1.0, "policy_violation": 0.0, "collateral_damage": 0.0}


def record(name, tokens=10, **vector):
    return turn_record(
        name,
        reward_components={**CLEAN, **vector},
        final_state_hash="sha256:state",
        termination_reason=Termination.AGENT_FINISH,
        action_token_ids=[1] * tokens,
        behavior_logprobs=[-0.1] * tokens,
        action_mask=[1] * tokens,
    )


def run_of(folder: Path, *records) -> Path:
    writer = TrajectoryWriter(folder / "trajectories", "0")
    for found in records:
        writer.append([found])
    writer.close()
    return folder


def risks(queue):
    return {found.trajectory_id: found.risks for found in queue}


def test_each_risk_is_queued_and_what_is_clean_is_not(tmp_path):
    run = run_of(
        tmp_path,
        record("clean_0"),
        record("clean_1", tokens=5),  # exactly half the median is not short
        record("violates_0", policy_violation=1.0),
        record("damages_0", collateral_damage=2.0),
        record("rejected_0", **{"extra.judge_rejected": 1.0}),
        record("short_0", tokens=4),
        record("failed_0", task_success=0.0, policy_violation=1.0, tokens=1),
    )
    assert risks(audit_queue(run, random_share=0.0, seed=0)) == {
        "rejected_0": [Risk.JUDGE_DISAGREES],
        "damages_0": [Risk.VIOLATION_WITH_SUCCESS],
        "violates_0": [Risk.VIOLATION_WITH_SUCCESS],
        "short_0": [Risk.SHORT_SUCCESS],
    }


def test_an_episode_without_a_verdict_is_not_queued(tmp_path):
    censored = turn_record("c_0", termination_reason=Termination.TOOL_TIMEOUT)
    assert audit_queue(run_of(tmp_path, censored), random_share=1.0, seed=0) == []


def test_the_riskiest_comes_first(tmp_path):
    both = record("z_0", policy_violation=1.0, **{"extra.judge_rejected": 1.0})
    run = run_of(tmp_path, record("a_0", tokens=1), record("b_0", collateral_damage=1.0), record("c_0"), both)
    assert [found.trajectory_id for found in audit_queue(run, 0.0, 0)] == ["z_0", "b_0", "a_0"]


def test_the_random_share_is_seeded_and_near_its_size(tmp_path):
    run = run_of(tmp_path, *(record(f"g{index}_0") for index in range(400)))
    chosen = [set(risks(audit_queue(run, 0.25, seed))) for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert 60 <= len(chosen[0]) <= 140  # binomial(400, 1/4): six standard deviations are 52
    assert len(audit_queue(run, 1.0, 1)) == 400


def test_a_larger_share_keeps_what_a_smaller_one_chose(tmp_path):
    run = run_of(tmp_path, *(record(f"g{index}_0") for index in range(100)))
    assert set(risks(audit_queue(run, 0.1, 3))) <= set(risks(audit_queue(run, 0.5, 3)))


def test_a_label_says_who_what_and_of_which_state_and_ends_the_wait(tmp_path):
    run = run_of(tmp_path, record("a_0", policy_violation=1.0))
    append_label(run, "a_0", is_right=False, by=" Ada ", note="wrote to the wrong file")
    (label,) = read_labels(run)
    assert (label.is_right, label.by, label.note) == (False, "Ada", "wrote to the wrong file")
    assert (label.task_success, label.final_state_hash) == (1.0, "sha256:state")
    assert audit_queue(run, 0.0, 0) == []


def test_labels_are_appended_never_replaced(tmp_path):
    run = run_of(tmp_path, record("a_0"))
    append_label(run, "a_0", is_right=True, by="Ada", note="")
    first = (run / LABELS).read_bytes()
    append_label(run, "a_0", is_right=False, by="Bob", note="")
    assert (run / LABELS).read_bytes().startswith(first)
    assert [label.is_right for label in read_labels(run)] == [True, False]


@pytest.mark.parametrize(("name", "by"), [("nobody_0", "Ada"), ("a_0", "  "), ("c_0", "Ada")])
def test_a_label_without_verdict_or_name_is_refused(tmp_path, name, by):
    run = run_of(tmp_path, record("a_0"), turn_record("c_0", termination_reason=Termination.TOOL_TIMEOUT))
    with pytest.raises(ContractViolation, match=r"verification\.labels"):
        append_label(run, name, is_right=True, by=by, note="")
    assert not (run / LABELS).exists()


def test_a_damaged_label_is_named(tmp_path):
    run = run_of(tmp_path, record("a_0"))
    append_label(run, "a_0", is_right=True, by="Ada", note="")
    with (run / LABELS).open("ab") as stream:
        stream.write(b'{"trajectory_id": "b_0"}\n')
    with pytest.raises(RecordCorrupt, match=r"human_labels\.jsonl:2"):
        list(read_labels(run))
