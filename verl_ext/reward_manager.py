"""Reward manager: scores the sealed final state in the verifier's own process, and keeps the reward vector whole.

Before it serves, canaries whose verdict is known must come out right. A verifier that gives no verdict raises; the
exception reaches the rollout worker, which fails the group and quarantines the episode. It is never a reward of 0.
"""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from recipe.agent_contracts.domains import domain_of
from recipe.agent_contracts.errors import InvalidMeasurement, RecordCorrupt, VerifierFailure
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee
from recipe.agent_contracts.verification.canaries import require_canaries
from recipe.agent_contracts.verification.clean_room import open_room
from recipe.agent_contracts.verification.judge import Judge, JudgeConfig, judged
from recipe.agent_contracts.verification.layers import Verdict
from recipe.agent_contracts.verification.objective import Objective
from recipe.agent_contracts.verification.process import VerifierPool
from verl_ext import scaffold

PlainT = TypeVar("PlainT")
VERDICT = "verdict"
"""Key of the verdict's blob beside the vector. The rollout worker takes it out again."""


def objective_of(config: Any) -> Objective:
    """The objective that a run's configuration declares."""
    return _plain(config.contract.verification.objective, Objective)


def _plain(node: Any, kind: type[PlainT]) -> PlainT:
    return msgspec.convert(OmegaConf.to_container(node, resolve=True), kind)


class ContractRewardManager(RewardManagerBase):
    """Named by `reward.reward_manager`. Runs in verl's reward worker; the verifier runs in processes below it."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **kwargs: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        scaffold.attest_process(config, tokenizer, {"reward": ("train", "heldout/")})
        settings = config.contract.verification
        self._blobs = BlobStore(Path(config.contract.run.folder) / "blobs")
        self._new_pool = functools.partial(
            VerifierPool,
            timeout_seconds=settings.timeout_seconds,
            num_processes=settings.processes,
            room=open_room(frozenset(map(Guarantee, settings.require_guarantees))),
        )
        self._objective = objective_of(config)
        self._judge = None if settings.judge is None else Judge(_plain(settings.judge, JudgeConfig))
        self._pools: dict[str, VerifierPool] = {}
        domain = domain_of(config.contract.environment.domain)
        require_canaries(domain, self._pool(domain.verifier).score)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score one episode.

        Args:
            data: One episode's rows; the last carries `final_state_hash` in its extra fields.

        Returns:
            `reward_score`: what the declared objective makes of the vector, costs apart. `reward_extra_info`:
            the whole vector, and under `VERDICT` the blob that says how it came about and in what box.

        Raises:
            VerifierFailure: no verdict, or the final state is not in the run's blobs.
            InvalidMeasurement: the measurement itself was tampered with.
        """
        row = data[-1].non_tensor_batch
        grader = json.loads(row["reward_model"]["ground_truth"])
        final_state = self._sealed(row["tool_extra_fields"]["final_state_hash"])
        verifier = self._pool(domain_of(row["data_source"]).verifier)
        verdict = await asyncio.to_thread(self._verdict, verifier, grader, final_state, row["extra_info"]["task"])
        score = verdict.score
        if score.tamper_detected:
            raise InvalidMeasurement(
                "verification.tamper", "an untouched measurement", f"tamper_detected={score.tamper_detected}"
            )
        vector = score.vector()
        record = self._blobs.put(msgspec.json.encode(verdict))
        return {"reward_score": self._objective.reward_of(vector), "reward_extra_info": {**vector, VERDICT: record}}

    def _verdict(self, verifier: VerifierPool, grader: dict[str, Any], final_state: bytes, task: str) -> Verdict:
        verdict = verifier.verify(grader, final_state)
        if self._judge is None:
            return verdict
        return judged(verdict, self._judge, task, final_state, self._blobs.put, self._objective.is_gated_by_judge)

    def _pool(self, verifier: str) -> VerifierPool:
        if verifier not in self._pools:
            self._pools[verifier] = self._new_pool(verifier)
        return self._pools[verifier]

    def _sealed(self, final_state_hash: str) -> bytes:
        try:
            return self._blobs.get(final_state_hash)
        except RecordCorrupt as error:
            raise VerifierFailure("verification.artifact", "the sealed final state", str(error)) from error
