"""PolicyManifest: what changes its hash, what does not."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.policy.manifest import PolicyManifest, Sampler, files_checksum


def manifest(**changes):
    base = PolicyManifest(
        policy_version=0,
        weight_checksum="sha256:w",
        base_revision="sha256:w",
        adapter_revision=None,
        tokenizer_revision="sha256:t",
        system_prompt_hash="sha256:s",
        chat_template_hash="sha256:c",
        tool_schema_hash="sha256:o",
        parser_version="p1",
        step_budget=8,
        token_budget=320,
        sampler=Sampler(temperature=1.0, top_p=1.0, top_k=None),
        engine_build="vllm:0",
        quantization=None,
        logprobs_mode="processed_logprobs",
    )
    return msgspec.structs.replace(base, **changes)


@pytest.mark.parametrize(
    "change",
    [
        {"system_prompt_hash": "sha256:x"},
        {"tool_schema_hash": "sha256:x"},
        {"chat_template_hash": "sha256:x"},
        {"parser_version": "p2"},
        {"step_budget": 9},
        {"sampler": Sampler(temperature=0.9, top_p=1.0, top_k=None)},
    ],
)
def test_any_part_of_the_scaffold_changes_both_hashes(change):
    assert manifest(**change).manifest_hash != manifest().manifest_hash
    assert manifest(**change).scaffold_hash != manifest().scaffold_hash


def test_other_weights_share_the_scaffold():
    other = manifest(policy_version=7, weight_checksum=None)
    assert other.manifest_hash != manifest().manifest_hash
    assert other.scaffold_hash == manifest().scaffold_hash


def test_a_manifest_is_written_once_under_its_hash(tmp_path):
    name = manifest().write(tmp_path).removeprefix("sha256:")
    read = msgspec.json.decode((tmp_path / f"{name}.json").read_bytes(), type=PolicyManifest)
    assert read == manifest()


@given(st.permutations(["b.safetensors", "a.safetensors"]))
def test_the_checksum_of_a_folder_does_not_depend_on_the_order_of_its_files(tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("model")
    for name in names:
        (folder / name).write_bytes(name.encode())
    (folder / "notes.txt").write_text(str(names))
    reference = tmp_path_factory.mktemp("reference")
    for name in sorted(names):
        (reference / name).write_bytes(name.encode())
    assert files_checksum(folder) == files_checksum(reference)


def test_a_folder_without_weights_has_no_checksum(tmp_path):
    with pytest.raises(FileNotFoundError, match="weight file"):
        files_checksum(tmp_path)


@pytest.mark.parametrize(
    ("sampler", "is_model_distribution"),
    [
        (Sampler(1.0, 1.0, None), True),
        (Sampler(0.9, 1.0, None), False),
        (Sampler(1.0, 0.9, None), False),
        (Sampler(1.0, 1.0, 20), False),
        (Sampler(1.0, 1.0, None, 1.1), False),
    ],
)
def test_only_an_untouched_sampler_is_the_models_distribution(sampler, is_model_distribution):
    assert sampler.is_model_distribution is is_model_distribution
