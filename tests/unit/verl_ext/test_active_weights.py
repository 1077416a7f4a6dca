"""Weights in use against weights received: what a loader can get wrong, and what is no fault."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.serving import RECEIVED, Model, load
from verl_ext.active_weights import ActiveWeights, compare_adapter


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


class Wrapped:
    """A layer with adapter slots, as vLLM's wrappers hold them: one (slots, 1, rank, width) tensor a fused part."""

    def __init__(self, sizes, num_inputs, rank=4, slots=2):
        self.lora_a_stacked = tuple(torch.zeros(slots, 1, rank, num_inputs) for _ in sizes)
        self.lora_b_stacked = tuple(torch.zeros(slots, 1, size, rank) for size in sizes)


ADAPTER = {
    "base_model.model.model.q_proj.lora_A.weight": torch.arange(8.0).reshape(2, 4),
    "base_model.model.model.q_proj.lora_B.weight": torch.arange(8.0).reshape(4, 2) / 3,
    "base_model.model.model.v_proj.lora_A.weight": torch.ones(2, 4),
    "base_model.model.model.v_proj.lora_B.weight": torch.full((2, 2), 0.1),
}
SLOT, ADAPTER_ID, SCALING = 1, 123, 2.0


def adapter_manager():
    """An engine that holds ADAPTER in its second slot, B scaled."""
    layers = {"model.qkv_proj": Wrapped([4, 2, 2], 4), "model.o_proj": Wrapped([4], 4)}
    for name, tensor in ADAPTER.items():
        part = 0 if "q_proj" in name else 2
        side = layers["model.qkv_proj"].lora_a_stacked if "lora_A" in name else layers["model.qkv_proj"].lora_b_stacked
        scaled = tensor if "lora_A" in name else tensor * SCALING
        side[part][SLOT, 0, : tensor.shape[0], : tensor.shape[1]] = scaled
    return SimpleNamespace(model=Model(packed=True), modules=layers, lora_index_to_id=[7, ADAPTER_ID])


def test_an_adapter_in_use_is_found_whole():
    found = compare_adapter(adapter_manager(), ADAPTER_ID, SCALING, ADAPTER)
    assert (found.different, found.unplaced, found.uncovered, found.num_compared) == ([], [], [], 4)


def test_an_adapter_that_was_not_replaced_or_scaled_otherwise_is_found():
    manager = adapter_manager()
    newer = {**ADAPTER, "base_model.model.model.q_proj.lora_A.weight": torch.zeros(2, 4)}
    assert compare_adapter(manager, ADAPTER_ID, SCALING, newer).different == [next(iter(ADAPTER))]
    unscaled = compare_adapter(manager, ADAPTER_ID, 1.0, ADAPTER).different
    assert unscaled == [name for name in ADAPTER if "lora_B" in name]


def test_a_layer_that_still_adds_an_older_adapter_is_found():
    manager = adapter_manager()
    manager.modules["model.o_proj"].lora_b_stacked[0][SLOT, 0, 0, 0] = 1.0
    assert compare_adapter(manager, ADAPTER_ID, SCALING, ADAPTER).uncovered == ["model.o_proj part 0"]


def test_an_adapter_for_a_layer_that_the_engine_does_not_have_is_said():
    extra = {**ADAPTER, "base_model.model.model.experts.lora_A.weight": torch.ones(2, 4)}
    assert compare_adapter(adapter_manager(), ADAPTER_ID, SCALING, extra).unplaced == list(extra)[-1:]
