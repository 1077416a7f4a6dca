"""Reward manager: scores the exported final state in the verifier's own process, and keeps the reward vector whole.

A verifier that gives no verdict raises; the exception reaches the rollout worker, which fails the group. A failure is
never a reward of 0.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import msgspec
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from recipe.agent_contracts.domains import domain_of
from recipe.agent_contracts.errors import InvalidMeasurement
from recipe.agent_contracts.verification.process import VerifierProcess
from verl_ext import scaffold


class ContractRewardManager(RewardManagerBase):
    """Named by `reward.reward_manager`. Runs in verl's reward worker; the verifier runs in processes below it."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **kwargs: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        scaffold.attest_process(config, tokenizer, {"reward": ("train", "heldout/")})
        settings = config.contract.verification
        self._timeout_seconds: float = settings.timeout_seconds
        self._num_processes: int = settings.processes
        self._pools: dict[str, itertools.cycle[VerifierProcess]] = {}

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score one episode.

        Args:
            data: One episode's rows; the last carries `final_state` in its extra fields.

        Returns:
            `reward_score` (the task's success) and `reward_extra_info` (the whole vector).

        Raises:
            VerifierFailure: no verdict.
            InvalidMeasurement: the measurement itself was tampered with.
        """
        row = data[-1].non_tensor_batch
        grader = json.loads(row["reward_model"]["ground_truth"])
        final_state: str = row["tool_extra_fields"]["final_state"]
        verifier = self._next_process(domain_of(row["data_source"]).verifier)
        score = await asyncio.to_thread(verifier.score, grader, final_state.encode())
        if score.tamper_detected:
            raise InvalidMeasurement(
                "verification.tamper", "an untouched measurement", f"tamper_detected={score.tamper_detected}"
            )
        return {"reward_score": score.task_success, "reward_extra_info": msgspec.to_builtins(score)}

    def _next_process(self, verifier: str) -> VerifierProcess:
        if verifier not in self._pools:
            processes = [VerifierProcess(verifier, self._timeout_seconds) for _ in range(self._num_processes)]
            self._pools[verifier] = itertools.cycle(processes)
        return next(self._pools[verifier])
