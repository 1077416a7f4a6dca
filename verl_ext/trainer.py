"""verl's synchronous trainer under the contracts, in place of its own under the name `sync`.

Leases are issued before prompts are handed out, an update is entered in the ledger with the groups it used, and a
checkpoint counts once it is committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.update.commit import PREFIX, commit_checkpoint, read_commit
from verl_ext.advantages import CreditedAdvantages
from verl_ext.leasing import LEASE, LeaseIssuer
from verl_ext.replay_buffer import ledger_of


class ContractTrainerSync(CreditedAdvantages, PPOTrainerSync):  # type: ignore[misc]
    """Everything that is not here or in the mixin is verl's."""

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        columns = {name: list(batch[name]) for name in ("uid", "data_source", "raw_prompt", "extra_info")}
        rows: list[dict[str, Any]] = [
            dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
        ]
        if not hasattr(self, "_leases"):
            self._leases = LeaseIssuer(self.config, self.tokenizer)
        leases = self._leases.issue(rows, self.global_steps - 1)
        self._ledger.lease(leases, self.global_steps)
        tu.assign_non_tensor_stack(batch, LEASE, [lease.encode() for lease in leases])
        submitted: int = super()._submit_batch_to_rollout(batch)
        return submitted

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        updated = super()._update_actor(batch, metrics)
        groups = sorted({key.split("_")[0] for key in batch.keys})
        self._ledger.apply(groups, self.global_steps, output_version=self.global_steps)
        return updated

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        folder = Path(self.config.trainer.default_local_dir) / f"{PREFIX}{self.global_steps}"
        commit_checkpoint(folder, self._ledger, self.global_steps)

    def _load_checkpoint(self) -> None:
        """verl's method, which loads only what was committed.

        Raises:
            ContractViolation: ``update.commit``.
        """
        mode, path = self.config.trainer.resume_mode, self.config.trainer.resume_from_path
        if mode != "disable" and (mode != "resume_path" or read_commit(Path(path)) is None):
            raise ContractViolation("update.commit", "a committed checkpoint to resume from", f"{mode} {path}")
        super()._load_checkpoint()

    @property
    def _ledger(self) -> Any:
        return ledger_of(self.config.contract.run.folder)


# `register_trainer` refuses a name that is taken, and in verl 0.9.1 the name `sync` decides more than the class.
TRAINER_REGISTRY["sync"] = ContractTrainerSync
