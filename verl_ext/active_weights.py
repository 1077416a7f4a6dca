"""Compares the weights that a vLLM rank computes with against the ones it received, value for value.

An engine can skip a tensor and serve on. It fuses q/k/v and gate/up, pads the vocabulary, ties or copies the head, and
on a CPU packs a matrix into its kernel and drops the original. So each received tensor is looked up where the engine
put it; a packed kernel is read out by multiplying it with the identity, which gives back its exact values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

_IDENTITY_ROWS = 256


@dataclass(frozen=True)
class Place:
    """Where a received tensor lies: rows of a module's parameter."""

    path: str
    leaf: str
    part: int | None
    """Which of the tensors that the engine fused into this one. None: not fused."""


@dataclass
class Comparison:
    """What was found in use."""

    num_compared: int = 0
    different: list[str] = field(default_factory=list)
    """Received tensors whose values are not those in use."""
    unplaced: list[str] = field(default_factory=list)
    """Received tensors of which it is not known where this engine puts them."""
    uncovered: list[str] = field(default_factory=list)
    """Parameters in use that no received tensor gave a value to."""


class ActiveWeights:
    """The parameters of one engine's model, without tensor parallelism or quantization.

    Args:
        model: vLLM's model.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._fused = _fused_parts(model)

    def compare(self, received: Mapping[str, torch.Tensor]) -> Comparison:
        """Compare everything that was received with what is in use."""
        found = Comparison()
        by_module: dict[int, list[tuple[str, Place]]] = defaultdict(list)
        for name in received:
            place = self._place(name)
            if place is None:
                found.unplaced.append(name)
            else:
                by_module[id(self._modules[place.path])].append((name, place))
        for placed in by_module.values():
            module = self._modules[placed[0][1].path]
            for name in _different(module, [(name, place, received[name]) for name, place in placed]):
                found.different.append(name)
            found.num_compared += len(placed)
        covered = {
            (id(self._modules[place.path]), place.leaf, place.part)
            for group in by_module.values()
            for _, place in group
        }
        found.uncovered = [label for label, key in self._needed() if key not in covered]
        return found

    def _place(self, name: str) -> Place | None:
        *path, leaf = name.replace(".base_layer.", ".").split(".")
        part = None
        if path and path[-1] in self._fused:
            path[-1], part = self._fused[path[-1]]
        for candidate in (".".join([*path, "base_layer"]), ".".join(path)):
            module = self._modules.get(candidate)
            if module is not None and leaf in module._parameters:
                return Place(candidate, leaf, part)
        return None

    def _needed(self) -> Iterator[tuple[str, tuple[int, str, int | None]]]:
        """Every parameter in use, each fused part by itself."""
        seen = set()
        num_parts: dict[str, int] = defaultdict(int)
        for whole, _ in self._fused.values():
            num_parts[whole] += 1
        for path, module in self._modules.items():
            if id(module) in seen:
                continue
            seen.add(id(module))
            whole = path.removesuffix(".base_layer").rpartition(".")[2]
            for leaf, parameter in module._parameters.items():
                if parameter is None or (parameter.numel() == 0 and not hasattr(module, "cpu_linear")):
                    continue
                parts: list[int | None] = list(range(num_parts[whole])) if whole in num_parts else [None]
                for part in parts:
                    label = f"{path}.{leaf}" if part is None else f"{path}.{leaf} part {part}"
                    yield label, (id(module), leaf, part)


def compare_adapter(manager: Any, adapter_id: int, scaling: float, received: Mapping[str, torch.Tensor]) -> Comparison:
    """Compare a received LoRA adapter with what the engine adds to its layers.

    Args:
        manager: vLLM's adapter manager.
        adapter_id: The adapter's number in the engine.
        scaling: alpha / rank, which the engine multiplies into B.
        received: `base_model.model.<layer>.lora_A.weight` (rank, in) and `lora_B` (out, rank).
    """
    found, fused, covered = Comparison(), _fused_parts(manager.model), set()
    slot = manager.lora_index_to_id.index(adapter_id)
    for name, tensor in received.items():
        layer, _, side = name.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".")
        path, _, last = layer.rpartition(".")
        whole, part = fused.get(last, (last, 0))
        module = manager.modules.get(f"{path}.{whole}")
        if module is None:
            found.unplaced.append(name)
            continue
        stacked = module.lora_a_stacked if side == "lora_A" else module.lora_b_stacked
        held = stacked[part][slot, 0, : tensor.shape[0], : tensor.shape[1]]
        expected = tensor.to(device=held.device, dtype=held.dtype)
        if not torch.equal(held, expected if side == "lora_A" else expected * scaling):
            found.different.append(name)
        found.num_compared += 1
        covered.add((id(module), part))
    for path, module in manager.modules.items():
        for part, stacked in enumerate(getattr(module, "lora_b_stacked", ())):
            if (id(module), part) not in covered and stacked[slot].any():
                found.uncovered.append(f"{path} part {part}")
    return found


def _fused_parts(model: torch.nn.Module) -> dict[str, tuple[str, int]]:
    """Name of a layer that the engine fuses -> name of the fused layer, and which part of it."""
    return {
        part: (whole, index)
        for whole, parts in getattr(model, "packed_modules_mapping", {}).items()
        for index, part in enumerate(parts)
    }


def _different(module: Any, placed: list[tuple[str, Place, torch.Tensor]]) -> list[str]:
    """Names of the tensors that a module does not hold as they were received."""
    wrong = {
        name
        for name, place, tensor in placed
        if (parameter := getattr(module, place.leaf)).numel() and not _same(_rows(module, parameter, place), tensor)
    }
    packed = [(name, place, tensor) for name, place, tensor in placed if place.leaf == "weight"]
    if packed and hasattr(module, "cpu_linear"):
        wrong |= _different_in_kernel(module, packed)
    return sorted(wrong)


def _different_in_kernel(module: Any, placed: list[tuple[str, Place, torch.Tensor]]) -> set[str]:
    """Read the packed matrix (out, in) back, some columns at a time, and compare."""
    num_inputs, dtype = placed[0][2].shape[1], module.params_dtype
    wrong = set()
    for start in range(0, num_inputs, _IDENTITY_ROWS):
        rows = min(_IDENTITY_ROWS, num_inputs - start)
        identity = torch.zeros(rows, num_inputs, dtype=dtype)
        identity[torch.arange(rows), torch.arange(start, start + rows)] = 1.0
        columns = module.cpu_linear(identity, module.weight, None).t()
        for name, place, tensor in placed:
            if not _same(_rows(module, columns, place), tensor[:, start : start + rows]):
                wrong.add(name)
    return wrong


def _rows(module: Any, values: torch.Tensor, place: Place) -> torch.Tensor:
    """The rows of `values` (out, ...) that a received tensor has: a fused part, or the vocabulary without padding."""
    if place.part is not None:
        first = sum(module.output_sizes[: place.part])
        return values[first : first + module.output_sizes[place.part]]
    vocabulary = getattr(module, "org_vocab_size", None)
    return values if vocabulary is None else values[:vocabulary]


def _same(found: torch.Tensor, received: torch.Tensor) -> bool:
    """Equal values, after the cast to the engine's dtype that loading makes."""
    return torch.equal(found, received.to(device=found.device, dtype=found.dtype))
