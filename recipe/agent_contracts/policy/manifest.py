"""PolicyManifest: the complete policy, not just a checkpoint name.

Built from the live objects (the loaded tokenizer, the rendered template, the tools as the model sees them), never from
what a configuration claims. Two manifests that differ only in their weights share a `scaffold_hash`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import canonical_json, sha256_bytes, sha256_file, sha256_json
from recipe.agent_contracts.transition.snapshots import write_atomically

_WEIGHT_FIELDS = {"policy_version", "weight_checksum", "base_revision", "adapter_revision"}
_PROBES = ("finish", '{"name": "read_file", "arguments": {"path": "a.json"}}', "é ∑ 12 345\n\tend")


class Sampler(msgspec.Struct, frozen=True):
    """The sampling distribution, after verl's defaults were applied."""

    temperature: float
    top_p: float
    top_k: int | None
    """None: no truncation."""
    repetition_penalty: float = 1.0

    @property
    def is_model_distribution(self) -> bool:
        """Whether tokens are drawn from the model's own distribution, unchanged."""
        return self.temperature == 1.0 and self.top_p == 1.0 and self.top_k is None and self.repetition_penalty == 1.0


class PolicyManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Immutable identity of one policy. A field that is not measured yet is None, with its reason here."""

    schema_version: str = "policy-manifest-v1"
    policy_version: int
    """The trainer's global step whose weights these are; 0 is what the run started from."""
    weight_checksum: str | None
    """Of the loaded files, for version 0. None for later versions: not measured yet (needs digests of the weights in
    use on every rank)."""
    base_revision: str
    """Checksum of the files the run started from."""
    adapter_revision: str | None
    """None: no adapter, or (with LoRA) not measured yet, as weight_checksum."""
    tokenizer_revision: str
    system_prompt_hash: str
    chat_template_hash: str
    tool_schema_hash: str
    """Over the schemas in the order and form in which the template receives them."""
    parser_version: str
    memory_policy: str = "exact-history-v1"
    compactor_version: str | None = None
    """None: the context is never compacted."""
    retry_budget: int = 0
    """Times the harness asks the model again for the same turn: never."""
    step_budget: int
    token_budget: int
    sampler: Sampler
    engine_build: str
    quantization: str | None
    """None: not quantized."""
    grammar: str | None = None
    """None: decoding is not constrained."""
    logprobs_mode: str

    @property
    def manifest_hash(self) -> str:
        return sha256_json(self)

    @property
    def scaffold_hash(self) -> str:
        """Hash of everything but the weights: equal for every checkpoint of a run."""
        fields = {key: value for key, value in msgspec.to_builtins(self).items() if key not in _WEIGHT_FIELDS}
        return sha256_json(fields)

    def write(self, folder: Path) -> str:
        """Write `<folder>/<sha>.json` once and return the manifest hash."""
        path = folder / f"{self.manifest_hash.removeprefix('sha256:')}.json"
        if not path.exists():
            write_atomically(path, canonical_json(self))
        return self.manifest_hash


def tokenizer_revision(tokenizer: Any) -> str:
    """Hash of what the loaded tokenizer does: its vocabulary and rules, and the ids of fixed probe strings.

    The probes catch a loader that silently replaces a custom pre-tokenizer while the files stay the same
    (transformers 5.10 does so for a folder whose config.json says qwen2).
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    probes = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in _PROBES]
    return sha256_json({"rules": sha256_bytes(rules.encode()), "probes": probes, "eos": tokenizer.eos_token_id})


def files_checksum(folder: Path) -> str:
    """Checksum of a model folder's weight files and config, by name and content.

    Raises:
        FileNotFoundError: when the folder holds no weight file.
    """
    names = [path for path in sorted(folder.iterdir()) if path.suffix in {".safetensors", ".bin"}]
    if not names:
        raise FileNotFoundError(f"{folder} holds no *.safetensors or *.bin weight file")
    config = folder / "config.json"
    return sha256_json({path.name: sha256_file(path) for path in [*names, config] if path.exists()})
