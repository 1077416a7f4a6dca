"""The policy network: transformers' Qwen2 at 0.6M parameters, with an initialisation that makes it trainable.

Two heads of the first layer start as previous-token heads, through the biases of their queries and keys: with rotary
positions a constant query turned back by one position matches the constant key of the token before. Copying a value
from an observation then needs one more layer to be learnt instead of two.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from recipe.agent_contracts.cold_start.config import ColdStartConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

_ROPE_THETA = 10_000.0
_EMBEDDING_STD = 0.05
_PREVIOUS_TOKEN_GAIN = 3.0
_SLOWEST_USEFUL_FREQUENCY = 0.05
"""Slower rotations look alike at distance 0 and 1, so they would not tell the previous token from the current."""


def build_model(config: ColdStartConfig, tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """An initialised fp32 model whose vocabulary is exactly the tokenizer's. Deterministic for `config.seed`."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(config.seed)
    architecture = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_heads,
        max_position_embeddings=config.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": _ROPE_THETA},
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = Qwen2ForCausalLM(architecture).float()
    with torch.no_grad():
        _initialise(model, config)
    model.generation_config.update(
        do_sample=True,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model


def _initialise(model: Qwen2ForCausalLM, config: ColdStartConfig) -> None:
    """Matrices with standard deviation 1/sqrt(fan_in), those that write to the residual stream smaller; biases 0."""
    residual_scale = 0.5 / math.sqrt(config.num_layers)
    for name, parameter in model.named_parameters():
        if "embed_tokens" in name:
            nn.init.normal_(parameter, std=_EMBEDDING_STD)
        elif parameter.dim() == 2:
            scale = residual_scale if "o_proj" in name or "down_proj" in name else 1.0
            nn.init.normal_(parameter, std=scale / math.sqrt(parameter.shape[1]))
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    for head in range(config.num_previous_token_heads):
        _make_previous_token_head(model, head, config.hidden_size // config.num_heads)


def _make_previous_token_head(model: Qwen2ForCausalLM, head: int, head_dim: int) -> None:
    attention = model.model.layers[0].self_attn
    frequencies = _ROPE_THETA ** -(torch.arange(0, head_dim, 2).float() / head_dim)
    useful = _PREVIOUS_TOKEN_GAIN * (frequencies > _SLOWEST_USEFUL_FREQUENCY).float()
    rows = slice(head * head_dim, (head + 1) * head_dim)
    attention.k_proj.bias[rows] = torch.cat((useful, torch.zeros_like(useful)))
    # The query is the key rotated back by one position.
    attention.q_proj.bias[rows] = torch.cat((useful * torch.cos(frequencies), -useful * torch.sin(frequencies)))
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight[rows] *= 0.1


def token_losses(model: Qwen2ForCausalLM, ids: torch.Tensor, is_target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the target tokens.

    The beginning that all rows share (system message and tool lines, a quarter of the tokens) is computed once and
    its keys and values are expanded over the batch; the gradient flows through them.

    Args:
        ids: [B, T] token ids, padded on the right: a causal model needs no mask then.
        is_target: [B, T] whether the token is to be predicted from those before it.

    Returns:
        [number of targets] losses in nats.
    """
    shared = int((ids == ids[:1]).all(dim=0).long().cumprod(dim=0).sum())
    # The token before the first target must stay: its hidden state predicts that target.
    shared = min(shared, int(is_target.any(dim=0).long().argmax()) - 1)
    cache = None
    if shared > 0:
        cache = model.model(input_ids=ids[:1, :shared], use_cache=True).past_key_values
        for layer in cache.layers:
            layer.keys = layer.keys.expand(len(ids), -1, -1, -1)
            layer.values = layer.values.expand(len(ids), -1, -1, -1)
    hidden = model.model(input_ids=ids[:, shared:-1], past_key_values=cache, use_cache=cache is not None)
    chosen = is_target[:, shared + 1 :]
    # Only the targets' logits are computed: they are a fifth of the tokens.
    logits = model.lm_head(hidden.last_hidden_state[chosen])
    return nn.functional.cross_entropy(logits, ids[:, shared + 1 :][chosen], reduction="none")


def descend(
    model: Qwen2ForCausalLM,
    optimizer: torch.optim.Optimizer,
    learning_rate: float,
    ids: torch.Tensor,
    is_target: torch.Tensor,
) -> float:
    """One optimizer step on the mean loss of a batch (shapes as in `token_losses`); returns that loss in nats."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    loss = token_losses(model, ids, is_target).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()
