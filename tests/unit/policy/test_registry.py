"""The registry: what was served where, and when."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.registry import Part, Registry, State, lora_checksum


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path, clock=itertools.count(1).__next__)


def acknowledge(registry, version, replica=0, rank=0, checksum="sha256:w", part=Part.FULL):
    registry.acknowledge(version, replica, part, rank, checksum, 3, None)


def publish(registry, version, replica=0, checksum=None):
    checksum = checksum or f"sha256:{version}"
    publication = registry.build(version, replica, num_ranks=1)
    acknowledge(registry, version, replica, checksum=checksum)
    registry.require_acknowledged(publication, Part.FULL, checksum)
    registry.stage(publication, checksum=checksum, manifest_hash=f"sha256:m{version}")
    registry.activate(publication)
    return publication


def versions(found):
    return [(record.replica, record.policy_version) for record in found]


def test_a_version_replaces_the_one_before_and_both_keep_their_times(registry):
    first, second = registry.get(publish(registry, 0)), registry.get(publish(registry, 1))
    before = registry.publications()[0]
    assert (first.state, second.state, before.state) == (State.ACTIVE, State.ACTIVE, State.RETIRED)
    assert (first.parent_version, second.parent_version) == (None, 0)
    assert second.built_at < second.staged_at < second.active_at == before.retired_at


def test_what_served_at_a_time_is_answered(registry):
    for version in range(3):
        publish(registry, version)
    times = [record.active_at for record in registry.publications()]
    assert [versions(registry.serving(at)) for at in times] == [[(0, 0)], [(0, 1)], [(0, 2)]]
    assert versions(registry.serving(times[1] - 0.5)) == [(0, 0)]
    assert registry.serving(times[0] - 0.5) == []


def test_replicas_are_answered_for_one_by_one(registry):
    publish(registry, 0, replica=0)
    publish(registry, 0, replica=1)
    publish(registry, 1, replica=1)
    assert versions(registry.serving(1e9)) == [(0, 0), (1, 1)]


def test_a_missing_or_wrong_acknowledgement_names_the_rank(registry):
    publication = registry.build(4, 0, num_ranks=3)
    acknowledge(registry, 4, rank=0)
    acknowledge(registry, 4, rank=2, checksum="sha256:other")
    with pytest.raises(ContractViolation, match=r"silent ranks \[1\], ranks with another digest \[2\]"):
        registry.require_acknowledged(publication, Part.FULL, "sha256:w")


def test_what_was_not_staged_cannot_serve(registry):
    publication = registry.build(0, 0, num_ranks=1)
    with pytest.raises(ContractViolation, match="expected staged, found built"):
        registry.activate(publication)


def test_a_failed_publication_leaves_the_old_version_serving(registry):
    publish(registry, 0)
    publication = registry.build(1, 0, num_ranks=1)
    registry.fail(publication, "rank 0 is gone")
    assert versions(registry.serving(1e9)) == [(0, 0)]
    assert registry.get(publication).failure == "rank 0 is gone"
    with pytest.raises(ContractViolation, match="version 1"):
        registry.published(1)


def test_an_acknowledgement_of_what_nobody_announced_is_refused(registry):
    publish(registry, 0)
    with pytest.raises(ContractViolation, match="announced for replica 0"):
        acknowledge(registry, 0)


def test_replicas_may_not_serve_one_version_with_other_weights(registry):
    publish(registry, 5, replica=0, checksum="sha256:a")
    publication = registry.build(5, 1, num_ranks=1)
    with pytest.raises(ContractViolation, match=r"publication\.version"):
        registry.stage(publication, checksum="sha256:b", manifest_hash="sha256:m")


def test_after_a_crash_a_version_may_be_made_again_with_other_weights(registry):
    publish(registry, 20, checksum="sha256:20")
    publish(registry, 21, checksum="sha256:first")
    registry.retire_all()
    assert registry.serving(1e9) == []
    publish(registry, 20, checksum="sha256:20")
    publish(registry, 21, checksum="sha256:second")
    assert registry.published(21).weight_checksum == "sha256:second"
    assert [record.parent_version for record in registry.publications()] == [None, 20, None, 20]


def test_base_and_adapter_are_one_version():
    """Either part alone makes another one."""
    assert (
        len({lora_checksum("b", "a"), lora_checksum("b", "a2"), lora_checksum("b2", "a"), lora_checksum("a", "b")}) == 4
    )


def test_what_a_rank_could_not_compare_is_kept(registry):
    publication = registry.build(0, 0, num_ranks=1)
    registry.acknowledge(0, 0, Part.FULL, 0, "sha256:w", 0, "the rank holds a part of each tensor")
    (found,) = registry.acknowledgements(publication)
    assert found.not_compared == "the rank holds a part of each tensor"


def test_ranks_may_acknowledge_at_once(tmp_path):
    registry = Registry(tmp_path)
    publication = registry.build(0, 0, num_ranks=8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda rank: acknowledge(Registry(tmp_path), 0, rank=rank), range(8)))
    registry.require_acknowledged(publication, Part.FULL, "sha256:w")
