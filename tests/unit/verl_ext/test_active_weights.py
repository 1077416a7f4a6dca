"""Weights in use against weights received, on a hand-written model that fuses, pads, packs and ties as vLLM's do."""

import pytest
import torch
from torch import nn

from verl_ext.active_weights import ActiveWeights


class Fused(nn.Module):
    """A linear layer of several, whose matrix is packed into the kernel as on a CPU, or kept."""

    def __init__(self, sizes, num_inputs, packed, bias=False):
        super().__init__()
        self.output_sizes, self.params_dtype = sizes, torch.float32
        self.kept = torch.zeros(sum(sizes), num_inputs)
        self.weight = nn.Parameter(torch.empty(0) if packed else self.kept, requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(sum(sizes)), requires_grad=False) if bias else None
        if packed:
            self.cpu_linear = lambda x, weight, bias: x @ self.kept.t()


class Embedding(nn.Module):
    def __init__(self, vocabulary, padded, width, kernel):
        super().__init__()
        self.org_vocab_size, self.params_dtype = vocabulary, torch.float32
        self.weight = nn.Parameter(torch.zeros(padded, width), requires_grad=False)
        self.kernel = torch.zeros(padded, width)
        if kernel:
            self.cpu_linear = lambda x, weight, bias: x @ self.kernel.t()


class Model(nn.Module):
    packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}  # noqa: RUF012  (vLLM's own form)

    def __init__(self, packed, separate_head=False):
        super().__init__()
        self.model = nn.ModuleDict(
            {"embed_tokens": Embedding(5, 8, 4, kernel=packed), "qkv_proj": Fused([4, 2, 2], 4, packed, bias=True)}
        )
        self.model["norm"] = nn.LayerNorm(4, bias=False)
        self.lm_head = Embedding(5, 8, 4, kernel=packed) if separate_head else self.model["embed_tokens"]


RECEIVED = {
    "model.embed_tokens.weight": torch.arange(20.0).reshape(5, 4) - 7,
    "model.q_proj.weight": torch.arange(16.0).reshape(4, 4) / 3,
    "model.k_proj.weight": -torch.arange(8.0).reshape(2, 4) / 7,
    "model.v_proj.weight": torch.full((2, 4), 1e-7),
    "model.q_proj.bias": torch.arange(4.0),
    "model.k_proj.bias": torch.ones(2),
    "model.v_proj.bias": torch.zeros(2),
    "model.norm.weight": torch.full((4,), 0.5),
}


def load(packed=True, separate_head=False):
    """A model that holds what was received, as a right loader leaves it."""
    model = Model(packed, separate_head)
    for embedding in {model.model["embed_tokens"], model.lm_head}:
        embedding.weight[:5] = embedding.kernel[:5] = RECEIVED["model.embed_tokens.weight"]
    names = ("q_proj", "k_proj", "v_proj")
    model.model["qkv_proj"].kept[:] = torch.cat([RECEIVED[f"model.{name}.weight"] for name in names])
    model.model["qkv_proj"].bias[:] = torch.cat([RECEIVED[f"model.{name}.bias"] for name in names])
    model.model["norm"].weight.requires_grad_(False)[:] = RECEIVED["model.norm.weight"]
    return model


@pytest.mark.parametrize("packed", [True, False])
def test_a_right_load_is_found_whole(packed):
    found = ActiveWeights(load(packed)).compare(RECEIVED)
    assert (found.different, found.unplaced, found.uncovered) == ([], [], [])
    assert found.num_compared == len(RECEIVED)


@pytest.mark.parametrize("packed", [True, False])
def test_the_smallest_change_in_a_fused_matrix_names_its_part(packed):
    model = load(packed)
    kept = model.model["qkv_proj"].kept
    kept[5, 2] = torch.nextafter(kept[5, 2], torch.tensor(1.0))
    assert ActiveWeights(model).compare(RECEIVED).different == ["model.k_proj.weight"]


def test_parts_fused_in_another_order_are_found():
    model = load()
    model.model["qkv_proj"].kept[4:] = torch.cat([RECEIVED["model.v_proj.weight"], RECEIVED["model.k_proj.weight"]])
    assert ActiveWeights(model).compare(RECEIVED).different == ["model.k_proj.weight", "model.v_proj.weight"]


def test_a_kernel_that_kept_the_old_matrix_is_found_though_the_parameter_is_new():
    model = load()
    model.lm_head.kernel[1, 1] += 1
    assert ActiveWeights(model).compare(RECEIVED).different == ["model.embed_tokens.weight"]


def test_a_separate_tied_head_that_the_loader_skipped_is_found():
    """vLLM's Llama keeps one: a reload leaves it on dummy values, and only a log line says so."""
    model = load(separate_head=True)
    assert ActiveWeights(model).compare(RECEIVED).uncovered == ["lm_head.weight"]
    staged = {**RECEIVED, "lm_head.weight": RECEIVED["model.embed_tokens.weight"]}
    assert ActiveWeights(model).compare(staged).uncovered == []
    model.lm_head.kernel.zero_()
    assert ActiveWeights(model).compare(staged).different == ["lm_head.weight"]


def test_a_parameter_that_nothing_was_sent_for_is_found():
    short = {
        name: tensor for name, tensor in RECEIVED.items() if name not in ("model.v_proj.bias", "model.norm.weight")
    }
    assert ActiveWeights(load()).compare(short).uncovered == ["model.qkv_proj.bias part 2", "model.norm.weight"]


def test_a_tensor_with_no_known_place_is_said():
    found = ActiveWeights(load()).compare({**RECEIVED, "model.experts.0.w1": torch.ones(1)})
    assert found.unplaced == ["model.experts.0.w1"]


def test_the_engines_own_cast_is_not_a_difference_but_another_value_is():
    model = load(packed=False).bfloat16()
    assert ActiveWeights(model).compare(RECEIVED).different == []
    model.model["norm"].weight[0] = 0.25
    assert ActiveWeights(model).compare(RECEIVED).different == ["model.norm.weight"]


def test_columns_beyond_the_first_block_are_compared(monkeypatch):
    monkeypatch.setattr("verl_ext.active_weights._IDENTITY_ROWS", 3)
    model = load()
    model.model["qkv_proj"].kept[0, 3] += 1
    assert ActiveWeights(model).compare(RECEIVED).different == ["model.q_proj.weight"]


def test_weights_below_a_lora_wrapper_are_found():
    model = load()
    wrapper = nn.Module()
    wrapper.base_layer = model.model["qkv_proj"]
    model.model["qkv_proj"] = wrapper
    wrapped = {name.replace("_proj.", "_proj.base_layer."): tensor for name, tensor in RECEIVED.items()}
    found = ActiveWeights(model).compare(wrapped)
    assert (found.different, found.unplaced, found.uncovered) == ([], [], [])
