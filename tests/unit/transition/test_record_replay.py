"""Snapshots by record: restored by doing everything again, and no further than the world answers as before."""

import pytest

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.conformance import ContractCase, Property, Verdict, check_environment
from recipe.agent_contracts.transition.record_replay import RecordReplayEnv
from recipe.agent_contracts.transition.snapshots import BlobStore, SnapshotStore
from tests.contracts.broken import UnseededRandom
from tests.contracts.toy import ACTIONS, OfficeEnv


class Recorded:
    @classmethod
    def contract_cases(cls):
        return [ContractCase(open=lambda: RecordReplayEnv(OfficeEnv()), task_id="office", seed=7, actions=ACTIONS)]


def started(inner) -> RecordReplayEnv:
    env = RecordReplayEnv(inner)
    env.reset("office", 7)
    return env


def test_it_claims_partial_replay_and_says_so():
    verdicts = {finding.property: finding.verdict for finding in check_environment(Recorded, 0.0).findings}
    not_claimed = {Property.REPLAY_IS_EXACT, Property.RESTORE_IS_EXACT, Property.FORKS_ARE_ISOLATED}
    assert verdicts == {name: Verdict.NOT_CLAIMED if name in not_claimed else Verdict.HOLDS for name in Property}
    assert started(OfficeEnv()).snapshot("s").ref.exact_replay is False


@pytest.mark.parametrize("num_actions", range(len(ACTIONS) + 1))
def test_a_world_that_answers_as_before_is_restored_from_the_record_alone(num_actions):
    env = started(OfficeEnv())
    for action in ACTIONS[:num_actions]:
        env.step(action)
    store = SnapshotStore(BlobStore("memory://record"))
    snapshot_id = store.save(env.snapshot("s"))
    recovered = RecordReplayEnv(OfficeEnv())
    recovered.restore(store.load(snapshot_id))
    assert recovered.state_hash() == env.state_hash()
    for action in ACTIONS[num_actions:]:
        assert recovered.step(action) == env.step(action)


def test_a_world_that_answers_otherwise_is_not_restored():
    env = started(UnseededRandom())
    env.step(ACTIONS[0])
    with pytest.raises(ContractViolation, match=r"transition\.restore.*turn 0"):
        env.restore(env.snapshot("s"))


def test_it_never_forks():
    env = started(OfficeEnv())
    with pytest.raises(ContractViolation, match="claims fork"):
        env.fork(env.snapshot("s"), "1")


def test_nothing_is_there_before_the_first_reset():
    with pytest.raises(ContractViolation, match="reset before"):
        RecordReplayEnv(OfficeEnv()).snapshot("s")
