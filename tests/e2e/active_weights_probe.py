"""Loads a model with random weights into a real vLLM CPU engine and prints what ActiveWeights finds, as one JSON line.

    python active_weights_probe.py FOLDER llama|qwen2

Run by test_active_weights.py in a process of its own: the engine lives inside it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind")

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import verl_ext.plugin  # noqa: F401  (vllm-cpu's own platform detection needs it)
from verl_ext.active_weights import ActiveWeights

SIZES = {
    "vocab_size": 250,  # padded by vLLM
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}


def main(folder: Path, model_type: str) -> None:
    config = AutoConfig.for_model(model_type, **SIZES)
    torch.manual_seed(0)
    first: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    first.save_pretrained(folder)
    second: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    weights = {name: tensor for name, tensor in second.state_dict().items() if name != "lm_head.weight"}

    from vllm import LLM

    from verl_ext.weight_publication import _separate_head_is_loaded

    engine = LLM(str(folder), dtype="float32", enforce_eager=True, skip_tokenizer_init=True, max_model_len=64)
    runner = engine.llm_engine.model_executor.driver_worker.worker.model_runner

    def compare() -> dict[str, Any]:
        return dataclasses.asdict(ActiveWeights(runner.model).compare(weights))

    found = {"before the reload": compare()}
    runner.reload_weights(weights_iterator=iter(dict(weights).items()))
    found["plain reload"] = compare()
    with _separate_head_is_loaded(runner.model, weights):
        runner.reload_weights(weights_iterator=iter(dict(weights).items()))
    found["our reload"] = compare()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
