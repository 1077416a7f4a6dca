"""Advantages of whole episodes instead of verl's rows, and the record of the update that they make.

Stock verl 0.9.1 hands an estimator four padded tensors; turns, anchors and the episode's identity are lost. This mixin
takes the place of `PPOTrainer._compute_advantage`: everything else of verl's step stays.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.utils.padding import response_to_nested

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.update.consistency import compare
from recipe.agent_contracts.update.credit import ESTIMATORS, Episode, TurnSpan, credit
from recipe.agent_contracts.update.gradient_mass import length_band, shares, token_mass
from recipe.agent_contracts.update.ratios import ratio_report
from recipe.agent_contracts.update.record import UpdateRecord, UpdateRow, multipliers_at
from recipe.agent_contracts.update.reduction import token_weights, turn_factors, turn_ids
from recipe.agent_contracts.update.shuffling import shuffled
from recipe.agent_contracts.verification.constraints import Constraint, constrain
from recipe.agent_contracts.verification.objective import Objective
from verl_ext.agent_loop import TURN_ANCHORS
from verl_ext.reward_manager import objective_of

LABELS = ("uid", "session_id", "extra_fields", "extra_info")
TENSORS = ("response_mask", "rm_scores", "rollout_log_probs", "old_log_probs")


def _refuse(name: str) -> Any:
    def estimate(**_: Any) -> Any:
        raise ContractViolation(
            "update.credit", f"{name} computed from whole episodes by the contracts' trainer", "verl's own trainer"
        )

    return estimate


for _name in ESTIMATORS:
    # verl knows the name and refuses to go on without our trainer, instead of crediting rows.
    register_adv_est(f"contract_{_name}")(_refuse(_name))


class CreditedAdvantages:
    """Mixin for a verl V1 `PPOTrainer`."""

    config: Any
    global_steps: int

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Credit the batch, write the update's record, and give verl the advantages.

        Raises:
            ContractViolation: ``update.credit``, ``update.consistency``.
        """
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[*LABELS, *TENSORS])
        nested_mask = data["response_mask"]
        labels = {name: data.pop(name).tolist() for name in LABELS}
        tensors = data.to_padded_tensor()
        mask, episodes = tensors["response_mask"], _episodes(labels, tensors)
        run, objective = Path(self.config.contract.run.folder), objective_of(self.config)
        vectors = [fields["reward_extra_info"] for fields in labels["extra_fields"]]
        constraints = constrain(objective.costs, multipliers_at(run, self.global_steps, objective.costs), vectors)
        episodes = _valued(episodes, vectors, objective, constraints)
        declared = self.config.contract.credit
        return_of: list[str | None] = [None] * len(episodes)
        if self.config.contract.evaluation.control == "shuffled_rewards":
            seed = self.config.contract.evaluation.shuffle_seed
            episodes, return_of[:] = shuffled(episodes, seed, self.global_steps)
        credited = credit(declared.estimator, declared.group_reward_scale, episodes)
        advantages = _on_tokens(credited, mask)
        record = self._record(episodes, return_of, credited, mask, constraints)
        record.write(run)
        metrics.update(_monitor(record, labels, tensors))
        self._require_consistent(metrics)
        if declared.reduction == "turn_mass_conserving":
            advantages = advantages * turn_factors(mask)
        fields = {"advantages": advantages.float(), "returns": _on_tokens(_returns(episodes), mask).float()}
        fields |= self._off_policy(tensors, metrics)
        output = {name: response_to_nested(value, nested_mask) for name, value in fields.items()}
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(output, batch_size=len(batch))
        )

    def _require_consistent(self, metrics: dict[str, Any]) -> None:
        """Stop before the update when generator and trainer disagree about what was sampled."""
        for name in ("abs_p95", "abs_max", "k3"):
            bound, found = self.config.contract.consistency[f"max_{name}"], metrics[f"consistency/{name}"]
            if bound is not None and not abs(found) <= bound:
                raise ContractViolation(
                    "update.consistency",
                    expected=f"{name} of generator against trainer log probabilities at most {bound}",
                    found=found,
                    evidence=f"step {self.global_steps}: metrics consistency/*",
                    remedy="usual causes: docs/update.md; the batch was not trained on",
                )

    def _off_policy(self, tensors: TensorDict, metrics: dict[str, Any]) -> dict[str, torch.Tensor]:
        """verl's weights from the behaviour to the proximal policy, and its mismatch metrics."""
        corrected, found = compute_rollout_correction_and_add_to_batch(
            DataProto(batch=tensors.clone()), self.config.algorithm.rollout_correction
        )
        metrics.update(found)
        weights = corrected.batch.get("rollout_is_weights", None)
        return {} if weights is None else {"rollout_is_weights": weights}

    def _record(
        self,
        episodes: list[Episode],
        return_of: list[str | None],
        credited: list[np.ndarray],
        mask: torch.Tensor,
        constraints: dict[str, Constraint],
    ) -> UpdateRecord:
        declared, weights = self.config.contract, token_weights(self.config.contract.credit.reduction, mask)
        factors = turn_factors(mask) if declared.credit.reduction == "turn_mass_conserving" else None
        rows = []
        for index, (episode, values) in enumerate(zip(episodes, credited, strict=True)):
            chosen = mask[index].bool()
            weight = weights[index][chosen]
            if factors is not None:
                # One weight an episode: what differs between its turns goes with the advantages.
                values, weight = values * factors[index][chosen].numpy(), weight / factors[index][chosen]
            constant = bool((values == values[0]).all())
            rows.append(
                UpdateRow(
                    trajectory_id=episode.trajectory_id,
                    group_id=episode.group_id,
                    episode_return=episode.episode_return,
                    return_of=return_of[index],
                    advantages=[float(values[0])] if constant else values.tolist(),
                    num_action_tokens=episode.num_tokens,
                    weight=float(weight[0]),
                )
            )
        return UpdateRecord(
            step=self.global_steps,
            input_policy_version=self.global_steps - 1,
            output_policy_version=self.global_steps,
            estimator=declared.credit.estimator,
            group_reward_scale=declared.credit.group_reward_scale,
            reduction=declared.credit.reduction,
            objective=declared["update"].objective,
            kl_beta=declared["update"].kl_beta,
            control=declared.evaluation.control,
            shuffle_seed=declared.evaluation.shuffle_seed,
            constraints=constraints,
            rows=rows,
        )


