"""A branch point is the whole decision state, or it is refused."""

import msgspec
import pytest

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.manifest import Sampler
from recipe.agent_contracts.transition.branch_point import BranchPoint, branch_point
from tests.support import ADD, FINISH, NONSENSE, limits
from tests.unit.transition.test_episode import start, take

SAMPLER = Sampler(temperature=1.0, top_p=1.0, top_k=None)


def test_it_holds_the_exact_prefix_and_what_is_left_of_the_budgets():
    episode = start(step_budget=8, token_budget=1000)
    take(episode, ADD, version=4)
    take(episode, NONSENSE, version=4)
    point = branch_point(episode, episode.env.snapshot("turn 2").ref, SAMPLER)
    assert list(point.context_token_ids) == episode.context_ids
    assert point.behavior_policy_version == 4
    assert (point.turn, point.steps_left, point.tokens_left) == (2, 6, 1000 - len(episode.response_ids))
    assert point.snapshot.state_hash == episode.turns[-1].state_after
    assert msgspec.json.decode(msgspec.json.encode(point), type=BranchPoint) == point


def test_before_the_first_turn_any_version_may_start():
    episode = start()
    point = branch_point(episode, episode.env.snapshot("base").ref, SAMPLER)
    assert point.behavior_policy_version is None
    assert list(point.context_token_ids) == episode.prompt_ids


def test_the_same_snapshot_under_another_prefix_is_another_branch_point():
    # An invalid turn leaves the state, not the context.
    one, two = start(), start()
    take(two, NONSENSE)
    assert one.env.state_hash() == two.env.state_hash()
    first, second = (branch_point(episode, episode.env.snapshot("s").ref, SAMPLER) for episode in (one, two))
    assert first.snapshot == second.snapshot
    assert first.branch_point_id != second.branch_point_id


def test_a_snapshot_of_another_state_is_refused():
    episode = start()
    snapshot = episode.env.snapshot("base").ref
    take(episode, ADD)
    with pytest.raises(ContractViolation, match="present state"):
        branch_point(episode, snapshot, SAMPLER)


def test_an_ended_episode_has_no_branch_point():
    episode = start()
    take(episode, FINISH)
    with pytest.raises(ContractViolation, match="running episode"):
        branch_point(episode, episode.env.snapshot("end").ref, SAMPLER)


def test_a_prefix_of_two_policy_versions_is_refused():
    episode = start(**msgspec.structs.asdict(limits()))
    take(episode, ADD, version=1)
    take(episode, ADD, version=2)
    with pytest.raises(ContractViolation, match="one behaviour version"):
        branch_point(episode, episode.env.snapshot("s").ref, SAMPLER)
