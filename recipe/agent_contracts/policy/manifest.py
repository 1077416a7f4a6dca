"""PolicyManifest: the complete policy, not just a checkpoint name.

A `Scaffold` is everything that decides which token is sampled next, except the weights; a `PolicyManifest` is a
scaffold and the weights that ran in it. Both are immutable and named by the SHA-256 of their canonical JSON, so two
manifests that differ only in their weights share a `scaffold_hash`, and neither a path nor the order of a dict's keys
is in any of them. `live` builds them from loaded objects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import canonical_json, sha256_json
from recipe.agent_contracts.transition.observations import ObservationLimit
from recipe.agent_contracts.transition.snapshots import write_atomically

SCHEMA_VERSION = "policy-manifest-v3"


class Sampler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sampling distribution, after verl's defaults were applied."""

    temperature: float
    """0: greedy."""
    top_p: float
    top_k: int | None
    """None: no truncation."""
    repetition_penalty: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    ignore_eos: bool = False
    seed: int | None = None
    """Of each request. None: the engine draws from its own stream."""

    @property
    def is_model_distribution(self) -> bool:
        """Whether tokens are drawn from the model's own distribution, unchanged."""
        drawn = msgspec.structs.replace(self, seed=None, ignore_eos=False)
        return drawn == Sampler(temperature=1.0, top_p=1.0, top_k=None)


class Scaffold(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything around the weights. A null says why in its field's docstring."""

    schema_version: str = SCHEMA_VERSION
    tokenizer_revision: str
    """What the loaded tokenizer does, not what its files are called."""
    system_prompt_hash: str
    chat_template_hash: str
    """Over the template's source and over what it makes of a fixed conversation."""
    tool_schema_hash: str
    """Over the schemas in their order, and over the text that the template makes of them."""
    oracle_tools: tuple[str, ...] = ()
    """Tools that reveal ground truth, by name."""
    parser_version: str
    memory_policy: str = "exact-history-v1"
    """The context is every token so far, unchanged."""
    compactor_version: str | None = None
    """None: the context is never compacted."""
    retry_budget: int = 0
    """Times the harness asks the model again for the same turn: never."""
    step_budget: int
    """Model turns of one episode; part of the task."""
    token_budget: int
    """Policy and observation tokens of one episode; part of the task."""
    max_prompt_tokens: int
    max_response_tokens: int
    max_context_tokens: int
    max_steps: int | None = None
    """These four are the harness's limits; an episode that meets one is censored. None: no cap on turns of its own."""
    observation_limit: ObservationLimit | None
    """What the model reads of a long observation. None: all of it."""
    sampler: Sampler
    engine_build: str
    """Distribution and version of the engine, and of the torch it runs on."""
    engine_dtype: str
    """What the engine computes in, e.g. `float32`."""
    quantization: str | None
    """None: not quantized."""
    grammar: str | None = None
    """None: decoding is not constrained."""
    logprobs_mode: str

    @property
    def scaffold_hash(self) -> str:
        """Hash of everything but the weights: equal for every checkpoint of a run."""
        return sha256_json(self.without_weights())

    def without_weights(self) -> Scaffold:
        """The scaffold alone."""
        return Scaffold(**{name: getattr(self, name) for name in Scaffold.__struct_fields__})


class PolicyManifest(Scaffold, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Immutable identity of one policy."""

    policy_version: int
    """The trainer's global step whose weights these are; 0 is what the run started from."""
    weight_checksum: str
    """Fingerprint of the tensors that the trainer sent and every inference rank received and serves."""
    base_revision: str
    """Checksum of the files the run started from."""
    adapter_revision: str | None
    """Fingerprint of the LoRA adapter; base and adapter are one version, and `weight_checksum` covers both. None: no
    adapter."""

    @classmethod
    def of(
        cls,
        scaffold: Scaffold,
        *,
        policy_version: int,
        weight_checksum: str,
        base_revision: str,
        adapter_revision: str | None = None,
    ) -> PolicyManifest:
        """The policy that these weights make of a scaffold."""
        fields = {name: getattr(scaffold, name) for name in Scaffold.__struct_fields__}
        return cls(
            **fields,
            policy_version=policy_version,
            weight_checksum=weight_checksum,
            base_revision=base_revision,
            adapter_revision=adapter_revision,
        )

    @property
    def manifest_hash(self) -> str:
        return sha256_json(self)

    def write(self, folder: Path) -> str:
        """Write `<folder>/<sha>.json` once and return the manifest hash."""
        path = folder / f"{self.manifest_hash.removeprefix('sha256:')}.json"
        if not path.exists():
            write_atomically(path, canonical_json(self))
        return self.manifest_hash


class FieldChange(msgspec.Struct, frozen=True):
    """One field in which two manifests differ."""

    field: str
    """Dotted for a part of a field: `sampler.temperature`, `observation_limit.keeps`."""
    old: Any
    new: Any

    def __str__(self) -> str:
        old, new = ("none" if value is None else value for value in (self.old, self.new))
        return f"{self.field.replace('_', ' ')} was {old}, is {new}"


def diff(old: Scaffold, new: Scaffold) -> list[FieldChange]:
    """Every field in which two scaffolds or manifests differ, in the order of the schema.

    Example:
        >>> print(*diff(before, after), sep="\\n")
        policy version was 3, is 4
        sampler.temperature was 1.0, is 0.7
    """
    before, after = _flat(old), _flat(new)
    names = [*before, *(name for name in after if name not in before)]
    return [
        FieldChange(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]


def _flat(scaffold: Scaffold) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(scaffold).items():
        flat |= {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def manifest_path(run: Path, manifest_hash: str) -> Path:
    """Where a run keeps a manifest."""
    return run / "manifests" / f"{manifest_hash.removeprefix('sha256:')}.json"


def read_manifest(path: Path) -> PolicyManifest:
    """Read one manifest file.

    Raises:
        ValueError: when the file is not a manifest of this version.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=PolicyManifest)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is no {SCHEMA_VERSION}: {error}") from error
