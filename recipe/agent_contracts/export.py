"""Exports a checkpoint as a Hugging Face folder and proves that it is the policy that was served.

The shards are joined in the precision they were trained in (verl 0.9.1's own merger casts to bfloat16). The proof
recomputes log probabilities of recorded turns that the engine sampled with these very weights, and compares them with
what the engine reported; the tokenizer is proved by encoding the same texts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import torch
import yaml

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy import tokenizer
from recipe.agent_contracts.policy.manifest import PolicyManifest, files_checksum
from recipe.agent_contracts.transition.snapshots import write_atomically
from recipe.agent_contracts.transition.trajectory import TurnRecord, episodes
from recipe.agent_contracts.transition.trajectory.context import contexts

NUM_PROBE_TURNS = 32
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.1}
"""Largest |log probability difference| by the engine's dtype; fp32 on CPU measured below 1e-5."""


class Exported(msgspec.Struct, frozen=True):
    """What an export found."""

    folder: Path
    weight_checksum: str
    num_probe_turns: int
    """Recorded turns of this version that were compared; 0 when the run sampled nothing with these weights."""
    max_logprob_difference: float | None
    """None: there was nothing to compare."""


def export(run: Path, step: int, out: Path, merge: bool) -> Exported:
    """Write `out`: weights and config, or for LoRA the adapter alone; the tokenizer; manifest.json.

    The tokenizer lies beside the weights, or in `out/tokenizer` where transformers would read it differently there.

    Args:
        run: Run folder.
        step: Checkpoint's step, which is also the policy version.
        out: A folder that does not exist yet.
        merge: For LoRA, write the whole model with the adapter added to its weights.

    Raises:
        FileNotFoundError: naming the steps that have a checkpoint.
        FileExistsError: when `out` exists.
        ContractViolation: ``policy.export`` when what was written is not what was served.
    """
    checkpoint = run / "checkpoints" / f"global_step_{step}" / "actor"
    if not checkpoint.is_dir():
        steps = sorted(path.name for path in (run / "checkpoints").glob("global_step_*"))
        raise FileNotFoundError(f"{checkpoint} does not exist; checkpoints of this run: {steps}")
    if out.exists():
        raise FileExistsError(f"{out} exists; give a new folder")
    settings = yaml.safe_load((run / "experiment.yaml").read_text())["actor_rollout_ref"]
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    _write_weights(checkpoint, settings["model"], partial, merge)
    turns = list(islice(_turns_of_version(run, step), NUM_PROBE_TURNS))
    source = settings["model"]["tokenizer_path"] or settings["model"]["path"]
    tokenizer.write_beside(source, partial, [context for context, _ in turns])
    exported = _prove(run, partial, out, turns, settings["rollout"]["dtype"])
    partial.rename(out)
    return exported


def _write_weights(checkpoint: Path, settings: dict[str, Any], target: Path, merge: bool) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    ranks = sorted(checkpoint.glob("model_world_size_*_rank_*.pt"), key=lambda path: int(path.stem.rpartition("_")[2]))
    shards = [torch.load(path, map_location="cpu", weights_only=False) for path in ranks]
    joined = {name: _join([shard[name] for shard in shards]) for name in shards[0]}
    is_lora = any("lora_" in name for name in joined)
    if merge and not is_lora:
        raise ContractViolation("policy.export", "a LoRA adapter to merge", "none in this checkpoint", str(checkpoint))
    config = AutoConfig.from_pretrained(checkpoint / "huggingface")
    dtype = next(iter(joined.values())).dtype
    model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if is_lora:
        model = _with_adapter(model, settings)
    model.load_state_dict(joined)
    if merge:
        model = model.merge_and_unload()
    model.save_pretrained(target)


def _with_adapter(model: Any, settings: dict[str, Any]) -> Any:
    """The model wrapped as verl's FSDP engine wraps it, so that the checkpoint's names fit."""
    from peft import LoraConfig, TaskType, get_peft_model

    model.name_or_path = settings["path"]  # what the adapter's config names as its base
    keys = ("target_modules", "target_parameters", "exclude_modules")
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=settings["lora_rank"],
        lora_alpha=settings["lora_alpha"],
        bias="none",
        **{key: settings.get(key) for key in keys},
    )
    return get_peft_model(model, config)


def _join(parts: list[torch.Tensor]) -> torch.Tensor:
    """The whole tensor of its FSDP shards, in its own precision."""
    first = parts[0]
    if not hasattr(first, "placements"):
        return first
    placement = first.placements[0]
    locals_: list[torch.Tensor] = [part.to_local() for part in parts]  # type: ignore[attr-defined]
    return torch.cat(locals_, dim=placement.dim) if placement.is_shard() else locals_[0]


def _prove(run: Path, folder: Path, out: Path, turns: list[tuple[list[int], TurnRecord]], dtype: str) -> Exported:
    from transformers import AutoModelForCausalLM

    difference = None
    if turns:
        # A folder that holds an adapter is loaded on top of the base model that its config names.
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        difference = max(_gap(model, context, record) for context, record in turns)
        if difference > TOLERANCE[dtype]:
            raise ContractViolation(
                "policy.export",
                expected=f"log probabilities within {TOLERANCE[dtype]} of the served ones",
                found=difference,
                evidence=f"{len(turns)} turns of {turns[0][1].policy_manifest_hash} in {run / 'trajectories'}",
            )
    checksum = files_checksum(folder)
    manifest = _manifest(run, [record for _, record in turns], checksum)
    if manifest is not None:
        write_atomically(folder / "manifest.json", canonical_json(manifest))
    return Exported(out, checksum, len(turns), difference)


def _manifest(run: Path, turns: list[TurnRecord], checksum: str) -> PolicyManifest | None:
    """The manifest that the turns were sampled under, with the weights' checksum that is known now."""
    if not turns or turns[0].policy_manifest_hash is None:
        return None
    name = turns[0].policy_manifest_hash.removeprefix("sha256:")
    recorded = msgspec.json.decode((run / "manifests" / f"{name}.json").read_bytes(), type=PolicyManifest)
    return msgspec.structs.replace(recorded, weight_checksum=checksum)


def _turns_of_version(run: Path, step: int) -> Iterator[tuple[list[int], TurnRecord]]:
    """Each turn that these weights sampled, with the context it was sampled from."""
    for turns in episodes(run):
        for context, record in zip(contexts(turns), turns, strict=True):
            # raw_model_logprobs is set only where the model's own distribution was sampled.
            if record.behavior_policy_version == step and record.raw_model_logprobs:
                yield context, record


@torch.no_grad()
def _gap(model: Any, context: list[int], record: TurnRecord) -> float:
    """Largest |recomputed - served| log probability over the tokens of one turn."""
    ids = torch.tensor([context + record.action_token_ids])
    first = len(context)
    logprobs = torch.log_softmax(model(input_ids=ids).logits[0, first - 1 : -1].float(), dim=-1)
    recomputed = logprobs.gather(1, ids[0, first:, None])[:, 0]
    return float((recomputed - torch.tensor(record.raw_model_logprobs)).abs().max())
