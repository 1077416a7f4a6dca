"""Replay buffer that trains complete groups only: a group with a failed or missing sibling is discarded and replaced.

Stock verl 0.9.1 trains what is left of such a group and pads the batch with synthetic rows. Here nothing is padded;
a fresh prompt takes the group's place, a bounded number of times a step, and past the bound the run stops and says why.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from recipe.agent_contracts.errors import ContractViolation

logger = logging.getLogger(__name__)

TRAIN = "train"


class ContractReplayBuffer(ReplayBuffer):
    """Named by `trainer.v1.sampler.custom_sampler`; `sampler_kwargs` gives the group size and the bounds."""

    def __init__(self, **kwargs: Any) -> None:
        options = kwargs["sampler_kwargs"]
        super().__init__(poll_interval=options.poll_interval_seconds, **kwargs)
        self.group_size: int = options.group_size
        self.max_failed_groups_per_step: int = options.max_failed_groups_per_step
        self._failed_this_step = 0

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Wait for `batch_size` complete groups.

        Raises:
            ContractViolation: ``admission.failed_groups`` when more groups failed in this step than are replaced, or
                ``admission.group`` when an incomplete group would be trained on.
        """
        self._failed_this_step = 0
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        if partition_id == TRAIN:
            self._require_complete(batch)
            metrics["admission/groups_admitted"] = batch_size
            metrics["admission/groups_failed"] = self._failed_this_step
        return batch, metrics

    def _terminal_eviction_reasons(
        self, global_steps: int, partition_id: str
    ) -> tuple[set[str], set[str], set[str], Counter]:
        if partition_id != TRAIN:
            return set(), set(), set(), Counter()
        return set(), set(), self._untrainable_groups(), Counter()

    def _untrainable_groups(self) -> set[str]:
        """Groups that ended with a failed session, or ended "finished" without all their rows."""
        rows = Counter(key.split("_")[0] for key in self.partitions[TRAIN])
        short = {uid for uid in self.finished_keys[TRAIN] if rows[uid] != self.group_size}
        failed = short | self.failure_keys[TRAIN]
        self._failed_this_step += len(failed)
        if self._failed_this_step > self.max_failed_groups_per_step:
            raise ContractViolation(
                "admission.failed_groups",
                expected=f"at most {self.max_failed_groups_per_step} failed groups in one step",
                found=self._failed_this_step,
                evidence="the run's trajectories: records with an error or a censored termination_reason",
                remedy="fix the cause, or raise contract.rollout.max_failed_groups_per_step",
            )
        if failed:
            logger.warning("discarding %d incomplete groups and leasing fresh ones: %s", len(failed), sorted(failed))
        return failed

    def _require_complete(self, batch: KVBatchMeta) -> None:
        rows = Counter(key.split("_")[0] for key in batch.keys)
        short = {uid: count for uid, count in rows.items() if count != self.group_size}
        if short:
            raise ContractViolation("admission.group", expected=f"{self.group_size} siblings a group", found=short)