def _episodes(labels: dict[str, list[Any]], tensors: TensorDict) -> list[Episode]:
    """One episode a row. Several rows an episode would count its reward several times, and are refused."""
    names = [f"{uid}_{session}" for uid, session in zip(labels["uid"], labels["session_id"], strict=True)]
    if len(set(names)) != len(names):
        raise ContractViolation("update.credit", "one row an episode", f"{len(names)} rows, {len(set(names))} episodes")
    ids = turn_ids(tensors["response_mask"])
    returns = tensors["rm_scores"].double().sum(dim=1).tolist()
    episodes = []
    for index, name in enumerate(names):
        sizes = torch.bincount(ids[index][ids[index] >= 0]).tolist()
        anchors = labels["extra_fields"][index][TURN_ANCHORS]
        if len(anchors) != len(sizes):
            raise ContractViolation("update.credit", f"{len(anchors)} turns of action tokens", len(sizes), name)
        turns = [TurnSpan(anchor, size) for anchor, size in zip(anchors, sizes, strict=True)]
        episodes.append(Episode(name, labels["uid"][index], returns[index], turns))
    return episodes


def _valued(
    episodes: list[Episode],
    vectors: list[dict[str, float]],
    objective: Objective,
    constraints: dict[str, Constraint],
) -> list[Episode]:
    """Episodes with the declared objective's return, costs included.

    Raises:
        ContractViolation: ``update.reward`` when verl carries another reward than the vector gives.
    """
    multipliers = {term: constraint.multiplier for term, constraint in constraints.items()}
    for episode, vector in zip(episodes, vectors, strict=True):
        expected = objective.reward_of(vector)
        # verl carries rewards as float32.
        if not math.isclose(episode.episode_return, expected, rel_tol=1e-6, abs_tol=1e-6):
            raise ContractViolation("update.reward", expected, episode.episode_return, episode.trajectory_id)
    return [
        msgspec.structs.replace(episode, episode_return=objective.return_of(vector, multipliers))
        for episode, vector in zip(episodes, vectors, strict=True)
    ]


def _returns(episodes: list[Episode]) -> list[np.ndarray]:
    return [np.full(episode.num_tokens, episode.episode_return) for episode in episodes]


def _on_tokens(values: list[np.ndarray], mask: torch.Tensor) -> torch.Tensor:
    """Vectors over action tokens as a padded tensor, float64, shape (B, T), 0 elsewhere."""
    placed = torch.zeros(mask.shape, dtype=torch.float64)
    placed[mask.bool()] = torch.from_numpy(np.concatenate(values))
    return placed


def _monitor(record: UpdateRecord, labels: dict[str, list[Any]], tensors: TensorDict) -> dict[str, float]:
    """Consistency, ratio tails, zero-variance groups and gradient mass of the batch."""
    chosen = tensors["response_mask"].bool()
    theta, generator = tensors["old_log_probs"].double(), tensors["rollout_log_probs"].double()
    split = [side[index][chosen[index]].numpy() for side in (theta, generator) for index in range(len(chosen))]
    found = compare(split[: len(chosen)], split[len(chosen) :])
    masses = [
        float(token_mass(np.array([row.coefficient(t) for t in range(row.num_action_tokens)]), values).sum())
        for row, values in zip(record.rows, split, strict=False)
    ]
    # The verified outcome: in an update that shuffled returns, the row's is another episode's.
    verified = tensors["rm_scores"].double().sum(dim=1).tolist()
    strata = [
        {
            "outcome": "success" if outcome > 0 else "failure",
            "length": length_band(row.num_action_tokens),
            "turns": str(len(fields[TURN_ANCHORS])),
            "family": info["family"],
        }
        for row, outcome, fields, info in zip(
            record.rows, verified, labels["extra_fields"], labels["extra_info"], strict=True
        )
    ]
    groups: dict[str, set[float]] = {}
    for row in record.rows:
        groups.setdefault(row.group_id, set()).add(row.episode_return)
    return {
        "consistency/abs_max": found.max,
        "consistency/abs_p95": found.p95,
        "consistency/mean": found.mean,
        "consistency/k3": found.k3,
        "consistency/episode_log_perplexity": found.episode_log_perplexity,
        "update/zero_variance_groups": sum(len(returns) == 1 for returns in groups.values()) / len(groups),
        **{
            f"constraints/{term}/{name}": getattr(constraint, name)
            for term, constraint in record.constraints.items()
            for name in ("multiplier", "mean_cost", "budget")
        },
        **ratio_report(theta - generator, tensors["response_mask"]),
        **shares(masses, strata),
    }
