"""Weight fingerprints: one digest a tensor, and one checksum of them all.

A tensor's digest is xxh3-128 over its name, dtype, shape and bytes, in one pass near memory speed. It finds faults (a
flipped bit, a swapped pair, a missing or renamed tensor, a dtype cast); it does not stop an attacker, who can make two
tensors with one xxh3 digest. The checksum is SHA-256 over the sorted digests, so order does not matter. The same bytes
have the same digest on a CPU and on an accelerator, contiguous or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
import xxhash

from recipe.agent_contracts.canonical import canonical_json, sha256_json

CHUNK_BYTES = 16 << 20
"""What is copied at once of a tensor that lies on an accelerator or is not contiguous."""


def tensor_digest(name: str, tensor: torch.Tensor) -> str:
    """`xxh3_128:<hex>` of a tensor under its name.

    Args:
        name: The tensor's name in the model.
        tensor: Any shape, dtype and device. A sharded tensor must be gathered before.
    """
    digest = xxhash.xxh3_128(canonical_json([name, str(tensor.dtype), list(tensor.shape)]))
    for chunk in _chunks(tensor.detach()):
        digest.update(chunk.view(torch.uint8).numpy().data)
    return f"xxh3_128:{digest.hexdigest()}"


def _chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements in row-major order, as flat contiguous tensors in host memory."""
    if tensor.numel() == 0:
        return
    if tensor.numel() == 1:
        # Counts as contiguous whatever its stride, which `view` does not accept.
        yield tensor.cpu().clone(memory_format=torch.contiguous_format).reshape(1)
    elif tensor.device.type == "cpu" and tensor.is_contiguous():
        yield tensor.reshape(-1)
    elif tensor.nbytes <= CHUNK_BYTES:
        yield tensor.contiguous().reshape(-1).cpu()
    elif len(tensor) == 1:
        yield from _chunks(tensor[0])
    else:
        for part in tensor.split(max(1, CHUNK_BYTES * len(tensor) // tensor.nbytes)):
            yield from _chunks(part)


def digests(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
    """The digest of each named tensor.

    Raises:
        ValueError: when a name comes twice: the second would hide the first.
    """
    found: dict[str, str] = {}
    for name, tensor in tensors:
        if name in found:
            raise ValueError(f"tensor {name!r} comes twice")
        found[name] = tensor_digest(name, tensor)
    return found


def weight_checksum(found: Mapping[str, str]) -> str:
    """`sha256:<hex>` over the sorted list of (name, digest)."""
    return sha256_json(sorted(found.items()))


def fingerprint(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """The checksum of named tensors."""
    return weight_checksum(digests(tensors))


def differences(expected: Mapping[str, str], found: Mapping[str, str], limit: int = 5) -> list[str]:
    """What differs between two sets of digests, in words; at most `limit` names of each kind."""
    kinds = {
        "missing": sorted(set(expected) - set(found)),
        "unexpected": sorted(set(found) - set(expected)),
        "different": sorted(name for name in set(expected) & set(found) if expected[name] != found[name]),
    }
    words = []
    for kind, names in kinds.items():
        if names:
            more = f" and {len(names) - limit} more" if len(names) > limit else ""
            words.append(f"{kind}: {', '.join(names[:limit])}{more}")
    return words
