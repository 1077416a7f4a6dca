"""GroupLease: what a group of siblings was promised to be, issued when its prompt is submitted.

Every sibling carries it and is held against it before its first token, after its last, and at admission. A sibling of
another policy, snapshot or sampler fails its whole group; nothing that comes later fills its place.
"""

from __future__ import annotations

import msgspec

from recipe.agent_contracts.canonical import canonical_json, sha256_json
from recipe.agent_contracts.errors import ContractViolation


class LeaseViolation(ContractViolation):
    """A sibling is not what its group was leased for."""


class GroupLease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See the module's docstring."""

    group_id: str
    """verl's uid of the prompt. Never used again, also not after a crash."""
    task_id: str
    family: str
    policy_version: int
    """Version whose tokens the group is to be made of."""
    behavior_manifest_hash: str
    base_snapshot_id: str
    """State hash that every sibling starts from."""
    sampler_config_hash: str
    size: int
    deadline: float
    """Unix seconds, UTC. A group that is not whole by then is discarded."""

    @property
    def lease_hash(self) -> str:
        return sha256_json(self)

    def encode(self) -> str:
        """For a field of the prompt."""
        return canonical_json(self).decode()

    def require(self, field: str, found: object) -> None:
        """Raise unless a sibling has this lease's value.

        Raises:
            LeaseViolation: ``admission.lease``.
        """
        expected = getattr(self, field)
        if found != expected:
            raise LeaseViolation("admission.lease", f"{field} {expected}", found, f"group {self.group_id}")


def decode_lease(text: str) -> GroupLease:
    """The lease that a sibling carries.

    Raises:
        LeaseViolation: when it is not one.
    """
    try:
        return msgspec.json.decode(text, type=GroupLease)
    except msgspec.MsgspecError as error:
        raise LeaseViolation("admission.lease", "a lease", str(error)) from error
