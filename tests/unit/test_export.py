"""An export is the version that was published, or it is refused."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.export import export
from recipe.agent_contracts.policy.fingerprint import fingerprint
from recipe.agent_contracts.policy.manifest import read_manifest
from recipe.agent_contracts.policy.registry import Registry
from tests.policies import manifest

STEP = 2
CONFIG = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture
def run(tmp_path):
    """A run folder with one checkpoint, as verl writes it on one rank, that was published as it is."""
    torch.manual_seed(0)
    config = Qwen2Config(**CONFIG, num_key_value_heads=2, tie_word_embeddings=True)
    weights = Qwen2ForCausalLM(config).state_dict()
    actor = tmp_path / "checkpoints" / f"global_step_{STEP}" / "actor"
    config.save_pretrained(actor / "huggingface")
    torch.save(weights, actor / "model_world_size_1_rank_0.pt")
    publish(tmp_path, STEP, fingerprint(weights.items()))
    return tmp_path


def publish(run, version, checksum):
    made, registry = manifest(policy_version=version, weight_checksum=checksum), Registry(run)
    publication = registry.build(version, 0, num_ranks=1)
    registry.stage(publication, checksum=checksum, manifest_hash=made.write(run / "manifests"))
    registry.activate(publication)


def test_the_weights_of_a_checkpoint_are_the_ones_that_were_published(run):
    exported = export(run, STEP, run / "out", merge=False)
    assert exported.is_fingerprint_equal
    assert exported.weight_checksum == Registry(run).published(STEP).weight_checksum
    written = read_manifest(run / "out" / "manifest.json")
    assert (written.policy_version, written.weight_checksum) == (STEP, exported.weight_checksum)
    assert exported.max_logprob_difference is None


def test_a_checkpoint_with_one_other_bit_is_refused(run):
    path = run / "checkpoints" / f"global_step_{STEP}" / "actor" / "model_world_size_1_rank_0.pt"
    weights = torch.load(path)
    weights["model.norm.weight"].view(torch.int32)[0] ^= 1
    torch.save(weights, path)
    with pytest.raises(ContractViolation, match="holds other weights than the engine served"):
        export(run, STEP, run / "out", merge=False)
    assert not (run / "out").exists()


def test_a_version_that_never_served_is_refused(run):
    (run / "checkpoints" / "global_step_2").rename(run / "checkpoints" / "global_step_3")
    with pytest.raises(ContractViolation, match="a publication of version 3"):
        export(run, 3, run / "out", merge=False)
