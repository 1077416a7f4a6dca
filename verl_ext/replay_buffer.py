"""LeasedReplayBuffer: a batch is made of groups that are whole, fresh and what they were leased for, each used once.

Stock verl 0.9.1 trains what is left of a failed group and pads the batch with synthetic rows. Here every finished group
is judged against its lease; one that is not admissible is discarded with its reason in the ledger (quarantined when one
of its episodes is), and a fresh prompt takes its place, a bounded number of times a step. Past a bound the run stops
and says why.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.trajectory import TurnRecord
from recipe.agent_contracts.transition.trajectory.find import find_group
from recipe.agent_contracts.update.admission import Bounds, Reason, Sibling, judge
from recipe.agent_contracts.update.leases import decode_lease
from recipe.agent_contracts.update.ledger import TERMINAL, Ledger, Measured, State
from recipe.agent_contracts.verification import quarantine
from verl_ext.leasing import LEASE

logger = logging.getLogger(__name__)

TRAIN = "train"
FEW_GROUPS = 20
"""Below this many leased groups a share of them says nothing yet."""


@functools.cache
def ledger_of(run: str) -> Ledger:
    """The one ledger of this process: buffer and trainer live in the same one, and nobody else writes."""
    return Ledger(Path(run))


class LeasedReplayBuffer(ReplayBuffer):
    """Named by `trainer.v1.sampler.custom_sampler`; `sampler_kwargs` gives the experiment's bounds."""

    def __init__(self, **kwargs: Any) -> None:
        options = kwargs["sampler_kwargs"]
        super().__init__(poll_interval=options.poll_interval_seconds, **kwargs)
        self.run, self.ledger = Path(options.run_folder), ledger_of(options.run_folder)
        self._quarantine = quarantine.Quarantine(self.run)
        self.max_failed_groups_per_step: int = options.max_failed_groups_per_step
        self.max_censored_share: float = options.admission.max_censored_share
        self._bounds = Bounds(
            options.max_version_lag, options.admission.max_age_seconds, options.admission.zero_variance == "resample"
        )
        self._refused_this_step: Counter[Reason] = Counter()
        self._cost: Counter[str] = Counter()

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Wait for `batch_size` admissible groups, and admit them.

        Raises:
            ContractViolation: ``admission.failed_groups`` or ``admission.censored`` when more groups were lost than the
                experiment allows.
        """
        self._refused_this_step.clear()
        self._cost.clear()
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        if partition_id == TRAIN:
            admitted = sorted({key.split("_")[0] for key in batch.keys})
            self.ledger.admit(admitted, global_steps)
            metrics["admission/groups_admitted"] = len(admitted)
            metrics["admission/groups_refused"] = self._refused_this_step.total()
            metrics |= {f"admission/refused/{reason}": count for reason, count in self._refused_this_step.items()}
            metrics |= {f"admission/refused_{unit}": value for unit, value in self._cost.items()}
        return batch, metrics

    def _terminal_eviction_reasons(
        self, global_steps: int, partition_id: str
    ) -> tuple[set[str], set[str], set[str], Counter]:
        """verl evicts all of these, and asks for as many fresh prompts as the third set holds."""
        if partition_id != TRAIN:
            return set(), set(), set(), Counter()
        refused = self._judge_all(global_steps)
        for uid, reason in refused.items():
            self._refuse(uid, reason, global_steps)
        return self._late(), set(), set(refused), Counter()

    def _judge_all(self, step: int) -> dict[str, Reason]:
        """Every group that may not be trained on. A finished one that may becomes COMPLETE, and is judged no more."""
        refused = dict.fromkeys(self.failure_keys[TRAIN] - self._late(), Reason.SIBLING_FAILED)
        now = time.time()
        for uid in self.pending_keys[TRAIN] | self.running_keys[TRAIN]:
            row = self.ledger.group(uid)
            if row is not None and row.state is State.LEASED and now > row.lease.deadline:
                refused[uid] = Reason.DEADLINE
        for uid in self.finished_keys[TRAIN]:
            row = self.ledger.group(uid)
            if row is None:
                raise ContractViolation("admission.lease", "a leased group", uid, str(self.ledger.path))
            if row.state is not State.LEASED:
                continue
            siblings = self._siblings(uid)
            reason = judge(row.lease, siblings, step - 1, now, self._bounds)
            if reason is None:
                self.ledger.complete(uid, step, self._measured(uid))
            else:
                refused[uid] = reason
        return refused

    def _siblings(self, uid: str) -> list[Sibling]:
        keys = [key for key in self.partitions[TRAIN] if key.split("_")[0] == uid]
        if not keys:
            return []
        fields = ["extra_fields", "response_mask", "rollout_log_probs", "rm_scores", LEASE]
        data = tq.kv_batch_get(keys=keys, partition_id=TRAIN, select_fields=fields)
        columns = [list(data[name]) if name in ("extra_fields", LEASE) else data[name].unbind() for name in fields]
        return [_sibling(*row) for row in zip(*columns, strict=True)]

    def _late(self) -> set[str]:
        """Groups that ended after they were refused: they are cleared away, and were replaced before."""
        ended = self.finished_keys[TRAIN] | self.failure_keys[TRAIN]
        return {uid for uid in ended if (row := self.ledger.group(uid)) is not None and row.state in TERMINAL}

    def _refuse(self, uid: str, reason: Reason, step: int) -> None:
        episodes = find_group(self.run, uid)
        held = {one.entry.reason for one in self._quarantine.held() if one.entry.group_id == uid}
        if reason is Reason.SIBLING_FAILED:
            if quarantine.Reason.TAMPERED in held:
                reason = Reason.TAMPERED
            elif any(_is_censored(turns) for turns in episodes.values()):
                reason = Reason.CENSORED
        measured = _measured(episodes)
        self.ledger.refuse(uid, State.QUARANTINED if held else State.DISCARDED, reason, step, measured)
        self._refused_this_step[reason] += 1
        self._cost["tokens"] += measured.num_tokens
        row = self.ledger.group(uid)
        self._cost["seconds"] += 0.0 if row is None or row.seconds is None else row.seconds  # type: ignore[assignment]
        logger.warning("group %s is not trained on (%s) and a fresh one leased", uid, reason)
        self._require_few(reason)

    def _require_few(self, reason: Reason) -> None:
        refused = self._refused_this_step.total()
        if refused > self.max_failed_groups_per_step:
            raise ContractViolation(
                "admission.failed_groups",
                expected=f"at most {self.max_failed_groups_per_step} failed groups in one step",
                found=dict(self._refused_this_step),
                evidence=f"agent-contracts ledger {self.run}",
                remedy="fix the cause, or raise contract.rollout.max_failed_groups_per_step",
            )
        if reason is Reason.CENSORED:
            lost, leased = self.ledger.lost(Reason.CENSORED), sum(self.ledger.counts().values())
            if leased >= FEW_GROUPS and lost > self.max_censored_share * leased:
                raise ContractViolation(
                    "admission.censored",
                    expected=f"at most {self.max_censored_share:.1%} of the run's groups lost to censored episodes",
                    found=f"{lost} of {leased}",
                    evidence=f"agent-contracts ledger {self.run}",
                    remedy="fix the cause, or raise contract.admission.max_censored_share",
                )

    def _measured(self, uid: str) -> Measured:
        return _measured(find_group(self.run, uid))


def _sibling(
    extra: dict[str, Any], mask: torch.Tensor, log_probs: torch.Tensor, scores: torch.Tensor, carried: str
) -> Sibling:
    # TensorDict wraps what is not a tensor, depending on how the rows were put.
    extra, carried = getattr(extra, "data", extra), getattr(carried, "data", carried)
    chosen = mask.bool()
    aligned = mask.shape == log_probs.shape and bool(chosen.any()) and bool(log_probs[chosen].isfinite().all())
    return Sibling(
        lease_hash=decode_lease(carried).lease_hash,
        first_version=extra["min_global_steps"],
        last_version=extra["max_global_steps"],
        termination=extra["termination"],
        verified="reward_extra_info" in extra,
        aligned=aligned,
        episode_return=float(scores.sum()),
        finished_at=extra["finished_at"],
    )


def _measured(episodes: dict[str, list[TurnRecord]]) -> Measured:
    rewards = [turns[-1].reward_components for turns in episodes.values()]
    returns = [reward["task_success"] for reward in rewards if reward is not None]
    tokens = sum(len(turn.action_token_ids) for turns in episodes.values() for turn in turns)
    return Measured(tokens, sum(returns) / len(returns) if returns else None)


def _is_censored(turns: list[TurnRecord]) -> bool:
    reason = turns[-1].termination_reason
    return reason is not None and not reason.is_outcome
