"""Names of snapshots, and the entropy that they carry."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.transition.env import Capabilities
from recipe.agent_contracts.transition.state import Entropy, SnapshotKind, SnapshotRef
from tests.contracts.toy import ACTIONS, OfficeEnv


def reset() -> OfficeEnv:
    env = OfficeEnv()
    env.reset("office", 7)
    return env


@given(st.integers(), st.lists(st.sampled_from([0, 1]), max_size=5))
def test_a_generator_goes_on_after_a_round_trip_through_json(seed, draws):
    generator = Random(seed)
    for kind in draws:
        generator.gauss(0, 1) if kind else generator.random()
    entropy = Entropy(rng_state=generator.getstate(), clock_seconds=1.5, queue=("a",))
    again = msgspec.json.decode(msgspec.json.encode(entropy), type=Entropy)
    assert again == entropy
    assert again.entropy_hash == entropy.entropy_hash
    other = again.generator()
    assert [other.gauss(0, 1) for _ in range(3)] == [generator.gauss(0, 1) for _ in range(3)]


def test_an_environment_that_draws_nothing_has_no_generator():
    with pytest.raises(ValueError, match="no rng_state"):
        Entropy().generator()


def test_siblings_of_one_task_start_from_one_snapshot_id():
    assert reset().snapshot("base").ref.snapshot_id == reset().snapshot("base").ref.snapshot_id


def test_every_field_is_part_of_the_id():
    ref = reset().snapshot("base").ref
    for name, value in msgspec.structs.asdict(ref).items():
        other = {str: "x", bool: False, int: 8, type(None): "x", SnapshotKind: SnapshotKind.WORKSPACE}[type(value)]
        changed = msgspec.structs.replace(ref, **{name: other})
        assert changed.snapshot_id != ref.snapshot_id, name
    assert msgspec.json.decode(msgspec.json.encode(ref), type=SnapshotRef) == ref


def test_a_snapshot_names_the_one_before_it():
    env = reset()
    base = env.snapshot("base")
    env.step(ACTIONS[0])
    second = env.snapshot("second")
    branch = env.fork(base, "branch").snapshot("branch")
    assert base.ref.parent_snapshot_id is None
    assert second.ref.parent_snapshot_id == branch.ref.parent_snapshot_id == base.ref.snapshot_id


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"fork": True}, "needs restore"),
        ({"snapshot_kind": SnapshotKind.RECORD_REPLAY, "restore": True, "exact_replay": True}, "no exact_replay"),
    ],
)
def test_promises_that_cannot_be_kept_are_refused(claims, why):
    with pytest.raises(ValueError, match=why):
        Capabilities(**claims)
