"""Exports a checkpoint as a Hugging Face folder and proves that it is the policy that was served.

The shards are joined in the precision they were trained in (verl 0.9.1's own merger casts to bfloat16). The proof has
two halves. The fingerprint of the joined tensors is the checksum that every inference rank acknowledged for this
version (not for LoRA). Log probabilities of recorded turns that the engine sampled with these very weights are
recomputed and compared with what the engine reported. The tokenizer is proved by encoding the same texts.
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
from recipe.agent_contracts.policy.fingerprint import fingerprint
from recipe.agent_contracts.policy.manifest import PolicyManifest, read_manifest
from recipe.agent_contracts.policy.registry import Publication, Registry
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
    """Of the version, as the registry has it."""
    is_fingerprint_equal: bool | None
    """Whether the joined tensors have that checksum. None: a LoRA checkpoint, which is published in two parts, base and
    adapter, under the engine's names."""
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
        ContractViolation: ``policy.export`` when the checkpoint's weights are not the ones that were published as
            this version, or disagree with what was served; ``publication.version`` when it never was published.
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
    published = Registry(run).published(step)
    assert published.weight_checksum is not None, "a served publication was staged"
    checksum = _write_weights(checkpoint, settings["model"], partial, merge)
    if checksum not in (None, published.weight_checksum):
        raise ContractViolation(
            "policy.export",
            expected=f"weights of version {step} as they were published: {published.weight_checksum}",
            found=checksum,
            evidence=f"{checkpoint}, {Registry(run).path}",
            remedy="the checkpoint holds other weights than the engine served under this version",
        )
    turns = list(islice(_turns_of_version(run, step), NUM_PROBE_TURNS))
    source = settings["model"]["tokenizer_path"] or settings["model"]["path"]
    tokenizer.write_beside(source, partial, [context for context, _ in turns])
    difference = _served_difference(run, partial, turns, settings["rollout"]["dtype"])
    write_atomically(partial / "manifest.json", canonical_json(_manifest(run, published)))
    partial.rename(out)
    return Exported(out, published.weight_checksum, None if checksum is None else True, len(turns), difference)


def _write_weights(checkpoint: Path, settings: dict[str, Any], target: Path, merge: bool) -> str | None:
    """Write what is exported, and return the fingerprint of the joined tensors (None for LoRA)."""
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
    return None if is_lora else fingerprint(joined.items())


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


def _served_difference(run: Path, folder: Path, turns: list[tuple[list[int], TurnRecord]], dtype: str) -> float | None:
    """Largest difference to the served log probabilities, which must be small. None: there is nothing to compare."""
    if not turns:
        return None
    from transformers import AutoModelForCausalLM

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
    return difference


def _manifest(run: Path, published: Publication) -> PolicyManifest:
    """The manifest that was written when the version was published."""
    assert published.manifest_hash is not None, "a served publication was staged"
    return read_manifest(run / "manifests" / f"{published.manifest_hash.removeprefix('sha256:')}.json")


def _turns_of_version(run: Path, step: int) -> Iterator[tuple[list[int], TurnRecord]]:
    """Each turn that these weights sampled, with the context it was sampled from."""
    for turns in episodes(run):
        for context, record in zip(contexts(turns), turns, strict=True):
            labels = {record.behavior_policy_version, record.behavior_policy_version_end}
            # raw_model_logprobs is set only where the model's own distribution was sampled.
            if labels == {step} and record.raw_model_logprobs:
                yield context, record


@torch.no_grad()
def _gap(model: Any, context: list[int], record: TurnRecord) -> float:
    """Largest |recomputed - served| log probability over the tokens of one turn."""
    ids = torch.tensor([context + record.action_token_ids])
    first = len(context)
    logprobs = torch.log_softmax(model(input_ids=ids).logits[0, first - 1 : -1].float(), dim=-1)
    recomputed = logprobs.gather(1, ids[0, first:, None])[:, 0]
    return float((recomputed - torch.tensor(record.raw_model_logprobs)).abs().max())
