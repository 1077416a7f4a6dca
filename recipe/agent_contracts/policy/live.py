"""Builds scaffolds from loaded objects: the tokenizer, what its template renders, the tools, the parser, the sampler.

Nothing here reads a configuration: what a configuration claims and what was loaded differ exactly in the cases that
matter (a loader that replaces a pre-tokenizer, a template that another file overrides, an engine of another version).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import canonical_json, sha256_bytes, sha256_file, sha256_json
from recipe.agent_contracts.policy.manifest import Sampler, Scaffold
from recipe.agent_contracts.transition.episode import Limits
from recipe.agent_contracts.transition.observations import ObservationLimit
from recipe.agent_contracts.transition.parsers.base import StrictParser

_PROBES = ("finish", '{"name": "read_file", "arguments": {"path": "a.json"}}', "é ∑ 12 345\n\tend")
_CONVERSATION = [
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": "second"},
    {"role": "tool", "content": "third"},
]
_NOT_SAMPLING = frozenset({"logprobs", "max_tokens"})
"""What verl sends beside the sampler: they change what is returned and how long, not the distribution."""


class Engine(msgspec.Struct, frozen=True):
    """What the inference engine says of itself."""

    build: str
    dtype: str
    quantization: str | None
    logprobs_mode: str
    grammar: str | None = None


class ScaffoldBuilder:
    """Scaffolds of one process. Hashes of what stays the same are computed once.

    Args:
        tokenizer: The loaded tokenizer, its chat template in place.
        engine: The engine that samples.
    """

    def __init__(self, tokenizer: Any, engine: Engine) -> None:
        self._tokenizer = tokenizer
        self._engine = engine
        self._tokenizer_revision = tokenizer_revision(tokenizer)
        self._chat_template_hash = chat_template_hash(tokenizer)
        self._built: dict[bytes, Scaffold] = {}

    def build(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        parser: StrictParser,
        limits: Limits,
        observation_limit: ObservationLimit | None,
        sampler: Sampler,
        oracle_tools: Sequence[str] = (),
    ) -> Scaffold:
        """The scaffold of an episode that starts with `messages` and may call `tools`, some of which are oracles."""
        system = [dict(message) for message in messages if message["role"] == "system"]
        # Not canonical: the order of a schema's keys may be visible to the model.
        settings = msgspec.to_builtins([limits, observation_limit, sampler])
        key = json.dumps([system, tools, list(oracle_tools), parser.version, settings]).encode()
        if key not in self._built:
            found = self._build(system, tools, parser, limits, observation_limit, sampler)
            self._built[key] = msgspec.structs.replace(found, oracle_tools=tuple(oracle_tools))
        return self._built[key]

    def _build(
        self,
        system: list[dict[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        parser: StrictParser,
        limits: Limits,
        observation_limit: ObservationLimit | None,
        sampler: Sampler,
    ) -> Scaffold:
        return Scaffold(
            tokenizer_revision=self._tokenizer_revision,
            system_prompt_hash=sha256_json(system),
            chat_template_hash=self._chat_template_hash,
            tool_schema_hash=tool_schema_hash(self._tokenizer, tools),
            parser_version=parser.version,
            step_budget=limits.step_budget,
            token_budget=limits.token_budget,
            max_prompt_tokens=limits.max_prompt_tokens,
            max_response_tokens=limits.max_response_tokens,
            max_context_tokens=limits.max_context_tokens,
            max_steps=limits.max_steps,
            observation_limit=observation_limit,
            sampler=sampler,
            engine_build=self._engine.build,
            engine_dtype=self._engine.dtype,
            quantization=self._engine.quantization,
            grammar=self._engine.grammar,
            logprobs_mode=self._engine.logprobs_mode,
        )


def sampler_of(sampling_params: Mapping[str, Any]) -> Sampler:
    """The sampler as the engine applies it: verl writes "no top-k" as -1.

    Raises:
        ValueError: for a parameter that a manifest does not name: it would change the policy without a trace.
    """
    values = {key: value for key, value in sampling_params.items() if key not in _NOT_SAMPLING}
    unknown = set(values) - set(Sampler.__struct_fields__)
    if unknown:
        raise ValueError(f"sampling parameters {sorted(unknown)} are not part of a manifest's sampler")
    values["top_k"] = None if values["top_k"] in (-1, 0, None) else values["top_k"]
    return msgspec.convert(values, Sampler)


def tokenizer_revision(tokenizer: Any) -> str:
    """Hash of what the loaded tokenizer does: its vocabulary and rules, and the ids of fixed probe strings.

    The probes catch a loader that silently replaces a custom pre-tokenizer while the files stay the same
    (transformers 5.10 does so for a folder whose config.json says qwen2).
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = _rules(backend) if backend is not None else repr(sorted(tokenizer.get_vocab().items())).encode()
    probes = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in _PROBES]
    return sha256_json({"rules": sha256_bytes(rules), "probes": probes, "eos": tokenizer.eos_token_id})


def _rules(backend: Any) -> bytes:
    """The fast tokenizer's own description, without the settings of whichever call came last."""
    rules = json.loads(backend.to_str())
    return canonical_json({key: value for key, value in rules.items() if key not in ("truncation", "padding")})


def chat_template_hash(tokenizer: Any) -> str:
    """Hash of the template's source, and of what it makes of a fixed conversation."""
    rendered = tokenizer.apply_chat_template(_CONVERSATION, add_generation_prompt=True, tokenize=False)
    return sha256_json({"source": tokenizer.chat_template, "rendered": str(rendered)})


def tool_schema_hash(tokenizer: Any, tools: Sequence[Mapping[str, Any]]) -> str:
    """Hash of the schemas in their order, and of the text that the template makes of them.

    The order of a schema's keys counts only where the template prints it, since the model then sees another text.
    """
    rendered = tokenizer.apply_chat_template(
        _CONVERSATION[:1], tools=list(tools) or None, add_generation_prompt=True, tokenize=False
    )
    return sha256_json({"schemas": list(tools), "rendered": str(rendered)})


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
