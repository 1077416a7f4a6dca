"""Leases of a run: issued by the trainer when it submits prompts, carried in a field of each row."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.policy.manifest import PolicyManifest, Sampler
from recipe.agent_contracts.policy.registry import Registry
from recipe.agent_contracts.policy.scaffold_lock import TRAIN, read_lock
from recipe.agent_contracts.update.leases import GroupLease
from verl_ext import scaffold

LEASE = "lease"
"""Field of a training prompt; it reaches every sibling's row."""


def sampler_hash(sampler: Sampler) -> str:
    """`sampler_config_hash` of a lease."""
    return sha256_json(sampler)


class LeaseIssuer:
    """Issues leases in the trainer's process.

    Args:
        config: verl's whole configuration.
        tokenizer: The trainer's own.
    """

    def __init__(self, config: Any, tokenizer: Any) -> None:
        self._config = config
        run = Path(config.contract.run.folder)
        self._registry, self._lock = Registry(run), read_lock(run)
        self._build = scaffold.builder(config, tokenizer)
        self._seconds = config.contract.admission.group_deadline_seconds

    def issue(self, rows: list[dict[str, Any]], policy_version: int) -> list[GroupLease]:
        """One lease a prompt.

        Args:
            rows: `uid`, `data_source`, `raw_prompt` and `extra_info` of each.
            policy_version: Whose tokens they are to be made of; it must have been served.
        """
        published = self._registry.published(policy_version)
        assert published.weight_checksum is not None, "a served publication was staged"
        deadline, leases = time.time() + self._seconds, []
        for row in rows:
            info = row["extra_info"]
            played_in, base = scaffold.of_row(self._config, self._build, row, row["raw_prompt"], TRAIN)
            manifest = PolicyManifest.of(
                played_in,
                policy_version=policy_version,
                weight_checksum=published.weight_checksum,
                base_revision=self._lock.base_revision,
                adapter_revision=published.adapter_checksum,
            )
            leases.append(
                GroupLease(
                    group_id=row["uid"],
                    task_id=info["task_id"],
                    family=info["family"],
                    policy_version=policy_version,
                    behavior_manifest_hash=manifest.manifest_hash,
                    base_snapshot_id=base,
                    sampler_config_hash=sampler_hash(played_in.sampler),
                    size=self._config.contract.rollout.group_size,
                    deadline=deadline,
                )
            )
        return leases
