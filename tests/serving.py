"""A hand-written model that fuses, pads, packs and ties its weights as vLLM's models do, and what is sent to it."""

import torch
from torch import nn


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
    load_into(model, RECEIVED)
    return model


def load_into(model, weights):
    """A right loader: each tensor it is given goes where the model computes with it."""
    embeddings, fused = {model.model["embed_tokens"], model.lm_head}, model.model["qkv_proj"]
    for name, tensor in weights.items():
        _, module, leaf = name.split(".")
        if module == "embed_tokens":
            for embedding in embeddings:
                embedding.weight[:5] = embedding.kernel[:5] = tensor
        elif module == "norm":
            model.model["norm"].weight.requires_grad_(False)[:] = tensor
        else:
            part = ("q_proj", "k_proj", "v_proj").index(module)
            first = sum(fused.output_sizes[:part])
            target = fused.kept if leaf == "weight" else fused.bias
            target[first : first + len(tensor)] = tensor
