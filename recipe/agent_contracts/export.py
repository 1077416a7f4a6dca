"""Exports a checkpoint as a Hugging Face folder and proves that it is the policy that was served.

The shards are joined in the precision they were trained in. The proof has two halves: the fingerprint of the joined
tensors is the checksum that every inference rank acknowledged for this version, and log probabilities of recorded turns
that the engine sampled with these very weights are recomputed and compared with what the engine reported.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import torch

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.fingerprint import fingerprint
from recipe.agent_contracts.policy.manifest import PolicyManifest, read_manifest
from recipe.agent_contracts.policy.registry import Publication, Registry
from recipe.agent_contracts.transition.snapshots import write_atomically
from recipe.agent_contracts.transition.trajectory import TurnRecord, read_run

NUM_PROBE_TURNS = 32
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.1}
"""Largest |log probability difference| by the engine's dtype; fp32 on CPU measured below 1e-5."""


class Exported(msgspec.Struct, frozen=True):
    """What an export found."""

    folder: Path
    weight_checksum: str
    """Of the version, as the registry has it."""
    is_fingerprint_equal: bool | None
    """Whether the exported tensors have that checksum. None: a LoRA checkpoint, whose base verl's merger casts."""
    num_probe_turns: int
    """Recorded turns of this version that were compared; 0 when the run sampled nothing with these weights."""
    max_logprob_difference: float | None
    """None: there was nothing to compare."""


def export(run: Path, step: int, out: Path, merge: bool, dtype: str = "float32") -> Exported:
    """Write `out` with weights, config, tokenizer and manifest.json.

    Args:
        run: Run folder.
        step: Checkpoint's step, which is also the policy version.
        out: A folder that does not exist yet.
        merge: For LoRA, add the adapter to the base weights instead of exporting it beside them.
        dtype: The engine's dtype, which sets the tolerance of the proof.

    Raises:
        FileNotFoundError: naming the steps that have a checkpoint.
        FileExistsError: when `out` exists.
        ContractViolation: ``policy.export`` when the checkpoint's weights are not the ones that were published as
            this version, or disagree with what was served; ``publication.version`` when it never was published.
    """
    checkpoint = run / "checkpoints" / f"global_step_{step}" / "actor"
    if not checkpoint.is_dir():
        steps = sorted(path.name for path in (run / "checkpoints").glob("global_step_*"))
        raise FileNotFoundError(f"{checkpoint} does not exist; checkpoints of this run: {steps}")
    if out.exists():
        raise FileExistsError(f"{out} exists; give a new folder")
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    published = Registry(run).published(step)
    checksum = _merge_shards(checkpoint, partial)
    if checksum not in (None, published.weight_checksum):
        raise ContractViolation(
            "policy.export",
            expected=f"weights of version {step} as they were published: {published.weight_checksum}",
            found=checksum,
            evidence=f"{checkpoint}, {Registry(run).path}",
            remedy="the checkpoint holds other weights than the engine served under this version",
        )
    if merge:
        _merge_adapter(partial)
    exported = _prove(run, published, partial, out, dtype, None if checksum is None else True)
    partial.rename(out)
    return exported


def _merge_shards(checkpoint: Path, target: Path) -> str | None:
    """Write the joined weights and return their fingerprint (None for LoRA)."""
    ranks = sorted(checkpoint.glob("model_world_size_*_rank_*.pt"), key=lambda path: int(path.stem.rpartition("_")[2]))
    shards = [torch.load(path, map_location="cpu", weights_only=False) for path in ranks]
    if any("lora_" in name for name in shards[0]):
        _merge_with_verl(checkpoint, target)
        return None
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(checkpoint / "huggingface")
    joined = {name: _join([shard[name] for shard in shards]) for name in shards[0]}
    dtype = next(iter(joined.values())).dtype
    model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.load_state_dict(joined)
    shutil.copytree(checkpoint / "huggingface", target)
    model.save_pretrained(target)
    return fingerprint(joined.items())


def _join(parts: list[torch.Tensor]) -> torch.Tensor:
    """The whole tensor of its FSDP shards, in its own precision (verl 0.9.1's merger casts to bfloat16)."""
    first = parts[0]
    if not hasattr(first, "placements"):
        return first
    placement = first.placements[0]
    locals_: list[torch.Tensor] = [part.to_local() for part in parts]  # type: ignore[attr-defined]
    return torch.cat(locals_, dim=placement.dim) if placement.is_shard() else locals_[0]


def _merge_with_verl(checkpoint: Path, target: Path) -> None:
    """verl's own merger, which takes LoRA checkpoints apart into base weights (bfloat16) and adapter."""
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(checkpoint), "--target_dir", str(target)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise ContractViolation("policy.export", "verl.model_merger to succeed", result.stderr[-2000:], str(checkpoint))


def _merge_adapter(folder: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    adapter = folder / "lora_adapter"
    if not adapter.is_dir():
        raise ContractViolation("policy.export", "a LoRA adapter to merge", "none in this checkpoint", str(folder))
    merged: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), adapter).merge_and_unload()
    merged.save_pretrained(folder)
    shutil.rmtree(adapter)


def _load(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if (folder / "lora_adapter").is_dir():
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, folder / "lora_adapter")
    return model.eval()


def _prove(
    run: Path, published: Publication, folder: Path, out: Path, dtype: str, is_fingerprint_equal: bool | None
) -> Exported:
    turns = list(islice(_turns_of_version(run, published.policy_version), NUM_PROBE_TURNS))
    difference = None
    if turns:
        model = _load(folder)
        difference = max(_gap(model, record) for record in turns)
        if difference > TOLERANCE[dtype]:
            raise ContractViolation(
                "policy.export",
                expected=f"log probabilities within {TOLERANCE[dtype]} of the served ones",
                found=difference,
                evidence=f"{len(turns)} turns of version {published.policy_version} in {run / 'trajectories'}",
            )
    write_atomically(folder / "manifest.json", canonical_json(_manifest(run, published)))
    assert published.weight_checksum is not None, "a served publication was staged"
    return Exported(out, published.weight_checksum, is_fingerprint_equal, len(turns), difference)


def _manifest(run: Path, published: Publication) -> PolicyManifest:
    """The manifest that was written when the version was published."""
    assert published.manifest_hash is not None, "a served publication was staged"
    return read_manifest(run / "manifests" / f"{published.manifest_hash.removeprefix('sha256:')}.json")


def _turns_of_version(run: Path, step: int) -> Iterator[TurnRecord]:
    for record in read_run(run):
        # raw_model_logprobs is set only where the model's own distribution was sampled.
        if record.behavior_policy_version == step and record.raw_model_logprobs:
            yield record


@torch.no_grad()
def _gap(model: Any, record: TurnRecord) -> float:
    """Largest |recomputed - served| log probability over the tokens of one turn."""
    ids = torch.tensor([record.prompt_token_ids + record.action_token_ids])
    first = len(record.prompt_token_ids)
    logprobs = torch.log_softmax(model(input_ids=ids).logits[0, first - 1 : -1].float(), dim=-1)
    recomputed = logprobs.gather(1, ids[0, first:, None])[:, 0]
    return float((recomputed - torch.tensor(record.raw_model_logprobs)).abs().max())
