"""Manifests: what changes their hash, what does not, and how a difference is worded."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.agent_contracts.policy.manifest import PolicyManifest, Sampler, Scaffold, diff, read_manifest
from recipe.agent_contracts.transition.observations import ObservationLimit
from tests.policies import manifest

OTHER = {
    int: 9,
    str: "other",
    Sampler: Sampler(temperature=0.9, top_p=1.0, top_k=None),
    ObservationLimit: ObservationLimit(9, "end"),
}
WEIGHTS = set(PolicyManifest.__struct_fields__) - set(Scaffold.__struct_fields__)


def changed(field):
    kind = next(kind for kind in OTHER if kind in (getattr(field.type, "__args__", None) or (field.type,)))
    return {field.name: OTHER[kind]}


FIELDS = msgspec.structs.fields(PolicyManifest)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_is_hashed_and_only_the_weights_are_not_part_of_the_scaffold(field):
    other = msgspec.structs.replace(manifest(), **changed(field))
    assert other.manifest_hash != manifest().manifest_hash
    assert (other.scaffold_hash == manifest().scaffold_hash) is (field.name in WEIGHTS)


def test_the_weights_are_version_checksum_base_and_adapter():
    assert sorted(WEIGHTS) == ["adapter_revision", "base_revision", "policy_version", "weight_checksum"]


@given(st.permutations(list(msgspec.to_builtins(manifest()))))
@settings(max_examples=10)
def test_the_order_of_keys_is_not_part_of_a_manifest(names):
    fields = msgspec.to_builtins(manifest())
    shuffled = json.dumps({name: fields[name] for name in names})
    assert msgspec.json.decode(shuffled, type=PolicyManifest).manifest_hash == manifest().manifest_hash


def test_a_manifest_names_its_scaffold():
    whole = PolicyManifest.of(
        manifest().without_weights(), policy_version=0, weight_checksum="sha256:w", base_revision="sha256:b"
    )
    assert whole == manifest()
    assert whole.without_weights().scaffold_hash == whole.scaffold_hash


def test_the_hash_of_a_known_manifest_never_changes():
    """Recorded runs name their policies by it: a new field needs a new schema version."""
    assert manifest().manifest_hash == "sha256:eb64a974706c769a6bff0801140ee8cd77bdc4ff2e6705ac2fb23767cf6c1575"


def test_a_manifest_is_written_once_under_its_hash_wherever_the_run_lies(tmp_path):
    for run in ("run", "the same run renamed"):
        name = manifest().write(tmp_path / run).removeprefix("sha256:")
        assert read_manifest(tmp_path / run / f"{name}.json") == manifest()
    assert len(list(tmp_path.rglob("*.json"))) == 2


def test_a_file_of_another_version_is_refused(tmp_path):
    (tmp_path / "old.json").write_text('{"schema_version": "policy-manifest-v1"}')
    with pytest.raises(ValueError, match="is no policy-manifest-v3"):
        read_manifest(tmp_path / "old.json")


def test_a_difference_names_field_old_and_new():
    new = manifest(policy_version=4, adapter_revision="sha256:a", sampler=Sampler(0.7, 1.0, None))
    assert [str(change) for change in diff(manifest(), new)] == [
        "sampler.temperature was 1.0, is 0.7",
        "policy version was 0, is 4",
        "adapter revision was none, is sha256:a",
    ]
    assert diff(manifest(), manifest()) == []


@pytest.mark.parametrize(
    ("sampler", "is_model_distribution"),
    [
        (Sampler(1.0, 1.0, None), True),
        (Sampler(1.0, 1.0, None, seed=3), True),
        (Sampler(0.9, 1.0, None), False),
        (Sampler(1.0, 0.9, None), False),
        (Sampler(1.0, 1.0, 20), False),
        (Sampler(1.0, 1.0, None, 1.1), False),
        (Sampler(1.0, 1.0, None, min_p=0.1), False),
        (Sampler(1.0, 1.0, None, presence_penalty=0.1), False),
    ],
)
def test_only_an_untouched_sampler_is_the_models_distribution(sampler, is_model_distribution):
    assert sampler.is_model_distribution is is_model_distribution
