"""Leases for tests."""

from recipe.agent_contracts.update.leases import GroupLease


def lease(group_id="g", **changes):
    values = {
        "group_id": group_id,
        "task_id": "t",
        "family": "copy",
        "policy_version": 0,
        "behavior_manifest_hash": "sha256:m",
        "base_snapshot_id": "sha256:s",
        "sampler_config_hash": "sha256:p",
        "size": 2,
        "deadline": 100.0,
    }
    return GroupLease(**{**values, **changes})
