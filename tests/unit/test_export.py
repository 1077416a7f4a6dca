"""An export is the version that was published, as a user reloads it (full, LoRA adapter, merged), or it is refused."""

import copy
import json

import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from recipe.agent_contracts.cold_start.config import ColdStartConfig
from recipe.agent_contracts.cold_start.model import build_model
from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.export import export
from recipe.agent_contracts.policy.fingerprint import fingerprint
from recipe.agent_contracts.policy.manifest import read_manifest
from recipe.agent_contracts.policy.registry import Registry
from tests.policies import manifest

STEP = 3
LORA_CHECKSUM = "sha256:base-and-adapter"
"""The two parts of a LoRA version are fingerprinted under the engine's names."""
IDS = torch.tensor([[5, 6, 7, 8]])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The cold start's architecture, saved as a run's base model and tokenizer."""
    folder = tmp_path_factory.mktemp("base")
    tokenizer = build_tokenizer()
    model = build_model(ColdStartConfig(), tokenizer).eval()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "tokenizer")
    return folder, model


def write_run(run, base_folder, trained, lora_rank=0):
    """A run folder with one checkpoint, as verl's FSDP engine leaves it with one rank, that was published as it is."""
    checkpoint = run / "checkpoints" / f"global_step_{STEP}" / "actor"
    checkpoint.mkdir(parents=True)
    (run / "trajectories").mkdir()
    torch.save(trained.state_dict(), checkpoint / "model_world_size_1_rank_0.pt")
    trained.config.save_pretrained(checkpoint / "huggingface")
    model = {
        "path": str(base_folder / "model"),
        "tokenizer_path": str(base_folder / "tokenizer"),
        "lora_rank": lora_rank,
        "lora_alpha": 16,
        "target_modules": "all-linear",
    }
    settings = {"actor_rollout_ref": {"model": model, "rollout": {"dtype": "float32"}}}
    (run / "experiment.yaml").write_text(yaml.safe_dump(settings))
    publish(run, STEP, LORA_CHECKSUM if lora_rank else fingerprint(trained.state_dict().items()))


def publish(run, version, checksum):
    made, registry = manifest(policy_version=version, weight_checksum=checksum), Registry(run)
    publication = registry.build(version, 0, num_ranks=1)
    registry.stage(publication, checksum=checksum, manifest_hash=made.write(run / "manifests"))
    registry.activate(publication)


@pytest.fixture
def run(base, tmp_path):
    """A run whose full weights were not trained: what its checkpoint holds is the base model."""
    write_run(tmp_path / "run", *base)
    return tmp_path / "run"


@torch.no_grad()
def logits(model):
    return model.eval()(input_ids=IDS).logits


def test_a_full_checkpoint_reloads_without_a_changed_logit(base, tmp_path):
    folder, model = base
    trained = copy.deepcopy(model)
    with torch.no_grad():
        trained.model.norm.weight += 0.1
    write_run(tmp_path / "run", folder, trained)
    exported = export(tmp_path / "run", STEP, tmp_path / "out", merge=False)
    assert exported.max_logprob_difference is None, "a run without records proves nothing, and must say so"
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out")), logits(trained))
    # Beside its config.json transformers would replace this tokenizer's pre-tokenizer.
    assert (tmp_path / "out" / "tokenizer" / "tokenizer.json").exists()
    assert not (tmp_path / "out" / "tokenizer.json").exists()


@pytest.mark.parametrize("merge", [False, True])
def test_a_lora_checkpoint_reloads_as_adapter_or_merged(base, tmp_path, merge):
    folder, model = base
    trained = get_peft_model(copy.deepcopy(model), LoraConfig(r=4, lora_alpha=16, target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in trained.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    write_run(tmp_path / "run", folder, trained, lora_rank=4)
    exported = export(tmp_path / "run", STEP, tmp_path / "out", merge)
    assert (exported.weight_checksum, exported.is_fingerprint_equal) == (LORA_CHECKSUM, None)
    reloaded = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out"))
    assert not torch.allclose(reloaded, logits(model), atol=1e-2), "the adapter must change something"
    torch.testing.assert_close(reloaded, logits(trained), atol=1e-4, rtol=1e-4)
    if merge:
        assert not (tmp_path / "out" / "adapter_config.json").exists()
    else:
        config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == str(folder / "model")
        assert not (tmp_path / "out" / "model.safetensors").exists()


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(run, tmp_path):
    with pytest.raises(ContractViolation, match="adapter to merge"):
        export(tmp_path / "run", STEP, tmp_path / "out", merge=True)
    with pytest.raises(FileNotFoundError, match=f"global_step_{STEP}"):
        export(tmp_path / "run", STEP + 1, tmp_path / "out", merge=False)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError):
        export(tmp_path / "run", STEP, tmp_path / "out", merge=False)


def test_the_weights_of_a_checkpoint_are_the_ones_that_were_published(run):
    exported = export(run, STEP, run.parent / "out", merge=False)
    assert exported.is_fingerprint_equal
    assert exported.weight_checksum == Registry(run).published(STEP).weight_checksum
    written = read_manifest(run.parent / "out" / "manifest.json")
    assert (written.policy_version, written.weight_checksum) == (STEP, exported.weight_checksum)
    assert exported.max_logprob_difference is None


def test_a_checkpoint_with_one_other_bit_is_refused(run):
    path = run / "checkpoints" / f"global_step_{STEP}" / "actor" / "model_world_size_1_rank_0.pt"
    weights = torch.load(path)
    weights["model.norm.weight"].view(torch.int32)[0] ^= 1
    torch.save(weights, path)
    with pytest.raises(ContractViolation, match="holds other weights than the engine served"):
        export(run, STEP, run.parent / "out", merge=False)
    assert not (run.parent / "out").exists()


def test_a_version_that_never_served_is_refused(run):
    (run / "checkpoints" / f"global_step_{STEP}").rename(run / "checkpoints" / "global_step_9")
    with pytest.raises(ContractViolation, match="a publication of version 9"):
        export(run, 9, run.parent / "out", merge=False)
