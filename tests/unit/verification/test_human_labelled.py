"""Human labels as labelled states: each person's last word, each episode once, disputes in no rate."""

import pytest

from recipe.agent_contracts.errors import ContractViolation, RecordCorrupt
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter
from recipe.agent_contracts.verification.audit_queue import LABELS, append_label
from recipe.agent_contracts.verification.human_labelled import human_labelled
from recipe.agent_contracts.verification.labels import Fault, LabelSource
from tests.records import identity, turn_record

VECTOR = {"task_success": 1.0, "policy_violation": 0.0, "collateral_damage": 0.0}


@pytest.fixture
def run(tmp_path):
    blobs, writer = BlobStore(tmp_path / "blobs"), TrajectoryWriter(tmp_path / "trajectories", "0")
    for name in ("a_0", "b_0"):
        who = identity(name, family=f"family {name}", grader_hash=blobs.put(b'{"of": "%s"}' % name.encode()))
        ended = {"termination_reason": Termination.AGENT_FINISH, "reward_components": VECTOR}
        writer.append([turn_record(episode=who, final_state_hash=blobs.put(b"state " + name.encode()), **ended)])
    writer.close()
    return tmp_path


def test_a_label_brings_its_state_and_grader(run):
    append_label(run, "b_0", is_right=False, by="Ada", note="")
    (state,) = human_labelled(run).states
    assert (state.name, state.family, state.grader, state.final_state) == (
        "b_0",
        "family b_0",
        {"of": "b_0"},
        b"state b_0",
    )
    assert [(label.source, label.by, label.faults) for label in state.labels] == [
        (LabelSource.HUMAN, "Ada", [Fault.WRONG])
    ]


def test_a_persons_last_word_counts(run):
    append_label(run, "a_0", is_right=False, by="Ada", note="")
    append_label(run, "a_0", is_right=True, by="Ada", note="a slip")
    (state,) = human_labelled(run).states
    assert state.is_right


def test_two_people_who_agree_are_one_state_and_two_who_do_not_are_a_dispute(run):
    for name, said in (("a_0", (True, True)), ("b_0", (True, False))):
        for by, is_right in zip(("Ada", "Bob"), said, strict=True):
            append_label(run, name, is_right, by, note="")
    found = human_labelled(run)
    assert [(state.name, [label.by for label in state.labels]) for state in found.states] == [("a_0", ["Ada", "Bob"])]
    assert found.disputed == ["b_0"]


def test_a_run_without_labels_has_none(run):
    assert human_labelled(run).states == []


def test_a_label_of_another_runs_episode_is_refused(run):
    append_label(run, "a_0", is_right=True, by="Ada", note="")
    (run / LABELS).write_text((run / LABELS).read_text().replace("a_0", "z_0"))
    with pytest.raises(ContractViolation, match="z_0"):
        human_labelled(run)


def test_a_state_that_is_gone_is_named(run):
    label = append_label(run, "a_0", is_right=True, by="Ada", note="")
    store = BlobStore(run / "blobs")
    (run / "blobs" / store.path(label.final_state_hash)).unlink()
    with pytest.raises(RecordCorrupt, match=label.final_state_hash):
        human_labelled(run)
