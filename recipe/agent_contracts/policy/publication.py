"""What travels with a set of weights: an envelope with the digest of each tensor, as the last tensor of the stream.

The sender digests each tensor as it sends it and closes with the envelope; the receiver digests what it holds and
compares before it serves. One pass on each side, and the receiver needs no second channel to learn what to expect.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import torch

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.fingerprint import differences, tensor_digest, weight_checksum
from recipe.agent_contracts.policy.registry import Part

ENVELOPE_NAME = "agent_contracts.envelope"
_REMEDY = "Nothing was switched: the version before still serves"


class Envelope(msgspec.Struct, frozen=True):
    """Identity of one transfer."""

    policy_version: int
    part: Part
    digests: dict[str, str]
    """`xxh3_128:<hex>` by tensor name, of everything that was sent before the envelope."""

    @property
    def checksum(self) -> str:
        return weight_checksum(self.digests)

    def as_tensor(self) -> torch.Tensor:
        """The envelope as bytes (N,), to be sent under `ENVELOPE_NAME`."""
        return torch.frombuffer(bytearray(msgspec.json.encode(self)), dtype=torch.uint8)


class Arrival:
    """The receiver's side of one transfer."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.envelope: Envelope | None = None

    def take(self, bucket: Iterable[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
        """Digest a bucket and return it without the envelope."""
        weights = []
        for name, tensor in bucket:
            if name == ENVELOPE_NAME:
                self.envelope = msgspec.json.decode(bytes(tensor.cpu().numpy()), type=Envelope)
            else:
                self.digests[name] = tensor_digest(name, tensor)
                weights.append((name, tensor))
        return weights

    def verified(self) -> Envelope:
        """The envelope, once everything in it has arrived as it was sent.

        Raises:
            ContractViolation: ``publication.received``, naming the tensors that are missing or differ.
        """
        if self.envelope is None:
            raise ContractViolation("publication.received", "an envelope", "none", remedy=_REMEDY)
        found = differences(self.envelope.digests, self.digests)
        if found:
            raise ContractViolation(
                "publication.received",
                expected=f"the {len(self.envelope.digests)} tensors of version {self.envelope.policy_version} as sent",
                found="; ".join(found),
                remedy=_REMEDY,
            )
        return self.envelope
