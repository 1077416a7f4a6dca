"""Weights in use against weights received: what a loader can get wrong, and what is no fault."""

import pytest
import torch
from torch import nn

from tests.serving import RECEIVED, load
from verl_ext.active_weights import ActiveWeights


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
