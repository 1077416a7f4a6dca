"""A scaffold and a manifest, for tests of policies."""

from typing import Any

import msgspec

from recipe.agent_contracts.policy.manifest import PolicyManifest, Sampler, Scaffold


def scaffold(**changes: Any) -> Scaffold:
    base = Scaffold(
        tokenizer_revision="sha256:t",
        system_prompt_hash="sha256:s",
        chat_template_hash="sha256:c",
        tool_schema_hash="sha256:o",
        parser_version="p1",
        step_budget=8,
        token_budget=320,
        max_prompt_tokens=160,
        max_response_tokens=320,
        max_context_tokens=512,
        observation_limit=None,
        sampler=Sampler(temperature=1.0, top_p=1.0, top_k=None),
        engine_build="vllm:0 torch:0",
        engine_dtype="float32",
        quantization=None,
        logprobs_mode="processed_logprobs",
    )
    return msgspec.structs.replace(base, **changes)


def manifest(**changes: Any) -> PolicyManifest:
    base = PolicyManifest.of(scaffold(), policy_version=0, weight_checksum="sha256:w", base_revision="sha256:b")
    return msgspec.structs.replace(base, **changes)
